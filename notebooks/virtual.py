"""A whole sweep of the embedded engine in virtual time: a night of measuring in seconds, the same
on every machine.

Only for these notebooks; on a server of yours it is  frontier.run_sweep("sweep.yaml",
"runs/tonight").
"""

import asyncio
import tempfile
from pathlib import Path

from frontier import Run, load, load_config, make_plan
from frontier.client.http.http_client import run as run_loop
from frontier.config import left_out
from frontier.show.live import make_progress
from frontier.store.run_dir import RunDirectory
from frontier.sweep.backend import VirtualBackend
from frontier.sweep.conductor import Conductor


class _Nowhere:
    """A stream for a progress that nobody reads."""

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return False


def sweep(text: str, name: str = "night") -> Run:
    """The finished run of a config whose deployments are simulators."""
    config = load_config(text, "sweep.yaml")
    path = Path(tempfile.mkdtemp()) / name

    async def conduct(run: RunDirectory) -> None:
        backend = VirtualBackend({d.name: d.engine_spec() for d in config.deployments})
        progress = make_progress(_Nowhere())  # type: ignore[arg-type]
        await Conductor(config, make_plan(config), run, backend, progress, asyncio.Event()).conduct()

    with RunDirectory.open_for_sweep(
        path,
        identity=config.identity(),
        canonical=config.canonical(),
        config_text=text,
        facts={},
        defaults=left_out(None),
    ) as run:
        run_loop(conduct(run))
    return load(path)
