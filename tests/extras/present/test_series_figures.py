"""The companion figures: what is in them, as data, against the points and samples; and that they
are drawn as said."""

import dataclasses
import math
import xml.etree.ElementTree as ET
from collections.abc import Callable
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from frontier.core.model.decisions import Limit
from frontier.core.model.metrics import metric
from frontier.core.model.points import Estimate, Flag, Point
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import ClientHealth, Measurement, Outcome, Phase, Record, Trial, Window
from frontier.core.window.histogram import LogHistogram
from frontier.core.window.window import BLOCKS, WindowData
from frontier.extras.present.request_figures import (
    FROM_SAMPLES,
    MOST,
    MOST_STREAMS,
    jitter_figure,
    settings_shown,
    tails_figure,
    timeline_figure,
)
from frontier.extras.present.series_figures import (
    FROM_POINTS,
    INKS,
    UNEXPLAINED,
    goodput_figure,
    inflation_figure,
    latency_figure,
    throughput_figure,
    time_figure,
)
from frontier.show.picture.colours import COLOURS
from frontier.show.picture.data import Line, Panel, Picture, Role
from frontier.show.picture.draw import render
from frontier.show.view.series_view import SeriesView, changed, series_view
from frontier.show.view.wording import PART_WORDS
from tests.kit.golden import assert_golden_row
from tests.kit.made import loads
from tests.kit.toy import LIMIT, SHAPE, estimate, toy_decision, toy_frontier, toy_point, toy_points, with_times

LIMITS = (LIMIT, Limit("p99_tpot", 0.03))


def view(points: list[Point], *limits: Limit) -> SeriesView:
    return series_view(points, toy_frontier(points), toy_decision(points, limits or LIMITS))


def quantities(figure: Picture, point: Point) -> list[str]:
    """What each panel of a figure of latencies is of, as the first point of its line shows."""
    medians = {round(point.metrics[f"p50_{q}"].value, 9): q for q in ("ttft", "tpot", "e2e")}
    firsts = [line(figure, i, "p50").points[0][1] for i in range(len(figure.panels))]
    return [medians.get(round(y, 9)) or medians[round(y / 1e3, 9)] for y in firsts]


def with_goodput(points: list[Point]) -> list[Point]:
    return [
        dataclasses.replace(p, metrics={**p.metrics, "goodput": estimate(p.metrics["request_throughput"].value * 0.9)})
        for p in points
    ]


def line(figure: Picture | None, chart: int, name: str) -> Line:
    assert figure is not None
    return next(li for li in figure.panels[chart].lines if li.name == name)


@cache
def sample(c: int, n: int = 400, *, failures: int = 0) -> WindowData:
    """One window of requests with lengths that vary and latencies that grow with them."""
    rng = np.random.default_rng(c)
    isl = rng.integers(500, 1501, n).astype(float)
    ttft = isl * 5e-5 * (1 + c / 16) * rng.lognormal(0, 0.1, n)
    ok = np.ones(n, dtype=bool)
    ok[:failures] = False
    bad = ~ok
    osl = np.full(n, 100.0)
    tpot = 0.01 * (1 + c / 64) * rng.lognormal(0, 0.05, n)
    e2e = ttft + 99 * tpot
    for values in (ttft, tpot, e2e):
        values[bad] = np.inf
    gaps = rng.lognormal(math.log(0.01), 0.3, 5000)
    zeros = np.zeros(BLOCKS)
    return WindowData(
        "default",
        SHAPE,
        c,
        np.array([0.0]),
        np.array([100.0]),
        np.linspace(0, 99, n),
        np.zeros(n, dtype=np.int64),
        ttft,
        tpot,
        e2e,
        ok,
        isl,
        osl,
        np.zeros(n),
        np.zeros(n, dtype=bool),
        np.zeros(n),
        isl,
        osl,
        np.zeros(n),
        np.full(n, 100),
        np.ones(n, dtype=np.int64),
        np.full(n, 500),
        np.full(BLOCKS, 5.0),
        zeros,
        zeros,
        zeros,
        tuple(LogHistogram.of(part) for part in np.split(gaps, BLOCKS)),
        np.array([float(c)]),
        (ClientHealth(loop_lag_p99=0.0004, cpu_share=0.2),),
        ("vllm 0.33",),
        ({"num_requests_running": float(c), "num_preemptions_total": 2.0},),
        ("requests",),
        0,
        {"ok": n - failures},
        {},
    )


