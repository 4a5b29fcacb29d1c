"""One deployment of the study, and the table of all of them."""

import dataclasses
import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.calibration import rules
from benchmarks.calibration.servers import FAMILIES, Engine, Process, Server, make_trial
from frontier.analyze import pareto, stats, summarize, uncertainty, window
from frontier.analyze.sample import Sample
from frontier.model import Phase

RULES: dict[str, Callable[[Server, int], rules.Answer]] = {
    "search, 3 extra settings": lambda server, seed: rules.ours(server, seed, refine=3),
    "search, 6 extra settings": lambda server, seed: rules.ours(server, seed, refine=6),
    "proven grid, no search": rules.proven_grid,
    "largest passing p99 on the grid": rules.largest_passing,
    "bisection on the p99": rules.bisection,
    "bisection on the mean of 3 p99s": rules.bisection_of_means,
}
OURS = tuple(RULES)[:3]
OBJECTIVES = ("output_throughput", "p99_e2e")
COVERED = (
    *(f"{s}_{q}" for q in ("ttft", "tpot", "e2e") for s in ("p50", "p90", "p95", "p99")),
    "output_throughput", "request_throughput", "attainment",
)  # fmt: skip
Result = dict[str, Any]


def deployment(kind: str, family: str, seed: int, *, only: Sequence[str] = tuple(RULES)) -> Result:
    """Everything about one drawn deployment, JSON-able. `kind` is 'process' or 'engine'."""
    server: Server = Process.drawn(family, seed) if kind == "process" else Engine.drawn(family, seed)
    best = rules.best(server)
    answers: dict[str, Result] = {}
    for number, name in enumerate(only):
        answer = RULES[name](server, number + 1)
        c = answer.concurrency
        answers[name] = {
            "c": c,
            "verdict": answer.verdict,
            "requests": answer.requests,
            "excess": None if c is None else rules.excess(server, c),
            "share": None
            if best.concurrency is None
            else 0.0
            if c is None
            else server.truth(c)["output_throughput"] / best.throughput,
        }
    result: Result = {
        "kind": kind, "family": family, "seed": seed, "best": best.concurrency,
        "dense": rules.dense_grid_cost(server), "rules": answers,
    }  # fmt: skip
    if isinstance(server, Process):
        result["coverage"] = _coverage(server, seed)
        if seed % 4 == 0:
            result["frontier"] = _frontier(server)
    return result


def job(which: tuple[str, str, int]) -> Result:
    """`deployment`, for a pool of processes."""
    return deployment(*which)


def quiet() -> None:
    """Let a worker give way to everything else on the machine."""
    os.nice(19)
    warnings.simplefilter("ignore")


def _coverage(server: Process, seed: int) -> dict[str, list[bool | None]]:
    """At a random setting, from three windows: is the truth inside the interval, and below the one-sided bound?

    Once as drawn, where every run has a speed of its own, and once with runs that are alike.
    """
    rng = np.random.default_rng([seed, 5])
    c = int(rng.choice(rules.GRID))
    each = max(int(rng.choice([334, 1000])), 7 * c)
    alike = Process(dataclasses.replace(server.law, run_effect=0.0), server.family, server.limits, server.seed)
    found: dict[str, list[bool | None]] = {}
    for label, which in (("runs differ", server), ("runs alike", alike)):
        trials = [make_trial(which, c, Phase.GRID, repeat, each) for repeat in (1, 2, 3)]
        sample = window.join([which.trial(t, 900_000 + i) for i, t in enumerate(trials)])
        true = which.truth(c)
        for name in COVERED:
            e = summarize.estimate(sample, name, limits=which.limits)
            if e is not None and name in true and math.isfinite(e.high - e.low):
                inside = e.low <= true[name] <= e.high
                found[f"{name}|{label}"] = [inside, true[name] <= e.upper if math.isfinite(e.upper) else None]
    return found


def _frontier(server: Server) -> dict[str, bool]:
    """Is the true area under the measured settings, and the true staircase at its middle, inside what is published?"""
    samples: dict[int, Sample] = {}
    for c in rules.GRID:
        parts = [server.trial(make_trial(server, c, Phase.GRID, i, 350), 800_000 + i) for i in (1, 2, 3)]
        samples[c] = window.join(parts)
    true = {c: server.truth(c) for c in rules.GRID}
    gain, price = (np.array([true[c][name] for c in rules.GRID]) for name in OBJECTIVES)
    reference = (0.0, float(price.max()) * 1.05)
    drawn = uncertainty.replicates(samples, OBJECTIVES, draws=200)
    points = [[summarize.estimate(samples[c], name) for c in rules.GRID] for name in OBJECTIVES]
    values = [np.array([e.value if e is not None else math.nan for e in row]) for row in points]
    area = uncertainty.hypervolume(drawn, (values[0], values[1]), reference)
    middle = float(np.sqrt(price[3] * price[4]))  # between two settings, where the staircase is not at a step
    band = uncertainty.band(drawn, [middle])
    stair = float(gain[price <= middle].max())
    return {
        "area": area.low <= pareto.hypervolume(gain, price, reference) <= area.high,
        "band": bool(band.low[0] <= stair <= band.high[0]),
    }


