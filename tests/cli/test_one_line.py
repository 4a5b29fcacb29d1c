"""`frontier sweep URL --shape --sla`: a line in the place of a config, in virtual time."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from frontier.read_run import load
from tests.kit.commands import Said, frontier
from tests.kit.sweeps import commands_in_virtual_time

LINE = ("simulator", "--shape", "32/4", "--sla", "p90_ttft<=1s, p90_tpot<=100ms..200ms")
SMALL = ("--set", "concurrency=[1, 3]", "--set", "requests=60", "--set", "repeats=1", "--set", "refine=0")


@pytest.fixture(scope="module", autouse=True)
def virtual_time() -> Iterator[None]:
    with commands_in_virtual_time():
        yield


def sweep(path: Path, *words: str) -> Said:
    said = frontier("sweep", *words, cwd=path, here=True)
    assert "Traceback" not in said.err
    return said


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory where the sweep of a line was ended by its budget."""
    path = tmp_path_factory.mktemp("line")
    assert sweep(path, *LINE, *SMALL, "--budget", "30min", "--set", "budget.requests=70").code in (0, 4)
    return path


def run_in(path: Path) -> Path:
    (run,) = (path / "runs").iterdir()
    return run


def test_the_run_holds_its_config_and_the_same_line_goes_on(here: Path) -> None:
    config = load(run_in(here)).config
    assert ("simulator", "32/4") == (config.deployments[0].endpoint, config.shapes[0].label)
    assert ["p90_ttft", "p90_tpot"] == [limit.metric for limit in config.limits]
    assert 0.1 == config.limits[1].comfort
    assert 1800 == config.budget.time
    assert str(run_in(here).relative_to(here) / "config.yaml") in sweep(here, *LINE, *SMALL).err
    assert load(run_in(here)).config.budget.requests is None, "the same run, asked for without that limit"


def test_the_command_that_goes_on_is_the_line(here: Path) -> None:
    words = shlex.split(load(run_in(here)).standing.again)  # type: ignore[union-attr]
    assert ["frontier", "sweep", *LINE[:1]] == words[:3]
    assert list(LINE[1:]) == words[words.index("--shape") : words.index("--shape") + 4]
    assert sweep(here, *words[2:], "--dry-run").code == 0, "it can be pasted"


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("http://h:1/v1",), ("no shape", "no SLA", "--shape 1024/256 --sla chat")),
        (("http://h:1/v1", "--shape", "9/8"), ("no SLA", "--shape 9/8 --sla 'p99_ttft<=500ms", "--sla chat")),
        (("http://h:1/v1", "--sla", "voice"), ("no shape", "--sla voice")),
        (("http://h:1/v1", "--sla", "chat"), ("--sla chat", "'p99_ttft")),
        (("http://h:1/v1", "sweep.yaml", "--sla", "chat"), ("http://h:1/v1 sweep.yaml",)),
        (("sweep.yaml", "http://h:1/v1"), ("2 sweeps",)),
        (("h:1/v1", *LINE[1:]), ("write http://h:1/v1",)),
        (("sweep.yaml", "--sla", "chat"), ("--set sla=chat",)),
        (("sweep.yaml", "--budget", "5min"), ("--set budget.time=5min",)),
        (("http://h:1/v1/models", *LINE[1:]), ("names a route",)),
        (("http://h:1/v1", "--shape", "9x8", "--sla", "p99_ttft<=5"), ("--shape 9x8: ", "--sla 'p99_ttft<=5': ")),
        (("http://h:1/v1", *LINE[1:], "--budget", "soon"), ("--budget soon: ",)),
    ],
)
def test_what_is_missing_or_wrong_is_said_before_anything_is_sent(
    words: tuple[str, ...], named: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "sweep.yaml").write_text("endpoint: simulator\nshapes: [32/4]\nsla: chat\n")
    said = sweep(tmp_path, *words)
    assert said.code == 2
    assert [] == [name for name in named if name not in said.error]
    assert not (tmp_path / "runs").exists()


def test_several_shapes_and_a_value_of_set_over_the_line(tmp_path: Path) -> None:
    several = (*LINE, "--shape", "{isl: 64, osl: 4, name: long}", "--set", "sla=voice", "--dry-run", "--json", *SMALL)
    plan = json.loads(sweep(tmp_path, *several).out)
    assert {"32/4", "long"} == {trial["shape"] for trial in plan["trials"]}
