"""Answers in words: terminal tables, page, Markdown, JSON, progress display, notebook."""
