"""Each flag: what provokes it, what is just within its limit, and how seldom healthy windows are
flagged."""

import math
import re
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from frontier.core.claim.proof import violation
from frontier.core.claim.verdict import judge
from frontier.core.estimates.estimate import point
from frontier.core.estimates.sides import sides
from frontier.core.flags.flags import flags
from frontier.core.flags.stream_flags import TELLING
from frontier.core.model.decisions import Limit, Verdict
from frontier.core.model.loads import POISSON, Rate
from frontier.core.model.points import Flag
from frontier.core.model.shapes import Background, Lengths, Shape
from frontier.core.model.trials import (
    REPEATED_PROMPTS,
    ClientHealth,
    Measurement,
    Outcome,
    Phase,
    Record,
    Trial,
    Window,
)
from frontier.core.stats import stationarity
from frontier.core.window.from_records import window_data
from frontier.core.window.histogram import LogHistogram
from frontier.core.window.window import BLOCKS, Floats, WindowData, join
from frontier.hardware.above_roofline import above_roofline
from frontier.simulator.spec import EngineSpec
from frontier.simulator.virtual import virtual_trial
from tests.kit.golden import assert_golden_row
from tests.kit.virtual_truth import closed_loop

VARIED = Shape(Lengths.normal(256, 100), Lengths.normal(48, 16))


def simulated(
    requests: int = 400,
    concurrency: int = 8,
    *,
    shape: Shape = VARIED,
    spec: EngineSpec | None = None,
    seed: int = 0,
    stagger: bool = True,
) -> WindowData:
    """A window of the engine in virtual time."""
    chosen = replace(spec or EngineSpec(noise=0.05), seed=1000 + seed)
    records, at = closed_loop(chosen, shape, concurrency, requests=requests, seed=seed, stagger=stagger)
    trial = Trial("a", shape, concurrency, 0, Phase.GRID, requests, seed, 0.0, 0.0, 60.0, "f")
    return window_data(Measurement(trial, 1e6 * seed, at, "requests"), records)


@cache
def healthy() -> WindowData:
    """One window with nothing wrong."""
    return simulated()


def found(changed: WindowData, **options: Any) -> dict[str, Flag]:
    return {flag.name: flag for flag in flags(changed, **options)}


def failed(which: WindowData, count: int) -> WindowData:
    """The same with `count` requests failed, evenly."""
    ok, ttft, tpot, e2e = (a.copy() for a in (which.ok, which.ttft, which.tpot, which.e2e))
    at = np.linspace(0, which.n - 1, count).astype(int)
    ok[at], ttft[at], tpot[at], e2e[at] = False, math.inf, math.inf, math.inf
    return replace(which, ok=ok, ttft=ttft, tpot=tpot, e2e=e2e, outcomes={"ok": which.n - count, "http_error": count})


def some(values: Floats, count: int, value: float) -> Floats:
    """The first `count` replaced."""
    changed = values.copy()
    changed[:count] = value
    return changed


def test_a_healthy_window_has_no_flag() -> None:
    assert {} == found(healthy())


def test_every_flag_says_what_was_measured_its_limit_and_a_way_out() -> None:
    broken = replace(
        failed(healthy(), 40),
        server_identities=("x", "y"),
        ended=("server_lost",),
        in_flight=np.full(BLOCKS, 4.0),
        health=(ClientHealth(cpu_share=0.99),),
        cached_tokens=healthy().prompt_tokens,
        load=8,
    )
    for flag in flags(broken, (Limit("p99_ttft", 1.0),)):
        assert "" not in (flag.name, flag.measured, flag.limit, flag.advice)
    assert {"errors", "server_lost", "server_changed", "client_bound", "cache_contaminated"} <= set(found(broken))


def test_the_fatal_come_first() -> None:
    lost = replace(failed(healthy(), 40), ended=("server_lost",))
    order = [flag.fatal for flag in flags(lost, (Limit("p99_ttft", 1.0),))]
    assert sorted(order, reverse=True) == order
    assert {True, False} == set(order)


# --- what the server answered


@pytest.mark.parametrize(("failures", "flagged"), [(4, False), (5, True)])
def test_errors_are_flagged_above_one_percent(failures: int, flagged: bool) -> None:
    flag = found(failed(trimmed(healthy(), 400), failures)).get("errors")
    assert (["http_error"] if flagged else []) == ([] if flag is None else re.findall("http_error", flag.measured))


@pytest.mark.parametrize(("words", "log"), [("HTTP 429: too many", False), ("HTTP 500: no memory", True)])
def test_what_to_do_about_errors_goes_by_what_the_server_said(words: str, log: bool) -> None:
    sample = failed(trimmed(healthy(), 400), 40)
    advice = found(replace(sample, failures={words: 40}))["errors"].advice
    assert (log, not log) == ("log" in advice, "raise that limit" in advice)


@pytest.mark.parametrize(
    ("limits", "fatal"),
    [
        ((), True),
        ((Limit("p50_ttft", 1.0), Limit("output_throughput", 10.0)), True),
        ((Limit("p50_ttft", 1.0), Limit("p99_e2e", 1.0)), False),
        ((Limit("mean_ttft", 1.0),), False),
        ((Limit("error_rate", 0.01),), False),
    ],
)
def test_errors_make_a_point_invalid_only_where_no_limit_notices_them(limits: tuple[Limit, ...], fatal: bool) -> None:
    assert fatal is found(failed(trimmed(healthy(), 400), 12), limits=limits)["errors"].fatal


