"""Workloads: what production serves, of a server's counters, Prometheus or a log, as a config."""
