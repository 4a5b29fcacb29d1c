"""Cases of `frontier workload`: metrics of one address behind which several replicas stand,
restarts, and logs in other units."""

import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from tests.cases.comparer import FAILED, YES, Case, Expected
from tests.cases.http_server import Out, Request
from tests.cases.situation import Situation

Law = Callable[[float], float]


def counted(start: float, per_second: float = 10.0, since: float = 0.0) -> Law:
    """A counter that stands at `start` in the moment `since` and grows."""
    return lambda t: start + int(per_second * (t - since))


A, B = counted(1_000), counted(90_000)
HISTOGRAMS = {
    "request_prompt_tokens": (300, (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)),
    "request_generation_tokens": (60, (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)),
    "time_to_first_token_seconds": (0.07, (0.01, 0.05, 0.1, 0.5)),
    "e2e_request_latency_seconds": (0.65, (0.3, 0.5, 0.8, 1.5)),
    "request_time_per_output_token_seconds": (0.012, (0.005, 0.01, 0.025)),
}


@dataclass
class Counters(Situation):
    """An engine of which only the metrics are read. `law` gives the requests that it has
    counted, of the seconds since the first reading and of the number of the reading or of the
    connection.
    """

    reports: ClassVar[tuple[str, ...]] = ("BerriAI/litellm #10595", "huggingface/inference-benchmarker #14")
    law: Callable[[float, int], float] = field(default=lambda t, _: A(t))
    by_connection: bool = False

    async def answer(self, request: Request, out: Out) -> None:
        if request.path != "/metrics":
            await out.whole(404, {"detail": "Not Found"})
            return
        self.begun = getattr(self, "begun", time.monotonic())
        number = request.connection if self.by_connection else self.scrapes
        self.scrapes += 1
        n = self.law(time.monotonic() - self.begun, number)
        await out.whole(200, "\n".join(self.lines(n)) + "\n", "text/plain; version=0.0.4")

    def lines(self, n: float) -> Iterator[str]:
        """The page of a replica that has counted so many requests."""
        for name, (value, bounds) in HISTOGRAMS.items():
            for bound in (*bounds, float("inf")):
                edge = "+Inf" if bound == float("inf") else f"{float(bound)}"
                yield f'vllm:{name}_bucket{{model_name="m",le="{edge}"}} {n if value <= bound else 0}'
            yield f'vllm:{name}_count{{model_name="m"}} {n}'
            yield f'vllm:{name}_sum{{model_name="m"}} {n * value}'


WATCH = (("workload", "{root}/metrics", "--over", "10s"),)
SEVERAL = Expected(
    (FAILED,),
    (),
    words=("several replicas", "frontier workload http"),
    not_words=(r"requests/s", "a server was restarted"),
)
RESTARTED = Expected((YES,), (), words=("at least", "lower bounds"), not_words=("replicas",))


def watched(name: str, law: Callable[[float, int], float], expected: Expected = SEVERAL, **how: Any) -> Case:
    """A case of watched counters."""
    return Case(name, lambda: Counters(law=law, **how), expected, commands=WATCH)


COUNTERS = (
    watched("replicas_by_turns", lambda t, n: (A, B)[n % 2](t)),
    watched("replicas_by_connections", lambda t, n: (A, B)[n % 2](t), by_connection=True),
    watched("replicas_at_random", lambda t, n: (A, B)[(n * n * 7 + n // 3) % 5 > 1](t)),
    watched("replica_for_two_seconds", lambda t, _: B(t) if 5 <= t < 7 else A(t)),
    watched("replica_for_good", lambda t, _: A(t) if t < 6 else B(t)),
    watched("restart", lambda t, _: A(t) if t < 6 else counted(0, since=6)(t), RESTARTED),
    watched("restart_not_at_zero", lambda t, _: A(t) if t < 6 else counted(400, since=6)(t), RESTARTED),
    watched("steady", lambda t, _: A(t), Expected((YES,), (), not_words=("at least", "restarted", "replicas"))),
)

# ---- logs: 600 requests, one a second, 400 in, 100 out, TTFT 0.18 s, E2E 2.4 s: 2.4 in flight

T0 = datetime(2026, 11, 24, 8, tzinfo=UTC)
TRUE = (r"in flight +2\.4", r"p50 TTFT +180 ms", r"p50 E2E +2\.40? s", r"concurrency: \[1, 2, 4, 8, 16, 32, 64\]")


def log(**of: Any) -> Callable[[], Mapping[str, bytes]]:
    """A log whose rows have these values beside their time and lengths."""

    def made() -> Mapping[str, bytes]:
        rows = (
            {"timestamp": (T0 + timedelta(seconds=i)).isoformat(), "prompt_tokens": 400, "completion_tokens": 100, **of}
            for i in range(600)
        )
        return {"log.jsonl": b"".join(json.dumps(row).encode() + b"\n" for row in rows)}

    return made


@dataclass
class Silent(Situation):
    """No server is asked."""

    reports: ClassVar[tuple[str, ...]] = ("DURATION of Envoy's access log in ms, total_duration of Ollama in ns",)


def logged(name: str, *options: str, words: tuple[str, ...] = TRUE, **of: Any) -> Case:
    """A case of a log."""
    command = (("workload", "log.jsonl", *options),)
    expected = Expected((YES,), (), words=words, not_words=(r"(?m)^(?!note:|# |  ).*2,400 s",))
    return Case(name, Silent, expected, commands=command, files=log(**of))


LOGS = (
    logged("log_in_ms", ttft=180, latency=2400, words=(*TRUE, "read as milliseconds", "latency=latency:s")),
    logged("log_in_s", ttft=0.18, latency=2.4),
    logged("log_in_ms_and_s", ttft=180, latency=2.4),
    logged("log_in_s_and_ms", ttft=0.18, latency=2400),
    logged("log_in_us", ttft=180_000, latency=2_400_000),
    logged("log_in_ns", ttft=180_000_000, latency=2_400_000_000),
    logged("log_unit_named", "--columns", "ttft=first:ms,latency=took:us", first=180, took=2_400_000),
    logged("log_unit_in_the_name", "--columns", "ttft=ttftMs,latency=took_us", ttftMs=180, took_us=2_400_000),
    logged("log_unit_in_the_value", ttft="180ms", latency="2.4s"),
)

# ---- files that are no log

PLANTED = ("my planted prompt", "sk-planted1234567890abcdef", "Alice Doe", "4111 1111", "a@b.example")
ROW = b"2026-11-24 08:00,my planted prompt,812,sk-planted1234567890abcdef,Alice Doe\n"


def refused(name: str, data: bytes, *words: str) -> Case:
    """A case of a file that is no log."""
    expected = Expected((2,), (), words=words, not_words=PLANTED)
    return Case(name, Silent, expected, commands=(("workload", "log.csv"),), files=lambda: {"log.csv": data})


FILES = (
    refused("no_header", ROW * 5, "no names of columns"),
    refused("utf16", ROW.decode().encode("utf-16"), "UTF-8"),
    refused(
        "odd_keys",
        b"\n".join(itertools.repeat(json.dumps(dict.fromkeys((*PLANTED, "took"), 1)).encode(), 5)),
        "'took'",
    ),
)

WORKLOADS = (*COUNTERS, *LOGS, *FILES)