def trimmed(which: WindowData, n: int) -> WindowData:
    """The first n requests."""
    names = ("sent", "window", "ttft", "tpot", "e2e", "ok", "asked_isl", "asked_osl", "prompt_tokens")
    names += ("completion_tokens", "cached_tokens", "events", "reads")
    return replace(which, **{name: getattr(which, name)[:n] for name in names})


@pytest.mark.parametrize(
    ("wrong", "off", "flagged"), [(0.012, 20, False), (0.03, 20, True), (1.0, 1, False), (1.0, 2, True)]
)
def test_answers_of_another_length_are_flagged(wrong: float, off: int, flagged: bool) -> None:
    one = healthy()
    short = one.asked_osl - off * (np.arange(one.n) % 100 < wrong * 100)
    assert flagged is ("short_output" in found(replace(one, completion_tokens=short)))


def test_answers_longer_than_asked_are_flagged_too() -> None:
    assert "short_output" in found(replace(healthy(), completion_tokens=healthy().asked_osl * 1.2))


@pytest.mark.parametrize(("factor", "flagged"), [(1.015, False), (1.03, True), (0.97, True)])
def test_prompts_of_another_length_are_flagged(factor: float, flagged: bool) -> None:
    one = healthy()
    assert flagged is ("wrong_input_length" in found(replace(one, prompt_tokens=one.asked_isl * factor)))


@pytest.mark.parametrize(("share", "cut", "flagged"), [(0.43, 0.5, True), (0.05, 0.9, True), (0.005, 0.5, False)])
def test_prompts_that_are_cut_are_flagged_by_their_share(share: float, cut: float, flagged: bool) -> None:
    one = healthy()
    uneven = one.asked_isl * (1 + 0.005 * np.cos(np.arange(one.n)))
    shorter = np.where(np.arange(one.n) % 200 < 200 * share, cut, 1.0) * uneven
    assert flagged is ("wrong_input_length" in found(replace(one, prompt_tokens=shorter)))


def test_words_that_make_uneven_numbers_of_tokens_are_no_cut() -> None:
    one = healthy()
    uneven = one.asked_isl * (1 + 0.04 * np.random.default_rng(1).standard_normal(one.n))
    assert "wrong_input_length" not in found(replace(one, prompt_tokens=uneven))


def test_classes_and_turns_of_another_spread_are_no_cut() -> None:
    one = healthy()
    draw = np.random.default_rng(1).standard_normal(one.n)
    half = np.arange(one.n) % 2
    uneven = one.asked_isl * (1 + np.where(half == 1, 0.005, 0.04) * draw)
    assert "wrong_input_length" in found(replace(one, prompt_tokens=uneven))
    mixed = replace(one, prompt_tokens=uneven, class_index=half)
    assert "wrong_input_length" not in found(mixed)
    # The words of a first turn are in every later one too: what they spread is no cut there either.
    later = one.asked_isl * (1 + np.where(half == 1, np.where(np.arange(one.n) % 10 == 1, 0.04, 0.005), 0.04) * draw)
    assert "wrong_input_length" not in found(replace(one, prompt_tokens=later, turn=half))
    cut = np.where(np.arange(one.n) % 20 == 1, 0.8, 1.0) * later
    assert "wrong_input_length" in found(replace(one, prompt_tokens=cut, turn=half))


def test_natural_prompts_are_not_flagged_for_what_chance_does() -> None:
    one, rng = simulated(60, 4), np.random.default_rng(5)

    def flagged(factor: float) -> bool:
        tokens = np.round(one.asked_isl * factor * np.exp(rng.normal(0, 0.07, one.n)))
        return "wrong_input_length" in found(replace(one, prompt_tokens=tokens))

    assert sum(flagged(1.0) for _ in range(300)) <= 3
    assert sum(flagged(0.9) for _ in range(300)) >= 297


@pytest.mark.parametrize(("share", "flagged"), [(0.005, False), (0.05, True), (1.0, False)])
def test_prompts_that_are_not_counted_while_others_are_may_have_been_cut(share: float, flagged: bool) -> None:
    one = healthy()
    gone = np.arange(one.n) % 200 < 200 * share
    assert flagged is (
        "wrong_input_length" in found(replace(one, prompt_tokens=np.where(gone, math.nan, one.asked_isl)))
    )


@pytest.mark.parametrize(("share", "flagged"), [(0.005, False), (0.05, True), (1.0, False)])
def test_answers_without_a_count_are_flagged_where_others_have_one(share: float, flagged: bool) -> None:
    one = healthy()
    gone = np.arange(one.n) % 200 < 200 * share
    flag = found(replace(one, completion_tokens=np.where(gone, math.nan, one.completion_tokens))).get("uncounted")
    assert (True if flagged else None) == (None if flag is None else flag.fatal)


@pytest.mark.parametrize(
    ("reasons", "flagged", "fatal"),
    [
        ({}, False, False),
        ({"content_filter": 0.005}, False, False),
        ({"content_filter": 0.05}, True, False),
        ({"content_filter": 0.05, "strange": 0.0001}, True, False),
        ({"content_filter": 0.014, "strange": 0.014}, True, False),
        ({"strange": 0.05}, True, True),
    ],
)
def test_odd_finish_reasons_are_named(reasons: dict[str, float], flagged: bool, fatal: bool) -> None:
    one = healthy()
    odd = {name: round(share * sum(one.outcomes.values())) for name, share in reasons.items()}
    flag = found(replace(one, odd_finishes=odd)).get("odd_finish")
    assert flagged is (flag is not None)
    if flag is not None:
        assert fatal is flag.fatal
        assert set(reasons) == set(re.findall(r"'(\w+)'", flag.measured))


