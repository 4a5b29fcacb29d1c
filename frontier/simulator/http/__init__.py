"""The simulated engine served over HTTP."""
