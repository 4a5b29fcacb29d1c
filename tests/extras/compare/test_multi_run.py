"""Several frontiers in one panel: told apart, named, and no winner without intervals that say
so."""

import dataclasses
from collections.abc import Iterable, Mapping

import pytest

from frontier.core.model.decisions import Limit, NextStep, Verdict
from frontier.core.model.loads import Concurrency
from frontier.core.model.points import Estimate, Flag
from frontier.core.model.shapes import Shape
from frontier.extras.compare.contest import best_of
from frontier.extras.compare.multi_run import SIGNS, Group, contest, grouped, together
from frontier.show.picture.colours import ink
from frontier.show.picture.data import Picture, Role
from frontier.show.picture.draw import render
from frontier.show.picture.draw_panel import SHAPES
from frontier.show.view.series_view import SeriesView, changed, series_view
from frontier.show.view.wording import apart
from tests.kit.golden import assert_golden_row
from tests.kit.toy import LADDER, LIMIT, said, stairs, table, toy_decision, toy_frontier, toy_points


def view(
    peak: float,
    deployment: str,
    shape: Shape | None = None,
    gpus: int | None = None,
    ladder: Iterable[int] = LADDER,
    limit: Limit = LIMIT,
) -> SeriesView:
    how = {} if shape is None else {"shape": shape}
    points = toy_points(ladder, peak=peak, deployment=deployment, **how)
    return series_view(points, toy_frontier(points), toy_decision(points, (limit,)), (limit,), gpus=gpus)


def group(*peaks: float, shape: Shape | None = None, limit: Limit = LIMIT) -> Group:
    names = tuple(f"variant {i}" for i in range(len(peaks)))
    return Group(names, tuple(view(p, n, shape, limit=limit) for n, p in zip(names, peaks, strict=True)))


def titles(*groups: Group) -> str:
    """The titles of several pictures, a line each."""
    return "\n".join(together([of]).title for of in groups)


def winner(of: Group) -> tuple[str | None, bool]:
    """Who carries the most at its operating point, and whether that is sure."""
    best = best_of(contest(of))
    return (best.name, best.sure) if best else (None, False)


def test_each_has_a_role_of_its_own_and_its_name_on_its_staircase() -> None:
    found = together([group(3300, 2900, 2500, 2100, 1800, 1400, 900, 600)])
    (panel,) = found.panels

    roles = [stair.role for stair in stairs(panel)]
    assert 8 == len(set(roles)) == len({SHAPES.get(role, "o") for role in roles}) == len(set(SIGNS.values()))
    assert 8 == len({ink(role) for role in roles}) == len({ink(role, "dark") for role in roles})
    assert set(roles) == {mark.role for mark in panel.marks}
    assert {f"variant {i}" for i in range(8)} <= set(said(found).splitlines())
    assert render(found, "svg") == render(found, "svg")


def test_the_most_is_only_said_where_intervals_separate() -> None:
    clear, close = group(2000, 3300), group(3290, 3300)

    assert [("variant 1", True), ("variant 1", False)] == [winner(clear), winner(close)]
    assert_golden_row("pictures", titles(clear, close))


def test_rates_are_compared_per_gpu_where_gpus_are_given() -> None:
    two = Group(("eight", "one"), (view(3300, "eight", gpus=8), view(2000, "one", gpus=1)))

    assert ("one", True) == winner(two)


def test_each_operating_point_is_in_the_table() -> None:
    found = together([group(2000, 3300)])

    assert [(64, Role.FRONTIER), (64, Role.OTHER)] == [(m.load, m.role) for m in found.panels[0].marks if m.star]
    assert [Role.FRONTIER, Role.OTHER] == [role for _, role in found.rows]
    assert_golden_row("pictures", table(found))


def test_several_shapes_have_a_panel_each() -> None:
    groups = [group(3300, 2000), group(1500, 900, shape=Shape.of(8192, 512))]
    found = together(groups)

    assert ["1024/256", "8192/512"] == [panel.title for panel in found.panels]
    assert [("variant 0", True)] * 2 == [winner(of) for of in groups]
    assert_golden_row("pictures", found.title)


def test_the_title_of_several_shapes_says_where_nothing_is_proven() -> None:
    tight = Limit(LIMIT.metric, LIMIT.promise / 1000)
    none, one = group(3300, 2000, limit=tight), group(1500, 900, shape=Shape.of(8192, 512))
    other = group(1500, 900, shape=Shape.of(8192, 512), limit=tight)

    assert [None, None] == [best_of(contest(of)) for of in (none, other)]
    assert_golden_row("pictures", together([none, other]).title)
    assert "proven" not in together([none, one]).title


