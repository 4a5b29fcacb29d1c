"""Servers that a sweep starts, by the keys `start`, `ready` and `stop` of a deployment.

Nothing is imported here: the supervisor of a server is a process of its own and must start at once.
"""
