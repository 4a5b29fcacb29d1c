"""The same examples for the same code: a test fails because of a change, not by luck. Bytecode for what tests start.

New examples are searched for with  pytest --hypothesis-profile=search
"""

import importlib.util
import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("same", derandomize=True, database=None)
settings.register_profile("search", derandomize=False, print_blob=True)
settings.load_profile("same")


def pytest_configure(config: pytest.Config) -> None:
    """Keep the bytecode of what is imported where the installer left none (uv does) and Python may write none beside
    the source: each of the processes that tests start would compile its hundreds of modules, for seconds.
    """
    if Path(importlib.util.cache_from_source(pytest.__file__)).exists() or not hasattr(config, "cache"):
        return
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(config.cache.mkdir("bytecode"))
    sys.dont_write_bytecode, sys.pycache_prefix = False, os.environ["PYTHONPYCACHEPREFIX"]
