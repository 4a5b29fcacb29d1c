"""Client processes on a Ray cluster."""
