"""Decisions: verdicts, operating point, search, Pareto frontier, comparison."""
