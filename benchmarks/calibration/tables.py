"""The study's results: counts, and Markdown (docs/validation/calibration.md has the main ones)."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.calibration.servers import EVERY, FAMILIES
from benchmarks.calibration.study import OURS, RULES, SHIPPED, Result
from frontier.core.stats import intervals

NOMINAL = {
    "band": ("attainment band, at one latency", "90%"),
    "verdict": ("A against B: better or worse is true", "> 95%"),
    "output_throughput ratio": ("A against B: output throughput at the same load", "95%"),
    "p99_e2e ratio": ("A against B: p99 E2E at the same load", "95%"),
}


FIRST = FAMILIES[:7]
"""The families whose published intervals were always counted; in the others the truth is wider than
one night."""
SEEN = 0.003
"""Share of rare stalls below which an answer has to be found."""


class Requirement(NamedTuple):
    """At most the share `allowed` of `n` may be `bad`: as observed, or with this confidence where
    one is given.
    """

    name: str
    asked: str
    got: str
    bad: int
    n: int
    allowed: float
    confidence: float | None = None

    @property
    def ok(self) -> bool:
        """Whether it is met; nothing of none is."""
        if self.confidence is None:
            return self.bad <= self.allowed * self.n
        return not self.broken(self.confidence)

    def broken(self, confidence: float = 0.99) -> bool:
        """Whether it is surely not met: the one-sided lower bound of the bad share is above what is
        allowed.
        """
        return intervals.clopper_pearson(self.bad, self.n, confidence)[0] > self.allowed


def tables(results: Sequence[Result]) -> str:
    """Everything, as Markdown."""
    lines: list[str] = []
    for kind, model in (("process", "process model"), ("engine", "embedded engine")):
        mine = [r for r in results if r["kind"] == kind]
        rules = [name for name in RULES if mine and name in mine[0]["rules"]]
        if not rules:
            continue
        lines += [f"### {len(mine):,} deployments, {model}", "", *_rule_table(mine, rules), ""]
        for name in (n for n in rules if n in OURS):
            lines += [f"By family, {name}:", "", *_family_table(mine, name), ""]
        if SHIPPED in rules:
            lines += ["Rare stalls by their true share, answer first:", "", *_stall_table(mine, SHIPPED), ""]
            lines += ["What is asked of it:", "", *_requirement_table(requirements(mine)), ""]
    counted = [r for r in results if r["family"] in FIRST]
    if coverage(counted):
        lines += ["### Coverage of published intervals", "", "The first seven families:", "", *_coverage_table(counted)]
        lines += ["", "By family, the two-sided intervals of a single setting together:", ""]
        lines += _coverage_by_family(results)
    return "\n".join(lines) + "\n"


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    return [f"| {' | '.join(map(str, row))} |" for row in (heads, ["---"] * len(heads), *rows)]


def _rule_table(results: Sequence[Result], rules: Sequence[str]) -> list[str]:
    heads = (
        "rule",
        "answered where it should",
        "answers",
        "break the SLA",
        "by over 5%",
        "share of best: median (mean)",
        "minutes over reference: median (90th percentile)",
        "to the end",
        "requests",
    )
    rows = [(name, *_row(summary(results, name), minutes=True)) for name in rules]
    announced = [
        (f"{name}, when announced", *_row(summary(results, name, announced=True), minutes=True))
        for name in rules
        if name == SHIPPED
    ]
    return _table(heads, [*announced, *rows])


def _family_table(results: Sequence[Result], name: str) -> list[str]:
    heads = (
        "family",
        "deployments",
        "answered where it should",
        "answers",
        "break the SLA",
        "at least (95%)",
        "by over 5%",
        "share of best",
        "minutes over reference",
    )
    rows = []
    for family in EVERY:
        mine = [r for r in results if r["family"] == family]
        if mine:
            s = summary(mine, name)
            should, answers, broken, beyond, share, minutes = _row(s, minutes=False)
            least = f"{intervals.clopper_pearson(s['broken'], s['answers'])[0]:.1%}"
            rows.append((family.replace("_", " "), len(mine), should, answers, broken, least, beyond, share, minutes))
    return _table(heads, rows)


def _row(s: Mapping[str, float], *, minutes: bool) -> tuple[str, ...]:
    def both(kind: str, form: str) -> str:
        middle, other = s[kind], s[f"{kind}_2"]
        return "–" if math.isnan(middle) else f"{middle:{form}} ({other:{form}})"

    cells = (
        _percent(s["answered"], s["should"]),
        f"{s['answers']:.0f}",
        _percent(s["broken"], s["answers"]),
        _percent(s["beyond"], s["answers"]),
        both("share", ".0%"),
        both("early", ".1f"),
    )
    return (*cells, both("end", ".1f"), f"{s['requests']:,.0f}") if minutes else cells


def _stall_table(results: Sequence[Result], name: str) -> list[str]:
    heads = (
        "true share",
        "deployments",
        "announced",
        "of these wrong",
        "final results",
        "of these wrong",
        "request lifetimes, median",
    )
    rows = []
    for label, low, high in (("under 0.3%", 0, SEEN), ("0.3 to 1%", SEEN, 0.01), ("above 1%", 0.01, 1)):
        mine = [r["rules"][name] for r in results if r["family"] == "rare_stalls" and low <= r["touched"] < high]
        early = [a for a in mine if a["early_c"] is not None]
        final = [a for a in mine if a["c"] is not None and a["stage"] == "final"]
        turns = [a["turns"] for a in mine if a["turns"]]
        rows.append(
            (
                label,
                len(mine),
                len(early),
                _percent(sum(a["early_excess"] > 1 for a in early), len(early)),
                len(final),
                _percent(sum(a["excess"] > 1 for a in final), len(final)),
                f"{np.median(turns):.0f}" if turns else "–",
            )
        )
    return _table(heads, rows)


def _requirement_table(asked: Sequence[Requirement]) -> list[str]:
    return _table(("", "asked", "is", ""), ((r.name, r.asked, r.got, "yes" if r.ok else "**no**") for r in asked))


def requirements(results: Sequence[Result], name: str = SHIPPED) -> list[Requirement]:
    """What is required of a rule, then its goals, each with what came out."""
    s = summary(results, name)
    answers, exists = int(s["answers"]), [r for r in results if _exists(r)]
    missed = int(s["should"] - s["answered"])
    found = [
        Requirement("break the SLA", "<= 5%", _percent(s["broken"], answers), int(s["broken"]), answers, 0.05),
        Requirement("by over 5%", "<= 1%", _percent(s["beyond"], answers), int(s["beyond"]), answers, 0.01),
    ]
    families = [f for f in EVERY if any(r["family"] == f for r in results)]
    by_family = {family: summary([r for r in results if r["family"] == family], name) for family in families}
    for family, of in by_family.items():
        hits, n = int(of["broken"]), int(of["answers"])
        least = f"at least {intervals.clopper_pearson(hits, n)[0]:.1%}"
        found.append(
            Requirement(f"{family.replace('_', ' ')}: break the SLA", "<= 5% (95%)", least, hits, n, 0.05, 0.95)
        )
    answered = _percent(s["answered"], s["should"])
    found.append(Requirement("answered where it should", ">= 95%", answered, missed, int(s["should"]), 0.05))
    worst = sorted(coverage([r for r in results if r["family"] in FIRST]).items(), key=lambda kv: _slack(*kv[1][:3]))
    for kind, (nominal, held, n, _) in worst[:1]:
        goal = _goal(nominal)
        got = f"{held / n:.1%} ({kind})"
        found.append(Requirement("lowest coverage of an interval", f">= {goal:.0%}", got, n - held, n, 1 - goal))
    times = np.array([r["rules"][name]["early_seconds"] / r["reference"] for r in exists])
    shares = np.array([r["rules"][name]["share"] for r in exists])
    for what, asked, got, bad, allowed in (
        ("minutes over reference, median", "<= 5", f"{s['early']:.1f}", times > 5, 0.5),
        ("minutes over reference, 90th percentile", "<= 15", f"{s['early_2']:.1f}", times > 15, 0.1),
        ("share of best, median", ">= 93%", f"{s['share']:.0%}", shares < 0.93, 0.5),
    ):
        found.append(Requirement(what, asked, got, int(bad.sum()), len(exists), allowed))
    for family, of in by_family.items():
        mine = [r["rules"][name]["share"] for r in exists if r["family"] == family]
        if mine:
            low = sum(share < 0.85 for share in mine)
            what = f"{family.replace('_', ' ')}: share of best, median"
            found.append(Requirement(what, ">= 85%", f"{of['share']:.0%}", low, len(mine), 0.5))
    return found


def _goal(nominal: str) -> float:
    """The least coverage that a nominal one has to have in the study."""
    return 0.87 if nominal == "90%" else 0.93


def _slack(nominal: str, held: int, n: int) -> float:
    return held / n - _goal(nominal)


def _coverage_table(results: Sequence[Result]) -> list[str]:
    lines = ["| interval | nominal | given | holds the truth |", "|---|---|---|---|"]
    for name, (nominal, hits, n, asked) in sorted(coverage(results).items()):
        lines.append(f"| {name} | {nominal} | {n} of {asked} | {hits / n:.1%} |")
    return lines


def _coverage_by_family(results: Sequence[Result]) -> list[str]:
    labels = ("runs differ", "runs alike")
    lines = [f"| family | {' | '.join(labels)} |", "|---" * (1 + len(labels)) + "|"]
    for family in EVERY:
        mine = [item for r in results if r["family"] == family for item in r.get("coverage", {}).items()]
        held = [[both for key, (both, _) in mine if key.endswith(label) and both is not None] for label in labels]
        if all(held):
            lines.append(f"| {family.replace('_', ' ')} | {' | '.join(f'{np.mean(h):.1%}' for h in held)} |")
    return lines


def coverage(results: Sequence[Result]) -> dict[str, tuple[str, int, int, int]]:
    """Per kind of interval: its nominal coverage, how often it held the truth, of how many given,
    of how many asked.
    """
    groups: dict[str, tuple[str, list[bool | None]]] = {}
    for r in results:
        for key, (both, upper) in r.get("coverage", {}).items():
            name, _, label = key.partition("|")
            statistic = name.partition("_")[0]
            kind = statistic if statistic in ("mean", "p50", "p90", "p95", "p99") else name.replace("_", " ")
            groups.setdefault(f"{kind}, {label}", ("95%", []))[1].append(both)
            if kind in ("p95", "p99"):
                groups.setdefault(f"{kind} upper bound, {label}", (">= 95%", []))[1].append(upper)
        for name, inside in r.get("frontier", {}).items():
            label, nominal = NOMINAL[name]
            groups.setdefault(f"{label}, runs differ", (nominal, []))[1].append(inside)
    known = {name: (nominal, [h for h in held if h is not None], len(held)) for name, (nominal, held) in groups.items()}
    return {name: (nominal, sum(held), len(held), asked) for name, (nominal, held, asked) in known.items() if held}


def summary(results: Sequence[Result], name: str, *, announced: bool = False) -> Mapping[str, float]:
    """A rule's counts and medians over these deployments.

    `answered` of those where it `should`: an answer exists, more than 5% from what one user meets.
    Of the `answers` named at the end (or `announced` first) those are `broken` whose truth is over
    the limit, and `beyond` by more than 5%; where stalls are rare only final claims count. `share`
    (median) and `share_2` (mean) count no answer as nothing, where one exists. `early` and `end`
    are medians of the time over the reference, `_2` the 90th percentile.
    """
    prefix = "early_" if announced else ""
    c, excess, share = f"{prefix}c", f"{prefix}excess", f"{prefix}share"
    exists = [(r["rules"][name], r) for r in results if _exists(r)]
    should = [a for a, r in exists if r["alone"] < 0.95]
    answers = [
        a
        for r in results
        if (a := r["rules"][name])[c] is not None
        and (r["family"] != "rare_stalls" or (a["stage"] != "early" and not announced))
    ]
    shares = [a[share] for a, _ in exists]
    early, end = ([a[key] / r["reference"] for a, r in exists] for key in ("early_seconds", "seconds"))
    found = {
        "should": len(should),
        "answered": sum(a[c] is not None for a in should),
        "answers": len(answers),
        "broken": sum(a[excess] > 1 for a in answers),
        "beyond": sum(a[excess] > 1.05 for a in answers),
        "requests": float(np.median([r["rules"][name]["requests"] for r in results])),
    }
    found["share"], found["share_2"] = -_at(0.5, [-share for share in shares]), float(np.mean(shares or [math.nan]))
    for key, times in (("early", early), ("end", end)):
        found[key], found[f"{key}_2"] = _at(0.5, times), _at(0.9, times)
    return found


def _exists(result: Result) -> bool:
    """Whether there is an answer to be found: a setting within the SLA, and no stalls that only a
    long night shows.
    """
    return result["best"] is not None and (result["family"] != "rare_stalls" or result["touched"] < SEEN)


def _at(p: float, values: Sequence[float]) -> float:
    """The percentile p, as one of the values, so that it is within a limit when enough of them
    are.
    """
    return float(np.quantile(values, p, method="inverted_cdf")) if values else math.nan


def _percent(hits: float, n: float) -> str:
    """'3.1% (31)', with the 95% upper bound where nothing was seen."""
    if not n:
        return "–"
    if not hits:
        return f"0 (< {intervals.clopper_pearson(0, n)[1]:.1%})"
    return f"{hits / n:.1%} ({hits:.0f})"
