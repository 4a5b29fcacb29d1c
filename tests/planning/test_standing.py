"""Which run is the newest, and how a run that is not finished says so wherever it is looked at."""

import json
import os
import shlex
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from frontier.cli.status import read_state
from frontier.config import load_config
from frontier.planning import standing
from frontier.planning.next_step import with_budget
from frontier.planning.plan import make_plan
from frontier.planning.standing import counts_text
from frontier.read_run import load
from frontier.store.journal import Amount
from frontier.store.run_dir import RunDirectory
from tests.kit.commands import Said, frontier, start
from tests.kit.golden import assert_golden_row
from tests.kit.neutral import neutral
from tests.kit.sweeps import ENGINES, config_text, open_run, swept

TEXT = config_text(ENGINES["smooth"])
DEFAULTING = (
    ["show"],
    ["show", "--json"],
    ["solve"],
    ["solve", "--json"],
    ["plot", "-o", "p.svg"],
    ["report", "-o", "p.md"],
    ["export", "--csv"],
    ["predict"],
    ["verify"],
    ["status"],
)
QUICK = (["show"], ["solve", "--json"], ["verify"], ["status"])
"""Of those, the ones that are tried each time."""


@pytest.fixture(autouse=True)
def runs_of_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs of these tests stand for those of a server, which a command goes on with."""
    monkeypatch.setattr(standing, "VIRTUAL", "none of them")


def emptied(path: Path, reason: str = "cannot reach http://127.0.0.1:9: connection refused") -> None:
    """A sweep that ended before its first trial."""
    text = TEXT + "seed: 7\n"
    with open_run(path, load_config(text, "sweep.yaml"), text) as run:
        run.journal("failed", reason=reason)


def aged(path: Path, seconds: float) -> None:
    """As if all of it had been written so long ago."""
    then = time.time() - seconds
    for file in path.rglob("*"):
        os.utime(file, (then, then))


@pytest.fixture(scope="module")
def three_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An old run that was begun first and measured last, another one, and a failed start that is
    newer than both.
    """
    runs = tmp_path_factory.mktemp("standing") / "runs"
    for name, age in (("other", 500.0), ("good", 300.0)):
        swept(runs / name, TEXT)
        aged(runs / name, age)
    begun = time.time() - 900
    os.utime(runs / "good" / "manifest.json", (begun, begun))
    emptied(runs / "failed")
    return runs


@pytest.fixture
def here(three_runs: Path, tmp_path: Path) -> Path:
    """A directory with copies of these runs, as old as they are."""
    shutil.copytree(three_runs, tmp_path / "runs")
    return tmp_path


def cut(path: Path, left: int, event: str | None, **facts: object) -> None:
    """The run as it was with so many of its trials finished, its journal ending in `event` (None:
    killed).
    """
    for file in sorted((path / "trials").iterdir())[left:]:
        file.unlink()
    lines = (path / "journal.jsonl").read_text().splitlines()
    ends = ("finished", "skipped", "search_done", "dropped")
    kept = [line for line in lines if json.loads(line)["event"] not in ends]
    last = [json.dumps({"time": time.time(), "event": event, **facts})] if event else []
    (path / "journal.jsonl").write_text("\n".join([*kept, *last]) + "\n")


@pytest.mark.fault("a start that fails, beside a run that was measured")
@pytest.mark.parametrize(
    "arguments",
    [pytest.param(one, marks=[] if one in QUICK else pytest.mark.slow, id=" ".join(one)) for one in DEFAULTING],
)
def test_an_empty_run_is_never_the_newest(arguments: list[str], here: Path) -> None:
    (here / "runs" / "good" / "config.yaml").write_text(TEXT.replace("p99_ttft: 50ms", "p99_ttft: 1us"))
    said = frontier(*arguments, cwd=here, here=True)  # a limit that nothing keeps: verify has nothing to measure
    first, second, *_ = said.err.splitlines()
    assert ("run  runs/good", 3 if arguments[0] in ("solve", "verify") else 0) == (first, said.code)
    assert "runs/failed" in second, "and the newer one is named"
    assert "no finished trial" in second


