"""Backends run trials: on servers over HTTP, or on the simulator."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from frontier import registry
from frontier.client import run_trial
from frontier.client.ask.identify import LONGEST_MODEL
from frontier.client.ask.new_prompts import settle_cached
from frontier.client.ask.preflight import Preflight, calibrate, changed, preflight, settle_salt
from frontier.client.ask.prompts import Calibration, PromptPlan, prompt_seed
from frontier.client.ask.target import Target
from frontier.client.http.http_client import run
from frontier.client.load.loop import TrialProgress
from frontier.client.load.processes import LocalWorkers, workers_needed
from frontier.client.load.shard import Worker, WorkerLostError, run_sharded
from frontier.client.load.trial import measured_to_pass
from frontier.client.secrets import NO_SECRETS, Secrets, remember
from frontier.config import Config, DeploymentConfig
from frontier.config.background_keys import BackgroundConfig
from frontier.core.model.errors import AnotherServerError, MeasurementError
from frontier.core.model.loads import CappedRate
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import REPEATED_PROMPTS, Measurement, Phase, Record, Trial
from frontier.planning.context import over_context
from frontier.planning.plan import GRID_REQUESTS
from frontier.search.window_size import connections_wanted
from frontier.simulator.http.process import SimulatorProcess
from frontier.sweep.given_files import read_key_file, read_prompts
from frontier.sweep.secrets_of_config import secrets_of
from frontier.world import world

OnRecord = Callable[[Record], None]
OnTick = Callable[[TrialProgress], None]
T = TypeVar("T")
PUT_BACK = "put the old server back, or begin a run of its own with  -o DIR"


@dataclass(frozen=True, slots=True)
class Facts:
    """What was learned of a deployment before its first trial. `identity` changes when another
    server answers.
    """

    deployment: str
    endpoint: str
    model: str
    identity: str
    notes: tuple[str, ...] = ()


class Backend(Protocol):
    """Prepare a deployment, then run trials on it one at a time."""

    async def prepare(self, deployment: DeploymentConfig) -> Facts:
        """Check that the deployment can be measured; called again after its server was lost.
        MeasurementError when it cannot.
        """

    async def run(
        self, trial: Trial, *, expected_e2e: float | None, on_record: OnRecord, on_tick: OnTick, stop: asyncio.Event
    ) -> Measurement:
        """Run one trial; `on_record` gets each request's record.

        AnotherServerError when another server answers. WorkerLostError when one of several client
        processes failed; the next run takes one process fewer.
        """

    def workers(self, trial: Trial, expected_e2e: float | None) -> int:  # noqa: ARG002 - the others do
        """How many client processes will run the trial."""
        return 1

    def secrets(self) -> Secrets:
        """The secrets that no file and no message may hold."""
        return NO_SECRETS

    async def release(self) -> None:
        """Stop the servers that the backend started. A deployment that is prepared again gets a new
        server.
        """

    async def close(self) -> None:
        """Stop what was started."""


def open_backend(config: Config, environ: Mapping[str, str], salt: int = 0) -> Backend:
    """What runs the trials of a config: servers over HTTP, or what the world has in their place."""
    made: Backend = (world().backend or HttpBackend)(config, environ, salt)
    return made


def run_to_end(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, run on the event loop of the world."""
    result: T = (world().run or run)(coroutine)
    return result


def new_salt() -> int:
    """A salt that differs from session to session: so do the prompts, and what a server has cached
    of earlier ones is not hit.
    """
    return int(world().wall() * 1e9)


