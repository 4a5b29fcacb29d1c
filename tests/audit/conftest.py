"""Nothing here outlives a test: its files are not forced to the disk."""

from collections.abc import Iterator

import pytest

from tests.sweeps import no_fsync


@pytest.fixture(autouse=True)
def _no_fsync() -> Iterator[None]:
    with no_fsync():
        yield
