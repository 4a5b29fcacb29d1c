"""Detail figures of a series, of its requests, and over several series."""
