"""Workloads: the traffic of a service as a config, from a server's counters, Prometheus or
a log.
"""