SAMPLES = {c: sample(c) for c in loads(1, 8, 64)}


def test_the_latency_figure_holds_every_known_percentile_and_its_limits() -> None:
    points = toy_points((1, 8, 64))
    figure = latency_figure(view(points))

    assert figure is not None
    assert ["ttft", "tpot", "e2e"] == quantities(figure, points[0])
    found = line(figure, 0, "p99")
    assert [(p.load, p.metrics["p99_ttft"].value * 1e3) for p in points] == list(found.points)
    assert [(p.metrics["p99_ttft"].low * 1e3, p.metrics["p99_ttft"].high * 1e3) for p in points] == [
        (bar.low, bar.high) for bar in found.bars if bar
    ]
    assert [500.0] == [m.at for m in figure.panels[0].rules if m.role is Role.SLA]
    assert [64.0] == [m.at for m in figure.panels[0].rules if m.role is Role.OPERATING]


def test_flagged_points_are_left_out_of_the_lines_and_infinite_values_stay_in_them() -> None:
    points = toy_points((1, 8, 64))
    points[0] = toy_point(1, flags=(Flag("errors", "4%", "1%", ""),))
    broken = {**points[2].metrics, "p99_ttft": Estimate(math.inf, 0.1, math.inf, 300)}
    points[2] = dataclasses.replace(points[2], metrics=broken)
    figure = latency_figure(view(points))

    assert [8.0, 64.0] == [x for x, _ in line(figure, 0, "p99").points]
    assert math.isinf(line(figure, 0, "p99").points[1][1])
    assert [8.0, 64.0] == [x for x, _ in line(figure, 0, "p50").points]
    assert figure is not None
    assert figure.panels[0].y.high < 1e5, "the scale is of the finite values"


def with_metric(point: Point, **values: float | None) -> Point:
    """The point with these values; None: not known."""
    kept = {k: v for k, v in point.metrics.items() if k not in values}
    made = {k: Estimate(v, v, v, 300) for k, v in values.items() if v is not None}
    return dataclasses.replace(point, metrics=kept | made)


def gids(data: bytes, colour: str) -> int:
    """How many marks of an SVG are open, with an edge of this colour."""
    return data.decode().count(f"fill: #ffffff; stroke: {colour.lower()}")


def test_goodput_keeps_its_zeros() -> None:
    points = with_goodput(toy_points((1, 8, 64, 96, 128)))
    points[3:] = [with_metric(p, goodput=0.0) for p in points[3:]]
    figure = goodput_figure(view(points))

    good = line(figure, 0, "within every limit")
    assert [1.0, 8.0, 64.0, 96.0, 128.0] == [x for x, _ in good.points]
    assert [0.0, 0.0] == [y for _, y in good.points[3:]]
    assert figure is not None
    assert_golden_row("pictures", "\n".join([figure.title, *figure.notes]))


def test_a_goodput_of_nothing_is_drawn_and_said() -> None:
    points = [with_metric(p, goodput=0.0) for p in toy_points((1, 8))]
    figure = goodput_figure(view(points))
    assert [0.0, 0.0] == [y for _, y in line(figure, 0, "within every limit").points]
    assert figure is not None
    assert render(figure, "svg")
    assert_golden_row("pictures", "\n".join([figure.title, *figure.notes]))


def test_what_is_not_known_is_named_and_what_an_axis_does_not_hold_is_at_its_edge() -> None:
    points = toy_points((1, 8, 32, 64))
    sound = view(points)
    points = list(points)
    points[1] = with_metric(points[1], p99_ttft=None)
    points[2] = with_metric(points[2], p50_tpot=0.0)
    points[3] = with_metric(points[3], p99_ttft=math.inf, p99_e2e=math.inf)
    figure = latency_figure(changed(sound, points=points))
    assert figure is not None
    assert [1, 1] == [figure.panels[i].y.off(math.inf) for i in (0, 2)]
    assert -1 == figure.panels[1].y.off(0.0)
    whole = latency_figure(view(toy_points((1, 8, 32, 64))))
    assert whole is not None
    ink = "#d55e00"  # p99
    assert 2 == gids(render(figure, "svg"), ink) - gids(render(whole, "svg"), ink)
    assert_golden_row("pictures", "\n".join(figure.notes))


