"""Cases of failing requests: nothing that was measured is thrown away, and the answer has the
server's words."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from typing import Any

from tests.cases import situations as s
from tests.cases.allowed import MEETS, NATURAL, NEVER_MEETS
from tests.cases.comparer import FAILED, NO, UNPROVEN, YES, Case, Expected, Seen
from tests.cases.http_server import Out, Request
from tests.cases.situation import Call, Refused, Situation

LENGTH = 80
"""Words of a trial's prompt (`COUNTED`): other requests are served."""


# ---- a setting at which everything fails


@dataclass
class SharedContext(Situation):
    """llama-server whose slots share one context: when it is full all answers in flight end."""

    reports = ("ggml-org/llama.cpp #23652",)
    dialect: str = "llamacpp"
    context: int = 700

    def __post_init__(self) -> None:
        super().__post_init__()
        self.used: dict[int, int] = {}
        self.ended: set[int] = set()

    def broken(self, call: Call, chunk: int) -> dict[str, Any] | None:
        self.used[call.number] = call.true.prompt + call.true.tokens
        if sum(self.used.values()) > self.context:
            self.ended |= self.used.keys()
        if call.number not in self.ended:
            return None
        return {"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}

    async def stream(self, call: Call, out: Out) -> None:
        try:
            await super().stream(call, out)
        finally:
            self.used.pop(call.number, None)


@dataclass
class FailsAbove(Situation):
    """Once more than `most` requests are inside, all fail to the end of the trial: with a status or
    with an error in a 200 stream (`status` 200).
    """

    reports = (
        "aws-samples/sample-apj-sup-sa #181",
        "icereed/paperless-gpt #814",
        "Azure/azure-openai-benchmark #31",
    )
    dialect: str = "openai"
    chat_only: bool = True
    most: int = 5
    status: int = 500
    words: str = "the engine core has died"
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.dead, self.failed = False, set[int]()

    def pages(self) -> dict[str, Any]:
        self.dead = False  # between trials the list of models is asked for
        return super().pages()

    def refusal(self, call: Call) -> Refused | None:
        self.dead = self.dead or self.inside > self.most
        if call.true.prompt != LENGTH or not self.dead:
            return None
        self.failed.add(call.number)
        return None if self.status == 200 else Refused(self.status, {"error": self.error()}, self.headers)

    def broken(self, call: Call, chunk: int) -> dict[str, Any] | None:
        return self.error() if call.number in self.failed else None

    def error(self) -> dict[str, Any]:
        """What is said of it."""
        return {"message": self.words, "type": "server_error", "code": self.status}


@dataclass
class Quota(Situation):
    """So many tokens in each period; beyond them 429 until it is over, as Azure does."""

    reports = ("icereed/paperless-gpt #814", "Azure/azure-openai-benchmark #31")
    dialect: str = "openai"
    chat_only: bool = True
    tokens: int = 9_000
    period: float = 8.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.since, self.spent = 0.0, 0

    def refusal(self, call: Call) -> Refused | None:
        now, cost = time.monotonic(), call.true.prompt + call.true.asked
        if now - self.since >= self.period:
            self.since, self.spent = now, 0
        if self.spent + cost <= self.tokens:
            self.spent += cost
            return None
        left = int(self.period - (now - self.since)) + 1
        message = f"Your requests have exceeded the token rate limit. Please retry after {left} seconds."
        return Refused(429, {"error": {"code": "429", "message": message}}, {"Retry-After": str(left)})


@dataclass
class GatewayRestarts(Situation):
    """A gateway answers everything with 503 for a while from the trials' request `at` on."""

    reports = ("sgl-project/genai-bench #155", "tenstorrent/tt-inference-server #4681")
    dialect: str = "openai"
    chat_only: bool = True
    at: int = 20
    seconds: float = 12.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.trials, self.since = 0, 0.0

    @property
    def down(self) -> bool:
        """Whether it is away just now."""
        return bool(self.since) and time.monotonic() - self.since < self.seconds

    def refusal(self, call: Call) -> Refused | None:
        self.trials += call.true.prompt == LENGTH
        if self.trials >= self.at and not self.since:
            self.since = time.monotonic()
        return Refused(503, UPSTREAM) if self.down else None

    async def answer(self, request: Request, out: Out) -> None:
        if request.method == "GET" and self.down:
            await out.whole(503, UPSTREAM)
        else:
            await super().answer(request, out)


UPSTREAM = {"error": {"message": "upstream connect error or disconnect/reset before headers", "type": "upstream"}}


# ---- some requests fail


@dataclass
class Blips(Situation):
    """503 for `seconds` of each `period`, the first time `begin` seconds after the first request of
    a trial.
    """

    reports = ("sgl-project/genai-bench #155", "tenstorrent/tt-inference-server #4681")
    seconds: float = 1.0
    period: float = 30.0
    begin: float = 3.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.begun = 0.0

    def refusal(self, call: Call) -> Refused | None:
        if call.true.prompt != LENGTH:
            return None
        self.begun = self.begun or time.monotonic()
        passed = time.monotonic() - self.begun - self.begin
        return Refused(503, UPSTREAM) if passed >= 0 and passed % self.period < self.seconds else None


@dataclass
class AtRandom(Situation):
    """A share of requests is refused with a status, or (0) its connection is reset midway."""

    reports = ("sgl-project/genai-bench #155", "aws-samples/sample-apj-sup-sa #181")
    dialect: str = "openai"
    chat_only: bool = True
    share: float = 0.04
    status: int = 429

    def refusal(self, call: Call) -> Refused | None:
        if not (self.status and self.struck(call)):
            return None
        return Refused(self.status, {"error": {"message": "Too Many Requests, slow down", "type": "rate_limit_error"}})

    def struck(self, call: Call) -> bool:
        """Whether it fails."""
        return call.true.prompt == LENGTH and (call.number * 0.6180339887) % 1 < self.share

    async def hold(self, call: Call, chunk: int) -> float:
        if not self.status and chunk == 8 and self.struck(call):
            raise ConnectionResetError
        return 0.0


@dataclass
class Gateway(s.AtMost):
    """A gateway that refuses more than `most` requests at once, with a `Retry-After` that is not in
    seconds, or that is longer than a window.
    """

    reports = ("sgl-project/genai-bench #155", "Azure/azure-openai-benchmark #31", "Azure/azure-sdk-for-python #31004")
    most: int = 5
    status: int = 429
    after: str = ""

    def refusal(self, call: Call) -> Refused | None:
        refused = super().refusal(call)
        if refused is None:
            return None
        date = formatdate(time.time() + 2, usegmt=True)
        headers = {"ms": {"retry-after-ms": "800"}, "date": {"Retry-After": date}, "long": {"Retry-After": "20"}}
        return Refused(self.status, refused.body, headers.get(self.after, {}))


@dataclass
class BareErrors(AtRandom):
    """An error in the stream that no event calls so: FastAPI's detail, then the end."""

    share: float = 0.1

    def refusal(self, call: Call) -> Refused | None:
        return None

    async def stream(self, call: Call, out: Out) -> None:
        if not self.struck(call):
            await super().stream(call, out)
            return
        await out.begin(self.kind)
        for tree in (self.piece(call, 0, 1, last=False), {"detail": "the worker has died"}, "[DONE]"):
            await out.chunk(self.framed(tree))
        await out.end()


# ---- requests without an end


@dataclass
class Hangs(Situation):
    """Each `every`-th request of a trial falls silent for good while more than `above` are inside:
    before its headers, behind them or behind three tokens.
    """

    reports = ("vllm-project/vllm #41402", "vllm-project/vllm #40340")
    every: int = 60
    above: int = 0
    where: str = "headers"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.trials = 0
        self.silent: set[int] = set()

    def refusal(self, call: Call) -> Refused | None:
        self.trials += call.true.prompt == LENGTH
        if call.true.prompt == LENGTH and self.trials % self.every == 0 and self.inside > self.above:
            self.silent.add(call.number)
        return None

    async def stream(self, call: Call, out: Out) -> None:
        if call.number not in self.silent:
            await super().stream(call, out)
            return
        if self.where != "nothing":
            await out.begin(self.kind)
        for number in range(3 if self.where == "three" else 0):
            await out.chunk(self.framed(self.piece(call, number, 1, last=False)))
        while not out.gone:  # noqa: ASYNC110 - the connection has no event
            await asyncio.sleep(0.05)


@dataclass
class KeptOpen(Hangs):
    """Requests that fall silent, whose connection a gateway keeps open: with comments, or with
    `events` without text.
    """

    events: bool = False

    async def stream(self, call: Call, out: Out) -> None:
        if call.number not in self.silent:
            await super().stream(call, out)
            return
        await out.begin(self.kind)
        empty = self.framed(self._event(call, {"content": ""}, 0))
        while not out.gone:
            await asyncio.sleep(1.0)
            await out.chunk(empty if self.events else ": keep-alive\n\n")


@dataclass
class Slow(Situation):
    """Each `every`-th request of a trial waits for its first token for `seconds`, and comes."""

    reports = ("vllm-project/vllm #41402",)
    every: int = 60
    seconds: float = 6.0

    async def hold(self, call: Call, chunk: int) -> float:
        waits = chunk == 0 and call.true.prompt == LENGTH and call.number % self.every == 0
        return self.seconds if waits else 0.0


# ---- what is expected


def error_rate(least: float, concurrency: int, *words: str) -> Callable[[Seen], list[str]]:
    """The point has an error rate of at least so much, and each look has its failures' words."""

    def check(seen: Seen) -> list[str]:
        point = seen.point(concurrency)
        rate = (point.get("metrics", {}).get("error_rate") or {}).get("value")
        wrong = [] if rate is not None and rate >= least else [f"error rate {rate} at c={concurrency}"]
        names = ("show -v", "solve --json", "show --json")
        texts = [*zip(names, (look.out for look in seen.looks), strict=False)]
        texts += [(page.name, page.read_text()) for page in seen.run.rglob("*.html")]
        return wrong + [f"{word!r} is not in {name}" for name, text in texts for word in words if word not in text]

    return check


NOT_LOST = (
    *("add higher concurrencies", "had no room", "server was lost", "no trial was finished"),
    "cut off by the client",
)
AND_REPORT = (("sweep", "{config}", "-o", "{run}"), ("report", "{run}"))
TWO = {"concurrency": "[4, 8]"}


def all_fail(
    name: str, situation: Callable[[], Situation], words: str, config: Mapping[str, str] | None = None, **more: Any
) -> Case:
    """A case of a setting c=8 at which everything fails, beside c=4."""
    expected = Expected((YES,), ("meets",), words=("Run at concurrency 4",), not_words=NOT_LOST, counted=True)
    rate = error_rate(0.7, 8, words)

    def check(seen: Seen) -> list[str]:
        return rate(seen) + ([] if seen.point(8).get("valid") else ["c=8 is excluded, and violates"])

    return Case(name, situation, expected, TWO | dict(config or {}), check=check, **more)


EXCEEDED = "Context size has been exceeded"
ALL_FAIL = (
    all_fail("shared_context", SharedContext, EXCEEDED, gate=True, commands=AND_REPORT),
    all_fail("shared_context_three", SharedContext, EXCEEDED, {"concurrency": "[4, 8, 10]"}),
    all_fail("fails_500_above", FailsAbove, "the engine core has died", NATURAL),
    all_fail("fails_in_the_stream_above", lambda: FailsAbove(status=200), "the engine core has died", NATURAL),
    *(
        all_fail(
            f"fails_429_for_20_s_in_{seconds}_s",
            lambda: FailsAbove(status=429, words="rate limit", headers={"Retry-After": "20"}),
            "rate limit",
            {**NATURAL, "max_time": f"{seconds}s"},
        )
        for seconds in (8, 16)
    ),
    Case(
        "token_quota",
        Quota,
        Expected((YES, UNPROVEN), (), words=("429", "token rate limit"), not_words=NOT_LOST, counted=True),
        {**NATURAL, "concurrency": "[2, 6]", "requests": "120", "max_time": "14s"},
    ),
    Case(
        "gateway_restarts",
        GatewayRestarts,
        Expected((YES, UNPROVEN, NO), (), words=("503",), not_words=("no trial was finished",), counted=True),
        {**NATURAL, "concurrency": "[3]", "requests": "90", "max_time": "14s"},
    ),
)

SOME = Expected(
    (YES, UNPROVEN, FAILED),
    ("meets", "unproven", "marginal", "invalid"),
    not_words=(r"errors 0%", "server was lost"),
    counted=True,
)
THREE = {"concurrency": "[3]", "requests": "60", "max_time": "12s"}
ALSO_ERRORS = {"sla": "{p50_ttft: 900ms, error_rate: 1%}"}
SOME_FAIL = (
    Case("blip", lambda: Blips(period=1e9), SOME, THREE, gate=True, check=error_rate(0.02, 3, "503")),
    Case("blip_of_each_30_s", Blips, SOME, THREE, check=error_rate(0.02, 3, "503")),
    Case(
        "blip_and_a_limit_on_errors",
        lambda: Blips(period=1e9),
        Expected(**NEVER_MEETS, not_words=(r"errors 0%",), counted=True),
        THREE | ALSO_ERRORS,
        check=error_rate(0.02, 3, "503"),
    ),
    Case("some_429", AtRandom, SOME, {**NATURAL, **THREE, "requests": "90"}, check=error_rate(0.01, 3, "429")),
    Case(
        "some_bare_errors",
        BareErrors,
        SOME,
        {**NATURAL, **THREE, "requests": "90"},
        check=error_rate(0.05, 3, "the worker has died"),
    ),
    Case(
        "some_resets",
        lambda: AtRandom(status=0),
        SOME,
        {**NATURAL, **THREE, "requests": "90"},
        check=error_rate(0.01, 3),
    ),
)

REFUSED = Expected(
    (YES,),
    ("meets",),
    words=("Run at concurrency 4", r"(?s)Next higher setting[^$]*(429|503):\s+Too\s+many\s+concurrent"),
    not_words=("close to (its|the) limit", "server was lost"),
    counted=True,
)
BLAMED = (*REFUSED.not_words, "too slow", "streams stood idle", "client_bound")
P90 = {"sla": "{p90_ttft: 200ms, p90_tpot: 30ms}", **TWO, "requests": "110", "max_time": "12s"}


def refused(name: str, words: str, **how: Any) -> Case:
    """A case of a gateway that lets five requests in."""
    check = error_rate(0.05, 8, words, "Too many concurrent requests")
    return Case(name, lambda: Gateway(tpot=0.008, **how), REFUSED, NATURAL | P90, check=check)


AT_MOST = (
    refused("five_at_once_ms", "429", after="ms"),
    refused("five_at_once_date", "429", after="date"),
    refused("five_at_once_503", "503", status=503),
    Case(
        "five_at_once_long",
        lambda: Gateway(tpot=0.008, after="long"),
        # The streams that are refused wait for longer than the window.
        replace(REFUSED, words=("Run at concurrency 4", "429", "Too many concurrent requests"), not_words=BLAMED),
        NATURAL | P90,
    ),
)

SILENT = Expected(
    (YES, UNPROVEN, FAILED),
    ("meets", "unproven", "marginal", "invalid"),
    words=(r"silent for \d+ ?s",),
    not_words=("no trial was finished", "had no room"),
    counted=True,
)
SIX = {"concurrency": "[6]", "requests": "150", "max_time": "12s"}


def _timeouts(least: int, most: float = float("inf")) -> Callable[[Seen], list[str]]:
    def check(seen: Seen) -> list[str]:
        found = sum(one["outcome"] == "timeout" for one in seen.records)
        return [] if least <= found <= most else [f"{found} records are timeouts"]

    return check


ENDLESS = (
    *(
        Case(f"hangs_{where}", lambda where=where: Hangs(where=where), SILENT, SIX, check=_timeouts(1))  # type: ignore[misc]
        for where in ("headers", "nothing", "three")
    ),
    Case(
        "all_hang_above",
        lambda: Hangs(every=1, above=5, where="nothing"),
        Expected((YES, UNPROVEN), ("meets", "unproven"), words=(r"silent for \d+ ?s",), counted=True),
        {**TWO, "budget": "{time: 45s}"},
    ),
    *(
        Case(f"kept_open_{name}", situation, SILENT, NATURAL | SIX, check=_timeouts(1))
        for name, situation in (
            ("comments", KeptOpen),
            ("events", lambda: KeptOpen(events=True, dialect="openai", chat_only=True)),
        )
    ),
    Case(
        "slow_ones_come",
        Slow,
        Expected(**MEETS, counted=True),
        SIX,
        check=_timeouts(0, 0),
    ),
    Case(
        "budget_cuts_a_trial",
        Situation,
        Expected((YES, UNPROVEN, FAILED), (), counted=True),
        {"requests": "5000", "max_time": "60s", "budget": "{time: 12s}"},
    ),
)


FAILURES = (*ALL_FAIL, *SOME_FAIL, *AT_MOST, *ENDLESS)
