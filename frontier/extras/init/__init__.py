"""A commented config for an endpoint."""
