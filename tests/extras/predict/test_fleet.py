"""Hosts of a fleet compared by their measured ceilings."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from frontier.extras.predict.ceilings import ROUNDS, Ceiling, Ceilings
from frontier.extras.predict.fleet import read_hosts, slower_hosts
from tests.kit.commands import frontier
from tests.kit.golden import assert_golden_row

KEYS = ("memory_bandwidth", "matmul_bf16", "all_reduce_1048576")


def host(name: str, slow: float = 1.0, seed: int = 0, noise: float = 0.01) -> Ceilings:
    """A host whose memory is slower by this factor; every round has its noise."""
    rng = random.Random(f"{name} {seed}")
    lines = []
    for key in KEYS:
        level = 4e12 * (slow if key == "memory_bandwidth" else 1.0)
        rounds = tuple(level * rng.uniform(1 - noise, 1) for _ in range(ROUNDS))
        lines.append(Ceiling(key, key, "B/s", rounds=rounds))
    return Ceilings("NVIDIA H200", "", 1, 0.0, tuple(lines), host=name)


def test_a_host_that_is_slower_beyond_its_noise_is_named_with_what_it_is_slower_in() -> None:
    (slower,) = slower_hosts([host("a"), host("b"), host("c", 0.9), host("d")])
    assert (slower.host, slower.what) == ("c", "memory_bandwidth")
    assert slower.share == pytest.approx(0.9, abs=0.01)


def test_of_two_hosts_the_slower_one_is_named() -> None:
    assert [slower.host for slower in slower_hosts([host("a", 0.9), host("b")])] == ["a"]


def test_noise_alone_and_what_is_too_little_name_nobody() -> None:
    assert not slower_hosts([host("a"), host("b", 0.99), host("c", 0.995)])
    wrong = sum(bool(slower_hosts([host("a", seed=i), host("b", seed=i)])) for i in range(300))
    assert wrong == 0
    wild = sum(bool(slower_hosts([host(n, seed=i, noise=0.3) for n in "abcd"])) for i in range(200))
    assert wild <= 4, "once in 924 for each of six comparisons"


def test_a_line_that_one_host_alone_has_is_not_compared() -> None:
    extra = host("b")
    alone = Ceiling("matmul_fp8", "matmul", "FLOP/s", rounds=(1.0,) * ROUNDS)
    assert not slower_hosts([host("a"), replace(extra, lines=(*extra.lines, alone))])


def written(path: Path, name: str, slow: float = 1.0) -> Path:
    made = host(name, slow)
    lines = [{"name": x.key, "what": x.what, "unit": x.unit, "rounds": x.rounds} for x in made.lines]
    path.write_text(
        json.dumps({"schema": "frontier.ceilings/1", "host": name, "name": "NVIDIA H200", "ceilings": lines})
    )
    return path


def test_files_are_compared_and_the_exit_code_says_whether_one_is_slower(tmp_path: Path) -> None:
    for name, slow in (("a", 1.0), ("b", 1.0), ("c", 0.8)):
        written(tmp_path / f"{name}.json", f"node-{name}", slow)
    said = frontier("ceilings", "a.json", "b.json", "c.json", cwd=tmp_path, here=True)
    assert said.code == 3
    assert_golden_row("pages", said.out)
    tree = json.loads(frontier("ceilings", "a.json", "b.json", "c.json", "--json", cwd=tmp_path, here=True).out)
    assert [slow["host"] for slow in tree["slower"]] == ["node-c"]
    assert frontier("ceilings", "a.json", "b.json", cwd=tmp_path, here=True).code == 0


def test_hosts_of_one_name_are_told_apart_by_their_files(tmp_path: Path) -> None:
    files = [written(tmp_path / f"{name}.json", "localhost") for name in "ab"]
    assert [made.host for made in read_hosts(files)] == ["localhost", "localhost (b)"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", ("other.json", "a.json")),
        ("{}", ("other.json", "a.json")),
        (None, ("other.json", "a.json")),
        ('{"schema": "frontier.ceilings/1", "ceilings": [{"name": "x"}]}', ("other.json", "a.json")),
        ("{}", ("a.json",)),
    ],
)
def test_what_is_no_measurement_is_refused_in_a_line(tmp_path: Path, text: str | None, words: tuple[str, ...]) -> None:
    written(tmp_path / "a.json", "a")
    if text is not None:
        (tmp_path / "other.json").write_text(text)
    said = frontier("ceilings", *words, cwd=tmp_path, here=True)
    assert (said.code, said.out) == (2, "")
    assert len(said.err.splitlines()) <= 2
    assert words[0] in said.err or len(words) == 1
