"""Results of other tools as a run, a file for each tool, and a run in the formats of other
tools.
"""
