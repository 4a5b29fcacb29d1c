"""Several frontiers in one panel: told apart, named, and no winner without intervals that say so."""

import dataclasses
from collections.abc import Iterable

import pytest
from toy import LADDER, LIMIT, toy_decision, toy_frontier, toy_points

from frontier.model import Estimate, Limit, Shape
from frontier.present.captions import View
from frontier.present.drawn import Picture, Role
from frontier.present.figure import render
from frontier.present.layout import Rect
from frontier.present.overlay import Group, together
from frontier.present.wording import apart
from frontier.views import grouped


def view(
    peak: float, deployment: str, shape: Shape | None = None, gpus: int | None = None, ladder: Iterable[int] = LADDER
) -> View:
    how = {} if shape is None else {"shape": shape}
    points = toy_points(ladder, peak=peak, deployment=deployment, **how)
    return View(points, toy_frontier(points), toy_decision(points), (LIMIT,), gpus=gpus)


def group(*peaks: float, shape: Shape | None = None) -> Group:
    names = tuple(f"variant {i}" for i in range(len(peaks)))
    return Group(names, tuple(view(p, n, shape) for n, p in zip(names, peaks, strict=True)))


def said(found: Picture) -> str:
    labels = [*found.labels, *(label for panel in found.panels for label in panel.labels)]
    return "\n".join(line for label in labels for line in label.lines).replace("\u00a0", " ")


def test_each_has_a_role_of_its_own_and_its_name_on_its_staircase() -> None:
    found = together([group(3300, 2500, 1800, 900)])
    (panel,) = found.panels

    assert [Role.FRONTIER, Role.OTHER, Role.THIRD, Role.FOURTH] == [stair.role for stair in panel.stairs]
    assert {stair.role for stair in panel.stairs} == {mark.role for mark in panel.marks}
    assert {f"variant {i}" for i in range(4)} <= set(said(found).splitlines())
    assert render(found, "svg") == render(found, "svg")


def test_the_most_is_only_said_where_intervals_separate() -> None:
    clear, close = together([group(2000, 3300)]), together([group(3290, 3300)])

    assert clear.title.startswith("variant 1 carries the most inside p99 TTFT ≤ 500 ms: 2,825 tok/s at concurrency 64")
    assert close.title.startswith("No clear winner inside p99 TTFT ≤ 500 ms")


def test_rates_are_compared_per_gpu_where_gpus_are_given() -> None:
    two = Group(("eight", "one"), (view(3300, "eight", gpus=8), view(2000, "one", gpus=1)))

    assert together([two]).title.startswith("one carries the most")


def test_each_operating_point_is_written_below() -> None:
    text = said(together([group(2000, 3300)]))

    assert "variant 0: Run at concurrency 64: 1,712 tok/s with p99 TTFT 418 ms (limit 500 ms)" in text
    assert "variant 1: Run at concurrency 64: 2,825 tok/s" in text


def test_several_shapes_have_a_panel_each() -> None:
    found = together([group(3300, 2000), group(1500, 900, shape=Shape.of(8192, 512))])

    assert 2 == len(found.panels)
    assert "variant 0 carries the most inside p99 TTFT ≤ 500 ms in both workloads" == found.title
    assert not found.panels[0].box.overlaps(found.panels[1].box)
    assert "8192/512" in said(found)


def test_no_text_covers_another() -> None:
    found = together([group(3300, 3000, 2700, 900)])
    labels = [*found.labels, *found.panels[0].labels]

    for i, label in enumerate(labels):
        assert label.box.inside(Rect(0, 0, found.width, found.height)), label.lines
        assert not any(label.box.overlaps(other.box) for other in labels[i + 1 :]), label.lines


def test_over_several_workloads_who_carries_most_may_depend_on_them() -> None:
    long = Shape.of(8192, 512)
    turned, close = group(900, 3300, shape=long), group(3300, 3290, shape=long)

    head = "Inside p99 TTFT ≤ 500 ms, of 2 workloads the most is carried by variant 0 in 1, "
    assert f"{head}variant 1 in 1" == together([group(3300, 900), turned]).title
    assert f"{head}no clear winner in 1" == together([group(3300, 900), close]).title


def test_of_few_settings_every_one_is_numbered_or_named_below() -> None:
    views = tuple(view(peak, name, ladder=(1, 8, 32, 48, 64, 80)) for peak, name in ((3300, "a"), (3290, "b")))
    found = together([Group(("a", "b"), views)])
    (panel,) = found.panels
    numbers = [line for label in panel.labels for line in label.lines if line.isdigit()]

    assert len(numbers) + len(panel.unlabelled) == len(panel.marks) == 12
    assert all(f"c={c}" in said(found) for c in panel.unlabelled)


def test_of_many_settings_the_telling_ones_are_numbered() -> None:
    (panel,) = together([group(3300, 1500)]).panels
    numbers = {int(line) for label in panel.labels for line in label.lines if line.isdigit()}

    assert {1, 2, 4, 8, 16, 32, 64, 112} == numbers | set(panel.unlabelled)
    assert not {12, 24, 40, 48, 56, 80, 96} & numbers


def test_each_operating_point_is_a_star() -> None:
    (panel,) = together([group(3300, 1500)]).panels

    assert [(64, Role.FRONTIER), (64, Role.OTHER)] == [(m.concurrency, m.role) for m in panel.marks if m.chosen]
    assert "★ = operating point" in said(together([group(3300, 1500)]))


