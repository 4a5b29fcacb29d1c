"""What the sweep's own process has to do where many client processes send the load: a simulation
with real records.

usage: python -m benchmarks.coordinator [--streams 100000] [--workers 34] [--tokens 256] [--pace 20]
[--rtt 4]

The workers are simulated: each answers after a round trip, its clock is anywhere, and it hands over
as many records as its share of the streams would end, pickled as over a socket. Real are the
placing of the clocks, the rules of the window, and the reading, merging and writing of every
record; their CPU time and delays are what is shown.
"""

import argparse
import asyncio
import itertools
import pickle
import random
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from frontier.client.ask.prompts import PromptPlan
from frontier.client.ask.target import Target
from frontier.client.http.http_client import run
from frontier.client.load.rules import StreamStatus, WindowState
from frontier.client.load.shard import ASK_EVERY, ShardReport, ShardResult, WorkerInfo, run_sharded
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import ClientHealth, Outcome, Phase, Record, Trial
from frontier.store.records import encode_record


@dataclass
class SimulatedWorker:
    """A worker with `streams` streams, each of which ends a request every `e2e` seconds."""

    name: str
    streams: int
    e2e: float
    rtt: float
    records: Iterator[Record]
    off: float = field(default_factory=lambda: random.uniform(-600.0, 600.0))
    zero: float = 0.0
    ended: int = 0
    pickling: float = 0.0
    asked: list[float] = field(default_factory=list)

    async def call(self, method: str, *arguments: Any) -> Any:
        """The answer, after a round trip with some jitter, its halves unequal."""
        await asyncio.sleep(self.rtt * random.uniform(0.4, 0.8))
        answer = getattr(self, method)(*arguments)
        await asyncio.sleep(self.rtt * random.uniform(0.4, 0.8))
        before = time.process_time()
        data = pickle.dumps(answer)
        self.pickling += time.process_time() - before
        return pickle.loads(data)

    def info(self) -> WorkerInfo:
        return WorkerInfo()

    def prepare(self, _: object) -> None:
        pass

    def time(self) -> float:
        return time.perf_counter() + self.off

    def start(self, zero: float) -> None:
        self.zero = zero

    def exchange(self, state: WindowState) -> ShardReport:
        now = self.time() - self.zero
        self.asked.append(now)
        ended = max(self.ended, int(self.streams * now / self.e2e))
        new, self.ended = ended - self.ended, ended
        status = StreamStatus(
            now,
            self.streams if now > self.e2e else 0,
            ended,
            window_sent=ended,
            in_flight=self.streams,
            waiting=state.end is None or now < state.end + self.e2e,
            succeeded=ended,
            e2e_sum=ended * self.e2e,
        )
        records = tuple(itertools.islice(self.records, new))
        return ShardResult(status, records, ClientHealth(), 0.0) if state.over else ShardReport(status, records)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=34)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--pace", type=float, default=20.0, help="tokens per second of a stream")
    parser.add_argument("--rtt", type=float, default=4.0, help="milliseconds, of whole ones")
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    e2e, shape = options.tokens / options.pace, Shape.of(1024, options.tokens)
    gap = int(1e6 / options.pace)
    record = Record(
        0,
        0,
        0.0,
        Outcome.OK,
        e2e,
        1024,
        options.tokens,
        first=0.1,
        last=e2e,
        prompt_tokens=1024,
        completion_tokens=options.tokens,
        events=options.tokens,
        reads=options.tokens,
        status=200,
        gaps=tuple(gap + random.randrange(-999, 999) for _ in range(options.tokens - 2)),
    )
    line = encode_record(record)
    # Different objects, also their gaps: pickle would write one of them only once.
    copies = [replace(record, index=i, gaps=(*record.gaps, gap)) for i in range(2_000)]
    workers = [
        SimulatedWorker(
            f"worker {i}",
            len(range(i, options.streams, options.workers)),
            e2e,
            options.rtt / 1e3,
            itertools.cycle(copies),
        )
        for i in range(options.workers)
    ]
    trial = Trial("scale", shape, options.streams, 1, Phase.SCAN, 1, 7, 0.5, options.seconds, 600.0, "scale")
    target, count = Target("http://127.0.0.1:1/v1", "m", "chat", dialect="vllm"), 0

    async def go() -> Any:
        with tempfile.TemporaryFile("wb") as file:

            def put(taken: Record) -> None:
                nonlocal count
                count += 1
                file.write(encode_record(taken))

            return await run_sharded(trial, target, PromptPlan(shape, 1), workers, on_record=put)

    began, cpu = time.perf_counter(), time.process_time()
    found = run(go())
    pickling = sum(worker.pickling for worker in workers)  # done by the workers themselves
    cpu, took = time.process_time() - cpu - pickling, time.perf_counter() - began
    loaded = max(worker.asked[-1] for worker in workers)
    late = [b - a - ASK_EVERY for worker in workers for a, b in zip(worker.asked, worker.asked[1:], strict=False)]
    bounds = [facts.clock_bound for facts in found.workers]
    errors = [abs(facts.clock_offset - worker.off) for facts, worker in zip(found.workers, workers, strict=True)]
    print(f"{options.workers} workers, {options.streams:,} streams, {options.streams * options.pace:,.0f} tokens/s")
    print(f"records          {count:,} of {len(line):,} bytes, {count / loaded:,.0f} a second")
    print(f"CPU              {cpu / loaded:.0%} of a core while under load ({cpu:.1f} s)")
    mean = sum(late) / len(late)
    print(f"asked every      {ASK_EVERY * 1e3:.0f} ms + {mean * 1e3:.1f} ms, at most + {max(late) * 1e3:.0f} ms")
    print(f"clocks           known within {max(bounds) * 1e3:.2f} ms; really off by {max(errors) * 1e3:.2f} ms at most")
    print(f"beside the load  {took - loaded:.2f} s: getting ready and placing the clocks, twice")


if __name__ == "__main__":
    main()
