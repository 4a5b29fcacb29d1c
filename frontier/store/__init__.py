"""The run directory: files written whole or not at all, one sweep at a time, nothing lost by a
kill."""
