"""The second look of the gate: what failed by a clock is asked once more and listed, and no other
failure is excused.

Each planted lane is a small folder of tests, run by the pytest and the script that .ci/run uses.
"""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.kit.places import ROOT

LOOK = ROOT / ".ci" / "second_look.py"
SETTINGS = """\
[pytest]
markers =
    process: x
    smoke: x
    engine: x
    slow: x
    chance: x
"""
ONCE = """\
import pathlib, pytest

def test_before():
    pass

{marks}
def test_late():
    mark = pathlib.Path(__file__ + ".seen")
    seen = mark.exists()
    mark.touch()
    assert seen, "a late clock"
"""
CRASH = "import os, pytest\n@pytest.mark.process\ndef test_it():\n    os._exit(3)\n"


def lane(folder: Path, text: str, workers: int = 0) -> subprocess.CompletedProcess[str]:
    """A lane of the gate over one file of tests, and its second look if it failed."""
    (folder / ".ci" / "log").mkdir(parents=True, exist_ok=True)
    (folder / "pytest.ini").write_text(SETTINGS)
    (folder / "test_planted.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "test_planted.py"]
    added = ["-n", str(workers), "--report-log=.ci/log/planted.jsonl", "-o", "cache_dir=.pytest_cache/planted"]
    first = subprocess.run([*command, *added], cwd=folder, capture_output=True, text=True, check=False)
    assert first.returncode != 0, first.stdout
    return look(folder, "planted", str(first.returncode), *command)


def look(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, LOOK, *words], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.process
@pytest.mark.parametrize("mark", ["process", "smoke", "engine"])
def test_a_test_that_fails_once_by_the_clock_is_listed_and_fails_no_gate(tmp_path: Path, mark: str) -> None:
    said = lane(tmp_path, ONCE.format(marks=f"@pytest.mark.{mark}"), workers=1)
    assert 0 == said.returncode, said.stdout
    end = look(tmp_path, "end")
    assert 0 == end.returncode
    assert "test_planted.py::test_late" in end.stdout
    assert "a late clock" in end.stdout
    assert "test_planted.py::test_before" == end.stdout.splitlines()[-1].strip(), "what ran before it"


@pytest.mark.process
def test_one_that_fails_twice_fails_the_gate(tmp_path: Path) -> None:
    said = lane(tmp_path, "import pytest\n@pytest.mark.process\ndef test_late():\n    assert not 'late'\n")
    assert 1 == said.returncode
    assert "test_planted.py::test_late" in said.stdout.splitlines()[-1]
    assert "" == look(tmp_path, "end").stdout


@pytest.mark.process
@pytest.mark.parametrize("marks", ["", "@pytest.mark.slow", "@pytest.mark.process\n@pytest.mark.chance"])
def test_others_fail_at_once(tmp_path: Path, marks: str) -> None:
    said = lane(tmp_path, ONCE.format(marks=marks))
    assert 1 == said.returncode
    assert said.stdout.startswith("not asked again:"), said.stdout
    assert not (tmp_path / ".ci" / "log" / "planted.again.jsonl").exists()


@pytest.mark.process
@pytest.mark.parametrize(
    "text",
    ["import nothing_of_this_name\n", CRASH],
    ids=["no collection", "crashed worker"],
)
def test_what_is_no_failure_of_a_test_is_not_asked_again(tmp_path: Path, text: str) -> None:
    said = lane(tmp_path, text, workers=1)
    assert said.returncode > 0
    assert said.stdout.startswith("not asked again:"), said.stdout


@pytest.mark.process
def test_more_than_five_fail_the_gate(tmp_path: Path) -> None:
    many = ONCE.format(marks="@pytest.mark.process\n@pytest.mark.parametrize('i', range(6))").replace(
        "def test_late():", "def test_late(i):"
    )
    said = lane(tmp_path, many.replace('".seen"', 'f".seen{i}"'))
    assert 1 == said.returncode
    assert "6 tests failed" in said.stdout


@pytest.mark.process
def test_a_cache_of_another_commit_is_named_and_fails_the_gate(tmp_path: Path) -> None:
    cache = tmp_path / ".pytest_cache" / "planted" / "v" / "cache"
    cache.mkdir(parents=True)
    (cache / "lastfailed").write_text(json.dumps({"test_gone.py::test_gone": True}))
    said = lane(tmp_path, ONCE.format(marks="@pytest.mark.process"))
    assert 1 == said.returncode
    assert ".pytest_cache/planted" in said.stdout


@pytest.mark.process
def test_a_second_look_that_is_killed_fails_the_gate(tmp_path: Path) -> None:
    killed = "import os, pathlib, signal\n" + ONCE.format(marks="import pytest\n@pytest.mark.process").replace(
        "    assert seen", "    seen and os.kill(os.getpid(), signal.SIGKILL)\n    assert seen"
    )
    said = lane(tmp_path, killed)
    assert 1 == said.returncode
    assert "exit -9" in said.stdout


def test_no_test_is_unsteady_twice() -> None:
    lines = (ROOT / "tests" / "unsteady.txt").read_text().splitlines()
    tests = Counter(line.split("  ")[1] for line in lines if not line.startswith("#"))
    assert [test for test, times in tests.items() if times > 1] == [], "mend these, and remove their lines"
