"""The run that is packed and audited. Nothing here outlives a test: its files are not forced to the
disk."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sweeps import ENGINES, config_text, no_fsync, sweep_in_virtual_time

TEXT = config_text(ENGINES["smooth"], requests=120, sla="{p50_ttft: 50ms}").replace("1, 2, 4, 8, 16, 32, 64", "2, 4")


@pytest.fixture(autouse=True)
def _no_fsync() -> Iterator[None]:
    with no_fsync():
        yield


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two settings; a test that changes it makes a copy."""
    path = tmp_path_factory.mktemp("audited") / "run"
    sweep_in_virtual_time(path, TEXT)
    return path
