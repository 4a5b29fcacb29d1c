"""Decisions, values, names and flags in words, for terminal, page, picture, notebook and JSON."""
