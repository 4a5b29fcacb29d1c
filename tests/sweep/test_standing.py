"""Which run is the newest, and how a run that is not finished says so wherever it is looked at."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from frontier.cli.dry_run import larger_budget
from frontier.config import load_config
from frontier.run import load
from frontier.store.run_dir import RunDirectory
from tests.commands import Said, frontier, start
from tests.sweeps import ENGINES, config_text, open_run, swept

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
    kept = [line for line in lines if json.loads(line)["event"] not in ("finished", "skipped", "search_done")]
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
    assert ("run  runs/good", 0) == (first, said.code) or (arguments[0] in ("solve", "verify") and said.code == 3)
    assert "runs/failed" in second, "and the newer one is named"
    assert "no finished trial" in second


@pytest.mark.parametrize("arguments", DEFAULTING[:-1], ids=" ".join)
def test_where_no_run_holds_a_trial_it_is_said_why(arguments: list[str], tmp_path: Path) -> None:
    emptied(tmp_path / "runs" / "failed")
    said = frontier(*arguments, cwd=tmp_path, here=True)
    assert (5, "") == (said.code, said.out)
    assert "runs/failed holds no finished trial: failed, cannot reach" in said.err
    assert "Traceback" not in said.err


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
    assert "failed: cannot reach" in said.out


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
    ("left", "event", "facts", "measured", "why"),
    [
        (8, "interrupted", {}, "7 of 7 settings", "it was interrupted; go on with"),
        (4, None, {}, "2 of 7 settings", "it was killed; go on with"),
        (4, "failed", {"reason": "no space is left"}, "2 of 7 settings", "it failed: no space is left; go on with"),
        (4, "server_lost", {"reason": "gone"}, "2 of 7 settings", "the server was lost; go on with"),
        (4, "finished", {}, "2 of 7 settings", "the last sweep was asked for a part of it; go on with"),
        (21, "interrupted", {}, "7 of 7 settings", "it was interrupted; go on with"),
    ],
)
def test_a_run_that_is_not_finished_says_so_wherever_it_is_looked_at(
    left: int, event: str | None, facts: dict[str, str], measured: str, why: str, tmp_path: Path
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
    said = f"unfinished: the frontier is measured at {measured} ({left} of 21 trials)"
    assert found.brief == said
    assert found.text.startswith(f"{said}; {why}")
    assert {"measured": int(measured[0]), "settings": 7, "finished": left, "trials": 21} == {
        name: (found.tree() or {})[name] for name in ("measured", "settings", "finished", "trials")
    }
    if event != "interrupted" or left == 21:
        return
    for name, text in looked_at(tmp_path).items():
        assert said in text, name
        assert name == "picture" or "frontier sweep runs/good/config.yaml -o runs/good" in text, name
    for arguments in (["show"], ["solve"], ["report", "-o", "p.json"]):
        out = frontier(*arguments, "runs/good", *([] if "-o" in arguments else ["--json"]), cwd=tmp_path).out
        tree = json.loads(out or (tmp_path / "p.json").read_text())
        assert "interrupted" == tree["unfinished"]["end"]


def test_a_finished_run_and_an_import_say_nothing_of_it(tmp_path: Path) -> None:
    swept(tmp_path / "runs" / "good", TEXT)
    assert all("unfinished:" not in text for text in looked_at(tmp_path).values())
    assert json.loads(frontier("show", "runs/good", "--json", cwd=tmp_path).out)["unfinished"] is None
    (tmp_path / "points.csv").write_text(frontier("export", "runs/good", "--csv", cwd=tmp_path).out)
    assert 0 == frontier("import", "points.csv", "-o", "runs/imported", cwd=tmp_path).code
    assert load(tmp_path / "runs" / "imported").standing is None
    assert "unfinished" not in frontier("show", "runs/imported", cwd=tmp_path).out


def test_a_run_that_is_being_swept_says_so_and_one_that_is_verified_does_not(tmp_path: Path) -> None:
    path = tmp_path / "good"
    swept(path, TEXT)
    with RunDirectory.open_to_verify(path):
        assert "" == load(path).unfinished, "a check of a finished run holds its lock too"
    cut(path, 4, None)
    config = load_config(TEXT, "sweep.yaml")
    with open_run(path, config, TEXT) as run:
        assert load(path).unfinished.endswith("a sweep is running on it now")
        run.journal("server_lost", trial="default-256x32-c0001-grid-r1", reason="gone")
        assert load(path).unfinished.endswith("a sweep is running on it now"), "the server is waited for"


def test_a_budget_that_had_no_room_is_told_and_what_it_left_out(tmp_path: Path) -> None:
    _, end = swept(tmp_path / "run", TEXT + "budget: {requests: 5000}\n")
    found = load(tmp_path / "run").standing
    assert found is not None
    assert ("budget", "budget", "finished", True) == (end, found.end, found.state, found.unfinished)
    assert "the budget had no room for more; raise it" in found.text


def test_a_spent_budget_is_answered_with_the_larger_one_that_finishes_the_sweep(tmp_path: Path) -> None:
    text = config_text(ENGINES["smooth"], requests=100).replace("repeats: 3", "repeats: 2")
    text += "budget: {requests: 900, cost: $100}\nprice: $1/h\n"
    swept(tmp_path / "run", text)
    config = load_config(text, "sweep.yaml")
    told = larger_budget(config, tmp_path / "run", "frontier sweep a.yaml --set budget.requests=900 --set seed=1")
    first, command = told.splitlines()
    assert "a budget of about " in first
    words = command.split()
    assert ["frontier", "sweep", "a.yaml", "--set", "seed=1", "--set"] == words[:-1]
    enough = int(words[-1].removeprefix("budget.requests="))
    again = text.replace("requests: 900,", f"requests: {enough},")
    assert "finished" == swept(tmp_path / "run", again)[1]
    assert "" == load(tmp_path / "run").unfinished
    until = load_config(text.replace("{requests: 900, cost: $100}", "{until: '07:00'}"), "sweep.yaml")
    assert larger_budget(until, tmp_path / "run", "frontier sweep a.yaml").endswith(
        "go on with\n  frontier sweep a.yaml"
    )


def test_a_proof_that_the_budget_cut_short_is_named(tmp_path: Path) -> None:
    text = config_text(ENGINES["smooth"], requests=100, refine=3).replace("repeats: 3", "repeats: 1")
    text += "budget: {requests: 2600}\n"
    swept(tmp_path / "run", text)
    lines = RunDirectory.read(tmp_path / "run").journal_lines()
    dropped = {key for line in lines if line["event"] == "dropped" for key in line["trials"]}
    cut = {line["concurrency"] for line in lines if line.get("phase") == "prove" and line["trial"] in dropped}
    assert cut, "otherwise this tests nothing"
    said = larger_budget(load_config(text, "sweep.yaml"), tmp_path / "run", "frontier sweep a.yaml")
    assert f"which cut the proof of c={min(cut)} (256/32)" in said


FITS, EXPECTED = "all of it fits, even if each trial takes its longest", "all of it is expected to fit"


@pytest.mark.parametrize(
    ("settings", "said", "fits"),
    [
        (
            "time=60min",
            f"{EXPECTED}; what has no room because the proofs take longer (at most 45 min) is dropped",
            (True, True, False),
        ),
        ("time=3h", FITS, (True, True, True)),
        ("requests=300000", EXPECTED, (True, True, True)),
        ("requests=50000", f"{EXPECTED}; what has no room because the proofs", (True, True, False)),
        ("time=11min refine=0", FITS, (True, True, True)),
        (
            "time=20min",
            "trials of the grid fit if each takes its longest, but not all that completes the frontiers",
            (True, False, False),
        ),
        ("time=20min repeats=2", "the operating point is expected to be proven within it; ", (True, False, False)),
        ("time=5min", "the operating point may not be proven within it: 7 of 14 trials", (False, False, False)),
    ],
)
def test_what_a_dry_run_says_to_fit_holds_with_the_search(
    settings: str, said: str, fits: tuple[bool, bool, bool], tmp_path: Path
) -> None:
    (tmp_path / "sweep.yaml").write_text(
        "endpoint: http://127.0.0.1:9/v1\nshapes: [64/32, 128/32]\nconcurrency: [1, 2, 4, 8, 16, 32, 64]\n"
        "sla: {p99_ttft: 500ms}\nrequests: 300\nrepeats: 1\nrefine: 3\nmax_time: 40s\n"
    )
    given = [part for one in f"budget.{settings}".split() for part in ("--set", one)]
    printed = frontier("sweep", "sweep.yaml", "--dry-run", *given, cwd=tmp_path, COLUMNS="80").out
    assert said in " ".join(printed.split())
    assert max(map(len, printed.splitlines())) <= 80
    tree = json.loads(frontier("sweep", "sweep.yaml", "--dry-run", "--json", *given, cwd=tmp_path).out)
    budget = tree["budget"]
    assert fits == (budget["answer_fits"], budget["all_fits"], budget["all_fits_with_refinement"])


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            "sla: {p99_ttft: 1s}\n",
            (
                "operating point (about 19 min), then complete the frontier (about 1 h 20 min more). About 1 h 40 min "
                "in all, at most 9 h 10 min; by requests as slow as the SLA allows, as nothing is measured "
            ),
        ),
        ("sla: {p99_ttft: 1s}\nbudget: {time: 20min}\n", "is measured yet. The budget ends it after 20 min."),
        ("", "Plan: complete the frontier (about 15 min); without an SLA there is nothing to prove."),
        ("sla: {p99_ttft: 1s}\nrefine: 0\n", "Plan: measure the listed settings (about 10 min); refine: 0 proves"),
        (
            "sla: {p99_ttft: 1s}\nhardware: h100\nmodel: llama-3.1-8b\nmax_time: 20s\n",
            "max_time 20 s is too short to prove c=1, 2",
        ),
    ],
)
def test_a_dry_run_says_what_will_be_done_with_its_time_and_a_bound(more: str, said: str, tmp_path: Path) -> None:
    text = f"endpoint: http://127.0.0.1:9/v1\nshapes: [1024/256]\n{more}"
    (tmp_path / "sweep.yaml").write_text(text)
    assert said in " ".join(frontier("sweep", "sweep.yaml", "--dry-run", cwd=tmp_path, COLUMNS="200").out.split())
    wide = text.replace("[1024/256]", "[1024/256, 64/32]")
    (tmp_path / "sweep.yaml").write_text(wide)
    tree = json.loads(frontier("sweep", "sweep.yaml", "--dry-run", "--json", cwd=tmp_path).out)
    parts = tree["expected"]
    assert tree["expected_seconds"] == pytest.approx(parts["answer_seconds"] + parts["frontier_seconds"])
    assert tree["expected_seconds"] < parts["longest_seconds"]


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
    assert "frontier sweep 'my runs/a/config.yaml' -o 'my runs/a'" == again(tmp_path)


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
