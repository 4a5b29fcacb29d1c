"""`frontier status`: how a sweep stands, from another terminal."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from frontier.cli.common import answer, answer_json, answer_prose, find_run, json_option, run_argument, unread
from frontier.errors import ExitCode

if TYPE_CHECKING:
    from frontier.store.run_dir import RunDirectory

_WARNINGS = ("warning", "skipped", "dropped", "server_lost", "measured_again", "flagged", "failed", "given_up")
_EVERY = 1.0


@click.command("status")
@run_argument
@click.option("--follow", is_flag=True, help="Print a line whenever something happens, until the sweep ends.")
@json_option
def command(run: Path | None, follow: bool, as_json: bool) -> int:
    """How the sweep in RUN stands: done, running, left, time left, last warnings. Reads only; disturbs nothing.

    RUN defaults to the one under runs/ that is being swept, else to the one whose last trial was finished last.

    \b
    Examples:
      frontier status
      frontier status runs/llama8b --follow
    """
    path = find_run(run, running=True)
    told = stand(path)
    if follow:
        return _follow(path, told, as_json)
    if as_json:
        answer_json(told)
    else:
        answer_prose("\n".join(page(told)))
    return ExitCode.YES


def _follow(path: Path, told: dict[str, Any], as_json: bool) -> int:
    """A line now and whenever something happened; ends with the sweep."""
    import orjson

    def say(told: dict[str, Any]) -> None:
        answer(orjson.dumps(told).decode() if as_json else line(told))

    say(told)
    while told["state"] == "running":
        time.sleep(_EVERY)
        before, told = told, stand(path)
        if unread():
            break
        if (before["events"], before["state"]) != (told["events"], told["state"]):
            say(told)
    return ExitCode.YES


def stand(path: Path) -> dict[str, Any]:
    """What is known of a run: its state, trials done, running and left, seconds left, and the last warnings.

    `seconds_left` is None while it is not known of every trial that is left; the refinement, which nobody can foresee,
    is not in it. `skipped` are those given up in the session that runs, or ran last.
    """
    from frontier.budget import TrialTimes
    from frontier.config import load_config
    from frontier.run import standing
    from frontier.store.run_dir import RunDirectory

    run = RunDirectory.read(path)
    if "imported" in run.manifest:
        return _imported(run, path)
    lines = run.journal_lines()
    config = load_config(run.config_text(), str(path / "config.yaml"))
    finished = {key: m.trial for key, m in run.finished().items()}
    now = standing(run, config, finished)
    held = now.end == "running"
    began = max((i for i, one in enumerate(lines) if one["event"] in ("created", "resumed")), default=0)
    session = lines[began:]
    running = _running(session) if held else None
    seconds: float | None = 0.0
    if now.left:
        from frontier.budget import TimeEstimator  # the engine model that it asks takes a while to load

        seconds = TimeEstimator(config).left(now.left, TrialTimes.of(lines, finished))
    if seconds is not None and running is not None and running["trial"] in {t.key for t in now.left}:
        seconds = max(0.0, seconds - running["since"])
    return {
        "schema": "frontier.status/1",
        "run": str(path),
        "state": now.state,
        "end": now.end,
        "done": now.done,
        "planned": now.planned,
        "refined": now.refined,
        "skipped": len(now.given_up),
        "left": len(now.left),
        "running": running,
        "seconds_left": None if seconds is None else round(seconds, 1),
        "elapsed": round((time.time() if held else lines[-1]["time"]) - session[0]["time"], 1) if session else None,
        "events": len(lines),
        "last": lines[-3:],
        "held_elsewhere": run.held_elsewhere() if held else None,
        "warnings": [_told(one) for one in session if one["event"] in _WARNINGS][-3:],
    }


def _imported(run: "RunDirectory", path: Path) -> dict[str, Any]:
    """An import is whole from the start."""
    done = len(run.imported()) + len(run.finished())
    nothing: dict[str, Any] = {"skipped": 0, "refined": 0, "left": 0, "elapsed": None, "last": []}
    unknown: dict[str, Any] = {
        "running": None,
        "seconds_left": None,
        "events": 0,
        "held_elsewhere": None,
        "warnings": [],
    }
    return {
        "schema": "frontier.status/1",
        "run": str(path),
        "state": "imported",
        "end": "imported",
        "done": done,
        "planned": done,
        **nothing,
        **unknown,
    }


def _running(session: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The trial in flight, and for how many seconds."""
    for one in reversed(session):
        if one["event"] == "trial_begun":
            return {"trial": one["trial"], "since": round(max(0.0, time.time() - one["time"]), 1)}
        if one["event"] in ("trial_done", "interrupted", "server_lost"):
            return None
    return None


def _told(one: Mapping[str, Any]) -> str:
    """A line of the journal for a person: when, what, and why."""
    from frontier.decide.wording import clean

    name = str(one["event"]).replace("_", " ")
    about = one.get("trial") or one.get("deployment") or (f"{len(one['trials'])} trials" if "trials" in one else "")
    why = one.get("text") or one.get("reason") or ", ".join(one.get("flags", ()))
    when = time.strftime("%H:%M", time.localtime(one["time"]))
    return clean(f"{when}  {' '.join(part for part in (name, str(about)) if part)}{': ' if why else ''}{why}", 300)


def line(told: Mapping[str, Any]) -> str:
    """How it stands, in one line."""
    from frontier.units import format_elapsed

    if told["state"] == "imported":
        return f"imported  {told['done']} points; nothing is left to measure"
    parts = [f"{told['state']}  {told['done']}/{told['planned']} trials"]
    parts += [f"{told[k]} {k}" for k in ("refined", "skipped") if told[k]]
    parts.append(f"{told['left']} left")
    if told["state"] == "running" and told["left"] and told["seconds_left"] is not None:
        parts.append(f"about {format_elapsed(told['seconds_left'])} to go")
    text = ", ".join(parts)
    if told["running"] is not None:
        return f"{text}   now: {told['running']['trial']}, for {format_elapsed(told['running']['since'])}"
    if not told["last"]:
        return text
    last = told["last"][-1]
    killed = told["end"] == "killed"
    return f"{text}   last: {_told(last)}{'; then it was killed, and the same command goes on' if killed else ''}"


def page(told: Mapping[str, Any]) -> list[str]:
    """How it stands, with the last warnings."""
    from frontier.decide.wording import clean

    lines = [line(told)]
    if told["held_elsewhere"]:
        holder = clean(told["held_elsewhere"], 300)
        lines.append(f"  held by {holder}; from here it is not seen whether it still runs")
    said = _told(told["last"][-1]) if told["last"] and told["running"] is None else None  # it stands in the line
    return lines + [f"  {text}" for text in told["warnings"] if text != said]
