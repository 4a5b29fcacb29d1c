"""Measured series of aiconfigurator's silicon_sample.csv: deployments on real GPUs over
concurrency.

Of github.com/ai-dynamo/aiconfigurator (Apache-2.0), under aic-core/src/aiconfigurator_core/systems;
a part of it is kept in tests/data/silicon. A series is one deployment and shape at six or more
concurrencies, aggregated serving, the median where a setting was measured twice.
"""

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from frontier.extras.predict.fit import Known
from frontier.hardware.gpus import hardware
from frontier.hardware.models import card
from frontier.hardware.roofline import ModelRoofline

SAMPLE = Path(__file__).parents[1] / "tests" / "data" / "silicon" / "sample.csv"


@dataclass(frozen=True, slots=True)
class Deployment:
    """What was measured; two series of one deployment differ in their shape alone."""

    source: str
    model: str
    system: str
    backend: str
    version: str
    precision: str
    tp: int
    expert_parallel: str
    attention_dp: int


@dataclass(frozen=True, slots=True)
class Series:
    """One deployment and shape, its points by rising concurrency."""

    deployment: Deployment
    isl: int
    osl: int
    points: tuple[Known, ...]

    def roofline(self) -> ModelRoofline | None:
        """Its roofline; None where the model is none of the shipped cards, or attention is not
        sharded.
        """
        of = self.deployment
        try:
            gpu, model = hardware(of.system), card(of.model)
        except ValueError:
            return None
        if of.attention_dp != 1:
            return None
        return ModelRoofline.of(model, gpu, of.tp, of.precision or None, "fp8")

    def figures(self, point: Known) -> dict[str, float]:
        """TTFT, TPOT and throughput of a point."""
        return figures(point.concurrency, point.ttft, point.tpot, self.osl)


def figures(c: float, ttft: float, tpot: float, osl: float) -> dict[str, float]:
    """Seconds, and output tokens per second by Little's law."""
    return {"ttft": ttft, "tpot": tpot, "throughput": c * osl / (ttft + (osl - 1) * tpot)}


Settings = dict[tuple[Deployment, int, int], dict[int, list[tuple[float, float]]]]
"""TTFT and TPOT of every measurement, by deployment and shape, and by concurrency."""


def settings(path: Path) -> Settings:
    """All the file has of aggregated serving."""
    found: Settings = {}
    with path.open() as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            known = _ours(row) if "concurrency" in row else _theirs(row)
            if known is not None:
                deployment, isl, osl, c, ttft, tpot = known
                found.setdefault((deployment, isl, osl), {}).setdefault(c, []).append((ttft, tpot))
    return found


def series_of(found: Settings) -> list[Series]:
    """The series with six or more concurrencies."""
    return [
        Series(*key, tuple(Known(c, *(float(x) for x in np.median(points[c], axis=0))) for c in sorted(points)))
        for key, points in found.items()
        if len(points) >= 6
    ]


def read(path: Path) -> list[Series]:
    """The file's series with six or more concurrencies, by deployment and shape."""
    return series_of(settings(path))


def once(found: Settings) -> Settings:
    """Each measurement once: the file's sources together, and of what agrees to three digits the
    first.
    """
    merged: Settings = {}
    for (deployment, isl, osl), points in found.items():
        for c, seen in points.items():
            here = merged.setdefault((replace(deployment, source=""), isl, osl), {}).setdefault(c, [])
            for new in seen:
                if all(max(abs(a / b - 1) for a, b in zip(new, old, strict=True)) > 1e-3 for old in here):
                    here.append(new)
    return merged


def repeated(found: Settings) -> np.ndarray:
    """By how much (relative to the smaller) TTFT and TPOT of settings measured twice with different
    figures differ.
    """
    twice = [seen for points in once(found).values() for seen in points.values() if len(seen) > 1]
    return np.array([np.max(seen, axis=0) / np.min(seen, axis=0) - 1 for seen in twice]).reshape(-1, 2)


Row = tuple[Deployment, int, int, int, float, float]


def _ours(row: Mapping[str, str]) -> Row:
    deployment = Deployment(
        row["source"],
        row["model"],
        row["system"],
        row["backend"],
        row["version"],
        row["precision"],
        int(row["tp"]),
        row["ep"],
        1,
    )
    at = int(row["isl"]), int(row["osl"]), int(row["concurrency"])
    return deployment, *at, float(row["ttft_ms"]) / 1e3, float(row["tpot_ms"]) / 1e3


def _theirs(row: Mapping[str, str]) -> Row | None:
    source = row["silicon_data_source"]
    found = re.search(r"silicon_concurrency=(\d+)", source)
    if row["mode"] != "agg" or found is None:
        return None
    if row["system"].startswith("gb200") and int(row["tp_size"]) >= 28:
        return None  # disaggregated runs under the wrong label
    name = source.partition(";")[0].removeprefix("source_file=")
    parallel = f"pp{row['pp_size']} mtp{row['moe_tp_size']} ep{row['moe_ep_size']}"
    deployment = Deployment(
        name,
        row["model_path"],
        row["system"],
        row["backend"],
        row["backend_version"],
        row["precision"],
        int(row["tp_size"]),
        parallel,
        int(row["attention_dp_size"] or 1),
    )
    ttft, tpot = float(row["silicon_ttft_ms"]) / 1e3, float(row["silicon_tpot_ms"]) / 1e3
    return deployment, int(row["isl"]), int(row["osl"]), int(found[1]), ttft, tpot
