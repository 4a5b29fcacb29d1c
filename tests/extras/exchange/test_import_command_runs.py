"""Whatever can be imported becomes a run that every command opens."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from frontier.cli.main import run
from frontier.core.model.errors import ExitCode, exit_code
from tests.extras.exchange.test_formats_fuzz import TREES, changed, places, spelled

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
ASKED = (
    ["show", "r"],
    ["solve", "r", "--sla", "p99_ttft<=1s"],
    ["solve", "r", "--sla", "p50_e2e<=9s, error_rate<=1%", "--point-estimates"],
    ["compare", "r", "r"],
)
"""Commands that answer with an exit code, in words and as JSON."""
WRITTEN = (["export", "r", "--csv"], ["export", "r", "--prometheus"], ["status", "r"])
PAGES = (
    ["plot", "r", "-o", "p.svg"],
    ["report", "r", "-o", "p.html"],
    ["report", "r", "-o", "p.md"],
    ["report", "r", "-o", "p.json"],
)
CODES = {kind: [5, 5, 5, 5] for kind in ("inference-perf", "llm-d", "guidellm")} | {"inferencex": [5, 4, 3, 5]}
"""Exit codes of `ASKED` of each kind of file, where they are not `USUAL`: its figures contradict
each other or its load, or too many requests failed, which a limit on a percentile judges.
"""
USUAL = [0, 4, 0, 4]


def code_of(answer: Any) -> int:
    """The exit code that what a command says asks for."""
    if "points" in answer:
        return ExitCode.YES if any(point["valid"] for point in answer["points"]) else ExitCode.FAILED
    return exit_code([answer["verdict"]] if "verdict" in answer else [shape["verdict"] for shape in answer["shapes"]])


def opens(capsys: pytest.CaptureFixture[str], files: tuple[list[str], ...] = ()) -> list[int]:
    """The exit codes of the commands that answer, each as its answer asks; the others give 0."""
    codes = []
    for command in ASKED:
        capsys.readouterr()
        code = run([*command, "--json"])
        assert code == code_of(json.loads(capsys.readouterr().out)), command
        assert code == run(command), command
        codes.append(code)
    for command in (*WRITTEN, *files):
        assert run(command) == 0, (command, capsys.readouterr().err)
    return codes


def imported(files: list[bytes], capsys: pytest.CaptureFixture[str]) -> bool:
    names = [f"f{i}.json" for i in range(len(files))]
    for name, data in zip(names, files, strict=True):
        Path(name).write_bytes(data)
    code = run(["import", *names, "-o", "r"])
    said = capsys.readouterr().err
    made = Path("r").exists()
    assert code == (ExitCode.YES if made else ExitCode.USAGE), said
    assert "config.yaml" not in said
    return made


@pytest.mark.parametrize("kind", TREES)
def test_a_run_of_every_format_opens(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert imported([spelled(TREES[kind](), kind == "aiperf lines")], capsys)
    assert CODES.get(kind, USUAL) == opens(capsys)


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
        opens(capsys, PAGES if seed % 4 == 0 else ())
