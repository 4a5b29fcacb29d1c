import dataclasses
import heapq
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontier.model import Outcome, Phase, Shape, Trial
from frontier.simulator.pools import Disaggregated
from frontier.simulator.spec import Disaggregation, EngineSpec, Speculation
from frontier.simulator.virtual import closed_loop, closed_loop_arrays, expected_e2e, virtual_trial

MOVED = Disaggregation(1, 1, link=1e9, latency=3e-3, kv_per_token=1e5)
QUIET = EngineSpec(
    step_base=5e-3, per_decode=1e-4, per_prefill_token=2e-5, per_context_token=1e-8, ingest=0.0,
    kv_tokens=10_000_000, disaggregation=MOVED,
)  # fmt: skip


def run_out(pools: Disaggregated, requests: list[tuple[float, int, int]]) -> dict[int, list[float]]:
    """When each request's tokens leave, when request i of (sent, prompt, output) arrives at its time."""
    due = sorted((at, name) for name, (at, _, _) in enumerate(requests))
    times: dict[int, list[float]] = {name: [] for name in range(len(requests))}
    while due or pools.next_event < math.inf:
        if due and due[0][0] <= pools.next_event:
            at, name = heapq.heappop(due)
            pools.submit(name, *requests[name][1:], (), at)
        elif (step := pools.advance()) is not None:
            for name, count in zip(step.tokens, step.counts, strict=True):
                times[name] += [step.end] * count
    return times


def test_alone_the_first_token_takes_the_prompt_the_move_and_a_step() -> None:
    # vLLM's decode instance reads the last prompt token again, and gives the first token itself.
    found = closed_loop_arrays(QUIET, Shape.of(512, 11), 1, requests=5)
    prefill, move = 5e-3 + 512 * 2e-5, 512 * 1e5 / 1e9 + 3e-3
    first = 5e-3 + 2e-5
    assert found.ttft == pytest.approx(prefill + move + first, rel=1e-9)
    decode = 5e-3 + 1e-4 + 1e-8 * (512 + np.mean(range(1, 11)))
    assert found.tpot == pytest.approx(decode, rel=1e-9)
    assert expected_e2e(QUIET, Shape.of(512, 11), 1) == pytest.approx(found.e2e.mean(), rel=0.05)


def by_hand(spec: EngineSpec, sent: list[float], prompt: int, output: int) -> list[list[float]]:
    """Token times of equal requests whose prompts fill a prefill step each: three queues in a row, plainly."""
    assert spec.disaggregation is not None
    read_free, ready = 0.0, []
    for at in sent:
        read_free = max(at, read_free) + spec.step_base + spec.per_prefill_token * prompt
        ready.append(read_free)
    times: list[list[float]] = [[] for _ in sent]
    there: list[float] = []  # when each request's KV is in the decode instance
    joined, now, link_free = 0, 0.0, 0.0
    while any(len(got) < output for got in times):
        while len(there) < len(sent) and ready[len(there)] <= now:
            link_free = max(now, link_free) + prompt * spec.disaggregation.kv_per_token / spec.disaggregation.link
            there.append(link_free + spec.disaggregation.latency)
        joining = [name for name in range(joined, len(there)) if there[name] <= now]
        decoding = [name for name in range(joined) if len(times[name]) < output]
        joined += len(joining)
        if joining or decoding:
            now += spec.step_base + spec.per_decode * len(decoding) + spec.per_prefill_token * len(joining)
            for name in decoding + joining:
                times[name].append(now)
        else:
            now = min([*there[joined:], *ready[len(there) : len(there) + 1]])
    return times


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(1e-4, 0.03), min_size=1, max_size=20), st.integers(1, 12))
def test_three_queues_in_a_row_as_computed_by_hand(gaps, output) -> None:
    sent = np.cumsum(gaps).tolist()
    spec = dataclasses.replace(QUIET, per_context_token=0.0, max_batched_tokens=100, max_num_seqs=50)
    found = run_out(Disaggregated(spec), [(at, 100, output) for at in sent])
    for name, times in enumerate(by_hand(spec, sent, 100, output)):
        assert found[name] == pytest.approx(times, rel=1e-9)


@st.composite
def tight(draw: st.DrawFn) -> EngineSpec:
    seqs = draw(st.integers(1, 6))
    drafts = draw(st.sampled_from([None, Speculation(2, 0.6)]))
    return EngineSpec(
        kv_tokens=draw(st.integers(160, 500)), block_size=4, max_num_seqs=seqs,
        max_batched_tokens=draw(st.integers(3 * seqs, 80)), watermark=draw(st.sampled_from([0.0, 0.05])),
        noise=0.1, speculation=drafts,
        disaggregation=dataclasses.replace(MOVED, prefill=draw(st.integers(1, 3)), decode=draw(st.integers(1, 3))),
    )  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    tight(),
    st.lists(st.tuples(st.floats(0, 0.1), st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=25),
    st.integers(0, 10**6),
)
def test_no_token_is_lost_nobody_starves_and_all_memory_comes_back(spec, requests, seed) -> None:
    rng = random.Random(seed)
    pools = Disaggregated(spec)
    cancelled = {name: rng.uniform(0, 0.4) for name in range(len(requests)) if rng.random() < 0.2}
    tokens = dict.fromkeys(range(len(requests)), 0)
    due = sorted((at, 0, name) for name, (at, _, _) in enumerate(requests))
    due = sorted([*due, *((at, 1, name) for name, at in cancelled.items() if at > requests[name][0])])
    gone, finished = set(), []
    while due or pools.next_event < math.inf:
        if due and due[0][0] <= pools.next_event:
            at, kind, name = due.pop(0)
            if kind == 0:
                pools.submit(name, *requests[name][1:], (), at)
            elif pools.cancel(name, at):
                gone.add(name)
        elif (step := pools.advance()) is not None:
            for name, count in zip(step.tokens, step.counts, strict=True):
                tokens[name] += count
            finished += step.finished
    for name, (_, _, output) in enumerate(requests):
        assert name in gone or tokens[name] == output
    assert len(finished) == len(set(finished))
    assert 0 == pools.running == pools.waiting
    for one in (*pools._readers, *pools._writers):
        assert one.scheduler.idle
        assert 0 == one.scheduler.pinned
        assert one.scheduler.kv.free == one.scheduler.kv.blocks


