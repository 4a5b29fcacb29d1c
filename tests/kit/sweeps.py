"""Running whole sweeps in tests: configs, the conductor in virtual time, and the truth to compare
with."""

import asyncio
import contextlib
import hashlib
import pickle
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import frontier
from frontier.config import Config, load_config
from frontier.config.config_file import kept, with_trace
from frontier.core.claim.solver import exit_code
from frontier.core.model.decisions import Decision
from frontier.core.model.errors import ExitCode
from frontier.core.model.points import Flag
from frontier.core.model.trials import Measurement, Phase, Trial
from frontier.extras.api import virtual_backend
from frontier.extras.api.notebook_run import NotebookRun, load
from frontier.extras.api.virtual_backend import VirtualBackend
from frontier.planning.plan import make_plan
from frontier.planning.sweep_progress import HigherSetting, Progress
from frontier.planning.time_left import TimeLeft
from frontier.run import Run
from frontier.store.run_dir import RunDirectory
from frontier.sweep.conductor import Conductor, SweepEnd
from tests.kit.places import ROOT
from tests.kit.virtual_truth import truth

virtual_backend.virtual_trial = lru_cache(maxsize=100)(virtual_backend.virtual_trial)
"""The same trial of the same engine is simulated once: its noise has a seed, and many sweeps of the
tests share it."""

ENGINES = {
    "smooth": "{step_base: 5ms, per_decode: 60us, per_prefill_token: 20us, noise: 0.05}",
    "KV cliff": "{step_base: 5ms, per_decode: 30us, per_prefill_token: 20us, noise: 0.05, kv_tokens: 6000}",
    "infeasible": "{step_base: 60ms, per_decode: 60us, per_prefill_token: 20us, noise: 0.05}",
}


def config_text(
    engine: str, *, sla: str = "{p99_ttft: 50ms}", requests: int = 400, repeats: int = 3, refine: int = 0
) -> str:
    return f"""\
endpoint: simulator
simulator: {engine}
shapes: [256/32]
concurrency: [1, 2, 4, 8, 16, 32, 64]
sla: {sla}
requests: {requests}
repeats: {repeats}
refine: {refine}
"""


@dataclass(slots=True)
class Told(Progress):
    """A progress that remembers what was reported."""

    finished: list[Trial] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    flags: list[tuple[Trial, str]] = field(default_factory=list)
    left: list[float | None] = field(default_factory=list)
    announcements: list[tuple[Decision, float, HigherSetting | None]] = field(default_factory=list)

    def expect(self, left: TimeLeft) -> None:
        self.left.append(left.seconds)

    def announced(self, decision: Decision, seconds: float, better: HigherSetting | None) -> None:
        self.announcements.append((decision, seconds, better))

    def plan(self, total: int, finished: int) -> None:
        self.notes.append(f"plan {total} {finished}")

    def trial_finished(
        self,
        trial: Trial,
        figures: Mapping[str, float | None],
        flags: Sequence[Flag] = (),
    ) -> None:
        self.finished.append(trial)
        self.flags += [(trial, flag.name) for flag in flags]

    def note(self, text: str) -> None:
        self.notes.append(text)


def open_run(path: Path, config: Config, text: str) -> RunDirectory:
    return RunDirectory.open_for_sweep(
        path,
        identity=config.identity(),
        canonical=config.canonical(),
        config_text=text,
        facts={},
        arrivals=kept(config),
    )


def sweep_in_virtual_time(path: Path, text: str) -> tuple[NotebookRun, Told, SweepEnd]:
    """Run (or resume) a whole sweep of the simulator without waiting for it, and read it back."""
    told, end = swept(path, text)
    return load(path), told, end


def swept(path: Path, text: str) -> tuple[Told, SweepEnd]:
    """The same without reading it back."""
    if path.exists():
        return _sweep(path, text)
    made, told, end = _made(text)
    shutil.copytree(made, path)
    return deepcopy(told), end


@cache
def _made(text: str) -> tuple[Path, Told, SweepEnd]:
    """The run of a config, made once: the engine's noise has a seed, so another would be the same.

    It is kept until the package or this module changes, and written whole: the two processes of the
    tests may both make it.
    """
    kept = KEPT / _code() / hashlib.sha256(text.encode()).hexdigest()[:32]
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        place = Path(tempfile.mkdtemp(dir=kept.parent, prefix="making-"))
        with no_fsync():
            told, end = _sweep(place / "run", text)
        (place / "end.pickle").write_bytes(pickle.dumps((told, end)))
        with contextlib.suppress(OSError):  # the other process was first
            place.rename(kept)
        shutil.rmtree(place, ignore_errors=True)
    return kept / "run", *pickle.loads((kept / "end.pickle").read_bytes())


