"""A claim that anyone can check: a run packed into one file, and the audit that derives its numbers
again."""