def test_of_many_settings_the_telling_ones_are_numbered_of_few_all() -> None:
    few = tuple(view(peak, name, ladder=(1, 8, 32, 48, 64, 80)) for peak, name in ((3300, "a"), (3290, "b")))
    (panel,) = together([Group(("a", "b"), few)]).panels
    assert [str(mark.load) for mark in panel.marks] == [mark.text for mark in panel.marks]
    assert 12 == len(panel.marks)

    (panel,) = together([group(3300, 1500)]).panels
    assert {1, 2, 4, 8, 16, 32, 64, 112} == {int(mark.text) for mark in panel.marks if mark.text}


def test_each_operating_point_is_a_star() -> None:
    (panel,) = together([group(3300, 1500)]).panels

    assert [(64, Role.FRONTIER), (64, Role.OTHER)] == [(m.load, m.role) for m in panel.marks if m.star]


def test_long_names_that_differ_at_their_end_are_told_apart_with_their_mark() -> None:
    long = "meta-llama/Llama-3.1-405B-Instruct-dynamically-quantized-"
    names = (long + "bf16", long + "fp08")
    views = tuple(view(peak, name) for peak, name in zip((3300, 1500), names, strict=True))
    found = together(grouped([("run", views)]))
    (first, of_first), (second, of_second) = [(cells[0], role) for cells, role in found.rows]

    assert (Role.FRONTIER, Role.OTHER) == (of_first, of_second)
    assert first.startswith("● meta-llama/Llama-3.1-405B")
    assert first.endswith("bf16")
    assert second.startswith("■ meta-llama/Llama-3.1-405B")
    assert second.endswith("fp08")


def test_on_their_staircases_names_are_what_tells_them_apart() -> None:
    alike = ["MiniMax-b200-vllm-v0.19.0-tp2-attention_dp1-moe", "MiniMax-b200-vllm-v0.17.0-tp4-attention_dp1-moe"]

    assert ["…v0.19.0-tp2…", "…v0.17.0-tp4…"] == apart(alike)
    assert ["bf16", "fp8"] == apart(["bf16", "fp8"])
    assert ["a" * 30, "b" * 30] == apart(["a" * 30, "b" * 30])
    assert ["same" * 9] * 2 == apart(["same" * 9] * 2)


def test_many_long_names_are_counted_in_the_title_and_named_below() -> None:
    names = tuple(f"meta-llama/Llama-3.1-405B-Instruct-variant-{i}" for i in range(4))
    views = tuple(changed(view(3300, name), decision=None) for name in names)
    found = together([Group(names, views)])

    assert not [name for name in names if name in found.title]
    assert list(names) == [cells[0].partition(" ")[2] for cells, _ in found.rows]
    assert_golden_row("pictures", found.title)


def test_without_intervals_no_bars_are_promised() -> None:
    points = [
        dataclasses.replace(p, metrics={n: Estimate.without_interval(e.value, 0) for n, e in p.metrics.items()})
        for p in toy_points()
    ]
    one = series_view(points, toy_frontier(points))

    pictures = [together([of]) for of in (Group(("a", "b"), (one, one)), group(3300, 2000))]
    assert [False, True] == [any(mark.x_bar for mark in found.panels[0].marks) for found in pictures]
    assert_golden_row("pictures", "\n".join(found.legend.replace("\u00a0", " ") for found in pictures))


def heights(found: Picture) -> dict[Role, float]:
    """How high each operating point is drawn."""
    (panel,) = found.panels
    return {mark.role: mark.y for mark in panel.marks if mark.star}


def test_each_is_drawn_per_gpu_of_its_own() -> None:
    two = Group(("eight", "one"), (view(3300, "eight", gpus=8), view(2000, "one", gpus=1)))
    found = together([two])
    at = {v.frontier.deployment: v.decision.metrics["output_throughput"].value for v in two.views if v.decision}

    assert {Role.FRONTIER: at["eight"] / 8, Role.OTHER: at["one"]} == pytest.approx(heights(found))
    assert "per GPU" in found.panels[0].y.label


def test_where_one_does_not_say_its_gpus_none_is_divided() -> None:
    two = Group(("eight", "unknown"), (view(3300, "eight", gpus=8), view(2000, "unknown")))
    found = together([two])
    at = {v.frontier.deployment: v.decision.metrics["output_throughput"].value for v in two.views if v.decision}

    assert {Role.FRONTIER: at["eight"], Role.OTHER: at["unknown"]} == pytest.approx(heights(found))
    assert "per GPU" not in found.panels[0].y.label
    assert "tok/s/GPU" not in said(found)


def test_how_many_gpus_each_has_is_said_where_they_differ() -> None:
    two = (view(3300, "eight", gpus=8), view(2000, "one", gpus=1))
    same = (view(3300, "eight", gpus=8), view(2000, "one", gpus=8))

    tables = [table(together([Group(("eight", "one"), views)])) for views in (two, same)]
    assert ["GPUs)" in text for text in tables] == [True, False]
    assert_golden_row("pictures", "\n\n".join(tables))


