"""What the live view costs the event loop that measures: `python benchmarks/progress_cost.py`.

Prints what one redraw and one request's bookkeeping take, and the share of the loop's time that is. A redraw twice a
second is the only moment at which a read can be stamped late on account of the view, by at most the time it takes.
"""

import io
import random
import time
from collections.abc import Callable

from rich.console import Console

from frontier.measure.loop import Progress
from frontier.measure.sofar import SoFar
from frontier.model import Outcome, Phase, Record, Shape, Trial
from frontier.present.progress import LiveProgress

REQUESTS_PER_SECOND = 500.0
DRAWS_PER_SECOND = 2.0


def median_time(act: Callable[[], object], times: int) -> float:
    """Seconds one call takes, the median of some."""
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        act()
        found.append(time.perf_counter() - begin)
    return sorted(found)[len(found) // 2]


def main() -> None:
    """Measure and print."""
    rng = random.Random(1)
    so_far = SoFar(start=0.0)
    records = [
        Record(i, 0, 1.0, Outcome.OK, 2.0, 256, 64, first=1 + rng.lognormvariate(-2, 1), last=2.0, completion_tokens=64)
        for i in range(20_000)
    ]
    begin = time.perf_counter()
    for record in records:
        so_far.add(record)
    per_request = (time.perf_counter() - begin) / len(records)
    reading = median_time(lambda: (so_far.rate(9.0), so_far.ttft(0.5), so_far.ttft(0.99)), 200)

    console = Console(file=io.StringIO(), force_terminal=True, width=120, height=50, _environ={}, markup=False)
    view = LiveProgress(console)
    for i in range(8):
        trial = Trial("default", Shape.of(1024, 256), 2**i, 1, Phase.GRID, 300, 1, 1.0, 0.0, 60.0, "f")
        view.trial_started(trial, i + 1, 30)
        view.trial_finished(trial, {"output_throughput": 400.0 * (i + 1), "p99_ttft": 0.05 * 2**i})
    view.trial_started(trial, 9, 30)
    ticks = iter(range(10_000))

    def tick() -> None:
        view._drawn = 0.0  # as if the last redraw were long ago
        view.tick(Progress("window", 40.0 + next(ticks), 128, 200, 180, 0, 2914.0, 0.31, 2.33))

    drawing = median_time(tick, 200)
    view.close()
    share = DRAWS_PER_SECOND * (drawing + reading) + REQUESTS_PER_SECOND * per_request
    print(f"one redraw          {drawing * 1e3:8.3f} ms, {DRAWS_PER_SECOND:g} times a second")
    print(f"figures so far      {reading * 1e3:8.3f} ms, {DRAWS_PER_SECOND:g} times a second")
    print(f"one request's count {per_request * 1e6:8.3f} us, {REQUESTS_PER_SECOND:g} times a second")
    print(f"share of the loop   {share:8.3%}")


if __name__ == "__main__":
    main()
