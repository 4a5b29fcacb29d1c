"""`frontier status`: how far a sweep is, from another terminal."""

import re
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click
import orjson

from frontier.cli.common import RunOptions, answer, answer_prose, find_run, run_options, subcommand
from frontier.core.claim.changes import PROOFS
from frontier.core.model.errors import ExitCode, UsageError
from frontier.core.model.loads import Concurrency, load_of
from frontier.core.model.series import Series
from frontier.core.model.shapes import DEFAULT_DEPLOYMENT, file_label
from frontier.core.model.text import clean
from frontier.core.model.units import count, format_elapsed
from frontier.planning.standing import counts_text
from frontier.show.verbosity import Detail
from frontier.show.view.rough import format_rough
from frontier.show.view.wording import BY_THE_CLIENT, flag_kind
from frontier.store.journal import last_session
from frontier.store.run_dir import RunDirectory
from frontier.world import world

if TYPE_CHECKING:
    from frontier.config import Config
    from frontier.core.model.decisions import Decision
    from frontier.core.model.loads import Load

_NAMED = 4
"""Most trials that one line names as left; the others are counted."""
_WARNINGS = ("warning", "skipped", "dropped", "server_lost", "measured_again", "flagged", "failed", "given_up")
_KEPT_FOR_LATER = ("answered",)
"""Events that a resumed sweep needs, and that tell a reader nothing."""
_EVERY = 1.0
_Proven = dict[tuple[str, str], Any]
"""The operating points by deployment and shape."""


@subcommand("status")
@click.option("--follow", is_flag=True, help="Print a line whenever something happens, until the sweep ends.")
@run_options("run", "detail", "as_json", more="Also every trial that is left, and the last events.")
def command(options: RunOptions, follow: bool) -> int:
    """How far is the sweep in RUN: done, running, left, time left, last warnings? Reads only;
    disturbs nothing.

    RUN defaults to the run under runs/ that is being swept, else to the newest that holds a
    finished trial.

    \b
    Examples:
      frontier status
      frontier status runs/llama8b --follow
    """
    path = find_run(options.run, running=True)
    state = read_state(path)
    if follow:
        return _follow(path, state, options.as_json)
    answer(state) if options.as_json else answer_prose("\n".join(page(state, options.detail)))
    return ExitCode.YES


def _follow(path: Path, state: dict[str, Any], as_json: bool) -> int:
    """Print a line now and after each event, until the sweep ends or standard output is closed."""

    def show() -> None:
        answer(orjson.dumps(state).decode() if as_json else line(state))

    show()
    while state["state"] == "running":
        time.sleep(_EVERY)
        before, state = state, read_state(path)
        if getattr(sys.stdout, "unread", False):
            break
        if (before["events"], before["state"]) != (state["events"], state["state"]):
            show()
    return ExitCode.YES


def read_state(path: Path) -> dict[str, Any]:
    """The state of a run's sweep, for JSON: trials done, running and left, seconds left, and the
    last warnings.

    - `trials_finished`: on the disk, `refined` of them of the search. `done` of the `planned`
      trials need not be run any more; `measured` of the listed `settings` are (`settings` is None
      where the sweep finds its settings itself).
    - `seconds_left`: as the sweep itself last said it; the least of them where
      `seconds_left_at_most` is None, as proofs go on.
    - `proven`: the operating points known so far, for the SLA that the run's config has now.
    - `skipped`: the trials that were given up in the session that runs, or ran last.
    - `open`: the names of the skipped trials and of the trials that are left.
    - `go_on`: the command that measures what is left, or anew what a busy machine left without an
      answer; '' where the sweep runs, or neither is. It measures all of it anew where this machine
      `was_busy`. `way` says what it does, and what to do first of a trial that was changed.
    - `words` beside a trial or an operating point: its name as people read it.
    """
    from frontier.config.config_file import config_of
    from frontier.planning.standing import standing

    run = RunDirectory.read(path)
    if "imported" in run.manifest:
        return _state_of_import(run, path)
    journal = run.journal_lines()
    config = config_of(run)
    now = standing(run, journal, config, {key: m.trial for key, m in run.finished().items()})
    is_running = now.end == "running"
    session = last_session(journal)
    running = _running(session) if is_running else None
    names = _series_names(config)
    # As the sweep itself forecast them when its last trial began; None where it had no forecast.
    told: Mapping[str, Any] = next((event for event in reversed(journal) if "left" in event), {})
    seconds = 0.0 if now.state == "finished" else told.get("left")
    if running is not None and seconds is not None:
        seconds = max(0.0, seconds - running["since"])
    proven, *on = (_proven(config, journal), "", "") if is_running else _judged(path)
    until = world().wall() if is_running or not journal else journal[-1]["time"]
    return {
        "schema": "frontier.status/1",
        "run": str(path),
        "state": now.state,
        "end": now.end if now.unfinished else "finished",
        "trials_finished": now.trials,
        **{name: getattr(now, name) for name in ("settings", "measured", "done", "planned", "refined")},
        "skipped": len(now.given_up),
        "left": len(now.left),
        "open": [trial_words(key, names) for key in (*(trial.key for trial in now.left), *now.given_up)],
        "running": None if running is None else _with_words(running, names),
        "seconds_left": None if seconds is None else round(seconds, 1),
        "seconds_left_at_most": told.get("left_at_most"),
        "proven": [_with_name(deployment, shape, c, config) for (deployment, shape), c in proven.items()],
        **dict(zip(("way", "go_on"), on, strict=True)),
        "was_busy": now.was_busy,
        "elapsed": round(until - session[0]["time"], 1) if session else None,
        "events": len(journal),
        "last": [_with_words(line, names) for line in journal if line["event"] not in _KEPT_FOR_LATER][-3:],
        "held_elsewhere": run.held_elsewhere() if is_running else None,
        "warnings": [_event_text(_with_words(e, names)) for e in session if e["event"] in _WARNINGS][-3:],
    }