@pytest.mark.parametrize(
    ("limits", "fatal"),
    [
        ((), True),
        ((Limit("p50_ttft", 1.0),), True),
        ((Limit("p50_tpot", 1.0),), False),
        ((Limit("mean_ttft", 1.0),), True),
    ],
)
def test_a_hollow_first_token_is_fatal_where_a_ttft_is_claimed(limits: tuple[Limit, ...], fatal: bool) -> None:
    one = healthy()
    hollow = np.arange(one.n) % 20 == 0
    raised = flags(replace(one, hollow=hollow, silence=hollow * 0.06), limits)
    assert [fatal] == [flag.fatal for flag in raised if flag.name == "hollow_first"]


@pytest.mark.parametrize("blank", [0.2, 1.0])
@pytest.mark.parametrize(("sent_ahead", "flagged"), [(False, False), (True, True)])
def test_uneven_gaps_of_a_busy_server_are_not_hollow_and_a_token_sent_ahead_is(
    blank: float, sent_ahead: bool, flagged: bool
) -> None:
    """A share of the answers begins with a line break. Every fifth gap is ten times as long, or
    only those after it.
    """
    rng, records = np.random.default_rng(3), []
    for i in range(600):
        gaps = np.where(rng.random(31) < (0.0 if sent_ahead else 0.2), 100_000, 10_000)
        is_blank = rng.random() < blank
        if sent_ahead and is_blank:
            gaps[0] = 100_000
        last = 0.03 + float(gaps.sum()) * 1e-6
        records.append(
            Record(
                i,
                0,
                i / 100,
                Outcome.OK,
                i / 100 + last,
                100,
                32,
                first=i / 100 + 0.03,
                last=i / 100 + last,
                prompt_tokens=100,
                completion_tokens=32,
                events=32,
                reads=32,
                text_chars=99,
                gaps=tuple(gaps.tolist()),
                first_text=i / 100 + 0.03 + float(gaps[0]) * 1e-6 if is_blank else None,
            )
        )
    trial = Trial("d", Shape.of(100, 32), 40, 0, Phase.GRID, 600, 1, 0, 0, 60, "x")
    found = window_data(Measurement(trial, 0.0, Window(0.0, 6.0), "requests"), records)
    assert flagged is ("hollow_first" in {flag.name for flag in flags(found)})


@pytest.mark.parametrize(
    ("asked", "counted", "chunks", "flagged"),
    [
        (16, 16, 16, False),
        (16, 16, 4, False),  # a stream interval
        (4, 5, 4, True),  # more than asked for
        (256, 257, 256, False),  # more, and it changes nothing
        (0, 17, 16, False),  # the end of the text, where the server may end it
        (16, 16, 15, False),  # a token without text
        (16, 16, 17, True),
        (16, 1, 16, True),
        (1, 2, 1, True),
    ],
)
def test_a_count_that_contradicts_what_was_asked_or_streamed_is_a_mismatch(
    asked: int, counted: int, chunks: int, flagged: bool
) -> None:
    one = healthy()
    n, each = one.n, np.ones(one.n)
    told = replace(
        one,
        asked_osl=each * asked,
        completion_tokens=each * counted,
        events=np.full(n, chunks),
        reads=np.full(n, chunks),
        tpot=(one.e2e - one.ttft) / (counted - 1) if counted > 1 else each * math.nan,
    )
    assert flagged is ("token_mismatch" in found(told))


@pytest.mark.parametrize(
    ("counted", "chunks", "isl", "flagged"),
    [(160, 32, 64, True), (32, 8, 64, False), (40, 39, 64, False), (160, 32, 0, False)],
)
def test_a_count_beyond_max_tokens_is_a_mismatch_also_where_no_length_was_forced(
    counted: int, chunks: int, isl: int, flagged: bool
) -> None:
    """Not where it was streamed so, nor of prompts of a file, which have their own max_tokens."""
    one, each = healthy(), np.ones(healthy().n)
    told = replace(
        one,
        shape=Shape.of(64, 32),
        asked_isl=each * isl,
        asked_osl=each * 0,
        completion_tokens=each * counted,
        events=np.full(one.n, chunks),
        reads=np.full(one.n, chunks),
        tpot=(one.e2e - one.ttft) / (counted - 1),
    )
    assert flagged is ("token_mismatch" in found(told))


@pytest.mark.parametrize(("text_per_token", "flagged"), [(5, False), (2.5, True)])
def test_chunks_of_several_tokens_have_the_text_of_several(text_per_token: float, flagged: bool) -> None:
    """A fifth of the answers has twice as many tokens as chunks, the others one a chunk of five
    characters.
    """
    one = healthy()
    odd = np.arange(one.n) % 5 == 0
    chunks = np.where(odd, 50, 100)
    text = np.where(odd, 100 * text_per_token, 500).astype(np.int64)
    told = replace(
        one,
        shape=Shape.of(256, 100),
        asked_osl=np.zeros(one.n),
        completion_tokens=np.full(one.n, 100.0),
        events=chunks,
        reads=chunks,
        text_chars=text,
    )
    assert flagged is ("token_mismatch" in found(told))