def test_long_names_that_differ_at_their_end_are_told_apart_with_their_mark() -> None:
    long = "meta-llama/Llama-3.1-405B-Instruct-dynamically-quantized-"
    names = (long + "bf16", long + "fp08")
    views = tuple(view(peak, name) for peak, name in zip((3300, 1500), names, strict=True))
    found = together(grouped([("run", views)]))
    notes = {label.role: label.lines[0].replace("\u00a0", " ") for label in found.labels if "Run at" in label.lines[0]}

    assert notes[Role.FRONTIER].startswith("● meta-llama/Llama-3.1-405B")
    assert "bf16: Run at concurrency 64" in notes[Role.FRONTIER]
    assert notes[Role.OTHER].startswith("■ meta-llama/Llama-3.1-405B")
    assert "fp08: Run at concurrency 64" in notes[Role.OTHER]


def test_what_cannot_be_told_apart_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 4"):
        together([group(*range(1000, 1005))])
    with pytest.raises(ValueError, match="at least one"):
        together([])


def test_on_their_staircases_names_are_what_tells_them_apart() -> None:
    alike = ["MiniMax-b200-vllm-v0.19.0-tp2-attention_dp1-moe", "MiniMax-b200-vllm-v0.17.0-tp4-attention_dp1-moe"]

    assert ["…v0.19.0-tp2…", "…v0.17.0-tp4…"] == apart(alike)
    assert ["bf16", "fp8"] == apart(["bf16", "fp8"])
    assert ["a" * 30, "b" * 30] == apart(["a" * 30, "b" * 30])
    assert ["same" * 9] * 2 == apart(["same" * 9] * 2)


def test_many_long_names_are_counted_in_the_title_and_named_below() -> None:
    names = tuple(f"meta-llama/Llama-3.1-405B-Instruct-variant-{i}" for i in range(4))
    views = tuple(dataclasses.replace(view(3300, name), decision=None) for name in names)
    found = together([Group(names, views)])

    assert "The frontiers of 4 deployments" == found.title
    assert all(f"{name}: Up to" in said(found) for name in names)


def test_without_intervals_no_bars_are_promised() -> None:
    points = [
        dataclasses.replace(p, metrics={n: Estimate.unknown_doubt(e.value, 0) for n, e in p.metrics.items()})
        for p in toy_points()
    ]
    one = View(points, toy_frontier(points))

    assert "intervals not known" in said(together([Group(("a", "b"), (one, one))]))
    assert "bars = 95% CI" in said(together([group(3300, 2000)]))


def heights(found: Picture) -> dict[Role, float]:
    """How high each operating point is drawn."""
    (panel,) = found.panels
    return {mark.role: mark.y for mark in panel.marks if mark.chosen}


def test_each_is_drawn_per_gpu_of_its_own() -> None:
    two = Group(("eight", "one"), (view(3300, "eight", gpus=8), view(2000, "one", gpus=1)))
    found = together([two])
    at = {v.frontier.deployment: v.decision.metrics["output_throughput"].value for v in two.views if v.decision}

    assert {Role.FRONTIER: at["eight"] / 8, Role.OTHER: at["one"]} == pytest.approx(heights(found))
    assert found.panels[0].y.label == "output throughput per GPU (tok/s)"


def test_where_one_does_not_say_its_gpus_none_is_divided() -> None:
    two = Group(("eight", "unknown"), (view(3300, "eight", gpus=8), view(2000, "unknown")))
    found = together([two])
    at = {v.frontier.deployment: v.decision.metrics["output_throughput"].value for v in two.views if v.decision}

    assert {Role.FRONTIER: at["eight"], Role.OTHER: at["unknown"]} == pytest.approx(heights(found))
    assert found.panels[0].y.label == "output throughput (tok/s)"
    assert "tok/s/GPU" not in said(found)


def test_how_many_gpus_each_has_is_said_where_they_differ() -> None:
    two = (view(3300, "eight", gpus=8), view(2000, "one", gpus=1))
    same = (view(3300, "eight", gpus=8), view(2000, "one", gpus=8))

    assert "● eight (8 GPUs): Run at" in said(together([Group(("eight", "one"), two)]))
    assert "■ one (1 GPU): Run at" in said(together([Group(("eight", "one"), two)]))
    assert "● eight: Run at" in said(together([Group(("eight", "one"), same)]))


def test_why_nothing_is_divided_is_said_where_only_some_say_their_gpus() -> None:
    some = Group(("eight", "unknown"), (view(3300, "eight", gpus=8), view(2000, "unknown")))
    none = Group(("a", "b"), (view(3300, "a"), view(2000, "b")))
    note = "whole deployments, not per GPU: the number of GPUs is not known of unknown"

    assert note in said(together([some]))
    assert "not per GPU" not in said(together([none]))


def test_the_key_stays_inside_the_picture() -> None:
    banded = [
        dataclasses.replace(view(peak, str(peak), gpus=8), band=((0.05, 50.0, 90.0), (0.5, 300.0, 350.0)))
        for peak in (3300, 2000)
    ]
    found = together([Group(("a", "b"), tuple(banded))])

    assert "shade = 90% of resamples" in said(found)
    assert all(label.box.inside(Rect(0, 0, found.width, found.height)) for label in found.labels)


def test_a_limit_on_the_rate_of_a_whole_deployment_is_not_drawn_per_gpu() -> None:
    speed = Limit("output_throughput", 1600.0)
    views = [dataclasses.replace(view(3300, "a", gpus=gpus), limits=(LIMIT, speed)) for gpus in (8, 1)]
    found = together([Group(("eight", "one"), tuple(views))])
    whole = together([Group(("a", "b"), tuple(dataclasses.replace(v, gpus=None) for v in views))])

    assert {"x"} == {rule.axis for rule in found.panels[0].rules}
    assert "not drawn, being of a whole deployment: output throughput ≥ 1,600 tok/s" in said(found)
    assert [1600.0] == [rule.at for rule in whole.panels[0].rules if rule.axis == "y"]
    assert "SLA  output throughput ≥ 1,600 tok/s" in said(whole)