@pytest.mark.parametrize("arguments", DEFAULTING[:-1], ids=" ".join)
def test_where_no_run_holds_a_trial_it_is_said_why(arguments: list[str], tmp_path: Path) -> None:
    emptied(tmp_path / "runs" / "failed")
    said = frontier(*arguments, cwd=tmp_path, here=True)
    assert (5, "") == (said.code, said.out)
    assert_golden_row("messages", neutral(said.err))


def test_status_shows_a_sweep_that_is_just_starting_and_else_the_one_measured_last(here: Path) -> None:
    text = TEXT + "seed: 9\n"
    with open_run(here / "runs" / "starting", load_config(text, "sweep.yaml"), text):
        aged(here / "runs" / "starting", 2000)
        told = frontier("status", "--json", cwd=here, here=True)
        assert ("runs/starting", "running") == (json.loads(told.out)["run"], json.loads(told.out)["state"])
        assert "run  runs/good" in frontier("show", cwd=here).err
    assert "runs/good" == json.loads(frontier("status", "--json", cwd=here, here=True).out)["run"]


def test_status_of_nothing_but_a_failed_start_tells_of_that(tmp_path: Path) -> None:
    emptied(tmp_path / "runs" / "failed")
    said = frontier("status", cwd=tmp_path, here=True)
    assert 0 == said.code
    assert "failed: cannot reach" in " ".join(said.out.split())


