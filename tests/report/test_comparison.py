"""Two frontiers beside each other: the picture as data, the words, the table and the JSON."""

import dataclasses
import json
import math

import pytest

from frontier.decide.compare import Comparison, Gain, Rules, Side, compare, comparison_sentence
from frontier.model import Estimate
from frontier.plot.data import Role, View
from frontier.plot.multi_run import overlay
from frontier.report.comparison import comparison_table, comparisons_json
from tests.golden import assert_golden_row
from tests.plot.toy import LIMIT, SHAPE, stairs, toy_frontier, toy_points

AXES = ("output_throughput", "p99_ttft")


def found(
    verdict: str = "better", ratio: Estimate | None = None, names: tuple[str, str] = ("bf16", "fp8")
) -> Comparison:
    gains = (Gain(0.5, 1.1, math.inf, None),)
    known = ratio or Estimate(1.29, 1.26, 1.33, 900)
    return Comparison(SHAPE, *names, AXES, 0.5, known, gains, verdict, ("a note",))  # type: ignore[arg-type]


def views() -> tuple[View, View]:
    a = toy_points(deployment="bf16")
    b = toy_points(deployment="fp8", peak=4300.0, base=0.04, knee=75.0)
    return View(a, toy_frontier(a), limits=(LIMIT,)), View(b, toy_frontier(b), limits=(LIMIT,))


def test_the_sentence_is_the_verdict_with_its_interval() -> None:
    unknown = found("not resolved", Estimate.without_interval(1.01, 9), ("default", "default"))

    assert_golden_row("answers", f"{comparison_sentence(found())}\n{comparison_sentence(unknown)}")


def test_both_frontiers_share_the_axes_and_differ_in_colour_and_shape() -> None:
    a, b = views()
    (panel,) = overlay(a, b, found()).panels

    assert [("bf16", Role.FRONTIER), ("fp8", Role.OTHER)] == [(s.name, s.role) for s in stairs(panel)]
    assert {Role.FRONTIER, Role.OTHER} == {mark.role for mark in panel.marks}
    assert panel.y.high > max(p.metrics["output_throughput"].value for p in b.points)


def test_unlike_axes_are_refused() -> None:
    a, _ = views()
    points = toy_points()
    with pytest.raises(ValueError, match="p99_e2e"):
        overlay(a, View(points, toy_frontier(points, ("output_throughput", "p99_e2e"))), found())


def test_the_table_says_ratio_and_bracket() -> None:
    text = comparison_table([found()], width=80)
    (tree,) = comparisons_json([found()])["shapes"]

    assert ("better", "bf16", "fp8", 1.29) == (tree["verdict"], tree["a"], tree["b"], tree["ratio"]["value"])
    assert max(map(len, text.splitlines())) <= 80
    assert_golden_row("answers", text)


def test_a_real_comparison_goes_through() -> None:
    a, b = views()
    real = compare(Side(a.points), Side(b.points), Rules(AXES, reference=0.5))
    tree = json.loads(json.dumps(comparisons_json([real]), allow_nan=False))

    assert "frontier.compare/1" == tree["schema"]
    assert "not resolved" == tree["shapes"][0]["verdict"]
    assert tree["shapes"][0]["ratio"]["value"] > 1.2
    assert tree["shapes"][0]["ratio"]["low"] is None
    assert "not resolved" in comparison_table([real])


def test_a_bracket_reads_as_a_person_would_write_it() -> None:
    (gain,) = found().gains
    brackets = [(1.1, 1.3), (1.1, math.inf), (0.0, 1.3), (0.0, math.inf)]
    gains = tuple(dataclasses.replace(gain, low=low, high=high, interpolated=None) for low, high in brackets)

    assert_golden_row("answers", comparison_table([dataclasses.replace(found(), gains=gains)], width=120))


def test_of_several_deployments_each_answer_says_which_it_is_of() -> None:
    ones = [dataclasses.replace(found(), a=name, b=name) for name in ("bf16", "fp8")]

    assert "B against A   bf16 · 1024/256" in comparison_table(ones)
    assert "B against A   fp8 · 1024/256" in comparison_table(ones)
    assert "B against A   1024/256" in comparison_table(ones[:1])
    assert [["bf16", "bf16"], ["fp8", "fp8"]] == [s["deployments"] for s in comparisons_json(ones)["shapes"]]


def test_per_gpu_is_said_with_the_number_of_each_and_what_the_whole_comes_to() -> None:
    one = dataclasses.replace(found("worse", Estimate(0.5, 0.48, 0.52, 900)), gpus=(2, 8))
    (tree,) = comparisons_json([one])["shapes"]

    assert ([2, 8], True) == (tree["gpus"], tree["per_gpu"])
    assert 2 == len(tree["notes"])
    assert_golden_row("answers", f"{comparison_sentence(one)}\n{comparison_table([one])}")


@pytest.mark.parametrize(("gpus", "option"), [((8, None), "--set-b gpus=N"), ((None, 1), "--set-a gpus=N")], ids="ba")
def test_where_the_gpus_of_one_are_not_known_it_says_so(gpus: tuple[int | None, int | None], option: str) -> None:
    one = dataclasses.replace(found(), gpus=gpus)
    (tree,) = comparisons_json([one])["shapes"]

    assert not tree["per_gpu"]
    assert option in tree["notes"][0]
    assert "per GPU" not in comparison_sentence(one)
    assert_golden_row("answers", comparison_table([one]))


@pytest.mark.parametrize("gpus", [(None, None), (8, 8)])
def test_the_same_or_no_number_of_gpus_needs_no_words(gpus: tuple[int | None, int | None]) -> None:
    assert "GPU" not in comparison_table([dataclasses.replace(found(), gpus=gpus)])


def drawn_of(gpus: tuple[int | None, int | None]) -> tuple[bool, float, str]:
    """Whether the y axis is per GPU, the height of A's highest mark, and what is written around the
    panel.
    """
    a, b = (dataclasses.replace(view, gpus=of) for view, of in zip(views(), gpus, strict=True))
    drawn = overlay(a, b, dataclasses.replace(found(), gpus=gpus))
    (panel,) = drawn.panels
    words = "\n".join([drawn.title, *drawn.notes])
    return "per GPU" in panel.y.label, max(m.y for m in panel.marks if m.role is Role.FRONTIER), words


def test_the_picture_divides_by_what_the_verdict_divided_by() -> None:
    whole, per_gpu, unknown = drawn_of((None, None)), drawn_of((2, 4)), drawn_of((2, None))

    assert [False, True, False] == [whole[0], per_gpu[0], unknown[0]]
    assert whole[1] == unknown[1] == pytest.approx(2 * per_gpu[1])
    assert_golden_row("pictures", "\n\n".join([whole[2], per_gpu[2], unknown[2]]))
