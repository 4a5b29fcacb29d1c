"""Requests that are alike: an unproven setting says why they count as fewer, and what ends it."""

import re
from dataclasses import replace

import numpy as np
import pytest

from frontier.core.flags import load_flags
from frontier.core.model.decisions import Cause, Decision, Explanation, Limit, NextStep, Reason, Verdict
from frontier.core.model.loads import Concurrency
from frontier.core.model.points import Estimate, Flag
from frontier.core.window import window
from frontier.core.window.window import WindowData
from frontier.planning.alike import alike, may_vary, with_alike
from frontier.show.view.explain import sentence
from tests.kit.made import SHAPE, sample

LIMIT = Limit("p95_ttft", 0.1)
C = Concurrency(16)


def decided(made: WindowData, value: float = 0.042, need: int | None = 700, **more: object) -> Decision:
    """A decision in which the setting is not proven, by these requests."""
    estimate = Estimate(value, value, value, made.n, value, np.inf, need, 0.99)
    reason = Reason(Cause.TOO_FEW, (C,), LIMIT.metric, estimate, LIMIT, Verdict.UNPROVEN, need=need)
    why = Explanation((replace(reason, **more),), (reason,))
    step = NextStep(C, requests=need)
    return Decision("d", SHAPE, (LIMIT,), Verdict.UNPROVEN, None, None, {}, (), explanation=why, next_step=step)


def steady(start: float = 0.0, n: int = 640) -> WindowData:
    return sample(C, np.random.default_rng(1).uniform(0.03, 0.045, n), np.full(n, 0.01), start=start)


def bursts(n: int = 640) -> WindowData:
    """The slow requests come one after another: a tenth of all, in a row."""
    slow = (np.arange(n) // (n // 10)) == 4
    return sample(C, np.where(slow, 0.09, np.random.default_rng(1).uniform(0.03, 0.045, n)), np.full(n, 0.01))


def waves(n: int = 640) -> WindowData:
    """Requests are sent and answered together, turn by turn, and one turn stalls."""
    turn = np.arange(n) // C
    ttft = np.where(turn == 20, 0.125, np.random.default_rng(1).uniform(0.03, 0.045, n))
    made = sample(C, ttft, np.full(n, 0.01))
    length = float(made.ends[0] - made.starts[0])
    sent = (turn + 0.02 * (np.arange(n) % C) / C) * length / (n // C)
    return replace(made, sent=sent)


@pytest.mark.parametrize(("made", "why"), [(bursts(), "come together"), (waves(), "in waves")])
def test_a_setting_well_within_its_limit_says_why_its_requests_count_as_fewer(made: WindowData, why: str) -> None:
    (reason,) = with_alike(decided(made), {C: made}).explanation.settings
    counted = re.match(r"count as about ([\d,]+) independent ones, as ", alike(reason))
    assert counted is not None
    assert int(counted[1].replace(",", "")) < made.n / 2
    assert why in alike(reason)
    assert alike(reason) in sentence(reason)


def test_only_waves_end_with_outputs_of_several_lengths() -> None:
    assert "lockstep" in {flag.name for flag in load_flags.of_load(waves())}
    assert [True, False] == [may_vary(with_alike(decided(m), {C: m}), C) for m in (waves(), bursts())]


def test_the_need_is_that_of_requests_as_alike_with_as_many_over_the_limit() -> None:
    """A proof ends after so many windows: beyond them no number is named."""
    made = window.join((waves(), steady(100.0)))
    few = with_alike(decided(made), {C: made})
    (reason,) = few.explanation.settings
    assert reason.need is None or reason.need > 700
    assert few.next_step is not None
    assert few.next_step.requests == reason.need


@pytest.mark.parametrize(
    ("made", "more"),
    [
        (steady(), {}),
        (bursts(), {"cause": Cause.VIOLATES}),
        (bursts(), {"estimate": Estimate(0.098, 0.09, 0.1, 640)}),
        (bursts(), {"flags": (Flag("client_bound", "late", "5 ms", "", fatal=False),)}),
    ],
    ids=["independent", "violates", "close", "busy"],
)
def test_nothing_is_said_where_it_is_not_why(made: WindowData, more: dict[str, object]) -> None:
    decision = decided(made, **more)
    (reason,) = with_alike(decision, {C: made}).explanation.settings
    assert decision.explanation.settings == (reason,)
