"""What runs a trial: a server over HTTP, or the embedded engine in virtual time. The conductor knows only `Backend`."""

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from frontier.client.loop import TrialProgress as Tick
from frontier.client.loop import run_trial
from frontier.client.preflight import (
    LONGEST_MODEL,
    Preflight,
    calibrate,
    changed,
    preflight,
    reset_cache,
    settle_salt,
)
from frontier.client.prompts import Calibration, PromptSource, file_prompts, random_prompts, read_prompts
from frontier.client.target import Proxies, read_key_file
from frontier.config import Config, DeploymentConfig
from frontier.errors import AnotherServerError, MeasurementError, UsageError
from frontier.model import Measurement, Record, Trial
from frontier.simulator.process import SimulatorProcess
from frontier.simulator.spec import EngineSpec
from frontier.simulator.virtual import virtual_trial
from frontier.text import NO_SECRETS, Secrets, environment_secrets

Sink = Callable[[Record], None]


@dataclass(frozen=True, slots=True)
class Facts:
    """What was learned of a deployment before its first trial; `identity` changes when the server is another one."""

    deployment: str
    endpoint: str
    model: str
    identity: str
    notes: tuple[str, ...] = ()


class Backend(Protocol):
    """Prepare a deployment, then run trials on it one at a time."""

    async def prepare(self, deployment: DeploymentConfig) -> Facts:
        """Check that it can be measured. MeasurementError when not. Called again after the server was lost."""
        ...

    async def run(
        self,
        trial: Trial,
        *,
        expected_e2e: float | None,
        sink: Sink,
        on_tick: Callable[[Tick], None],
        stop: asyncio.Event,
    ) -> Measurement:
        """Run one trial; every request's record goes to `sink`. AnotherServerError when another server answers now."""
        ...

    def secrets(self) -> Secrets:
        """What nothing that is kept or said may hold."""
        ...

    async def close(self) -> None:
        """Stop what was started."""
        ...


class VirtualBackend:
    """The embedded engine in virtual time: a night in seconds, with the truth known. For tests and studies."""

    def __init__(self, specs: Mapping[str, EngineSpec]) -> None:
        self._specs = specs

    async def prepare(self, deployment: DeploymentConfig) -> Facts:
        spec = self._specs[deployment.name]
        return Facts(deployment.name, "virtual", spec.model_name, "virtual")

    async def run(
        self,
        trial: Trial,
        *,
        expected_e2e: float | None,  # noqa: ARG002  # virtual time needs no estimate, ticks or stop
        sink: Sink,
        on_tick: Callable[[Tick], None],  # noqa: ARG002
        stop: asyncio.Event,  # noqa: ARG002
    ) -> Measurement:
        records, measurement = virtual_trial(trial, self._specs[trial.deployment])
        for record in records:
            sink(record)
        return measurement

    def secrets(self) -> Secrets:
        return NO_SECRETS

    async def close(self) -> None:
        pass


def secrets_of(config: Config, environ: Mapping[str, str]) -> Secrets:
    """Every secret that a config names, and those that the environment names as such."""
    found = Secrets.of(config.on_finish.hidden(environ) if config.on_finish else (), environment_secrets(environ))
    for deployment in config.deployments:
        key = None
        if deployment.api_key_file is not None:
            with suppress(UsageError):  # the request that needs the key says why it cannot be read
                key = read_key_file(Path(deployment.api_key_file))
        found |= Secrets.of(deployment.hidden(environ, key))
        found |= Proxies.of_environment().secrets if deployment.proxy == "env" else NO_SECRETS
    return found


