"""What was measured, and what may be claimed of it: shapes, loads, records, windows, intervals,
flags; verdict, solver, Pareto set and proof. Pure.

Times are in seconds, sizes in bytes, shares 0..1. A missing value is None, never 0; the latency of
a failed request is +inf.
"""
