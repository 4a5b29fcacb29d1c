"""No server that flatters itself gets a "met" whose limit its users see broken; an honest one does."""

import asyncio
import gc
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from frontier.client.event_loop import run
from frontier.client.loop import run_trial
from frontier.client.prompts import random_prompts
from frontier.client.target import Target, Timeouts
from frontier.decide.verdict import judge
from frontier.model import Limit, Phase, Point, Record, Shape, Trial, Verdict
from frontier.stats.estimate import point
from frontier.stats.window import sample
from tests.adversaries.liars import TOKENS, TPOT, WORDS, Liar, honest, liars
from tests.client.hostile import Hostile

ROOM = {liar.name: liar for liar in liars()}
CONTROL = Liar("honest", lambda _: honest(), ("p90_tpot", 3 * TPOT), None)
SECONDS, CALLERS, AT_ONCE = 2.0, 6, 14
BUSY = {"client_bound", "non_stationary", "lockstep", "under_concurrency", "over_concurrency"}
"""What a machine at work on all these trials at once may say of itself, which must not be what catches a liar."""


async def met(server: Hostile, liar: Liar) -> Point:
    """A trial on the liar, and what it says of the limited metric."""
    liar.install()
    shape = Shape.of(WORDS, liar.asked or TOKENS)
    trial = Trial("d", shape, CALLERS, 0, Phase.GRID, 10**6, 7, 0.2, 0.0, SECONDS, fingerprint=liar.name)
    target = Target(
        server.url(liar.name), "m", "chat", dialect="vllm", timeouts=Timeouts(2.0, 5.0, 2.0, 10.0),
        ignore_eos=liar.asked > 0,
    )  # fmt: skip
    records: list[Record] = []
    measurement = await run_trial(
        trial, target, random_prompts(shape, 7), on_record=records.append, expected_e2e=0.1, identity="vllm 0.1"
    )
    limits = (Limit(*liar.limit),)
    found = point(sample(measurement, records), names=(), limits=limits)
    return replace(found, flags=tuple(flag for flag in found.flags if flag.name not in BUSY))


@pytest.fixture(scope="module")
def points() -> Iterator[dict[str, Point]]:
    thresholds = gc.get_threshold()
    everyone = list(ROOM.values())

    async def tour() -> dict[str, Point]:
        seen: dict[str, Point] = {}
        for at in range(0, len(everyone), AT_ONCE):
            some = everyone[at : at + AT_ONCE]
            seen |= dict(
                zip((x.name for x in some), await asyncio.gather(*(met(server, x) for x in some)), strict=True)
            )
        return seen

    with Hostile() as server:
        yield run(tour())
    gc.set_threshold(*thresholds)


@pytest.mark.parametrize("name", ROOM)
def test_a_liar_is_not_believed(points: dict[str, Point], name: str) -> None:
    liar, found = ROOM[name], points[name]
    assert liar.truth > liar.limit[1], "it is no liar: its users see the limit kept"
    judged = judge(found, (Limit(*liar.limit),))
    assert judged.verdict is not Verdict.MEETS
    if liar.caught_by is not None:
        assert liar.caught_by in {flag.name for flag in found.flags}


def test_the_page_counts_them() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reliability.md").read_text(encoding="utf-8")
    table = page.partition("## Servers that report better numbers than they deliver")[2].partition("\n## ")[0]
    assert f"has {len(ROOM)} servers" in table
    assert len(ROOM) == sum(map(int, re.findall(r"\| (\d+) \|", table)))


def test_an_honest_server_is() -> None:
    """Alone, and up to three times: the machine may be busy with something else."""
    limits = (Limit(*CONTROL.limit),)
    with Hostile() as server:
        found = next(
            (p for _ in range(3) if judge(p := run(met(server, CONTROL)), limits).verdict is Verdict.MEETS), None
        )
    assert CONTROL.truth < CONTROL.limit[1]
    assert found is not None
    assert [] == [flag.name for flag in found.flags if flag.fatal]
