"""What the plan says of the time that is left, and of the budget."""

import math
import re
from types import SimpleNamespace
from typing import Any

import pytest

from frontier.cli.dry_run import _time_line
from frontier.planning.time_left import TimeLeft


@pytest.mark.parametrize(("seconds", "times"), [(math.inf, 1), (9_000.0, 1), (16.0, 2), (0.0, 0)])
def test_a_spent_budget_leaves_no_time(seconds: float, times: int) -> None:
    found: Any = SimpleNamespace(ledger=SimpleNamespace(seconds_left=lambda: seconds), left=TimeLeft(300.0))
    text = _time_line(found, ())
    assert times == len(re.findall(r"\d+ (?:s|min)\b(?! to)", text))
    assert ("budget" in text) == (seconds < 60)