KEPT = ROOT / ".pytest_cache" / "sweeps"


@cache
def _code() -> str:
    """A hash of what a sweep in virtual time is made by; the runs of other code are removed."""
    files = [Path(__file__), *sorted(Path(frontier.__file__).parent.rglob("*.py"))]
    code = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    for old in KEPT.glob("*"):
        if old.name != code:
            shutil.rmtree(old, ignore_errors=True)
    return code


def _sweep(path: Path, text: str) -> tuple[Told, SweepEnd]:
    config = with_trace(load_config(text, "sweep.yaml"))
    told = Told()

    async def go(run: RunDirectory) -> SweepEnd:
        backend = VirtualBackend({d.name: d.engine_spec() for d in config.deployments})
        return await Conductor(config, make_plan(config), run, backend, told, asyncio.Event()).conduct()

    with open_run(path, config, text) as run:
        return told, asyncio.run(go(run))


def no_fsync() -> contextlib.AbstractContextManager[Any]:
    """Files are not forced to the disk: no power fails between two lines of a test."""
    return patch("os.fsync")


@contextlib.contextmanager
def commands_in_virtual_time() -> Iterator[None]:
    """`frontier sweep` in this process (`here=True`) and `run_sweep` run the simulators of a config
    in virtual time.
    """

    def backend(config: Config, environ: Mapping[str, str], salt: int = 0) -> VirtualBackend:
        return VirtualBackend({d.name: d.engine_spec() for d in config.deployments})

    with no_fsync(), patch("frontier.sweep.backend.HttpBackend", backend):
        yield


class Clock(VirtualBackend):
    """Time passes only while a trial runs; each takes what its engine takes."""

    now = 1_000_000.0

    async def run(self, trial: Trial, **how: Any) -> Measurement:
        measurement = await super().run(trial, **how)
        self.now += measurement.window.end
        return measurement


def conduct_by_the_clock(path: Path, text: str, backend: Clock, **how: Any) -> tuple[Told, SweepEnd]:
    """A whole sweep, its clocks those of the backend."""
    config, told = load_config(text, "sweep.yaml"), Told()

    def clock() -> float:
        return backend.now

    with no_fsync(), open_run(path, config, text) as run:
        plan, stop = make_plan(config), asyncio.Event()
        conductor = Conductor(config, plan, run, backend, told, stop, clock=clock, wall=clock, **how)
        return told, asyncio.run(conductor.conduct())


def clocked(text: str, kind: type[Clock] = Clock) -> Clock:
    """The embedded engine of a config, with a clock."""
    return kind({d.name: d.engine_spec() for d in load_config(text, "sweep.yaml").deployments})


def true_operating_point(text: str, among: Sequence[int]) -> int | None:
    """The highest concurrency below the first that truly breaks the SLA, by long runs of the engine
    itself: of few streams shorter ones, as nothing queues there.
    """
    config = load_config(text, "sweep.yaml")
    spec = config.deployments[0].engine_spec()
    best = None
    for concurrency in sorted(among):
        for limit in config.limits:
            requests = min(6_000, 1_500 + 250 * concurrency)
            if truth(spec, config.shapes[0], concurrency, limit.metric, requests=requests) > limit.promise:
                return best
        best = concurrency
    return best


def without_last_trials(run: Run, again: Path, number: int) -> list[Trial]:
    """Copy a run to `again` without its last so many trials; those trials."""
    shutil.copytree(run.path, again)
    lost = [trial for history in run.histories.values() for trial, _ in history][-number:]
    for trial in lost:
        for file in [*again.glob(f"trials/{trial.key}.*"), *again.glob(f"evidence/{trial.key}.*")]:
            file.unlink()
    return lost


def own_exit_code(path: Path) -> ExitCode:
    """What a sweep that came to its end must exit with, by the records it kept. A busy machine
    decides whether points of a run in real time are flagged, and so which code it is.
    """
    run = load(path)
    if run.limits():
        return exit_code(run.solve())
    return ExitCode.YES if any(point.valid for point in run.points()) else ExitCode.FAILED


def resumed_without(run: Run, again: Path, text: str, setting: str) -> NotebookRun:
    """A copy of a run that was swept again without the trials of one setting ('c0032'); only they
    were measured, and what a series ends with.
    """
    shutil.copytree(run.path, again)
    for file in [*again.glob(f"trials/*{setting}*"), *again.glob(f"evidence/*{setting}*")]:
        file.unlink()
    resumed, told, _ = sweep_in_virtual_time(again, text)
    assert [int(setting[1:])] == [t.load for t in told.finished if t.phase is not Phase.VISIT]
    return resumed
