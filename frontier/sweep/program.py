"""A sweep from a program or a notebook: the same conductor without a terminal around it."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from frontier.backend import HttpBackend
from frontier.config import load_config
from frontier.errors import MeasurementError
from frontier.files import read_config
from frontier.measure.runner import run as run_loop
from frontier.model import Flag, Trial
from frontier.plan import make_plan
from frontier.results import Run, load
from frontier.store import RunDirectory
from frontier.sweep.conductor import Conductor, SweepEnd


class Quiet:
    """A progress that says nothing: for notebooks and programs."""

    def plan(self, total: int, done: int) -> None: ...
    def expect(self, seconds: float | None) -> None: ...
    def trial_started(self, trial: Trial, number: int, total: int) -> None: ...
    def tick(self, tick: object) -> None: ...
    def trial_finished(self, trial: Trial, figures: Mapping[str, float | None], flags: Sequence[Flag] = ()) -> None: ...
    def note(self, text: str) -> None: ...
    def close(self) -> None: ...


def run_sweep(config_file: str | Path, run: str | Path, environ: Mapping[str, str] | None = None) -> Run:
    """Run the sweep of a config into a run directory, or resume it, and read the result back.

    `environ` holds the variables the config names for keys (default: none). ConfigError, StoreError or
    MeasurementError when it cannot be run; MeasurementError also when the server was lost on the way.
    """
    text = read_config(Path(config_file))
    config = load_config(text, str(config_file))
    with RunDirectory.open_for_sweep(
        Path(run), identity=config.identity(), canonical=config.canonical(), config_text=text, facts={}
    ) as opened:

        async def go() -> SweepEnd:
            backend = HttpBackend(config, environ or {}, time.time_ns())
            return await Conductor(config, make_plan(config), opened, backend, Quiet(), asyncio.Event()).conduct()

        if run_loop(go()) == "server_lost":
            raise MeasurementError("the server was lost and did not come back", "call it again to go on")
    return load(run)
