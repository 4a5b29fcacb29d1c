"""The conductor and what it needs around it: the account of what was spent."""

from frontier.sweep.conductor import Conductor, Quiet, SweepEnd, run_sweep

__all__ = ["Conductor", "Quiet", "SweepEnd", "run_sweep"]
