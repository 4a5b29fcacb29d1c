"""Notification that a sweep has ended: the command or the webhook of the config's `on_finish`.

It is the last thing that a sweep does. Its time is bounded, and a failure of it does not change how
the sweep ended.
"""

import asyncio
import json
import socket
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from frontier.client.secrets import MOST, NO_SECRETS, Secrets, masked
from frontier.config import Config
from frontier.config.finish_keys import FinishConfig
from frontier.core.model.decisions import Decision
from frontier.core.model.loads import NO_LOAD
from frontier.core.model.units import count, format_elapsed
from frontier.planning.standing import lost_server, standing
from frontier.store.run_dir import RunDirectory
from frontier.sweep.secrets_of_config import secrets_of
from frontier.sweep.shell_line import run_line

_OUTPUT_CHARS = 300


def tell(
    config: Config,
    path: Path,
    end: str,
    code: int,
    answers: Sequence[tuple[Decision, str]],
    reason: str,
    environ: Mapping[str, str],
) -> str | None:
    """Send the notification of a config with `on_finish`; `answers` are decisions, each with its
    sentence. Returns what went wrong with it, or None.
    """
    assert config.on_finish is not None
    secrets = {name for d in config.deployments for name in d.secret_variables()} | config.on_finish.variables()
    facts = _finish_facts(config, path, end, code, answers, reason)
    return notify(config.on_finish, facts, environ, secrets, secrets_of(config, environ))


def _finish_facts(
    config: Config, path: Path, end: str, code: int, answers: Sequence[tuple[Decision, str]], reason: str
) -> dict[str, Any]:
    """The JSON that on_finish gets: where, how the sweep ended, each shape's verdict, and all of
    that as a sentence. `settings` and `measured` are those of `frontier status`.
    """
    run = RunDirectory.read(path)
    lines = run.journal_lines()
    now = standing(run, lines, config, {key: measurement.trial for key, measurement in run.finished().items()})
    shapes = [
        {"deployment": d.deployment, "shape": d.shape.label, "verdict": d.verdict.value, **(d.load or NO_LOAD).facts}
        for d, _ in answers
    ]
    sentences = [f"{d.series.label(join=' ')}: {sentence}" for d, sentence in answers]
    words = {"server_lost": lost_server(lines), "budget": "was ended by its budget"}
    how = words.get(end, end.replace("_", " "))
    text = f"frontier: {path.name} {how}" + (f": {reason}" if reason else "")
    if now.spoilt:
        text = f"{text}; this machine was busy: {now.spoilt:,} of {count(now.trials, 'trial')} excluded"
    return {
        "schema": "frontier.finish/1",
        "run": str(path),
        "host": socket.gethostname(),
        "end": end,
        "exit_code": int(code),
        "trials_finished": now.trials,
        "settings": now.settings,
        "measured": now.measured,
        "shapes": shapes,
        "text": masked("; ".join([text, *sentences]))[:1000],
    }


def notify(
    finish: FinishConfig,
    facts: Mapping[str, Any],
    environ: Mapping[str, str],
    secrets: Collection[str] = (),
    hidden: Secrets = NO_SECRETS,
) -> str | None:
    """Run the command or call the webhook. Returns what went wrong, without any secret, or None.

    The command gets the facts as JSON on standard input and the most important ones as FRONTIER_*
    variables. It does not get the variables in `secrets`. Neither these nor `hidden` are repeated
    from its output. The webhook gets the JSON, as a POST that follows no redirect.
    """
    try:
        if finish.command is not None:
            kept = {name: value for name, value in environ.items() if name not in secrets}
            known = Secrets.of([environ.get(name) for name in secrets]) | hidden
            return _run(finish.command, finish.within, facts, kept, known)
        url = finish.address(environ)
        return "on_finish: the variable of its address is not set" if url is None else _post(url, finish.within, facts)
    except OSError as error:
        return f"on_finish: {error.strerror or type(error).__name__}"


def _run(
    command: str, within: float, facts: Mapping[str, Any], environ: Mapping[str, str], secrets: Secrets
) -> str | None:
    variables = {f"FRONTIER_{name.upper()}": str(facts[name]) for name in ("run", "end", "exit_code", "text")}
    done = run_line(command, json.dumps(facts).encode(), {**environ, **variables}, within, most=2 * MOST)
    if done.returncode is None:
        return f"on_finish: its command did not end within {format_elapsed(within)}"
    if done.returncode == 0:
        return None
    words = (done.stderr or done.stdout).decode(errors="replace")
    return (
        f"on_finish: its command ended with status {done.returncode}: {secrets.last_said(words, _OUTPUT_CHARS)}".rstrip(
            ": "
        )
    )


def _post(url: str, within: float, facts: Mapping[str, Any]) -> str | None:
    import aiohttp

    async def post() -> int:
        limit = aiohttp.ClientTimeout(total=within)
        async with (
            aiohttp.ClientSession(timeout=limit) as session,
            session.post(url, json=dict(facts), allow_redirects=False) as response,
        ):
            return response.status

    try:
        status = asyncio.run(post())
    except (TimeoutError, aiohttp.ClientError, ValueError) as error:
        # Not its text: it may repeat the address, which is a secret where webhooks are.
        return f"on_finish: the webhook was not told: {type(error).__name__}"
    return None if status < 300 else f"on_finish: the webhook answered {status}"