def test_of_all_infinite_latencies_no_chart_is_invented() -> None:
    lost = {f"{s}_ttft": math.inf for s in ("p50", "p90", "p99")}
    points = [with_metric(p, **lost) for p in toy_points((1, 8))]
    figure = latency_figure(view(points))
    assert figure is not None
    assert ["tpot", "e2e"] == quantities(figure, points[0])
    assert_golden_row("pictures", "\n".join(figure.notes))


def test_inflation_from_a_failed_setting_says_so_and_to_one_is_at_the_edge() -> None:
    points = toy_points((1, 8, 64))
    points[0] = with_metric(points[0], p99_ttft=math.inf)
    points[2] = with_metric(points[2], p99_tpot=math.inf)
    figure = inflation_figure(view(points))
    assert figure is not None
    assert not [li for li in figure.panels[0].lines if li.name == "p99"]
    assert math.isinf(line(figure, 1, "p99").points[-1][1])
    assert render(figure, "svg")
    assert_golden_row("pictures", "\n".join(figure.notes))


def test_a_throughput_of_zero_is_drawn() -> None:
    points = toy_points((1, 8, 64))
    points[0] = with_metric(points[0], output_throughput=0.0)
    figure = throughput_figure(view(points))
    assert (1.0, 0.0) == line(figure, 0, "measured").points[0]
    assert figure is not None
    assert (8.0, 100.0) == line(figure, 1, "measured").points[1]


def test_settings_without_a_curve_are_named_and_colours_stay_with_their_settings() -> None:
    lost = np.full(400, np.inf)
    dead = dataclasses.replace(sample(8), ttft=lost, tpot=lost, e2e=lost)
    samples = SAMPLES | {8: dead}
    figure = tails_figure(view(toy_points((1, 8, 64))), samples)
    assert figure is not None
    keys = [(li.name, li.role) for li in figure.named_lines]
    inks = dict(keys)
    assert len(inks) == len(keys)
    assert set(keys) == {(li.name, li.role) for chart in figure.panels for li in chart.lines}
    assert_golden_row("pictures", "\n".join(figure.notes))


def test_a_time_of_zero_is_at_the_edge_of_its_distribution() -> None:
    """One chunk with the whole answer: TPOT is 0."""
    whole = dataclasses.replace(sample(8), tpot=np.where(np.arange(400) % 2, sample(8).tpot, 0.0))
    figure = tails_figure(view(toy_points((1, 8, 64))), SAMPLES | {8: whole})
    assert figure is not None
    assert figure.panels[1].x.low > 0
    assert figure.panels[1].x.low == min(x for x, _ in line(figure, 1, "c=8").points)


def test_settings_left_out_for_room_are_counted() -> None:
    ladder = (1, 2, 4, 8, 16, 32, 64)
    figure = tails_figure(view(toy_points(ladder)), {c: sample(c) for c in ladder})
    assert figure is not None
    assert 5 == len({li.name for li in figure.panels[0].lines})
    assert_golden_row("pictures", "\n".join(figure.notes))


def test_a_limit_far_from_the_values_is_named_and_does_not_squeeze_the_chart() -> None:
    figure = latency_figure(view(toy_points((1, 8, 64)), Limit("p99_ttft", 90.0)))

    assert figure is not None
    assert not [rule for rule in figure.panels[0].rules if rule.role is Role.SLA]
    assert figure.panels[0].y.high < 5000
    assert_golden_row("pictures", figure.panels[0].title)


def test_efficiency_starts_at_one() -> None:
    points = toy_points()
    figure = throughput_figure(view(points))
    kept = line(figure, 1, "measured").points

    assert (1.0, 100.0) == kept[0]
    speed = {p.load: p.metrics["output_throughput"].value for p in points}
    assert kept[-1][1] == pytest.approx(100 * speed[128] / 128 / speed[1])