def tables(results: Sequence[Result]) -> str:
    """The results as Markdown."""
    lines: list[str] = []
    for kind in ("process", "engine"):
        mine = [r for r in results if r["kind"] == kind]
        if mine:
            lines += [f"### {len(mine)} deployments, {kind} model", "", *_rule_table(mine), ""]
            lines += ["By family, for the search with 6 extra settings:", "", *_family_table(mine, OURS[1]), ""]
    lines += ["### Coverage of published intervals", "", *_coverage_table(results)]
    return "\n".join(lines) + "\n"


def _rule_table(results: Sequence[Result]) -> list[str]:
    lines = [
        "| rule | answered | break the SLA | by over 5 % | median share | where answered | requests / dense grid |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in (n for n in RULES if n in results[0]["rules"]):
        s = summary(results, name)
        lines.append(
            f"| {name} | {s['answered']} | {_percent(s['violations'], s['answered'])} | "
            f"{_percent(s['beyond'], s['answered'])} | {s['share']:.0%} | {s['share_answered']:.0%} | {s['cost']:.0%} |"
        )
    return lines


def _family_table(results: Sequence[Result], name: str) -> list[str]:
    lines = ["| family | deployments | answered | break the SLA | median share |", "|---|---|---|---|---|"]
    for family in FAMILIES:
        mine = [r for r in results if r["family"] == family]
        if mine:
            s = summary(mine, name)
            share = "–" if math.isnan(s["share"]) else f"{s['share']:.0%}"
            lines.append(
                f"| {family.replace('_', ' ')} | {len(mine)} | {s['answered']} | "
                f"{_percent(s['violations'], s['answered'])} | {share} |"
            )
    return lines


def _coverage_table(results: Sequence[Result]) -> list[str]:
    lines = ["| interval | nominal | n | holds the truth |", "|---|---|---|---|"]
    for name, (nominal, hits, n) in sorted(coverage(results).items()):
        lines.append(f"| {name} | {nominal} | {n} | {hits / n:.1%} |")
    return lines


def coverage(results: Sequence[Result]) -> dict[str, tuple[str, int, int]]:
    """Per kind of interval: its nominal coverage, how often it held the truth, of how many."""
    groups: dict[str, tuple[str, list[bool]]] = {}
    for r in results:
        for key, (both, upper) in r.get("coverage", {}).items():
            name, _, label = key.partition("|")
            kind = name.partition("_")[0] if name[0] == "p" else name.replace("_", " ")
            groups.setdefault(f"{kind}, {label}", ("95 %", []))[1].append(both)
            if kind == "p99" and upper is not None:
                groups.setdefault(f"p99 upper bound, {label}", (">= 95 %", []))[1].append(upper)
        for name, inside in r.get("frontier", {}).items():
            label, nominal = {"area": ("area under the frontier", "95 %"), "band": ("attainment band", "90 %")}[name]
            groups.setdefault(f"{label}, runs differ", (nominal, []))[1].append(inside)
    return {name: (nominal, sum(held), len(held)) for name, (nominal, held) in groups.items()}


def summary(results: Sequence[Result], name: str) -> Mapping[str, float]:
    """A rule's counts and medians over these deployments. `share` counts no answer as nothing, where one exists."""
    mine = [r["rules"][name] for r in results]
    answered = [m for m in mine if m["c"] is not None]
    shares = [m["share"] for m in mine if m["share"] is not None]
    given = [m["share"] for m in answered if m["share"] is not None]
    return {
        "answered": len(answered),
        "violations": sum(m["excess"] > 1 for m in answered),
        "beyond": sum(m["excess"] > 1.05 for m in answered),
        "share": float(np.median(shares)) if shares else math.nan,
        "share_answered": float(np.median(given)) if given else math.nan,
        "cost": float(np.mean([m["requests"] / r["dense"] for m, r in zip(mine, results, strict=True)])),
    }


def _percent(hits: float, n: float) -> str:
    """'3.1 % (31)', with the 95 % upper bound where nothing was seen."""
    if not n:
        return "–"
    if not hits:
        return f"0 (< {stats.clopper_pearson(0, n)[1]:.1%})"
    return f"{hits / n:.1%} ({hits:.0f})"