def _proven(config: "Config", journal: Sequence[dict[str, Any]]) -> _Proven:
    """The operating points of a sweep that runs, of its journal."""
    from frontier.planning.standing import proven_settings

    return {(e["deployment"], e["shape"]): load_of(e) for e in proven_settings(journal, config.limits)}


def _judged(path: Path) -> tuple[_Proven, str, str]:
    """The operating points of a sweep that does not run, whose trials are judged anew as `solve`
    does; then what the command that goes on does, and the command: '' for nothing. Where only an
    idle machine would decide, both are those of the answer.
    """
    from frontier.planning.next_step import needs_an_idle_machine
    from frontier.read_run import load

    run, decisions = load(path), list["Decision"]()
    with suppress(UsageError):  # a limit on what no point has a value of
        decisions += run.solve() if run.histories and run.limits() else ()
    proven = {(d.deployment, d.shape.label): d.load for d in decisions if d.load is not None}
    if run.standing is None:
        return proven, "", ""
    idle = (d.next_step for d in decisions if needs_an_idle_machine(d))
    better = next((step.command for step in idle if step is not None and step.command), None)
    if better is not None and not run.standing.first:
        return proven, "This machine was busy. On an idle machine or core", better
    return proven, run.standing.way if run.go_on else run.standing.first, run.go_on


def _state_of_import(run: "RunDirectory", path: Path) -> dict[str, Any]:
    """The same fields for an import, which is whole from the start."""
    done = len(run.imported()) + len(run.finished())
    return {
        "schema": "frontier.status/1",
        "run": str(path),
        "state": "imported",
        "end": "imported",
        "trials_finished": done,
        "settings": done,
        "measured": done,
        "done": done,
        "planned": done,
        "skipped": 0,
        "refined": 0,
        "left": 0,
        "open": [],
        "elapsed": None,
        "last": [],
        "running": None,
        "seconds_left": None,
        "seconds_left_at_most": None,
        "proven": [],
        "way": "",
        "go_on": "",
        "was_busy": False,
        "events": 0,
        "held_elsewhere": None,
        "warnings": [],
    }


