"""A list of what a server does, checked by a few small requests."""
