"""How long, and in how much memory, records become a point: `python -m benchmarks.analysis_speed
[REQUESTS] [TOKENS]`, or `python -m benchmarks.analysis_speed --run DIR [REQUESTS] [TOKENS]`.

Records are generated as they are consumed (as a run directory is read), and the time of generating
them is measured on its own and taken off. The goal is 1,000,000 requests of 256 tokens in 60 s and
2 GB. Times are processor time of the one core used, so that other work on the machine does not
count.

With --run, a run of 8 settings is made in DIR (200,000 requests of 128 tokens with their gaps), and
looked at without what is derived: the time of `show`, `solve` and `report` over that of reading the
records alone. The goals are 1.5 times and 500 MB.
"""

import argparse
import random
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from frontier.config import load_config
from frontier.core.estimates.estimate import point
from frontier.core.model.decisions import Limit
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Measurement, Outcome, Phase, Record, Trial, Window
from frontier.core.stats import laws
from frontier.core.window.from_records import window_data
from frontier.planning.plan import make_plan
from frontier.store.run_dir import RunDirectory

CONCURRENCY = 64
CONFIG = """\
endpoint: http://127.0.0.1:9
model: m
shapes: [1024/{tokens}]
concurrency: [1, 2, 4, 8, 16, 32, 64, 128]
sla: {{p99_ttft: 500ms, p99_tpot: 50ms}}
requests: {requests}
repeats: 1
refine: 0
"""
READING = """\
import sys
from pathlib import Path
from frontier.store.run_dir import RunDirectory
run = RunDirectory.read(Path(sys.argv[1]))
print(sum(1 for key, evidence in run.evidences().items() for _ in run.records(key, evidence)))
"""
SPAWN = """\
import os, resource, sys
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is compiled once
code = os.spawnv(os.P_WAIT, sys.argv[1], sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(code, used.ru_utime + used.ru_stime, used.ru_maxrss, file=sys.stderr)
"""
RATIO, MOST_MB = 1.5, 500


def records(requests: int, tokens: int, seed: int = 1, concurrency: int = CONCURRENCY) -> Iterator[Record]:
    """A closed loop of so many streams; gaps of 8..12 ms come from a pool, so that generating
    them is cheap.
    """
    rng = random.Random(seed)
    pool = [tuple(rng.randrange(8000, 12000) for _ in range(tokens - 1)) for _ in range(256)]
    lengths = [sum(gaps) * 1e-6 for gaps in pool]
    free = [i * tokens * 0.01 / concurrency for i in range(concurrency)]
    for index in range(requests):
        stream = index % concurrency
        which = rng.randrange(256)
        sent = free[stream]
        first = sent + rng.uniform(0.04, 0.09)
        last = first + lengths[which]
        free[stream] = last + 0.0005
        yield Record(
            index,
            stream,
            sent,
            Outcome.OK,
            last,
            1024,
            tokens,
            first=first,
            visible=first,
            last=last,
            prompt_tokens=1024,
            completion_tokens=tokens,
            cached_tokens=0,
            events=tokens,
            reads=tokens,
            gaps=pool[which],
        )


def make_run(path: Path, requests: int, tokens: int) -> None:
    """A run of 8 settings with so many requests in all, as a sweep would leave it."""
    text = CONFIG.format(requests=requests // 8, tokens=tokens)
    config = load_config(text, "sweep.yaml")
    with RunDirectory.open_for_sweep(
        path, identity=config.identity(), canonical=config.canonical(), config_text=text, facts={}
    ) as run:
        for number, trial in enumerate(make_plan(config).trials):
            end = 0.0
            with run.writer(trial) as writer:
                for record in records(trial.requests, tokens, number, trial.load):
                    writer.add(record)
                    end = max(end, record.sent)
                window = Window(end / 20, end * 0.95)
                writer.commit(Measurement(trial, 1.7e9 + number * 1e5, window, "requests"))
        run.journal("finished")


def spent(*arguments: str) -> tuple[float, float]:
    """Processor seconds of one call of the interpreter, and the most memory it had, in MB."""
    command = [sys.executable, "-c", SPAWN, sys.executable, *arguments]
    done = subprocess.run(command, text=True, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    code, seconds, peak = done.stderr.splitlines()[-1].split()
    if int(code) not in {0, 3, 4}:
        sys.exit(f"{' '.join(arguments)} failed: {done.stderr[-500:]}")
    return float(seconds), float(peak) * (1 if sys.platform == "darwin" else 1024) / 1e6


def look_cold(path: Path) -> None:
    """Print what each command takes without `derived/`, and its ratio to reading the records alone:
    the medians of three rounds.
    """
    page = str(path.with_suffix(".html"))
    commands = {
        "the records alone": ("-c", READING, str(path)),
        "show": ("-m", "frontier", "show", str(path)),
        "solve": ("-m", "frontier", "solve", str(path)),
        "report": ("-m", "frontier", "report", str(path), "-o", page),
    }
    rounds: list[dict[str, tuple[float, float]]] = []
    for _ in range(3):
        rounds.append({})
        for name, arguments in commands.items():
            shutil.rmtree(path / "derived", ignore_errors=True)
            rounds[-1][name] = spent(*arguments)
    for name in commands:
        seconds, peak = (statistics.median(each[name][i] for each in rounds) for i in (0, 1))
        ratio = statistics.median(each[name][0] / each["the records alone"][0] for each in rounds)
        goals = f"ratio {ratio:.2f} of {RATIO}, memory {peak / MOST_MB:.2f} of {MOST_MB} MB"
        print(f"{name:20} {seconds:6.1f} s {peak:6.0f} MB   {goals}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("requests", type=int, nargs="?")
    parser.add_argument("tokens", type=int, nargs="?")
    parser.add_argument("--run", type=Path, metavar="DIR", help="a run directory, which is made unless it is there")
    options = parser.parse_args()
    if options.run is None:
        to_a_point(options.requests or 50_000, options.tokens or 256)
        return
    if not options.run.exists():
        make_run(options.run, options.requests or 200_000, options.tokens or 128)
    look_cold(options.run)


def to_a_point(requests: int, tokens: int) -> None:
    """Print seconds and memory, and the ratio to the goal scaled to the number of tokens. Imports
    are not counted: a sweep pays them once.
    """
    laws.load()
    began = time.process_time()
    end = 0.0
    for record in records(requests, tokens):
        end = max(end, record.sent)
    generating = time.process_time() - began
    trial = Trial("a", Shape.of(1024, tokens), CONCURRENCY, 0, Phase.GRID, requests, 1, 0.0, 0.0, 0.0, "")
    warm = min(10.0, end / 10)
    measurement = Measurement(trial, 1.7e9, Window(warm, end - warm), "requests")
    began = time.process_time()
    cut = window_data(measurement, records(requests, tokens))
    cutting = time.process_time() - began - generating
    began = time.process_time()
    result = point(cut, limits=(Limit("p99_ttft", 0.5), Limit("p99_tpot", 0.05)))
    deciding = time.process_time() - began
    seconds, goal = cutting + deciding, 60.0 * requests * tokens / 256e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 if sys.platform == "darwin" else 1024)
    print(f"{requests:,} requests x {tokens} tokens; p99 TTFT {result.metrics['p99_ttft'].value * 1e3:.1f} ms")
    print(f"records to sample {cutting:.2f} s, sample to point {deciding:.2f} s (generating took {generating:.2f} s)")
    print(f"{seconds:.2f} s of a goal of {goal:.2f} s: ratio {seconds / goal:.2f}; peak memory {peak:,.0f} MiB")


if __name__ == "__main__":
    main()
