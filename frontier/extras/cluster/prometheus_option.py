"""`frontier sweep --prometheus`: progress as Prometheus metrics on a loopback port."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import click

from frontier.core.model.decisions import Limit
from frontier.planning.sweep_progress import Progress


def option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command with the option."""
    return click.option(
        "--prometheus", metavar="PORT", type=click.IntRange(0, 65535), help="Serve progress on this loopback port."
    )(command)


@asynccontextmanager
async def around(progress: Progress, given: Mapping[str, Any], limits: Sequence[Limit]) -> AsyncIterator[Progress]:
    """The progress of a sweep, which is served meanwhile where that was asked for; `limits` are its
    SLA.
    """
    if given.get("prometheus") is None:
        yield progress
        return
    from frontier.extras.cluster.prometheus_exporter import Exporter, Telemetry

    telemetry = Telemetry(progress, limits)
    exporter = Exporter(telemetry.text)
    try:
        telemetry.note(f"metrics  {await exporter.start(given['prometheus'])}")
        yield telemetry
    finally:
        await exporter.close()
