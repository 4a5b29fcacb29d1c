"""Shards without a network between them, as of a Kubernetes Job or a Slurm array: a timetable,
files, and their merge.

Every shard computes the same timetable from the config and the time to start at, and runs its share
of each trial by the clock of its machine: the warm-up, the window and the hold of a trial last what
the config states. Nothing can be decided on the way, so a search needs client processes that talk
to each other. `merge_shards` puts the shards' records together, and refuses unless all shards of
one sweep are there, whole.
"""

import asyncio
import ctypes
import math
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from frontier.client.ask.evidence import Evidence
from frontier.client.load.pipeline import Share
from frontier.client.load.rules import WindowState
from frontier.client.load.shard import CLOCK_BOUND, LATE, Shard, ShardJob, ShardResult, worst_health
from frontier.client.load.trial import measurement
from frontier.config import Config
from frontier.errors import MeasurementError, StoreError, UsageError
from frontier.model import Measurement, Record, Trial, WorkerFacts
from frontier.plan import Plan
from frontier.store.run_dir import RunDirectory, read_manifest
from frontier.sweep.backend import HttpBackend

PAUSE = 5.0
"""Seconds between two trials, in which a shard prepares the requests of the next."""
HOLD_SHARE = 0.5
"""Of the window: how long the load is held for its last requests to end; those that have not are
cut off."""
LEAST_HOLD = 10.0


@dataclass(frozen=True, slots=True)
class Slot:
    """When one trial runs: `begin` in seconds after the start of the timetable, the others after
    `begin`.
    """

    trial: Trial
    begin: float
    opens: float
    closes: float
    ends: float


@dataclass(frozen=True, slots=True)
class ShardOf:
    """Which shard of a sweep this is, and the unix time at which the timetable starts."""

    share: Share
    start_at: float

    @property
    def name(self) -> str:
        """The name of its directory."""
        return f"shard-{self.share.index:04d}-of-{self.share.of:04d}"


def timetable(config: Config, plan: Plan) -> tuple[Slot, ...]:
    """The slots of a plan's trials. UsageError, with what to use instead, where a shard alone
    cannot run the config.
    """
    instead = "use client processes that talk to each other:  frontier sweep CONFIG --set workers=N"
    if config.searches:
        raise UsageError(
            "a search decides by what all shards have measured, and these do not hear of each other",
            f"{instead},  or measure the listed settings only:  refine: 0",
        )
    if config.open_loop:
        raise UsageError("a rate is sent by one client process, and shards are several", "run  frontier sweep CONFIG")
    for deployment in config.deployments:
        if deployment.is_simulator or deployment.start is not None:
            what = f"{deployment.name} is started by the sweep, and each shard would start its own"
            raise UsageError(what, "start the server first, and name its address")
    if config.max_time is None or "warmup" not in config.model_fields_set:
        what = "the timetable of shards needs a fixed warm-up and a fixed length of a trial"
        raise UsageError(what, "state both, as  warmup: 30s  and  max_time: 90s  (a window of 60 s)")
    if config.budget.limited:
        raise UsageError("shards keep no budget", "leave budget out: the timetable says how long it takes")
    window = config.max_time - config.warmup
    hold = max(LEAST_HOLD, HOLD_SHARE * window)
    slots, begin = [], 0.0
    for trial in plan.trials:
        slots.append(Slot(trial, begin, config.warmup, config.max_time, config.max_time + hold))
        begin += config.max_time + hold + PAUSE
    return tuple(slots)


