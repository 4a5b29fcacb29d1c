import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontier.simulator.engine import Scheduler, Step
from frontier.simulator.spec import EngineSpec, kv_blocks
from tests.kit.golden import assert_golden_row
from tests.kit.plain_scheduler import PlainScheduler

TIGHT = {"kv_tokens": 640, "block_size": 4, "max_num_seqs": 8, "max_batched_tokens": 24, "watermark": 0.02}


def run_out(scheduler: Scheduler, now: float = 0.0) -> list[Step]:
    """Step until idle."""
    steps = []
    while (step := scheduler.step(now)) is not None:
        steps.append(step)
        now = step.end
    return steps


requests_drawn = st.lists(
    st.tuples(st.integers(1, 60), st.integers(1, 60), st.integers(0, 12)), min_size=1, max_size=25
)  # prompt, output, steps until it is sent


@st.composite
def specs(draw: st.DrawFn) -> EngineSpec:
    seqs = draw(st.integers(1, 8))
    return EngineSpec.from_mapping(
        {
            "kv_tokens": draw(st.integers(160, 700)),
            "block_size": draw(st.sampled_from([1, 4, 16])),
            "max_num_seqs": seqs,
            "max_batched_tokens": draw(st.integers(seqs, 80)),
            "watermark": draw(st.sampled_from([0.0, 0.01, 0.1])),
            "noise": draw(st.sampled_from([0.0, 0.2])),
            "noise_kind": draw(st.sampled_from(["lognormal", "gamma"])),
            "per_prefill_pair": 1e-8,
            "stalls": draw(st.sampled_from([None, {"every": 0.3, "duration": 0.05}])),
        }
    )


def replay(
    spec: EngineSpec, requests: list[tuple[int, int, int]], cancels: dict[int, int]
) -> list[tuple[Step, object]]:
    """Both schedulers over the same requests and cancellations, step by step."""
    fast, plain = Scheduler(spec), PlainScheduler(spec)
    due = sorted((step, name) for name, (_, _, step) in enumerate(requests))
    now, pairs, number = 0.0, [], 0
    while due or not fast.idle:
        while due and due[0][0] <= number:
            _, name = due.pop(0)
            prompt, output, _ = requests[name]
            fast.submit(name, prompt, output)
            plain.submit(name, prompt, output)
        for name, at in cancels.items():
            if at == number and fast.cancel(name):
                plain.cancel(name)
        one, other = fast.step(now), plain.step(now)
        assert (one is None) == (other is None)
        if one is not None:
            pairs.append((one, other))
            now = one.end
        number += 1
    return pairs


