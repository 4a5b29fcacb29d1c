"""`frontier sweep` with --set, --only and --until, and with a list that grew, on the simulator in
virtual time."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from frontier.core.model.errors import MeasurementError
from frontier.extras.api.virtual_backend import VirtualBackend
from frontier.read_run import load
from tests.kit.commands import Said, frontier
from tests.kit.golden import assert_golden_row
from tests.kit.sweeps import commands_in_virtual_time

TINY = """\
endpoint: simulator
simulator: {step_base: 2ms, per_decode: 5us, per_prefill_token: 5us}
shapes: [32/4, 64/4]
concurrency: [1, 3]
sla: {p90_ttft: 1s}
requests: 60
repeats: 1
refine: 0
warmup: 50ms
"""


@pytest.fixture(scope="module", autouse=True)
def virtual_time() -> Iterator[None]:
    with commands_in_virtual_time():
        yield


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory where the sweep of one shape of two has been run."""
    path = tmp_path_factory.mktemp("options")
    (path / "sweep.yaml").write_text(TINY)
    said = sweep(path, "--only", "32/4")
    assert said.code == 4, "too few requests for a claim"
    return path


def sweep(path: Path, *options: str) -> Said:
    said = frontier("sweep", "sweep.yaml", *options, cwd=path, here=True)
    assert "Traceback" not in said.err
    return said


def the_run(path: Path) -> Path:
    (run,) = (path / "runs").iterdir()
    return run


def trials(path: Path) -> set[str]:
    return {p.stem.removeprefix("default-").removesuffix("-grid-r1") for p in (the_run(path) / "trials").iterdir()}


def test_only_runs_the_named_shape_and_the_same_command_without_it_the_rest(here: Path) -> None:
    assert {"32x4-c0001", "32x4-c0003"} == trials(here)
    status = json.loads(frontier("status", "--json", cwd=here, here=True).out)
    assert (2, 4, 2, "stopped") == (status["done"], status["planned"], status["left"], status["state"])
    sweep(here)
    assert {"32x4-c0001", "32x4-c0003", "64x4-c0001", "64x4-c0003"} == trials(here)


def test_an_unknown_name_for_only_is_answered_with_the_known_ones(here: Path) -> None:
    said = sweep(here, "--only", "32/5", "--dry-run")
    assert said.code == 2
    assert_golden_row("messages", said.err)


def test_a_list_of_concurrencies_that_grew_goes_on_in_the_same_run_and_leaves_what_is_finished(here: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in (the_run(here) / "trials").iterdir()}
    grown = sweep(here, "--set", "concurrency=[1, 2, 3]", "--only", "32/4")
    assert grown.code == 4, "too few requests for a claim"
    assert {"32x4-c0001", "32x4-c0002", "32x4-c0003"} <= trials(here)
    assert before == {p: p.stat().st_mtime_ns for p in before}
    assert 2 in [p["concurrency"] for p in json.loads(frontier("show", "--json", cwd=here).out)["points"]]
    assert_golden_row("messages", grown.err.splitlines()[0].replace(the_run(here).name, "RUN"))
    (here / "sweep.yaml").write_text(TINY.replace("[1, 3]", "[1, 2, 3, 4, 5]"))
    written = sweep(here, "--dry-run", "--json")
    assert [1, 2, 3, 4, 5] == sorted({t["concurrency"] for t in json.loads(written.out)["trials"]})
    assert sweep(here, "--only", "32/4").code == 4
    assert {"32x4-c0004", "32x4-c0005"} < trials(here), "there is still one run"
    assert [[2], [4, 5]] == [
        line["concurrency"]
        for line in map(json.loads, (the_run(here) / "journal.jsonl").read_text().splitlines())
        if line["event"] == "extended"
    ]
    assert sweep(here, "--dry-run").err.count("goes on, with") == 0, "now it is the same sweep"


