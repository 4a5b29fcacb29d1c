"""`frontier predict`: before measuring, from a config; between and beyond what was measured, from a
run."""

import dataclasses
import json
import math
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from frontier.config import load_config
from frontier.core.model.decisions import Limit
from frontier.core.model.errors import UsageError
from frontier.core.model.points import Estimate, Flag
from frontier.core.model.shapes import Shape
from frontier.core.model.units import format_seconds
from frontier.extras.predict.fit import Prediction
from frontier.extras.predict.prediction import not_faster, predict_config, predict_points
from frontier.extras.predict.prediction_tables import _sla_note
from frontier.extras.predict.sla_break import SlaBreak
from frontier.hardware.roofline import GivenRoofline, Limits, ModelRoofline
from frontier.read_run import load
from frontier.simulator.virtual import closed_loop_arrays
from tests.kit.commands import frontier
from tests.kit.golden import assert_golden_row
from tests.kit.places import ROOT
from tests.kit.sweeps import sweep_in_virtual_time

ENGINE = "simulator: {model: llama-3.1-8b, hardware: h100, noise: 0.02}\n"
SWEPT = f"""\
endpoint: simulator
{ENGINE}shapes: [1024/256]
concurrency: [2, 4, 16, 64]
requests: 150
repeats: 1
refine: 0
"""
SERVER = """\
endpoint: http://localhost:8000/v1
model: meta-llama/Llama-3.1-8B-Instruct
hardware: h100
shapes: [512/64]
concurrency: [1, 16]
"""


@pytest.fixture(scope="module")
def cwd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("predict")
    (here / "runs").mkdir()
    sweep_in_virtual_time(here / "runs" / "night", SWEPT)
    sweep_in_virtual_time(here / "short", SWEPT.replace("[2, 4, 16, 64]", "[2, 4]"))
    (here / "server.yaml").write_text(SERVER)
    (here / "priced.yaml").write_text("endpoint: simulator\nshapes: [64/8]\nconcurrency: [1, 4]\n")
    return here


def answer(cwd: Path, *arguments: str) -> list[dict]:
    said = frontier("predict", *arguments, "--json", cwd=cwd)
    assert said.code == 0, said.err
    tree = json.loads(said.out)
    assert "frontier.predict/1" == tree["schema"]
    return tree["shapes"]


def test_a_config_is_predicted_at_the_assumed_efficiency_with_its_doubt(cwd: Path) -> None:
    (shape,) = answer(cwd, "server.yaml")
    assert "60%" in shape["basis"]
    assert ([], None, "512/64") == (shape["fitted_to"], shape["what_if"], shape["shape"])
    one, many = shape["predictions"]
    assert ("unmeasured", 1) == (one["reach"], one["concurrency"])
    for said in (one, many):
        rate = said["metrics"]["output_throughput"]
        assert rate["low"] < rate["value"] < rate["high"]
        assert said["metrics"]["mean_ttft"]["high"] is None, "TTFT has no upper end"
        assert 0 < said["light"]["share"] < 0.6
        assert said["metrics"]["mean_tpot"]["value"] > said["light"]["tpot"]
    (faster,) = answer(cwd, "server.yaml", "--efficiency", "90%")
    rates = [s["predictions"][1]["metrics"]["output_throughput"]["value"] for s in (shape, faster)]
    assert rates[1] > 1.2 * rates[0]


def test_what_if_answers_beside_the_config_as_it_is(cwd: Path) -> None:
    changes = ("hardware=b200", "precision=fp8", "tp=2,isl=4096", "model=qwen3-32b,tp=2")
    shapes = answer(cwd, "server.yaml", *(word for change in changes for word in ("--what-if", change)))
    assert [None, *changes] == [s["what_if"] for s in shapes]
    base, b200, fp8, longer, other = (s["predictions"][0] for s in shapes)
    assert b200["light"]["ceiling"] == pytest.approx(base["light"]["ceiling"] * 7.7 / 3.35, rel=0.1)
    assert 1.7 < fp8["light"]["ceiling"] / base["light"]["ceiling"] < 2.0
    assert longer["light"]["ttft"] > base["light"]["ttft"]
    assert "4096/64" == shapes[3]["shape"]
    assert other["light"]["ceiling"] < base["light"]["ceiling"]
    assert "Qwen3-32B in bf16 on 2 x h100" in shapes[4]["basis"]


