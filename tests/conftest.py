"""The same examples for the same code: a test fails because of a change, not by luck. Bytecode for
what tests start.

New examples are searched for with  pytest --hypothesis-profile=search
"""

import os
import sys

import pytest
from hypothesis import settings

settings.register_profile("same", derandomize=True, database=None)
settings.register_profile("search", derandomize=False, print_blob=True)
settings.load_profile("same")


def pytest_configure(config: pytest.Config) -> None:
    """Keep bytecode where Python may write none beside the source (PYTHONDONTWRITEBYTECODE): each
    of the processes that tests start would compile its hundreds of modules, for seconds.
    """
    if sys.dont_write_bytecode:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(config.rootpath / ".pytest_cache" / "bytecode")
        sys.dont_write_bytecode, sys.pycache_prefix = False, os.environ["PYTHONPYCACHEPREFIX"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The stories last longest: begun last, they would keep one process waiting for the other."""
    items.sort(key=lambda item: item.path.name != "test_stories.py")
