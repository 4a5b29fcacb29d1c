"""Two deployments of one run: the second against the first, which carries the most, and as far as
it is proven."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import frontier
from frontier.core.model.decisions import Decision, Limit, Verdict
from frontier.core.model.errors import UsageError
from frontier.core.model.loads import Concurrency
from frontier.core.model.points import Estimate
from frontier.core.model.shapes import Shape
from frontier.planning.sla_result import make_sla_result
from frontier.show.view.sla_notes import best_note
from tests.kit.commands import frontier as command
from tests.kit.golden import assert_golden_row
from tests.kit.sweeps import sweep_in_virtual_time

TEXT = """\
shapes: [256/32, {isl: 128, osl: 16, name: short}]
concurrency: [1, 4, 16]
sla: {p90_ttft: 50ms}
requests: 200
repeats: 1
refine: 0
deployments:
  - {name: bf16, endpoint: simulator, simulator: {step_base: 6ms, per_decode: 60us, noise: 0.05}}
  - {name: fp8, endpoint: simulator, simulator: {step_base: 4ms, per_decode: 60us, noise: 0.05}}
  - {name: fp8-slow, endpoint: simulator, simulator: {step_base: 60ms, per_decode: 60us, noise: 0.05}}
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("two")
    sweep_in_virtual_time(path / "night", TEXT)
    one = TEXT.replace("  - {name: fp8", "#  - {name: fp8")
    sweep_in_virtual_time(path / "one", one)
    return path


def test_the_second_named_is_against_the_first(here: Path) -> None:
    forth = command("compare", "night", "--deployment", "bf16", "--deployment", "fp8", "--json", cwd=here)
    back = command("compare", "night", "--deployment", "fp8", "--deployment", "bf16", "--json", cwd=here)
    assert (0, 3) == (forth.code, back.code)
    shapes = json.loads(forth.out)["shapes"]
    assert [("bf16", "fp8", "256/32"), ("bf16", "fp8", "short")] == [(s["a"], s["b"], s["shape"]) for s in shapes]
    assert [("fp8", "bf16")] * 2 == [(s["a"], s["b"]) for s in json.loads(back.out)["shapes"]]
    for one, other in zip(shapes, json.loads(back.out)["shapes"], strict=True):
        gain, loss = (side["differences"][0]["ratio"]["value"] for side in (one, other))
        assert 1.1 < gain == pytest.approx(1 / loss)
    text = command("compare", "night", "--deployment", "bf16", "--deployment", "fp8", "--shape", "short", cwd=here)
    assert "fp8 against bf16" in text.out
    assert "256/32" not in text.out
    assert "fp8-slow" not in text.out


def test_settings_of_one_side_work_as_with_two_runs(here: Path) -> None:
    pair = ("--deployment", "bf16", "--deployment", "fp8", "--shape", "short")
    each = ("--set-a", "deployments.bf16.gpus=1", "--set-b", "deployments.fp8.gpus=2")
    said = command("compare", "night", *pair, *each, "--json", cwd=here)
    (shape,) = json.loads(said.out)["shapes"]
    assert ([1, 2], True) == (shape["gpus"], shape["per_gpu"])


@pytest.mark.parametrize(
    ("run", "named"),
    [
        ("night", ""),
        ("night", "fp8"),
        ("night", "fp8 fp8"),
        ("night", "bf16 fp8 fp8-slow"),
        ("night", "bf16 fp9"),
        ("night", "bf16 zzz"),
        ("night", "bf16 fp*"),
        ("one", "bf16 fp8"),
        ("one", ""),
    ],
)
def test_anything_but_one_run_and_two_of_its_deployments_is_a_usage_error(run: str, named: str, here: Path) -> None:
    options = [word for name in named.split() for word in ("--deployment", name)]
    found = command("compare", run, *options, cwd=here)
    assert (2, "") == (found.code, found.out)
    assert_golden_row("messages", found.err)


def test_one_that_was_planned_and_not_measured_is_said_to_be(here: Path, tmp_path: Path) -> None:
    run = replace(frontier.load(here / "night"))
    kept = {at: history for at, history in run.histories.items() if at[0] != "fp8"}
    with pytest.raises(UsageError) as error:
        frontier.compare_runs(replace(run, histories=kept), deployments=("bf16", "fp8"))
    assert_golden_row("messages", str(error.value).replace(str(here), "HERE"))


