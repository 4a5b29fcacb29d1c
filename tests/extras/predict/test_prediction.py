import dataclasses
import math

import numpy as np
import pytest

from benchmarks import curves, silicon
from benchmarks import prediction as study
from frontier.core.model.shapes import Shape
from frontier.extras.predict.fit import Calibrated, Known
from frontier.extras.predict.prediction import Assumption, predict
from frontier.hardware.gpus import hardware
from frontier.hardware.models import card
from frontier.hardware.roofline import ModelRoofline
from frontier.simulator.spec import EngineSpec, roofline_of
from frontier.simulator.virtual import closed_loop_arrays

SERIES = silicon.read(silicon.SAMPLE)
LIMITS = {  # median and 90th percentile of the relative error
    "between": (study.between, {"tpot": (0.015, 0.07), "throughput": (0.015, 0.07), "ttft": (0.04, 0.20)}),
    "spread": (study.spread, {"tpot": (0.015, 0.06), "throughput": (0.015, 0.06), "ttft": (0.04, 0.20)}),
    "beyond": (study.beyond, {"tpot": (0.07, 0.25), "throughput": (0.07, 0.27), "ttft": (0.12, 0.53)}),
}


@pytest.mark.parametrize("question", LIMITS)
def test_points_left_out_are_predicted_on_silicon_better_than_by_the_usual_curves(question):
    choose, limits = LIMITS[question]
    ours, plain = (study.left_out(SERIES, method, choose) for method in (curves.engine_model, curves.plain_sum))
    for name, most in limits.items():
        found = np.median(ours.wrong[name]), np.quantile(ours.wrong[name], 0.9)
        assert np.all(found <= np.array(most)), name
        assert np.all(found <= np.array([np.median(plain.wrong[name]), np.quantile(plain.wrong[name], 0.9)])), name
    held = study.banded(SERIES, choose)
    assert 0.91 < min(held.values()) <= max(held.values()) < 0.995, held


def test_another_shape_is_predicted_on_silicon():
    ours, same = study.across(SERIES)
    assert len(ours.wrong["tpot"]) >= 50
    for name, most in (("tpot", 0.12), ("throughput", 0.15)):
        assert np.median(ours.wrong[name]) < most
        assert np.median(ours.wrong[name]) < 0.6 * np.median(same.wrong[name])
        assert np.mean(ours.held[name]) > 0.9


def test_the_study_knows_the_baselines_by_heart():
    points = [Known(c, 0.1 + 0.01 * c, 0.01 + 0.002 * c**0.5) for c in (1, 4, 16, 64)]
    series = silicon.Series(SERIES[0].deployment, 1024, 256, tuple(points))
    assert curves.plain_sum(series)(points)(32.0)["tpot"] == pytest.approx(0.01 + 0.002 * 32**0.5, rel=1e-6)
    assert curves.interpolation(series)(points)(4.0)["ttft"] == pytest.approx(0.14)
    peak, sigma, kappa = 100.0, 0.02, 1e-5
    usl = [peak * c / (1 + sigma * (c - 1) + kappa * c * (c - 1)) for c in (1, 8, 64, 256)]
    known = [Known(c, 0.1, (c * 256 / x - 0.1) / 255) for c, x in zip((1, 8, 64, 256), usl, strict=True)]
    said = curves.usl(dataclasses.replace(series, points=tuple(known)))(known)(128.0)["throughput"]
    assert said == pytest.approx(peak * 128 / (1 + sigma * 127 + kappa * 128 * 127), rel=1e-3)
    usual = [Known(c, 0.1 * c**0.3, 0.01 * math.exp(0.2192 * (math.log2(c) - 4))) for c in (4, 8, 32, 64)]
    said = curves.kriging(series)(usual)
    assert said(8.0)["ttft"] == pytest.approx(usual[1].ttft, rel=1e-3), "through the points, where there is no noise"
    assert said(16.0)["tpot"] == pytest.approx(0.01, rel=0.05)


def test_the_floor_is_what_all_other_points_say_of_one():
    assert [[0, 2, 3], [0, 1, 3]] == study.others(4)
    series = dataclasses.replace(SERIES[0], points=SERIES[0].points[:6])
    tried = list(study.tries([series], study.others))
    assert [1, 2, 3, 4] == [series.points.index(unseen) for _, _, (unseen,) in tried]
    floor, four = (study.left_out(SERIES[::4], curves.engine_model, at) for at in (study.others, study.between))
    for name in curves.METRICS:
        assert np.median(floor.wrong[name]) <= np.median(four.wrong[name]) + 0.002, name


def test_what_several_sources_say_of_a_setting_is_counted_once_unless_it_differs():
    here = SERIES[0].deployment
    later = dataclasses.replace(here, source="later")
    found = {
        (here, 1024, 256): {4: [(0.1, 0.01)], 8: [(0.2, 0.02)]},
        (later, 1024, 256): {4: [(0.10001, 0.01), (0.3, 0.01)], 16: [(0.4, 0.04)]},
        (here, 1024, 512): {4: [(0.1, 0.01)]},
    }
    nameless = dataclasses.replace(here, source="")
    assert {
        (nameless, 1024, 256): {4: [(0.1, 0.01), (0.3, 0.01)], 8: [(0.2, 0.02)], 16: [(0.4, 0.04)]},
        (nameless, 1024, 512): {4: [(0.1, 0.01)]},
    } == silicon.once(found)
    assert [pytest.approx((2.0, 0.0))] == silicon.repeated(found).tolist()


