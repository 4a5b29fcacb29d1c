"""Results of other tools as a run, one module a tool, and a run in other tools' formats."""
