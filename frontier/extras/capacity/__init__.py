"""How many people an operating point serves, and where its limit is set."""
