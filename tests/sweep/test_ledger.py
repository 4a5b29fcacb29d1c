"""How much memory may be had, and what is said where it is too little."""

from pathlib import Path

import pytest

from frontier.config import load_config
from frontier.core.model.errors import MemoryShortError
from frontier.planning.plan import make_plan
from frontier.sweep import ledger
from tests.kit.golden import assert_golden_row

CONFIG = "endpoint: http://127.0.0.1:9/v1\nshapes: [{isl}/{osl}]\nconcurrency: [1, {c}]\nrequests: {n}\nrepeats: 1\n"


def needed(isl: int = 64, osl: int = 64, c: int = 8, n: int = 300) -> float:
    return make_plan(load_config(CONFIG.format(isl=isl, osl=osl, c=c, n=n), "sweep.yaml")).expected_memory


def test_what_a_sweep_takes_grows_with_what_it_holds() -> None:
    little = needed()
    assert 200e6 < little < 220e6
    for more in (needed(isl=100_000, c=128), needed(osl=8_000), needed(c=1024), needed(n=200_000)):
        assert more > little + 50e6


def cgroup(path: Path, limit: str, current: int = 900, cache: int = 300) -> Path:
    (path / "memory.max").write_text(f"{limit}\n")
    (path / "memory.current").write_text(f"{current}\n")
    (path / "memory.stat").write_text(f"anon 600\ninactive_file {cache}\n")
    return path


def test_the_containers_limit_counts_without_the_caches_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "_CGROUP", cgroup(tmp_path, "1000"))
    assert ledger.available() == 1000 - (900 - 300)
    cgroup(tmp_path, "500")
    assert ledger.available() == 0
    cgroup(tmp_path, "max")
    of_the_machine = ledger.available()
    assert of_the_machine is not None
    assert of_the_machine > 1_000_000


def test_too_little_free_memory_is_said_with_both_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "_CGROUP", cgroup(tmp_path, str(100 << 20)))
    ledger.require_free(90 << 20)
    with pytest.raises(MemoryShortError, match=r"250 MB .* 100 MB") as refused:
        ledger.require_free(250 << 20)
    assert_golden_row("messages", str(refused.value))
    monkeypatch.setattr(ledger, "available", lambda: None)
    ledger.require_free(1e18)  # where nothing tells, nothing is refused
