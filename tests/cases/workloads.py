"""Cases of `frontier workload`: metrics of one address behind which several replicas stand,
restarts, and logs in other units."""

import itertools
import json
import random
import re
import time
import urllib.parse
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
OLD = 2_000.0
"""Seconds before the first reading at which an older process began; the other one began 1,000
before."""
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
    begun_before: Law | None = None
    """How long before the first reading the process began that answers; None: it does not say."""

    async def answer(self, request: Request, out: Out) -> None:
        if request.path != "/metrics":
            await out.whole(404, {"detail": "Not Found"})
            return
        self.begun = getattr(self, "begun", time.monotonic())
        number = request.connection if self.by_connection else self.scrapes
        self.scrapes += 1
        passed = time.monotonic() - self.begun
        lines = [*self.lines(self.law(passed, number))]
        if self.begun_before is not None:
            lines.append(f"process_start_time_seconds {self.boot + 1000 - self.begun_before(passed):.0f}")
        await out.whole(200, "\n".join(lines) + "\n", "text/plain; version=0.0.4")

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


def _restarted(t: float) -> float:
    return 500 + int(10 * t) if t < 5 else int(10 * (t - 5))


COUNTERS = (
    watched("replicas_by_turns", lambda t, n: (A, B)[n % 2](t)),
    watched("replicas_by_connections", lambda t, n: (A, B)[n % 2](t), by_connection=True),
    watched("replicas_at_random", lambda t, n: (A, B)[(n * n * 7 + n // 3) % 5 > 1](t)),
    watched("replica_for_two_seconds", lambda t, _: B(t) if 5 <= t < 7 else A(t)),
    watched("replica_for_good", lambda t, _: A(t) if t < 6 else B(t)),
    watched("three_replicas_one_restarted", lambda t, n: (A(t), B(t), _restarted(t))[n % 3]),
    watched(
        "an_older_process_with_more",
        lambda t, _: A(t) if t < 6 else A(t) + 40,
        begun_before=lambda t: 1_000.0 if t < 6 else OLD,
    ),
    watched(
        "an_older_process_with_less",
        lambda t, _: A(t) if t < 6 else A(t) - 600,
        begun_before=lambda t: 1_000.0 if t < 6 else OLD,
    ),
    watched("an_older_process_in_between", lambda t, _: A(t) if t < 4 or t >= 7 else A(t) - 600),
    watched(
        "one_process_that_says_when_it_began",
        lambda t, _: A(t),
        Expected((YES,), (), not_words=("at least", "restarted", "replicas")),
        begun_before=lambda t: 1_000.0,
    ),
    watched("restart", lambda t, _: A(t) if t < 6 else counted(0, since=6)(t), RESTARTED),
    watched("restart_not_at_zero", lambda t, _: A(t) if t < 6 else counted(400, since=6)(t), RESTARTED),
    watched("steady", lambda t, _: A(t), Expected((YES,), (), not_words=("at least", "restarted", "replicas"))),
)

# ---- a Prometheus


MEANS = {"vllm:request_prompt_tokens": 300.0, "vllm:request_generation_tokens": 60.0}
MEANS |= {"vllm:time_to_first_token_seconds": 0.07, "vllm:e2e_request_latency_seconds": 0.65}


@dataclass
class Scraped(Situation):
    """A Prometheus of two days in which a server gets a request a second, whose counters fell
    `falls` times in the busiest hour.
    """

    reports: ClassVar[tuple[str, ...]] = ("BerriAI/litellm #10595",)
    falls: int = 0

    async def answer(self, request: Request, out: Out) -> None:
        where, _, words = request.path.partition("?")
        asked = dict(urllib.parse.parse_qsl(words))
        query = asked.get("query", "")
        match = re.search(r"increase\((\S+?)(_bucket|_sum|_count)\{.*\}\[(\d+)s\]\)", query)
        result: list[dict[str, Any]] = []
        if "resets(" in query:
            result = [{"metric": {}, "value": [0, str(self.falls)]}]
        elif match is not None and (mean := MEANS.get(match[1])) is not None:
            grew = float(match[3]) * (mean if match[2] == "_sum" else 1.0)
            result = self.series(where, asked, match[2], mean, grew)
        await out.whole(200, {"status": "success", "data": {"result": result}})

    def series(self, where: str, asked: Mapping[str, str], part: str, mean: float, grew: float) -> list[dict[str, Any]]:
        """The answer: at each time of a range, how many series there are, or each of them."""
        if where.endswith("query_range"):
            start, end, step = (float(asked[key]) for key in ("start", "end", "step"))
            return [{"values": [[start + i * step, str(grew)] for i in range(int((end - start) / step) + 1)]}]
        if asked["query"].startswith("count("):
            return [{"metric": {}, "value": [0, "1"]}]
        labels = [{"le": str(2 * mean)}, {"le": "+Inf"}] if part == "_bucket" else [{}]
        return [{"metric": {"model_name": "m", "pod": "a", **each}, "value": [0, str(grew)]} for each in labels]


def scraped(name: str, falls: int, expected: Expected) -> Case:
    """A case of what a Prometheus kept."""
    command = (("workload", "--prometheus", "{root}", "--range", "2d"),)
    return Case(name, lambda: Scraped(falls=falls), expected, commands=command)


KEPT = (
    scraped("prometheus_flaps", 57, Expected((FAILED,), (), words=("scrape each replica",), not_words=("requests/s",))),
    scraped("prometheus_one_restart", 1, RESTARTED),
    scraped("prometheus_steady", 0, Expected((YES,), (), not_words=("at least", "lower bounds", "each replica"))),
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

# ---- a rush, and lengths that go together


def arrivals(*rates: tuple[float, float, float]) -> Callable[[], Mapping[str, bytes]]:
    """A log of Poisson arrivals of 3 to 4 s, so many a second between two hours of the day."""

    def made() -> Mapping[str, bytes]:
        rng, rows = random.Random(8), []
        for begin, end, rate in rates:
            hour = begin
            while (hour := hour + rng.expovariate(rate) / 3600) < end:
                at = T0.replace(hour=0) + timedelta(hours=hour)
                took = {"ttft": 0.18, "latency": round(rng.uniform(3, 4), 3)}
                rows.append({"timestamp": at.isoformat(), "prompt_tokens": 400, "completion_tokens": 100, **took})
        return {"log.jsonl": b"".join(json.dumps(row).encode() + b"\n" for row in rows)}

    return made


def rush(name: str, begin: float, when: str, rate: str = r"1\.[23]\d*") -> Case:
    """A case of an hour with eight times the requests of those around it."""
    rates = ((begin - 1.5, begin, 0.15), (begin, begin + 1, 1.25), (begin + 1, begin + 2.5, 0.15))
    words = (
        rf"the hour from [^\n]*{when}",
        rf"{rate} requests/s",
        r"in flight +4\.[2-6]",
        r"arrivals: (poisson|\{gamma: \{cv: (0\.(8[5-9]|9\d*)|1|1\.[0-2]\d*)\}\})",
    )
    expected = Expected((YES,), (), words=words)
    return Case(name, Silent, expected, commands=(("workload", "log.jsonl"),), files=arrivals(*rates))


RUSHES = (
    rush("rush_from_half_past", 8.5, "08:30"),
    rush("rush_from_8_32", 8.533, "08:3[05]"),
    rush("rush_over_midnight", 23.5, "23:30"),
    Case(
        "burst_of_three_minutes",
        Silent,
        Expected((YES,), (), words=(r"cv: ([3-9]|2\.[5-9]|\d\d)",)),
        commands=(("workload", "log.jsonl"),),
        files=arrivals((7, 8, 0.5), (8, 8.05, 8.0), (8.05, 10, 0.5)),
    ),
)

PAIRS = ((4_096, 64), (3_500, 150), (512, 400))
"""Prompts and answers of a service: the long prompts have the short answers."""
OPEN = ("edge: about c=", "times that of the pairs here", "independent", "sorted", "reversed", "A log of the requests")


@dataclass
class GoTogether(Counters):
    """Counters of lengths that go together."""

    reports: ClassVar[tuple[str, ...]] = ("vllm-project/vllm, the histograms of its metrics",)

    def lines(self, n: float) -> Iterator[str]:
        lengths = {"request_prompt_tokens": 0, "request_generation_tokens": 1}
        for name, (value, bounds) in HISTOGRAMS.items():
            side = lengths.get(name)
            values = [value] if side is None else [pair[side] for pair in PAIRS]
            for bound in (*bounds, float("inf")):
                edge = "+Inf" if bound == float("inf") else f"{float(bound)}"
                share = sum(each <= bound for each in values) / len(values)
                yield f'vllm:{name}_bucket{{model_name="m",le="{edge}"}} {n * share}'
            yield f'vllm:{name}_count{{model_name="m"}} {n}'
            yield f'vllm:{name}_sum{{model_name="m"}} {n * sum(values) / len(values)}'


JOINT = (
    Case("lengths_go_together", GoTogether, Expected((YES,), (), words=OPEN), commands=WATCH),
    Case(
        "lengths_in_a_log",
        Silent,
        Expected((YES,), (), not_words=("edge: about c=", "A log of the requests")),
        commands=(("workload", "log.jsonl"),),
        files=log(ttft=0.18, latency=2.4),
    ),
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

WORKLOADS = (*COUNTERS, *KEPT, *LOGS, *RUSHES, *JOINT, *FILES)