def _running(session: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The trial in flight, how many seconds it has run, and its number of client processes."""
    for event in reversed(session):
        if event["event"] == "trial_begun":
            since = round(max(0.0, world().wall() - event["time"]), 1)
            return {"trial": event["trial"], "since": since, "client_processes": event.get("client_processes", 1)}
        if event["event"] in ("trial_done", "interrupted", "server_lost"):
            return None
    return None


def _series_names(config: "Config") -> dict[str, str]:
    """What people call each series of a config, by what its trials' keys begin with."""
    every = (Series(deployment.name, shape) for deployment in config.deployments for shape in config.shapes)
    return {f"{file_label(one.deployment)}-{one.shape.file_label}": one.label(join=" ") for one in every}


def _with_words(line: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """A line of the journal, with the words for its trial where it has one."""
    return {**line, **({"words": trial_words(line["trial"], names)} if line.get("trial") else {})}


def _event_text(event: Mapping[str, Any]) -> str:
    """A line of the journal for a person: when, what, and why."""
    name = str(event["event"]).replace("flagged", "excluded").replace("_", " ")
    if name == "server lost" and event.get("cause") == "never_came_up":
        name = "server never came up"
    if name == "budget":
        name = "the budget ended it"
    trials = count(len(event["trials"]), "trial") if "trials" in event else ""
    series = [str(event[part]) for part in ("deployment", "shape") if event.get(part) not in (None, DEFAULT_DEPLOYMENT)]
    series += [load_of(event).label] if event["event"] == "proven" else []
    about = event.get("words") or " ".join(series) or trials
    flags = event.get("flags", ())
    flags = [flag for flag in flags if "client_bound" not in flags or flag not in BY_THE_CLIENT]
    why = event.get("text") or event.get("reason") or ", ".join(map(flag_kind, flags))
    when = time.strftime("%H:%M", time.localtime(event["time"]))
    return clean(f"{when}  {' '.join(part for part in (name, str(about)) if part)}{': ' if why else ''}{why}", 300)


def trial_words(key: str, names: Mapping[str, str] = MappingProxyType({})) -> str:
    """A trial's key for a person: 'short c=64', 'short 2.5/s', 'fp8 1024/256 c=8, repeat 2'. A key
    of another form stays as it is. `names` are those of known series. Of another series whose name
    cannot be a file name, the safe part remains: 'chat80 rag20 c=4'.
    """
    match = re.fullmatch(r"(.*)-(?:c0*(\d+)|q([\d.e+-]+))-([a-z]+)-r(\d+)", key)
    if match is None:
        return key
    where, c, rate, phase, repeat = match.groups()
    load = Concurrency(c).label if c else f"{rate}/s"
    proof = "proof of " if phase in PROOFS else ""
    again = f", repeat {repeat}" if repeat != "1" else ""
    if where not in names:
        where = re.sub(r"(.*)-[0-9a-f]{8}", lambda safe: safe[1].replace("_", " ").strip(), where)
        where = re.sub(r"(?:^|-)(\d[\d.~-]*)x(\d[\d.~-]*)$", r" \1/\2", where.removeprefix(f"{DEFAULT_DEPLOYMENT}-"))
    return f"{proof}{names.get(where, where).strip()} {load}{again}"


def line(state: Mapping[str, Any]) -> str:
    """The state in one line."""
    if state["state"] == "imported":
        return f"imported  {state['done']:,} points; nothing is left to measure"
    counted = (state[name] for name in ("trials_finished", "refined", "measured", "settings"))
    proven = ", ".join(one["words"] for one in state["proven"])
    word = "unfinished" if (state["state"], state["end"]) == ("finished", "budget") else state["state"]
    parts = [f"{word}{', proven: ' if proven else ''}{proven}  {counts_text(*counted)}"]
    parts += [f"{count(len(state['open']), 'trial')} {_left(state)}"] if state["open"] else []
    if state["state"] == "running" and state["seconds_left"]:  # at 0 it takes longer than was expected
        about = "at least" if state["seconds_left_at_most"] is None else "about"
        parts.append(f"{about} {format_rough(state['seconds_left'])} left")
    text = ", ".join(parts)
    if state["running"] is not None:
        now = state["running"]
        by = f", sent by {now['client_processes']} client processes" if now["client_processes"] > 1 else ""
        return f"{text}   now: {now['words']}, for {format_elapsed(now['since'])}{by}"
    if not state["last"]:
        return text
    killed = "; then it was killed" if state["end"] == "killed" else ""
    return f"{text}   last: {_event_text(state['last'][-1])}{killed}"


def _with_name(deployment: str, shape: str, c: "Load", config: "Config") -> dict[str, Any]:
    """An operating point. Its name has the deployment and the shape where the config has
    several.
    """
    names = ((deployment, config.deployments), (shape, config.shapes))
    words = " ".join([*(clean(name, 40) for name, each in names if len(each) > 1), c.label])
    return {"deployment": deployment, "shape": shape, **c.facts, "words": words}


def _left(state: Mapping[str, Any]) -> str:
    """What the open trials of a sweep are: still to come, or left out for good."""
    return "left out" if state["state"] == "finished" else "left"


def page(state: Mapping[str, Any], detail: Detail = Detail.USUAL) -> list[str]:
    """The state in lines, with the last warnings. Where everything is asked for, also every trial
    that is left and the last events.
    """
    lines: list[str] = []
    if state["held_elsewhere"]:
        lines.append(f"  held by {clean(state['held_elsewhere'], 300)}")
    if state["open"]:
        names, others = state["open"][:_NAMED], len(state["open"]) - _NAMED
        lines.append(f"  {_left(state)}: {', '.join(names)}{f' and {others} more' if others > 0 else ''}")
    in_line = _event_text(state["last"][-1]) if state["last"] and state["running"] is None else None
    lines += [f"  {text}" for text in state["warnings"] if text != in_line]
    lines += [f"  {state['way']}{':' if state['go_on'] else '.'}"] if state["way"] else []
    lines += [f"  {state['go_on']}"] if state["go_on"] else []
    every = [f"  {_left(state)}: {name}" for name in state["open"]]
    return detail.of([line(state)], lines, [*every, *(f"  event: {_event_text(event)}" for event in state["last"])])
