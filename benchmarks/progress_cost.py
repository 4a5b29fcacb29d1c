"""What the live view costs the loop that measures: `python -m benchmarks.progress_cost [--pairs 12]
[--seconds 5]`.

Whole trials against the truth server (a process of its own) run in pairs, one watched by the live
view on a terminal that is not there, one by nobody, which of them first being turned about. Of each
quantity the ratio watched : unwatched is the geometric mean over the pairs, with its 95% t
interval: an interval that holds 1 shows no cost. Below that, what one redraw takes: twice a second
it is the only moment at which a read can be stamped late on account of the view.

About 17 seconds a pair by default: three and a half minutes in all, on a machine that does nothing
else.
"""

import argparse
import io
import math
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np
from rich.console import Console
from scipy import stats

from benchmarks.truth import TruthServer
from frontier.client import run_trial
from frontier.client.ask.prompts import random_prompts
from frontier.client.ask.target import Target
from frontier.client.http.http_client import run
from frontier.client.load.loop import TrialProgress
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Outcome, Phase, Record, Trial
from frontier.show.live import LiveProgress

STREAMS, TOKENS, ITL = 128, 100, 0.010
QUANTITIES = {"cpu": "client's CPU a token", "p50": "p50 TTFT", "p99": "p99 TTFT", "rate": "output tokens a second"}


def console() -> Console:
    """A terminal that draws everything and shows it to nobody."""
    return Console(file=io.StringIO(), force_terminal=True, width=120, height=50, _environ={}, markup=False)


def view_of(trial: Trial) -> LiveProgress:
    """The live view of a sweep in its eighth setting."""
    view = LiveProgress(console())
    view.plan(30, 0)
    for i in range(8):
        done = Trial("default", trial.shape, 2**i, 1, Phase.GRID, 300, 1, 1.0, 0.0, 60.0, "f")
        view.trial_started(done)
        view.trial_finished(done, {"output_throughput": 400.0 * (i + 1), "p99_ttft": 0.05 * 2**i})
    view.trial_started(trial)
    return view


async def once(port: int, tell: Callable[[TrialProgress], None] | None, trial: Trial) -> dict[str, float]:
    """One trial; `tell` is told how it stands, or nobody is."""
    target = Target(f"http://127.0.0.1:{port}/v1", "truth", "chat", dialect="vllm")
    records: list[Record] = []
    found = await run_trial(
        trial,
        target,
        random_prompts(trial.shape, 1),
        on_record=records.append,
        on_progress=tell,
        expected_e2e=ITL * TOKENS,
    )
    inside = [r for r in records if found.window.start <= r.sent < found.window.end and r.outcome is Outcome.OK]
    ttft = np.array([r.first - r.sent for r in inside if r.first is not None])
    tokens = sum(r.events for r in inside)
    cpu = (found.health.cpu_share or 0.0) * found.window.length
    return {
        "cpu": cpu / tokens,
        "p50": float(np.quantile(ttft, 0.5)),
        "p99": float(np.quantile(ttft, 0.99)),
        "rate": tokens / found.window.length,
    }


def pair(number: int, seconds: float) -> dict[str, float]:
    """Each quantity watched over unwatched, as a logarithm."""
    shape = Shape.of(256, TOKENS)
    trial = Trial("default", shape, STREAMS, 1, Phase.GRID, 1, 1, 1.0, seconds, 120.0, f"pair-{number}")
    found: dict[bool, dict[str, float]] = {}
    for watched in (True, False) if number % 2 else (False, True):
        view = view_of(trial)
        with TruthServer(ttft=0.02, itl=ITL) as server:
            found[watched] = run(once(server.port, view.tick if watched else None, trial))
        view.close()
    return {name: math.log(found[True][name] / found[False][name]) for name in QUANTITIES}


def ratio(logs: Sequence[float]) -> tuple[float, float, float]:
    """The geometric mean and the ends of its 95% interval (Student's t)."""
    middle = statistics.fmean(logs)
    reach = stats.t.ppf(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(middle), math.exp(middle - reach), math.exp(middle + reach)


def redraw() -> float:
    """Seconds one redraw takes, the median of many."""
    trial = Trial("default", Shape.of(256, TOKENS), STREAMS, 1, Phase.GRID, 300, 1, 1.0, 0.0, 60.0, "f")
    view, found = view_of(trial), []
    for i in range(200):
        view._drawn = 0.0  # as if the last redraw were long ago
        begin = time.perf_counter()
        view.tick(TrialProgress("window", 40.0 + i, 128, 200, 0, 2914.0, 0.31, 2.33))
        found.append(time.perf_counter() - begin)
    view.close()
    return statistics.median(found)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=5.0, help="the window of each trial")
    options = parser.parse_args()
    pairs = [pair(number, options.seconds) for number in range(options.pairs)]
    print(f"watched : unwatched, {options.pairs} pairs of {options.seconds:g} s at {STREAMS} streams")
    for name, words in QUANTITIES.items():
        middle, low, high = ratio([logs[name] for logs in pairs])
        verdict = "no cost is to be seen" if low <= 1 <= high else "a difference"
        print(f"{words:24s}{middle:7.4f}  [{low:.4f}, {high:.4f}]  {verdict}")
    took = redraw()
    print(f"one redraw{took * 1e3:21.3f} ms, twice a second: {2 * took:.3%} of the loop's time")


if __name__ == "__main__":
    main()
