"""Servers that report better numbers than they deliver never get "meets" under a limit they break;
honest ones do."""

import asyncio
import gc
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from frontier.client import run_trial
from frontier.client.ask.prompts import random_prompts
from frontier.client.ask.target import Target, Timeouts
from frontier.client.http.http_client import run
from frontier.core.claim.verdict import judge
from frontier.core.estimates.estimate import point
from frontier.core.model.decisions import Limit, Verdict
from frontier.core.model.points import Point
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Phase, Record, Trial
from frontier.core.window.from_records import window_data
from frontier.search.window_size import connections_wanted
from tests.adversaries.liars import TOKENS, TPOT, WORDS, Liar, honest, liars, named, thinking
from tests.kit.golden import assert_golden_row
from tests.kit.hostile import Hostile
from tests.kit.places import ROOT

LIARS = {liar.name: liar for liar in liars()}
EVERY_TIME = {
    "slow_count_none",
    "slow_count_float",
    "slow_count_one",
    "slow_count_hidden",
    "whole_answers",
    "several_first",
    "slow_counts_more",
    "one_more_than_sent",
    "a_tenth_more",
    "finish_content_filter",
    "hollow_space",
    "hollow_zero_width",
    "hollow_thought",
    "hollow_at_pace",
    "prompts_cut",
    "prompts_not_counted",
    "slow_connections",
    "fallback_model",
    "list_changes",
}
"""One server for each way to be found out, measured at once; the others differ from them in a value
and are slow."""
CONTROL = Liar("honest", lambda _: honest(), ("p90_tpot", 3 * TPOT), None)
SECONDS, CALLERS, AT_ONCE = 2.0, 6, 14
BUSY = {"client_bound", "non_stationary", "lockstep", "under_concurrency", "over_concurrency"}
"""What a machine at work on all these trials at once may say of itself, which must not be what
catches a liar."""


async def met(server: Hostile, liar: Liar) -> Point:
    """A trial on the liar, and what it says of the limited metric."""
    liar.install()
    shape = Shape.of(WORDS, liar.asked or TOKENS)
    trial = Trial("d", shape, CALLERS, 0, Phase.GRID, 10**6, 7, 0.2, 0.0, SECONDS, fingerprint=liar.name)
    target = Target(
        server.url(liar.name),
        "m",
        "chat",
        dialect="vllm",
        timeouts=Timeouts(2.0, 5.0, 2.0, 10.0),
        ignore_eos=liar.asked > 0,
        connections=connections_wanted((Limit(*liar.limit),), trial),
        identity="vllm 0.1",
    )
    records: list[Record] = []
    measurement = await run_trial(trial, target, random_prompts(shape, 7), on_record=records.append, expected_e2e=0.1)
    limits = (Limit(*liar.limit),)
    found = point(window_data(measurement, records), names=(), limits=limits)
    return replace(found, flags=tuple(flag for flag in found.flags if flag.name not in BUSY))


@pytest.fixture(scope="module")
def points(request: pytest.FixtureRequest) -> Iterator[dict[str, Point]]:
    """The points of all the servers that this run of the tests asks for, measured AT_ONCE at a
    time.
    """
    thresholds = gc.get_threshold()
    cases = [getattr(item, "callspec", None) for item in request.session.items if item.path == request.path]
    selected = [LIARS[case.params["name"]] for case in cases if case is not None and "name" in case.params]

    async def measure_all() -> dict[str, Point]:
        measured: dict[str, Point] = {}
        for first in range(0, len(selected), AT_ONCE):
            batch = selected[first : first + AT_ONCE]
            measured |= zip(
                (x.name for x in batch), await asyncio.gather(*(met(server, x) for x in batch)), strict=True
            )
        return measured

    with Hostile() as server:
        yield run(measure_all())
    gc.set_threshold(*thresholds)


@pytest.mark.process
@pytest.mark.parametrize(
    "name", [name if name in EVERY_TIME else pytest.param(name, marks=pytest.mark.slow) for name in LIARS]
)
def test_a_liar_is_not_believed(points: dict[str, Point], name: str) -> None:
    liar, found = LIARS[name], points[name]
    assert liar.truth > liar.limit[1], "it is no liar: its users see the limit kept"
    judged = judge(found, (Limit(*liar.limit),))
    assert judged.verdict is not Verdict.MEETS
    if liar.caught_by is not None:
        assert liar.caught_by in {flag.name for flag in found.flags}


def test_the_page_states_how_many_there_are() -> None:
    page = (ROOT / "docs" / "validation" / "reliability.md").read_text(encoding="utf-8")
    table = page.partition("## Servers that report better numbers than they deliver")[2].partition("\n## ")[0]
    assert f"has {len(LIARS)} servers" in table
    assert len(LIARS) == sum(map(int, re.findall(r"\| (\d+) \|", table)))


def believed(liar: Liar) -> Point | None:
    """The point of an honest server that meets its limit: alone, and up to three times, as the
    machine may be busy with something else.
    """
    limits = (Limit(*liar.limit),)
    with Hostile() as server:
        return next((p for _ in range(3) if judge(p := run(met(server, liar)), limits).verdict is Verdict.MEETS), None)


@pytest.mark.process
@pytest.mark.parametrize("control", [CONTROL, *thinking()], ids=lambda control: control.name)
def test_an_honest_server_is_believed(control: Liar) -> None:
    found = believed(control)
    assert control.truth < control.limit[1]
    assert found is not None
    assert [] == [flag.name for flag in found.flags if flag.fatal]
    assert () == found.notes


@pytest.mark.process
@pytest.mark.parametrize("liar", list(named()), ids=lambda liar: liar.name)
def test_another_name_is_no_other_server(liar: Liar) -> None:
    """A constant alias is a note, a changing fingerprint a warning; neither excludes."""
    found = believed(liar)
    assert found is not None
    flags = {flag.name: flag for flag in found.flags}
    assert (liar.caught_by is None) or not flags[liar.caught_by].fatal
    assert [liar.name == "alias"] * len(found.notes) == [True] * (liar.name == "alias")
    for note in found.notes:
        assert_golden_row("flags", note)
