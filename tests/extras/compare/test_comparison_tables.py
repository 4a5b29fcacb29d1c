"""Two frontiers beside each other: the picture as data, the words, the table and the JSON."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from frontier.core.model.points import Estimate
from frontier.core.model.series import Series
from frontier.core.model.shapes import Shape
from frontier.extras.compare.comparison_tables import comparison_views, partners
from frontier.extras.compare.comparison_text import comparisons_json, comparisons_text
from frontier.extras.compare.contest import CompareRules, Comparison, Contest, Side, compare
from frontier.extras.compare.multi_run import Group, together
from frontier.extras.compare.rivals import comparison_notes, contest_sentence
from frontier.show.picture.data import Picture, Role
from frontier.show.view.series_view import SeriesView, series_view
from tests.kit.golden import assert_golden_row
from tests.kit.toy import LIMIT, SHAPE, stairs, toy_decision, toy_frontier, toy_points

AXES = ("output_throughput", "p99_ttft")
Gpus = tuple[int | None, int | None]


def views(gpus: Gpus = (None, None)) -> tuple[SeriesView, SeriesView]:
    """bf16, and fp8 of 30% more throughput, with an operating point each."""
    points = toy_points(deployment="bf16"), toy_points(deployment="fp8", peak=4300.0, base=0.04, knee=75.0)
    a, b = (
        series_view(p, toy_frontier(p), toy_decision(p), limits=(LIMIT,), gpus=n)
        for p, n in zip(points, gpus, strict=True)
    )
    return a, b


def found(
    gpus: Gpus = (None, None), names: tuple[str, str] = ("bf16", "fp8"), *, decided: bool = True, back: bool = False
) -> Comparison:
    """The comparison of the two views; `back`: bf16 against fp8."""
    sides = [
        Side(n, v.points, v.decision if decided else None, v.gpus) for n, v in zip(names, views(gpus), strict=True)
    ]
    return compare(Contest(tuple(reversed(sides) if back else sides), CompareRules(AXES, limits=(LIMIT,))))


def bare(one: Comparison) -> Comparison:
    """The comparison of the same values without intervals."""

    def without(metrics: Mapping[str, Estimate]) -> dict[str, Estimate]:
        return {name: Estimate.without_interval(e.value, e.n) for name, e in metrics.items()}

    sides = []
    for side in one.contest.sides:
        assert side.decision is not None
        points = [dataclasses.replace(p, metrics=without(p.metrics)) for p in side.points]
        decision = dataclasses.replace(side.decision, metrics=without(side.decision.metrics))
        sides.append(dataclasses.replace(side, points=points, decision=decision))
    return compare(Contest(tuple(sides), one.contest.rules))


def test_the_sentence_says_by_how_much_the_better_one_is_better() -> None:
    cases = [found(), found(back=True), bare(found()), found(names=("A", "B"), decided=False)]
    assert ["better", "worse", "not resolved", "better"] == [one.verdict for one in cases]
    assert_golden_row("answers", "\n".join(contest_sentence([one.contest]) for one in cases))


def text_of(ones: Sequence[Comparison], width: int = 80) -> str:
    return comparisons_text(comparison_views(ones), width=width)


def json_of(ones: Sequence[Comparison]) -> Any:
    return comparisons_json("frontier.compare/1", "worse", comparison_views(ones))


def drawn(gpus: Gpus = (None, None)) -> Picture:
    """Both in one picture."""
    return together([Group(("bf16", "fp8"), views(gpus))])


def test_the_title_of_two_is_the_sentence_of_their_comparison() -> None:
    assert drawn().title == contest_sentence([found().contest])


def test_both_frontiers_share_the_axes_and_differ_in_colour_and_shape() -> None:
    b = views()[1]
    (panel,) = drawn().panels

    assert [("bf16", Role.FRONTIER), ("fp8", Role.OTHER)] == [(s.name, s.role) for s in stairs(panel)]
    assert {Role.FRONTIER, Role.OTHER} == {mark.role for mark in panel.marks}
    assert panel.y.high > max(p.metrics["output_throughput"].value for p in b.points)


def test_the_table_says_the_values_their_ratio_and_its_interval() -> None:
    one, same_load = found(), found(decided=False)
    text = text_of([one, same_load], width=100)
    (tree, other) = json.loads(json.dumps(json_of([one, same_load]), allow_nan=False))["shapes"]

    assert ("better", "bf16", "fp8") == (tree["verdict"], tree["a"], tree["b"])
    difference = tree["differences"][0]
    assert ("output_throughput", "better", [[64, 80]]) == tuple(
        difference[n] for n in ("metric", "verdict", "settings")
    )
    assert 1 < difference["ratio"]["low"] < difference["b"] / difference["a"] < difference["ratio"]["high"]
    assert [True, False, False] == [d["inside_sla"] for d in tree["differences"]]
    assert list(AXES) == [d["metric"] for d in other["differences"]]
    assert max(map(len, text.splitlines())) <= 100
    assert_golden_row("answers", text)


def test_of_several_deployments_each_answer_says_which_it_is_of() -> None:
    def named(name: str) -> Comparison:
        one = found(names=("A", "B"))
        sides = tuple(
            dataclasses.replace(side, points=[dataclasses.replace(p, deployment=name) for p in side.points])
            for side in one.contest.sides
        )
        return dataclasses.replace(one, contest=dataclasses.replace(one.contest, sides=sides))

    ones = [named("bf16"), named("fp8")]
    assert "B against A   bf16 · 1024/256" in text_of(ones)
    assert "B against A   fp8 · 1024/256" in text_of(ones)
    assert "B against A   1024/256" in text_of(ones[:1])
    assert [["bf16", "bf16"], ["fp8", "fp8"]] == [s["deployments"] for s in json_of(ones)["shapes"]]


def test_per_gpu_is_said_with_the_number_of_each_and_what_the_whole_comes_to() -> None:
    one = found((2, 8))
    (tree,) = json_of([one])["shapes"]

    assert ("worse", [2, 8], True) == (one.verdict, tree["gpus"], tree["per_gpu"])
    assert 1 == len(tree["notes"])
    assert_golden_row("answers", f"{contest_sentence([one.contest])}\n{text_of([one])}")


@pytest.mark.parametrize(("gpus", "option"), [((8, None), "--set-b gpus=N"), ((None, 1), "--set-a gpus=N")], ids="ba")
def test_where_the_gpus_of_one_are_not_known_it_says_so(gpus: Gpus, option: str) -> None:
    one = found(gpus)
    (tree,) = json_of([one])["shapes"]

    assert not tree["per_gpu"]
    assert option in tree["notes"][0]
    assert "GPU" not in contest_sentence([one.contest])
    assert_golden_row("answers", text_of([one]))


@pytest.mark.parametrize("gpus", [(None, None), (8, 8)])
def test_the_same_or_no_number_of_gpus_needs_no_note(gpus: Gpus) -> None:
    one = found(gpus)
    assert not comparison_notes(one)
    assert ("tok/s/GPU" in text_of([one])) == (gpus == (8, 8))
    assert found().verdict == one.verdict


def test_deployments_are_matched_by_name_or_when_there_is_one_each() -> None:
    long, other = Shape.of(8, 8), Shape.of(9, 9)
    old, new = [Series("old", SHAPE), Series("old", long)], [Series("new", SHAPE), Series("new", other)]
    both = [Series("old", SHAPE), Series("new", SHAPE)]
    matched = [partners(*sides) for sides in ((old, new), (both, new), (both, both[::-1]))]
    pairs = [[(a.deployment, b.deployment, a.shape) for a, b in found] for found in matched]
    same = [("old", "old", SHAPE), ("new", "new", SHAPE)]
    assert [[("old", "new", SHAPE)], [("new", "new", SHAPE)], same] == pairs


def drawn_of(gpus: Gpus) -> tuple[bool, float, str]:
    """Whether the y axis is per GPU, the height of A's highest mark, and what is written around the
    panel.
    """
    picture = drawn(gpus)
    (panel,) = picture.panels
    words = "\n".join([picture.title, *picture.notes])
    return "per GPU" in panel.y.label, max(m.y for m in panel.marks if m.role is Role.FRONTIER), words


def test_the_picture_divides_by_what_the_verdict_divided_by() -> None:
    whole, per_gpu, unknown = drawn_of((None, None)), drawn_of((2, 4)), drawn_of((2, None))

    assert [False, True, False] == [whole[0], per_gpu[0], unknown[0]]
    assert whole[1] == unknown[1] == pytest.approx(2 * per_gpu[1])
    assert_golden_row("pictures", "\n\n".join([whole[2], per_gpu[2], unknown[2]]))
