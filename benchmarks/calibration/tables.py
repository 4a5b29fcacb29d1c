"""The study's results as counts, and as the Markdown of docs/calibration.md."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.calibration.servers import FAMILIES
from benchmarks.calibration.study import OURS, RULES, Result
from frontier.stats import intervals

NOMINAL = {
    "area": ("area under the frontier", "95 %"),
    "band": ("attainment band, at one latency", "90 %"),
    "ratio": ("A against B: ratio of areas", "95 %"),
    "verdict": ("A against B: better or worse is true", "> 97.5 %"),
    "bracket": ("A against B: bracket at equal latency", ">= 95 %"),
    "lines": ("A against B: straight lines at equal latency", "95 %"),
}


def tables(results: Sequence[Result]) -> str:
    """Everything, as Markdown."""
    lines: list[str] = []
    for kind, model in (("process", "process model"), ("engine", "embedded engine")):
        mine = [r for r in results if r["kind"] == kind]
        if mine:
            lines += [f"### {len(mine):,} deployments, {model}", "", *_rule_table(mine), ""]
            lines += ["By family, for the search with 6 extra settings:", "", *_family_table(mine, OURS[1]), ""]
    lines += ["### Coverage of published intervals", "", *_coverage_table(results), ""]
    lines += ["By family, the two-sided intervals of a single setting together:", "", *_coverage_by_family(results)]
    return "\n".join(lines) + "\n"


def _rule_table(results: Sequence[Result]) -> list[str]:
    heads = ("rule", "answered", "break the SLA", "by over 5 %", "median share of best", "where answered",
             "requests / dense grid", "minutes / dense grid")  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name in (n for n in RULES if n in results[0]["rules"]):
        s = summary(results, name)
        lines.append(
            f"| {name} | {s['answered']} | {_percent(s['violations'], s['answered'])} | "
            f"{_percent(s['beyond'], s['answered'])} | {s['share']:.0%} | {s['share_answered']:.0%} | "
            f"{s['cost']:.0%} | {s['time']:.0%} |"
        )
    return lines


def _family_table(results: Sequence[Result], name: str) -> list[str]:
    lines = [
        "| family | deployments | answered | break the SLA | by over 5 % | median share |",
        "|---|---|---|---|---|---|",
    ]
    for family in FAMILIES:
        mine = [r for r in results if r["family"] == family]
        if mine:
            s = summary(mine, name)
            share = "–" if math.isnan(s["share"]) else f"{s['share']:.0%}"
            lines.append(
                f"| {family.replace('_', ' ')} | {len(mine)} | {s['answered']} | "
                f"{_percent(s['violations'], s['answered'])} | {_percent(s['beyond'], s['answered'])} | {share} |"
            )
    return lines


def _coverage_table(results: Sequence[Result]) -> list[str]:
    lines = ["| interval | nominal | given | holds the truth |", "|---|---|---|---|"]
    for name, (nominal, hits, n, asked) in sorted(coverage(results).items()):
        lines.append(f"| {name} | {nominal} | {n} of {asked} | {hits / n:.1%} |")
    return lines


def _coverage_by_family(results: Sequence[Result]) -> list[str]:
    labels = ("runs differ", "runs alike")
    lines = [f"| family | {' | '.join(labels)} |", "|---" * (1 + len(labels)) + "|"]
    for family in FAMILIES:
        mine = [item for r in results if r["family"] == family for item in r.get("coverage", {}).items()]
        held = [[both for key, (both, _) in mine if key.endswith(label) and both is not None] for label in labels]
        if all(held):
            lines.append(f"| {family.replace('_', ' ')} | {' | '.join(f'{np.mean(h):.1%}' for h in held)} |")
    return lines


def coverage(results: Sequence[Result]) -> dict[str, tuple[str, int, int, int]]:
    """Per kind of interval: its nominal coverage, how often it held the truth, of how many given, of how many asked."""
    groups: dict[str, tuple[str, list[bool | None]]] = {}
    for r in results:
        for key, (both, upper) in r.get("coverage", {}).items():
            name, _, label = key.partition("|")
            statistic = name.partition("_")[0]
            kind = statistic if statistic in ("mean", "p50", "p90", "p95", "p99") else name.replace("_", " ")
            groups.setdefault(f"{kind}, {label}", ("95 %", []))[1].append(both)
            if kind in ("p95", "p99"):
                groups.setdefault(f"{kind} upper bound, {label}", (">= 95 %", []))[1].append(upper)
        for name, inside in r.get("frontier", {}).items():
            label, nominal = NOMINAL[name]
            groups.setdefault(f"{label}, runs differ", (nominal, []))[1].append(inside)
    known = {name: (nominal, [h for h in held if h is not None], len(held)) for name, (nominal, held) in groups.items()}
    return {name: (nominal, sum(held), len(held), asked) for name, (nominal, held, asked) in known.items() if held}


def summary(results: Sequence[Result], name: str) -> Mapping[str, float]:
    """A rule's counts and medians over these deployments. `share` counts no answer as nothing, where one exists."""
    mine = [(r["rules"][name], r) for r in results]
    answered = [m for m, _ in mine if m["c"] is not None]
    shares = [m["share"] for m, _ in mine if m["share"] is not None]
    given = [m["share"] for m in answered if m["share"] is not None]
    return {
        "answered": len(answered),
        "violations": sum(m["excess"] > 1 for m in answered),
        "beyond": sum(m["excess"] > 1.05 for m in answered),
        "share": float(np.median(shares)) if shares else math.nan,
        "share_answered": float(np.median(given)) if given else math.nan,
        "cost": float(np.mean([m["requests"] / r["dense"] for m, r in mine])),
        "time": float(np.mean([m["seconds"] / r["dense_seconds"] for m, r in mine])),
    }


def _percent(hits: float, n: float) -> str:
    """'3.1 % (31)', with the 95 % upper bound where nothing was seen."""
    if not n:
        return "–"
    if not hits:
        return f"0 (< {intervals.clopper_pearson(0, n)[1]:.1%})"
    return f"{hits / n:.1%} ({hits:.0f})"
