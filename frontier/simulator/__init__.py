"""The simulated inference engine: a scheduler with known truth, in virtual time."""