def clock_error() -> float:
    """Seconds by which this machine's wall clock may be wrong, as its kernel knows; infinite where
    it is not kept right, or where that cannot be asked.
    """
    if sys.platform != "linux":
        return math.inf

    class Timex(ctypes.Structure):
        """The first fields of the kernel's struct timex; the rest is left as room."""

        _fields_ = (
            ("modes", ctypes.c_uint),
            ("offset", ctypes.c_long),
            ("freq", ctypes.c_long),
            ("maxerror", ctypes.c_long),
            ("esterror", ctypes.c_long),
            ("status", ctypes.c_int),
            ("room", ctypes.c_char * 256),
        )

    timex = Timex()
    unsynchronised = 0x40
    if ctypes.CDLL(None).adjtimex(ctypes.byref(timex)) < 0 or timex.status & unsynchronised:
        return math.inf
    return float(timex.maxerror) / 1e6


def shard_facts(shard: ShardOf) -> dict[str, Any]:
    """What the manifest of a shard's directory says of it."""
    error = clock_error()
    return {
        "index": shard.share.index,
        "of": shard.share.of,
        "start_at": shard.start_at,
        "host": platform.node(),
        "clock_error": error if math.isfinite(error) else None,
    }


async def run_shard(
    config: Config,
    backend: HttpBackend,
    slots: Sequence[Slot],
    shard: ShardOf,
    run: RunDirectory,
    say: Callable[[str], None],
) -> None:
    """Run this shard's share of every trial, at its time. MeasurementError when it is too late for
    the first.
    """
    try:
        for name in dict.fromkeys(slot.trial.deployment for slot in slots):
            await backend.prepare(config.deployment(name))
        if (over := time.time() - shard.start_at) > 0:
            what = f"the timetable started {over:.1f} s before this shard was ready"
            raise MeasurementError(what, "start the shards earlier, or let the timetable begin later:  --start-at")
        for slot in slots:
            key, job = slot.trial.key, backend.shard_job(slot.trial, shard.share)
            if job is None:
                say(f"{key}: fewer streams than shards, and none is this one's")
                continue
            with run.writer(slot.trial) as writer:
                measurement, result = await _run_slot(slot, job, shard)
                for record in result.report.records:
                    writer.add(record)
                writer.commit(measurement)
            say(f"{key}: {result.report.status.window_sent} requests sent in the window")
        run.journal("shard_finished")
    finally:
        await backend.close()


async def _run_slot(slot: Slot, job: ShardJob, shard: ShardOf) -> tuple[Measurement, ShardResult]:
    """One shard of one trial at its time. The first shard alone reads the server's metrics."""
    running, call_at = Shard(job), asyncio.get_running_loop().call_later
    running.state = WindowState(slot.opens, slot.closes, "time")
    epoch = shard.start_at + slot.begin
    zero = time.perf_counter() + epoch - time.time()

    def end() -> None:
        running.state = replace(running.state, over=True)

    async with Evidence(job.target) as evidence:
        evidence.zero, left = zero, zero - time.perf_counter()
        call_at(left + slot.ends, end)
        if shard.share.index == 0:
            call_at(left + slot.opens, evidence.opened.set)
            call_at(left + slot.closes, evidence.closed.set)
        result = await running.run(zero)
        streams = len(job.share.streams(slot.trial.concurrency))
        facts = WorkerFacts(platform.node(), streams, 0.0, 0.0, result.late, result.health)
        found = await measurement(slot.trial, epoch, running.state, result.health, evidence, (facts,))
    return found, result


# --- merging


def shard_directories(folder: Path) -> list[tuple[Path, Mapping[str, Any]]]:
    """The shards' directories in a folder, with their manifests, by index."""
    found = []
    for path in sorted(file.parent for file in folder.glob("*/manifest.json")):
        manifest = read_manifest(path)
        if isinstance(manifest.get("shard"), dict):
            found.append((path, manifest))
    return sorted(found, key=lambda pair: int(pair[1]["shard"]["index"]))


