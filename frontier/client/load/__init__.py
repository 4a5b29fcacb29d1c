"""The load of a trial: its streams, its window, its processes."""
