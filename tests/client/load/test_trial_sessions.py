"""Sessions over HTTP: turns in order, growing history with the server's own answers, its cache,
failures."""

import asyncio
import dataclasses
import itertools
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from frontier.client.ask.prompts import Calibration, session_prompts
from frontier.client.http.http_client import run
from frontier.client.load.session_plans import plan_session
from frontier.config import load_config
from frontier.core.model.trials import Measurement, Outcome, Record
from frontier.extras.workload.session_files import read_sessions
from frontier.planning.plan import make_plan
from frontier.simulator.http.process import SimulatorProcess
from frontier.simulator.spec import EngineSpec
from frontier.sweep.backend import HttpBackend
from tests.kit.servers import serving

pytestmark = pytest.mark.process

SHAPE = "{name: agent, turns: 4, first: 320, per_turn: 60/12, think: 40ms, system: 96}"
SPEC = EngineSpec.from_mapping(
    {
        "step_base": "1ms",
        "per_decode": "10us",
        "per_prefill_token": "2us",
        "prefix_cache": True,
    }
)
STREAMS = 6
SALTS = itertools.count(1)
"""Each trial has prompts of its own: the engine's cache outlives a trial."""


@pytest.fixture(scope="module")
def engine() -> Iterator[str]:
    with SimulatorProcess(SPEC) as simulator:
        yield simulator.url


def load(url: str, more: str = "", shapes: str = f"shapes: [{SHAPE}]") -> tuple[list[Record], Any]:
    """One trial; the records of requests that ended by themselves, and the shape."""
    config = load_config(
        f"endpoint: {url}\n{shapes}\nconcurrency: [{STREAMS}]\n"
        f"requests: 100\nwarmup: 200ms\nmax_time: 20s\nrepeats: 1\n{more}",
        "t",
    )
    records: list[Record] = []

    async def go() -> None:
        backend = HttpBackend(config, {}, next(SALTS))
        await backend.prepare(config.deployments[0])
        trial = make_plan(config).trials[0]
        await backend.run(
            trial, expected_e2e=0.02, on_record=records.append, on_tick=lambda _: None, stop=asyncio.Event()
        )
        await backend.close()

    run(go())
    return [r for r in records if r.outcome is not Outcome.CANCELLED], config.shapes[0]


def by_session(records: list[Record]) -> dict[int, list[Record]]:
    sessions: dict[int, list[Record]] = defaultdict(list)
    for record in sorted(records, key=lambda r: r.sent):
        assert record.session is not None
        sessions[record.session].append(record)
    return sessions


@pytest.fixture(scope="module")
def chats(engine: str) -> list[Record]:
    return load(engine, "api: chat")[0]


def test_turns_of_a_chat_come_in_order_with_what_was_said_before_and_from_the_cache(chats: list[Record]) -> None:
    require_sessions(chats)


def test_a_session_stays_on_its_connection_and_the_next_one_may_have_another(chats: list[Record]) -> None:
    """Behind a balancer the connection leads to the replica that has the history in its cache."""
    of_session = {session: {r.connection for r in turns} for session, turns in by_session(chats).items()}
    assert {1} == {len(used) for used in of_session.values()}
    used = set.union(*of_session.values())
    assert None not in used
    assert len(used) > 2 * STREAMS


@pytest.mark.parametrize(
    ("api", "workers"),
    [("completions", 1), pytest.param("chat", 2, marks=pytest.mark.slow)],
)
def test_so_do_those_of_texts_that_go_on_and_of_several_processes(engine: str, api: str, workers: int) -> None:
    require_sessions(load(engine, f"api: {api}\nworkers: {workers}")[0])


def require_sessions(records: list[Record]) -> None:
    """Whole sessions, each turn with the history, which comes from the cache."""
    assert {Outcome.OK} == {r.outcome for r in records}
    assert len({r.index for r in records}) == len(records)
    sessions = by_session(records)
    whole = [turns for number, turns in sessions.items() if number >= STREAMS and len(turns) == 4]
    assert len(whole) >= 10
    for turns in sessions.values():
        assert len({r.stream for r in turns}) == 1
        for before, after in itertools.pairwise(turns):
            assert after.turn == before.turn + 1
            assert after.sent > before.end
            assert after.reusable == before.prompt_tokens + before.completion_tokens
            # To the token, what was said before is what the engine has in its cache: in whole
            # blocks.
            assert after.cached_tokens == (after.reusable - 1) // 16 * 16
            assert abs(after.prompt_tokens - after.asked_isl) <= 0.02 * after.asked_isl
    lengths = [[r.prompt_tokens for r in turns] for turns in whole]
    for turn, planned in enumerate((320, 392, 464, 536)):
        assert sum(prompts[turn] for prompts in lengths) / len(lengths) == pytest.approx(planned, rel=0.03)
    assert {r.completion_tokens for turns in whole for r in turns} == {12}


