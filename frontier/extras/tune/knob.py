"""The knob of a running server, as a power cap: set before each trial, read back, and put back.

What `check` reads before anything is set is the value that is put back. It is written to the run
first. A process of its own, the keeper, puts it back where this process is killed; it waits for a
command that is still setting a value. Where the keeper is killed too, the next sweep of the run
puts the value back before anything else.
"""

import asyncio
import math
import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from frontier.client.secrets import MOST, Secrets
from frontier.config import DeploymentConfig
from frontier.config.deployment import ApplyConfig
from frontier.core.model.errors import AnotherServerError, MeasurementError, StoreError
from frontier.core.model.trials import Measurement, Trial
from frontier.extras.tune.knob_result import result
from frontier.extras.tune.knob_turns import KnobCourse
from frontier.sweep.backend import Backend, Facts, OnRecord, OnTick
from frontier.sweep.conductor import Conductor, Course
from frontier.sweep.shell_line import run_line
from frontier.sweep.start.process_session import ProcessSession
from frontier.sweep.stopping import sleep_or_stop

__all__ = ["result", "turned"]

FOUND, KEPT, PUT_BACK = "knob_found", "knob_kept", "knob_put_back"
WITHIN = 60.0
"""Seconds within which each command of a knob ends."""
SAME = 1e-3
"""The share by which what `check` reads may differ from a value: tools round."""
_KEEPER = 'IFS= read -r _ && exit 0; exec /bin/sh -c "$0"'
"""Reads a line, or runs its argument where the other end of its standard input is gone."""
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


def number_in(text: str) -> float | None:
    """The number that each line of a text holds, as with one line per GPU. None where a line holds
    none or several, or where lines differ.
    """
    lines = [_NUMBER.findall(line) for line in text.splitlines() if line.strip()]
    numbers = {tuple(map(float, line)) for line in lines}
    if len(numbers) != 1 or len(found := numbers.pop()) != 1:
        return None
    return found[0]


def left_turned(lines: Iterable[Mapping[str, Any]]) -> tuple[float, ProcessSession | None] | None:
    """The value that sweeps of a run found and did not put back, by its journal, and the keeper
    that may be doing that. None where nothing is to be put back.
    """
    left: tuple[float, ProcessSession | None] | None = None
    for line in lines:
        if line["event"] == FOUND:
            left = float(line["value"]), None
        elif line["event"] == KEPT and left is not None:
            left = left[0], ProcessSession(line["leader"], line["start"], line["system"])
        elif line["event"] == PUT_BACK:
            left = None
    return left


class _Untaken(Exception):  # noqa: N818
    """A value that the knob did not take, or could not be read, and why."""


