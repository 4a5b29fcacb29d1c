"""Whole trials against every nasty behaviour: each request sent is on record once, under a name,
and no point is silently wrong: what failed counts as failed, what is valid has the right numbers.
"""

import asyncio
import gc
import itertools
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from frontier.client import run_trial
from frontier.client.ask.prompts import random_prompts
from frontier.client.ask.target import Target, Timeouts
from frontier.client.http.http_client import run
from frontier.core.estimates.estimate import point
from frontier.core.model.decisions import Limit
from frontier.core.model.points import Point
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Measurement, Outcome, Phase, Record, Trial
from frontier.core.window.from_records import window_data
from tests.client.http.test_http_client import FAILURES, GOOD
from tests.kit.hostile import BEHAVIOURS, Hostile

pytestmark = pytest.mark.process

SHAPE = Shape.of(7, 5)
LIMITS = Timeouts(connect=5.0, first_byte=0.5, idle=0.5, total=0.8)
PATIENT = Timeouts(connect=5.0, first_byte=5.0, idle=5.0, total=10.0)
"""For good answers, which all end: on a busy machine one of a byte at a time may take its while."""
P99 = (Limit("p99_ttft", 10.0), Limit("p99_e2e", 10.0))
MORE = ["reasoning", "tools", "no_usage", "lying_keep_alive", "bad_chunk", "long_chunk", "surplus"]


@dataclass(frozen=True)
class Ended:
    measurement: Measurement
    records: list[Record]
    asked: int
    point: Point

    @property
    def outcomes(self) -> Counter[Outcome]:
        return Counter(r.outcome for r in self.records)


async def one(server: Hostile, name: str) -> Ended:
    longest = 8.0 if name in GOOD else 2.0
    trial = Trial("d", SHAPE, 2, 0, Phase.GRID, 12, 3, 0.0, 0.0, longest, fingerprint="f")
    target = Target(server.url(name), "m", "chat", dialect="vllm", timeouts=PATIENT if name in GOOD else LIMITS)
    records: list[Record] = []
    before = server.asked(name)
    measurement = await run_trial(trial, target, random_prompts(SHAPE, 3), on_record=records.append, expected_e2e=0.05)
    return Ended(
        measurement, records, server.asked(name) - before, point(window_data(measurement, records), limits=P99)
    )


@pytest.fixture(scope="module")
def ended() -> Iterator[dict[str, Ended]]:
    names = [name for name in (*GOOD, *(name for name, _, _ in FAILURES), *MORE) if name != "no_such_thing"]
    thresholds = gc.get_threshold()

    async def all_of_them(server: Hostile) -> dict[str, Ended]:
        found: dict[str, Ended] = {}
        for at in range(0, len(names), 21):
            batch = names[at : at + 21]
            found |= zip(batch, await asyncio.gather(*(one(server, name) for name in batch)), strict=True)
        return found

    with Hostile() as server:
        yield run(all_of_them(server))
    gc.set_threshold(*thresholds)


All = dict[str, Ended]
EVERY = sorted({*BEHAVIOURS} & {*GOOD, *(name for name, _, _ in FAILURES), *MORE})


@pytest.mark.parametrize("name", EVERY)
def test_every_request_is_on_record_once_with_its_outcome(ended: All, name: str) -> None:
    found = ended[name]
    assert found.records
    assert list(range(len(found.records))) == sorted(r.index for r in found.records)
    for record in found.records:
        assert (record.error is None) is (record.outcome is Outcome.OK)
        assert record.end >= record.sent
    # What the server was asked is what is on record: one that was sent again may have arrived
    # twice, and one that was cut off at the end not at all.
    resent = sum(r.resent for r in found.records)
    assert len(found.records) - found.outcomes[Outcome.CANCELLED] <= found.asked <= len(found.records) + resent


@pytest.mark.parametrize(("name", "outcome", "_said"), [row for row in FAILURES if row[0] != "no_such_thing"])
def test_a_server_that_always_fails_has_no_valid_point_and_no_latency(
    ended: All, name: str, outcome: Outcome, _said: str
) -> None:
    found = ended[name]
    assert {outcome} == set(found.outcomes) - {Outcome.CANCELLED}
    assert any(flag.name in ("errors", "no_requests", "server_lost") for flag in found.point.flags)
    figures = {"p99_ttft": math.inf, "error_rate": 1.0} if found.point.n else {}
    assert figures == {name: e.value for name, e in found.point.metrics.items() if name in ("p99_ttft", "error_rate")}


@pytest.mark.parametrize("name", ["done_and_no_end", "done_and_closed", "done_and_reset", "done_in_pieces"])
def test_no_stream_pauses_after_an_answer_whose_body_has_no_end(ended: All, name: str) -> None:
    times: dict[int, list[Record]] = {}
    for record in sorted(ended[name].records, key=lambda r: r.sent):
        times.setdefault(record.stream, []).append(record)
    # A pause after a failure is a floor that doubles from 0.05 s: the fourth is 0.4 s at least, on
    # any machine, while one quick pause among the later ones shows that there is none.
    later = [
        following.sent - (before.last or before.end)
        for records in times.values()
        for before, following in list(itertools.pairwise(records))[3:]
    ]
    assert later
    assert min(later) < 0.3


@pytest.mark.parametrize("name", GOOD)
def test_a_server_with_odd_manners_is_measured_right_or_flagged(ended: All, name: str) -> None:
    found = ended[name]
    done = [r for r in found.records if r.outcome is Outcome.OK]
    assert {Outcome.OK} == set(found.outcomes) - {Outcome.CANCELLED}
    assert {(5, 7, 5)} == {(r.events, r.prompt_tokens, r.completion_tokens) for r in done}
    wrong = {flag.name for flag in found.point.flags if flag.name in ("short_output", "token_mismatch", "identity")}
    assert set() == wrong
    if name in ("one_lump", "all_at_once", "with_length"):
        # The body came in one piece: there is no TPOT to speak of, and the point may not say there
        # is.
        assert "buffered_stream" in {flag.name for flag in found.point.flags if flag.fatal}
