"""Results of other tools as a run, one file a tool."""
