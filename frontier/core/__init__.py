"""What was measured, and what may be claimed of it. Pure.

Six floors, each importing only those before it: model, window, stats, flags, estimates, claim.
Times are in seconds, sizes in bytes, shares 0..1. A missing value is None, never 0; the latency of
a failed request is +inf.
"""
