"""What is drawn, as data: no pixels are looked at here."""

import dataclasses
import math

import pytest

from frontier.core.model.decisions import Limit, Verdict
from frontier.core.model.loads import Concurrency
from frontier.core.model.points import Estimate, Flag, Frontier, Point
from frontier.core.model.shapes import Shape
from frontier.show.picture.data import Panel, Picture, Role
from frontier.show.picture.frontier_picture import small_multiples
from frontier.show.tables import points_table
from frontier.show.view.series_view import DrawnRoofline, series_view, series_views
from frontier.show.view.wording import Provenance
from tests.kit.golden import assert_golden, assert_golden_row
from tests.kit.made import loads
from tests.kit.toy import (
    LIMIT,
    SHAPE,
    picture,
    roofline,
    said,
    stairs,
    starred,
    table,
    toy_decision,
    toy_frontier,
    toy_point,
    toy_points,
)

ERRORS = Flag("errors", "4.2%", "1%", "lower the concurrency")


def drawn(points: list[Point], *limits: Limit, **more: object) -> Picture:
    wanted = limits or (LIMIT,)
    return picture(points, toy_frontier(points), toy_decision(points, wanted), **more)  # type: ignore[arg-type]


def only(found: Picture) -> Panel:
    assert 1 == len(found.panels)
    return found.panels[0]


def beside(found: Picture, concurrency: int) -> str:
    """What is written beside the mark of a setting."""
    (words,) = [mark.words for mark in only(found).marks if mark.load == concurrency]
    return words


def of_the_roofline(found: Picture) -> str:
    """What is written of the roofline: at its line, and below the panel."""
    names = [line.name for line in only(found).lines if line.kind == "roofline"]
    return "\n".join([*names, *(note for note in found.notes if note.startswith("roofline"))])


def test_the_title_is_the_decision() -> None:
    found = drawn(toy_points())

    assert [64] == starred(only(found))
    assert_golden_row("pictures", found.title)


def test_throughput_is_per_gpu_only_when_the_gpus_are_given() -> None:
    assert "2,825 tok/s/GPU" in drawn(toy_points(), gpus=1).title
    assert "706 tok/s/GPU" in drawn(toy_points(), gpus=4).title
    assert ["per GPU" in only(drawn(toy_points(), gpus=gpus)).y.label for gpus in (4, None)] == [True, False]


def test_the_staircase_has_one_corner_per_setting_and_runs_to_the_right_edge() -> None:
    points = toy_points((1, 8, 64))
    panel = only(drawn(points))
    (x1, y1), (x2, y2), (x3, y3) = (
        (p.metrics["p99_ttft"].value * 1e3, p.metrics["output_throughput"].value) for p in points
    )

    assert ((x1, y1), (x2, y1), (x2, y2), (x3, y2), (x3, y3), (panel.x.high, y3)) == stairs(panel)[0].points


def test_where_right_is_better_the_staircase_runs_to_the_left_edge() -> None:
    points = toy_points((1, 8, 64))
    frontier = toy_frontier(points, ("output_throughput", "p50_interactivity"))
    panel = only(picture(points, frontier))
    corners = stairs(panel)[0].points

    assert points[0].metrics["p50_interactivity"].value == corners[0][0]
    assert panel.x.low == corners[-1][0]
    assert [x for x, _ in corners] == sorted((x for x, _ in corners), reverse=True)


def test_marks_say_whether_a_setting_is_on_the_frontier_dominated_or_flagged() -> None:
    points = toy_points()
    points[3] = toy_point(8, flags=(ERRORS,))
    panel = only(drawn(points))
    roles = {mark.load: mark.role for mark in panel.marks}

    assert Role.FRONTIER is roles[64]
    assert Role.DOMINATED is roles[128]
    assert Role.FLAGGED is roles[8]


def test_a_flag_that_is_a_remark_leaves_the_point_on_the_frontier() -> None:
    points = toy_points()
    points[3] = toy_point(8, flags=(dataclasses.replace(ERRORS, fatal=False),))

    assert Role.FRONTIER is {m.load: m.role for m in only(drawn(points)).marks}[8]


def test_flagged_settings_are_listed_with_their_reason_and_never_starred() -> None:
    points = [toy_point(c, flags=(ERRORS,) if c in (64, 128) else ()) for c in (8, 32, 64, 128)]
    found = drawn(points)

    assert_golden_row("pictures", "\n".join(found.notes))
    assert [32] == starred(only(found))