def test_any_other_change_and_a_shorter_list_are_refused(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(TINY)
    assert sweep(tmp_path, "--only", "32/4").code == 4
    run = str(the_run(tmp_path).relative_to(tmp_path))
    other = sweep(tmp_path, "-o", run, "--set", "seed=9", "--set", "concurrency=[1, 3, 6]")
    assert other.code == 2
    assert "holds another sweep: " in other.err
    assert "seed 1 there, 9 here" in other.err
    shorter = sweep(tmp_path, "-o", run, "--set", "concurrency=[1]")
    assert shorter.code == 2
    assert "1, 3 there, 1 here" in shorter.err
    assert 0 == sweep(tmp_path, "-o", run, "--set", "concurrency=[1, 3, 6]", "--dry-run").code


REFUSED = {
    "another sweep": ("--set", "warmup=1s"),
    "a file": ("-o", "sweep.yaml"),
    "another folder": ("-o", "docs"),
    "other prompts": ("--set", "prompts=prompts.txt"),
    "no prompts": ("--set", "prompts=none.txt"),
    "no room": ("--set", "requests=900_000_000"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_dry_run_refuses_what_the_sweep_refuses(why: str, tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(TINY)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "thesis").write_text("mine")
    (tmp_path / "prompts.txt").write_text('{"prompt": "one"}\n')
    own = ("--set", "prompts=prompts.txt") if why == "other prompts" else ()
    assert 4 == sweep(tmp_path, "-o", "runs/it", "--only", "32/4", *own).code
    (tmp_path / "prompts.txt").write_text('{"prompt": "two"}\n')
    before = sorted(tmp_path.rglob("*"))
    said = [sweep(tmp_path, "-o", "runs/it", *REFUSED[why], *dry) for dry in ((), ("--dry-run",))]
    assert said[0] == said[1]
    assert (2, "") == (said[0].code, said[0].out)
    assert before == sorted(tmp_path.rglob("*"))


@pytest.mark.parametrize("budget", ["requests=250", "tokens=900"])
def test_a_proof_without_room_in_the_budget_is_not_proven(budget: str, tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(TINY)
    easy = ("-o", "runs/it", "--set", "sla={p50_ttft: 1h}")
    assert 0 == sweep(tmp_path, *easy).code
    asked = sweep(tmp_path, *easy, "--prove", "500", "--set", f"budget.{budget}")
    assert 4 == asked.code
    assert asked.out.startswith("not proven: c=500; "), "in the answer, which is what is kept"
    answer = asked.out.partition("The answer without it:\n")[2]
    assert answer.startswith("Run at concurrency "), "no table of what was measured before"
    said = json.loads(sweep(tmp_path, *easy, "--prove", "500", "--set", f"budget.{budget}", "--json").out)
    assert ["c=500"] == said["not_proven"]
    codes = []
    for _ in range(4):  # a proof may take several windows
        (command,) = (line for line in asked.out.splitlines() if line.startswith("  frontier sweep"))
        assert "--prove 500" in command
        asked = frontier(*shlex.split(command)[1:], cwd=tmp_path, here=True)
        codes.append(asked.code)
        if asked.code != 4:
            break
    assert 0 == codes[-1]
    assert 500 in {point.load for point in load(tmp_path / "runs" / "it").points()}


def test_a_setting_that_decides_no_measurement_goes_on_in_the_same_run(here: Path) -> None:
    said = sweep(here, "--set", "sla.p90_ttft=1us")
    assert said.code == 3, "the new limit is what is decided by"
    assert 1 == len(list((here / "runs").iterdir()))
    assert said.code == frontier("solve", cwd=here).code, "and what the run is read with from now on"


def test_what_was_to_be_proven_is_named_where_no_server_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(self: VirtualBackend, *_: object, **__: object) -> None:
        raise MeasurementError("nothing answers at http://127.0.0.1:9/v1", "start the server")

    (tmp_path / "sweep.yaml").write_text(TINY)
    monkeypatch.setattr(VirtualBackend, "prepare", gone)
    said = sweep(tmp_path, "--prove", "3")
    assert (5, True) == (said.code, "not measured: c=3\n" in said.err)


def test_short_trials_alone_are_not_proven_and_solve_agrees(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text("endpoint: simulator\nshapes: [16/8]\nsla: {p95_ttft: 60ms}\n")
    said = frontier("sweep", "sweep.yaml", "-o", "run", "--set", "budget.requests=300", cwd=tmp_path, here=True)
    solved = frontier("solve", "run", cwd=tmp_path, here=True)
    assert (4, 4) == (said.code, solved.code), (said.err, solved.out)


def test_an_empty_prove_is_refused_in_place_of_a_whole_sweep(here: Path) -> None:
    said = sweep(here, "--prove", "", "--dry-run")
    assert (2, "") == (said.code, said.out)


def test_the_time_to_a_deadline_stands_beside_it(here: Path) -> None:
    said = sweep(here, "--dry-run", "--set", "budget={requests: 9000}", "--until", "07:00")
    line = next(line for line in said.out.splitlines() if line.startswith("budget"))
    assert line.index("07:00 (in ") < line.index("requests 9,000")


def test_a_deadline_that_is_no_time_is_told(here: Path) -> None:
    said = sweep(here, "--until", "25:00", "--dry-run")
    assert said.code == 2
    assert_golden_row("messages", said.err)


def test_a_sweep_without_an_sla_is_extended(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(
        "endpoint: simulator\nshapes: [16/8]\nconcurrency: [1, 2]\nrequests: 20\nrepeats: 1\nrefine: 0\n"
    )
    for more in ((), ("--set", "concurrency=[1, 2, 4]")):
        said = frontier("sweep", "sweep.yaml", "-o", "run", *more, cwd=tmp_path, here=True)
        assert said.code == 0, said.err
    run = load(tmp_path / "run")
    (frontier_of,) = run.frontiers(run.points())
    assert (1, 2, 4) == frontier_of.members
