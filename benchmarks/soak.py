"""The soak: minutes at concurrency 128 with a random fault every few seconds, and every request
accounted for.

    python -m benchmarks.soak 30

A sweep (64, 96, 128) runs again and again against the simulated engine in a process of its own that
is made to fail at random: 503 and 429, resets, streams that are closed, silent, broken or empty,
freezes, and now and then a crash and a restart. A last sweep is made when the faults are over.
Checked:

- every request is in exactly one class, told by the client once; what the server's log says was
  done to it agrees with the class; every request that was answered at all is in the log, none is in
  it twice that the client did not say it had sent again, and none is in it that the client did not
  tell;
- memory: the client's resident size does not grow from the first third of the trials to the last;
- the decision: the fault-free one (of the same engine in virtual time), or an honestly weaker one
  (a lower concurrency, unproven, marginal, violated or invalid); never a higher one.

What the client told is written to a file as it is told, so that this study's own notes are not in
the memory measured.
"""

import argparse
import asyncio
import collections
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.faults.server import FaultyServer, key_of
from frontier.client.ask.prompts import PromptSource
from frontier.config import Config, load_config
from frontier.core.model.decisions import Decision
from frontier.core.model.errors import MeasurementError
from frontier.core.model.trials import Measurement, Outcome, Record, Trial
from frontier.extras.api.virtual_backend import VirtualBackend
from frontier.planning.plan import make_plan
from frontier.planning.sweep_progress import Progress
from frontier.read_run import load
from frontier.simulator.spec import EngineSpec
from frontier.store.run_dir import RunDirectory
from frontier.sweep.backend import HttpBackend, OnRecord
from frontier.sweep.conductor import Conductor

SPEC = EngineSpec(step_base=0.030, per_decode=1e-4, per_prefill_token=1e-6, noise=0.05)
CONFIG = """\
endpoint: {url}
api: completions
shapes: [32/16]
concurrency: [64, 96, 128]
sla: {{p90_tpot: 38ms, error_rate: 1%}}
requests: 1500
repeats: 1
refine: 0
warmup: 1s
max_time: 20s
timeouts: {{connect: 2s, first_byte: 4s, idle: 2s, total: 15s}}
"""
EXPECTED = {
    None: {Outcome.OK},
    "status": {Outcome.HTTP_ERROR},
    "reset": {Outcome.OK, Outcome.STREAM_ERROR, Outcome.TRUNCATED},
    "close": {Outcome.OK, Outcome.STREAM_ERROR, Outcome.TRUNCATED},
    "hang": {Outcome.TIMEOUT},
    "drip": {Outcome.TIMEOUT},
    "garbage": {Outcome.PROTOCOL},
    "empty": {Outcome.EMPTY},
    "error_event": {Outcome.STREAM_ERROR},
    "not_a_stream": {Outcome.PROTOCOL},
}
"""What a request may end as after what was done to it; a cut may come after the answer's end."""
UPSET = {Outcome.STREAM_ERROR, Outcome.TRUNCATED, Outcome.TIMEOUT, Outcome.CONNECT}
"""What any request may end as while the server is frozen, crashed or coming back."""


@dataclass
class Account:
    """What is counted, over all trials, those that were dropped too. `faults` are promises that
    were broken.
    """

    sent: int = 0
    at_128: int = 0
    classes: collections.Counter[str] = field(default_factory=collections.Counter)
    done: collections.Counter[str] = field(default_factory=collections.Counter)
    resent: int = 0
    never_arrived: int = 0
    arrived: int = 0
    questions: int = 0
    resident: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Told:
    """One request as the client told it; `at`: when (unix), `took`: seconds from its sending to its
    end.
    """

    key: str
    outcome: str
    resent: int
    at: float
    took: float
    error: str | None


class Notes:
    """Two files: the keys of all prompts that were made, and what the client told of each
    request.
    """

    def __init__(self, here: Path) -> None:
        self._made, self._told = here / "made.txt", here / "told.jsonl"
        self._files = [path.open("w") for path in (self._made, self._told)]

    def made(self, key: str) -> None:
        self._files[0].write(f"{key}\n")

    def tell(self, told: Told) -> None:
        self._files[1].write(json.dumps(asdict(told)) + "\n")

    def read(self) -> tuple[set[str], list[Told]]:
        for file in self._files:
            file.close()
        return set(self._made.read_text().split()), [Told(**json.loads(line)) for line in self._told.open()]