def test_the_sla_is_a_region_a_line_and_its_text() -> None:
    panel = only(drawn(toy_points()))

    assert panel.region is not None
    assert (panel.x.low, 500.0) == panel.region[:2]
    assert [("x", 500.0)] == [(rule.axis, rule.at) for rule in panel.rules]
    assert ("limit 500 ms",) == panel.rules[0].lines


def test_a_limit_on_a_metric_that_is_not_drawn_is_in_the_subtitle() -> None:
    found = drawn(toy_points(), LIMIT, Limit("p99_tpot", 0.03))
    (rule,) = only(found).rules

    assert ("x", 500.0) == (rule.axis, rule.at)
    assert ["p99 TTFT" in found.legend, "p99 TPOT" in found.legend.replace("\u00a0", " ")] == [False, True]


def test_the_sign_of_a_setting_is_its_verdict() -> None:
    points = toy_points((1, 8, 64, 70, 96))
    points[0] = dataclasses.replace(points[0], flags=(ERRORS,))
    decision = toy_decision(points)
    found = picture(points, toy_frontier(points), decision)
    signs = {mark.load: mark.sign for mark in only(found).marks}

    assert {j.load for j in decision.judgements if j.verdict is Verdict.MARGINAL} == {70}
    assert signs == {1: "excluded", 8: "meets", 64: "meets", 70: "over", 96: "violates"}
    assert found.signs == ("meets", "over", "violates", "excluded")
    scanned = picture([*points, *toy_points((32,))], toy_frontier(points), decision)
    assert "open" == next(mark.sign for mark in only(scanned).marks if mark.load == 32)


def test_a_setting_that_breaks_a_limit_off_the_axes_is_a_cross() -> None:
    points = toy_points((1, 8, 64, 80))
    found = drawn(points, Limit("p99_ttft", 9.0), Limit("p99_tpot", 0.022))
    crosses = {mark.load: mark.text for mark in only(found).marks if mark.sign == "violates"}
    assert {64: "64: over p99 TPOT", 80: "80: over p99 TPOT"} == crosses, "it may lie within the limit that is drawn"


def test_a_claim_without_an_upper_end_shows_the_bound_it_stands_on() -> None:
    points = toy_points((1, 8, 64))
    open_ended = Estimate(0.1, 0.09, math.inf, 300, lower=0.092, upper=0.12)
    decision = toy_decision(points)
    decision = dataclasses.replace(decision, metrics={**decision.metrics, "p99_ttft": open_ended})

    assert_golden_row("pictures", beside(picture(points, toy_frontier(points), decision), 64))


def test_a_limit_far_from_every_point_is_named_and_does_not_squeeze_the_picture() -> None:
    near, far = only(drawn(toy_points())), only(drawn(toy_points(), Limit("p99_ttft", 0.001)))

    assert far.x.low > 20
    assert not far.rules
    assert near.rules
    found = drawn(toy_points(), Limit("p99_ttft", 0.001))
    assert_golden_row("pictures", "\n".join(note for note in found.notes if "limit" in note))


def test_infinite_ends_become_short_arrows_and_unknown_intervals_none() -> None:
    points = toy_points((4, 16, 64))
    value = points[1].metrics["p99_ttft"].value
    points[1] = dataclasses.replace(
        points[1], metrics={**points[1].metrics, "p99_ttft": Estimate(value, value * 0.9, math.inf, 300)}
    )
    points[2] = dataclasses.replace(
        points[2], metrics={**points[2].metrics, "p99_ttft": Estimate.without_interval(0.4, 300)}
    )
    panel = only(picture(points, toy_frontier(points)))
    bars = {mark.load: mark.x_bar for mark in panel.marks}

    assert bars[16] is not None
    assert bars[16].open_high
    assert not bars[16].open_low
    assert value * 1e3 < bars[16].high < panel.x.high
    assert bars[64] is None


