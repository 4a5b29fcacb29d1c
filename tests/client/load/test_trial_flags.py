"""Every flag, provoked over HTTP by a server, a proxy or a client that does the thing; and the
control, without any.

The trials that need no busy machine run side by side: what is asked of each is its own flag, not
its timing.
"""

import asyncio
import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from frontier.client import run_trial
from frontier.client.ask.prompts import PromptSource, random_prompts
from frontier.client.ask.target import Target, Timeouts
from frontier.client.engines.request import Prompt
from frontier.client.http.http_client import run
from frontier.core.estimates.estimate import point
from frontier.core.flags.flags import flags
from frontier.core.flags.load_flags import median
from frontier.core.model.decisions import Limit
from frontier.core.model.points import Flag
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Measurement, Phase, Record, Trial
from frontier.core.model.units import format_seconds
from frontier.core.window.from_records import window_data
from frontier.core.window.window import WindowData, join
from frontier.hardware.above_roofline import above_roofline
from tests.kit.engine import Engine
from tests.kit.golden import assert_golden_row
from tests.kit.hostile import BEHAVIOURS, Call, Hostile
from tests.kit.neutral import without_numbers
from tests.kit.proxies import buffering, listening

pytestmark = pytest.mark.process

SHAPE = Shape.of(40, 10)
P50 = (Limit("p50_ttft", 9.0),)


@dataclass
class Case:
    """One trial: its engine, and how many callers for how long."""

    engine: Engine
    concurrency: int = 4
    seconds: float = 2.2
    path: str | None = None
    measurement: Measurement | None = None
    records: list[Record] = field(default_factory=list)

    @property
    def sample(self) -> WindowData:
        assert self.measurement is not None
        return window_data(self.measurement, self.records)

    def flags(self, limits: tuple[Limit, ...] = P50) -> dict[str, Flag]:
        return {flag.name: flag for flag in flags(self.sample, limits)}


def slow(name: str, **options: Any) -> Engine:
    """An engine of 50 ms to the first token and 10 ms a token."""
    return Engine(name, ttft=0.05, itl=0.01, **options).install()


async def one(server: Hostile, case: Case, prompts: PromptSource | None = None, **hooks: Any) -> Case:
    trial = Trial(
        "d", SHAPE, case.concurrency, 0, Phase.GRID, 10**6, 7, 0.2, 0.0, case.seconds, fingerprint=case.engine.name
    )
    url = case.path or server.url(case.engine.name)
    target = Target(
        url, "m", "completions", dialect="vllm", timeouts=Timeouts(2.0, 5.0, 2.0, 10.0), identity="vllm 0.1"
    )
    case.measurement = await run_trial(
        trial,
        target,
        prompts or random_prompts(SHAPE, 7),
        on_record=hooks.get("on_record", case.records.append),
        expected_e2e=0.15,
    )
    return case