def test_why_nothing_is_divided_is_said_where_only_some_say_their_gpus() -> None:
    some = Group(("eight", "unknown"), (view(3300, "eight", gpus=8), view(2000, "unknown")))
    none = Group(("a", "b"), (view(3300, "a"), view(2000, "b")))

    assert not together([none]).notes
    assert_golden_row("pictures", "\n".join(together([some]).notes))


def test_a_limit_on_the_rate_of_a_whole_deployment_is_not_drawn_per_gpu() -> None:
    speed = Limit("output_throughput", 1600.0)
    views = [changed(view(3300, "a", gpus=gpus), limits=(LIMIT, speed)) for gpus in (8, 1)]
    found = together([Group(("eight", "one"), tuple(views))])
    whole = together([Group(("a", "b"), tuple(changed(v, gpus=None) for v in views))])

    assert {"x"} == {rule.axis for rule in found.panels[0].rules}
    (level,) = [rule for rule in whole.panels[0].rules if rule.axis == "y"]
    assert 1600.0 == level.at
    assert_golden_row("pictures", "\n".join([*found.notes, *level.lines]))


# --- who takes part


def unproven(of: SeriesView, verdict: Verdict = Verdict.UNPROVEN) -> SeriesView:
    """The same measurements, of which nothing is proven."""
    assert of.decision is not None
    open_ = dataclasses.replace(of.decision, verdict=verdict, load=None, candidate=of.decision.load)
    return changed(of, decision=open_)


def lettered(*views: SeriesView) -> Group:
    return Group(tuple("ABCD"[: len(views)]), views)


def may_give(of: Group) -> list[str]:
    """Those that may give more than the winner, which is not proven."""
    best = best_of(contest(of))
    assert best is not None
    return [name for name, _ in best.may_give]


def test_who_is_not_proven_is_said_and_whether_it_may_give_more() -> None:
    low, high = view(2000, "a"), view(3300, "b")
    assert high.decision is not None
    step = NextStep(Concurrency(64), None, high.decision.metrics["output_throughput"].value)
    may = unproven(changed(high, decision=dataclasses.replace(high.decision, next_step=step)))
    groups = [
        lettered(low, may),
        lettered(low, unproven(high, Verdict.MARGINAL)),
        lettered(low, unproven(view(1500, "b"))),
        lettered(low, unproven(high, Verdict.VIOLATES)),
        lettered(low, unproven(high, Verdict.INVALID)),
        lettered(low, changed(high, decision=None)),
        lettered(low, may, unproven(high)),
    ]
    assert {"A"} == {winner(of)[0] for of in groups}
    assert [["B"], [], [], [], [], [], ["B"]] == [may_give(of) for of in groups]
    assert_golden_row("pictures", titles(*groups))


def test_among_several_proven_the_others_are_still_said() -> None:
    of = lettered(view(3300, "a"), view(2000, "b"), unproven(view(1800, "c")))
    assert ("A", True) == winner(of)
    assert_golden_row("pictures", titles(of))


def test_with_nothing_proven_nobody_wins() -> None:
    some = unproven(view(2000, "a"))
    two, three = lettered(some, some), lettered(some, some, unproven(view(900, "c"), Verdict.VIOLATES))
    assert [None, None] == [best_of(contest(of)) for of in (two, three)]
    assert_golden_row("pictures", titles(two, three))


def test_proven_without_intervals_there_is_no_clear_winner_and_no_doubt_is_invented() -> None:
    def without(metrics: Mapping[str, Estimate]) -> dict[str, Estimate]:
        return {name: Estimate.without_interval(e.value, e.n) for name, e in metrics.items()}

    def bare(peak: float) -> SeriesView:
        of = view(peak, "x")
        assert of.decision is not None
        points = [dataclasses.replace(p, metrics=without(p.metrics)) for p in of.points]
        decision = dataclasses.replace(of.decision, metrics=without(of.decision.metrics))
        return changed(of, points=points, decision=decision)

    of = lettered(bare(3300), bare(900))
    assert ("A", False) == winner(of)
    assert_golden_row("pictures", titles(of))


def chosen(concurrency: int, limits: tuple[Limit, ...] = (LIMIT,), peak: float = 3300) -> SeriesView:
    points = toy_points(peak=peak)
    found = toy_decision(points, limits, load=concurrency, verdict=Verdict.MEETS, candidate=None)
    return series_view(points, toy_frontier(points), found, limits)


