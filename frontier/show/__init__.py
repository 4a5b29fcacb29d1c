"""Decisions for people: words, tables, JSON, progress; the picture is in `picture`."""