def test_goodput_is_drawn_beside_all_requests_and_only_when_there_are_limits() -> None:
    points = with_goodput(toy_points((1, 8, 64)))
    figure = goodput_figure(view(points))

    assert figure is not None
    every, good = (line(figure, 0, name).points for name in ("all requests", "within every limit"))
    assert [True] * 3 == [g[1] < e[1] for g, e in zip(good, every, strict=True)]
    assert goodput_figure(view(toy_points((1, 8)))) is None


def test_inflation_is_a_multiple_of_the_lowest_setting() -> None:
    points = toy_points((1, 8, 64))
    figure = inflation_figure(view(points))
    found = line(figure, 0, "p99").points

    assert (1.0, 1.0) == found[0]
    assert found[2][1] == pytest.approx(points[2].metrics["p99_ttft"].value / points[0].metrics["p99_ttft"].value)
    assert inflation_figure(view(toy_points((8,)))) is None


def test_tails_are_the_shares_of_the_requests_themselves() -> None:
    figure = tails_figure(view(toy_points((1, 8, 64))), SAMPLES)
    assert figure is not None
    tail = line(figure, 0, "c=8").points
    values = np.sort(SAMPLES[8].ttft) * 1e3

    assert 3 == len(figure.panels)
    assert tail[-1][0] == pytest.approx(values[-1])
    for x, share in tail[:-1]:
        assert share == pytest.approx(100 * (values > x * (1 + 1e-12)).mean())


def test_failed_requests_keep_a_curve_above_the_floor_and_are_explained() -> None:
    figure = tails_figure(view(toy_points((1, 8, 64))), SAMPLES | {64: sample(64, failures=40)})

    assert line(figure, 0, "c=64").points[-1][1] == pytest.approx(10.0)
    assert figure is not None
    assert_golden_row("pictures", "\n".join(figure.notes))


def test_of_many_settings_the_ends_and_the_operating_point_are_shown() -> None:
    points = toy_points()
    samples = {p.load: sample(8) for p in points}
    shown = settings_shown(view(points), samples)

    assert MOST == len(shown)
    assert {1, 128, toy_decision(points, LIMITS).load} <= set(shown)


def test_the_operating_point_is_the_one_strong_curve() -> None:
    points = toy_points((1, 8, 64))
    chosen = f"c={toy_decision(points, LIMITS).load}"
    for make in FROM_SAMPLES.values():
        figure = make(view(points), SAMPLES)
        assert figure is not None
        curves = [li for li in figure.panels[0].lines if li.kind == "steps"]
        assert {(chosen, Role.OPERATING)} == {(li.name, li.role) for li in curves if li.strong}
        assert 3 == len({li.role for li in curves})


@pytest.mark.parametrize(
    ("metric_name", "shown"),
    [("p95_ttft", ["p50", "p95", "p99"]), ("p90_ttft", ["p50", "p90", "p99"]), ("p99_e2e", ["p50", "p90", "p99"])],
)
def test_the_limited_percentile_is_drawn_and_strong(metric_name: str, shown: list[str]) -> None:
    points = [with_metric(p, p90_ttft=0.09, p95_ttft=0.1) for p in toy_points((1, 8, 64))]
    figure = latency_figure(view(points, Limit(metric_name, 0.4)))
    assert figure is not None
    lines = figure.panels[0].lines

    assert shown == [li.name for li in lines]
    assert [name for name in shown if f"{name}_ttft" == metric_name] == [li.name for li in lines if li.strong]


def test_columns_have_the_same_room_and_the_operating_point_has_a_star() -> None:
    points = with_times(toy_points((1, 8, 64, 65)))
    figure = time_figure(view(points))
    assert figure is not None
    axis = figure.panels[0].x

    assert [0.0, 1.0, 2.0, 3.0] == [x for x, _, _ in figure.panels[0].lines[0].band]
    assert [f"★ {toy_decision(points, LIMITS).load}"] == [name for name in axis.names if "★" in name]
    assert not axis.log


