"""The kill study: SIGKILL at random moments and at every step on the disk, and what it costs.

    python -m benchmarks.kills --kills 500

A sweep of the simulated engine in virtual time (with a pause in each trial, so that kills fall into
trials as well as between them) runs in a process that is killed with SIGKILL, is started again by
the same call, perhaps killed again, and at last left to finish. After each kill and at the end it
is checked that

- every trial that was reported finished is on the disk, and no more than the trial in flight was
  run in vain;
- no file is torn: each finished trial has all its records, nothing half is left behind;
- the trials' files are, byte for byte, those of a sweep nobody killed, and points and decisions are
  equal.

With --every-step the kills come just before each opening for writing, fsync, rename, removal,
directory and lock, in turn: every order of events a kill can leave on the disk of this machine.
What a power cut can leave is more (what was never synced is gone); that is what the fsyncs before
the renames are for.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from frontier.config import load_config
from frontier.core.model.decisions import Decision
from frontier.core.model.trials import Measurement, Trial
from frontier.extras.api.virtual_backend import VirtualBackend
from frontier.planning.plan import make_plan
from frontier.planning.sweep_progress import Progress
from frontier.read_run import load
from frontier.show.view.explain import with_notes
from frontier.store.run_dir import RunDirectory
from frontier.sweep.conductor import Conductor

CONFIG = """\
endpoint: simulator
simulator: {step_base: 5ms, per_decode: 200us, per_prefill_token: 20us, noise: 0.05}
shapes: [64/8]
concurrency: [1, 2, 4, 8]
sla: {p90_tpot: 6ms}
requests: 60
repeats: 2
refine: 1
"""


class Reports(Progress):
    """Tells on a pipe which trials begin and which are on the disk; this outlives the process."""

    def __init__(self, pipe: int) -> None:
        self.pipe = pipe

    def trial_started(self, trial: Trial) -> None:
        os.write(self.pipe, f"began {trial.key}\n".encode())

    def trial_finished(self, trial: Trial, figures: Mapping[str, float | None], *others: object) -> None:  # noqa: ARG002
        os.write(self.pipe, f"ended {trial.key}\n".encode())


class Slow(VirtualBackend):
    """Virtual time, with a real pause in the middle of each trial's records."""

    pause = 0.004

    async def run(self, trial: Trial, **how: Any) -> Measurement:
        on_record, records = how["on_record"], []
        measurement = await super().run(trial, **{**how, "on_record": records.append})
        for record in records[: len(records) // 2]:
            on_record(record)
        await asyncio.sleep(self.pause)
        for record in records[len(records) // 2 :]:
            on_record(record)
        return measurement


def sweep(path: Path, pipe: int) -> str:
    """Run or resume the sweep in this process."""
    config = load_config(CONFIG, "sweep.yaml")
    with RunDirectory.open_for_sweep(
        path, identity=config.identity(), canonical=config.canonical(), config_text=CONFIG, facts={}
    ) as run:
        backend = Slow({d.name: d.engine_spec() for d in config.deployments})
        conductor = Conductor(config, make_plan(config), run, backend, Reports(pipe), asyncio.Event())
        return asyncio.run(conductor.conduct())


@dataclass
class Session:
    """One start: how it ended (0 finished, -9 killed), which trials it began and reported
    finished.
    """

    status: int
    began: list[str]
    ended: list[str]


def session(path: Path, kill_after: float | None = None, at_step: int | None = None) -> Session:
    """Run the sweep in a process of its own, and kill it after so many seconds or before that step
    on the disk.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        code = 70
        with contextlib.suppress(BaseException):
            if at_step is not None:
                kill_myself_at(at_step, path)
            code = 0 if sweep(path, writing) == "finished" else 71
        os._exit(code)
    os.close(writing)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)
    with os.fdopen(reading) as told:
        lines = [line.split() for line in told.read().splitlines()]
    _, status = os.waitpid(child, 0)
    of = {word: [line[1] for line in lines if line[0] == word and len(line) == 2] for word in ("began", "ended")}
    return Session(os.waitstatus_to_exitcode(status), of["began"], of["ended"])


_STEPS = {"os.rename", "os.remove", "os.mkdir", "os.truncate", "fcntl.flock"}


def kill_myself_at(step: int, path: Path) -> None:
    """SIGKILL to this process just before the given step on the disk below `path` (counted from
    1).
    """
    count = 0
    fsync = os.fsync

    def next_step() -> None:
        nonlocal count
        count += 1
        if count == step:
            os.kill(os.getpid(), signal.SIGKILL)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _STEPS or (event == "open" and writes(*arguments)):
            next_step()

    def writes(file: Any, _mode: Any, flags: int) -> bool:
        """A file of the run is opened to be written to: by its name alone, in a directory that is
        open.
        """
        named = Path(str(file))
        return bool(flags & (os.O_WRONLY | os.O_RDWR)) and (not named.is_absolute() or path in named.parents)

    def counted(descriptor: Any) -> None:
        next_step()
        fsync(descriptor)

    os.fsync = counted
    sys.addaudithook(hook)


@dataclass
class Tally:
    """What the study has seen. `faults` are promises that were broken."""

    sweeps: int = 0
    kills: int = 0
    in_trial: int = 0
    lost_finished: int = 0
    torn: int = 0
    run_in_vain: int = 0
    faults: list[str] = field(default_factory=list)


def check_disk(path: Path, ended: list[str], tally: Tally) -> None:
    """After a kill: all that was reported is there, and whole."""
    if not (path / "manifest.json").exists():
        if ended:
            tally.faults.append("the run has no manifest, and trials were reported")
        return
    run = RunDirectory.read(path)
    finished = run.finished()
    missing = set(ended) - set(finished)
    tally.lost_finished += len(missing)
    tally.faults += [f"{key} was reported finished and is gone" for key in missing]
    for key in finished:
        records = sum(1 for _ in run.records(key))
        told = json.loads(run.evidence_file(key).read_bytes())["records"]
        if records != told:
            tally.torn += 1
            tally.faults.append(f"{key} has {records} records of {told}")


def outcome(path: Path) -> tuple[dict[str, bytes], Any, Any]:
    """What is compared: the trials' bytes, the points, the decisions but for the run's path and the
    time that deciding more would take here, which is real time.
    """
    run = load(path)
    return {f.name: f.read_bytes() for f in (path / "trials").iterdir()}, run.points(), [*map(decided, run.solve())]


def decided(decision: Decision) -> Decision:
    """The decision without what differs from run to run: the command of the next step, which names
    the run, and the time that its trials take on this machine.
    """
    step = decision.next_step and replace(decision.next_step, command=None, seconds=None)
    found = replace(decision, next_step=step)
    return replace(found, notes=with_notes(found).notes)


def one_sweep(path: Path, kill: Callable[[int], Mapping[str, Any] | None], whole: Any, tally: Tally) -> None:
    """Start, kill as told (by the number of the start; None: not at all), start again, until it is
    finished.
    """
    began: list[str] = []
    ended: list[str] = []
    kills = 0
    while True:
        how = kill(kills)
        now = session(path, **(how or {}))
        began += now.began
        ended += now.ended
        if now.status == -signal.SIGKILL:
            kills += 1
            tally.in_trial += len(now.began) > len(now.ended)
            check_disk(path, ended, tally)
            continue
        if now.status != 0:
            tally.faults.append(f"start {kills + 1} ended with {now.status}")
            return
        break
    tally.sweeps += 1
    tally.kills += kills
    in_vain = len(began) - len(set(began))
    tally.run_in_vain += in_vain
    if in_vain > kills:
        tally.faults.append(f"{in_vain} trials were run in vain for {kills} kills")
    left = [*path.rglob("*.part"), *path.rglob("*.tmp")]
    if left:
        tally.faults.append(f"left behind: {left}")
    if outcome(path) != whole:
        tally.faults.append(f"the outcome differs from the uninterrupted one after {kills} kills")


def study(kills: int, seed: int, here: Path) -> Tally:
    """So many kills at random moments, at most three in one sweep."""
    rng, tally = random.Random(seed), Tally()
    with Path(os.devnull).open("wb") as unread:  # here, so that each forked session has all modules loaded
        sweep(here / "warm-up", unread.fileno())
    began = time.monotonic()
    session(here / "whole")
    long, whole = time.monotonic() - began, outcome(here / "whole")
    while tally.kills < kills and not tally.faults:
        most = rng.randint(1, 3)
        with tempfile.TemporaryDirectory(dir=here) as fresh:

            def kill(number: int, most: int = most) -> Mapping[str, Any] | None:
                return {"kill_after": rng.uniform(0, long)} if number < most else None

            one_sweep(Path(fresh) / "run", kill, whole, tally)
    return tally


def every_step(here: Path, stride: int = 1) -> Tally:
    """A kill before each step on the disk (or each stride-th), one a sweep."""
    tally = Tally()
    session(here / "whole")
    whole = outcome(here / "whole")
    step = 1
    while not tally.faults:
        with tempfile.TemporaryDirectory(dir=here) as fresh:
            before = tally.kills
            one_sweep(Path(fresh) / "run", lambda n, at=step: {"at_step": at} if n == 0 else None, whole, tally)  # type: ignore[misc]
            if tally.kills == before:
                return tally
        step += stride
    return tally


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill sweeps and see what it costs.")
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every-step", type=int, metavar="STRIDE", help="kill before each STRIDE-th step on the disk")
    given = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="frontier-kills-") as here:
        if given.every_step:
            tally = every_step(Path(here), given.every_step)
        else:
            tally = study(given.kills, given.seed, Path(here))
    print(
        f"{tally.kills} kills in {tally.sweeps} sweeps, {tally.in_trial} of them inside a trial; "
        f"{tally.lost_finished} finished trials lost, {tally.torn} files torn, "
        f"{tally.run_in_vain} trials run in vain; {time.monotonic() - began:.0f} s"
    )
    for fault in tally.faults:
        print(f"BROKEN: {fault}")
    sys.exit(1 if tally.faults else 0)


if __name__ == "__main__":
    main()
