"""Classes of a mix in window data: whose requests they are, and that the load of a class is off as
that of all is."""

import dataclasses

import numpy as np
import pytest

from frontier.core.estimates.estimate import estimate
from frontier.core.estimates.widening import widening
from frontier.core.flags.flags import flags
from frontier.core.flags.load_flags import rate_times_e2e, worst_in_flight
from frontier.core.model.decisions import Limit
from frontier.core.model.shapes import Shape, TrafficClass
from frontier.core.stats.wander import of_latencies
from frontier.core.window.window import WindowData, narrowed
from tests.kit import made

MIX = Shape.of_mix([TrafficClass("chat", 0.75, Shape.of(64, 8)), TrafficClass("rag", 0.25, Shape.of(4096, 8))])


def mixed(n: int = 4000, concurrency: int = 16, in_flight: float = 1.0, seed: int = 3) -> WindowData:
    """Requests of two classes, of which the second is six times slower, in a closed loop."""
    rng = np.random.default_rng(seed)
    index = (rng.random(n) < 0.25).astype(np.int64)
    ttft = np.where(index, 0.6, 0.1) * np.exp(0.1 * rng.standard_normal(n))
    found = made.sample(concurrency, ttft, np.full(n, 0.01))
    return dataclasses.replace(
        found,
        shape=MIX,
        class_index=index,
        session=np.arange(n),
        turn=np.zeros(n, np.int64),
        reusable=np.zeros(n),
        in_flight=np.full_like(found.in_flight, concurrency * in_flight),
    )


def test_a_class_has_its_own_requests_and_its_part_of_the_load() -> None:
    sample = mixed()
    rag = narrowed(sample, "rag")
    assert rag.n == int(sample.class_index.sum())
    assert set(rag.class_index) == {1}
    busy = float(sample.e2e[sample.class_index == 1].sum() / sample.e2e.sum())
    assert rag.load == round(16 * busy)
    assert narrowed(sample, "no such class").n == 0


@pytest.mark.parametrize("missing", [0.0, 0.05])
def test_the_load_of_a_class_is_off_by_the_share_that_the_whole_is_off(missing: float) -> None:
    """A class is held to its own part of the load: neither blamed for rounding nor excused for what
    is missing.
    """
    sample = mixed(in_flight=1 - missing)
    for name in ("chat", "rag"):
        part = narrowed(sample, name)
        assert worst_in_flight(part) / part.load == pytest.approx(worst_in_flight(sample) / 16)
        assert rate_times_e2e(part) / part.load == pytest.approx(rate_times_e2e(sample) / 16)
        assert (widening(part).longer > 0) == (widening(sample).longer > 0) == bool(missing)
    found = estimate(mixed(), "chat.p90_ttft")
    assert found is not None
    assert 0.95 * found.value < found.lower < found.value < found.upper < 1.05 * found.value


@pytest.mark.parametrize(
    ("limited", "fatal"), [("chat.p99_ttft", True), ("chat.mean_e2e", True), ("rag.p99_ttft", False)]
)
def test_errors_of_a_class_are_noticed_by_its_own_limits_alone(limited: str, fatal: bool) -> None:
    sample = mixed()
    ok = ~((sample.class_index == 1) & (np.arange(sample.n) % 4 == 0))
    latencies = {name: np.where(ok, getattr(sample, name), np.inf) for name in ("ttft", "tpot", "e2e")}
    failing = dataclasses.replace(sample, ok=ok, outcomes={"ok": 1, "timeout": 1}, **latencies)
    errors = [flag for flag in flags(failing, (Limit(limited, 1.0),)) if flag.name == "errors"]
    assert [flag.fatal for flag in errors] == [fatal]


def test_which_classes_a_stretch_of_time_holds_is_no_wander() -> None:
    """A stretch with more slow requests is no slower server; the slow twin looks at each class
    alone.
    """
    sample = mixed()
    order = np.argsort(sample.class_index[:2000], kind="stable")
    clumped = dataclasses.replace(
        sample,
        **{
            name: np.concatenate([getattr(sample, name)[:2000][order], getattr(sample, name)[2000:]])
            for name in ("class_index", "ttft", "tpot", "e2e")
        },
    )
    alone = [of_latencies(narrowed(clumped, name))["ttft"].deviation for name in ("chat", "rag")]
    assert of_latencies(clumped)["ttft"].deviation < 2 * max(alone) < 0.05
    blind = dataclasses.replace(clumped, class_index=np.zeros(sample.n, np.int64))
    assert of_latencies(blind)["ttft"].deviation > 0.3, "without classes it would be taken for a wander"
