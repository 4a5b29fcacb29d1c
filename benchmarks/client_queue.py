"""How late a client process stamps events, by the work it has: a simulation of one event loop,
without a network.

usage: python -m benchmarks.client_queue [--event 5.0] [--wake 20] [--slice 100]

Streams get an event every ITL, out of step. The loop wakes, stamps and puts aside what is there,
does one slice of other work (parsing, preparing) and waits again. Where the core is shared, the
process has to wait for it now and then for as long as a time slice of the other. Shown is how long
events wait for their stamp.
"""

import argparse
import random

import numpy as np

SECONDS = 3.0


def waits(streams: int, itl: float, event: float, wake: float, piece: float, taken: float, span: float) -> np.ndarray:
    """Seconds that each event waits; the core is away for `span` seconds at a time, a share `taken`
    of all time.
    """
    rng = random.Random(1)
    phases = np.array([rng.random() * itl for _ in range(streams)])
    arrivals = np.sort((phases[:, None] + np.arange(int(SECONDS / itl)) * itl).ravel())
    away, gap = (span, span * (1 - taken) / taken) if taken else (0.0, float("inf"))
    now, i, next_away = 0.0, 0, rng.random() * gap if taken else float("inf")
    stamps = np.empty_like(arrivals)

    def work(now: float, seconds: float, next_away: float) -> tuple[float, float]:
        """The time when so much work is done, and when the core is next taken away."""
        while now + seconds > next_away:
            seconds -= max(0.0, next_away - now)
            now = max(now, next_away) + away
            next_away = now + gap * rng.uniform(0.5, 1.5)
        return now + seconds, next_away

    while i < len(arrivals):
        now, next_away = work(max(now, arrivals[i]), wake, next_away)
        there = int(np.searchsorted(arrivals, now, "right"))
        while i < there:
            now, next_away = work(now, event, next_away)
            stamps[i] = now
            i += 1
        now, next_away = work(now, piece, next_away)
    found: np.ndarray = stamps - arrivals
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--event", type=float, default=5.0, help="microseconds to stamp an event and put it aside")
    parser.add_argument("--wake", type=float, default=20.0, help="microseconds of a wake-up")
    parser.add_argument("--slice", type=float, default=100.0, help="microseconds of other work after each wake-up")
    parser.add_argument("--span", type=float, default=4.0, help="milliseconds for which a shared core is taken away")
    options = parser.parse_args()
    print("| streams | ITL ms | events/s | core | p50 ms | p99 ms | most ms |\n|--:|--:|--:|---|--:|--:|--:|")
    for streams, itl in ((128, 0.020), (128, 0.002), (512, 0.020), (512, 0.010), (512, 0.006)):
        for name, taken in (("its own", 0.0), ("a quarter taken", 0.25), ("half taken", 0.5)):
            costs = (options.event * 1e-6, options.wake * 1e-6, options.slice * 1e-6)
            late = waits(streams, itl, *costs, taken, options.span * 1e-3) * 1e3
            cells = (f"{np.quantile(late, 0.5):.2f}", f"{np.quantile(late, 0.99):.2f}", f"{late.max():.1f}")
            print(
                f"| {streams} | {itl * 1e3:g} | {streams / itl:,.0f} | {name} | " + " | ".join(cells) + " |", flush=True
            )


if __name__ == "__main__":
    main()
