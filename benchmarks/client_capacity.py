"""What the load client costs: CPU microseconds per event and per request, events per second,
memory.

usage: python -m benchmarks.client_capacity [--streams 128] [--tokens 250] [--seconds 4] [--repeats
3]

`client` is a whole trial (prompts, stamps, reading, records) against the truth server in a process
of its own; `floor` is a bare asyncio protocol on uvloop that stamps and appends: no Python client
can be below it. Waking up costs more than anything else, so an event is the cheaper the more of
them there are. CPU time is the client process's. Floor and client are measured in turn, so that a
slow minute of the machine hits both; shown are the least of the repeats, and of the ratio the
median of the pairs with its range. The last row, one token a request and no delay, is what a
request costs.
"""

import argparse
import asyncio
import json
import resource
import statistics
import time
from collections.abc import Coroutine
from multiprocessing import get_context
from typing import Any, cast

from benchmarks.truth import TruthServer
from frontier.client import run_trial
from frontier.client.ask.prompts import random_prompts
from frontier.client.ask.target import Target
from frontier.client.http.http_client import run
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Outcome, Phase, Record, Trial

ISL = 256


class Floor(asyncio.Protocol):
    """Stamps and appends, and asks again at the end of each answer."""

    done = 0

    def __init__(self, tokens: int) -> None:
        body = {"messages": [{"role": "user", "content": "w " * ISL}], "max_tokens": tokens, "stream": True}
        text = json.dumps(body).encode()
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
        self.request = head % len(text) + text
        self.stamps: list[float] = []
        self.reads: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self.stamps.append(time.perf_counter())
        self.reads.append(data)
        if data.endswith(b"0\r\n\r\n"):
            Floor.done += 1
            self.stamps, self.reads = [], []
            self.transport.write(self.request)


async def floor(port: int, streams: int, tokens: int, itl: float, seconds: float) -> dict[str, float]:
    loop = asyncio.get_running_loop()
    for _ in range(streams):
        await loop.create_connection(lambda: Floor(tokens), "127.0.0.1", port)
        # Out of step, as real streams are: uvloop's timers count whole milliseconds, so the rest is
        # slept through.
        await asyncio.sleep(0)
        time.sleep(itl * tokens / streams)  # noqa: ASYNC251 - nothing is measured yet
    await asyncio.sleep(1)
    before, began, cpu = Floor.done, time.perf_counter(), time.process_time()
    await asyncio.sleep(seconds)
    events = (Floor.done - before) * tokens
    return {"us": (time.process_time() - cpu) / max(1, events) * 1e6, "rate": events / (time.perf_counter() - began)}


async def client(port: int, streams: int, tokens: int, itl: float, seconds: float) -> dict[str, float]:
    target = Target(f"http://127.0.0.1:{port}/v1", "truth", "chat", dialect="vllm")
    shape = Shape.of(ISL, tokens)
    trial = Trial("bench", shape, streams, 0, Phase.GRID, 1, 1, 0.5, seconds, 120.0, "bench")
    records: list[Record] = []
    found = await run_trial(
        trial, target, random_prompts(shape, 1), on_record=records.append, expected_e2e=max(0.05, itl * tokens)
    )
    window, health = found.window, found.health
    assert all(r.outcome in (Outcome.OK, Outcome.CANCELLED) for r in records)
    inside = [r for r in records if window.start <= r.end < window.end]
    events = sum(r.events for r in inside)
    cpu = (health.cpu_share or 0.0) * window.length
    return {
        "us": cpu / max(1, events) * 1e6,
        "rate": events / window.length,
        "request_us": cpu / max(1, len(inside)) * 1e6,
        "lag_ms": (health.loop_lag_p99 or 0.0) * 1e3,
        "cpu": health.cpu_share or 0.0,
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def row(kind: str, streams: int, tokens: int, itl: float, seconds: float) -> dict[str, float]:
    with TruthServer(ttft=0.02, itl=itl) as server:
        work: dict[str, Any] = {"floor": floor, "client": client}
        coroutine: Coroutine[Any, Any, dict[str, float]] = work[kind](server.port, streams, tokens, itl, seconds)
        return run(coroutine)


PACES = (0.020, 0.005, 0.002, 0.001)
HEADS = (
    "events/s",
    "floor µs/event",
    "client µs/event",
    "client : floor",
    "µs/request",
    "CPU",
    "lag p99 ms",
    "RSS MiB",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=250)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()

    def measured(kind: str, tokens: int, itl: float) -> dict[str, float]:
        with get_context("spawn").Pool(1) as pool:
            return pool.apply(row, (kind, options.streams, tokens, itl, options.seconds))

    print("| tokens | ITL ms | " + " | ".join(HEADS) + " |\n" + "|--:" * (2 + len(HEADS)) + "|")
    for tokens, itl in [*((options.tokens, itl) for itl in PACES), (1, 0.0)]:
        pairs = [[measured(kind, tokens, itl) for kind in ("floor", "client")] for _ in range(options.repeats)]
        floor, client = (min(each, key=lambda r: r["us"]) for each in zip(*pairs, strict=True))
        ratios = sorted(b["us"] / a["us"] for a, b in pairs)
        ratio = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        cells = (
            f"{client['rate']:,.0f}",
            f"{floor['us']:.1f}",
            f"{client['us']:.1f}",
            ratio,
            f"{client['request_us']:,.0f}",
            f"{client['cpu']:.0%}",
            f"{client['lag_ms']:.2f}",
            f"{client['rss_mb']:.0f}",
        )
        print(f"| {tokens} | {itl * 1e3:g} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
