"""Sweeps: the conductor, the trials it runs, the servers they need, and the account of what is spent."""

from frontier.sweep.conductor import Conductor, SweepEnd

__all__ = ["Conductor", "SweepEnd"]