def test_the_simulator_is_its_own_prediction(cwd: Path) -> None:
    (shape,) = answer(cwd, "priced.yaml")
    spec = load_config((cwd / "priced.yaml").read_text(), "priced.yaml").deployments[0].engine_spec()
    truth = closed_loop_arrays(spec, Shape.of(64, 8), 4, requests=32)
    said = shape["predictions"][1]
    assert ("simulated", None) == (said["reach"], said["light"])
    assert truth.output_throughput == said["metrics"]["output_throughput"]["value"]


def test_a_run_is_predicted_between_and_beyond_what_it_measured(cwd: Path) -> None:
    (shape,) = answer(cwd, "--concurrency", "8,32,128")
    assert [2, 4, 16, 64] == [k["concurrency"] for k in shape["fitted_to"]]
    assert ["between", "between", "beyond"] == [p["reach"] for p in shape["predictions"]]
    config = load_config(SWEPT, "sweep.yaml")
    spec = config.deployments[0].engine_spec()
    for said in shape["predictions"]:
        truth = closed_loop_arrays(spec, config.shapes[0], said["concurrency"], requests=20 * said["concurrency"])
        rate = said["metrics"]["output_throughput"]
        assert rate["low"] <= truth.output_throughput <= rate["high"]
        near = 0.03 if said["reach"] == "between" else 0.2
        assert rate["value"] == pytest.approx(truth.output_throughput, rel=near)


@pytest.mark.parametrize(("osl", "slower"), [(65, "tpot"), (1, "ttft")])
def test_no_prediction_is_above_its_roofline(osl: float, slower: str) -> None:
    def of(value: float) -> Estimate:
        return Estimate(value, value / 2, value * 2, 4)

    said = Prediction(32, of(0.5), of(0.01), of(32 * osl / (0.5 + (osl - 1) * 0.01)), 32, "beyond")
    at = Limits(32, 32, 0.1, 0.001, 0.2, 0.8 * said.throughput.value, "prefill compute")
    held = not_faster(said, at, osl)
    assert at.throughput == held.throughput.value == held.throughput.high > held.throughput.low
    assert at.throughput == pytest.approx(32 * osl / (held.ttft.value + (osl - 1) * held.tpot.value))
    assert {"ttft", "tpot"} - {slower} == {n for n in ("ttft", "tpot") if getattr(held, n) == getattr(said, n)}
    assert said == not_faster(said, None, osl)
    roomy = dataclasses.replace(at, throughput=3 * said.throughput.value)
    assert said == not_faster(said, roomy, osl)


def test_a_run_predicted_far_beyond_is_held_at_the_roofline_and_says_so(cwd: Path) -> None:
    roofline = GivenRoofline(bandwidth=3.35e12, weights=16e9, kv_per_token=131_072, memory=80e9)
    (forecast,) = predict_points(load(cwd / "runs" / "night").points(), lambda _: roofline, (8, 4096))
    near, far = forecast.predictions
    at_8, at_4096 = forecast.rooflines
    assert at_8 is not None
    assert at_4096 is not None
    assert near.throughput.high < at_8.throughput
    assert far.throughput.value == far.throughput.high == at_4096.throughput
    assert_golden_row("answers", forecast.basis)


def test_the_default_ladder_goes_to_twice_the_highest_and_skips_what_was_measured(cwd: Path) -> None:
    run = load(cwd / "runs" / "night")
    (forecast,) = predict_points(run.points(), run.roofline)
    asked = [p.concurrency for p in forecast.predictions]
    assert [3, 6, 8, 11, 23, 32, 45, 91, 128] == asked
    assert len(forecast.rooflines) == len(asked)


