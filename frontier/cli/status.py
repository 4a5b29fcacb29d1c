"""`frontier status`: how a sweep stands, from another terminal."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from frontier.cli.common import answer, answer_json, find_run, json_option, run_argument
from frontier.errors import ExitCode

if TYPE_CHECKING:
    from frontier.store import RunDirectory


@click.command("status")
@run_argument
@click.option("--follow", is_flag=True, help="Print a line whenever something happens, until the sweep ends.")
@json_option
def command(run: Path | None, follow: bool, as_json: bool) -> int:
    """How the sweep in RUN stands: done, running, left, and what happened last. Reads only; disturbs nothing.

    \b
    Examples:
      frontier status
      frontier status runs/llama8b --follow
    """
    path = find_run(run)
    told = stand(path)
    if as_json:
        answer_json(told)
        return ExitCode.YES
    answer(line(told))
    while follow and told["state"] == "running":
        time.sleep(1.0)
        before, told = told, stand(path)
        if {**before, "elapsed": 0} != {**told, "elapsed": 0}:
            answer(line(told))
    return ExitCode.YES


def stand(path: Path) -> dict[str, Any]:
    """What is known of a run: its state, trials done and planned, seconds since it began, and the last events."""
    from frontier.config import load_config
    from frontier.plan import make_plan
    from frontier.store import RunDirectory

    run = RunDirectory.read(path)
    lines = run.journal_lines()
    if "imported" in run.manifest:
        return _imported(run, path)
    planned = {t.key for t in make_plan(load_config(run.config_text(), str(path / "config.yaml"))).trials}
    done = set(run.finished())
    skipped = {str(item["trial"]) for item in lines if item["event"] == "skipped"}
    ended = lines[-1]["event"] if lines else "created"
    sessions = [item["time"] for item in lines if item["event"] in ("created", "resumed")]
    return {
        "schema": "frontier.status/1",
        "run": str(path),
        "state": "running" if run.held() else "finished" if ended == "finished" else "stopped",
        "done": len(done & planned),
        "planned": len(planned),
        "skipped": len(skipped - done),
        "refined": len(done - planned),
        "left": len(planned - done - skipped),
        "elapsed": round(time.time() - sessions[-1], 1) if sessions else None,
        "last": lines[-3:],
    }


def _imported(run: "RunDirectory", path: Path) -> dict[str, Any]:
    """An import is whole from the start."""
    done = len(run.imported()) + len(run.finished())
    nothing: dict[str, Any] = {"skipped": 0, "refined": 0, "left": 0, "elapsed": None, "last": []}
    return {
        "schema": "frontier.status/1",
        "run": str(path),
        "state": "imported",
        "done": done,
        "planned": done,
        **nothing,
    }


def line(told: dict[str, Any]) -> str:
    """One line for a person."""
    if told["state"] == "imported":
        return f"imported  {told['done']} points; nothing is left to measure"
    last = told["last"][-1] if told["last"] else {"event": "created"}
    what = " ".join(str(last[k]) for k in ("event", "trial", "reason") if k in last)
    extra = "".join(f", {told[k]} {k}" for k in ("skipped", "refined") if told[k])
    return f"{told['state']}  {told['done']}/{told['planned']} trials{extra}, {told['left']} left   last: {what}"
