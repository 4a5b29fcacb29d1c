"""The trials of a config, what they may cost and take, and how far a sweep has come. Pure."""
