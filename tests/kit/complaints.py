"""Complaints of the reader of configs: where each stands, and its words, which are rows of the
table of complaints."""

from typing import Any

import pytest

from frontier.config import Setting, load_config
from frontier.config.complaints import Complaint, ConfigError
from tests.kit.golden import assert_golden_row

Place = tuple[int, int] | str
"""Line and column, from 1, or the option ('--set requests=many')."""


def refused(text: str, *settings: str, **more: Any) -> tuple[Complaint, ...]:
    """The complaints with which the reader refuses a text, with `--set` values beside it."""
    with pytest.raises(ConfigError) as caught:
        load_config(text, "s.yaml", [Setting.of(each) for each in settings], **more)
    assert str(caught.value) == printed(caught.value.complaints)
    return caught.value.complaints


def printed(complaints: tuple[Complaint, ...]) -> str:
    """Complaints or warnings as a terminal shows them: place, what, the line itself, the hint."""
    return str(ConfigError("s.yaml", complaints))


def assert_complaints(complaints: tuple[Complaint, ...], *places: Place | None, part: str = "") -> None:
    """The complaints stand at these places (None: of the whole text), and in these words in the row
    of the running test.
    """
    assert [c.where or (c.line and (c.line, c.column)) for c in complaints] == list(places)
    assert_golden_row("complaints", printed(complaints), part)
