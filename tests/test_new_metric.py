"""A new share of requests is two lines of `frontier/metrics.py` (CONTRIBUTING.md): here they are put in for a test."""

from pathlib import Path

import numpy as np
import pytest

from frontier import metrics
from frontier.config import parse_sla
from frontier.decide import uncertainty
from frontier.metrics import Unit, metric
from frontier.stats.estimate import estimate, point
from tests.stats.made import made


@pytest.fixture
def late_text(monkeypatch: pytest.MonkeyPatch) -> str:
    """The share of answers whose text is visible over 100 ms after the first token."""
    monkeypatch.setitem(metrics._PLAIN, "late_text", (Unit.SHARE, "lower", "answers with late text"))
    monkeypatch.setitem(metrics._COUNTS, "late_text", lambda window: window.silence > 0.1)
    metric.cache_clear()
    yield "late_text"
    metric.cache_clear()
