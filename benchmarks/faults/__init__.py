"""Servers that break on purpose, and the studies that show what a sweep loses when they do: nothing
it has finished.

`server.py` is the simulated engine with faults, in a process of its own that can be killed, stopped
and restarted.
"""