def test_an_interval_beyond_the_axes_is_an_arrow_and_no_bar_through_the_panel() -> None:
    points = toy_points((4, 16, 64))
    value = points[2].metrics["p99_ttft"].value
    points[2] = dataclasses.replace(
        points[2], metrics={**points[2].metrics, "p99_ttft": Estimate(value, 1e-9, 1e9, 300)}
    )
    panel = only(picture(points, toy_frontier(points)))
    bar = panel.marks[-1].x_bar

    assert bar is not None
    assert (True, True) == (bar.open_low, bar.open_high)
    assert panel.x.low < bar.low < value * 1e3 < bar.high < panel.x.high


def test_a_throughput_that_may_be_zero_is_no_bar_through_the_panel() -> None:
    points = toy_points((1, 8, 64))
    wide = Estimate(2000.0, 0.0, 2018.0, 300)
    points[2] = dataclasses.replace(points[2], metrics={**points[2].metrics, "output_throughput": wide})
    found = drawn(points)
    bar = only(found).marks[-1].y_bar

    assert bar is not None
    assert bar.open_low
    assert bar.low > 1800


def test_a_latency_that_does_not_exist_stands_at_the_edge_and_is_explained() -> None:
    points = toy_points((4, 16, 64))
    points[2] = dataclasses.replace(
        points[2], metrics={**points[2].metrics, "p99_ttft": Estimate(math.inf, 1.0, math.inf, 300)}, flags=(ERRORS,)
    )
    found = picture(points, toy_frontier(points))

    assert [64] == [mark.load for mark in only(found).marks if mark.beyond]
    assert_golden_row("pictures", "\n".join(found.notes))


def test_a_point_without_the_metric_is_named_as_not_drawn() -> None:
    points = toy_points((4, 16, 64))
    bare = {k: v for k, v in points[1].metrics.items() if k != "p99_ttft"}
    points[1] = dataclasses.replace(points[1], metrics=bare)
    why = {16: "p99_ttft was not measured"}
    frontier = Frontier("default", SHAPE, ("output_throughput", "p99_ttft"), loads(4, 64), (), why)
    found = picture(points, frontier)

    assert [4, 64] == [mark.load for mark in only(found).marks]
    assert_golden_row("pictures", "\n".join(found.notes))


def test_axes_without_a_value_are_empty_and_say_so() -> None:
    points = toy_points((4, 16))
    bare = [dataclasses.replace(p, metrics={"output_throughput": p.metrics["output_throughput"]}) for p in points]
    why = {p.load: "p99_ttft was not measured" for p in points}
    found = picture(bare, Frontier("default", SHAPE, ("output_throughput", "p99_ttft"), (), (), why))

    assert only(found).is_empty
    assert not only(found).compass
    assert 1 == said(found).count("c=4, c=16")
    assert "was not measured" not in said(found)


def test_nothing_feasible_is_said_and_the_nearest_is_ringed_not_starred() -> None:
    found = drawn(toy_points(), Limit("p99_ttft", 0.02))

    assert not starred(only(found))
    assert [1] == [m.load for m in only(found).marks if m.ring]
    assert_golden_row("pictures", found.title)


def test_what_is_not_proven_says_what_would_decide() -> None:
    points = toy_points()
    decision = toy_decision(points)
    judgements = tuple(dataclasses.replace(j, verdict=Verdict.UNPROVEN, need=1000) for j in decision.judgements)
    unproven = dataclasses.replace(
        decision, verdict=Verdict.UNPROVEN, load=None, candidate=Concurrency(64), judgements=judgements
    )
    found = picture(points, toy_frontier(points), unproven)

    assert not starred(only(found))
    assert_golden_row("pictures", found.title)


def test_several_that_are_not_proven_say_what_each_has() -> None:
    points = toy_points()
    judged = toy_decision(points).judgements
    judgements = tuple(dataclasses.replace(j, verdict=Verdict.UNPROVEN, need=1000) for j in judged)
    open_ = toy_decision(points, verdict=Verdict.UNPROVEN, load=None, candidate=Concurrency(64), judgements=judgements)
    found = small_multiples([series_view(points, toy_frontier(points), open_)] * 2)

    assert not [c for panel in found.panels for c in starred(panel)]
    assert_golden_row("pictures", f"{found.title}\n{table(found)}")


def test_when_every_point_is_flagged_nothing_is_drawn_as_good() -> None:
    points = toy_points(flags=(ERRORS,))
    found = drawn(points)

    assert () == tuple(stairs(only(found)))
    assert {Role.FLAGGED} == {mark.role for mark in only(found).marks}
    assert_golden_row("pictures", found.title)


