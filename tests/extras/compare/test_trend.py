"""The trend: the runs and settings it is of, breaks, and the figure."""

from collections import Counter

import pytest

from frontier.core.model.series import Series
from frontier.extras.compare.trend import trend
from frontier.extras.compare.trend_figure import trend_picture
from frontier.show.picture.draw import render
from tests.extras.compare.test_gate import DAY, NAMES, SHAPE, history, measured

SERIES = Series("default", SHAPE)


def judged(runs):
    return trend(runs, NAMES, SERIES)


def test_another_key_is_a_break():
    found = judged(
        history([0] * 8, key={"engine": "1"}) + [measured(0.3, DAY * i, key={"engine": "2"}) for i in (8, 9)]
    )
    assert ((8, "engine: 1 → 2"),) == found.breaks
    assert [(1, 8), (2, 2)] == sorted(Counter(row.stretch for row in found.rows).items())


def test_a_run_without_the_settings_is_left_out():
    runs = [*history([0] * 20), measured(0, DAY * 21, settings=(8,), name="half")]
    found = judged(runs)
    assert (("half",), 20, (8, 32)) == (found.left_out, len(found.rows), found.settings)
    nothing = judged([measured(0, 0, settings=(4,)), measured(0, DAY, settings=(8,))])
    assert () == nothing.rows


@pytest.mark.parametrize("runs", [3, 30, 300])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_figure_has_the_values_and_their_mean(runs, theme):
    third = runs // 3
    made = judged(history([0] * (runs - third) + [0.1] * third, spread=0.004))
    picture = trend_picture(made)
    for panel in picture.panels:
        assert () == panel.rules
        assert 1 == len([line for line in panel.lines if line.kind == "fit"])
        values = [y for line in panel.lines for _, y in line.points]
        assert panel.y.low < min(values) < max(values) < panel.y.high
    assert render(picture, "png", theme=theme, width=700)[:4] == b"\x89PNG"


def test_breaks_are_drawn():
    runs = history([0] * 4, key={"engine": "1"}) + [measured(0.1, DAY * i, key={"engine": "2"}) for i in range(5, 9)]
    (rule,) = trend_picture(judged(runs)).panels[0].rules
    assert (("break",), 4.0, True) == (rule.lines, rule.at, rule.dashed)
