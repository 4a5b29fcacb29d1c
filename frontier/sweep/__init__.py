"""Sweeps: the conductor, the trials it runs, the servers they need, and the account of what is
spent.

Nothing is imported here: the supervisor of a server is a process of its own and must start at once.
"""