def test_a_flagged_setting_too_far_out_to_be_drawn_is_named() -> None:
    points = [*toy_points((1, 8, 64)), toy_point(512, flags=(ERRORS,))]
    found = drawn(points)

    assert {1, 8, 64} == {mark.load for mark in only(found).marks}
    assert not drawn(toy_points()).notes
    assert_golden_row("pictures", "\n".join(found.notes))


def test_a_bound_says_what_it_is_of_where_no_axis_shows_it() -> None:
    points = toy_points((1, 8, 64))
    decision = toy_decision(points, (Limit("p99_tpot", 0.03), LIMIT))
    view = series_view(points, toy_frontier(points), dataclasses.replace(decision, binding="p99_tpot"))

    found = small_multiples([view, view])
    assert "p99_tpot" not in view.axes
    assert_golden_row("pictures", table(found))


def test_a_curve_of_light_is_drawn_as_far_as_the_picture_reaches() -> None:
    curve = ((0.2, 1000.0), (0.3, 2000.0), (0.4, 9000.0))
    cut = drawn(
        toy_points(),
        roofline=DrawnRoofline(9000, "a rather long name of a model in fp8 on 8 x b200; c=8 reaches 40%", curve),
    )
    assert [(1000.0), (2000.0)] == [y for _, y in roofline(only(cut))]
    assert_golden_row("pictures", of_the_roofline(cut))


def test_light_that_is_faster_than_the_axis_begins_comes_in_at_its_edge() -> None:
    curve = ((1e-6, 500.0), (1e-6, 3600.0))
    panel = only(drawn(toy_points(), roofline=DrawnRoofline(3600, "HBM roofline", curve)))
    assert ((panel.x.low, 3600.0), (panel.x.high, 3600.0)) == roofline(panel)
    rising = ((1e9, 3600.0), (1e9, 500.0))
    points, axes = toy_points(), ("output_throughput", "p50_interactivity")
    drawn_one = DrawnRoofline(3600, "HBM roofline", rising)
    panel = only(picture(points, toy_frontier(points, axes), toy_decision(points, (LIMIT,)), roofline=drawn_one))
    assert ((panel.x.high, 3600.0), (panel.x.low, 3600.0)) == roofline(panel)


def test_the_speed_of_light_is_drawn_where_it_fits_and_named_where_not() -> None:
    near = drawn(toy_points(), roofline=DrawnRoofline(3600, "HBM roofline at c=128"))
    far = drawn(toy_points(), roofline=DrawnRoofline(40_000, "HBM roofline"))

    assert {3600.0} == {y for _, y in roofline(only(near))}
    assert () == roofline(only(far))
    assert only(far).y.high < 5000
    assert_golden_row("pictures", f"{of_the_roofline(near)}\n\n{of_the_roofline(far)}")


def test_latency_is_logarithmic_unless_the_range_is_small() -> None:
    assert only(drawn(toy_points())).x.log
    narrow = only(picture(toy_points((1, 2, 4, 8)), toy_frontier(toy_points((1, 2, 4, 8)))))

    assert not narrow.x.log
    assert "log" not in narrow.x.label


def test_a_panel_without_a_decision_is_not_said_to_keep_the_sla() -> None:
    points, long = toy_points(), toy_points(shape=Shape.of(8192, 512))
    judged = series_view(points, toy_frontier(points), toy_decision(points))
    found = small_multiples([judged, series_view(long, toy_frontier(long), None)])
    assert [[64], []] == [starred(panel) for panel in found.panels]
    assert_golden_row("pictures", found.title)


def test_a_point_without_an_axis_is_named_with_the_metric() -> None:
    points = toy_points((1, 8, 16, 64))
    of = toy_frontier(points)
    for i in (1, 2):
        metrics = {k: v for k, v in points[i].metrics.items() if k != "p99_ttft"}
        points[i] = dataclasses.replace(points[i], metrics=metrics)
    excluded = {8: "p99_ttft was not measured", 16: "p99_ttft was not measured"}
    of = dataclasses.replace(of, excluded=excluded, members=loads(1, 64), dominated=())
    found = picture(points, of)
    assert "○" not in said(found), "none is flagged, and none is drawn hollow"
    assert_golden_row("pictures", "\n".join(found.notes))
    assert_golden_row("pages", points_table(series_views(points, [of])))


