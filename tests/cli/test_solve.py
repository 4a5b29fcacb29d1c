"""`solve` on tiers, ranges and several shapes, `compare`, and what `show` says of a run as a
whole."""

import dataclasses
import json
import math
import time
from pathlib import Path

import pytest

from frontier import uncertainty
from frontier.core.model.trials import ClientHealth
from frontier.read_run import load
from frontier.show.view.frontier_summary import summaries_of
from tests.kit.commands import Said, frontier
from tests.kit.golden import assert_golden_row
from tests.kit.neutral import without_numbers
from tests.kit.sweeps import sweep_in_virtual_time

CONFIG = """\
endpoint: simulator
simulator: {step_base: %s, per_decode: 60us, per_prefill_token: 20us, noise: 0.05}
shapes: [{isl: 256, osl: 32, name: short}, {isl: 1024, osl: 32, name: long}]
concurrency: [1, 4, 8, 16, 32]
sla: {gold: {p99_ttft: 1ms}, silver: {p99_ttft: [40ms, 130ms], p99_tpot: 60ms}}
objectives: [output_throughput, p99_ttft]
requests: 120
repeats: 10
refine: 0
price: $3.6/h
"""


@pytest.fixture(scope="module")
def cwd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of one workload on two servers, one faster than the other, and one of another
    workload.
    """
    here = tmp_path_factory.mktemp("decide")
    (here / "runs").mkdir()
    one = CONFIG.replace("{isl: 256, osl: 32, name: short}, ", "")
    sweep_in_virtual_time(here / "runs" / "fast", one % "5ms")
    other = one.replace("isl: 1024", "isl: 512").replace("[1, 4, 8, 16, 32]", "[1]")
    sweep_in_virtual_time(here / "runs" / "other", other % "5ms")
    natural = one.replace("refine: 0", "refine: 0\nignore_eos: false").replace("[1, 4, 8, 16, 32]", "[1]")
    sweep_in_virtual_time(here / "runs" / "natural", natural % "5ms")
    sweep_in_virtual_time(here / "runs" / "night", CONFIG % "7ms")
    return here


def solve(cwd: Path, *arguments: str) -> tuple[Said, dict]:
    said = frontier("solve", "runs/night", "--json", *arguments, cwd=cwd)
    return said, json.loads(said.out)


def test_every_tier_is_answered_and_the_worst_sets_the_exit_code(cwd: Path) -> None:
    said, found = solve(cwd)
    assert ["gold", "silver"] == [tier["tier"] for tier in found["tiers"]]
    gold, silver = found["tiers"]
    assert {"violates"} == {s["verdict"] for s in gold["shapes"]}
    assert {"meets"} == {s["verdict"] for s in silver["shapes"]}
    assert found["shapes"] == gold["shapes"]
    assert 3 == said.code
    text = frontier("solve", "runs/night", cwd=cwd)
    assert 3 == text.code
    assert text.out.index("gold") < text.out.index("silver")
    assert_golden_row("answers", without_numbers(text.out))


def test_one_tier_is_answered_when_named(cwd: Path) -> None:
    said, found = solve(cwd, "--tier", "silver")
    assert (0, ["silver"]) == (said.code, [t["tier"] for t in found["tiers"]])
    wrong = frontier("solve", "runs/night", "--tier", "bronze", cwd=cwd)
    both = frontier("solve", "runs/night", "--tier", "gold", "--sla", "p99_ttft<=1s", cwd=cwd)
    assert [2, 2] == [wrong.code, both.code]
    assert_golden_row("messages", f"{wrong.err}\n{both.err}")


def test_a_tier_is_an_sla_by_its_name_and_comes_before_a_preset(cwd: Path) -> None:
    said, by_name = solve(cwd, "--sla", "silver")
    assert (0, solve(cwd, "--tier", "silver")[1]["shapes"]) == (said.code, by_name["shapes"])
    stricter, found = solve(cwd, "--sla", "silver, p99_e2e<=1ms")
    assert (3, "violates") == (stricter.code, found["shapes"][0]["verdict"])
    named = ("--set", "sla={first: {p99_ttft: 1ms}, chat: {p99_ttft: 9s}}", "--sla", "chat")
    assert "9 s" in frontier("solve", "runs/night", *named, cwd=cwd).out
    unknown = frontier("solve", "runs/night", "--sla", "bronze", cwd=cwd)
    assert (2, True, True) == (unknown.code, "gold, silver" in unknown.err, "chat, search" in unknown.err)


def test_five_slas_are_answered_in_seconds_with_reasons(cwd: Path) -> None:
    asked = (
        "p99_ttft<=130ms",
        "p99_ttft<=40ms..130ms",
        "p95_e2e<=900ms, error_rate<=1%",
        "p99.9_ttft<=1s",
        "output_throughput>=100000",
    )
    began = time.process_time()
    said, found = solve(cwd, *(part for sla in asked for part in ("--sla", sla)))
    assert time.process_time() - began < 30, "seconds of work; benchmarks/look_speed.py has the figure"
    assert list(asked) == [t["tier"] for t in found["tiers"]]
    verdicts = [{s["verdict"] for s in t["shapes"]} for t in found["tiers"]]
    assert [{"meets"}, {"meets"}, {"meets"}, {"unproven"}, {"violates"}] == verdicts
    assert [2] * 5 == [sum(bool(s["notes"]) for s in t["shapes"]) for t in found["tiers"]], "each has its reasons"
    assert 3 == said.code


def test_several_shapes_get_their_own_answer_and_one_for_all(cwd: Path) -> None:
    _, found = solve(cwd, "--sla", "p99_ttft<=130ms")
    alone = {s["shape"]: s["concurrency"] for s in found["shapes"]}
    assert alone["short"] > alone["long"] > 0
    assert {"default": alone["long"]} == found["common"]
    _, none = solve(cwd, "--sla", "p99_ttft<=1ms")
    assert {"default": None} == none["common"]
    (some, given_up), (nothing,) = (of["tiers"][0]["notes"] for of in (found, none))
    assert f" {alone['long']} " in some
    assert_golden_row("answers", without_numbers(f"{some}\n{given_up}\n{nothing}"))


def test_an_answer_carries_bracket_headroom_cost_and_what_random_arrivals_may_be_planned(cwd: Path) -> None:
    _, found = solve(cwd, "--sla", "p99_ttft<=130ms")
    long = found["shapes"][1]
    assert long["last_pass"] == long["concurrency"], long["notes"]
    (here,) = (j for j in long["judgements"] if j["concurrency"] == long["concurrency"])
    assert 0 < here["headroom"] < 1
    throughput = long["metrics"]["output_throughput"]["value"]
    assert 3.6 / 3600 / throughput * 1e6 == pytest.approx(long["metrics"]["cost"]["value"])
    assert long["cheapest"] == long["throughput_optimum"]
    arrival = long["arrival_rate"]
    assert arrival["cap"] == long["concurrency"]
    assert 0 < arrival["rate"] * 32 <= 0.8 * throughput * 1.05
    assert_golden_row(
        "answers", without_numbers(frontier("solve", "runs/fast", "--sla", "p99_ttft<=130ms", cwd=cwd).out)
    )


def test_a_range_says_where_the_setting_lies(cwd: Path) -> None:
    _, found = solve(cwd, "--sla", "p99_ttft<=40ms..130ms")
    for shape in found["shapes"]:
        assert 0.040 < shape["metrics"]["p99_ttft"]["value"] < 0.130
    said = frontier("solve", "runs/night", "--sla", "p99_ttft<=40ms..130ms", cwd=cwd)
    assert_golden_row("answers", without_numbers(said.out))


def test_a_config_without_an_sla_needs_one(cwd: Path, tmp_path: Path) -> None:
    text = "\n".join(line for line in (CONFIG % "5ms").splitlines() if not line.startswith("sla:"))
    sweep_in_virtual_time(tmp_path / "bare", text.replace("[1, 4, 8, 16, 32]", "[1]"))
    said = frontier("solve", tmp_path / "bare", cwd=cwd)
    assert 2 == said.code
    assert "--sla 'p99_ttft<=500ms'" in said.err


# --- compare


def compared(cwd: Path, a: str, b: str, *more: str) -> tuple[int, dict]:
    said = frontier("compare", f"runs/{a}", f"runs/{b}", "--json", "--sla", "p99_ttft<=150ms", *more, cwd=cwd)
    return said.code, json.loads(said.out)


def test_a_faster_server_is_better_and_the_other_way_round_a_regression(cwd: Path) -> None:
    code, found = compared(cwd, "night", "fast")
    assert (0, "better", "frontier.compare/1") == (code, found["verdict"], found["schema"])
    (shape,) = found["shapes"]
    ratio = shape["differences"][0]["ratio"]
    assert 1 < ratio["low"] < ratio["value"] < ratio["high"]
    assert ("night", "fast") == (shape["a"], shape["b"])
    code, found = compared(cwd, "fast", "night")
    assert (3, "worse") == (code, found["verdict"])
    said = frontier("compare", "runs/night", "runs/fast", "--sla", "p99_ttft<=150ms", cwd=cwd)
    assert_golden_row("messages", said.err)
    assert_golden_row("answers", without_numbers(said.out))


def test_the_same_run_twice_is_not_resolved_but_proven_no_worse_within_a_margin(cwd: Path) -> None:
    code, found = compared(cwd, "night", "night")
    assert (4, "not resolved") == (code, found["verdict"])
    code, found = compared(cwd, "night", "night", "--within", "10%")
    assert (0, "no worse") == (code, found["verdict"])
    assert {"no worse"} == {s["verdict"] for s in found["shapes"]}
    wrong = frontier("compare", "runs/night", "runs/night", "--within", "much", cwd=cwd)
    assert 2 == wrong.code
    assert "--within" in wrong.err


@pytest.mark.parametrize("b", ["other", "natural", "missing"])
def test_what_cannot_be_compared_is_refused_with_the_reason(cwd: Path, b: str) -> None:
    said = frontier("compare", "runs/night", f"runs/{b}", cwd=cwd)
    assert (2, "") == (said.code, said.out)
    assert f"runs/{b}" in said.err
    assert_golden_row("messages", said.err)


def test_runs_of_different_numbers_of_gpus_are_compared_per_gpu(cwd: Path) -> None:
    code, found = compared(cwd, "night", "night", "--set-a", "gpus=1", "--set-b", "gpus=2")
    assert (3, "worse") == (code, found["verdict"])
    assert {(1, 2, True)} == {(*s["gpus"], s["per_gpu"]) for s in found["shapes"]}
    same = compared(cwd, "night", "night", "--set", "gpus=2")
    assert (4, "not resolved") == (same[0], same[1]["verdict"])
    _, one = compared(cwd, "night", "night", "--set-a", "gpus=1")
    assert {(1, None, False)} == {(*s["gpus"], s["per_gpu"]) for s in one["shapes"]}
    assert [1, 1] == [sum("--set-b gpus=N" in note for note in s["notes"]) for s in one["shapes"]]


# --- what is said of a run as a whole


def test_show_says_how_sure_the_frontier_is_and_where_capacity_ends(cwd: Path) -> None:
    said = frontier("show", "runs/night", "--json", cwd=cwd)
    short, long = json.loads(said.out)["frontiers"]
    assert ("short", "long") == (short["shape"], long["shape"])
    for found in (short, long):
        assert found["knee"] in (1, 4, 8, 16, 32)
    points = json.loads(said.out)["points"]
    assert [10, 10, 10] == [
        len(points),
        sum(0.8 < p["littles_law"]["value"] < 1.2 for p in points),
        sum(0 <= p["probability"] <= 1 for p in points),
    ]
    text = frontier("show", "runs/night", cwd=cwd, COLUMNS="80")
    assert max(map(len, text.out.splitlines())) <= 80
    assert 2 == len([note for found in (short, long) for note in found["notes"] if f"c={found['knee']}" in note])
    assert_golden_row("answers", without_numbers("\n".join([*short["notes"], *long["notes"]])))


@pytest.mark.parametrize("columns", [40, 80])
@pytest.mark.parametrize("words", [("show",), ("show", "-v"), ("solve",), ("trend",), ("compare", "runs/night")])
def test_what_is_printed_fits_a_narrow_terminal(words: tuple[str, ...], columns: int, cwd: Path) -> None:
    said = frontier(words[0], "runs/night", *words[1:], cwd=cwd, COLUMNS=str(columns))
    lines = [line for line in said.out.splitlines() if not line.lstrip().startswith("frontier ")]
    assert [] == [line for line in lines if len(line) > columns]
    assert "…" not in said.out


def test_an_invalid_setting_has_no_part_in_the_band_nor_in_the_odds_of_others(cwd: Path) -> None:
    run, busy = load(cwd / "runs" / "fast"), ClientHealth(loop_lag_p99=1.0)
    ((at, history),) = run.histories.items()
    whole = load(cwd / "runs" / "fast").uncertainties()[at]
    assert 32 in uncertainty.membership(whole)
    history[:] = [
        (trial, dataclasses.replace(sample, health=(busy,)) if trial.load == 32 else sample)
        for trial, sample in history
    ]
    doubt = run.uncertainties()[at]
    assert set(uncertainty.membership(doubt)) == {1, 4, 8, 16}
    best = next(p for p in run.points() if p.load == 16).metrics["output_throughput"].high
    tops = [max(high for *_, high in band if not math.isnan(high)) for band in map(uncertainty.band, (doubt, whole))]
    assert tops[0] <= best * 1.01 < tops[1]
    (summary,) = summaries_of(run, run.points(), run.config.objectives)
    assert 32 in summary.frontier.excluded
