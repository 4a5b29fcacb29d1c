"""Servers that report better numbers than they deliver, each of which knows what its users really
saw.

A liar answers request i by a plan: what it sends when, and the truth of it. It registers under its
name with `tests.kit.hostile`, so `http://host/NAME/v1/...` speaks to it.
"""

import asyncio
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.kit.hostile import BEHAVIOURS, Call, chunk, sse

TTFT, TPOT, TOKENS, WORDS = 0.030, 0.004, 8, 40
"""Of an honest answer: seconds to the first text, seconds a token, tokens out; and tokens in."""


@dataclass(frozen=True)
class Plan:
    """One answer: events with the seconds after the request at which each is sent, and what a user
    met.

    `ttft` is the first text that can be seen, `tpot` what a token took after it; endless where the
    answer was no good.
    """

    events: tuple[tuple[float, Any], ...]
    ttft: float
    tpot: float
    usage: Any
    prompt_tokens: Any = None
    names: dict[str, str] = field(default_factory=dict)
    """Fields that each of its events has beside the text, as its model."""


def text(said: str, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": said} | more, "finish_reason": finish}]}


def honest(
    *,
    ttft: float = TTFT,
    tpot: float = TPOT,
    tokens: int = TOKENS,
    usage: Any = ...,
    finish: str = "length",
    ahead: tuple[tuple[float, Any], ...] = (),
    prompt_tokens: Any = None,
    **names: str,
) -> Plan:
    """Tokens at an even pace, with as many counted, unless told otherwise; `ahead` is sent before
    them.
    """
    last = tokens - 1
    events = [(ttft + i * tpot, text(" word", finish if i == last else None)) for i in range(tokens)]
    good = finish in ("length", "stop")
    return Plan(
        (*ahead, *events),
        ttft if good else math.inf,
        tpot if good else math.inf,
        tokens if usage is ... else usage,
        prompt_tokens,
        names,
    )


Law = Callable[[int], Plan]
"""The answer to the request with this number."""


@dataclass
class Liar:
    """A server by a law, and the plans it carried out."""

    name: str
    law: Law
    limit: tuple[str, float]
    """The metric it wants to be believed in, and a limit that its users see broken."""
    caught_by: str | None
    """The flag that sees it; None where the verdict stands on the numbers alone."""
    asked: int = TOKENS
    of_connection: Callable[[int], Law] | None = None
    """The law of a connection, by its number; None: all have the same."""
    users: float | None = None
    """What its users meet in the limited metric, where the trial need not have met the same."""
    listed: Callable[[int], list[str]] | None = None
    """The models that it lists after so many answers; None: it lists none."""
    played: list[Plan] = field(default_factory=list)
    connections: dict[int, int] = field(default_factory=dict)

    def install(self) -> "Liar":
        BEHAVIOURS[self.name] = self.answer
        return self

    @property
    def truth(self) -> float:
        """What its users met, in the limited metric: a percentile by rank, or the share of bad
        answers.
        """
        if self.users is not None:
            return self.users
        statistic, _, quantity = self.limit[0].partition("_")
        if self.limit[0] == "error_rate":
            return sum(math.isinf(plan.ttft) for plan in self.played) / len(self.played)
        values = sorted(getattr(plan, quantity) for plan in self.played)
        return values[math.ceil(float(statistic[1:]) / 100 * len(values)) - 1]

    async def answer(self, call: Call) -> None:
        if self.listed is not None and call.path.endswith("/models"):
            await call.json("200 OK", {"data": [{"id": name} for name in self.listed(len(self.played))]})
            return
        if not call.path.endswith("completions"):
            await call.json("404 Not Found", {"detail": "Not Found"})
            return
        begun, body = time.perf_counter(), json.loads(call.body)
        words = len(body["messages"][0]["content"].split())
        number = self.connections.setdefault(id(call.writer), len(self.connections))
        law = self.law if self.of_connection is None else self.of_connection(number)
        plan = law(len(self.played))
        self.played.append(plan)
        await call.head("Transfer-Encoding: chunked")
        for at, event in plan.events:
            await asyncio.sleep(max(0.0, begun + at - time.perf_counter()))
            await call.raw(chunk(sse(event | plan.names)))
        prompt = words if plan.prompt_tokens is None else plan.prompt_tokens
        usage = plan.usage
        if not isinstance(usage, dict | None):
            usage = {"prompt_tokens": prompt, "completion_tokens": usage}
        last = chunk(sse({"choices": [], "usage": usage})) if usage is not None else b""
        await call.raw(last + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")


def some(share: float, odd: Callable[[], Plan], usual: Callable[[], Plan] = honest) -> Law:
    """This share of the answers is odd, evenly spread."""
    return lambda i: odd() if math.floor((i + 1) * share) > math.floor(i * share) else usual()


def liars() -> Iterator[Liar]:
    yield from _counts()
    yield from _chunks()
    yield from _finishes()
    yield from _hollow()
    yield from _prompts()
    yield from _replicas()


def _counts() -> Iterator[Liar]:
    slow = 10 * TPOT
    limit = ("p90_tpot", 3 * TPOT)
    unusable = {
        "none": None,
        "null": {"completion_tokens": None},
        "text": "8",
        "negative": -8,
        "endless": 1e300,
        "huge": 10**15,
        "half": 7.5,
        "nothing": 0,
        "true": True,
        "list": [8],
    }
    for name, usage in unusable.items():
        law = some(0.15, lambda usage=usage: honest(tpot=slow, usage=usage))
        yield Liar(f"slow_count_{name}", law, limit, "uncounted")
    yield Liar("slow_count_float", some(0.15, lambda: honest(tpot=slow, usage=float(TOKENS))), limit, None)
    yield Liar("slow_count_one", some(0.15, lambda: honest(tpot=slow, usage=1)), limit, "token_mismatch")
    hidden = {"prompt_tokens": WORDS, "completion_tokens": TOKENS, "completion_tokens_details": {"reasoning_tokens": 7}}
    yield Liar("slow_count_hidden", some(0.15, lambda: honest(tpot=slow, usage=hidden)), limit, None)
    all_hidden = hidden | {"completion_tokens_details": {"reasoning_tokens": TOKENS}}
    yield Liar("slow_count_all_hidden", some(0.15, lambda: honest(tpot=slow, usage=all_hidden)), limit, None)
    yield Liar("slow_counts_more", some(0.15, lambda: honest(tpot=slow, usage=8 * TOKENS)), limit, "token_mismatch")
    law = some(0.15, lambda: honest(tpot=slow, usage=2 * TOKENS, finish="stop"))
    yield Liar("slow_counts_double", law, limit, "token_mismatch", asked=0)
    # By a little, everywhere: at few tokens a little is much.
    short = ("p90_tpot", 0.019)
    law: Law = lambda _: honest(tpot=0.0205, tokens=4, usage=5)  # noqa: E731
    yield Liar("one_more_than_asked", law, short, "token_mismatch", asked=4)
    law = lambda _: honest(tpot=0.0205, tokens=4, usage=5)  # noqa: E731
    yield Liar("one_more_than_sent", law, short, None, asked=5)
    law = lambda _: honest(tpot=0.0205, tokens=20, usage=22)  # noqa: E731
    yield Liar("a_tenth_more", law, ("p90_tpot", 0.0195), "token_mismatch", asked=20)


def in_chunks(*sizes: int, usage: Any = TOKENS, reasoning: bool = False) -> Plan:
    """Tokens at an even pace in chunks of these sizes, each sent when its last token is made."""
    events, made = [], 0
    for size in sizes:
        made += size
        event = text(" word" * size, "length" if made == TOKENS else None)
        if reasoning:
            event["choices"][0]["delta"] = {"reasoning_content": " hmmm" * size}
        events.append((TTFT + (made - 1) * TPOT, event))
    return Plan(tuple(events), events[0][0], TPOT, usage)


def _chunks() -> Iterator[Liar]:
    """Tokens of a first chunk, which nobody waited for."""
    yield Liar("whole_answers", lambda _: in_chunks(8), ("p90_tpot", 0.8 * TPOT), "buffered_stream")
    yield Liar("half_answers", lambda _: in_chunks(4, 4), ("p90_tpot", 0.8 * TPOT), "buffered_stream")
    yield Liar("several_first", lambda _: in_chunks(5, 1, 1, 1), ("p90_tpot", 0.8 * TPOT), "coalesced")


def _finishes() -> Iterator[Liar]:
    for reason in ("insufficient_system_resource", "content_filter", "abort", "Gave-Up-Early", "12"):
        law = some(0.2, lambda reason=reason: honest(tokens=2, usage=2, finish=reason))
        yield Liar(f"finish_{reason}", law, ("error_rate", 0.10), "odd_finish", asked=0)


def _hollow() -> Iterator[Liar]:
    limit = ("p90_ttft", 0.020)
    blanks = {
        "space": " ",
        "line": "\n\n",
        "zero_width": "\u200b",
        "joiner": "\u2060",
        "bom": "\ufeff",
        "nbsp": "\u00a0",
        "filler": "\u3164",
        "mark": "\u0301",
        "control": "\x00",
    }
    for name, blank in blanks.items():
        ahead = ((0.001, text(blank)),)
        yield Liar(
            f"hollow_{name}",
            lambda _, ahead=ahead: honest(ttft=0.06, ahead=ahead, usage=TOKENS + 1),
            limit,
            "hollow_first",
            asked=TOKENS + 1,
        )
    other_fields = {
        "thought": {"content": None, "reasoning_content": " "},
        "role": {"role": "assistant", "content": " "},
        "tool": {"content": None, "tool_calls": [{"function": {"name": None, "arguments": " "}}]},
    }
    for name, delta in other_fields.items():
        event = {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        law = lambda _, event=event: honest(ttft=0.06, ahead=((0.001, event),), usage=TOKENS + 1)  # noqa: E731
        yield Liar(f"hollow_{name}", law, limit, "hollow_first", asked=TOKENS + 1)
    drip = tuple((0.001 + 0.012 * i, text(" ")) for i in range(4))
    law = lambda _: honest(ttft=0.06, ahead=drip, usage=TOKENS + 4)  # noqa: E731
    yield Liar("hollow_drip", law, limit, "hollow_first", asked=TOKENS + 4)
    # At the pace of its own tokens it is no silence: then the bound counts the first text.
    law = lambda _: honest(ttft=0.041, tpot=0.04, tokens=3, ahead=((0.001, text(" ")),), usage=4)  # noqa: E731
    yield Liar("hollow_at_pace", law, limit, None, asked=4)


def _prompts() -> Iterator[Liar]:
    limit = ("p50_ttft", 0.025)
    cut = lambda: honest(ttft=0.005, prompt_tokens=WORDS // 2)  # noqa: E731
    uncounted = lambda: honest(ttft=0.005, prompt_tokens="20")  # noqa: E731
    yield Liar("prompts_cut", some(0.43, cut), limit, "wrong_input_length")
    yield Liar("prompts_not_counted", some(0.43, uncounted), limit, "wrong_input_length")


SLOW = 5 * TTFT
GOOD_FIRST = 12
"""Connections that are good before the first slow one: of a fifth that are slow, so many are good
together in one of fifteen trials."""


def _replicas() -> Iterator[Liar]:
    """Not one server but several, of which the trial may meet the good ones."""
    fast = lambda **names: honest(ttft=TTFT / 3, **names)  # noqa: E731
    limit, users = ("p90_ttft", 2 * TTFT / 3), TTFT

    def balanced(number: int) -> Law:
        slow = number >= GOOD_FIRST and number % 4 == 0
        return lambda _: honest(ttft=SLOW) if slow else honest()

    yield Liar("slow_connections", lambda _: honest(), ("p90_ttft", 2 * TTFT), None, of_connection=balanced, users=SLOW)

    def fallback(i: int) -> Plan:
        return fast(model="tiny-fallback") if i % 3 else honest(model="tiny")

    yield Liar("fallback_model", fallback, ("p50_ttft", 2 * TTFT / 3), "server_changed", users=users)

    def replaced(i: int) -> Plan:
        return fast(model="tiny" if i < 40 else "tiny-2")

    yield Liar("model_replaced", replaced, limit, "server_changed", users=users)

    def listing(answers: int) -> list[str]:
        return ["tiny"] if answers < 40 else ["tiny", "tiny-2"]

    yield Liar("list_changes", lambda _: fast(), limit, "server_changed", users=users, listed=listing)


def thinking() -> Iterator[Liar]:
    """Honest servers, whose usage names reasoning beside the completion."""
    limit = ("p90_tpot", 3 * TPOT)
    for name, completion, reasoning, streamed in (("beside", TOKENS, 5, False), ("only_reasoning", 0, TOKENS, True)):
        usage = {
            "prompt_tokens": WORDS,
            "completion_tokens": completion,
            "total_tokens": WORDS + completion + reasoning,
        }
        usage |= {"completion_tokens_details": {"reasoning_tokens": reasoning}}
        law = lambda _, usage=usage, streamed=streamed: in_chunks(*[1] * TOKENS, usage=usage, reasoning=streamed)  # noqa: E731
        yield Liar(name, law, limit, None)


def named() -> Iterator[Liar]:
    """Honest servers, which name themselves otherwise than they were asked for."""
    limit = ("p90_ttft", 2 * TTFT)
    yield Liar("alias", lambda _: honest(model="tiny-2024-07-18"), limit, None, listed=lambda _: ["m"])
    prints = lambda i: honest(model="m", system_fingerprint=f"fp_{i % 2}")  # noqa: E731
    yield Liar("fingerprints", prints, limit, "fingerprint_changed")
