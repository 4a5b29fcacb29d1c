import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontier.core.shapes import Shape
from frontier.core.trials import Outcome, Phase, Trial
from frontier.simulator.spec import EngineSpec, Speculation, kv_blocks, price_of
from frontier.simulator.speculative import Acceptance, SpeculativeScheduler
from frontier.simulator.virtual import closed_loop_arrays, expected_e2e, virtual_trial
from tests.simulator.plain_scheduler import PlainScheduler
from tests.simulator.test_scheduler import requests_drawn, specs
from tests.virtual_truth import closed_loop, truth

QUIET = EngineSpec(
    step_base=5e-3, per_decode=1e-4, per_prefill_token=2e-5, per_context_token=0.0, ingest=0.0, kv_tokens=10_000_000
)


def speculating(spec: EngineSpec, tokens: int, acceptance: float, draft: float = 0.05) -> EngineSpec:
    room = max(spec.max_batched_tokens, spec.max_num_seqs * (1 + tokens))
    return dataclasses.replace(spec, speculation=Speculation(tokens, acceptance, draft), max_batched_tokens=room)


speculations = st.tuples(st.integers(1, 5), st.sampled_from([0.0, 0.3, 0.8, 1.0]), st.sampled_from([0.0, 0.1]))


@settings(max_examples=40, deadline=None)
@given(specs(), speculations, requests_drawn, st.dictionaries(st.integers(0, 24), st.integers(0, 40), max_size=6))
def test_every_step_equals_that_of_the_plain_scheduler(spec, speculation, requests, cancels):
    spec = speculating(spec, *speculation)
    fast, plain = SpeculativeScheduler(spec), PlainScheduler(spec)
    due = sorted((step, name) for name, (_, _, step) in enumerate(requests))
    now = 0.0
    for number in itertools.count():
        while due and due[0][0] <= number:
            _, name = due.pop(0)
            fast.submit(name, *requests[name][:2])
            plain.submit(name, *requests[name][:2])
        for name, at in cancels.items():
            if at == number and fast.cancel(name):
                plain.cancel(name)
        one, other = fast.step(now), plain.step(now)
        assert (one is None) == (other is None)
        if one is None:
            if not due:
                break
            continue
        now = one.end
        assert other.tokens == list(one.tokens)
        assert other.counts == list(one.counts)
        assert other.first == list(one.first)
        assert sorted(other.finished) == sorted(one.finished)
        assert other.preempted == list(one.preempted)
        assert other.prefilled == one.prefilled
        assert other.duration == pytest.approx(one.duration, rel=1e-12)
        assert other.free == pytest.approx((1 - one.kv_used) * kv_blocks(spec), abs=1e-6)
    assert fast.kv.free == fast.kv.blocks


@settings(max_examples=15, deadline=None)
@given(specs(), requests_drawn)
def test_drafts_that_are_never_accepted_only_cost_time(spec, requests):
    """The order of tokens and of preemptions without room for doubt: memory in plenty, so that
    drafts need none.
    """
    spec = dataclasses.replace(spec, kv_tokens=100_000, noise=0.0, stalls=None)
    useless = speculating(spec, 3, 0.0)
    spec = dataclasses.replace(spec, max_batched_tokens=useless.max_batched_tokens)
    got = []
    for each in (spec, useless):
        found = closed_loop(each, Shape.of(20, 10), 4, requests=len(requests), stagger=False)[0]
        got.append([(r.stream, r.completion_tokens) for r in found])
    assert got[0][: len(requests)] == got[1][: len(requests)]
    alone = [truth(each, Shape.of(20, 10), 1, "mean_tpot", 20) for each in (spec, useless)]
    assert alone[1] > alone[0]


@pytest.mark.parametrize(("k", "a"), [(1, 0.6), (4, 0.7), (4, 1.0), (5, 0.0), (8, 0.85)])
def test_a_step_yields_what_the_closed_form_says(k, a):
    """(1 - a^(k + 1)) / (1 - a) tokens a step: Leviathan et al. 2023, equation 1."""
    expected = k + 1 if a == 1 else (1 - a ** (k + 1)) / (1 - a)
    assert Speculation(k, a).expected == pytest.approx(expected)
    scheduler = SpeculativeScheduler(speculating(QUIET, k, a))
    scheduler.submit(0, 10, 60_000)
    scheduler.step(0.0)
    steps = tokens = 0
    while (step := scheduler.step(0.0)) is not None:
        steps, tokens = steps + 1, tokens + step.counts[0]
    assert tokens / steps == pytest.approx(expected, rel=0.02)
    assert 59_999 == tokens
    said = scheduler.drafted
    assert 1 + sum(said.accepted) / said.drafts == pytest.approx(expected, rel=0.02)
    assert k * said.drafts == said.tokens
    by_position = [n / said.drafts for n in said.accepted]
    assert by_position == pytest.approx([a**j for j in range(1, k + 1)], abs=0.02)


