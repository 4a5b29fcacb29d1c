"""Which requests and tokens count, against a slow twin that looks at one event at a time, and
against known bias."""

import math
import random
import weakref
from dataclasses import replace

import numpy as np
import pytest

from frontier.core.model.loads import CappedRate
from frontier.core.model.shapes import Lengths, Shape
from frontier.core.model.trials import ClientHealth, Measurement, Outcome, Phase, Record, Trial, Window
from frontier.core.window import from_records
from frontier.core.window.from_records import window_data
from frontier.core.window.held import held, held_alone
from frontier.core.window.histogram import LogHistogram
from frontier.core.window.window import BLOCKS, WindowData, in_series, join
from frontier.simulator.spec import EngineSpec
from tests.kit.virtual_truth import closed_loop, truth

SHAPE = Shape.of(100, 8)


def trial(concurrency: int = 4, repeat: int = 0, shape: Shape = SHAPE) -> Trial:
    return Trial("a", shape, concurrency, repeat, Phase.GRID, 100, 1, 0.0, 0.0, 60.0, "f")


def measured(start: float, end: float, *, epoch: float = 1000.0, load: int = 4) -> Measurement:
    return Measurement(trial(load), epoch, Window(start, end), "requests")


def record(
    sent: float,
    *,
    index: int = 0,
    wait: float = 0.1,
    gaps: tuple[int, ...] = (10_000,) * 7,
    outcome: Outcome = Outcome.OK,
) -> Record:
    first = sent + wait
    last = first + sum(gaps) * 1e-6
    return Record(
        index,
        0,
        sent,
        outcome,
        last,
        100,
        len(gaps) + 1,
        first=first,
        visible=first,
        last=last,
        prompt_tokens=100,
        completion_tokens=len(gaps) + 1,
        cached_tokens=0,
        events=len(gaps) + 1,
        reads=len(gaps) + 1,
        gaps=gaps,
    )


def random_records(n: int, seed: int) -> list[Record]:
    """Every kind there is: failures, cut-off ones, missing counts, several tokens per event, gaps
    not kept.
    """
    rng = random.Random(seed)
    made: list[Record] = []
    for i in range(n):
        gaps = tuple(rng.choice((0, 900, 12_000, 1_500_000)) for _ in range(rng.randrange(6)))
        outcome = rng.choices((Outcome.OK, Outcome.TIMEOUT, Outcome.CANCELLED, Outcome.CLIENT), (7, 1, 1, 1))[0]
        one = record(rng.uniform(0, 30), index=i, wait=rng.uniform(0.01, 3), gaps=gaps, outcome=outcome)
        tokens = rng.choice((None, one.events, 3 * one.events))
        one = replace(one, completion_tokens=tokens, prompt_tokens=rng.choice((None, 90)))
        if rng.random() < 0.2:
            one = replace(one, gaps=())
        if outcome is not Outcome.OK and rng.random() < 0.5:
            one = replace(one, first=None, visible=None, last=None, events=0, reads=0, gaps=())
        made.append(one)
    return made


class SlowBlocks:
    """One event at a time."""

    def __init__(self, records: list[Record], start: float, end: float) -> None:
        self.start, self.end = start, end
        self.output, self.input, self.finished = [0.0] * BLOCKS, [0.0] * BLOCKS, [0.0] * BLOCKS
        self.gaps: list[list[float]] = [[] for _ in range(BLOCKS)]
        for r in records:
            if r.first is None or r.last is None:
                continue
            ok = r.outcome is Outcome.OK
            if ok:
                self.put(self.finished, r.last, 1)
                self.put(self.input, r.first, r.prompt_tokens or 0)
            tokens = (r.completion_tokens or 0) if ok else 0
            self.put(self.output, r.first, tokens / r.events)
            at, micros = r.first, 0
            for gap in r.gaps:
                micros += gap
                at = r.first + micros * 1e-6
                self.put(self.output, at, tokens / r.events)
                if r.outcome is not Outcome.CLIENT and (block := self.block(at)) is not None:
                    self.gaps[block].append(gap * 1e-6)
            if not r.gaps and r.events > 1:
                # The rest comes evenly: a thousand small helpings.
                for i in range(1000):
                    at = r.first + (i + 0.5) / 1000 * (r.last - r.first)
                    self.put(self.output, at, tokens * (1 - 1 / r.events) / 1000)

    def block(self, t: float) -> int | None:
        if not self.start <= t <= self.end:
            return None
        return min(BLOCKS - 1, int((t - self.start) * BLOCKS / (self.end - self.start)))

    def put(self, into: list[float], t: float, amount: float) -> None:
        block = self.block(t)
        if block is not None:
            into[block] += amount


