"""Results of other tools as a run, one file a tool, and a run in the formats of other tools."""