def test_acceptance_is_a_run_from_the_front():
    luck = Acceptance(Speculation(3, 0.5), seed=1)
    drawn = np.bincount([luck.draw(3) for _ in range(20_000)], minlength=4) / 20_000
    assert drawn == pytest.approx([0.5, 0.25, 0.125, 0.125], abs=0.012)


def test_a_step_costs_its_drafts_and_its_verification():
    spec = speculating(QUIET, 4, 1.0, draft=0.1)
    scheduler = SpeculativeScheduler(spec)
    for name in range(3):
        scheduler.submit(name, 100, 16)
    durations = [step.duration for step in iter(lambda: scheduler.step(0.0), None)]
    one = 5e-3 + 3 * 1e-4
    assert durations[1:] == pytest.approx([5e-3 + 3 * 5 * 1e-4 + 4 * 0.1 * one] * 3)


def test_a_roofline_verifies_many_tokens_with_one_reading_of_the_weights():
    spec = EngineSpec.from_mapping({"model": "llama-3.1-8b", "hardware": "h100", "overhead": 0, "efficiency": 1.0})
    price = price_of(spec)
    assert price.mixed(8, 8000, 8, 0, 0.0, 0) == pytest.approx(price.decode(8, 8000))
    assert price.mixed(8, 8000, 40, 0, 0.0, 0) == pytest.approx(price.decode(8, 8000), rel=1e-3)
    many = price.mixed(256, 256_000, 256 * 5, 0, 0.0, 0)
    assert many > 1.3 * price.decode(256, 256_000), "there the arithmetic binds"


def test_tpot_falls_as_the_tokens_of_a_step_and_records_agree_with_arrays():
    shape = Shape.of(64, 200)
    plain, drafted = QUIET, speculating(QUIET, 4, 0.7, draft=0.0)
    drafted = dataclasses.replace(drafted, per_decode=0.0)
    plain = dataclasses.replace(plain, per_decode=0.0)
    fast, slow = (closed_loop_arrays(s, shape, 8, requests=300) for s in (drafted, plain))
    # A request ends when its last token is there: what its last step yields beyond is lost, so a
    # little less is won.
    assert slow.tpot.mean() / fast.tpot.mean() == pytest.approx(Speculation(4, 0.7).expected, rel=0.03)
    records, window = closed_loop(drafted, shape, 8, requests=300)
    inside = [r for r in records if window.start <= r.sent <= window.end]
    assert [r.first - r.sent for r in inside] == pytest.approx(fast.ttft)
    assert [r.last - r.sent for r in inside] == pytest.approx(fast.e2e)
    assert {r.completion_tokens for r in inside} == {200}
    assert np.mean([r.events for r in inside]) == pytest.approx(1 + 199 / Speculation(4, 0.7).expected, rel=0.03)
    assert {r.events - len(r.gaps) for r in inside} == {1}
    assert {r.text_chars for r in inside if r.outcome is Outcome.OK} == {1000}
    rate = len(fast.sent) / fast.window.length
    assert fast.output_throughput == pytest.approx(200 * rate, rel=0.03)
    assert expected_e2e(drafted, shape, 8) == pytest.approx(fast.e2e.mean(), rel=0.1)


def test_a_trial_says_what_was_drafted_and_accepted():
    spec = speculating(QUIET, 3, 0.6)
    trial = Trial("d", Shape.of(64, 32), 4, 0, Phase.GRID, 100, 7, 0.0, 0.0, 1e9, "f")
    server = virtual_trial(trial, spec)[1].server
    length = 1 + server["spec_decode_num_accepted_tokens_total"] / server["spec_decode_num_drafts_total"]
    assert length == pytest.approx(Speculation(3, 0.6).expected, rel=0.05)
    assert server["spec_decode_num_draft_tokens_total"] == 3 * server["spec_decode_num_drafts_total"]


def test_a_spec_is_read_written_and_checked():
    spec = EngineSpec.from_mapping({"speculation": {"tokens": 4, "acceptance": "80%", "draft": 0.02}})
    assert Speculation(4, 0.8, 0.02) == spec.speculation
    assert spec == EngineSpec.from_mapping(spec.to_mapping())
    for wrong, words in (
        ({"tokens": 0}, "speculation.tokens: 0 is out of range"),
        ({"acceptance": 0.5}, "speculation: the key tokens is missing"),
        ({"tokens": 2, "acceptance": 2}, "speculation.acceptance: 2 is out of range"),
        ({"tokens": 40}, "max_batched_tokens: 2048 is below max_num_seqs x (1 + speculation.tokens)"),
    ):
        with pytest.raises(ValueError) as refused:
            EngineSpec.from_mapping({"speculation": wrong})
        assert words in str(refused.value)