class HttpBackend(Backend):
    """Servers over HTTP, and the simulator behind HTTP in a process of its own.

    Keys are taken from `environ` by the names that the config gives, and live in memory only.
    `salt` makes the prompts of this session differ from those of any other: the same sweep on a
    warm server must not hit its own prefix cache.
    """

    def __init__(self, config: Config, environ: Mapping[str, str], salt: int = 0) -> None:
        self._config, self._environ, self._salt = config, environ, salt
        remember(self.secrets())
        self._simulators: dict[str, SimulatorProcess] = {}
        self._ready: dict[str, Preflight] = {}
        self._calibrations: dict[str, Calibration] = {}
        self._attempts = 0
        self._processes = LocalWorkers()
        self._ray: registry.WorkersElsewhere | None = None
        if config.ray is not None:
            executor = registry.EXECUTOR.require("workers: ray")
            self._ray = executor.RayWorkers(config.ray.address, self.secrets())
        self._most_workers: dict[str, int] = {}

    async def prepare(self, deployment: DeploymentConfig) -> Facts:
        if self._ray is not None:
            await self._ray.connect()
        file = deployment.api_key_file
        target = deployment.target(
            self._environ,
            ignore_eos=self._config.ignore_eos,
            url=await self._simulator(deployment),
            key=None if file is None else read_key_file(Path(file)),
        )
        try:
            beside = max((s.background.streams for s in self._config.shapes if s.background is not None), default=0)
            ready = await preflight(target, concurrency=beside + max(load.streams for load in self._config.loads))
            if (over := over_context(self._sent(), ready.max_model_len, deployment.endpoint)) is not None:
                raise MeasurementError(*over)
            if self._config.prompts_file is None:
                self._calibrations[deployment.name] = await self._calibrate(ready)
            else:
                ready = await settle_salt(ready)
            calibration = self._calibrations.get(deployment.name)
            ready, cached = await settle_cached(ready, max(self._lengths()), calibration)
        except MeasurementError as error:
            what = target.secrets.redact(error.what)
            raise type(error)(what, error.hint, retry_after=error.retry_after) from None
        if repeats := self._repeats(ready):
            learned = {**ready.target.learned, REPEATED_PROMPTS: 1.0}
            ready = replace(ready, target=replace(ready.target, learned=learned))
        self._ready[deployment.name] = ready
        warnings = [check for check in ready.checks if check.state == "warn"]
        notes = tuple(target.cleaned(f"{check.name}: {check.detail}") for check in warnings)
        notes += tuple(filter(None, (cached, None if calibration is None else calibration.doubt)))
        model = target.cleaned(ready.target.model or "", LONGEST_MODEL)
        return Facts(deployment.name, deployment.endpoint, model, ready.identity, (*notes, *repeats))

    async def _calibrate(self, ready: Preflight) -> Calibration:
        """The calibration by which prompts reach the lengths of the config."""
        sessions = any(shape.has_sessions for shape in self._config.shapes)
        return await calibrate(ready, self._lengths(), words=sessions, natural=self._config.prompts == "natural")

    def _repeats(self, ready: Preflight) -> tuple[str, ...]:
        """A note where prompts of a file come again within a trial and may hit a prefix cache."""
        file = self._config.prompts_file
        if file is None or (ready.target.salted and ready.target.engine.salted):
            return ()
        count, sent = len(read_prompts(Path(file))), self._config.requests or GRID_REQUESTS
        again = f"prompts: the file has {count:,} and a trial sends {sent:,}; those that come again may meet a cache"
        return (again,) if count < sent else ()

    async def run(
        self, trial: Trial, *, expected_e2e: float | None, on_record: OnRecord, on_tick: OnTick, stop: asyncio.Event
    ) -> Measurement:
        ready = self._ready[trial.deployment]
        if (difference := await changed(ready)) is not None:
            raise AnotherServerError(f"another server answers at {ready.target.base_url}: {difference}", PUT_BACK)
        prompts, count = self._prompts(trial), self.workers(trial, expected_e2e)
        target = replace(ready.target, connections=self._connections(trial))
        if (background := self._of_background(trial)) is not None:
            target = replace(target, extra_body={**target.extra_body, **background.extra_body})
        sent, whole = list[float](), self._whole(trial)

        def put_on_record(record: Record) -> None:
            sent.append(record.sent)
            on_record(record)

        how: dict[str, Any] = {
            "expected_e2e": expected_e2e,
            "on_record": on_record if whole == 1 else put_on_record,
            "on_progress": on_tick,
            "stop": stop,
            "whole": whole,
        }
        if count == 1 and self._ray is None:
            return measured_to_pass(await run_trial(trial, target, prompts.source(), **how), sent, whole)
        try:
            workers: Sequence[Worker] = self._processes.get(count) if self._ray is None else await self._ray.get(count)
            return measured_to_pass(await run_sharded(trial, target, prompts, workers, **how), sent, whole)
        except BaseException as error:
            # The others may still be sending: without their trial they are of no use.
            self._end_workers()
            if isinstance(error, WorkerLostError):
                self._most_workers[trial.key] = max(1, count - 1)
            raise

    def _whole(self, trial: Trial) -> int:
        """The requests of which a trial's window has a multiple: those of a pass over the prompts
        of a file, where the grid is of whole passes.
        """
        passes = self._config.passes if trial.phase is Phase.GRID else None
        return passes.size or 1 if passes is not None else 1

    def workers(self, trial: Trial, expected_e2e: float | None) -> int:
        most = self._most_workers.get(trial.key, trial.streams)
        if trial.load.is_open:  # one process has one sequence of arrivals
            return 1
        if self._of_background(trial) is not None:  # the processes send what it is beside
            return 1
        if self._config.workers is not None:
            return min(self._config.workers, most)
        if self._ray is not None:
            return min(self._ray.nodes, most)
        # With the latency of the nearest setting measured: more streams make it longer, so this is
        # seldom too low.
        cycle = expected_e2e + trial.shape.pause if expected_e2e else None
        rate = trial.load * trial.shape.osl.mean / cycle if cycle else None
        return min(workers_needed(rate, trial.load), most)

    def _connections(self, trial: Trial) -> int:
        """The number of connections over which a trial's window is spread. A check of an operating
        point has one window.
        """
        windows = 1 if isinstance(trial.load, CappedRate) else self._config.repeats or 1
        return connections_wanted(self._config.limits, trial, windows)

    def target(self, deployment: str) -> Target:
        """Where the requests of a prepared deployment go."""
        return self._ready[deployment].target

    def secrets(self) -> Secrets:
        return secrets_of(self._config, self._environ)

    def _end_workers(self) -> None:
        self._processes.close()
        if self._ray is not None:
            self._ray.close()

    async def release(self) -> None:
        for simulator in self._simulators.values():
            simulator.stop()
        self._simulators.clear()

    async def close(self) -> None:
        self._end_workers()
        await self.release()

    async def _simulator(self, deployment: DeploymentConfig) -> str | None:
        """The address of the simulator, started if it is not running; None for a server of the
        user's.
        """
        if not deployment.is_simulator:
            return None
        running = self._simulators.get(deployment.name)
        if running is None or not running.alive:
            running = SimulatorProcess(deployment.engine_spec())
            self._simulators[deployment.name] = running
            await asyncio.to_thread(running.start)
        return str(running.url)

    def _sent(self) -> list[Shape]:
        """The shape of each request that is sent: the measured ones and the background's."""
        shapes = self._config.shapes
        return list(dict.fromkeys([*shapes, *(s.background.shape for s in shapes if s.background is not None)]))

    def _of_background(self, trial: Trial) -> BackgroundConfig | None:
        """The background whose load a trial is; None for one that is measured."""
        return self._config.background if trial.shape.background is None else None

    def _lengths(self) -> list[int]:
        """The input lengths that prompts must be able to hit."""
        sides = [shape.isl for shape in self._sent()]
        return sorted({n for side in sides for n in (side.low, round(side.mean), side.high)})

    def _prompts(self, trial: Trial) -> PromptPlan:
        self._attempts += 1
        if (file := self._config.prompts_file) is not None:
            salt = f"{self._salt:x}-{self._attempts}"
            return PromptPlan(trial.shape, trial.seed, given=partial(read_prompts, Path(file)), salt=salt)
        seed = prompt_seed(self._salt, trial.seed, self._attempts)
        begun = 0 if trial.load.is_open else trial.streams  # at a rate every session begins with its first turn
        calibration = self._calibrations[trial.deployment]
        return PromptPlan(trial.shape, seed, calibration, streams=begun, trial_seed=trial.seed)