def test_jitter_is_the_ratio_of_the_gaps_percentiles() -> None:
    figure = jitter_figure(view(toy_points((1, 8, 64))), SAMPLES)
    ratio = dict(line(figure, 1, "").points)[8.0]

    gaps = LogHistogram.merged(SAMPLES[8].block_itl)
    assert ratio == pytest.approx(gaps.quantile(0.99) / gaps.quantile(0.5))
    assert ratio == pytest.approx(math.exp(0.3 * 2.326), rel=0.1)


def trial(c: int) -> Trial:
    return Trial("default", SHAPE, c, 1, Phase.GRID, 300, 1, 1.0, 0.0, 60.0, "f")


def record(i: int, stream: int, sent: float, outcome: Outcome = Outcome.OK) -> Record:
    first = sent + 0.2 if outcome is Outcome.OK else None
    return Record(i, stream, sent, outcome, sent + 1.0, 10, 20, first=first, last=first and sent + 1.0)


def test_a_timeline_has_a_row_per_stream_and_says_what_failed() -> None:
    records = [record(i, i % 4, i // 4 * 1.0) for i in range(40)]
    records[7] = record(7, 3, 1.0, Outcome.TIMEOUT)
    figure = timeline_figure(Measurement(trial(4), 0.0, Window(2.0, 8.0), "requests"), records)

    assert figure is not None
    (chart,) = figure.panels
    waits, answers, failed = (line.band for line in chart.lines)
    assert {1, 2, 3, 4} == {row for row, _, _ in waits}
    assert (39, 39, 1) == (len(waits), len(answers), len(failed))
    assert [0.2] * 39 == pytest.approx([end - start for _, start, end in waits])
    assert [2.0, 8.0] == [rule.at for rule in chart.rules]
    assert "1 failed request" in figure.notes[0]
    assert timeline_figure(Measurement(trial(4), 0.0, Window(2.0, 8.0), "requests"), []) is None


def test_of_many_streams_a_timeline_shows_the_first() -> None:
    records = [record(i, i % 40, i // 40 * 1.0) for i in range(400)]
    figure = timeline_figure(Measurement(trial(40), 0.0, Window(2.0, 8.0), "requests"), records)
    assert figure is not None
    (chart,) = figure.panels

    waits = chart.lines[0].band
    assert MOST_STREAMS == len({row for row, _, _ in waits})
    assert 10 * MOST_STREAMS == len(waits)
    assert f"{MOST_STREAMS} of 40" in figure.notes[1]


def all_figures(ladder: tuple[int, ...], shape: Shape = SHAPE) -> list[Picture]:
    points = with_goodput(toy_points(ladder, shape=shape))
    samples = {c: dataclasses.replace(sample(c, 120), shape=shape) for c in ladder}
    found = [make(view(points)) for make in FROM_POINTS.values()]
    found += [make(view(points), samples) for make in FROM_SAMPLES.values()]
    records = [record(i, i % 8, i // 8 * 1.0) for i in range(80)]
    found.append(timeline_figure(Measurement(trial(8), 0.0, Window(2.0, 8.0), "requests"), records))
    return [figure for figure in found if figure is not None]


@pytest.mark.parametrize(
    "ladder", [(8,), (1, 2, 4, 8, 16, 32, 64, 128), tuple(sorted({*range(1, 20), *range(20, 146, 6)}))]
)
def test_every_figure_is_drawn_with_one_eight_and_forty_settings(ladder: tuple[int, ...]) -> None:
    for figure in all_figures(ladder):
        for chart in figure.panels:
            check(chart)
        svg = render(figure, "svg")
        texts = "".join(ET.fromstring(svg).itertext())
        assert figure.title.split()[-1] in texts
        assert len(svg) < 400_000


def check(chart: Panel) -> None:
    """What is drawn lies on its axes, and something is drawn."""
    drawn = [(found.name, x, y) for found in chart.lines for x, y in found.points]
    assert drawn or [found for found in chart.lines if found.band], chart.title
    off = [(name, x, y) for name, x, y in drawn if not (chart.x.holds(x) and chart.y.holds(y))]
    assert [] == off, chart.title


@pytest.mark.slow
def test_dark_png_pdf_and_hostile_names() -> None:
    shape = Shape(SHAPE.isl, SHAPE.osl, name="$x^{2$ <script>alert(1)</script> " + "long " * 20)
    for figure in all_figures((8,), shape):
        assert b"<script" not in render(figure, "svg", theme="dark")
        assert render(figure, "png", width=600, theme="dark").startswith(b"\x89PNG")
    assert render(figure, "pdf").startswith(b"%PDF")
    with pytest.raises(ValueError, match="gif"):
        render(figure, "gif")


def test_every_quantity_the_figures_speak_of_is_a_metric() -> None:
    for quantity in ("ttft", "tpot", "itl", "e2e"):
        assert metric(f"p99_{quantity}").quantity == quantity


def test_what_is_flagged_is_not_in_the_lines_and_said_below() -> None:
    flagged = Flag("errors", "4.2%", "1%", "lower the concurrency")
    points = with_goodput([toy_point(c, flags=(flagged,) if c in (64, 96) else ()) for c in (1, 8, 32, 64, 96)])
    for make in FROM_POINTS.values():
        figure = make(view(with_times(points)))
        assert figure is not None
        assert_golden_row("pictures", "\n".join(figure.notes), figure.name)
        highest = 2.0 if figure.name == "time" else 32.0  # its third column is that of c=32
        assert highest == max(x for chart in figure.panels for li in chart.lines for x, *_ in li.points or li.band)


def test_neighbours_in_a_column_of_parts_differ_in_print_without_colour() -> None:
    """At least an eighth of the range from black to white lies between the greys of two."""
    greys = [_grey(COLOURS["light"][INKS[part].value]) for part in (*PART_WORDS, UNEXPLAINED)]
    assert all(abs(a - b) >= 32 for a, b in pairwise(greys)), greys
    assert len({INKS[part] for part in (*PART_WORDS, UNEXPLAINED)}) == len(greys)


def _grey(colour: str) -> float:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return 0.299 * red + 0.587 * green + 0.114 * blue


def test_the_time_figure_stacks_the_parts_up_to_the_means() -> None:
    points = with_times(toy_points((1, 8, 64)), missing=("queue",))
    figure = time_figure(view(points))

    assert figure is not None
    assert 2 == len(figure.panels)
    for panel, means, unit in zip(figure.panels, ("ttft", "e2e"), (1e3, 1.0), strict=True):
        names = [li.name for li in panel.lines]
        assert "connect" not in names, "a layer that nobody could see"
        assert names[-1] == "unexplained"
        for i, p in enumerate(points):
            ends = [(li.band[i][1], li.band[i][2]) for li in panel.lines]
            assert [top for _, top in ends[:-1]] == [low for low, _ in ends[1:]], "each on the one below"
            assert p.time is not None
            # What is not drawn is a hundredth at most.
            assert ends[-1][1] == pytest.approx(getattr(p.time, means) * unit, rel=0.02)
    assert_golden_row("pictures", "\n".join([*(panel.title for panel in figure.panels), *figure.notes]))


def test_the_time_figure_says_what_it_cannot_draw() -> None:
    points = with_times(toy_points((1, 8, 64)))
    assert points[2].time is not None
    refused = dataclasses.replace(points[2], time=dataclasses.replace(points[2].time, parts={}, refused="others"))
    over = dataclasses.replace(points[1], time=dataclasses.replace(points[1].time, rest=-0.1, e2e=1.0))
    figure = time_figure(view([points[0], over, refused]))
    assert figure is not None
    assert {0.0, 1.0} == {x for x, _, _ in figure.panels[0].lines[0].band}
    assert ("1", "8") == figure.panels[0].x.names
    assert time_figure(view([refused])) is None
    assert_golden_row("pictures", "\n".join(figure.notes))


@pytest.mark.parametrize("make", FROM_POINTS.values(), ids=FROM_POINTS)
def test_one_setting_makes_no_chart_against_concurrency(make: Callable[[SeriesView], Picture | None]) -> None:
    assert make(view(with_goodput([toy_point(16)]))) is None