@dataclass(slots=True)
class Knob:
    """The knob of a sweep's server. `at`: the value that it was seen to have; None: not known."""

    deployment: DeploymentConfig
    apply: ApplyConfig
    conductor: Conductor
    at: float | None = None
    found: float | None = None
    keeper: "subprocess.Popen[bytes] | None" = None

    async def read(self) -> float:
        """What `check` prints. _Untaken where that is no number."""
        assert self.deployment.check is not None
        text = await self._run("check", self.deployment.check)
        if (number := number_in(text)) is None:
            said = self.conductor.backend.secrets().last_said(text, 100)
            raise _Untaken(f"check prints {said!r}, not one number")
        return number

    async def set(self, value: float, settle: float = 0.0, stop: asyncio.Event | None = None) -> None:
        """Set a value, and see that `check` reads it. _Untaken where it does not."""
        self.at = None
        await self._run("apply", self.apply.line(value))
        await sleep_or_stop(settle, stop or asyncio.Event())
        if not same(read := await self.read(), value):
            raise _Untaken(f"check reads {read:g}")
        self.at = value

    async def _run(self, key: str, line: str) -> str:
        """The output of a command. _Untaken where it fails."""
        held = () if self.keeper is None or self.keeper.stdin is None else (self.keeper.stdin.fileno(),)
        try:
            done = await asyncio.to_thread(run_line, line, b"", os.environ, WITHIN, most=MOST, inherits=held)
        except OSError as error:
            raise _Untaken(f"{key} cannot be run: {error.strerror}") from error
        if done.returncode is None:
            raise _Untaken(f"{key} did not end within {WITHIN:.0f} s")
        if done.returncode != 0:
            words = (done.stderr or done.stdout).decode(errors="replace")
            said = self.conductor.backend.secrets().last_said(words, 200)
            raise _Untaken(f"{key} ended with status {done.returncode}: {said}".rstrip(": "))
        return done.stdout.decode(errors="replace")

    async def put_back_earlier(self) -> None:
        """Put back what an earlier sweep of the run found and did not put back. MeasurementError
        where that is not possible: what stands now must not be taken for what is to be put back.
        """
        run = self.conductor.run
        if (left := left_turned(run.journal_lines())) is None:
            return
        value, keeper = left
        for _ in range(int(2 * WITHIN / 0.2)):
            if keeper is None or not keeper.living():
                break
            await sleep_or_stop(0.2, self.conductor.stop)
        try:
            if await self._restore(value):
                self.conductor.progress.note(f"{self.name_at(value)} is put back, as an earlier sweep found it")
        except _Untaken as why:
            raise MeasurementError(
                f"{self.name_at(value)} could not be put back: {why}", self._by_hand(value)
            ) from None
        run.journal(PUT_BACK, value=value)

    async def begin(self) -> None:
        """Read the value that is put back in the end, write it to the run, and start the keeper."""
        try:
            self.found = self.at = await self.read()
        except _Untaken as why:
            hint = "write a command that prints the value that is set, and nothing else"
            raise MeasurementError(f"what {self.apply.name} stands at is not known: {why}", hint) from None
        run, back = self.conductor.run, self.apply.line(self.found)
        run.journal(FOUND, value=self.found, name=self.apply.name)
        self.keeper = subprocess.Popen(  # noqa: ASYNC220, S603  # the user's own line, from the config
            ["/bin/sh", "-c", _KEEPER, back],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        run.journal(KEPT, **asdict(ProcessSession.led_by(self.keeper.pid)))

    async def _restore(self, value: float) -> bool:
        """Set a value unless it stands, as where nothing could be set. True where it was set."""
        stands = await self.read() == value
        if not stands:
            await self.set(value)
        return not stands

    async def put_back(self) -> None:
        """Put back the value that was found, and end the keeper."""
        if self.found is None or self.keeper is None or self.keeper.stdin is None:
            return
        try:
            await self._restore(self.found)
            self.conductor.run.journal(PUT_BACK, value=self.found)
        except StoreError:  # a full disk: it is put back, and the next sweep will see that
            pass
        except _Untaken as why:
            what = f"{self.name_at(self.found)} could not be put back: {why}"
            self.conductor.progress.note(f"warning: {what}; {self._by_hand(self.found)}")
        self.found = None
        await asyncio.to_thread(self.keeper.communicate, b"\n")

    async def turn(self, deployment: DeploymentConfig, stop: asyncio.Event) -> None:
        """Set the value of a deployment. AnotherServerError where it does not take."""
        assert deployment.apply is not None
        if self.found is None:
            await self.begin()
        if same(self.at, value := deployment.apply.value):
            return
        try:
            await self.set(value, deployment.settle, stop)
        except _Untaken as why:
            if not self.conductor.stop.is_set():  # which cuts its time to settle
                raise AnotherServerError(f"{self.name_at(value)} did not take: {why}") from None

    async def require(self, value: float) -> None:
        """AnotherServerError where the knob no longer has a value that was set."""
        if self.conductor.stop.is_set():
            return
        try:
            read = await self.read()
        except _Untaken as why:
            raise AnotherServerError(f"{self.name_at(value)}, and after the trial {why}") from None
        if not same(read, value):
            self.at = None
            what = f"{self.name_at(value)} when a trial began, and {read:g} after it: something else sets it"
            raise AnotherServerError(what)

    def name_at(self, value: float) -> str:
        """'watts=320'."""
        return f"{self.apply.name}={value:g}"

    def _by_hand(self, value: float) -> str:
        return f"put it back by hand:  {self.apply.line(value)}"


def same(read: float | None, value: float) -> bool:
    """Whether what was read is a value, but for rounding."""
    return read is not None and math.isclose(read, value, rel_tol=SAME)


class KnobBackend(Backend):
    """Runs each trial at the value of its deployment."""

    def __init__(self, knob: Knob, inner: Backend) -> None:
        self._knob, self._inner = knob, inner

    async def prepare(self, deployment: DeploymentConfig) -> Facts:
        return await self._inner.prepare(deployment)

    async def run(
        self, trial: Trial, *, expected_e2e: float | None, on_record: OnRecord, on_tick: OnTick, stop: asyncio.Event
    ) -> Measurement:
        deployment = self._knob.conductor.config.deployment(trial.deployment)
        await self._knob.turn(deployment, stop)
        how: dict[str, Any] = {"expected_e2e": expected_e2e, "on_record": on_record, "on_tick": on_tick, "stop": stop}
        measurement = await self._inner.run(trial, **how)
        assert deployment.apply is not None
        await self._knob.require(deployment.apply.value)
        return measurement

    def workers(self, trial: Trial, expected_e2e: float | None) -> int:
        return self._inner.workers(trial, expected_e2e)

    def secrets(self) -> Secrets:
        return self._inner.secrets()

    async def release(self) -> None:
        await self._inner.release()

    async def close(self) -> None:
        await self._inner.close()


def turned(conductor: Conductor) -> tuple[Backend, Course]:
    """What runs the trials of a sweep with a knob, and the order in which it measures."""
    first = conductor.config.deployments[0]
    assert first.apply is not None
    knob = Knob(first, first.apply, conductor)
    return KnobBackend(knob, conductor.backend), KnobCourse(knob.put_back_earlier, knob.put_back)
