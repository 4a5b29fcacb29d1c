"""Notification that a sweep has ended, by the key `on_finish`."""
