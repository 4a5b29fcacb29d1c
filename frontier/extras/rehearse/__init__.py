"""A rehearsal for MLPerf Endpoints: what its result curve, its rules and its hours would be."""
