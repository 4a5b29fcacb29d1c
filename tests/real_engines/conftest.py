"""Makes `tests.real_engines` and `benchmarks.truth` importable, wherever pytest is started; one
vLLM for all tests that ask a real engine."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.real_engines.vllm_cpu import running, why_missing


@pytest.fixture(scope="session")
def vllm() -> Iterator[str]:
    """The address of a vLLM on the CPU, started once (half a minute) and served after its client,
    as on few cores a client beside it needs to be.
    """
    if reason := why_missing():
        pytest.skip(f"real engine not installed: {reason}")
    with running(nice=10) as url:
        yield url
