"""Decisions for people: words, tables, the page, JSON, progress; the picture is in `picture`."""
