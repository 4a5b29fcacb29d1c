"""The contexts figure: what keeps the SLA against the input length or the shared prefix, with the
hardware's bounds."""

import dataclasses
from collections.abc import Sequence

import pytest

from frontier.core.model.decisions import NextStep, Verdict
from frontier.core.model.loads import Concurrency
from frontier.core.model.points import Estimate
from frontier.core.model.shapes import Shape
from frontier.extras.present.contexts_figure import contexts_figure
from frontier.hardware.roofline import GivenRoofline
from frontier.show.picture.data import Picture, Role
from frontier.show.picture.draw import render
from frontier.show.view.series_view import SeriesView, changed, series_view
from tests.kit.golden import assert_golden_row
from tests.kit.toy import LIMIT, toy_decision, toy_frontier, toy_points

LENGTHS = (1024, 4096, 16384, 65536)


def view(
    shape: Shape, knee: float, *, deployment: str = "default", gpus: int | None = None, **changes: object
) -> SeriesView:
    points = toy_points((1, 4, 16, 64, 128), shape=shape, knee=knee, peak=40 * knee, deployment=deployment)
    return series_view(points, toy_frontier(points), toy_decision(points, **changes), (LIMIT,), gpus=gpus)


def views(lengths: Sequence[int] = LENGTHS, **how: object) -> list[SeriesView]:
    return [view(Shape.of(isl, 256), 90 * 1024**0.5 / isl**0.5, **how) for isl in lengths]  # type: ignore[arg-type]


def lines(picture: Picture | None, panel: int) -> dict[str, tuple[tuple[float, float], ...]]:
    assert picture is not None
    return {line.name: line.points for line in picture.panels[panel].lines}


def test_it_shows_each_operating_point_at_its_input_length() -> None:
    shown = views()
    figure = contexts_figure(shown, {})
    decisions = [v.decision for v in shown if v.decision]
    assert lines(figure, 0) == {
        "within the SLA": tuple(
            (float(n), d.metrics["output_throughput"].value) for n, d in zip(LENGTHS, decisions, strict=True)
        )
    }
    assert lines(figure, 1) == {
        "within the SLA": tuple((float(n), float(d.load or 0)) for n, d in zip(LENGTHS, decisions, strict=True))
    }
    assert figure is not None
    assert_golden_row("pictures", figure.title)
    assert len(LENGTHS) == len([bar for bar in figure.panels[0].lines[-1].bars if bar is not None])
    for theme in ("light", "dark"):
        assert render(figure, "png", theme=theme).startswith(b"\x89PNG")  # type: ignore[arg-type]


def test_above_it_are_the_roofline_and_what_fits_in_memory_by_hand() -> None:
    # 80 GB less 16 GB of weights, 128 kB of KV a token: 488,281 tokens; a request looks back on its
    # prompt + 128.
    roofline = GivenRoofline(bandwidth=3.35e12, weights=16e9, kv_per_token=131_072, memory=80e9)
    figure = contexts_figure(views(), {"default": roofline})
    (room,) = (points for name, points in lines(figure, 1).items() if name != "within the SLA")
    assert [int(64e9 / 131_072 / (isl + 128)) for isl in LENGTHS] == [n for _, n in room]
    roof = lines(figure, 0)["roofline at c=128"]
    for (_, ceiling), (_, running), isl in zip(roof, room, LENGTHS, strict=True):
        batch = min(128.0, 64e9 / 131_072 / (isl + 128))
        step = (16e9 + batch * (isl + 128) * 131_072) / 3.35e12
        assert batch / step == pytest.approx(ceiling)
        assert running <= 64e9 / 131_072 / (isl + 128)
    measured = lines(figure, 0)["within the SLA"]
    assert [True] * 4 == [value < ceiling for (_, value), (_, ceiling) in zip(measured, roof, strict=True)]
    per_gpu = contexts_figure(views(gpus=4), {"default": roofline})
    assert [y / 4 for _, y in measured] == [y for _, y in lines(per_gpu, 0)["within the SLA"]]


def test_a_length_at_which_nothing_is_inside_is_at_the_edge_and_one_that_is_not_proven_is_not_drawn() -> None:
    some = views()
    none = changed(
        some[3], decision=toy_decision(list(some[3].points), load=None, verdict=Verdict.VIOLATES, candidate=1)
    )
    open_ = changed(
        some[1], decision=toy_decision(list(some[1].points), load=None, verdict=Verdict.UNPROVEN, candidate=4)
    )
    figure = contexts_figure([some[0], open_, some[2], none], {})
    assert [1024, 16384, 65536] == [x for x, _ in lines(figure, 0)["within the SLA"]]
    assert 0.0 == lines(figure, 0)["within the SLA"][-1][1] == lines(figure, 1)["within the SLA"][-1][1]
    assert figure is not None
    render(figure, "svg")
    assert_golden_row("pictures", "\n".join(figure.notes))


def test_the_end_of_the_grid_and_aggregates_are_told() -> None:
    wide = view(Shape.of(1024, 256), 900)
    bare = {name: Estimate.without_interval(e.value, 0) for name, e in (wide.decision or view).metrics.items()}  # type: ignore[union-attr]
    assert wide.decision is not None
    assert wide.decision.load == 128
    wide = changed(wide, decision=dataclasses.replace(wide.decision, metrics=bare))
    figure = contexts_figure([wide, *views()[1:]], {})
    assert figure is not None
    assert_golden_row("pictures", "\n".join(figure.notes))


def test_a_better_setting_that_is_not_proven_is_told() -> None:
    some = views()
    assert some[0].decision is not None
    step = dataclasses.replace(some[0].decision, next_step=NextStep(Concurrency(96), 0.3))
    figure = contexts_figure([changed(some[0], decision=step), *some[1:]], {})
    assert figure is not None
    assert_golden_row("pictures", "\n".join(figure.notes))


def test_lines_are_named_by_what_differs() -> None:
    one = views(deployment="bf16")
    two = views(deployment="fp8")
    other = [view(Shape.of(isl, 64), 50, deployment="bf16") for isl in LENGTHS]
    assert {"bf16, 256 output tokens", "fp8, 256 output tokens", "bf16, 64 output tokens"} == set(
        lines(contexts_figure([*one, *two, *other], {}), 0)
    )
    many = [view(Shape.of(isl, osl), 50) for isl in LENGTHS for osl in (8, 16, 32, 64, 128)]
    figure = contexts_figure(many, {})
    assert figure is not None
    assert len(lines(figure, 0)) == 4
    assert_golden_row("pictures", "\n".join(figure.notes))


def test_over_the_shared_prefix_where_only_that_varies() -> None:
    shapes = [dataclasses.replace(Shape.of(4096, 256), prefix=part, name=f"p{part}") for part in (0.0, 0.5, 0.9)]
    roofline = GivenRoofline(bandwidth=3.35e12, weights=16e9, kv_per_token=131_072, memory=80e9)
    figure = contexts_figure([view(shape, 40 + 60 * shape.prefix) for shape in shapes], {"default": roofline})
    assert ["within the SLA"] == list(lines(figure, 1)), "a shared prefix shares its memory"
    assert figure is not None
    assert_golden_row("pictures", figure.title)
    assert [0.0, 50.0, 90.0] == [x for x, _ in lines(figure, 0)["within the SLA"]]
    assert figure.panels[0].lines[-1].role is Role.FRONTIER
    render(figure, "svg")


def test_there_is_none_of_one_length_or_without_decisions() -> None:
    assert contexts_figure(views()[:1], {}) is None
    assert contexts_figure([changed(v, decision=None) for v in views()], {}) is None
    assert contexts_figure([], {}) is None
