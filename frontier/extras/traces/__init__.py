"""Traces of others: arrivals and sessions from files."""
