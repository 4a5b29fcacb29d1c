"""The trend: change points against a slow twin, how often they are false, breaks, and the figure."""

import itertools

import numpy as np
import pytest
from scipy import stats

from benchmarks import gate as study
from frontier.decide import trend as trends
from frontier.decide.gate import ALARM
from frontier.decide.trend import LEAST, change_points, trend
from frontier.model import Series
from frontier.plot.draw import render
from frontier.plot.trend_figure import trend_picture
from tests.decide.test_gate import DAY, NAMES, SHAPE, history, measured

SERIES = Series("default", SHAPE)


def twin(values, level):
    """Every section against the rest by a t-test: slow, and without the correlation of neighbours."""
    n, tests = len(values), {}
    for i in range(LEAST, n - LEAST + 1):
        for j in [*range(i + 2 * LEAST, n - LEAST + 1), n]:
            outside = np.concatenate([values[:i], values[j:]])
            tests[i, j] = stats.ttest_ind(values[i:j], outside).pvalue
    if not tests or min(tests.values()) * len(tests) > level:
        return []
    i, j = min(tests, key=tests.get)
    cuts = [0, i, *([j] if j < n else []), n]
    inner = [a + k for a, b in itertools.pairwise(cuts) for k in twin(values[a:b], level)]
    return sorted([*cuts[1:-1], *inner])


@pytest.mark.parametrize("seed", range(8))
def test_change_points_are_those_of_a_t_test_of_every_section(seed, monkeypatch):
    monkeypatch.setattr(trends, "_persistence", lambda _: 1.0)
    rng = np.random.default_rng(seed)
    values = rng.normal(0, 1, 24) + np.repeat(rng.normal(0, 3, 4), 6)
    assert change_points(values, 0.0, 0.01) == twin(values, 0.01)


def test_where_nothing_changes_there_is_hardly_ever_a_change_point():
    rng = np.random.default_rng(1)
    independent = sum(bool(change_points(rng.normal(0, 1, 30), 0.0, ALARM)) for _ in range(500))
    alike = 0
    for _ in range(500):
        days = rng.normal(0, 1, 60)
        for i in range(1, 60):
            days[i] = 0.5 * days[i - 1] + 0.87 * days[i]
        alike += bool(change_points(days, 0.0, ALARM))
    assert independent <= 12  # 1 % are 5
    assert alike <= 40  # several times as often without the correlation of neighbours


def test_a_step_is_found_where_it_is_and_an_odd_night_is_none():
    rng = np.random.default_rng(2)
    values = rng.normal(0, 0.01, 30)
    odd = values.copy()
    odd[17] += 0.2
    assert [20] == change_points(values + 0.06 * (np.arange(30) >= 20), 0.0, ALARM)
    assert [] == change_points(odd, 0.0, ALARM)
    assert [] == change_points(values[:5], 0.0, ALARM)
    assert [] == change_points(np.zeros(9), 0.0, ALARM)


def test_values_are_never_surer_than_their_own_intervals():
    step = np.repeat([0.0, 0.01], 5)
    assert [5] == change_points(step, 0.0, ALARM)
    assert [] == change_points(step, 0.02**2, ALARM)


def noisy(slower, seed=3, **more):
    rng = np.random.default_rng(seed)
    return history([x + rng.normal(0, 0.005, (2, 3)) for x in slower], **more)


def judged(runs):
    return trend(runs, NAMES, len(NAMES), SERIES)


def test_the_last_change_decides():
    worse = judged(noisy([0] * 10 + [0.1] * 10))
    assert ("worse", {10}) == (worse.verdict, {step.at for step in worse.steps})
    assert [NAMES[0], "−9."] == [worse.steps[0].metric, worse.steps[0].text[:3]]
    assert worse.steps[1].text.startswith("+10")
    mended = judged(noisy([0] * 10 + [0.1] * 10 + [0] * 10))
    assert ("no worse", {10, 20}) == (mended.verdict, {step.at for step in mended.steps})
    assert "no worse" == judged(noisy([0] * 20)).verdict
    assert "not resolved" == judged(noisy([0] * 5)).verdict


def test_another_key_is_a_break_and_only_the_last_stretch_decides():
    runs = noisy([0] * 8, key={"engine": "1"}) + [
        measured(x, DAY * (8 + i), key={"engine": "2"}) for i, x in enumerate([0.3, 0.301, 0.3, 0.299, 0.3, 0.301])
    ]
    found = judged(runs)
    assert ("no worse", (), ((8, "engine: 1 → 2"),)) == (found.verdict, found.steps, found.breaks)
    assert [range(8), range(8, 14)] == found.stretches == found.levels(NAMES[0])
    assert "not resolved" == judged(runs[:-1]).verdict


def test_a_run_without_the_settings_is_left_out():
    runs = [*noisy([0] * 20), measured(0, DAY * 21, settings=(8,), name="half")]
    found = judged(runs)
    assert (("half",), 20, (8, 32)) == (found.left_out, len(found.runs), found.settings)
    nothing = judged([measured(0, 0, settings=(4,)), measured(0, DAY, settings=(8,))])
    assert ((), "not resolved") == (nothing.runs, nothing.verdict)


@pytest.mark.parametrize("runs", [3, 30, 300])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_figure_has_its_levels_changes_and_breaks(runs, theme):
    third = runs // 3
    made = judged(noisy([0] * (runs - third) + [0.1] * third, spread=0.004))
    picture = trend_picture(made, "title", ("a note",))
    for panel in picture.panels:
        texts = [line for rule in panel.rules for line in rule.lines]
        assert len(texts) == (1 if runs > 3 else 0)
        assert len([line for line in panel.lines if line.kind == "fit"]) == len(texts) + 1
        values = [y for line in panel.lines for _, y in line.points]
        assert panel.y.low < min(values) < max(values) < panel.y.high
    assert render(picture, "png", theme=theme, width=700)[:4] == b"\x89PNG"


def test_breaks_are_drawn_and_nothing_is_drawn_of_no_run():
    runs = noisy([0] * 4, key={"engine": "1"}) + [measured(0.1, DAY * i, key={"engine": "2"}) for i in range(5, 9)]
    (rule,) = trend_picture(judged(runs), "title", ()).panels[0].rules
    assert (("break",), 4.0, True) == (rule.lines, rule.at, rule.dashed)
    with pytest.raises(ValueError, match="without a run"):
        trend_picture(judged([measured(0, 0, settings=(4,)), measured(0, DAY, settings=(8,))]), "title", ())


def test_the_study_finds_a_step_of_five_percent():
    rng = np.random.default_rng(5)
    assert sum(study.series(rng, 30, "normal", 0.05).verdict == "worse" for _ in range(20)) >= 17