def require_all(folder: Path, shards: Sequence[tuple[Path, Mapping[str, Any]]]) -> None:
    """StoreError, naming each, for shards that are missing, there twice, of another sweep, or not
    finished.
    """
    if not shards:
        raise StoreError(f"{folder} holds no shards", "make them with  frontier shard CONFIG --index I --of N -o DIR")
    sweeps = [(m["identity"], m["shard"]["of"], m["shard"]["start_at"]) for _, m in shards]
    usual = max(sweeps, key=sweeps.count)
    named = list(zip(shards, sweeps, strict=True))
    problems = [f"{path.name} is of another sweep" for (path, _), sweep in named if sweep != usual]
    own = [pair for pair, sweep in named if sweep == usual]
    indices = [int(manifest["shard"]["index"]) for _, manifest in own]
    for index in range(int(usual[1])):
        places = [path.name for path, manifest in own if manifest["shard"]["index"] == index]
        if not places:
            problems.append(f"shard {index} of {usual[1]} is missing")
        elif len(places) > 1:
            problems.append(f"shard {index} is there {len(places)} times: {', '.join(places)}")
    problems += [f"shard {index} is not one of {usual[1]}" for index in indices if not 0 <= index < int(usual[1])]
    for path, _ in own:
        if "shard_finished" not in {line["event"] for line in RunDirectory.read(path).journal_lines()}:
            problems.append(f"{path.name} was not finished")
    hosts = {str(m["shard"]["host"]) for _, m in own}
    for path, manifest in own if len(hosts) > 1 else ():
        error = manifest["shard"]["clock_error"]
        if error is None or error > CLOCK_BOUND:
            known = "is not known" if error is None else f"may be {error * 1e3:.0f} ms off"
            host = manifest["shard"]["host"]
            problems.append(f"the clock of {host} ({path.name}) {known}: keep it right with chrony or ntp")
    if problems:
        raise StoreError("these shards make no sweep:\n  " + "\n  ".join(problems), "nothing was merged")


def merge_trial(trial: Trial, parts: Sequence[tuple[Path, Mapping[str, Any]]]) -> tuple[Measurement, list[Record]]:
    """The measurement and the records of a trial, of all shards that had streams of it.
    MeasurementError, saying why, when they do not count.
    """
    found: list[Measurement] = []
    facts: list[WorkerFacts] = []
    records: list[Record] = []
    for path, manifest in parts[: trial.concurrency]:
        run = RunDirectory.read(path)
        part = run.evidence(trial.key).measurement
        (worker,) = part.workers
        if worker.late > LATE:
            raise MeasurementError(f"{path.name} began {worker.late:.1f} s late")
        if found and not (found[0].server_identity or "").startswith(part.server_identity or ""):
            raise MeasurementError(f"{path.name} met another server: {part.server_identity}")
        found.append(part)
        facts.append(replace(worker, clock_bound=manifest["shard"]["clock_error"] or 0.0))
        records += run.records(trial.key)
    merged = replace(found[0], health=worst_health(facts), workers=tuple(facts))
    return merged, sorted(records, key=lambda record: record.end)


def merge_shards(folder: Path, run_path: Path, facts: Mapping[str, Any], say: Callable[[str], None]) -> int:
    """Merge the shards in a folder into a run; how many trials it has got. StoreError when they
    make no sweep.
    """
    shards = shard_directories(folder)
    require_all(folder, shards)
    first, manifest = shards[0]
    first_run = RunDirectory.read(first)
    merged = 0
    with RunDirectory.open_for_sweep(
        run_path,
        identity=manifest["identity"],
        canonical=manifest["canonical"],
        config_text=first_run.config_text(),
        facts=facts,
        defaults=manifest.get("defaults", {}),
    ) as run:
        done = run.finished()
        for key, evidence in first_run.evidences().items():
            if key in done:
                continue
            try:
                found, records = merge_trial(evidence.measurement.trial, shards)
            except MeasurementError as error:
                run.journal("skipped", trial=key, reason=error.what)
                say(f"{key} is left out: {error.what}")
                continue
            with run.writer(found.trial) as writer:
                for record in records:
                    writer.add(record)
                writer.commit(found)
            merged += 1
        run.journal("finished")
    return merged
