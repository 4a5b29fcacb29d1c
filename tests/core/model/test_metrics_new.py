"""A new share of requests is two lines of `core/model/metrics.py` (CONTRIBUTING.md); a test puts
two such lines in."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from frontier import uncertainty
from frontier.config import parse_sla
from frontier.core.claim.verdict import judge
from frontier.core.estimates.estimate import point
from frontier.core.model import metrics
from frontier.core.model.decisions import Verdict
from frontier.core.model.metrics import Unit, metric
from frontier.core.stats import intervals
from tests.kit.made import sample


@pytest.fixture(autouse=True)
def _a_new_metric(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The share of answers whose text is visible only over 100 ms after the first token."""
    monkeypatch.setitem(metrics._PLAIN, "late_text", (Unit.SHARE, "lower", "answers with late text"))
    monkeypatch.setitem(metrics._COUNTS, "late_text", lambda window: window.silence > 0.1)
    metric.cache_clear()
    yield
    metric.cache_clear()


def test_it_is_estimated_judged_and_drawn_like_any_other() -> None:
    rng = np.random.default_rng(1)
    late = rng.random(2000) < 0.03
    window = replace(sample(8, rng.lognormal(-3, 0.2, 2000), np.full(2000, 0.01)), silence=np.where(late, 0.2, 0.0))
    limits = parse_sla("late_text<=5%")
    found = point(window, names=["late_text"], limits=limits)
    figure = found.metrics["late_text"]
    low, high = intervals.clopper_pearson(int(late.sum()), 2000)
    assert figure.value == late.mean()
    assert figure.lower <= low * 1.02
    assert figure.upper >= high * 0.98
    assert judge(found, limits).verdict is Verdict.MEETS
    assert judge(found, parse_sla("late_text<=1%")).verdict is Verdict.VIOLATES
    drawn = uncertainty.replicates({8: window}, ("output_throughput", "late_text"))
    assert drawn.loads == (8,)
    assert "late_text" in metrics.names()