def test_the_sample_and_the_whole_file_are_read_alike(tmp_path):
    columns = (
        "silicon_data_source,backend,backend_version,model_path,system,precision,mode,isl,osl,tp_size,pp_size,"
        "attention_dp_size,moe_tp_size,moe_ep_size,silicon_ttft_ms,silicon_tpot_ms"
    )
    rows = [
        f"source_file=a.csv; silicon_concurrency={c},vllm,1,openai/gpt-oss-120b,b200_sxm,fp4,{mode},"
        f"1024,1024,2,1,1,1,2,{100 + c},{c}"
        for c in (1, 2, 4, 8, 16, 32)
        for mode in ("agg", "disagg")
    ]
    (tmp_path / "silicon_sample.csv").write_text("\n".join([columns, *rows, rows[0].replace(",101,1", ",103,3")]))
    (series,) = silicon.read(tmp_path / "silicon_sample.csv")
    assert [1, 2, 4, 8, 16, 32] == [p.concurrency for p in series.points]
    assert (0.102, 0.002) == pytest.approx((series.points[0].ttft, series.points[0].tpot)), "measured twice: the median"
    assert (37, 239) == (len(SERIES), sum(len(s.points) for s in SERIES))
    assert ("gpt-oss-120b", 2) == (series.roofline().model.name, series.roofline().tp)


@pytest.mark.slow
@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.nightly)])
def test_what_is_expected_without_a_measurement_is_within_its_bands_on_silicon(every):
    found = study.without_measurement(SERIES[::every])
    assert len(found.wrong["tpot"]) > 200 / every
    assert np.median(found.wrong["tpot"]) < 0.22
    assert np.median(found.wrong["throughput"]) < 0.22
    assert min(np.mean(found.held[name]) for name in curves.METRICS) > 0.92


def test_an_expectation_of_a_known_engine_is_its_own_run_and_of_an_assumed_one_has_a_band():
    spec = EngineSpec.from_mapping({"model": "llama-3.1-8b", "hardware": "h100"})
    shape = Shape.of(256, 64)
    truth = closed_loop_arrays(spec, shape, 8, requests=32)
    known, assumed = predict(Assumption(spec, known=True), shape, 8), predict(Assumption(spec), shape, 8)
    assert ("simulated", "unmeasured") == (known.reach, assumed.reach)
    for said in (known, assumed):
        assert truth.output_throughput == said.throughput.value
        assert truth.tpot.mean() == pytest.approx(said.tpot.value)
    assert known.throughput.low == known.throughput.high
    assert assumed.throughput.low < assumed.throughput.value < assumed.throughput.high
    assert math.inf == assumed.ttft.high
    assert predict(Assumption(spec), Shape.of(256, 1), 4).tpot.value == 0
    assert predict(Assumption(dataclasses.replace(spec, max_num_seqs=4)), shape, 8).running == 4


def simulated(spec, shape, concurrencies):
    runs = [(c, closed_loop_arrays(spec, shape, c, requests=40 * c)) for c in concurrencies]
    return [Known(c, float(run.ttft.mean()), float(run.tpot.mean())) for c, run in runs]


def test_a_simulated_engine_is_predicted_between_and_beyond():
    spec = EngineSpec.from_mapping({"model": "llama-3.1-8b", "hardware": "h100", "noise": 0.02})
    shape = Shape.of(512, 128)
    truth = {p.concurrency: p for p in simulated(spec, shape, (4, 8, 16, 32, 64))}
    model = Calibrated([truth[c] for c in (4, 8, 32)], 512, 128, roofline=roofline_of(spec))
    assert model.at(16).tpot.value == pytest.approx(truth[16].tpot, rel=0.03)
    assert model.at(64).tpot.value == pytest.approx(truth[64].tpot, rel=0.15)
    assert ("between", "beyond", "other shape") == (
        model.at(16).reach,
        model.at(64).reach,
        model.elsewhere(256, 128, 16).reach,
    )


def test_a_full_memory_is_seen_in_the_queue_and_explains_it():
    spec = EngineSpec(kv_tokens=22_000, watermark=0.0)
    shape = Shape.of(512, 128)
    truth = {p.concurrency: p for p in simulated(spec, shape, (4, 8, 16, 32, 64, 128))}
    model = Calibrated([truth[c] for c in (4, 8, 16, 32, 128)], 512, 128)
    assert model.capacity == pytest.approx(22_000 / 600, rel=0.15)
    said = model.at(64)
    assert said.ttft.value == pytest.approx(truth[64].ttft, rel=0.35)
    assert said.tpot.value == pytest.approx(truth[64].tpot, rel=0.15)
    assert said.running == model.capacity
    assert math.inf == Calibrated([truth[c] for c in (4, 8, 16)], 512, 128).capacity


def test_a_roofline_foretells_where_the_memory_is_full():
    engine = ModelRoofline.of(card("llama-3.1-70b"), hardware("h200"), 1, "fp8", "fp8")
    known = [Known(c, 0.2, 0.02 + 2e-4 * c) for c in (4, 8, 16)]
    model = Calibrated(known, 1024, 8192, roofline=engine)
    assert 30 < model.capacity < 60
    assert model.at(128).ttft.value > 10 * model.at(32).ttft.value
    assert model.at(128).throughput.value == pytest.approx(model.at(64).throughput.value, rel=0.05)


def test_measured_points_are_reproduced_and_bands_widen_with_the_distance():
    known = [Known(c, 0.1 * c**0.3, 0.01 * c**0.4) for c in (1, 4, 16, 64)]
    model = Calibrated(known, 1024, 256)
    for point in known:
        said = model.at(point.concurrency)
        assert (said.ttft.value, said.tpot.value) == pytest.approx((point.ttft, point.tpot), rel=1e-6)
    widths = [model.at(c).tpot.high / model.at(c).tpot.value for c in (32, 128, 512)]
    assert sorted(widths) == widths
