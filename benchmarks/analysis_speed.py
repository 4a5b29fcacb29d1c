"""How long, and in how much memory, records become a point: `python benchmarks/analysis_speed.py
[REQUESTS] [TOKENS]`.

Records are generated as they are consumed (as a run directory is read), and the time of generating
them is measured on its own and taken off. The goal is 1,000,000 requests of 256 tokens in 60 s and
2 GB. Times are processor time of the one core used, so that other work on the machine does not
count.
"""

import random
import resource
import sys
import time
from collections.abc import Iterator

from frontier.core import laws
from frontier.core.decisions import Limit
from frontier.core.estimate import point
from frontier.core.from_records import window_data
from frontier.core.shapes import Shape
from frontier.core.trials import Measurement, Outcome, Phase, Record, Trial, Window

CONCURRENCY = 64


def records(requests: int, tokens: int, seed: int = 1) -> Iterator[Record]:
    """A closed loop of CONCURRENCY streams; gaps of 8..12 ms come from a pool, so that generating
    them is cheap.
    """
    rng = random.Random(seed)
    pool = [tuple(rng.randrange(8000, 12000) for _ in range(tokens - 1)) for _ in range(256)]
    lengths = [sum(gaps) * 1e-6 for gaps in pool]
    free = [i * tokens * 0.01 / CONCURRENCY for i in range(CONCURRENCY)]
    for index in range(requests):
        stream = index % CONCURRENCY
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


def main() -> None:
    """Print seconds and memory, and the ratio to the goal scaled to the number of tokens. Imports
    are not counted: a sweep pays them once.
    """
    laws.load()
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    tokens = int(sys.argv[2]) if len(sys.argv) > 2 else 256
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