def merged(answers: int, few: int, *, counted_as: float = 1.0, seed: int = 0) -> WindowData:
    """Answers of 64 tokens to random prompts, whose text per token varies as a real server's: 4.4
    to 8.1 characters from one to another. A few come in 56 to 60 chunks; their usage is right, or
    says so many times their tokens.
    """
    rng, one = np.random.default_rng(seed), trimmed(healthy(), answers)
    late = np.arange(one.n) % (one.n // few) == 0
    chunks = np.where(late, rng.integers(56, 61, one.n), 64)
    return replace(
        one,
        asked_osl=np.zeros(one.n),
        completion_tokens=np.where(late, np.round(64 * counted_as), 64.0),
        events=chunks,
        reads=chunks,
        text_chars=(64 * np.clip(rng.normal(6.2, 0.9, one.n), 4.4, 8.1)).astype(np.int64),
    )


def test_the_text_of_a_few_merged_answers_contradicts_no_count() -> None:
    """A real vLLM under load: 46 answers, of which three came in fewer chunks than tokens."""
    raised = [seed for seed in range(200) if "token_mismatch" in found(merged(46, 3, seed=seed))]
    assert raised == []


def test_the_text_of_many_merged_answers_contradicts_a_count_by_more_than_its_spread() -> None:
    assert [] == [seed for seed in range(200) if "token_mismatch" in found(merged(300, 30, seed=seed))]
    wrong = [seed for seed in range(100) if "token_mismatch" in found(merged(300, 30, counted_as=1.5, seed=seed))]
    assert len(wrong) == 100


@pytest.mark.parametrize("few", [3, 30])
def test_where_text_does_not_bear_a_count_out_the_chunks_bound_the_tpot(few: int) -> None:
    """Ten answers tell; fewer leave both the count and the chunks possible."""
    one = merged(300, few, counted_as=2.0)
    late = one.completion_tokens > 64
    least, most = (side[late] for side in sides(one, "tpot"))
    by_chunks = (one.e2e - one.ttft)[late] / (one.events[late] - 1)
    assert ("token_mismatch" in found(one)) is (few >= TELLING)
    assert (most >= by_chunks * (1 - 1e-9)).all()
    assert (least <= one.tpot[late]).all()


def test_prompts_of_unknown_length_are_not() -> None:
    one = healthy()
    assert "wrong_input_length" not in found(replace(one, asked_isl=np.zeros(one.n)))


@pytest.mark.parametrize(("share", "flagged"), [(0.019, False), (0.03, True)])
@pytest.mark.parametrize("prefix", [0.0, 0.5])
def test_a_cached_share_beyond_the_asked_prefix_is_flagged(prefix: float, share: float, flagged: bool) -> None:
    one = healthy()
    shared = replace(one, shape=replace(VARIED, prefix=prefix), cached_tokens=(prefix + share) * one.prompt_tokens)
    assert flagged is ("cache_contaminated" in found(shared))


@pytest.mark.parametrize("suffix", ["", "_total"])
@pytest.mark.parametrize(("hits", "flagged"), [(19.0, False), (30.0, True)])
def test_without_cached_counts_the_servers_counters_tell(suffix: str, hits: float, flagged: bool) -> None:
    server = {f"prefix_cache_hits{suffix}": hits, f"prefix_cache_queries{suffix}": 1000.0}
    one = replace(healthy(), cached_tokens=np.full(healthy().n, math.nan), server=(server,))
    assert flagged is ("cache_contaminated" in found(one))


@pytest.mark.parametrize(("times", "flagged"), [(1.0, True), (30.0, False)])
def test_counters_of_others_prompts_tell_nothing_of_ours(times: float, flagged: bool) -> None:
    one = healthy()
    queries = times * float(one.prompt_tokens.sum())
    server = {"prefix_cache_hits_total": 0.9 * queries, "prefix_cache_queries_total": queries}
    one = replace(one, cached_tokens=np.full(one.n, math.nan), server=(server,))
    assert flagged is ("cache_contaminated" in found(one))


def test_a_lost_server_is_flagged_even_when_nothing_was_counted() -> None:
    assert "server_lost" in found(replace(healthy(), ended=("server_lost",)))
    nothing = found(replace(trimmed(healthy(), 0), ended=("server_lost",)))
    assert {"server_lost", "no_requests"} == set(nothing)


@pytest.mark.parametrize(("identities", "flagged"), [(("a", "a"), False), (("a", None), False), (("a", "b"), True)])
def test_windows_of_two_servers_are_flagged(identities: tuple[str | None, ...], flagged: bool) -> None:
    joined = join([simulated(seed=1), simulated(seed=2)])
    assert flagged is ("server_changed" in found(replace(joined, server_identities=identities)))


# --- how the tokens came


def test_a_restart_of_the_same_server_between_windows_is_noted_and_not_fatal() -> None:
    windows = ("vllm 0.11 (uvicorn), started 1700000000", "vllm 0.11 (uvicorn), started 1700009000")
    restarted = flags(replace(join([healthy(), healthy()]), server_identities=windows))
    assert [("server_restarted", False)] == [(f.name, f.fatal) for f in restarted if f.name.startswith("server")]
    other = ("vllm 0.11 (uvicorn), started 1700000000", "vllm 0.12 (uvicorn), started 1700009000")
    assert "server_changed" in found(replace(join([healthy(), healthy()]), server_identities=other))


def gaps(zeros: int, others: int) -> tuple[LogHistogram, ...]:
    return (LogHistogram.of(np.array([0.0] * zeros + [0.01] * others)),) * BLOCKS


@pytest.mark.parametrize(("zeros", "flagged"), [(49, False), (50, True)])
def test_chunks_that_come_together_are_flagged(zeros: int, flagged: bool) -> None:
    assert flagged is ("buffered_stream" in found(replace(healthy(), block_itl=gaps(zeros, 100 - zeros))))


@pytest.mark.parametrize(("per_read", "flagged"), [(1, False), (3, True)])
def test_without_gaps_the_reads_tell(per_read: int, flagged: bool) -> None:
    one = replace(healthy(), block_itl=(LogHistogram(),) * BLOCKS, reads=healthy().events // per_read)
    assert flagged is ("buffered_stream" in found(one))


def test_a_burst_after_a_long_wait_is_flagged_and_a_long_queue_is_not() -> None:
    one = healthy()
    burst = replace(one, ttft=one.e2e * 0.95, tpot=np.full(one.n, 0.0002))
    queue = replace(one, ttft=one.e2e * 0.95, tpot=np.full(one.n, 0.01))
    assert "buffered_stream" in found(burst)
    assert "buffered_stream" not in found(queue)


@pytest.mark.parametrize("known", [True, False])
def test_tokens_per_chunk_are_not_said_where_chunks_are_not_known(known: bool) -> None:
    one = healthy()
    few = replace(one, events=np.full(one.n, 2 if known else 1), reads=np.ones(one.n))
    assert known is ("coalesced" in found(few))


@pytest.mark.parametrize("counted", [True, False])
def test_prompts_that_come_again_are_a_warning_where_no_count_says_what_was_cached(counted: bool) -> None:
    one = replace(healthy(), server=({REPEATED_PROMPTS: 1.0},))
    (flag,) = [
        f
        for f in flags(replace(one, cached_tokens=np.where(counted, 0.0, np.nan) * np.ones(one.n)))
        if f.name == "cache_contaminated"
    ] or [None]
    assert (flag is None) is counted
    assert flag is None or not flag.fatal


@pytest.mark.parametrize(("share", "flagged"), [(0.0, False), (0.002, False), (0.2, True)])
@pytest.mark.parametrize("chunks", [1, 2, None])
def test_answers_that_come_at_once_among_others_are_a_warning(share: float, flagged: bool, chunks: int | None) -> None:
    one = healthy()
    first = np.arange(one.n) < share * one.n
    e2e = np.where(first, one.ttft + (0.0 if chunks == 1 else 1e-3), one.e2e)
    events = one.events if chunks is None else np.where(first, chunks, one.events)
    (flag,) = [f for f in flags(replace(one, e2e=e2e, events=events)) if f.name == "buffered_stream"] or [None]
    assert flagged is (flag is not None)
    assert flag is None or not flag.fatal


def test_a_server_that_is_as_fast_for_all_answers_is_not_said_to_hold_some_back() -> None:
    one = healthy()
    fast = replace(one, e2e=one.ttft + (one.completion_tokens - 1) * 0.0012 * np.linspace(0.5, 1.5, one.n))
    assert "buffered_stream" not in found(fast)


@pytest.mark.parametrize(("per_chunk", "flagged"), [(1.04, False), (1.10, True)])
def test_chunks_of_several_tokens_are_noted_but_not_fatal(per_chunk: float, flagged: bool) -> None:
    one = healthy()
    several = replace(
        one, events=np.full(one.n, 1000), reads=np.full(one.n, 1000), completion_tokens=np.full(one.n, 1000 * per_chunk)
    )
    flag = found(several).get("coalesced")
    assert (False if flagged else None) == (None if flag is None else flag.fatal)


@pytest.mark.parametrize(("chunks_per_token", "flagged"), [(1.04, False), (2.0, True)])
def test_more_chunks_than_tokens_are_a_mismatch(chunks_per_token: float, flagged: bool) -> None:
    one = healthy()
    events = np.full(one.n, round(100 * chunks_per_token))
    doubled = replace(one, completion_tokens=np.full(one.n, 100.0), events=events, reads=events)
    assert flagged is ("token_mismatch" in found(doubled))


# --- the client


@pytest.mark.parametrize(
    ("health", "flagged"),
    [
        (ClientHealth(loop_lag_p99=0.0049), False),
        (ClientHealth(loop_lag_p99=0.0051), True),
        (ClientHealth(send_late_p99=0.0049), False),
        (ClientHealth(send_late_p99=0.0101), True),
        (ClientHealth(cpu_share=0.79), False),
        (ClientHealth(cpu_share=0.81), True),
        (ClientHealth(gc_pause_max=0.019), False),
        (ClientHealth(gc_pause_max=0.021), True),
        (ClientHealth(), False),
    ],
)
def test_a_client_at_its_limit_is_flagged(health: ClientHealth, flagged: bool) -> None:
    assert flagged is ("client_bound" in found(replace(healthy(), health=(health,))))


def test_slow_tokens_allow_a_slower_loop() -> None:
    slow = replace(healthy(), tpot=np.full(healthy().n, 0.1), health=(ClientHealth(loop_lag_p99=0.009),))
    assert "client_bound" not in found(slow)


def test_late_sends_matter_more_to_short_requests() -> None:
    late = (ClientHealth(send_late_p99=0.0075),)
    assert "client_bound" not in found(replace(healthy(), health=late))
    assert "client_bound" in found(replace(healthy(), health=late, e2e=healthy().e2e / 5))


@pytest.mark.parametrize(
    ("health", "fatal"),
    [
        (ClientHealth(loop_lag_p99=0.0056), False),
        (ClientHealth(send_late_p99=0.0101), False),
        (ClientHealth(gc_pause_max=0.021), False),
        (ClientHealth(loop_lag_p99=0.06), True),
        (ClientHealth(send_late_p99=0.06), True),
        (ClientHealth(cpu_share=0.81), True),
        (ClientHealth(suspended=0.6), True),
        (ClientHealth(stood_still=0.6), True),
    ],
)
def test_a_pause_is_a_warning_until_the_client_is_the_bottleneck(health: ClientHealth, fatal: bool) -> None:
    assert fatal is found(replace(healthy(), health=(health,)))["client_bound"].fatal


def test_a_pause_of_a_tenth_of_a_request_is_fatal_however_short() -> None:
    paused = replace(healthy(), health=(ClientHealth(loop_lag_p99=0.0056),))
    assert not found(paused)["client_bound"].fatal
    assert "is the limit" not in found(paused)["client_bound"].advice, "nothing is excluded for it"
    assert found(replace(paused, e2e=np.full(paused.n, 0.055)))["client_bound"].fatal


def test_the_worst_window_counts() -> None:
    joined = join([simulated(seed=1), simulated(seed=2)])
    assert "client_bound" in found(replace(joined, health=(ClientHealth(cpu_share=0.1), ClientHealth(cpu_share=0.9))))


@pytest.mark.parametrize(("count", "flagged"), [(2, False), (3, True)])
def test_requests_the_client_broke_are_flagged_above_half_a_percent(count: int, flagged: bool) -> None:
    assert flagged is ("client_bound" in found(replace(trimmed(healthy(), 400), client_failures=count)))
    cut = replace(trimmed(healthy(), 400), client_failures=count, ended=("budget",))
    assert "client_bound" not in found(cut), "the budget cut them off"


# --- the load


@pytest.mark.parametrize(("occupancy", "name"), [(7.86, None), (7.8, "under_concurrency"), (8.2, "over_concurrency")])
def test_the_load_must_be_what_was_asked(occupancy: float, name: str | None) -> None:
    names = set(found(replace(healthy(), in_flight=np.full(BLOCKS, occupancy))))
    assert ({name} if name else set()) == names


def test_one_idle_window_of_several_is_seen() -> None:
    joined = join([simulated(seed=1), simulated(seed=2)])
    idle = np.concatenate([np.full(BLOCKS, 8.0), np.full(BLOCKS, 7.7)])
    assert "under_concurrency" in found(replace(joined, in_flight=idle))


def test_a_load_thinned_by_failures_is_no_failed_measurement() -> None:
    overloaded = replace(failed(healthy(), 40), in_flight=np.full(BLOCKS, 5.0))
    assert not found(overloaded)["under_concurrency"].fatal


@pytest.mark.parametrize(("refused", "blames"), [((2, 5, 7), "429"), ((2, 5), "client"), ((), "client")])
def test_streams_that_stand_idle_after_a_refusal_are_not_the_clients_fault(
    refused: tuple[int, ...], blames: str
) -> None:
    ok = np.ones(healthy().n, dtype=np.bool_)
    ok[list(refused)] = False
    one = replace(healthy(), stream=np.arange(len(ok)) % 8, ok=ok, failures={"HTTP 429: too many": 1})
    flag = found(replace(one, in_flight=np.full(BLOCKS, 5.0)))["under_concurrency"]
    assert flag.fatal, "it is another load even so"
    assert blames in flag.advice


@pytest.mark.parametrize(
    ("occupancy", "fatal"), [(7.75, False), (7.25, False), (7.15, True), (8.75, False), (8.85, True)]
)
def test_a_load_off_by_some_percent_is_a_warning_and_by_over_ten_another_load(occupancy: float, fatal: bool) -> None:
    (flag,) = found(replace(healthy(), in_flight=np.full(BLOCKS, occupancy))).values()
    assert fatal is flag.fatal
    assert f"{occupancy:g} in flight" in flag.measured


def test_in_open_loop_nothing_is_expected_of_the_load() -> None:
    assert {} == found(replace(healthy(), in_flight=np.full(BLOCKS, 5.0), open_loop=True))


def test_a_burst_start_of_equal_requests_is_lockstep_and_a_staggered_one_is_not() -> None:
    fixed = Shape.of(64, 96)
    assert "lockstep" in found(simulated(640, 32, shape=fixed, stagger=False))
    assert {} == found(simulated(640, 32, shape=fixed))


@pytest.mark.parametrize(("together", "flagged"), [(3, False), (4, True)])
def test_the_dispersion_of_sends_has_its_limit_at_two(together: int, flagged: bool) -> None:
    # Groups of `together` sent at once, evenly apart: each fills one of `together` bins, so the
    # dispersion is one less.
    n, e2e = 360, 1.0
    sent = np.repeat(np.arange(n // together), together) * e2e * together / 8 + 0.01
    steps = replace(
        trimmed(healthy(), n),
        sent=sent,
        starts=np.array([0.0]),
        ends=np.array([n / 8 * e2e]),
        e2e=np.full(n, e2e),
        ttft=np.full(n, 0.1),
        tpot=np.full(n, math.nan),
    )
    assert flagged is ("lockstep" in found(steps))


def test_the_dispersion_of_a_convoy_and_of_chance_are_those_of_the_formula() -> None:
    convoy = np.repeat(np.arange(40.0), 16) + 0.01
    whole = stationarity.dispersion(convoy, 0.0, 40.0, 1.0)
    assert whole is not None
    # All 16 in one bin of eight: variance 16^2 * 7/64 over a mean of 2.
    assert 14.0 == pytest.approx(whole.value)
    chance = stationarity.dispersion(np.sort(np.random.default_rng(1).uniform(0, 400, 6400)), 0.0, 400.0, 1.0)
    assert chance is not None
    assert 1.0 == pytest.approx(chance.value, abs=4 * chance.error)


@pytest.mark.parametrize("n", [1, 2])
def test_one_or_two_streams_are_never_in_lockstep(n: int) -> None:
    assert "lockstep" not in found(simulated(100, n, shape=Shape.of(64, 32), stagger=False))


def trend(change: float, seed: int = 5) -> WindowData:
    """A window whose second half is faster or slower by this factor in everything, with two percent
    of noise.
    """
    rng = np.random.default_rng(seed)
    one = simulated(1000, seed=seed)
    half = one.sent > one.sent[one.n // 2]
    factor = np.where(half, change, 1.0)
    blocks = np.where(np.arange(BLOCKS) >= BLOCKS // 2, 1 / change, 1.0) * rng.normal(1, 0.01, BLOCKS)
    return replace(
        one,
        ttft=one.ttft * factor,
        tpot=one.tpot * factor,
        e2e=one.e2e * factor,
        block_output_tokens=one.block_output_tokens.mean() * blocks,
    )


@pytest.mark.parametrize(("change", "flagged"), [(1.0, False), (1.03, False), (1.10, True), (0.90, True)])
def test_a_change_from_half_to_half_is_flagged_above_five_percent(change: float, flagged: bool) -> None:
    flag = found(trend(change)).get("non_stationary")
    assert flagged is (flag is not None and "half" in flag.measured)


def test_a_server_that_slows_down_is_flagged() -> None:
    assert "non_stationary" in found(simulated(1000, 4, spec=EngineSpec(noise=0.05, drift=0.2)))


def test_the_change_is_named() -> None:
    flag = found(trend(1.2))["non_stationary"]
    assert_golden_row("flags", flag.measured)
    parts = flag.measured.split("; ")
    assert ["±5.00%"] * len(parts) == flag.limit.split(", "), "each value has its own limit"
    change = {part.split()[0]: int(part.split()[-1].rstrip("%")) for part in parts}
    assert change == pytest.approx({"throughput": -17, "TTFT": 20, "TPOT": 20, "E2E": 20}, abs=4)


def test_a_transient_left_in_the_window_is_flagged() -> None:
    one = simulated(1000, seed=3)
    warming = one.ttft * np.where(np.arange(one.n) < 0.3 * one.n, 3.0, 1.0)
    short = one.ttft * np.where(np.arange(one.n) < 0.1 * one.n, 3.0, 1.0)
    assert "settling" in found(replace(one, ttft=warming))["non_stationary"].measured
    assert "settling" not in found(replace(one, ttft=short))["non_stationary"].measured


def test_mser5_finds_the_step_that_was_put_in() -> None:
    rng = np.random.default_rng(2)
    x = np.concatenate([rng.normal(3, 0.1, 200), rng.normal(1, 0.1, 800)])
    assert 200 == pytest.approx(stationarity.mser5(x), abs=5)


def test_mser5_equals_its_definition() -> None:
    x = np.random.default_rng(4).lognormal(size=103)
    means = [float(np.mean(x[i : i + 5])) for i in range(0, 100, 5)]
    loss = [float(np.var(means[d:])) / (20 - d) for d in range(11)]
    assert 5 * loss.index(min(loss)) == stationarity.mser5(x)


def test_littles_law_out_of_bounds_is_a_warning() -> None:
    one = healthy()
    flag = found(replace(one, block_finished=one.block_finished * 1.5))["littles_law"]
    assert not flag.fatal
    assert "littles_law" not in found(replace(one, block_finished=one.block_finished * 1.02))


# --- what the sample can carry


@pytest.mark.parametrize(
    ("limit", "n", "flagged"), [("p99_ttft", 400, True), ("p95_ttft", 400, False), ("p95_ttft", 199, True)]
)
def test_too_few_for_what_is_to_be_claimed_is_a_warning(limit: str, n: int, flagged: bool) -> None:
    flag = found(trimmed(healthy(), n), limits=(Limit(limit, 1.0),)).get("too_few_samples")
    assert (False if flagged else None) == (None if flag is None else flag.fatal)


def test_without_a_claim_thirty_requests_are_enough() -> None:
    assert "too_few_samples" not in found(trimmed(healthy(), 30))
    assert "too_few_samples" in found(trimmed(healthy(), 29))


@pytest.mark.parametrize(("share", "flagged"), [(1.04, False), (1.06, True)])
@pytest.mark.parametrize("quantity", ["ttft", "tpot", "e2e"])
def test_faster_than_light_is_flagged_when_the_limit_is_known(quantity: str, share: float, flagged: bool) -> None:
    median = float(np.nanmedian(getattr(healthy(), quantity)))
    assert flagged is (any(above_roofline(healthy(), {quantity: median * share})))


def test_more_tokens_than_the_silicon_gives_are_flagged() -> None:
    one = healthy()
    rate = one.block_output_tokens.sum() / one.block_seconds.sum()
    assert ["faster_than_light"] == [flag.name for flag in above_roofline(one, {"output_throughput": rate * 0.9})]
    assert not [*above_roofline(one, {"output_throughput": rate * 0.97})]


# --- false alarms


KINDS = {
    "plain": EngineSpec(),
    "noisy": EngineSpec(noise=0.1),
    "queueing": EngineSpec(noise=0.05, max_num_seqs=12, max_batched_tokens=512),
    "short of memory": EngineSpec(noise=0.05, kv_tokens=12_000),
}


def false_alarms(repetitions: int, sizes: tuple[int, ...]) -> tuple[int, int, set[str]]:
    """Fatal flags on healthy windows of all kinds: how many windows, how many flagged, by what."""
    windows = flagged = 0
    names: set[str] = set()
    for kind, spec in KINDS.items():
        # Behind an admission cap requests of equal length do run in waves; that is the next test.
        for shape in (VARIED,) if kind == "queueing" else (VARIED, Shape.of(128, 32)):
            for concurrency in (1, 8, 32):
                for requests in sizes:
                    for seed in range(repetitions):
                        fatal = [
                            f
                            for f in flags(simulated(requests, concurrency, shape=shape, spec=spec, seed=seed))
                            if f.fatal
                        ]
                        windows, flagged = windows + 1, flagged + bool(fatal)
                        names.update(f.name for f in fatal)
    return windows, flagged, names


@pytest.mark.slow
def test_healthy_windows_are_hardly_ever_flagged() -> None:
    windows, flagged, names = false_alarms(2, (60, 300))
    assert 84 == windows
    assert flagged <= 1, names


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_of_a_thousand_healthy_windows_fewer_than_five_are_flagged() -> None:
    windows, flagged, names = false_alarms(16, (60, 300, 1000))
    assert windows > 1000
    assert flagged < 0.005 * windows, names


def test_equal_requests_in_step_run_in_waves_behind_an_admission_cap_and_paced_ones_do_not() -> None:
    capped = KINDS["queueing"]
    assert "lockstep" in found(simulated(300, 32, shape=Shape.of(128, 32), spec=capped, stagger=False))
    assert "lockstep" not in found(simulated(300, 32, shape=Shape.of(128, 32), spec=capped))
    assert "lockstep" not in found(simulated(300, 32, spec=capped))


@pytest.mark.parametrize("n", [28, 29, 300, 333, 1019])
def test_the_medians_of_blocks_equal_those_taken_one_by_one(n: int) -> None:
    x = np.random.default_rng(n).exponential(size=n)
    for count in (14, 20):
        one_by_one = [np.median(block) for block in np.array_split(x, count)]
        assert list(stationarity._block_medians(x, count)) == one_by_one


def at_rate(share: float, seed: int, requests: int = 400) -> WindowData:
    """A window at this share of what a small engine serves at most."""
    spec = EngineSpec(noise=0.1, max_num_seqs=4, seed=seed)
    shape = Shape(Lengths.fixed(64), Lengths.uniform(4, 8), arrivals=POISSON)
    rate = Rate.of(share * SMALL_ENGINE)
    trial = Trial("a", shape, rate, 0, Phase.GRID, requests, seed, 1.0, 0.0, 1e9, "f")
    records, measurement = virtual_trial(trial, spec)
    return window_data(measurement, records)


SMALL_ENGINE = 76.5
"""Requests per second that this engine serves at most, about."""


def test_a_rate_that_is_not_served_is_flagged_and_a_busy_queue_is_not() -> None:
    assert not [seed for seed in range(15) if "overloaded" in found(at_rate(0.85, seed))]
    over = [at_rate(1.5, seed, 800) for seed in range(6)]
    assert ["overloaded" in found(sample) for sample in over] == [True] * 6
    flag = found(over[0])["overloaded"]
    assert not flag.fatal
    share = float(re.findall(r"[\d.]+", flag.measured)[0]) / 100
    assert share == pytest.approx(1 - 1 / 1.5, abs=0.08), "so much of what arrives is not served"


def test_a_rate_at_which_the_backlog_grew_violates_a_limit_that_its_window_keeps() -> None:
    limits = (Limit("p90_tpot", 10.0),)
    served, over = (point(at_rate(share, 1, 800), limits=limits) for share in (0.5, 1.5))
    assert (judge(served, limits).verdict, judge(over, limits).verdict) == (Verdict.MEETS, Verdict.VIOLATES)
    assert judge(over, limits).per_metric == {"p90_tpot": Verdict.VIOLATES}
    assert violation(over, limits) == math.inf
    assert (violation(served, limits) or 0) < 0
    assert 1 < (served.in_flight or 0) < 4


@pytest.mark.parametrize(
    ("tokens", "in_flight", "failures", "says", "advice"),
    [
        (0.0, 0.0, {"HTTP 429: the queue is full": 9}, "0.0 of the background", "HTTP 429: the queue is full"),
        (0.0, 4.0, {}, "none of it got a token", "slot"),
        (9.0, 2.0, {}, "2.0 of the background", "client"),
    ],
)
def test_a_background_that_is_missing_says_why(
    tokens: float, in_flight: float, failures: dict[str, int], says: str, advice: str
) -> None:
    beside = replace(VARIED, background=Background(VARIED, 4))
    changes = {"shape": beside, "background_failures": failures}
    blocks = {"background_tokens": np.full(BLOCKS, tokens), "background_in_flight": np.full(BLOCKS, in_flight)}
    flag = found(replace(healthy(), **changes, **blocks))["background_missing"]
    assert flag.fatal
    assert says in flag.measured
    assert advice in flag.advice
