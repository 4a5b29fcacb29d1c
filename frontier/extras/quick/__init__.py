"""A plain answer in about a minute."""
