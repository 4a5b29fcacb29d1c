"""What one point of a sweep costs beside its load: where the seconds before and after it go.

usage: python -m benchmarks.point_start [--repeats 5]

`frontier sweep` of two settings with a small load against an embedded server that runs already. The
parts are cut by the times in the run's journal and of its records; the medians of the repeats are
shown. *Before* and *after* are paid once per command, *between* once per further point. A sweep in
which a setting was measured again does not count.
"""

import argparse
import contextlib
import itertools
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

from frontier.simulator.http.process import SimulatorProcess
from frontier.simulator.spec import EngineSpec
from frontier.store.run_dir import RunDirectory

SWEEP = """\
endpoint: {url}
shapes: [32/16]
concurrency: {concurrency}
requests: 20
repeats: 1
refine: 0
warmup: 100ms
"""
MANY = [1, 2, 3, 4, 5]
BEFORE = ("start, imports, plan", "preflight, prompts calibrated", "until the first request")
AFTER = ("last answer to trial stored", "trial stored to sweep finished", "table, answer, picture")


Clock = tuple[list[float], list[float]]
"""Times, and the processor seconds that a process had used by then."""


def swept(folder: Path, config: str, environment: dict[str, str] | None = None) -> Clock:
    """A sweep of `config` in `folder`, and what it used over time."""
    (folder / "sweep.yaml").write_text(config)
    command = [sys.executable, "-m", "frontier", "sweep", "sweep.yaml", "-o", "run"]
    times, used = [time.time()], [0.0]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=folder, env=environment, **quiet) as process:
        watched = psutil.Process(process.pid)
        while process.poll() is None:
            with contextlib.suppress(psutil.Error):
                cpu = watched.cpu_times()
                times.append(time.time())
                used.append(cpu.user + cpu.system)
            time.sleep(0.01)
    return [*times, time.time()], [*used, used[-1]]


def loads_of(run: RunDirectory) -> list[tuple[float, float]]:
    """When the first request of each trial was sent and its last answer ended, in order."""
    loads = []
    for key, measurement in run.finished().items():
        records = list(run.records(key))
        sent, end = min(r.sent for r in records), max(r.end for r in records)
        loads.append((measurement.epoch + sent, measurement.epoch + end))
    return sorted(loads)


def part(clock: Clock, start: float, end: float) -> tuple[float, float]:
    """Seconds, and those of the processor, from `start` to `end`."""
    return end - start, float(np.interp(end, *clock) - np.interp(start, *clock))


def between_points(url: str, folder: Path, environment: dict[str, str]) -> list[float]:
    """Processor seconds between the trials of a sweep of MANY settings; the first pair is left out,
    as what is imported late is paid once.
    """
    clock = swept(folder, SWEEP.format(url=url, concurrency=MANY), environment)
    loads = loads_of(RunDirectory.read(folder / "run"))
    return [part(clock, end, start)[1] for (_, end), (start, _) in itertools.pairwise(loads)][1:]


def once(url: str, folder: Path) -> dict[str, tuple[float, float]] | None:
    """Seconds of each part, and of the processor in it; None where a setting had to be measured
    again.
    """
    clock = swept(folder, SWEEP.format(url=url, concurrency=[1, 2]))
    started, ended = clock[0][0], clock[0][-1]
    run = RunDirectory.read(folder / "run")
    events = {line["event"]: float(line["time"]) for line in run.journal_lines()}
    assert "finished" in events, "the sweep failed"
    if "measured_again" in events:
        return None
    (first, first_end), (second, second_end) = loads_of(run)
    cuts = itertools.pairwise((started, events["session"], events["server"], first))
    parts = {name: part(clock, *cut) for name, cut in zip(BEFORE, cuts, strict=True)}
    cuts = itertools.pairwise((second_end, events["trial_done"], events["finished"], ended))
    parts |= {
        "between two points": part(clock, first_end, second),
        **{name: part(clock, *cut) for name, cut in zip(AFTER, cuts, strict=True)},
    }
    return parts | {"before": part(clock, started, first), "after": part(clock, second_end, ended)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    found: list[dict[str, tuple[float, float]]] = []
    with SimulatorProcess(EngineSpec.from_mapping({"step_base": "4ms"})) as server:
        for _ in range(2 * options.repeats):
            with tempfile.TemporaryDirectory() as folder:
                if (parts := once(server.url, Path(folder))) is not None:
                    found.append(parts)
            if len(found) == options.repeats:
                break
        else:
            sys.exit("this machine is busy: in most sweeps a setting had to be measured again")
    for part in found[0]:
        walls, cpus = zip(*(parts[part] for parts in found), strict=True)
        spread = f"({min(walls):.2f} to {max(walls):.2f})"
        print(f"{part:32} {statistics.median(walls):6.2f} s {spread:16} CPU {statistics.median(cpus):.2f} s")


if __name__ == "__main__":
    main()