def test_think_times_are_those_planned(chats: list[Record]) -> None:
    records = chats
    gaps = [
        after.sent - before.end for turns in by_session(records).values() for before, after in itertools.pairwise(turns)
    ]
    assert sum(gaps) / len(gaps) == pytest.approx(0.040, rel=0.35)
    assert max(gaps) > 0.08, "exponential, not fixed"


def test_the_first_sessions_begin_part_of_the_way_in(chats: list[Record]) -> None:
    records = chats
    firsts = [turns[0].turn for number, turns in by_session(records).items() if number < STREAMS]
    assert len(set(firsts)) > 1
    assert {0} == {r.turn for r in records if r.session >= STREAMS and r.reusable == 96}


def test_a_failed_turn_ends_its_session() -> None:
    spec = dataclasses.replace(SPEC, faults=dataclasses.replace(SPEC.faults, error_rate=0.1))
    with SimulatorProcess(spec) as simulator:
        records, _ = load(simulator.url, "ignore_eos: true")
    failed = [r for r in records if r.outcome is Outcome.HTTP_ERROR]
    assert failed
    for record in failed:
        assert max(r.turn for r in records if r.session == record.session) == record.turn


def test_the_text_that_comes_back_is_the_answer_without_its_reasoning() -> None:
    """Each turn of a chat sends the user's texts and the answers in turn, as they were streamed."""
    from aiohttp import web

    seen: list[list[dict[str, str]]] = []

    async def chat(request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        seen.append(body["messages"])
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        count = body["max_tokens"]
        half = count // 2
        parts = [*[{"reasoning_content": " hm\n"}] * half, *({"content": f" é{i}\n"} for i in range(count - half))]
        for i, delta in enumerate(parts):
            choice = {"index": 0, "delta": delta, "finish_reason": "length" if i + 1 == len(parts) else None}
            await response.write(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n")
        words = sum(len(m["content"].split()) for m in body["messages"])
        usage = {"prompt_tokens": words, "completion_tokens": count}
        await response.write(b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        return response

    async def models(_: web.Request) -> web.StreamResponse:
        return web.json_response({"object": "list", "data": [{"id": "m", "object": "model"}]})

    with serving({"POST /v1/chat/completions": chat, "GET /v1/models": models}) as url:
        records, _ = load(url, "api: chat\ndialect: openai\nignore_eos: false")
    assert {Outcome.OK} == {r.outcome for r in records}
    longest = max((m for m in seen if len(m) == 7), key=len)
    assert [m["role"] for m in longest] == ["user", "assistant"] * 3 + ["user"]
    answers = {m["content"] for messages in seen for m in messages if m["role"] == "assistant"}
    assert "".join(f" é{i}\n" for i in range(6)) in answers
    assert not any("hm" in answer.split() for answer in answers)
    # The next prompt is longer by the answer without its reasoning, and is asked to be no longer.
    later = [r for r in records if r.turn]
    assert len(later) > 25
    assert [r.asked_isl for r in later] == [r.prompt_tokens for r in later]
    # What was said before comes again, word for word.
    histories = {json.dumps(m) for m in seen}
    continued = [m for m in seen if len(m) > 1 and json.dumps(m[:-2]) in histories]
    assert len(continued) > 25


def test_a_session_made_of_texts_is_the_same_everywhere() -> None:
    config = load_config(f"endpoint: http://h/v1\nshapes: [{SHAPE}]\n", "t")
    shape = config.shapes[0]
    one, two = (session_prompts(shape, 5, Calibration(offset=9, ids=(1, 99)), 4) for _ in range(2))
    assert [one(n).content for n in range(8)] == [two(n).content for n in range(8)]
    assert isinstance(one(5).content, str), "texts, though the server takes token ids"
    heads = {str(one(n).content)[-80:] for n in range(50)}
    assert len(heads) == 50
    assert {one(n).turn.number for n in range(4)} == {plan_session(shape, 5, n, 4).start for n in range(4)}
    begun = next(one(n) for n in range(4) if one(n).turn.number)
    assert len(begun.history) == 2 * begun.turn.number


MIXED = (
    "shapes: [{name: agent, turns: 4, first: 320, per_turn: 60/12, think: 40ms, system: 96}, "
    "{name: chat, isl: 200, osl: 12, prefix: 40%}]\ntraffic: {agent: {share: 40%}, chat: {share: 60%}}"
)


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_mix_sends_sessions_and_requests_of_the_classes_that_the_seed_draws(engine: str, workers: int) -> None:
    records, mix = load(engine, f"api: chat\nworkers: {workers}", MIXED)
    assert {Outcome.OK} == {r.outcome for r in records}
    assert len({r.index for r in records}) == len(records)
    sessions = by_session(records)
    classes = {number: {r.class_index for r in turns} for number, turns in sessions.items()}
    assert classes
    assert all(len(of) == 1 for of in classes.values()), "a session is of one class"
    whole = {number: turns for number, turns in sessions.items() if number >= STREAMS}
    chats = [turns for turns in whole.values() if turns[0].class_index == 1]
    agents = [turns for turns in whole.values() if turns[0].class_index == 0 and len(turns) == 4]
    assert len(chats) > 10
    assert len(agents) > 5
    assert {(len(turns), turns[0].turn, turns[0].reusable) for turns in chats} == {(1, 0, 80)}
    assert sum(turns[0].prompt_tokens for turns in chats) / len(chats) == pytest.approx(200, rel=0.05)
    later = [r for turns in agents for r in turns[1:]]
    assert later
    assert all(r.cached_tokens == (r.reusable - 1) // 16 * 16 for r in later)
    # The classes begin with different words, each of which the engine has in its cache.
    assert sum(turns[0].cached_tokens >= 64 for turns in chats) > 0.9 * len(chats)
    assert mix.mix[0].name == "agent"


def test_sessions_of_a_file_arrive_at_a_rate_and_their_later_turns_when_they_are_due(
    engine: str, tmp_path: Path
) -> None:
    turns = [{"new": 320, "out": 12}, {"new": 60, "out": 8, "pause": 0.03}, {"new": 40, "out": 6, "pause": 0.05}]
    lines = [{"turns": turns[: 2 + i % 2]} for i in range(10)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    text = f"endpoint: {engine}\nshapes: [{{name: a, sessions: {tmp_path / 'a.jsonl'}}}]\nrate: 20\nrequests: 60\n"
    config = load_config(
        f"{text}repeats: 1\nwarmup: 200ms\nmax_time: 20s\napi: chat\n", "t", read_sessions=read_sessions
    )
    records: list[Record] = []

    async def go() -> Measurement:
        backend = HttpBackend(config, {}, next(SALTS))
        await backend.prepare(config.deployments[0])
        trial = make_plan(config).trials[0]
        on_tick, stop = (lambda _: None), asyncio.Event()
        measurement = await backend.run(trial, expected_e2e=None, on_record=records.append, on_tick=on_tick, stop=stop)
        await backend.close()
        return measurement

    window = run(go()).window
    counted = [r for r in records if window.start <= r.scheduled < window.end]
    assert {Outcome.OK} == {r.outcome for r in counted}
    assert {0, 1, 2} == {r.turn for r in counted}
    sessions = by_session([r for r in records if r.outcome is Outcome.OK])
    for turns_of in sessions.values():
        assert [r.turn for r in turns_of] == list(range(len(turns_of))), "each begins with its first turn"
        for before, after in itertools.pairwise(turns_of):
            pause = (0.0, 0.03, 0.05)[after.turn]
            assert after.scheduled == pytest.approx(before.end + pause, abs=1e-6)
            assert after.sent >= after.scheduled - 1e-6
            assert after.reusable == before.prompt_tokens + before.completion_tokens
    whole = [turns_of for turns_of in sessions.values() if len(turns_of) == 3]
    assert whole
    assert {tuple(r.completion_tokens for r in turns_of) for turns_of in whole} == {(12, 8, 6)}
    firsts = sorted(turns_of[0].scheduled for turns_of in sessions.values())
    assert firsts[-1] / len(firsts) == pytest.approx(1 / 20, rel=0.5)