def test_an_operating_point_that_is_dominated_keeps_its_star() -> None:
    of = chosen(128)
    assert 128 in of.frontier.dominated
    (panel,) = together([Group(("a", "b"), (of, view(1500, "b")))]).panels
    (star,) = [m for m in panel.marks if m.star and m.role is Role.FRONTIER]
    assert 128 == star.load
    assert (star.x, star.y) not in stairs(panel)[0].points, "the staircase has only what is on the frontier"


def test_a_setting_that_violates_is_a_cross_in_each_of_several() -> None:
    """The limit is of the deployment; the axes are per GPU."""
    limits = (LIMIT, Limit("p99_tpot", 0.02), Limit("request_throughput", 5.0))
    of = dataclasses.replace(chosen(64, limits), gpus=4)
    (panel,) = together([Group(("a", "b"), (of, of))]).panels
    signs = {m.load: m.sign for m in panel.marks}
    assert signs == {each.load: each.sign for each in of.settings if each.load in signs}
    assert {"violates"} <= set(signs.values())


def test_what_is_not_drawn_is_said() -> None:
    lost = Flag("lockstep", "12 waves", "3", "vary the lengths")
    points = [*toy_points((1, 8)), *toy_points((64,), flags=(lost,))]
    bare = dataclasses.replace(
        toy_points((32,))[0], metrics={k: v for k, v in toy_points((32,))[0].metrics.items() if k != "p99_ttft"}
    )
    of = toy_frontier(points)
    excluded = of.excluded | {32: "p99_ttft was not measured"}
    one = series_view([*points, bare], dataclasses.replace(of, excluded=excluded), None)
    found = together([Group(("a", "b"), (one, view(2000, "b")))])
    assert {1, 8} == {m.load for m in found.panels[0].marks if m.role is Role.FRONTIER}
    assert_golden_row("pictures", "\n".join(found.notes))


def test_an_operating_point_off_the_axes_is_said() -> None:
    of = chosen(64)
    points = [
        p if p.load != 64 else dataclasses.replace(p, metrics={k: v for k, v in p.metrics.items() if k != "p99_ttft"})
        for p in of.points
    ]
    gone = changed(of, points=points)
    found = together([Group(("a", "b"), (gone, view(2000, "b")))])
    assert {Role.OTHER} == set(heights(found))
    assert_golden_row("pictures", "\n".join(found.notes))


def test_long_names_that_agree_where_they_are_cut_stay_apart() -> None:
    names = ["n" * 100 + end + "n" * 100 for end in "xy"]
    (both,) = grouped([("run", tuple(view(peak, name) for peak, name in zip((3300, 900), names, strict=True)))])
    assert 2 == len(set(both.names))
    assert (both.names[0], True) == winner(both)
    assert both.names[0] in together([both]).title


def test_two_runs_of_one_name_are_numbered() -> None:
    (both,) = grouped([("night", [view(3300, "d")]), ("night", [view(900, "d")])])
    assert ("night", "night (2)") == both.names


def test_the_most_that_is_proven_is_not_called_the_most_where_another_may_give_more() -> None:
    """B's operating point carries less, and a setting of B that is not proven lies above A's."""
    a, b = view(2600, "a"), chosen(8)
    assert b.decision is not None
    proven = next(p for p in b.points if p.load == 8).metrics
    b = changed(b, decision=dataclasses.replace(b.decision, metrics=proven))
    assert b.decision is not None
    speeds = {p.load: p.metrics["output_throughput"].value for p in b.points}
    higher = NextStep(Concurrency(80), 3.2, speeds[80])
    may = changed(b, decision=dataclasses.replace(b.decision, next_step=higher))
    less = dataclasses.replace(b.decision, next_step=NextStep(Concurrency(32), 1.9, speeds[32]))
    groups = [lettered(a, may), lettered(a, b), lettered(a, changed(b, decision=less))]
    assert {"A"} == {winner(of)[0] for of in groups}  # at the same load B is better
    assert [["B"], [], []] == [may_give(of) for of in groups]
    assert_golden_row("pictures", titles(*groups))


def test_where_another_rate_is_drawn_it_is_the_one_that_is_compared() -> None:
    """The step's tokens are made up, and larger than any other: on this axis they say nothing."""

    def drawn(of: SeriesView, step: int | None = None) -> SeriesView:
        assert of.decision is not None
        points = list(of.points)
        chosen_point = next(p for p in points if p.load == of.decision.load)
        decision = dataclasses.replace(
            of.decision, metrics=chosen_point.metrics, next_step=NextStep(Concurrency(step), 9.0, 1e9) if step else None
        )
        return changed(of, frontier=toy_frontier(points, ("request_throughput", "p99_ttft")), decision=decision)

    a = drawn(view(2600, "a"))
    groups = [lettered(a, drawn(chosen(8), step)) for step in (None, 80, 16)]
    assert [[], ["B"], []] == [may_give(of) for of in groups]
    assert_golden_row("pictures", titles(*groups))