def test_the_public_function_says_what_the_command_prints(here: Path) -> None:
    run = frontier.load(here / "night")
    found = frontier.compare_runs(run, deployments=("bf16", "fp8"))
    said = command("compare", "night", "--deployment", "bf16", "--deployment", "fp8", cwd=here, COLUMNS="110")
    assert said.out.strip() == str(found)
    assert ["better", "better"] == [one.verdict for one in found]
    for one in found:
        assert one.verdict in found._repr_html_()
    for deployments in ((), ("bf16",), ("bf16", "bf16")):
        with pytest.raises(UsageError, match="--deployment"):
            frontier.compare_runs(run, deployments=deployments)
    with pytest.raises(UsageError) as error:
        frontier.compare_runs(run, run, deployments=("bf16", "fp8"))
    assert_golden_row("messages", str(error.value))


def decided(deployment: str, rate: float, verdict: Verdict = Verdict.MEETS, doubt: float = 1.0) -> Decision:
    metrics = {"output_throughput": Estimate(rate, rate - doubt, rate + doubt, 1000, rate - doubt, rate + doubt)}
    c = Concurrency(8) if verdict is Verdict.MEETS else None
    return Decision(deployment, Shape.of(64, 8), (Limit("p99_ttft", 0.5),), verdict, c, None, metrics, ())


LOST, OPEN, INVALID = Verdict.VIOLATES, Verdict.UNPROVEN, Verdict.INVALID


@pytest.mark.parametrize(
    ("decisions", "winner", "sure", "others", "still_open"),
    [
        ([decided("a", 100), decided("b", 200)], "b", True, ("a",), ()),
        ([decided("a", 199), decided("b", 200)], "b", False, ("a",), ()),
        ([decided("a", 100), decided("b", 900, OPEN)], "a", True, (), ("b",)),
        ([decided("a", 100), decided("b", 50), decided("c", 900, INVALID)], "a", True, ("b",), ("c",)),
        ([decided("a", 100), decided("b", 900, LOST)], "a", True, (), ()),
    ],
    ids=["more", "within the interval", "the other open", "a third open", "the other lost"],
)
def test_the_winner_is_named_as_far_as_it_is_proven(
    decisions: list[Decision], winner: str, sure: bool, others: tuple[str, ...], still_open: tuple[str, ...]
) -> None:
    (best,) = make_sla_result("", (Limit("p99_ttft", 0.5),), (), decisions).best
    assert (winner, sure, others, still_open) == (best.decision.deployment, best.sure, best.others, best.open)
    assert_golden_row("answers", best_note(best))


@pytest.mark.parametrize("decisions", [[decided("a", 100, OPEN), decided("b", 900, LOST)], [decided("a", 100)]])
def test_where_nothing_is_proven_or_nothing_compared_there_is_no_winner(decisions: list[Decision]) -> None:
    assert not make_sla_result("", (Limit("p99_ttft", 0.5),), (), decisions).best


def test_the_winner_is_found_per_gpu_where_all_are_known() -> None:
    pair = [decided("a", 100), decided("b", 150)]
    (whole,) = make_sla_result("", (), [], pair, {"a": 1, "b": None}).best
    (each,) = make_sla_result("", (), [], pair, {"a": 1, "b": 2}).best
    assert ("b", False, 150.0) == (whole.decision.deployment, whole.per_gpu, whole.rate)
    assert ("a", True, 100.0, True) == (each.decision.deployment, each.per_gpu, each.rate, each.sure)


def test_solve_names_the_winner_and_json_has_it(here: Path) -> None:
    run = frontier.load(here / "night")
    said = command("solve", "night", "--shape", "short", cwd=here)
    (note,) = [
        best_note(of)
        for of in make_sla_result("", run.limits(), run.points(), run.solve()).best
        if of.decision.shape.name
    ]
    assert note in " ".join(said.out.split())
    (best,) = json.loads(command("solve", "night", "--shape", "short", "--json", cwd=here).out)["tiers"][0]["best"]
    assert ("fp8", "short", True, []) == tuple(best[name] for name in ("deployment", "shape", "sure", "open"))
