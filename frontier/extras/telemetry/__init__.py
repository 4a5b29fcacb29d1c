"""Prometheus metrics of a running sweep."""
