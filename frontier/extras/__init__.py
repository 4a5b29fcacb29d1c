"""Extras: one folder each, found by `frontier.registry` alone. Each can be deleted."""
