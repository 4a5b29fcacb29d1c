"""Tune: a race of server settings. Which flags should the server run with, and how much more does
that give than what runs today?"""
