"""What a rehearsal hands on: files as of a submission, and the config of the sweep that is missing.

What only the submitter knows is a named blank in a file.
"""

import itertools
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from frontier.config import Setting, config_text
from frontier.core.model.errors import UsageError
from frontier.core.model.loads import Concurrency
from frontier.core.model.text import clean
from frontier.core.model.units import format_elapsed
from frontier.core.window.window import WindowData
from frontier.extras.rehearse import endpoints_rules as rules
from frontier.extras.rehearse.regions import Regions
from frontier.extras.rehearse.rehearsal import CurvePoint, Rehearsal
from frontier.extras.rehearse.steady import Steady, lower_percentile
from frontier.run import Run
from frontier.store.run_dir import RunDirectory

PERCENTILES = (50, 90, 95, 99)
"""The percentiles of a summary."""
NANO = 1e9
"""Nanoseconds of a second: the unit of their files."""


def blank(what: str) -> str:
    """What the submitter has to fill in."""
    return f"<{what}>"


def bundle(made: Rehearsal) -> Iterator[tuple[Path, bytes]]:
    """The files of each point, by their path. UsageError for points without requests."""
    lacking = [c for c in made.concurrencies if c not in made.data]
    if lacking:
        raise UsageError(f"c={lacking[0]} has no requests: aggregates were imported", "export a run that was measured")
    for point in made.points:
        head = f"# {rules.HEAD}\n# Fill in what stands in <>; the rest was measured or follows from the rules.\n"
        text = yaml.safe_dump(_point_file(made, point), sort_keys=False, allow_unicode=True, width=200)
        folder = Path(f"r{point.concurrency}")
        yield folder / "point.yaml", (head + text).encode()
        summary = json.dumps(_summary(made.data[Concurrency(point.concurrency)]), indent=2)
        yield folder / "result_summary.json", summary.encode() + b"\n"


def _summary(data: WindowData) -> dict[str, Any]:
    """The numbers of a point under the client's names, in nanoseconds. Failed requests are counted,
    and in no percentile.
    """
    seconds = float((data.ends - data.starts).sum())
    done = int(data.ok.sum())
    return {
        "notice": rules.NOTICE,
        "n_samples_issued": data.n,
        "n_samples_completed": done,
        "n_samples_failed": data.n - done,
        "duration_ns": round(seconds * NANO),
        "output_sequence_lengths": {"total": round(float(data.block_output_tokens.sum()))},
        **{
            name: {"percentiles": {str(p): round(lower_percentile(values, p / 100) * NANO) for p in PERCENTILES}}
            for name, values in (("ttft", data.ttft), ("tpot", data.tpot), ("latency", data.e2e))
        },
    }


def _point_file(made: Rehearsal, point: CurvePoint) -> dict[str, Any]:
    """A point's description."""
    c_max, of = made.concurrencies[-1], made.dataset if made.benchmark is not None else None
    return {
        "notice": rules.NOTICE,
        "concurrency": point.concurrency,
        "region": point.region or blank("region"),
        "offline": "elected" if point.concurrency == c_max else "none",
        "dataset": of.key if of else blank("dataset"),
        "division": blank("division: RDI, Standardized or Serviced"),
        "max_supported_concurrency": c_max,
        "model_name": made.benchmark or blank("model_name: one of the benchmark's models"),
        "model_precision": blank("model_precision, as FP8"),
        "link_to_model": blank("link_to_model"),
        "dataset_name": of.name if of else blank("dataset_name"),
        "dataset_type": "Accuracy + Performance" if point.accuracy else "Performance",
        "dataset_link": blank("dataset_link"),
        "shared_src": blank("shared_src, as src/NAME"),
        "shared_docs": blank("shared_docs, as docs"),
        "seed_set": blank(f"seed_set: {rules.SEED_SET}"),
        "target_cohort": blank(f"target_cohort: one of {rules.COHORTS} for set {rules.SEED_SET}"),
        "runtime_settings": {
            "load_pattern": "concurrency",
            "min_duration_ms": round(rules.least_seconds(point.concurrency) * 1000),
            "stream_all_chunks": True,
            "runtime": {name: blank(f"{name}: {seed}") for name, seed in rules.SEEDS.items()},
        },
        "warmup": {
            name: blank(f"warm-up {name}")
            for name in ("duration_s", "requests_issued", "requests_completed", "data_source", "concurrency")
        },
        "steady_state": _steady_file(point.steady),
    }