@pytest.mark.parametrize("seed", range(3))
def test_blocks_equal_a_count_event_by_event(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(from_records, "BATCH", 64)
    records = random_records(500, seed)
    slow, found = SlowBlocks(records, 5.0, 25.0), window_data(measured(5.0, 25.0), records)
    assert slow.finished == found.block_finished.tolist()
    assert slow.input == found.block_input_tokens.tolist()
    assert slow.output == pytest.approx(found.block_output_tokens.tolist(), rel=0.01, abs=0.02)
    assert [LogHistogram.of(gaps) for gaps in slow.gaps] == list(found.block_itl)


def test_with_all_gaps_kept_output_tokens_are_exact_per_block() -> None:
    records = [r for r in random_records(800, 7) if r.gaps]
    slow, found = SlowBlocks(records, 5.0, 25.0), window_data(measured(5.0, 25.0), records)
    assert slow.output == pytest.approx(found.block_output_tokens.tolist(), rel=1e-9)


def test_latency_counts_the_requests_sent_in_the_window_in_that_order() -> None:
    records = [record(t, index=i, wait=t / 100) for i, t in enumerate((3.0, 0.9, 1.0, 2.0, 1.5, 2.1))]
    found = window_data(measured(1.0, 2.0), records)
    assert [0.010, 0.015, 0.020] == pytest.approx(found.ttft.tolist())
    assert [1001.0, 1001.5, 1002.0] == found.sent.tolist()


def test_ttft_tpot_and_e2e_are_those_of_the_definitions() -> None:
    found = window_data(measured(0.0, 9.0), [record(1.0, wait=0.25, gaps=(10_000, 30_000))])
    assert [0.25, 0.02, 0.29] == pytest.approx([found.ttft[0], found.tpot[0], found.e2e[0]])


def test_one_token_has_no_time_per_token_and_no_usage_has_none_either() -> None:
    records = [record(1.0, gaps=()), replace(record(2.0), completion_tokens=None)]
    found = window_data(measured(0.0, 9.0), records)
    assert [True, True] == np.isnan(found.tpot).tolist()
    assert [True, True] == np.isfinite(found.ttft).tolist()
    assert [False, True] == np.isnan(found.completion_tokens).tolist()


def test_a_count_that_is_missing_or_contradicted_leaves_a_tpot_unknown_and_one_token_leaves_it_undefined() -> None:
    records = [
        record(1.0, gaps=()),
        replace(record(2.0), completion_tokens=None),
        replace(record(3.0), completion_tokens=1),
    ]
    found = window_data(measured(0.0, 9.0), records)
    assert [True, True, True] == np.isnan(found.tpot).tolist()
    assert [False, True, True] == found.untimed.tolist()
    assert [False, True, False] == found.uncounted.tolist()


@pytest.mark.parametrize(
    ("gaps", "text_at", "hollow"),
    [
        ((60_000, 2_000, 2_000, 2_000), 1, True),  # sent ahead, then silence
        ((20_000, 20_000, 20_000, *(2_000,) * 8), 3, True),  # several of them
        ((12_000, 10_000, 10_000, 10_000), 1, False),  # a line break at the pace of all tokens
        ((10_000, 10_000, 10_000, 10_000), 3, False),
        ((900, 100, 100), 1, False),  # under a tenth of the TTFT
        ((60_000,), 1, True),  # nothing to know a pace by
    ],
)
def test_a_first_token_is_hollow_when_the_silence_after_it_is_not_the_pace_of_tokens(
    gaps: tuple[int, ...], text_at: int, hollow: bool
) -> None:
    one = record(1.0, wait=0.010, gaps=gaps)
    assert one.first is not None
    silence = sum(gaps[:text_at]) * 1e-6
    found = window_data(measured(0.0, 9.0), [replace(one, first_text=one.first + silence), record(2.0)])
    assert [silence, 0.0] == pytest.approx(found.silence.tolist())
    assert [hollow, False] == found.hollow.tolist()


def test_finish_reasons_not_known_to_be_good_are_counted_in_the_window_the_commonest_by_name() -> None:
    reasons = ["stop", "LENGTH", None, *["content_filter"] * 3, *(f"odd {i}" for i in range(12))]
    records = [replace(record(1.0 + i / 100), finish_reason=r) for i, r in enumerate(reasons)]
    found = window_data(measured(0.0, 9.0), [*records, replace(record(20.0), finish_reason="late")])
    assert 3 == found.odd_finishes["content_filter"]
    assert 15 == sum(found.odd_finishes.values())
    assert 9 == len(found.odd_finishes)
    assert 30 == sum(join([found, found]).odd_finishes.values())


@pytest.mark.parametrize("outcome", [o for o in Outcome if o not in (Outcome.OK, Outcome.CANCELLED, Outcome.CLIENT)])
def test_every_failure_is_infinite_latency_even_with_tokens(outcome: Outcome) -> None:
    found = window_data(measured(0.0, 9.0), [record(1.0), record(2.0, outcome=outcome)])
    assert [False, True] == np.isinf(found.ttft).tolist()
    assert [False, True] == np.isinf(found.tpot).tolist()
    assert [False, True] == np.isinf(found.e2e).tolist()
    assert [True, False] == found.ok.tolist()
    assert {"ok": 1, outcome.value: 1} == found.outcomes


@pytest.mark.parametrize("outcome", [Outcome.CANCELLED, Outcome.CLIENT])
def test_what_we_cut_off_or_broke_is_counted_aside(outcome: Outcome) -> None:
    found = window_data(measured(0.0, 9.0), [record(1.0), record(2.0, outcome=outcome), record(20.0, outcome=outcome)])
    assert 1 == found.n
    assert 1 == found.client_failures
    assert {"ok": 1, outcome.value: 1} == found.outcomes


@pytest.mark.parametrize("ended", ["failing", "budget"])
def test_what_is_cut_off_by_the_end_of_a_trial_is_no_failure_of_the_client(ended: str) -> None:
    records = [record(0.5, outcome=Outcome.HTTP_ERROR), record(1.0, outcome=Outcome.CANCELLED)]
    cut = replace(measured(0.0, 2.0), ended=ended)  # type: ignore[arg-type]
    assert (1, 0) == (window_data(cut, records).n, window_data(cut, records).client_failures)
    assert 1 == window_data(cut, [*records, record(1.5, outcome=Outcome.CLIENT)]).client_failures


def test_tokens_of_failed_requests_are_not_throughput_but_their_gaps_were_seen() -> None:
    found = window_data(measured(0.0, 9.0), [record(1.0, outcome=Outcome.TRUNCATED)])
    assert 0 == found.block_output_tokens.sum()
    assert 7 == sum(block.count for block in found.block_itl)


def test_tokens_count_where_they_arrive_whoever_sent_for_them() -> None:
    # Sent before, arriving 4 of 8 in the window; sent within, arriving 3 of 8 in it.
    early, late = record(0.0, wait=0.9, gaps=(40_000,) * 7), record(1.90, wait=0.025, gaps=(30_000,) * 7)
    found = window_data(measured(1.0, 2.0), [early, late])
    assert 5 + 3 == found.block_output_tokens.sum()
    assert 1 == found.block_finished.sum()
    assert 1 == found.n


def test_tokens_of_a_chunk_of_several_are_spread_over_its_events() -> None:
    one = replace(record(1.0, wait=0.0, gaps=(1_000_000,)), completion_tokens=10)
    found = window_data(measured(0.0, 1.5), [one])
    assert 5 == found.block_output_tokens.sum()


def test_in_flight_is_the_time_integral() -> None:
    # Two seconds of window: one request throughout, one for the first half second, a failing one
    # for the last quarter.
    records = [
        record(0.0, wait=1.0, gaps=(4_000_000,)),
        record(0.5, wait=0.5, gaps=(500_000,)),
        record(2.5, wait=0.5, gaps=(0,), outcome=Outcome.TIMEOUT),
    ]
    found = window_data(measured(1.0, 3.0), records)
    assert 1 + 0.25 + 0.25 == pytest.approx(found.in_flight.mean())
    assert [2.0] * 5 + [1.0] * 10 + [2.0] * 5 == pytest.approx(found.in_flight.tolist())


def test_open_loop_latency_counts_from_the_scheduled_send() -> None:
    late = replace(record(5.0, wait=0.1), scheduled=3.0)
    found = window_data(measured(2.0, 4.0, load=CappedRate.at(10.0, 4)), [late])
    assert 2.1 == pytest.approx(found.ttft[0])
    assert [1003.0] == found.sent.tolist()
    assert found.open_loop
    assert 0 == window_data(measured(2.0, 4.0), [late]).n


def test_records_may_come_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(from_records, "BATCH", 50)
    records = random_records(300, 1)
    shuffled = random.Random(0).sample(records, len(records))
    a, b = window_data(measured(5.0, 25.0), records), window_data(measured(5.0, 25.0), shuffled)
    assert np.array_equal(a.ttft, b.ttft)
    assert a.block_itl == b.block_itl
    assert a.block_output_tokens == pytest.approx(b.block_output_tokens)


def test_no_records_or_no_window_make_an_empty_sample() -> None:
    assert 0 == window_data(measured(1.0, 2.0), []).n
    lost = window_data(Measurement(trial(), 0.0, Window(0.0, 0.0), "server_lost"), [record(5.0)])
    assert (0, ("server_lost",)) == (lost.n, lost.ended)


def test_a_success_without_a_token_time_is_no_success() -> None:
    found = window_data(measured(0.0, 9.0), [replace(record(1.0), first=None, last=None, gaps=())])
    assert math.isinf(found.ttft[0])
    assert {"empty": 1} == found.outcomes


def test_gaps_longer_than_a_second_are_binned_like_short_ones() -> None:
    gaps = (999_999, 1_048_575, 1_048_576, 1_048_577, 30_000_000)
    found = window_data(measured(0.0, 90.0), [record(1.0, gaps=gaps)])
    assert LogHistogram.of([gap * 1e-6 for gap in gaps]) == LogHistogram.merged(found.block_itl)


# --- naive figures


def test_the_whole_run_is_what_a_tool_without_windows_says() -> None:
    records = [record(float(t), index=t, wait=0.1 + t / 100) for t in range(10)]
    records.append(record(10.0, outcome=Outcome.TIMEOUT, wait=9.93))
    naive = window_data(measured(4.0, 6.0), records).whole_run
    waits = [0.1 + t / 100 for t in range(10)]
    assert 20.0 == pytest.approx(naive["duration"])
    assert 80 / 20.0 == pytest.approx(naive["output_throughput"])
    assert 10 / 20.0 == pytest.approx(naive["request_throughput"])
    assert np.percentile(waits, 99) == pytest.approx(naive["p99_ttft"])
    assert np.mean(waits) == pytest.approx(naive["mean_ttft"])
    assert 0.01 == pytest.approx(naive["p50_tpot"])


def test_a_run_without_success_has_no_naive_figures() -> None:
    assert {} == dict(window_data(measured(0.0, 9.0), [record(1.0, outcome=Outcome.TIMEOUT)]).whole_run)


def test_at_ten_latencies_the_window_is_right_within_two_percent_and_the_naive_figure_is_not() -> None:
    shape = Shape(Lengths.normal(256, 80), Lengths.normal(64, 20))
    spec = EngineSpec(noise=0.05)
    true = truth(spec, shape, 32, "output_throughput", requests=6000)
    found, naive = [], []
    for seed in range(12):
        records, at = closed_loop(replace(spec, seed=seed), shape, 32, requests=320, warmup_requests=32, seed=seed)
        one = window_data(Measurement(trial(32, shape=shape), 0.0, at, "requests"), records)
        found.append(one.block_output_tokens.sum() / one.block_seconds.sum())
        naive.append(one.whole_run["output_throughput"])
    assert 1.0 == pytest.approx(np.mean(found) / true, abs=0.02)
    assert 0.97 > np.mean(naive) / true


# --- joining


def window_of(epoch: float, seed: int, concurrency: int = 4) -> WindowData:
    health = ClientHealth(loop_lag_p99=seed / 1000)
    return window_data(
        replace(measured(5.0, 25.0, epoch=epoch, load=concurrency), health=health), random_records(200, seed)
    )


def test_joining_concatenates_in_the_order_given_whatever_the_clock_said() -> None:
    a, b, c = window_of(300.0, 1), window_of(100.0, 2), window_of(200.0, 3)
    joined = join([a, c, b])
    assert [305.0, 205.0, 105.0] == joined.starts.tolist()
    assert np.concatenate([a.ttft, c.ttft, b.ttft]).tolist() == pytest.approx(joined.ttft.tolist(), nan_ok=True)
    assert [0] * a.n + [1] * c.n + [2] * b.n == joined.window.tolist()
    assert (*a.block_itl, *c.block_itl, *b.block_itl) == joined.block_itl
    assert 3 * BLOCKS == len(joined.block_output_tokens) == len(joined.in_flight)
    assert [0.001, 0.003, 0.002] == [health.loop_lag_p99 for health in joined.health]
    assert sum(s.client_failures for s in (a, b, c)) == joined.client_failures
    assert a.outcomes["ok"] + b.outcomes["ok"] + c.outcomes["ok"] == joined.outcomes["ok"]


def test_joining_in_steps_is_joining_at_once() -> None:
    a, b, c = window_of(100.0, 1), window_of(200.0, 2), window_of(300.0, 3)
    stepwise, at_once = join([join([a, b]), c]), join([a, b, c])
    assert at_once.window.tolist() == stepwise.window.tolist()
    assert at_once.ttft.tolist() == stepwise.ttft.tolist()
    assert at_once.block_itl == stepwise.block_itl


def test_one_window_joins_to_itself_and_none_to_nothing() -> None:
    a = window_of(100.0, 1)
    assert a is join([a])
    with pytest.raises(ValueError, match="nothing to join"):
        join([])


def test_windows_hold_what_was_worked_out_of_them_and_it_goes_with_them() -> None:
    asked = []

    @held
    def first_sent(sample: WindowData, more: float, *, times: float = 1.0) -> float:
        asked.append(sample)
        return times * float(sample.sent[0]) + more

    sample = window_of(1.0, 1)
    assert first_sent(sample, 2.0) == first_sent(sample, 2.0) == float(sample.sent[0]) + 2.0
    assert first_sent(sample, 2.0, times=3.0) == 3.0 * float(sample.sent[0]) + 2.0
    assert [sample, sample] == asked
    later = replace(sample, sent=sample.sent + 5.0)
    assert first_sent(later, 2.0) == float(sample.sent[0]) + 7.0
    parts = [sample, window_of(2.0, 2)]
    assert join(parts) is join(tuple(parts))
    assert join([*parts, window_of(3.0, 3)]) is not join(parts)
    both = weakref.ref(join(parts))
    asked.clear()
    del sample, later, parts
    assert both() is None


def test_what_does_not_depend_on_a_series_is_worked_out_once_for_all_that_it_shows() -> None:
    asked = []

    @held_alone
    def longest(sample: WindowData) -> float:
        asked.append(sample)
        return float(sample.e2e.max())

    parts = [window_of(1.0, 1), window_of(2.0, 2)]
    shown = [in_series(part, 8, None) for part in parts]
    later = [in_series(part, 9, None) for part in parts]
    whole = [join(each) for each in (parts, shown, later)]
    assert [1, 8, 9] == [each.runs for each in whole]
    assert len({longest(each) for each in whole}) == 1
    assert whole[:1] == asked
    assert all(each.e2e is whole[0].e2e for each in whole)
    assert in_series(parts[0], 8, None) is shown[0]
    assert replace(shown[0], sent=shown[0].sent + 5.0).alone is not parts[0]


def test_two_settings_are_not_joined() -> None:
    with pytest.raises(ValueError, match="different settings"):
        join([window_of(1.0, 1), window_of(2.0, 2, concurrency=8)])


def test_the_naive_figures_of_several_windows_are_their_median() -> None:
    parts = [window_of(100.0 * i, i) for i in (1, 2, 3)]
    expected = sorted(part.whole_run["p99_ttft"] for part in parts)[1]
    assert expected == join(parts).whole_run["p99_ttft"]


def test_gaps_without_the_time_of_the_last_event_are_refused() -> None:
    damaged = replace(record(1.0, outcome=Outcome.TRUNCATED), last=None)
    with pytest.raises(ValueError, match="last event"):
        window_data(measured(0.0, 9.0), [damaged])