def test_several_shapes_get_a_panel_each_and_one_title() -> None:
    views = []
    for shape in (SHAPE, Shape.of(8192, 512), Shape.of(128, 128)):
        points = toy_points(shape=shape)
        views.append(series_view(points, toy_frontier(points), toy_decision(points)))
    found = small_multiples(views)

    assert [[64]] * 3 == [starred(panel) for panel in found.panels]
    assert ["1024/256", "8192/512", "128/128"] == [panel.title for panel in found.panels]
    assert 1 == len({(panel.x, panel.y) for panel in found.panels}), "panels share their scales"
    assert_golden_row("pictures", f"{found.title}\n{table(found)}")


def test_the_foot_says_where_the_numbers_come_from() -> None:
    points = [toy_point(8, n=300), toy_point(64, n=1024)]
    footer = Provenance(run="7f3a91", model="model-x", server="vllm 0.33", hardware="1 × H200")
    foot = picture(points, toy_frontier(points), footer=footer).foot

    assert_golden_row("pictures", foot.replace("\u00a0", " "))


def test_a_picture_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="frontier"):
        small_multiples([])


def test_the_same_data_gives_the_same_picture() -> None:
    assert drawn(toy_points()) == drawn(toy_points())


def test_hostile_names_are_cleaned() -> None:
    shape = Shape(SHAPE.isl, SHAPE.osl, name="chat\x1b[31m\u202e$x^2$\n<b>")
    points = toy_points(shape=shape)
    found = picture(points, toy_frontier(points), footer=Provenance(model="evil\x00\x1b]0;title\x07", server="a\nb"))

    assert "\x1b" not in said(found)
    assert "\u202e" not in said(found)
    assert "\x00" not in said(found)
    assert "evil]0;title" in said(found)


def test_panels_of_deployments_are_called_by_what_differs() -> None:
    names = [f"MiniMax-M2.5-b200_sxm-vllm-v0.19.0-fp8-tp{n}-attention_dp1-moe" for n in (2, 4, 8)]
    views = [
        series_view(p, toy_frontier(p), limits=()) for p in (toy_points((1, 8, 64), deployment=name) for name in names)
    ]
    found = small_multiples(views)

    assert ["…tp2…", "…tp4…", "…tp8…"] == [panel.title for panel in found.panels]
    assert "ISL 1024 / OSL 256" in said(found)

    mixed = [*views[:2], *(series_view(p, toy_frontier(p)) for p in [toy_points((1, 8), shape=Shape.of(64, 8))])]
    assert "default · 64/8" == small_multiples(mixed).panels[-1].title
    assert_golden_row("pictures", f"{found.title}\n{table(found)}\n{small_multiples(mixed).title}")


def test_a_limit_on_a_rate_is_written_as_promised_and_as_drawn() -> None:
    points = toy_points()
    limits = (LIMIT, Limit("output_throughput", 2000.0))
    eight = picture(points, toy_frontier(points), toy_decision(points), limits=limits, gpus=8)
    whole = picture(points, toy_frontier(points), toy_decision(points), limits=limits)

    assert [250.0] == [rule.at for rule in only(eight).rules if rule.axis == "y"]
    lines = [line for found in (eight, whole) for rule in only(found).rules if rule.axis == "y" for line in rule.lines]
    assert_golden_row("pictures", "\n".join(lines))


def test_the_words_of_a_picture_and_of_several_panels() -> None:
    points, long = toy_points(), toy_points((1, 8, 64, 96), shape=Shape.of(8192, 512), peak=1200)
    long[3] = toy_point(96, shape=long[0].shape, flags=(ERRORS,))
    limits = (LIMIT, Limit("p99_tpot", 0.026))
    roofline = DrawnRoofline(3600, "HBM roofline at c=128, bf16 weights 16 GB; memory bandwidth binds")
    footer = Provenance(run="7f3a91", model="model-x", server="vllm 0.33", hardware="1 × H200")
    views = [
        series_view(points, toy_frontier(points), toy_decision(points, limits), roofline=roofline, gpus=1),
        series_view(long, toy_frontier(long), toy_decision(long, limits), gpus=1),
    ]
    pictures = [small_multiples(views[:1], footer=footer), small_multiples(views, footer=footer)]

    assert_golden("picture.txt", "\n\n".join(map(said, pictures)))
