"""What one point of a sweep costs beside its load: where the seconds before and after it go.

usage: python -m benchmarks.point_start [--repeats 5]

`frontier sweep` of two settings with a small load against an embedded server that runs already. The parts are cut by
the times in the run's journal and of its records; the median of the repeats is shown. *Before* and *after* are paid
once per command, *between* once per further point.
"""

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from frontier.simulator.process import SimulatorProcess
from frontier.simulator.spec import EngineSpec
from frontier.store.run_dir import RunDirectory

SWEEP = """\
endpoint: {url}
shapes: [32/16]
concurrency: [1, 2]
requests: 20
repeats: 1
refine: 0
warmup: 100ms
"""
BEFORE = ("start, imports, plan", "preflight, prompts calibrated", "until the first request")
AFTER = ("last answer to trial stored", "trial stored to sweep finished", "table, answer, picture")


def once(url: str, folder: Path) -> dict[str, float]:
    """Seconds of each part."""
    (folder / "sweep.yaml").write_text(SWEEP.format(url=url))
    command = [sys.executable, "-m", "frontier", "sweep", "sweep.yaml", "-o", "run"]
    began = time.time()
    environ = {**os.environ, "NO_COLOR": "1"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environ, check=False)
    ended = time.time()
    run = RunDirectory.read(folder / "run")
    events = {line["event"]: float(line["time"]) for line in run.journal_lines()}
    assert "finished" in events, done.stderr
    loads = []
    for key, measurement in run.finished().items():
        records = list(run.records(key))
        sent, end = min(r.sent for r in records), max(r.end for r in records)
        loads.append((measurement.epoch + sent, measurement.epoch + end))
    (first, first_end), (second, second_end) = sorted(loads)
    times = (began, events["session"], events["server"], first)
    parts = dict(zip(BEFORE, (b - a for a, b in itertools.pairwise(times)), strict=True))
    parts["between two points"] = second - first_end
    times = (second_end, events["trial_done"], events["finished"], ended)
    parts |= dict(zip(AFTER, (b - a for a, b in itertools.pairwise(times)), strict=True))
    return {**parts, "before": sum(map(parts.get, BEFORE)), "after": sum(map(parts.get, AFTER))}  # type: ignore[arg-type]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    found = []
    with SimulatorProcess(EngineSpec.from_mapping({"step_base": "4ms"})) as server:
        for _ in range(options.repeats):
            with tempfile.TemporaryDirectory() as folder:
                found.append(once(server.url, Path(folder)))
    for part in found[0]:
        values = [times[part] for times in found]
        print(f"{part:32} {statistics.median(values):6.2f} s   ({min(values):.2f} to {max(values):.2f})")


if __name__ == "__main__":
    main()