def test_a_name_is_the_shape_of_the_run(cwd: Path) -> None:
    (only,) = answer(cwd, "runs/night", "--shape", "1024/256")
    assert answer(cwd, "runs/night") == [only]
    there, other = answer(cwd, "runs/night", "--shape", "1024/256", "--shape", "4096/256")
    assert (only, "4096/256") == (there, other["shape"])


def test_another_shape_is_carried_over_from_the_nearest(cwd: Path) -> None:
    here, there = answer(cwd, "runs/night", "--shape", "4096/256", "--concurrency", "16")
    assert "Carried over from 1024/256" == there["basis"]
    one, other = (s["predictions"][0]["metrics"] for s in (here, there))
    assert other["mean_ttft"]["value"] > 2 * one["mean_ttft"]["value"]
    assert "other shape" == there["predictions"][0]["reach"]
    truth = closed_loop_arrays(
        load_config(SWEPT, "sweep.yaml").deployments[0].engine_spec(), Shape.of(4096, 256), 16, requests=300
    )
    assert other["mean_tpot"]["low"] <= truth.tpot.mean() <= other["mean_tpot"]["high"]


def test_the_table_shows_measured_and_predicted_and_what_they_rest_on(cwd: Path) -> None:
    said = frontier("predict", "runs/night", cwd=cwd)
    assert (4, 9) == (said.out.count("measured"), said.out.count("between") + said.out.count("beyond"))
    assert_golden_row("answers", "\n".join(said.out.splitlines()[-2:]))
    narrow = frontier("predict", "server.yaml", cwd=cwd, COLUMNS="60")
    assert max(map(len, narrow.out.splitlines())) <= 60
    assert "≥" in narrow.out
    assert_golden_row("answers", "\n".join(narrow.out.splitlines()[4:]), "narrow")


def test_predictions_are_drawn_dashed_and_named_and_decide_nothing(cwd: Path) -> None:
    said = frontier("predict", "runs/night", "-o", "expected.svg", "--concurrency", "8,128", cwd=cwd)
    assert (said.code, "wrote expected.svg") == (0, said.err.strip().splitlines()[-1])
    picture = (cwd / "expected.svg").read_text()
    assert "128 predicted" in picture
    assert "dashed:" in picture.replace("\u00a0", " ")
    assert "stroke-dasharray" in picture
    assert "run at" not in picture.lower()


def heads(text: str) -> str:
    """The heads of the table's columns."""
    return next(line for line in text.splitlines() if "tok/s" in line)


def test_every_number_in_the_table_stands_beside_its_band_or_says_where_that_is(cwd: Path) -> None:
    (here,) = answer(cwd, "runs/night", "--concurrency", "8")
    ends = here["predictions"][0]["metrics"]["mean_ttft"]
    wide = frontier("predict", "runs/night", "--concurrency", "8", cwd=cwd, COLUMNS="120")
    band = f"[{format_seconds(ends['low'])}, {format_seconds(ends['high'])}]"
    assert band in wide.out
    assert 3 == heads(wide.out).count("95% band")
    narrow = frontier("predict", "runs/night", "--concurrency", "8", cwd=cwd, COLUMNS="60")
    assert band in narrow.out, "of all bands that of TTFT is the widest, and goes last"
    assert [0, 1] == [found.out.count("see -v") for found in (wide, narrow)]
    bare = frontier("predict", "server.yaml", cwd=cwd, COLUMNS="120")
    assert 2 == heads(bare.out).count("95% band"), "an assumed TTFT has no upper end, and is marked so"


