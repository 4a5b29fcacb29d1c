"""The engine inside: a continuous-batching model with known truth, in virtual time or behind HTTP."""
