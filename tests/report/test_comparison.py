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
from tests.plot.toy import LIMIT, SHAPE, said, stairs, toy_frontier, toy_points

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
    wanted = "fp8 is better than bf16: 1.29× [1.26, 1.33] the area up to p99 TTFT 500 ms"

    assert wanted == comparison_sentence(found())
    assert "B against A is not resolved: 1.01× (no interval)" in comparison_sentence(
        found("not resolved", Estimate.without_interval(1.01, 9), ("default", "default"))
    )


def test_both_frontiers_share_the_axes_and_differ_in_colour_and_shape() -> None:
    a, b = views()
    (panel,) = overlay(a, b, found()).panels

    assert [("bf16", Role.FRONTIER), ("fp8", Role.OTHER)] == [(s.name, s.role) for s in stairs(panel)]
    assert {Role.FRONTIER, Role.OTHER} == {mark.role for mark in panel.marks}
    assert panel.y.high > max(p.metrics["output_throughput"].value for p in b.points)


def test_unlike_axes_are_refused() -> None:
    a, _ = views()
    points = toy_points()
    with pytest.raises(ValueError, match="different axes"):
        overlay(a, View(points, toy_frontier(points, ("output_throughput", "p99_e2e"))), found())


def test_the_table_says_ratio_and_bracket() -> None:
    text = comparison_table([found()], width=80)

    assert "better   fp8 against bf16   1024/256" in text
    assert "area up to p99 TTFT 500 ms" in text
    assert "at least 1.1×" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_real_comparison_goes_through() -> None:
    a, b = views()
    real = compare(Side(a.points), Side(b.points), Rules(AXES, reference=0.5))
    tree = json.loads(json.dumps(comparisons_json([real]), allow_nan=False))

    assert "frontier.compare/1" == tree["schema"]
    assert "not resolved" == tree["shapes"][0]["verdict"]
    assert tree["shapes"][0]["ratio"]["value"] > 1.2
    assert tree["shapes"][0]["ratio"]["low"] is None
    assert "not resolved" in comparison_table([real])


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (1.1, 1.3, "between 1.1× and 1.3×"),
        (1.1, math.inf, "at least 1.1×"),
        (0.0, 1.3, "at most 1.3×"),
        (0.0, math.inf, "not known: too few settings around that latency"),
    ],
)
def test_a_bracket_reads_as_a_person_would_write_it(low: float, high: float, said: str) -> None:
    (gain,) = found().gains
    one = dataclasses.replace(found(), gains=(dataclasses.replace(gain, low=low, high=high, interpolated=None),))

    assert comparison_table([one], width=120).splitlines()[2].endswith(f"  {said}")


def test_of_several_deployments_each_answer_says_which_it_is_of() -> None:
    ones = [dataclasses.replace(found(), a=name, b=name) for name in ("bf16", "fp8")]

    assert "B against A   bf16 · 1024/256" in comparison_table(ones)
    assert "B against A   fp8 · 1024/256" in comparison_table(ones)
    assert "B against A   1024/256" in comparison_table(ones[:1])
    assert [["bf16", "bf16"], ["fp8", "fp8"]] == [s["deployments"] for s in comparisons_json(ones)["shapes"]]


def test_per_gpu_is_said_with_the_number_of_each_and_what_the_whole_comes_to() -> None:
    one = dataclasses.replace(found("worse", Estimate(0.5, 0.48, 0.52, 900)), gpus=(2, 8))
    text = " ".join(comparison_table([one]).split())
    (tree,) = comparisons_json([one])["shapes"]

    assert "fp8 is worse than bf16 per GPU: 0.5× [0.48, 0.52]" in comparison_sentence(one)
    assert "worse fp8 against bf16 per GPU 1024/256" in text
    assert "output throughput per GPU at p99 TTFT 500 ms" in text
    assert "Per GPU: bf16 has 2 GPUs, fp8 8. As whole deployments fp8 is 2× bf16." in text
    assert ([2, 8], True) == (tree["gpus"], tree["per_gpu"])
    assert tree["notes"][0].startswith("Per GPU: ")


@pytest.mark.parametrize(
    ("gpus", "known", "unknown"),
    [
        ((8, None), "bf16 has 8 GPUs", "that of fp8 is not known; give it with --set-b gpus=N."),
        ((None, 1), "fp8 has 1 GPU", "that of bf16 is not known; give it with --set-a gpus=N."),
    ],
)
def test_where_the_gpus_of_one_are_not_known_it_says_so(
    gpus: tuple[int | None, int | None], known: str, unknown: str
) -> None:
    one = dataclasses.replace(found(), gpus=gpus)
    text = " ".join(comparison_table([one]).split())

    assert f"Whole deployments, not per GPU: {known}, {unknown}" in text
    assert "per GPU at" not in text
    assert "per GPU" not in comparison_sentence(one)


@pytest.mark.parametrize("gpus", [(None, None), (8, 8)])
def test_the_same_or_no_number_of_gpus_needs_no_words(gpus: tuple[int | None, int | None]) -> None:
    assert "GPU" not in comparison_table([dataclasses.replace(found(), gpus=gpus)])


def drawn_of(gpus: tuple[int | None, int | None]) -> tuple[str, float, str]:
    """The y axis, the height of A's highest mark, and all that is written around the panel."""
    a, b = (dataclasses.replace(view, gpus=of) for view, of in zip(views(), gpus, strict=True))
    drawn = overlay(a, b, dataclasses.replace(found(), gpus=gpus))
    (panel,) = drawn.panels
    return panel.y.label, max(m.y for m in panel.marks if m.role is Role.FRONTIER), said(drawn)


def test_the_picture_divides_by_what_the_verdict_divided_by() -> None:
    whole, per_gpu, unknown = drawn_of((None, None)), drawn_of((2, 4)), drawn_of((2, None))

    assert ["output throughput (tok/s)", "output throughput per GPU (tok/s)", "output throughput (tok/s)"] == [
        whole[0],
        per_gpu[0],
        unknown[0],
    ]
    assert whole[1] == unknown[1] == pytest.approx(2 * per_gpu[1])
    assert "fp8 is better than bf16 per GPU" in per_gpu[2]
    assert "Per GPU: bf16 has 2 GPUs, fp8 4" in per_gpu[2]
    assert "Whole deployments, not per GPU" in unknown[2]