@pytest.mark.slow
def test_a_picture_of_predictions_keeps_the_operating_point_the_sla_and_the_bands(cwd: Path) -> None:
    sweep_in_virtual_time(
        cwd / "decided",
        SWEPT.replace("150", "1500").replace("1024/256", "1024/230-282") + "sla: {p99_ttft: 2s, p99_tpot: 12ms}\n",
    )
    said = frontier("predict", "decided", "-o", "decided.svg", "--concurrency", "8,32", "--shape", "99/9", cwd=cwd)
    assert 0 == said.code, said.err
    picture = (cwd / "decided.svg").read_text().replace("\u00a0", " ")
    (decision,) = load(cwd / "decided").solve()
    assert decision.load is not None
    assert f'id="mark-0_0-{decision.load}-star"' in picture
    assert re.search(r"p99 TTFT [\d.]+ ms", picture)
    assert ">violates<" in picture, "64 breaks the limit on p99 TPOT, which is not on these axes"
    assert_golden_row("messages", said.err)


def test_where_the_sla_breaks_is_found_by_the_engine_in_virtual_time(cwd: Path) -> None:
    """The engine is known, so what it does at the settings named can be looked at."""
    text = SWEPT.replace("[2, 4, 16, 64]", "[1, 8, 64]") + "sla: {p99_tpot: 12ms, p99_itl: 1s}\n"
    (cwd / "limited.yaml").write_text(text)
    (shape,) = answer(cwd, "limited.yaml")
    sla = shape["sla"]
    assert 8 <= sla["inside"] < sla["breaks_at"] <= max(sla["inside"] + 1, 1.05 * sla["inside"]) < 64
    assert [limit["metric"] for limit in sla["limits"]] == ["p99_tpot"]
    assert [limit["metric"] for limit in sla["unjudged"]] == ["p99_itl"]
    spec = load_config(text, "limited.yaml").deployments[0].engine_spec()
    for c, kept in ((sla["inside"], True), (sla["breaks_at"], False)):
        run = closed_loop_arrays(spec, Shape.of(1024, 256), c, requests=400)
        assert bool(np.quantile(run.tpot, 0.99, method="inverted_cdf") <= 0.012) is kept
    said = frontier("predict", "limited.yaml", cwd=cwd)
    assert f"up to c={sla['inside']}" in said.out
    assert f"c={sla['breaks_at']}" in said.out


def test_where_the_sla_breaks_beyond_a_run_follows_from_its_nearest_point(cwd: Path) -> None:
    (plain,) = answer(cwd, "runs/night")
    assert plain["sla"] is None
    (shape,) = answer(cwd, "runs/night", "--set", "sla.p99_tpot=14ms")
    sla = shape["sla"]
    run = load(cwd / "runs" / "night")
    inside = [p.load for p in run.points() if p.value("p99_tpot") <= 0.014]
    assert max(inside) <= sla["inside"] < sla["breaks_at"]
    (kept,) = answer(cwd, "runs/night", "--set", "sla.p99_tpot=10s")
    assert (kept["sla"]["inside"], kept["sla"]["breaks_at"]) == (128, None)


def test_a_setting_between_the_two_that_were_looked_at_is_not_passed_over() -> None:
    limits = (Limit("p95_tpot", 0.018),)
    said = {
        breaks: _sla_note(SlaBreak(inside, breaks, limits), "")
        for inside, breaks in ((54, 55), (54, 56), (None, 1), (64, None))
    }
    assert "breaks at c=55" in said[55]
    assert "c=54 and c=56" in said[56]
    assert "nowhere" in said[1]
    assert "breaks at c=1" in said[1]
    assert "breaks" not in said[None]


def test_predictions_stand_on_request_axes_as_requests(cwd: Path) -> None:
    (shape,) = answer(cwd, "runs/night", "--concurrency", "8")
    rates = shape["predictions"][0]["metrics"]
    assert rates["request_throughput"]["value"] == pytest.approx(rates["output_throughput"]["value"] / 256)
    words = ("--set", "objectives=[request_throughput, p99_e2e]", "-o", "requests.svg", "--concurrency", "8")
    said = frontier("predict", "runs/night", *words, cwd=cwd)
    assert said.code == 0, said.err
    assert "req/s" in (cwd / "requests.svg").read_text().replace("\u00a0", " ")