@settings(max_examples=150, deadline=None)
@given(specs(), requests_drawn, st.dictionaries(st.integers(0, 24), st.integers(0, 40), max_size=6))
def test_every_step_equals_that_of_the_plain_scheduler(spec, requests, cancels):
    for one, other in replay(spec, requests, cancels):
        assert other.tokens == list(one.tokens)
        assert other.first == list(one.first)
        assert sorted(other.finished) == sorted(one.finished)
        assert other.preempted == list(one.preempted)
        assert other.prefilled == one.prefilled
        assert other.duration == pytest.approx(one.duration, rel=1e-12)
        assert other.free == pytest.approx((1 - one.kv_used) * kv_blocks(spec), abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(specs(), requests_drawn)
def test_no_token_is_lost_and_no_limit_is_passed(spec, requests):
    scheduler = Scheduler(spec)
    for name, (prompt, output, _) in enumerate(requests):
        scheduler.submit(name, prompt, output)
    tokens = dict.fromkeys(range(len(requests)), 0)
    finished = []
    for step in run_out(scheduler):
        assert len(set(step.tokens)) == len(step.tokens)
        assert 0 <= step.kv_used <= 1
        assert step.running <= spec.max_num_seqs
        assert len(step.tokens) - len(step.first) + step.prefilled <= spec.max_batched_tokens
        for name in step.tokens:
            tokens[name] += 1
        finished += step.finished
    assert {name: output for name, (_, output, _) in enumerate(requests)} == tokens
    assert sorted(tokens) == sorted(finished)
    assert scheduler.kv.blocks == scheduler.kv.free


@settings(max_examples=60, deadline=None)
@given(specs(), requests_drawn)
def test_first_tokens_come_in_the_order_of_arrival(spec, requests):
    scheduler = Scheduler(spec)
    for name, (prompt, output, _) in enumerate(requests):
        scheduler.submit(name, prompt, output)
    seen: list[int] = []
    for step in run_out(scheduler):
        seen += [name for name in step.first if name not in seen]
    assert list(range(len(requests))) == seen


def test_one_request_costs_exactly_its_price():
    spec = EngineSpec(
        step_base=5e-3, per_decode=1e-3, per_prefill_token=1e-5, per_context_token=1e-6, max_batched_tokens=512
    )
    scheduler = Scheduler(spec)
    scheduler.submit(0, 1000, 4)
    durations = [step.duration for step in run_out(scheduler, now=100.0)]
    prefill = [5e-3 + 512e-5, 5e-3 + 488e-5]
    decode = [5e-3 + 1e-3 + 1e-6 * (1000 + i) for i in (1, 2, 3)]
    assert prefill + decode == pytest.approx(durations, rel=1e-12)


def test_a_prompt_shares_the_budget_with_the_decodes():
    scheduler = Scheduler(EngineSpec(max_batched_tokens=100, max_num_seqs=10))
    for name in range(4):
        scheduler.submit(name, 20, 50)
    scheduler.step(0.0)
    scheduler.submit(9, 250, 5)
    chunks = [step.prefilled for step in itertools.islice(iter(lambda: scheduler.step(0.0), None), 4)]
    assert [96, 96, 58, 0] == chunks


def test_the_last_to_arrive_is_preempted_and_later_recomputed():
    spec = EngineSpec.from_mapping({**TIGHT, "kv_tokens": 160, "max_batched_tokens": 256, "watermark": 0})
    scheduler = Scheduler(spec)
    scheduler.submit(0, 60, 60)
    scheduler.submit(1, 60, 60)
    steps = run_out(scheduler)
    out = [(step.number, step.preempted) for step in steps if step.preempted]
    # Each holds 15 blocks of 4 after the prompt; 40 blocks are full when both hold 80 tokens, that
    # is after 20 decodes.
    assert [(21, (1,))] == out
    back = next(step for step in steps if 1 in step.first and step.number > 21)
    assert 60 + 21 == back.prefilled
    assert back.number > next(step.number for step in steps if 0 in step.finished)


def test_a_request_too_long_for_the_deployment_is_refused():
    scheduler = Scheduler(EngineSpec(kv_tokens=1600, watermark=0.0))
    scheduler.submit(0, 1500, 100)
    with pytest.raises(ValueError, match=r"\b1600\b") as refused:
        scheduler.submit(1, 1500, 101)
    assert_golden_row("messages", str(refused.value))
    with pytest.raises(ValueError, match="already"):
        scheduler.submit(0, 10, 10)
    with pytest.raises(ValueError, match="at least one"):
        scheduler.submit(2, 10, 0)


def test_a_cached_prefix_is_not_read_again():
    scheduler = Scheduler(EngineSpec(prefix_cache=True, block_size=16))
    shared = [("shared", i) for i in range(4)]
    scheduler.submit(0, 100, 2, hashes=shared)
    first = scheduler.step(0.0)
    scheduler.submit(1, 100, 2, hashes=shared)
    second = scheduler.step(1.0)
    assert (100, 36) == (first.prefilled, second.prefilled)
    assert ((0,), (64,)) == (first.cached, second.cached)
    assert (200, 64) == (scheduler.cache_queries, scheduler.cache_hits)
    run_out(scheduler)
    assert scheduler.kv.free == scheduler.kv.blocks


def test_the_last_prompt_token_is_always_computed():
    scheduler = Scheduler(EngineSpec(prefix_cache=True, block_size=16))
    whole = [("shared", i) for i in range(4)]
    for name in (0, 1):
        scheduler.submit(name, 64, 1, hashes=whole)
        step = scheduler.step(0.0)
    assert 16 == step.prefilled


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(20, 60))
def test_shared_blocks_are_counted_once_and_all_come_back(seed, blocks):
    rng = random.Random(seed)
    spec = EngineSpec(prefix_cache=True, block_size=4, kv_tokens=4 * blocks, watermark=0.0, max_num_seqs=6)
    scheduler = Scheduler(spec)
    for name in range(30):
        prompt = rng.randint(1, 40)
        family = rng.randrange(3)
        scheduler.submit(name, prompt, rng.randint(1, 30), hashes=[(family, i) for i in range(prompt // 4)])
    now = 0.0
    while (step := scheduler.step(now)) is not None:
        now = step.end
        assert 0 <= scheduler.kv.free <= scheduler.kv.blocks
        if rng.random() < 0.05:
            scheduler.cancel(rng.randrange(30))
    assert scheduler.kv.blocks == scheduler.kv.free


@pytest.mark.parametrize("kind", ["lognormal", "gamma"])
def test_noise_has_the_asked_mean_and_spread_and_a_seed(kind):
    def durations(seed):
        spec = EngineSpec(step_base=1e-3, per_decode=0.0, per_context_token=0.0, noise=0.3, noise_kind=kind, seed=seed)
        scheduler = Scheduler(spec)
        scheduler.submit(0, 1, 20_000)
        return [step.duration for step in run_out(scheduler)][1:]

    found = durations(3)
    mean = sum(found) / len(found)
    spread = math.sqrt(sum((x - mean) ** 2 for x in found) / len(found)) / mean
    assert mean == pytest.approx(1e-3, rel=0.01)
    assert spread == pytest.approx(0.3, rel=0.05)
    assert found == durations(3)
    assert found != durations(4)


def test_stalls_take_their_share_of_time():
    spec = EngineSpec.from_mapping(
        {"step_base": 0.01, "per_decode": 0, "per_context_token": 0, "stalls": {"every": 1.0, "duration": 0.2}}
    )
    scheduler = Scheduler(spec)
    scheduler.submit(0, 1, 100_000)
    steps = run_out(scheduler)
    stalls = sum(round((step.duration - 0.01) / 0.2) for step in steps[1:])
    assert stalls == pytest.approx(steps[-1].end, rel=0.1)
    assert steps[-1].end == pytest.approx(1000 / (1 - 0.2), rel=0.1)


def test_drift_and_time_scale_stretch_the_steps():
    drifting = Scheduler(EngineSpec(step_base=0.1, per_decode=0.0, per_context_token=0.0, drift=0.5))
    drifting.submit(0, 1, 1300)
    steps = run_out(drifting)
    at_a_minute = next(step for step in steps if step.start >= 60)
    assert at_a_minute.duration == pytest.approx(0.15, rel=0.01)
    slow, fast = (Scheduler(EngineSpec(noise=0.1, time_scale=scale)) for scale in (1.0, 0.1))
    for scheduler in (slow, fast):
        scheduler.submit(0, 100, 100)
    assert run_out(slow)[-1].end == pytest.approx(10 * run_out(fast)[-1].end)
