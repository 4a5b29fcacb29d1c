"""Whatever can be imported becomes a run that every command opens."""

import json
import random
from pathlib import Path

import pytest

from frontier.cli.main import run
from tests.formats.test_exchange_fuzz import TREES, changed, places, spelled

ODD = (
    None,
    True,
    False,
    -1,
    0,
    1,
    2,
    3.5,
    65_536,
    65_537,
    1_000_000,
    1_000_001,
    4_194_304,
    4_194_305,
    10**9,
    10**15,
    10**16,
    1e308,
    -1e308,
    1e-300,
    1e-9,
    -0.0,
    0.5,
    1e7,
    1e12,
    2**53,
    2**63,
    2**64,
    "inf",
    "nan",
    "1e9",
    "=1",
    "",
    " ",
    "default",
    "Default",
    "\x00\x1b[2J",
    "../../x",
    "\u202e",
    "é",
    "\U0001f600",
    "x" * 500,
    "yes",
    "~",
    "{",
    "a: b",
    "#",
    "\\",
    '"',
    [],
    {},
    [[]],
    [None],
    {"unit": "ms"},
)
DECIDED = {0, 3, 4, 5}
LOOKS: tuple[tuple[set[int], list[str]], ...] = (
    ({0, 5}, ["show", "r"]),
    ({0, 5}, ["show", "r", "--json"]),
    (DECIDED, ["solve", "r", "--sla", "p99_ttft<=1s"]),
    (DECIDED, ["solve", "r", "--sla", "p50_e2e<=9s, error_rate<=1%", "--point-estimates", "--json"]),
    (DECIDED, ["compare", "r", "r"]),
    ({0}, ["export", "r", "--csv"]),
    ({0}, ["export", "r", "--prometheus"]),
    ({0}, ["export", "r", "--llm-d"]),
    ({0}, ["status", "r"]),
)
PAGES: tuple[tuple[set[int], list[str]], ...] = (
    ({0}, ["plot", "r", "-o", "p.svg"]),
    ({0}, ["report", "r", "-o", "p.html"]),
    ({0}, ["report", "r", "-o", "p.md"]),
    ({0}, ["report", "r", "-o", "p.json"]),
)


def opens(capsys: pytest.CaptureFixture[str], looks: tuple[tuple[set[int], list[str]], ...]) -> None:
    for codes, command in looks:
        code = run(command)
        said = capsys.readouterr()
        assert code in codes, (command, said.err)
        if "--json" in command:
            json.loads(said.out)


def imported(files: list[bytes], capsys: pytest.CaptureFixture[str]) -> bool:
    names = [f"f{i}.json" for i in range(len(files))]
    for name, data in zip(names, files, strict=True):
        Path(name).write_bytes(data)
    code = run(["import", *names, "-o", "r"])
    said = capsys.readouterr().err
    assert code in (0, 2), said
    assert "config.yaml" not in said
    return code == 0


@pytest.mark.parametrize("kind", TREES)
def test_a_run_of_every_format_opens(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert imported([spelled(TREES[kind](), kind == "aiperf lines")], capsys)
    opens(capsys, LOOKS)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_a_run_of_changed_files_opens(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = random.Random(seed)
    files = []
    for _ in range(rng.choice([1, 1, 2, 3])):
        kind = rng.choice(list(TREES))
        tree = TREES[kind]()
        for _ in range(rng.randint(1, 4)):
            if where := places(tree):
                tree = changed(tree, rng.choice(where), rng.choice(ODD), rng.random() < 0.15)
        files.append(spelled(tree, kind == "aiperf lines"))
    if imported(files, capsys):
        opens(capsys, LOOKS + (PAGES if seed % 4 == 0 else ()))