def test_prompts_no_longer_stand_between_the_tokens_of_others() -> None:
    # Heavy prefill: 4096 tokens in, 64 out, two engines that do both against one that reads and one that decodes.
    shape = Shape.of(4096, 64)
    together = dataclasses.replace(QUIET, disaggregation=None)
    apart = closed_loop_arrays(QUIET, shape, 16, requests=300)
    mixed = closed_loop_arrays(together, shape, 8, requests=300)
    # Apart, a token waits for no prompt: only for those that join with their last prompt token.
    assert np.quantile(apart.tpot, 0.99) < 7.5e-3
    assert np.quantile(mixed.tpot, 0.99) > 2 * np.quantile(apart.tpot, 0.99)


def test_more_prefill_instances_take_prompts_off_each_others_way() -> None:
    def tail(prefill: int, decode: int) -> float:
        pools = dataclasses.replace(MOVED, prefill=prefill, decode=decode)
        return float(np.quantile(closed_loop_arrays(dataclasses.replace(QUIET, disaggregation=pools),
                                                    Shape.of(4096, 64), 16, requests=200).ttft, 0.99))  # fmt: skip

    assert tail(4, 1) < 0.5 * tail(1, 1)
    assert tail(1, 4) == pytest.approx(tail(1, 1), rel=0.15), "the prompts are the bottleneck, not the decoding"


def test_kv_stays_where_it_was_made_until_there_is_room_for_it() -> None:
    # The decode instance holds two requests; a third's KV waits in the prefill instance, and with it the prompts after.
    spec = dataclasses.replace(QUIET, kv_tokens=464, watermark=0.0, max_batched_tokens=512)
    pools = Disaggregated(spec)
    found = run_out(pools, [(0.0, 160, 60)] * 6)
    firsts = sorted(times[0] for times in found.values())
    assert firsts[2] > min(times[-1] for times in found.values()) - 1e-9
    assert 0 == pools.preemptions


def test_records_say_what_the_arrays_say_and_exactly_n_are_in_flight() -> None:
    spec = dataclasses.replace(QUIET, noise=0.1, speculation=Speculation(2, 0.5))
    shape = Shape.of(300, 20)
    arrays = closed_loop_arrays(spec, shape, 12, requests=300)
    records, window = closed_loop(spec, shape, 12, requests=300)
    inside = [r for r in records if window.start <= r.sent <= window.end]
    assert [r.first - r.sent for r in inside] == pytest.approx(arrays.ttft)
    assert [r.last - r.sent for r in inside] == pytest.approx(arrays.e2e)
    assert {Outcome.OK} == {r.outcome for r in inside}
    busy = sum(max(0.0, min(r.end, window.end) - max(r.sent, window.start)) for r in records)
    assert busy == pytest.approx(12 * window.length, rel=1e-9)
    rate = len(arrays.sent) / arrays.window.length
    assert arrays.output_throughput == pytest.approx(20 * rate, rel=0.03)


def test_a_shared_prefix_is_cached_where_prompts_are_read() -> None:
    spec = dataclasses.replace(QUIET, prefix_cache=True)
    trial = Trial("d", dataclasses.replace(Shape.of(512, 16), prefix=0.5), 4, 0, Phase.GRID, 50, 7, 0.0, 0.0, 1e9, "f")
    records, measured = virtual_trial(trial, spec)
    assert {0, 256} == {r.cached_tokens for r in records if r.outcome is Outcome.OK}
    assert measured.server["prefix_cache_hits_total"] * 2 == measured.server["prefix_cache_queries_total"]


def test_a_spec_is_read_written_and_checked() -> None:
    said = {"prefill": 2, "decode": 3, "link": "25GB/s", "latency": "1ms", "kv_per_token": "128KiB"}
    spec = EngineSpec.from_mapping({"disaggregation": said})
    assert Disaggregation(2, 3, 25e9, 1e-3, 131072) == spec.disaggregation
    assert spec == EngineSpec.from_mapping(spec.to_mapping())
    carded = EngineSpec.from_mapping({"model": "llama-3.1-8b", "hardware": "h100", "disaggregation": {"decode": 2}})
    assert carded == EngineSpec.from_mapping(carded.to_mapping())
    pools = Disaggregated(carded)
    assert pools._per_token == pytest.approx(131072 / 50e9), "the card knows the bytes of a token"
    for wrong, words in (
        ({}, "disaggregation: the key kv_per_token is missing"),
        ({"prefill": 0}, "disaggregation.prefill: 0 is out of range"),
        ({"link": "fast"}, "disaggregation.link: 'fast' is not a bandwidth"),
        ({"links": 1}, "disaggregation: unknown key 'links'"),
    ):
        with pytest.raises(ValueError) as refused:
            EngineSpec.from_mapping({"disaggregation": wrong})
        assert words in str(refused.value)