def _steady_file(steady: Steady | None) -> dict[str, Any]:
    """The verdict on the measured window; without passes over a dataset there is none."""
    if steady is None:
        return {"status": "partial_dataset", "verdict": "not found"}
    tree: dict[str, Any] = {"status": steady.status, "verdict": steady.verdict}
    if steady.start is not None and steady.end is not None:
        tree["window"] = {
            "super_pass_start": steady.start,
            "super_pass_end": steady.end,
            "super_pass_size": steady.size,
            "n_samples": steady.steady_passes * steady.size,
            "duration_s": round(steady.seconds, 3),
        }
    return tree | {"state": dict(zip(("tpot_p50", "tpot_p90"), steady.states, strict=True))}


# --- the sweep that is missing


def missing(made: Rehearsal) -> list[int]:
    """The concurrencies that lack a steady window, and those that regions and number of points
    lack: in the middle of an uncovered region, or of the widest gap.
    """
    steady = {p.concurrency for p in made.points if p.steady is not None and p.steady.status == "windowable"}
    wanted = sorted({*made.concurrencies, *([] if made.concurrencies[0] <= rules.ULTRA_LOW else [1])})
    wanted += [] if wanted[-1] > rules.ULTRA_LOW else [2 * rules.ULTRA_LOW]
    regions = Regions.of(wanted[0], wanted[-1])
    for name in regions.uncovered(wanted):
        low, high = regions.spans[name]
        wanted = sorted({*wanted, max(2, min(high, round(math.sqrt(low * high))))})
    while len(wanted) < min(rules.POINTS, wanted[-1] - wanted[0] + 1):
        ratio, low = max((b / a, a) for a, b in itertools.pairwise(wanted) if b - a > 1)
        wanted = sorted({*wanted, round(low * math.sqrt(ratio))})
    return [c for c in wanted if c not in steady]


def missing_config(made: Rehearsal, run: Run) -> str:
    """The config of the sweep that is missing, with its hours. UsageError where nothing is, or
    where the dataset is not known.
    """
    if run.is_imported:
        raise UsageError("the run was imported, and its config names no server", "begin with  frontier init URL")
    if made.dataset is None:
        raise UsageError("the hours of a pass are not known without a dataset", "name one with  --benchmark")
    wanted = missing(made)
    if not wanted:
        raise UsageError("nothing is missing: every point has a steady window, and every region a point")
    hours = dict(zip(wanted, _hours(made, wanted, made.dataset.prompts), strict=True))
    longest = max(hours, key=lambda c: hours[c])
    file = made.dataset.key if made.benchmark is None else f"{made.dataset.key}.jsonl"
    least = max(map(rules.least_seconds, wanted))
    settings = {
        "prompts": json.dumps(file),
        "requests": f"{rules.PASSES} passes",
        "min_time": f"{least:.0f}s",
        "max_time": "24h",
        "concurrency": json.dumps(wanted),
        "repeats": "1",
        "refine": "0",
    }
    text = RunDirectory.read(run.path).config_text()
    total, most = (format_elapsed(3600 * each) for each in (sum(hours.values()), hours[longest]))
    line = '{"prompt": "...", "output_tokens": 128}'
    head = [
        rules.HEAD,
        f"About {total}, of which C={longest} takes {most}, at the speeds of {run.path}.",
        f"{file} is yours: {made.dataset.name}, {made.dataset.prompts:,} lines as  {line}",
    ]
    if len(run.config.shapes) * len(run.config.deployments) > 1:
        head.append(f"Sweep it with  --only '{made.series.shape.label}' --only '{made.series.deployment}'")
    given = [Setting.of(f"{key}={value}") for key, value in settings.items()]
    return "".join(f"# {clean(line, 500)}\n" for line in head) + config_text(text, "config.yaml", given)


def _hours(made: Rehearsal, concurrencies: Sequence[int], prompts: int) -> list[float]:
    """Hours of a run with a steady window at each concurrency. The rate between measured points is
    interpolated, to plan by.
    """
    rates = [math.log(point.request_rate) for point in made.points]
    found = np.interp(np.log(concurrencies), np.log(made.concurrencies), rates)
    passes = rules.PASSES * prompts / np.exp(found)
    return [max(float(p), rules.least_seconds(c)) / 3600 for p, c in zip(passes, concurrencies, strict=True)]
