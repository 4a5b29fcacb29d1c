import csv
import itertools
import math
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from frontier.engine.cards import card
from frontier.engine.hardware import hardware
from frontier.engine.predict import Known, calibrate
from frontier.engine.price import roofline_of
from frontier.engine.roofline import Roofline
from frontier.engine.spec import EngineSpec
from frontier.engine.virtual import closed_loop_arrays
from frontier.model import Shape

SILICON = Path(__file__).parents[1] / "data" / "silicon" / "sample.csv"


def series():
    """The sample's series: the deployment with its shape, and (concurrency, TTFT, TPOT) by rising concurrency."""
    found = defaultdict(lambda: defaultdict(list))
    with SILICON.open() as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            key = tuple(row[k] for k in ("source", "model", "system", "backend", "version", "precision", "tp", "ep"))
            at = (float(row["ttft_ms"]) / 1e3, float(row["tpot_ms"]) / 1e3)
            found[*key, int(row["isl"]), int(row["osl"])][int(row["concurrency"])].append(at)
    return {key: [(c, *np.median(points[c], axis=0)) for c in sorted(points)] for key, points in found.items()}


def light(key):
    return Roofline.of(card(key[1]), hardware(key[2]), int(key[6]), key[5], "fp8")


def errors(choose):
    """Relative errors of the points left out, for every series; `choose` gives the indices to fit on, per fit."""
    wrong = {"tpot": [], "ttft": [], "throughput": []}
    held = []
    for key, points in series().items():
        isl, osl = key[-2:]
        for fitted in choose(len(points)):
            model = calibrate([Known(*points[i]) for i in fitted], isl, osl, light=light(key))
            for i in set(range(len(points))) - set(fitted):
                c, ttft, tpot = points[i]
                truth = {"ttft": ttft, "tpot": tpot, "throughput": c * osl / (ttft + (osl - 1) * tpot)}
                said = model.at(c)
                for name, value in truth.items():
                    estimate = getattr(said, name)
                    wrong[name].append(abs(estimate.value / value - 1))
                    held.append(estimate.low <= value <= estimate.high)
    return {name: (np.median(w), np.quantile(w, 0.9)) for name, w in wrong.items()}, np.mean(held)


def test_points_between_measured_ones_are_predicted_within_a_few_percent_on_silicon():
    found, held = errors(lambda n: [[j for j in range(n) if j != i] for i in range(1, n - 1)])
    assert np.all(found["tpot"] <= np.array([0.02, 0.07]))
    assert np.all(found["throughput"] <= np.array([0.02, 0.07]))
    assert np.all(found["ttft"] <= np.array([0.05, 0.25]))
    assert held > 0.93


def test_points_beyond_the_four_lowest_are_predicted_on_silicon():
    found, held = errors(lambda n: [[0, 1, 2, 3]])
    assert np.all(found["tpot"] <= np.array([0.07, 0.27]))
    assert np.all(found["throughput"] <= np.array([0.07, 0.27]))
    assert np.all(found["ttft"] <= np.array([0.14, 0.55]))
    assert held > 0.90


def test_another_shape_is_predicted_on_silicon():
    groups = defaultdict(list)
    for key in series():
        groups[key[:-2]].append(key)
    points, wrong = series(), []
    for here, there in itertools.chain.from_iterable(itertools.permutations(keys, 2) for keys in groups.values()):
        model = calibrate([Known(*p) for p in points[here]], *here[-2:], light=light(here))
        wrong += [abs(model.elsewhere(*there[-2:], c).tpot.value / tpot - 1) for c, _, tpot in points[there]]
    assert len(wrong) >= 50
    assert np.median(wrong) < 0.15


def simulated(spec, shape, concurrencies):
    runs = [(c, closed_loop_arrays(spec, shape, c, requests=40 * c)) for c in concurrencies]
    return [Known(c, float(run.ttft.mean()), float(run.tpot.mean())) for c, run in runs]


def test_a_simulated_engine_is_predicted_between_and_beyond():
    spec = EngineSpec.from_mapping({"model": "llama-3.1-8b", "hardware": "h100", "noise": 0.02})
    shape = Shape.of(512, 128)
    truth = {p.concurrency: p for p in simulated(spec, shape, (4, 8, 16, 32, 64))}
    model = calibrate([truth[c] for c in (4, 8, 32)], 512, 128, light=roofline_of(spec))
    assert model.at(16).tpot.value == pytest.approx(truth[16].tpot, rel=0.03)
    assert model.at(64).tpot.value == pytest.approx(truth[64].tpot, rel=0.15)
    assert ("between", "beyond", "other shape") == (
        model.at(16).reach, model.at(64).reach, model.elsewhere(256, 128, 16).reach,
    )  # fmt: skip


def test_a_full_memory_is_seen_in_the_queue_and_explains_it():
    spec = EngineSpec(kv_tokens=22_000, watermark=0.0)
    shape = Shape.of(512, 128)
    truth = {p.concurrency: p for p in simulated(spec, shape, (4, 8, 16, 32, 64, 128))}
    model = calibrate([truth[c] for c in (4, 8, 16, 32, 128)], 512, 128, moe=False)
    assert model.capacity == pytest.approx(22_000 / 600, rel=0.15)
    said = model.at(64)
    assert said.ttft.value == pytest.approx(truth[64].ttft, rel=0.35)
    assert said.tpot.value == pytest.approx(truth[64].tpot, rel=0.15)
    assert said.running == model.capacity
    assert math.inf == calibrate([truth[c] for c in (4, 8, 16)], 512, 128, moe=False).capacity


def test_a_roofline_foretells_where_the_memory_is_full():
    engine = Roofline.of(card("llama-3.1-70b"), hardware("h200"), 1, "fp8", "fp8")
    known = [Known(c, 0.2, 0.02 + 2e-4 * c) for c in (4, 8, 16)]
    model = calibrate(known, 1024, 8192, light=engine)
    assert 30 < model.capacity < 60
    assert model.at(128).ttft.value > 10 * model.at(32).ttft.value
    assert model.at(128).throughput.value == pytest.approx(model.at(64).throughput.value, rel=0.05)


def test_measured_points_are_reproduced_and_bands_widen_with_the_distance():
    known = [Known(c, 0.1 * c**0.3, 0.01 * c**0.4) for c in (1, 4, 16, 64)]
    model = calibrate(known, 1024, 256)
    for point in known:
        said = model.at(point.concurrency)
        assert (said.ttft.value, said.tpot.value) == pytest.approx((point.ttft, point.tpot), rel=1e-6)
    widths = [model.at(c).tpot.high / model.at(c).tpot.value for c in (32, 128, 512)]
    assert sorted(widths) == widths


def test_a_calibration_needs_three_honest_points():
    good = [Known(1, 0.1, 0.01), Known(2, 0.1, 0.01)]
    with pytest.raises(ValueError, match="three points"):
        calibrate(good, 1024, 256)
    with pytest.raises(ValueError, match="different"):
        calibrate([*good, Known(2, 0.2, 0.02), Known(4, 0.2, 0.02)], 1024, 256)
    with pytest.raises(ValueError, match="positive"):
        calibrate([*good, Known(4, math.inf, 0.01)], 1024, 256)
