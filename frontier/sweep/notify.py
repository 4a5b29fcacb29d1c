"""Notification that a sweep has ended: the command or the webhook of the config's `on_finish`.

It is the last thing a sweep does: bounded in time, and nothing that goes wrong with it changes how
the sweep ended.
"""

import asyncio
import json
from collections.abc import Collection, Mapping
from typing import Any

from frontier.client.secrets import MOST, NO_SECRETS, Secrets
from frontier.config import FinishConfig
from frontier.core.units import format_elapsed
from frontier.sweep.shell_line import run_line

_OUTPUT_CHARS = 300


def notify(
    finish: FinishConfig,
    facts: Mapping[str, Any],
    environ: Mapping[str, str],
    secrets: Collection[str] = (),
    hidden: Secrets = NO_SECRETS,
) -> str | None:
    """Run the command or call the webhook. What went wrong, without any secret, or None.

    The command gets the facts as JSON on standard input and the most important ones as FRONTIER_*
    variables; the variables in `secrets` are not handed on to it, and neither these nor `hidden`
    are repeated from its output. The webhook gets the JSON, as a POST that follows no redirect.
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
    if done.status is None:
        return f"on_finish: its command did not end within {format_elapsed(within)}"
    if done.status == 0:
        return None
    words = (done.errors or done.output).decode(errors="replace")
    return f"on_finish: its command ended with status {done.status}: {secrets.last_said(words, _OUTPUT_CHARS)}".rstrip(
        ": "
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
