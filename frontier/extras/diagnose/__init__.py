"""Diagnosis: which resource binds, how that is known, and what would move it."""
