"""What is told to whom when a sweep has ended."""

import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frontier.cli.common import say

if TYPE_CHECKING:
    from frontier.config import Config
    from frontier.model import Decision


def farewell(
    config: "Config", path: Path, end: str, code: int, decisions: "Sequence[Decision]" = (), reason: str = ""
) -> None:
    """Run the config's on_finish, if it has one. Whatever goes wrong is said and changes nothing."""
    if config.on_finish is None:
        return
    from frontier.sweep.backend import secrets_of
    from frontier.sweep.notify import notify

    secrets = {name for d in config.deployments for name in d.secret_variables()} | config.on_finish.variables()
    facts = _facts(path, end, code, decisions, reason)
    wrong = notify(config.on_finish, facts, os.environ, secrets, secrets_of(config, os.environ))
    if wrong is not None:
        say(f"warning: {wrong}")


def _facts(path: Path, end: str, code: int, decisions: "Sequence[Decision]", reason: str) -> dict[str, Any]:
    found = [
        {"deployment": d.deployment, "shape": d.shape.label, "verdict": d.verdict.value, "concurrency": d.concurrency}
        for d in decisions
    ]
    said = [
        f"{'' if d.deployment == 'default' else d.deployment + ' '}{d.shape.label}: {d.verdict.value}"
        + (f" at concurrency {d.concurrency}" if d.concurrency is not None else "")
        for d in decisions
    ]
    text = f"frontier: {path.name} {end.replace('_', ' ')}" + (f": {reason}" if reason else "")
    return {
        "schema": "frontier.finish/1",
        "run": str(path),
        "host": socket.gethostname(),
        "end": end,
        "exit_code": int(code),
        "shapes": found,
        "text": "; ".join([text, *said])[:1000],
    }
