"""Warnings about a config that is sound and probably not what was meant."""