class Watched(HttpBackend):
    """The client as it is, with a note of each prompt, each record, and its own memory."""

    def __init__(self, config: Config, account: Account, notes: Notes) -> None:
        super().__init__(config, {}, salt=time.time_ns())
        self.account, self.notes = account, notes
        self.keys: dict[int, str] = {}

    def _prompts(self, trial: Trial) -> Any:
        return SimpleNamespace(source=lambda: self._noted(super(Watched, self)._prompts(trial).source()))

    def _noted(self, source: PromptSource) -> PromptSource:
        """The same prompts, with a note of each that is made."""
        self.keys = {}

        def noted(index: int) -> Any:
            prompt = source(index)
            self.keys[index] = key_of(prompt.content)
            self.notes.made(self.keys[index])
            return prompt

        return noted

    async def run(self, trial: Trial, *, on_record: OnRecord, **how: Any) -> Measurement:
        seen: set[int] = set()

        def noted(record: Record) -> None:
            self.account.sent += 1
            self.account.at_128 += trial.load == 128
            self.account.classes[record.outcome.value] += 1
            if record.index in seen:
                self.account.faults.append(f"request {record.index} of {trial.key} was told twice")
            seen.add(record.index)
            self.notes.tell(
                Told(
                    key=self.keys[record.index],
                    outcome=record.outcome.value,
                    resent=record.resent,
                    at=time.time(),
                    took=record.end - record.sent,
                    error=record.error,
                )
            )
            on_record(record)

        try:
            return await super().run(trial, on_record=noted, **how)
        finally:
            if seen != set(range(len(seen))):
                self.account.faults.append(f"requests of {trial.key} are missing from the records")
            self.account.resident.append(_resident())


def _resident() -> float:
    """This process's memory, MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


class Trouble(threading.Thread):
    """Makes the server fail until told to stop; `upset` are the times (unix) when it was frozen or
    down.
    """

    def __init__(self, server: FaultyServer, seed: int, every: tuple[float, float] = (2.0, 5.0)) -> None:
        super().__init__(daemon=True)
        self.server, self.rng, self.every = server, random.Random(seed), every
        self.enough = threading.Event()
        self.upset: list[tuple[float, float]] = []
        self.tried: collections.Counter[str] = collections.Counter()

    def run(self) -> None:
        while not self.enough.wait(self.rng.uniform(*self.every)):
            kind = self.rng.choices(
                [
                    "status",
                    "reset",
                    "close",
                    "hang",
                    "drip",
                    "garbage",
                    "empty",
                    "error_event",
                    "not_a_stream",
                    "freeze",
                    "crash",
                ],
                [4, 3, 3, 2, 1, 2, 2, 2, 1, 1, 1],
            )[0]
            self.tried[kind] += 1
            if kind in ("freeze", "crash"):
                self._upset(self._freeze if kind == "freeze" else self._crash)
                continue
            how: dict[str, Any] = {
                "seconds": self.rng.uniform(0.2, 1.0),
                "share": self.rng.choice([0.02, 0.1, 0.5, 1.0]),
            }
            if kind == "status":
                how |= {"status": self.rng.choice([429, 500, 503]), "retry_after": self.rng.choice([None, "1"])}
            if kind in ("reset", "close"):
                how["after"] = self.rng.uniform(0.0, 0.4)
            self.server.fault(kind, **how)

    def _upset(self, act: Callable[[], None]) -> None:
        began = time.time()
        act()
        self.upset.append((began - 1, time.time() + 1))

    def _freeze(self) -> None:
        self.server.freeze()
        time.sleep(self.rng.uniform(0.5, 5.0))
        self.server.thaw()

    def _crash(self) -> None:
        self.server.kill()
        time.sleep(self.rng.uniform(0.2, 3.0))
        self.server.start()

    def stop(self) -> None:
        self.enough.set()
        self.join()
        self.server.fault(None)


def settle(account: Account, notes: Notes, arrivals: list[dict[str, Any]], upset: list[tuple[float, float]]) -> None:
    """Join the client's records with the server's log, request by request."""
    made, told = notes.read()
    arrived = collections.Counter(line["key"] for line in arrivals)
    faults = {line["key"]: line["fault"] for line in arrivals}
    account.arrived = arrived.total()
    for one in told:
        times = arrived.pop(one.key, 0)
        account.resent += one.resent
        if times > 1 + one.resent:
            account.faults.append(f"a request arrived {times} times and the client says it sent it once")
        if times == 0:
            account.never_arrived += 1
            if one.outcome in (Outcome.OK, Outcome.HTTP_ERROR):
                account.faults.append(f"a request that never arrived ended {one.outcome}")
            continue
        done = faults[one.key]
        account.done[f"{done or 'served'} -> {one.outcome}"] += 1
        began = one.at - one.took - 1
        disturbed = one.resent or any(began < end and one.at > start for start, end in upset)
        if one.outcome not in EXPECTED[done] | {Outcome.CANCELLED} | (UPSET if disturbed else set()):
            account.faults.append(f"a request that met {done or 'no fault'} ended {one.outcome}: {one.error}")
    account.faults += ["a request arrived that the client never told"] * len(made & set(arrived))
    account.questions = sum(times for key, times in arrived.items() if key not in made)


def sweep(config_text: str, path: Path, account: Account, notes: Notes) -> Decision | None:
    """A whole sweep, and its decision; None where nothing could be measured."""
    config = load_config(config_text, "sweep.yaml")
    backend = Watched(config, account, notes)
    for _ in range(60):
        try:
            return _sweep(config, config_text, path, backend)
        except MeasurementError as error:
            # A fault met the first questions: the command says so and ends, and whoever runs it
            # starts it again.
            print(f"  started again: {error.what}", flush=True)
            time.sleep(1.0)
    raise AssertionError("sixty starts in vain")


def _sweep(config: Config, config_text: str, path: Path, backend: Watched) -> Decision | None:
    with RunDirectory.open_for_sweep(
        path, identity=config.identity(), canonical=config.canonical(), config_text=config_text, facts={}
    ) as run:
        conductor = Conductor(config, make_plan(config), run, backend, Progress(), asyncio.Event(), ready_wait=60.0)
        asyncio.run(conductor.conduct())
    decided = load(path).solve()
    return decided[0] if decided else None


def without_faults(config_text: str, path: Path) -> Decision:
    """What the same sweep of the same engine decides in virtual time, where nothing fails and no
    machine is busy.
    """
    config = load_config(config_text, "sweep.yaml")
    with RunDirectory.open_for_sweep(
        path, identity=config.identity(), canonical=config.canonical(), config_text=config_text, facts={}
    ) as run:
        backend = VirtualBackend({"default": SPEC})
        asyncio.run(Conductor(config, make_plan(config), run, backend, Progress(), asyncio.Event()).conduct())
    return load(path).solve()[0]


def weaker_or_equal(faulty: Decision | None, clean: Decision) -> bool:
    """It claims no more than the fault-free one."""
    return faulty is None or faulty.load is None or (clean.load or 0) >= faulty.load


def said(decision: Decision | None) -> str:
    """A decision in three words."""
    if decision is None:
        return "nothing measured"
    return f"{decision.verdict}, " + ("no concurrency" if decision.load is None else f"c={decision.load}")


def flagged(path: Path) -> str:
    """What makes the run's points invalid."""
    names = collections.Counter(flag.name for point in load(path).points() for flag in point.flags if flag.fatal)
    return ", ".join(f"{name} at {times}" for name, times in names.items()) or "no flag"


