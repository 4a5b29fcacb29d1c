"""Comparison of runs: which is better, whether a change made it worse, and the trend of nights."""
