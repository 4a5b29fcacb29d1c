"""The same examples for the same code: a test fails because of a change, not by luck.

New examples are searched for with  pytest --hypothesis-profile=search
"""

from hypothesis import settings

settings.register_profile("same", derandomize=True, database=None)
settings.register_profile("search", derandomize=False, print_blob=True)
settings.load_profile("same")