def soak(minutes: float, seed: int, here: Path) -> Account:
    """The whole of it; prints what it finds as it goes."""
    account, notes = Account(), Notes(here)
    with FaultyServer(SPEC, log=here / "server.log") as server:
        text = CONFIG.format(url=server.url)
        clean = without_faults(text, here / "clean")
        print(f"without faults, in virtual time: {said(clean)}", flush=True)
        trouble = Trouble(server, seed)
        rounds: collections.Counter[str] = collections.Counter()

        def one_round(name: str) -> None:
            decided = sweep(text, here / f"run {name}", account, notes)
            rounds[said(decided)] += 1
            print(
                f"{name}: {said(decided)} ({flagged(here / f'run {name}')}); {account.sent:,} requests, "
                f"{account.resident[-1]:.0f} MB",
                flush=True,
            )
            if not weaker_or_equal(decided, clean):
                account.faults.append(f"{name} claims more than the fault-free sweep: {said(decided)}")

        began = time.monotonic()
        trouble.start()
        while time.monotonic() - began < 60 * minutes:
            one_round(f"sweep {rounds.total() + 1}")
        trouble.stop()
        print(f"{(time.monotonic() - began) / 60:.1f} minutes, {trouble.tried.total()} faults: {dict(trouble.tried)}")
        print(f"decisions under faults: {dict(rounds)}; without: {said(clean)}")
        one_round("a sweep after the faults")
        settle(account, notes, server.arrivals(), trouble.upset)
    tell(account)
    return account


def tell(account: Account) -> None:
    """The account; memory that grew, and a count that does not come out, are faults."""
    print(f"{account.sent:,} requests, {account.at_128:,} of them at concurrency 128; each in one class:")
    print("  " + ", ".join(f"{name} {times:,}" for name, times in account.classes.most_common()))
    print(f"the server's log has {account.arrived:,} requests: {account.sent:,} of the trials")
    print(
        f"  - {account.never_arrived:,} that never arrived + {account.resent:,} sent again on a dead kept-alive "
        f"connection, at most, + {account.questions:,} questions before trials"
    )
    most = account.sent - account.never_arrived + account.resent + account.questions
    if account.classes.total() != account.sent or not most - account.resent <= account.arrived <= most:
        account.faults.append("the client's count and the server's do not agree")
    for what, times in sorted(account.done.items()):
        print(f"  {what}: {times:,}")
    third = max(1, len(account.resident) // 3)
    parts = account.resident[:third], account.resident[third : 2 * third] or account.resident, account.resident[-third:]
    first, middle, last = (statistics.median(part) for part in parts)
    print(
        f"memory after each of {len(account.resident)} trials, median of each third: {first:.1f}, {middle:.1f}, "
        f"{last:.1f} MB; highest {max(account.resident):.1f}"
    )
    if last - first > 0.1 * first:
        account.faults.append(f"memory grew by {last - first:.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description="Minutes at concurrency 128 with random faults.")
    parser.add_argument("minutes", type=float)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="frontier-soak-") as here:
        account = soak(given.minutes, given.seed, Path(here))
    for fault, times in collections.Counter(account.faults).most_common(20):
        print(f"BROKEN ({times}x): {fault}")
    print("exact" if not account.faults else f"{len(account.faults)} faults")
    sys.exit(1 if account.faults else 0)


if __name__ == "__main__":
    main()