class HttpBackend:
    """Servers over HTTP, and the embedded engine behind HTTP in a process of its own.

    Keys are taken from `environ` by the names the config gives, and live in memory only. `salt` keeps the prompts of
    this session apart from those of any other: the same sweep twice on a warm server must not meet its own cache.
    """

    def __init__(self, config: Config, environ: Mapping[str, str], salt: int = 0) -> None:
        self._config, self._environ, self._salt = config, environ, salt
        self._simulators: dict[str, SimulatorProcess] = {}
        self._found: dict[str, Preflight] = {}
        self._calibrations: dict[str, Calibration] = {}
        self._attempts = 0

    async def prepare(self, deployment: DeploymentConfig) -> Facts:
        file = deployment.api_key_file
        target = deployment.target(
            self._environ,
            ignore_eos=self._config.ignore_eos,
            url=await self._simulator(deployment),
            key=None if file is None else read_key_file(Path(file)),
        )
        try:
            found = await preflight(target, concurrency=max(self._config.concurrency))
            self._calibrations[deployment.name] = await calibrate(found, self._lengths())
            if self._config.prompts != "random":
                found = await settle_salt(found)
        except MeasurementError as error:
            what = target.secrets.redact(error.what)
            raise MeasurementError(what, error.hint, retry_after=error.retry_after) from None
        self._found[deployment.name] = found
        doubts = tuple(
            target.cleaned(f"{check.name}: {check.detail}") for check in found.checks if check.state == "warn"
        )
        doubts += self._repeats(found)
        model = target.cleaned(found.target.model or "", LONGEST_MODEL)
        return Facts(deployment.name, deployment.endpoint, model, found.identity, doubts)

    def _repeats(self, found: Preflight) -> tuple[str, ...]:
        """A note where prompts of a file come again within a trial, and nothing keeps them from a prefix cache."""
        if self._config.prompts == "random" or (found.target.salted and found.target.adapter.salted):
            return ()
        count, sent = len(read_prompts(Path(self._config.prompts))), self._config.requests
        again = f"prompts: the file has {count:,} and a trial sends {sent:,}; those that come again may meet a cache"
        return (again,) if count < sent else ()

    async def run(
        self,
        trial: Trial,
        *,
        expected_e2e: float | None,
        sink: Sink,
        on_tick: Callable[[Tick], None],
        stop: asyncio.Event,
    ) -> Measurement:
        await self._same_server(trial)
        found = self._found[trial.deployment]
        await self._forget(found)
        return await run_trial(
            trial,
            found.target,
            self._prompts(trial),
            on_record=sink,
            expected_e2e=expected_e2e,
            on_progress=on_tick,
            stop=stop,
            identity=found.identity,
        )

    async def run_open(
        self, trial: Trial, rate: float, *, sink: Sink, on_tick: Callable[[Tick], None], stop: asyncio.Event
    ) -> Measurement:
        """Run one trial in open loop: Poisson arrivals of `rate` requests per second."""
        await self._same_server(trial)
        found = self._found[trial.deployment]
        await self._forget(found)
        return await run_trial(
            trial,
            found.target,
            self._prompts(trial),
            rate=rate,
            on_record=sink,
            on_progress=on_tick,
            stop=stop,
            identity=found.identity,
        )

    async def _forget(self, found: Preflight) -> None:
        """Empty the server's prefix cache of a file's prompts. Where it cannot be, the salt or a flag tells."""
        if self._config.prompts != "random":
            await reset_cache(found.target)

    async def _same_server(self, trial: Trial) -> None:
        found = self._found[trial.deployment]
        if (difference := await changed(found)) is not None:
            raise AnotherServerError(
                f"another server answers at {found.target.base_url}: {difference}",
                "put the old server back, or begin a run of its own with  -o DIR",
            )

    def secrets(self) -> Secrets:
        return secrets_of(self._config, self._environ)

    async def close(self) -> None:
        for simulator in self._simulators.values():
            simulator.stop()
        self._simulators.clear()

    async def _simulator(self, deployment: DeploymentConfig) -> str | None:
        """The address of the embedded engine, started if it is not running; None for a server of the user's."""
        if not deployment.is_simulator:
            return None
        running = self._simulators.get(deployment.name)
        if running is None or not running.alive:
            running = SimulatorProcess(deployment.engine_spec())
            self._simulators[deployment.name] = running
            await asyncio.to_thread(running.start)
        return running.url

    def _lengths(self) -> list[int]:
        """The input lengths that prompts must be able to hit."""
        sides = [shape.isl for shape in self._config.shapes]
        return sorted({n for side in sides for n in (side.low, round(side.mean), side.high)})

    def _prompts(self, trial: Trial) -> PromptSource:
        self._attempts += 1
        if self._config.prompts != "random":
            salt = f"{self._salt:x}-{self._attempts}"
            return file_prompts(Path(self._config.prompts), trial.shape, trial.seed, salt)
        seed = int.from_bytes(hashlib.sha256(f"{self._salt} {trial.seed} {self._attempts}".encode()).digest()[:8])
        return random_prompts(trial.shape, seed, self._calibrations[trial.deployment])
