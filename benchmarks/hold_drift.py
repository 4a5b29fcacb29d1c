"""How often does `frontier verify --for` call a steady server changed, and how soon does it know of
one that became slower?

    python -m benchmarks.hold_drift [--months 12] [--repeats 200]
    python -m benchmarks.hold_drift --creeps       holds of 8 to 60 windows whose latency creeps up

Latencies are drawn for each request, window by window, as a hold sees them: the percentile and the
usual request of one limited latency. Asked: one false alarm a month at most; +10% known within 30
minutes in 90 of 100.
"""

import argparse
import math
from collections.abc import Callable, Iterator

import numpy as np

from frontier.extras.verify.soak_watch import MONTH, LatencyWatch, threshold
from frontier.extras.verify.soak_windows import logarithms

CREEPS, HELD = (1.1, 1.2, 1.3, 1.56, 2.0), (10, 12, 14, 16, 30, 60)
"""Growths over a hold, from its first window to its last, and numbers of windows of 10 s."""
SPEEDS = (0.01, 0.03, 0.05)
"""Standard deviations (ln) of the speed from window to window of such a hold."""
Draw = Callable[[np.random.Generator, int], np.ndarray]
WINDOW = 60.0


def _stalling(rng: np.random.Generator, n: int) -> np.ndarray:
    values = np.exp(0.2 * rng.standard_normal(n))
    if rng.random() < 0.05:
        values[: n // 10] += 3.0
    return values


SERVERS: dict[str, tuple[int, float, Draw]] = {
    "lognormal 0.3, 1,000 a window, p99": (1000, 0.99, lambda rng, n: np.exp(0.3 * rng.standard_normal(n))),
    "lognormal 0.3, 100 a window, p99": (100, 0.99, lambda rng, n: np.exp(0.3 * rng.standard_normal(n))),
    "lognormal 0.6, 300 a window, p99": (300, 0.99, lambda rng, n: np.exp(0.6 * rng.standard_normal(n))),
    "lognormal 0.05, 1,000 a window, p95": (1000, 0.95, lambda rng, n: np.exp(0.05 * rng.standard_normal(n))),
    "Pareto 4, 1,000 a window, p99": (1000, 0.99, lambda rng, n: 1 + rng.pareto(4, n)),
    "Pareto 4, 100 a window, p99": (100, 0.99, lambda rng, n: 1 + rng.pareto(4, n)),
    "a stall of 1 s in one window of 20, 300 a window, p99": (300, 0.99, _stalling),
}


def windows(rng: np.random.Generator, server: str, times: float = 1.0) -> Iterator[tuple[float, float]]:
    """The two logarithms of each window of a server, all of whose latencies are so many times as
    long.
    """
    n, p, draw = SERVERS[server]
    while True:
        yield logarithms(times * draw(rng, n), p)


def watches() -> tuple[LatencyWatch, LatencyWatch]:
    limit = threshold(2 * MONTH / WINDOW)
    return LatencyWatch(limit), LatencyWatch(limit)


def false_alarms(server: str, months: float, seed: int = 1) -> int:
    """Alarms of a steady server in so many months."""
    alarms, pair = 0, watches()
    for number, both in zip(
        range(int(months * MONTH / WINDOW)), windows(np.random.default_rng(seed), server), strict=False
    ):
        grown = [w.add(x, number * WINDOW, (number + 1) * WINDOW) for w, x in zip(pair, both, strict=True)]
        alarms += any(grown)
    return alarms


def minutes_to_know(server: str, times: float, before: int = 60, seed: int = 1, most: float = 240.0) -> float:
    """Minutes until it is known that a server became slower; infinite after `most`."""
    rng, pair = np.random.default_rng(seed), watches()
    steady, slower = windows(rng, server), windows(rng, server, times)
    for number in range(before + int(most * 60 / WINDOW)):
        both = next(steady if number < before else slower)
        grown = [w.add(x, number * WINDOW, (number + 1) * WINDOW) for w, x in zip(pair, both, strict=True)]
        if any(grown) and number >= before:
            return (number + 1 - before) * WINDOW / 60
    return math.inf


def names(times: float, number: int, speed: float, seed: int) -> bool:
    """Whether a hold of so many windows of 10 s names a growth. Its latency creeps up by the factor
    `times`; each window has 40 requests, and a speed of its own.
    """
    rng, limit = np.random.default_rng([seed, number]), threshold(2 * MONTH / 10)
    pair = LatencyWatch(limit), LatencyWatch(limit)
    for i, more in enumerate(np.linspace(0, math.log(times), number)):
        values = np.exp(more + speed * rng.standard_normal() + 0.05 * rng.standard_normal(40))
        grown = [w.add(x, 10 * i, 10 * i + 10) for w, x in zip(pair, logarithms(values, 0.9), strict=True)]
        if any(grown):
            return True
    return False


def creeps(holds: int = 40, steady: int = 400) -> None:
    """Print how often a creep is named, and a steady latency falsely."""
    print("| speed varies by | growth over the hold | " + " | ".join(f"{n} windows" for n in HELD) + " |")
    print("|---|---|" + "--:|" * len(HELD))
    for speed in SPEEDS:
        for times, repeats in (*((times, holds) for times in CREEPS), (1.0, steady)):
            named = [sum(names(times, n, speed, seed) for seed in range(repeats)) for n in HELD]
            what = f"{times - 1:.0%}" if times > 1 else "none"
            print(f"| {speed:.0%} | {what} | {' | '.join(f'{n} of {repeats}' for n in named)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--months", type=float, default=12.0)
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--creeps", action="store_true", help="holds whose latency creeps up")
    given = parser.parse_args()
    if given.creeps:
        creeps()
        return
    print(f"{'server':<55} false alarms a month  +10%: known within 30 min  median  90th percentile")
    for server in SERVERS:
        alarms = false_alarms(server, given.months)
        minutes = [minutes_to_know(server, 1.1, seed=seed) for seed in range(given.repeats)]
        soon = np.mean(np.array(minutes) <= 30)
        middle, late = np.quantile(minutes, [0.5, 0.9], method="higher")
        print(f"{server:<55} {alarms / given.months:<21.2f} {soon:<25.0%} {middle:<7.0f} {late:.0f}", flush=True)


if __name__ == "__main__":
    main()
