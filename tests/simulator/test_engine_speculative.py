"""Speculative decoding in the simulator: its mean effect on the time per token."""

import dataclasses

import pytest

from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Phase, Trial
from frontier.simulator.engine import Scheduler
from frontier.simulator.spec import EngineSpec, Speculation, price_of
from frontier.simulator.virtual import closed_loop_arrays, virtual_trial
from tests.kit.virtual_truth import expected_e2e

QUIET = EngineSpec(
    step_base=5e-3, per_decode=1e-4, per_prefill_token=2e-5, per_context_token=0.0, ingest=0.0, kv_tokens=10_000_000
)


def speculating(spec: EngineSpec, tokens: int, acceptance: float, draft: float = 0.05) -> EngineSpec:
    room = max(spec.max_batched_tokens, spec.max_num_seqs * (1 + tokens))
    return dataclasses.replace(spec, speculation=Speculation(tokens, acceptance, draft), max_batched_tokens=room)


@pytest.mark.parametrize(("k", "a"), [(1, 0.6), (4, 0.7), (4, 1.0), (5, 0.0), (8, 0.85)])
def test_a_step_is_worth_what_the_closed_form_says(k, a):
    """(1 - a^(k + 1)) / (1 - a) tokens a step: Leviathan et al. 2023, equation 1."""
    expected = k + 1 if a == 1 else (1 - a ** (k + 1)) / (1 - a)
    assert Speculation(k, a).expected == pytest.approx(expected)
    steady = dataclasses.replace(QUIET, per_decode=0.0)
    plain, drafted = price_of(steady), price_of(speculating(steady, k, a, draft=0.0))
    assert plain.decode(8, 800) / drafted.decode(8, 800) == pytest.approx(expected)


def test_a_step_costs_its_drafts_and_its_verification():
    scheduler = Scheduler(speculating(QUIET, 4, 1.0, draft=0.1))
    for name in range(3):
        scheduler.submit(name, 100, 16)
    durations = [step.duration for step in iter(lambda: scheduler.step(0.0), None)]
    one = 5e-3 + 3 * 1e-4
    assert len(durations) == 16
    assert durations[1:] == pytest.approx([(5e-3 + 3 * 5 * 1e-4 + 4 * 0.1 * one) / 5] * 15)


def test_a_prompt_waits_for_a_whole_step_and_the_next_ones_make_up_for_it():
    plain, drafted = price_of(QUIET), price_of(speculating(QUIET, 4, 0.7))
    read = plain.mixed(8, 800, 8, 500, 0.0, 1) - plain.decode(8, 800)
    mean = drafted.decode(8, 800)
    whole = mean * Speculation(4, 0.7).expected
    assert drafted.mixed(8, 800, 8, 500, 0.0, 1) == pytest.approx(whole + read)
    later = [drafted.decode(8, 800) for _ in range(9)]
    assert sum(later) == pytest.approx(10 * mean - whole)
    assert min(later) == pytest.approx(mean / 2)
    assert later[-1] == pytest.approx(mean)
    assert drafted.mixed(0, 0, 0, 500, 0.0, 1) == plain.mixed(0, 0, 0, 500, 0.0, 1)


def test_a_roofline_verifies_many_tokens_with_one_reading_of_the_weights():
    spec = EngineSpec.from_mapping({"model": "llama-3.1-8b", "hardware": "h100", "overhead": 0, "efficiency": 1.0})
    price = price_of(spec)
    assert price.mixed(8, 8000, 8, 0, 0.0, 0) == pytest.approx(price.decode(8, 8000))
    assert price.mixed(8, 8000, 40, 0, 0.0, 0) == pytest.approx(price.decode(8, 8000), rel=1e-3)
    many = price.mixed(256, 256_000, 256 * 5, 0, 0.0, 0)
    assert many > 1.3 * price.decode(256, 256_000), "there the arithmetic binds"


def test_tpot_falls_as_the_tokens_of_a_step_and_the_first_guess_knows_it():
    shape = Shape.of(64, 200)
    plain = dataclasses.replace(QUIET, per_decode=0.0)
    drafted = speculating(plain, 4, 0.7, draft=0.0)
    fast, slow = (closed_loop_arrays(s, shape, 8, requests=300) for s in (drafted, plain))
    assert slow.tpot.mean() / fast.tpot.mean() == pytest.approx(Speculation(4, 0.7).expected, rel=0.03)
    assert set(fast.tokens) == {200}
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
