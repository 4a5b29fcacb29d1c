"""The trend: change points against a slow twin, how often they are false, breaks, and the
figure."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats
from scipy.signal import lfilter

from benchmarks import gate as study
from frontier.decide import trend as trends
from frontier.decide.gate import ALARM
from frontier.decide.trend import LEAST, change_points, trend
from frontier.model import Series
from frontier.plot.cross_series import trend_picture
from frontier.plot.draw import render
from tests.decide.test_gate import DAY, NAMES, SHAPE, history, measured

SERIES = Series("default", SHAPE)


def twin(values, level):
    """Every section against the rest by a t-test: slow, and without the correlation of
    neighbours.
    """
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
    monkeypatch.setattr(trends, "_correlation", lambda *_: 0.0)
    monkeypatch.setattr(trends, "OUTLIER", math.inf)
    rng = np.random.default_rng(seed)
    values = rng.normal(0, 1, 24) + np.repeat(rng.normal(0, 3, 4), 6)
    assert change_points(values, 0.0, 0.01) == twin(values, 0.01)


def nights(rng, n, alike=0.0):
    shocks = rng.normal(0, 1, n + 60)
    return lfilter([math.sqrt(1 - alike**2)], [1.0, -alike], shocks)[60:]


@pytest.mark.parametrize("alike", [0.0, 0.5, 0.8])
def test_where_nothing_changes_there_is_hardly_ever_a_change_point(alike):
    rng = np.random.default_rng(1)
    assert sum(bool(change_points(nights(rng, 30, alike), 0.0, ALARM)) for _ in range(100)) <= 4  # 1 % is 1


@pytest.mark.slow
@pytest.mark.parametrize(("n", "alike"), list(itertools.product((8, 20, 40, 80), (0.0, 0.3, 0.6, 0.8))))
def test_nights_that_are_alike_give_no_more_alarms_than_stated(n, alike):
    rng = np.random.default_rng([n, round(10 * alike)])
    alarms = sum(bool(change_points(nights(rng, n, alike), 0.0, ALARM)) for _ in range(2000))
    assert alarms <= 30  # 1 % are 20


def test_the_p_value_is_that_of_a_section_chosen_beforehand(monkeypatch):
    """Where the correlation is known: against AR(1) drawn many times. Deep in the tail it is on the
    safe side.
    """
    monkeypatch.setattr(trends, "_correlation", lambda *_: 0.6)
    monkeypatch.setattr(trends, "OUTLIER", math.inf)
    rng, section = np.random.default_rng(9), np.arange(30) >= 20
    small = [trends._p_value(nights(rng, 30, 0.6), section, 0.0) for _ in range(1000)]
    assert np.mean(np.array(small) < 0.05) == pytest.approx(0.05, abs=0.02)
    assert 0.0 < np.mean(np.array(small) < 0.01) < 0.015


def test_one_outlier_among_many_nights_is_no_change():
    values = np.random.default_rng(3).normal(0, 0.01, 300)
    values[200] += 0.3
    assert [] == change_points(values, 0.0, ALARM)
    assert [150] == change_points(values + 0.03 * (np.arange(300) >= 150), 0.0, ALARM)


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
    assert sum(study.series(rng, 80, step=0.05).verdict == "worse" for _ in range(20)) >= 17