def test_the_same_command_goes_on_with_the_run_that_holds_trials(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(TEXT)
    swept(tmp_path / "runs" / "good", TEXT)
    aged(tmp_path / "runs" / "good", 300)
    open_run(tmp_path / "runs" / "failed", load_config(TEXT, "sweep.yaml"), TEXT).close()
    said = frontier("sweep", "sweep.yaml", "--dry-run", cwd=tmp_path)
    assert "runs/good holds 21 of them" in said.out


def looked_at(cwd: Path) -> dict[str, str]:
    """What each command says of runs/good: all that a person sees, blanks as one."""
    said: dict[str, Said] = {
        name: frontier(name, "runs/good", *more, cwd=cwd, here=True)
        for name, more in (
            ("show", ()),
            ("solve", ()),
            ("plot", ("-o", "p.svg")),
            ("report", ("-o", "p.html")),
            ("export", ("--csv",)),
            ("predict", ()),
        )
    }
    pages = {"picture": (cwd / "p.svg").read_text(), "page": (cwd / "p.html").read_text()}
    pages["markdown"] = frontier("report", "runs/good", "-o", "-", cwd=cwd).out
    texts = {name: one.out + one.err for name, one in said.items()} | pages
    return {name: " ".join(text.replace("\u00a0", " ").split()) for name, text in texts.items()}


@pytest.mark.fault("a run that is looked at before its sweep has ended")
@pytest.mark.parametrize(
    ("left", "event", "facts", "measured"),
    [
        (8, "interrupted", {}, 7),
        (4, None, {}, 2),
        (4, "failed", {"reason": "disk full"}, 2),
        (4, "server_lost", {"reason": "gone"}, 2),
        (4, "server_lost", {"reason": "gone", "cause": "never_came_up"}, 2),
        (4, "server_lost", {"reason": "b", "cause": "another"}, 2),
        (4, "finished", {}, 2),
        (21, "interrupted", {}, 7),
    ],
)
def test_a_run_that_is_not_finished_says_so_wherever_it_is_looked_at(
    left: int, event: str | None, facts: dict[str, str], measured: int, tmp_path: Path
) -> None:
    path = tmp_path / "runs" / "good"
    swept(path, TEXT)
    for visit in (path / "trials").glob("*-visit-*"):  # what a whole sweep ends with
        visit.unlink()
    keep = sorted((path / "trials").iterdir(), key=lambda file: file.name[-8:])  # r1 of every setting first
    if left == 8:
        for file in keep[left:]:
            file.unlink()
    cut(path, left, event, **facts)
    found = load(path).standing
    assert found is not None
    text = found.text(found.again)
    assert text.startswith(found.brief)
    assert_golden_row("messages", neutral(text, tmp_path))
    settings = {1, 2, 4, 8, 16, 32, 64}
    tree = found.tree(found.again) or {}
    assert settings >= {each["concurrency"] for each in [*tree.pop("not_measured"), *tree.pop("short")]}
    assert tree == {
        "end": event or "killed",
        "measured": measured,
        "settings": 7,
        "finished": left,
        "trials": 21,
        "trials_finished": left,
        "go_on": found.again,
    }
    if event != "interrupted" or left == 21:
        return
    for name, text in looked_at(tmp_path).items():
        assert (found.brief in text) == (name in ("show", "solve", "page", "markdown")), name
        assert ("frontier sweep runs/good/config.yaml -o runs/good" in text) == (found.brief in text), name
    for arguments in (["show"], ["solve"], ["report", "-o", "p.json"]):
        out = frontier(*arguments, "runs/good", *([] if "-o" in arguments else ["--json"]), cwd=tmp_path).out
        tree = json.loads(out or (tmp_path / "p.json").read_text())
        assert "interrupted" == tree["unfinished"]["end"]


def test_a_sweep_that_lists_no_setting_counts_its_trials_alone() -> None:
    assert "listed" in counts_text(23, 22, 1, 5)
    assert "listed" not in counts_text(30, 30, 0, 0)


@pytest.mark.slow
def test_a_finished_run_and_an_import_say_nothing_of_it(tmp_path: Path) -> None:
    swept(tmp_path / "runs" / "good", TEXT)
    assert [] == [name for name, text in looked_at(tmp_path).items() if "unfinished:" in text]
    assert json.loads(frontier("show", "runs/good", "--json", cwd=tmp_path).out)["unfinished"] is None
    (tmp_path / "points.csv").write_text(frontier("export", "runs/good", "--csv", cwd=tmp_path).out)
    assert 0 == frontier("import", "points.csv", "-o", "runs/imported", cwd=tmp_path).code
    assert load(tmp_path / "runs" / "imported").standing is None
    assert "unfinished" not in frontier("show", "runs/imported", cwd=tmp_path).out


def state_of(path: Path) -> tuple[str, str]:
    found = load(path).standing
    assert found is not None
    return found.end, found.state


def test_a_run_that_is_being_swept_says_so_and_one_that_is_verified_does_not(tmp_path: Path) -> None:
    path = tmp_path / "good"
    swept(path, TEXT)
    with RunDirectory.open_to_verify(path):
        assert "" == load(path).unfinished, "a check of a finished run holds its lock too"
    cut(path, 4, None)
    config = load_config(TEXT, "sweep.yaml")
    with open_run(path, config, TEXT) as run:
        assert state_of(path) == ("running", "running")
        assert_golden_row("messages", load(path).unfinished)
        run.journal("server_lost", trial="default-256x32-c0001-grid-r1", reason="gone")
        assert state_of(path) == ("running", "running"), "the server is waited for"


def test_a_budget_that_had_no_room_is_told_and_what_it_left_out(tmp_path: Path) -> None:
    _, end = swept(tmp_path / "run", TEXT + "budget: {requests: 5000}\n")
    found = load(tmp_path / "run").standing
    assert found is not None
    assert ("budget", "budget", "finished", True) == (end, found.end, found.state, found.unfinished)
    assert_golden_row("messages", neutral(found.text(found.again), tmp_path))


def test_the_command_below_a_run_whose_budget_is_spent_goes_on_when_it_is_pasted(tmp_path: Path) -> None:
    text = config_text(ENGINES["smooth"], requests=100).replace("repeats: 3", "repeats: 2")
    text += "budget: {requests: 900, cost: $100}\nprice: $1/h\n"
    swept(tmp_path / "run", text)
    run = load(tmp_path / "run")
    command = run.unfinished.splitlines()[-1].strip()
    assert command == run.go_on
    assert command.replace(f"{tmp_path}/", "") in frontier("show", "run", cwd=tmp_path).out
    words = shlex.split(command)
    assert words[-2] == "--set"
    enough = int(words[-1].removeprefix("budget.requests="))
    assert enough > 900
    assert "finished" == swept(tmp_path / "run", text.replace("requests: 900,", f"requests: {enough},"))[1]
    assert "" == load(tmp_path / "run").unfinished


@pytest.mark.parametrize("event", ["finished", "interrupted", "killed"])
def test_the_command_below_a_run_has_room_in_the_budget_however_the_run_ended(event: str, tmp_path: Path) -> None:
    swept(tmp_path / "run", config_text(ENGINES["smooth"], requests=100) + "budget: {requests: 900}\n")
    cut(tmp_path / "run", 9, event)
    assert "--set budget.requests=" in load(tmp_path / "run").unfinished.splitlines()[-1]


def test_a_setting_that_was_skipped_for_another_reason_is_not_the_budgets(tmp_path: Path) -> None:
    swept(tmp_path / "run", TEXT)
    for c in (2, 4):
        for file in (tmp_path / "run" / "trials").glob(f"*-c{c:04}-*"):
            file.unlink()
    cut(tmp_path / "run", 15, "budget")
    lines = (tmp_path / "run" / "journal.jsonl").read_text().splitlines()
    keys = [trial.key for trial in make_plan(load_config(TEXT, "sweep.yaml")).trials]
    said = {
        2: {"event": "dropped", "reason": "the budget had no room"},
        4: {"event": "skipped", "reason": "c=2 failed"},
    }
    for c, line in said.items():
        mine = [key for key in keys if f"-c{c:04}-" in key]
        where = {"trials": mine} if line["event"] == "dropped" else {"trial": mine[0]}
        lines.insert(-1, json.dumps({"time": time.time(), **line, **where}))
    (tmp_path / "run" / "journal.jsonl").write_text("\n".join(lines) + "\n")
    found = load(tmp_path / "run").standing
    assert found is not None
    assert [(4, "c=2 failed")] == [(c, why) for (_, c), why in found.skipped_for.items()]
    assert [False, True] == ["c=2 failed" in part for part in found.gaps.split(". ")]


def test_a_trial_that_the_budget_cut_off_is_left_out_as_those_that_it_had_no_room_for(tmp_path: Path) -> None:
    text = config_text(ENGINES["smooth"], requests=100).replace("repeats: 3", "repeats: 1")
    swept(tmp_path / "run", text)
    before = load(tmp_path / "run").standing
    assert before is not None
    assert (before.done, {}) == (before.planned, before.given_up)
    lines = (tmp_path / "run" / "journal.jsonl").read_text().splitlines()
    key = make_plan(load_config(text, "sweep.yaml")).trials[0].key
    said = {"flagged": {"trial": key, "flags": ["cut_off"]}, "dropped": {"trials": [key], "reason": "no room"}}
    lines[-1:] = [json.dumps({"time": time.time(), "event": e, **said.get(e, {})}) for e in (*said, "budget")]
    (tmp_path / "run" / "journal.jsonl").write_text("\n".join(lines) + "\n")
    found = load(tmp_path / "run").standing
    assert found is not None
    assert (before.planned - 1, {key: "no room"}, ()) == (found.done, found.given_up, found.left)
    assert len(found.missing) == len(found.given_up)


@pytest.mark.parametrize("before", ["finished", "budget"])
@pytest.mark.parametrize("end", ["budget", "interrupted"])
def test_a_proof_that_was_asked_for_and_not_finished_leaves_a_finished_sweep_finished(
    before: str, end: str, tmp_path: Path
) -> None:
    swept(tmp_path / "run", TEXT)
    file = tmp_path / "run" / "journal.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    asked = {"event": "settings", "config": "sweep.yaml", "directory": ".", "settings": []}
    dropped = {"event": "dropped", "trials": ["default-256x32-c0005-prove-r2"], "reason": "the budget had no room"}
    session = [{"event": "resumed"}, {**asked, "prove": "5"}, *[dropped] * (end == "budget"), {"event": end}]
    lines = [*lines[:-1], {"event": before}, *session]
    file.write_text("".join(json.dumps({"time": time.time(), **line}) + "\n" for line in lines))
    found = load(tmp_path / "run").standing
    assert found is not None
    over = before == "finished"
    assert (over, not over, end) == (found.was_over, found.unfinished, found.end)
    state = read_state(tmp_path / "run")
    assert (("finished", "finished") if over else (found.state, end)) == (state["state"], state["end"])
    assert bool(found.given_up) == (end == "budget")


def test_below_a_damaged_run_stands_what_to_do_first(tmp_path: Path) -> None:
    swept(tmp_path / "run", TEXT)
    cut(tmp_path / "run", 8, "interrupted")
    file = min((tmp_path / "run" / "trials").iterdir())
    file.write_bytes(file.read_bytes()[:-20])
    text = load(tmp_path / "run").unfinished
    assert f"remove {file}" in text
    assert_golden_row("messages", neutral(text, tmp_path))


def test_a_larger_budget_stands_in_the_place_of_the_one_that_was_given(tmp_path: Path) -> None:
    config = load_config(TEXT + "budget: {requests: 900, time: 1min}\n", "sweep.yaml")
    command = "cd 'a b' && frontier sweep a.yaml --set budget.requests=900 --set seed=1"
    raised = with_budget(command, config, Amount(requests=5000.0))
    assert raised == "cd 'a b' && frontier sweep a.yaml --set budget.requests=5000 --set seed=1"
    whole = with_budget("frontier sweep a.yaml --set 'budget={requests: 900, time: 1min}'", config, Amount(120.0, 5000))
    assert whole == "frontier sweep a.yaml --set 'budget={requests: 5000, time: 2min}'"
    assert command == with_budget(command, config, Amount(requests=800.0)), "there is room"
    until = load_config(TEXT + "budget: {until: '07:00'}\n", "sweep.yaml")
    assert command == with_budget(command, until, Amount(seconds=1e6)), "a time of day comes again"


@pytest.mark.parametrize("lost", [(), (4,), (4, 16), (1, 2, 4, 8, 16, 32, 64)])
def test_what_is_left_out_is_what_has_no_trial(tmp_path: Path, lost: tuple[int, ...]) -> None:
    path = tmp_path / "run"
    swept(path, TEXT)
    for c in lost:
        for file in (path / "trials").glob(f"*-c{c:04}-*"):
            file.unlink()
    cut(path, 21 - 3 * len(lost), "interrupted")
    found = load(path).standing
    assert found is not None
    assert lost == tuple(c for _, c in found.missing)
    points = {p.load for p in load(path).points()}
    assert not points & set(lost)


@pytest.mark.process
def test_the_command_that_goes_on_is_the_users_own_where_its_config_is_still_the_same(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(TEXT.replace("requests: 400", "requests: 100000"))
    sweep = start("sweep", "sweep.yaml", "-o", "my runs/a", cwd=tmp_path)
    deadline = time.monotonic() + 60
    while not (tmp_path / "my runs" / "a" / "journal.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    sweep.kill()
    sweep.communicate(timeout=60)
    said = frontier("status", "my runs/a", "--json", cwd=tmp_path, here=True)
    assert "stopped" == json.loads(said.out)["state"]
    own = "frontier sweep sweep.yaml -o 'my runs/a'"
    assert own == again(tmp_path)
    (tmp_path / "sweep.yaml").write_text(TEXT)
    assert ["frontier", "sweep", "my runs/a/config.yaml", "-o", "my runs/a"] == shlex.split(again(tmp_path))


def again(cwd: Path) -> str:
    """The command that goes on with `my runs/a`, asked there."""
    before = Path.cwd()
    os.chdir(cwd)
    try:
        found = load("my runs/a").standing
    finally:
        os.chdir(before)
    assert found is not None
    return found.again


def test_only_the_proofs_that_the_budget_had_no_room_for_are_said_to_be_dropped(tmp_path: Path) -> None:
    swept(tmp_path / "run", TEXT)
    found = load(tmp_path / "run").standing
    assert found is not None
    keys = ("default-256x32-c0008-prove-r2", "default-256x32-c0016-grid-r3", "odd")
    ended = replace(found, given_up=dict.fromkeys(keys, "no room")).ended(load_config(TEXT, "sweep.yaml"))
    assert {"default-256x32-c0008"} == set(ended.dropped)
