"""What two checkouts take for the same work: the ratio of their processor times, with its interval.

usage: python -m benchmarks.old_and_new OLD [NEW] [--pairs 15] [--only WORD]

OLD and NEW are checkouts (`git worktree add ../old v1.0.0`; NEW is this one unless named). Both run
with this interpreter. Each quantity is measured once to warm up, then in pairs, old and new in
turn; what one process can repeat is the least of three. The table shows the medians, and the median
of the ratios with its distribution-free 95% interval (of 15 pairs the 4th and the 12th). Above 1
the new one is slower.
"""

import argparse
import math
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.point_start import between_points
from frontier.simulator.http.process import SimulatorProcess
from frontier.simulator.spec import EngineSpec

HERE = Path(__file__).parent.parent
ANALYSIS = """\
import time
from benchmarks import analysis_speed as a
def once(requests, tokens=256):
    records = list(a.records(requests, tokens))
    trial = a.Trial("a", a.Shape.of(1024, tokens), 64, 0, a.Phase.GRID, requests, 1, 0.0, 0.0, 0.0, "")
    end = records[-1].sent
    measured = a.Measurement(trial, 1.7e9, a.Window(end / 10, end * 0.9), "requests")
    began = time.process_time()
    cut = a.window_data(measured, records)
    a.point(cut, limits=(a.Limit("p99_ttft", 0.5), a.Limit("p99_tpot", 0.05)))
    return time.process_time() - began
once(500)  # what is imported late
print(min(once(20_000) for _ in range(3)))
"""
ENGINE = """\
import time
from benchmarks import engine_speed as e
spec = e.EngineSpec(noise=0.05, kv_tokens=2_000_000)
shape = e.Shape.of(1024, 256)
e.{figures}(e.simulate(spec, shape, 4, 20))
def once():
    began = time.process_time()
    for concurrency in (8, 64):
        e.{figures}(e.simulate(spec, shape, concurrency, 1500))
    return time.process_time() - began
print(min(once() for _ in range(3)))
"""
EIGHT = """\
import sys
from pathlib import Path
from benchmarks import look_speed
look_speed.CONFIG = look_speed.CONFIG.replace("[1, 2, 4, 8, 16, 32, 64]", "[1, 4, 16, 64]")
look_speed.sweep(Path(sys.argv[1]))
"""


def in_tree(tree: Path) -> dict[str, str]:
    """The environment in which `import frontier` finds the package of `tree`, compiled once."""
    return {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": ""}


def printed(tree: Path, code: str, *arguments: str) -> str:
    """What a program prints that runs in `tree`."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=tree, env=in_tree(tree), check=True, text=True, stdout=subprocess.PIPE).stdout


def spent(tree: Path, cwd: Path, *arguments: str) -> float:
    """Processor seconds of a `frontier` command of `tree`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "frontier", *arguments]
    done = subprocess.run(command, cwd=cwd, env=in_tree(tree), capture_output=True, check=False)
    if done.returncode not in {0, 3, 4}:
        sys.exit(f"{tree}: frontier {' '.join(arguments)} failed: {done.stderr.decode()[-500:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def interval(ratios: list[float]) -> tuple[float, float]:
    """Two order statistics that hold the median with at least 95%."""
    ratios, n = sorted(ratios), len(ratios)
    tails = [sum(math.comb(n, i) for i in range(k + 1)) / 2**n for k in range(n // 2)]
    left_out = sum(tail <= 0.025 for tail in tails)
    return ratios[max(left_out - 1, 0)], ratios[n - max(left_out, 1)]


def quantities(url: str, runs: dict[Path, Path]) -> dict[str, Callable[[Path], float]]:
    """A measurement of a checkout per quantity, in processor seconds. `runs` holds a folder with a
    run for each checkout.
    """

    def between(tree: Path) -> float:
        with tempfile.TemporaryDirectory() as folder:
            return statistics.median(between_points(url, Path(folder), in_tree(tree)))

    def look(*arguments: str) -> Callable[[Path], float]:
        return lambda tree: spent(tree, runs[tree], *arguments)

    def cold(*arguments: str) -> Callable[[Path], float]:
        def measure(tree: Path) -> float:
            shutil.rmtree(runs[tree] / "run/derived", ignore_errors=True)
            return spent(tree, runs[tree], *arguments)

        return measure

    return {
        "--help": look("--help"),
        "between two points": between,
        "engine, arrays": lambda tree: float(printed(tree, ENGINE.format(figures="arrays_of"))),
        "engine, records": lambda tree: float(printed(tree, ENGINE.format(figures="records_of"))),
        "analysis of 20,000 requests": lambda tree: float(printed(tree, ANALYSIS)),
        "show": look("show", "run"),
        "solve": look("solve", "run"),
        "show, cold": cold("show", "run"),
        "solve, cold": cold("solve", "run"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path, nargs="?", default=HERE)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--only", default="", help="quantities with this in their name")
    options = parser.parse_args()
    old, new = options.old.resolve(), options.new.resolve()
    server = SimulatorProcess(EngineSpec.from_mapping({"step_base": "4ms"}))
    with tempfile.TemporaryDirectory() as folder, server:
        runs = {old: Path(folder) / "old", new: Path(folder) / "new"}
        printed(old, EIGHT, f"{folder}/made")
        for each in runs.values():
            shutil.copytree(f"{folder}/made", each / "run")
        print(f"{'':30} {'old':>8} {'new':>8}  ratio [95%]")
        for name, measure in quantities(server.url, runs).items():
            if options.only not in name:
                continue
            measure(old), measure(new)
            pairs = [(measure(old), measure(new)) for _ in range(options.pairs)]
            ratios = [after / before for before, after in pairs]
            olds, news = (statistics.median(times) * 1e3 for times in zip(*pairs, strict=True))
            low, high = interval(ratios)
            row = f"{name:30} {olds:5,.0f} ms {news:5,.0f} ms  {statistics.median(ratios):.2f} [{low:.2f}, {high:.2f}]"
            print(row, flush=True)


if __name__ == "__main__":
    main()
