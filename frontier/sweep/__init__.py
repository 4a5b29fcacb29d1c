"""Sweeps: the conductor, the trials it runs, the servers they need, and the account of what is
spent.
"""