def test_a_model_is_given_by_the_path_of_its_config_json(cwd: Path) -> None:
    sizes = {"model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32}
    sizes |= {"num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "rms_norm_eps": 1e-05}
    (cwd / "config.json").write_text(json.dumps(sizes))
    (cwd / "unnamed.yaml").write_text(
        SERVER.replace("meta-llama/Llama-3.1-8B-Instruct", "our-own-model").replace("h100", "{name: h100}")
    )
    (known,) = answer(cwd, "server.yaml")
    (given,) = answer(cwd, "unnamed.yaml", "--set", "hardware.model=@config.json")
    assert given["predictions"] == known["predictions"]
    other = answer(cwd, "server.yaml", "--what-if", "model=@config.json")[1]
    assert other["predictions"] == known["predictions"]


def test_stages_and_spread_experts_are_what_ifs_and_keys(cwd: Path) -> None:
    text = SERVER.replace("hardware: h100", "hardware: {name: h200, gpus: 8, model: deepseek-r1, pp: 2, ep: 4}")
    (cwd / "spread.yaml").write_text(text)
    asked, other = answer(cwd, "spread.yaml", "--what-if", "pp=1,tp=8,ep=8")
    assert "2 stages of 4, experts" in asked["basis"]
    assert "8 x h200, experts over 8" in other["basis"]
    assert asked["predictions"][0]["light"]["tpot"] > other["predictions"][0]["light"]["tpot"]


REFUSED = {
    "server.yaml --set hardware.model=@no.json": "no.json",
    "server.yaml --what-if model=@server.yaml": "not JSON",
    "server.yaml --what-if ep=3": "ep: 3",
    "server.yaml --set 'hardware={name: h200, gpus: 4, pp: 3}'": "4 GPUs",
    "nothing.yaml": "nothing.yaml",
    "short": "frontier predict CONFIG",
    "server.yaml --what-if hardwear=b200": "'hardware'",
    "server.yaml --what-if tp": "hardware, tp",
    "server.yaml --what-if hardware=b2000": "b200, ",
    "server.yaml --what-if hardware=b-200": "did you mean 'b200'",
    "server.yaml --what-if model=llama-3.1-4b": "@config.json",
    "server.yaml --what-if model=lama-3.1-8b": "did you mean 'llama-3.1-8b'",
    "server.yaml --what-if model=llama-3.1-70b": "141 GB",
    "server.yaml --what-if isl=long": "isl=8192",
    "server.yaml --what-if isl=900000": "131072",
    "server.yaml --efficiency 200%": "'200%'",
    "server.yaml --concurrency 1,x": "1,2,4,256",
    "server.yaml --shape 1/2": "--what-if isl=",
    "priced.yaml --what-if tp=2": "simulator: {model:",
    "runs/night --what-if tp=2": "CONFIG",
    "runs/night --shape long": "1024/256",
    "runs/night -o a.gif": "FILE.png",
}
"""What is refused, and what its message names."""


@pytest.mark.parametrize("line", REFUSED)
def test_what_cannot_be_predicted_is_refused_in_words(cwd: Path, line: str) -> None:
    said = frontier("predict", *shlex.split(line), cwd=cwd)
    assert (said.code, said.out) == (2, "")
    assert REFUSED[line] in said.err
    assert_golden_row("messages", said.err)


def test_the_page_says_what_is_computed_for_its_example(cwd: Path) -> None:
    text = "endpoint: http://h:1/v1\nmodel: llama-3.1-8b\nhardware: h200\nshapes: 1024/256\nconcurrency: [1]\n"
    (cwd / "one.yaml").write_text(text)
    (found,) = answer(cwd, "one.yaml")
    token = found["predictions"][0]["light"]["tpot"]
    roofline = load_config(text, "one.yaml").deployments[0].roofline()
    assert isinstance(roofline, ModelRoofline)
    kept, read, bandwidth = roofline.weight_bytes_per_gpu, roofline.weight_traffic(1), roofline.gpu.bandwidth
    page = (ROOT / "docs" / "hardware.md").read_text().replace("\n", " ")
    said = [
        f"{kept / bandwidth * 1e3:.1f} ms for each token",
        f"computes {token * 1e3:.2f} ms: {read / bandwidth * 1e3:.2f} ms for the weights",
        f"({(kept - read) / 1e9:.2f} GB)",
        f"{(token - read / bandwidth) * 1e3:.2f} ms for the request's KV cache",
    ]
    assert [] == [words for words in said if words not in page]


@pytest.mark.parametrize(
    ("line", "unknown"),
    [
        ("model: our-own\nhardware: h200\n", ("'our-own'", "llama-3.1-70b", "@config.json")),
        ("model: llama-3.1-8b\nhardware: {name: h1000}\n", ("'h1000'", "h200", "memory_bandwidth")),
        ("model: llama-3.1-8b\n", ("no GPU", "h200")),
        ("", ("no model", "no GPU", "@config.json", "h200")),
        ("hardware: {weights: 16GB, memory_bandwidth: 4TB/s}\n", ("weights in bytes", "frontier predict RUN")),
    ],
)
def test_what_is_not_known_is_named_with_what_is(cwd: Path, line: str, unknown: tuple[str, ...]) -> None:
    (cwd / "part.yaml").write_text(f"endpoint: http://h:1/v1\n{line}shapes: 1024/256\n")
    said = frontier("predict", "part.yaml", cwd=cwd)
    assert (2, "") == (said.code, said.out)
    assert [] == [part for part in unknown if part not in said.err]


def test_a_server_whose_model_is_not_known_needs_its_sizes(cwd: Path) -> None:
    (cwd / "unknown.yaml").write_text(SERVER.replace("meta-llama/Llama-3.1-8B-Instruct", "our-own-model"))
    said = frontier("predict", "unknown.yaml", cwd=cwd)
    assert said.code == 2
    assert_golden_row("messages", said.err)


def test_what_was_swept_beside_sessions_is_predicted_without_them(cwd: Path) -> None:
    run = load(cwd / "runs" / "night")
    sessions = load_config(
        "endpoint: simulator\nshapes: [{name: agent, turns: 2, first: 128, per_turn: 32/16}]\n", "sweep.yaml"
    ).shapes
    beside = [dataclasses.replace(point, shape=sessions[0]) for point in run.points()]
    (forecast,) = predict_points([*beside, *run.points()], run.roofline)
    (alone,) = predict_points(run.points(), run.roofline)
    assert forecast == alone
    with pytest.raises(UsageError, match="is a session"):
        predict_points(beside, run.roofline)


def test_points_with_failures_or_flags_are_not_fitted_to(cwd: Path) -> None:
    run = load(cwd / "runs" / "night")
    (forecast,) = predict_points(run.points(), run.roofline)
    assert [2, 4, 16, 64] == [k.concurrency for k in forecast.measured if math.isfinite(k.ttft + k.tpot)]
    flag = Flag("errors", "4%", "1%", "lower the concurrency")
    points = [dataclasses.replace(p, flags=(flag,)) if p.load == 4 else p for p in run.points()]
    (forecast,) = predict_points(points, run.roofline)
    assert [2, 16, 64] == [k.concurrency for k in forecast.measured]
    fewer = [dataclasses.replace(p, flags=(flag,)) if p.load == 16 else p for p in points]
    with pytest.raises(UsageError):
        predict_points(fewer, run.roofline)


def test_a_forecast_of_a_config_is_reproducible() -> None:
    config = load_config(SERVER, "server.yaml")
    assert predict_config(config) == predict_config(config)


def test_what_is_proposed_for_a_config_at_rates_predicts() -> None:
    """No value of --set takes a rate away."""
    at_rates = load_config(SERVER.replace("concurrency: [1, 16]", "rate: [1, 4]"), "server.yaml")
    with pytest.raises(UsageError) as refused:
        predict_config(at_rates)
    (key,) = re.findall(r"  (concurrency: \S+)  ", refused.value.hint or "")
    assert predict_config(load_config(SERVER.replace("concurrency: [1, 16]", key), "server.yaml"))