def cached(p: int, c: int) -> dict[str, Any]:
    return {"prompt_tokens": p, "completion_tokens": c, "prompt_tokens_details": {"cached_tokens": p // 2}}


def counted(factor: float) -> Callable[[int, int], dict[str, Any]]:
    return lambda p, c: {"prompt_tokens": p, "completion_tokens": max(1, round(c * factor))}


def cases() -> dict[str, Case]:
    hits = {"vllm:prefix_cache_queries_total": 40.0, "vllm:prefix_cache_hits_total": 20.0}
    return {
        "healthy": Case(slow("f_healthy")),
        "short": Case(slow("f_short", honours_length=False)),
        "long_prompts": Case(slow("f_long", tokens_per_word=1.3)),
        "cached": Case(slow("f_cached", usage_of=cached)),
        "cached_by_counters": Case(slow("f_counters", counters=hits)),
        "several": Case(slow("f_several", tokens_per_event=5)),
        "half_counted": Case(slow("f_half", usage_of=counted(0.5))),
        "one_counted": Case(slow("f_one", usage_of=counted(0.0))),
        "waves": Case(slow("f_waves", together=8), concurrency=8, seconds=3.0),
        "throttled": Case(
            Engine("f_throttled", ttft=0.02, itl=0.004, pace=lambda t: 1.0 if t < 1.8 else 1.7).install(), seconds=3.4
        ),
        "failing": Case(slow("f_failing", fail_every=5)),
        "lingering": Case(slow("f_lingering", linger=0.1), seconds=3.0),
        "restarted": Case(slow("f_restarted", started=lambda t: 1e9 if t < 1.2 else 2e9)),
        "another_life": Case(slow("f_another", started=lambda _: 3e9)),
        "buffered": Case(slow("f_buffered")),
        "closing": Case(slow("f_closing")),
        "mortal": Case(slow("f_mortal"), seconds=8.0),
        "silent": Case(Engine("f_silent", ttft=60.0).install(), seconds=1.5),
        "nobody": Case(slow("f_nobody"), path="http://127.0.0.1:1", seconds=8.0),
    }


def closes_every_second(engine: Engine) -> None:
    """The second request on a connection finds it closed."""

    async def answer(call: Call) -> None:
        if call.nth_on_connection % 2 == 0 and call.path.endswith("completions"):
            call.keep = False
        else:
            await engine.answer(call)

    BEHAVIOURS[engine.name] = answer


async def side_by_side(server: Hostile, mortal: Hostile, proxy: str) -> dict[str, Case]:
    found = cases()
    closes_every_second(found["closing"].engine)
    found["mortal"].path = mortal.url(found["mortal"].engine.name)
    found["buffered"].path = f"{proxy}/{found['buffered'].engine.name}"

    async def kill() -> None:
        await asyncio.sleep(2.0)
        await asyncio.to_thread(mortal.__exit__, None, None, None)

    killer = asyncio.create_task(kill())
    names = list(found)
    for half in (names[::2], names[1::2]):
        await asyncio.gather(*(one(server, found[name]) for name in half))
    await killer
    return found


@pytest.fixture(scope="module")
def found() -> Iterator[dict[str, Case]]:
    thresholds = gc.get_threshold()
    with Hostile() as server, Hostile() as mortal, listening(buffering(server.url("").rstrip("/"))) as proxy:
        yield run(side_by_side(server, mortal, proxy))
    gc.set_threshold(*thresholds)


Found = dict[str, Case]
BUSY = {"client_bound"}
"""What a machine at work on all these trials at once may say of itself."""


def test_a_healthy_server_has_no_flag(found: Found) -> None:
    seen = {name for name, flag in found["healthy"].flags().items() if flag.fatal} - BUSY
    assert set() == seen - {"under_concurrency", "non_stationary"}, "busy machines apart"
    assert found["healthy"].sample.n >= 30


PROVOKED = [
    ("short", "short_output", True, "median 3 of 10 tokens", "1.00%", "ignore_eos"),
    ("long_prompts", "wrong_input_length", True, "+12 tokens", "±2.00%", "longer inputs"),
    ("cached", "cache_contaminated", True, "50.0% of prompt tokens", "2.00%", "fresh prompts"),
    ("cached_by_counters", "cache_contaminated", True, "50.0% of prompt tokens", "2.00%", "reset"),
    ("several", "coalesced", False, "5.00 tokens per chunk", "1.05", "TPOT"),
    ("half_counted", "token_mismatch", True, "5 tokens in 10 chunks", "1.00%", "usage"),
    ("one_counted", "token_mismatch", True, "1 tokens in 10 chunks", "1.00%", "usage"),
    ("waves", "lockstep", False, "dispersion of sends", "2", "vary the output length"),
    ("throttled", "non_stationary", False, "from half to half", "±5.00%", "warm up longer"),
    ("failing", "errors", True, "failed, mostly HTTP 500", "1.00%", "server's log"),
    ("lingering", "littles_law", False, "rate x E2E is", "4 ±", "after their last token"),
    ("restarted", "server_changed", True, "another process", "one server", "replica's metrics"),
    ("buffered", "buffered_stream", True, "chunks came together", "50.0%", "proxy buffering"),
    ("closing", "resent", False, "sent again on a fresh connection", "0", "closes connections"),
    ("mortal", "server_lost", True, "in 1 of 1 windows", "0", "went away"),
    ("nobody", "server_lost", True, "in 1 of 1 windows", "0", "went away"),
    ("silent", "errors", False, "100% failed, mostly first_byte", "1.00%", "server's log"),
]


@pytest.mark.parametrize(("case", "name", "fatal", "measured", "limit", "advice"), PROVOKED)
def test_a_flag_is_raised_with_what_was_measured_and_what_to_do(
    found: Found, case: str, name: str, fatal: bool, measured: str, limit: str, advice: str
) -> None:
    raised = found[case].flags()
    assert name in raised, sorted(raised)
    flag = raised[name]
    assert fatal is flag.fatal
    assert measured in flag.measured, flag.measured
    assert advice in flag.advice, flag.advice
    assert flag.limit.startswith(limit)
    if name != "server_lost":
        assert name not in found["healthy"].flags()


def test_a_flagged_point_is_not_valid(found: Found) -> None:
    fatal = [case for case, _, is_fatal, *_ in PROVOKED if is_fatal]
    assert {False} == {point(found[case].sample, limits=P50).valid for case in fatal}


def test_every_request_to_a_closing_server_is_answered_in_the_end(found: Found) -> None:
    outcomes = found["closing"].sample.outcomes
    assert {"ok", "cancelled"} >= set(outcomes)


def test_failures_are_left_to_a_limit_that_sees_them(found: Found) -> None:
    assert found["failing"].flags(P50)["errors"].fatal
    assert not found["failing"].flags((Limit("error_rate", 0.01),))["errors"].fatal


def test_two_lives_of_a_server_are_told_and_two_servers_are_too_many(found: Found) -> None:
    one, other = found["healthy"].sample, found["another_life"].sample
    restarted = next(flag for flag in flags(join([one, other])) if flag.name == "server_restarted")
    assert not restarted.fatal
    assert_golden_row("flags", restarted.measured)
    upgraded = replace(other, server_identities=("vllm 0.2, started 3000000000",))
    changed = next(flag for flag in flags(join([one, upgraded])) if flag.name == "server_changed")
    assert (True, "vllm 0.1 then vllm 0.2") == (changed.fatal, changed.measured)


def test_what_cannot_be_claimed_or_cannot_be_is_said(found: Found) -> None:
    impossible = [*above_roofline(found["healthy"].sample, {"ttft": 10.0, "output_throughput": 1.0})]
    assert [True, True] == [flag.fatal for flag in impossible]
    raised = found["healthy"].flags((Limit("p99_ttft", 1.0),))
    assert not raised["too_few_samples"].fatal
    assert "1,000 for a p99" in raised["too_few_samples"].limit


@pytest.mark.slow
def test_a_client_that_cannot_keep_up_says_so() -> None:
    """A prompt source that takes 30 ms of CPU on the event loop, as a tokenizer would."""
    engine = slow("f_client")
    source = random_prompts(SHAPE, 7)

    def busy(index: int) -> Prompt:
        until = time.perf_counter() + 0.03
        while time.perf_counter() < until:
            pass
        return source(index)

    with Hostile() as server:
        case = run(one(server, Case(engine, concurrency=16, seconds=2.5), busy))
    raised = case.flags()
    bound = raised["client_bound"]
    for what in ("event loop late", "sends late"):  # the signs that were beyond their limits
        assert what in bound.measured
    # Of a core that others want, too, even a busy client does not get 80%.
    share = case.sample.health[0].cpu_share
    assert share is not None
    assert ("CPU" in bound.measured) is (share > 0.8)
    per_token = median(case.sample.tpot) or 0.0  # a machine that others use serves slower, too
    assert format_seconds(max(0.005, 0.1 * per_token)) in bound.limit
    assert "idle machine" in bound.advice
    assert bound.fatal
    assert_golden_row("flags", without_numbers(raised["under_concurrency"].measured))
    assert "16 ±2.00%" == raised["under_concurrency"].limit


@pytest.mark.slow
def test_a_collectors_pause_in_the_window_is_seen() -> None:
    engine, kept, records = slow("f_gc"), [], []

    def hoarding(record: Record) -> None:
        records.append(record)
        if len(records) == 20:
            kept.extend([[]] for _ in range(800_000))
            gc.collect()

    with Hostile() as server:
        case = Case(engine, records=records)
        run(one(server, case, on_record=hoarding))
    kept.clear()
    assert "garbage collection" in case.flags()["client_bound"].measured
