"""The result of a knob: the proven setting of each value, and the least energy within the SLA.

Energy is compared over the rounds, in pairs of windows. The value is picked after looking, so all
pairs of values share the error of 5%. A power that the config states is not used: it does not
change with the knob.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from frontier.config import DeploymentConfig
from frontier.core.claim.changes import spoilt
from frontier.core.claim.pareto import costs, exclusion, nondominated_nd
from frontier.core.estimates.estimate import estimate
from frontier.core.model.decisions import Decision
from frontier.core.model.loads import NO_LOAD
from frontier.core.model.metrics import metric
from frontier.core.model.points import Estimate, Point
from frontier.core.model.series import Series
from frontier.core.model.shapes import Shape
from frontier.core.model.text import clean
from frontier.core.stats.difference import in_pairs, variance
from frontier.core.window.window import WindowData
from frontier.extras.tune.knob_turns import rounds_of
from frontier.hardware import device_power
from frontier.run import Run
from frontier.show.table import Table
from frontier.show.view.json_out import tree_of
from frontier.show.view.wording import value_text
from frontier.store.run_dir import RunDirectory

ERROR = 0.05
"""The two-sided error that all pairs of values share."""
FEWEST = 3
"""Fewest rounds from which a difference gets an interval."""
_BY_LATENCY = "the values are compared by throughput against latency"
_NO_POWER = (
    f"Energy is not known, as nothing measured the power of each value: {_BY_LATENCY}. Name a device exporter in  "
    "metrics:,  or run it where nvidia-smi is."
)


@dataclass(frozen=True, slots=True)
class KnobValue:
    """A value of a knob under one shape, with its proven setting: its point with the metrics that
    are compared; None without one. `reason`: why there is none. `windows`: of each round.
    """

    name: str
    point: Point | None
    reason: str
    windows: Mapping[int, WindowData]


@dataclass(frozen=True, slots=True)
class KnobResult:
    """The values of a knob under one shape, the baseline first; `axes` are what they are compared
    by.
    """

    shape: Shape
    values: tuple[KnobValue, ...]
    axes: tuple[str, ...]

    @property
    def proven(self) -> list[KnobValue]:
        """The values with a proven setting."""
        return [value for value in self.values if value.point is not None]

    @property
    def has_energy(self) -> bool:
        """Whether the energy of every proven value is measured."""
        return "energy" in self.axes

    @property
    def members(self) -> list[str]:
        """The values that no other dominates."""
        metrics = [metric(name) for name in self.axes]
        points = [(v.name, v.point) for v in self.proven if v.point and exclusion(v.point, metrics) is None]
        if not points:
            return []
        mask = nondominated_nd(costs([p for _, p in points], metrics))
        return [name for (name, _), member in zip(points, mask, strict=True) if member]

    @property
    def least(self) -> KnobValue | None:
        """The value that took the least energy over the rounds of all; None where that is not
        known.
        """
        proven = self.proven
        shared = set.intersection(*(set(v.windows) for v in proven)) if proven and self.has_energy else set()
        totals = {v.name: [_worth(v.windows[n], "energy") for n in shared] for v in proven}
        known = {name: sum(filter(None, worths)) for name, worths in totals.items() if worths and None not in worths}
        return min(proven, key=lambda v: known[v.name]) if proven and len(known) == len(proven) else None

    def ratio(self, a: KnobValue, b: KnobValue, name: str) -> Estimate | None:
        """A metric of b over that of a, over the rounds that have both; None without any."""
        both = [(a.windows[n], b.windows[n]) for n in sorted(a.windows.keys() & b.windows.keys())]
        known = [(x, y) for x, y in ((_value(x, name), _value(y, name)) for x, y in both) if x and y]
        return ratio_in_turn(known, len(self.proven)) if known else None


def ratio_in_turn(rounds: Sequence[tuple[Estimate, Estimate]], values: int) -> Estimate:
    """The ratio of the second to the first over rounds of so many values, of which any may be
    picked: its interval is at the part of ERROR that each pair of values has.
    """
    floor = max(sum(v for v in map(variance, pair) if math.isfinite(v)) for pair in rounds)
    found = in_pairs([math.log(y.value / x.value) for x, y in rounds], floor)
    if len(rounds) < FEWEST:
        return Estimate.without_interval(math.exp(found.value), len(rounds))
    share = ERROR / math.comb(values, 2) / 2
    low, high = (math.exp(found.bound(p)) for p in (share, 1 - share))
    return Estimate(math.exp(found.value), low, high, len(rounds))


def _value(window: WindowData, name: str) -> Estimate | None:
    value = estimate(window, name)
    return value if value is not None and 0 < value.value < math.inf else None


def _worth(window: WindowData, name: str) -> float | None:
    value = _value(window, name)
    return None if value is None else math.log(value.value)


# ---- from a run


def results(run: Run) -> Iterator[KnobResult]:
    """The result under each shape of a run with a knob."""
    limits = run.limits()
    if not limits or not run.histories or all(d.apply is None for d in run.config.deployments):
        return
    latencies = [limit.metric for limit in limits if metric(limit.metric).quantity is not None]
    rate, latency = "output_throughput", (latencies[:1] or ["p99_ttft"])[0]
    known = _Known.of(run, ("energy", rate, latency))
    for shape in run.config.shapes:
        values = tuple(known.value(deployment, shape) for deployment in run.config.deployments)
        powers = [v.point.power for v in values if v.point is not None]
        energy = bool(powers) and all(power is not None and power.source == "measured" for power in powers)
        yield KnobResult(shape, values, (rate, "energy", latency) if energy else (rate, latency))


@dataclass(frozen=True, slots=True)
class _Known:
    """What a run knows: its decisions, its points by setting, the number of the round of each trial
    in one, and why nothing more was run on a deployment.
    """

    run: Run
    decisions: Mapping[Series, Decision]
    points: Mapping[tuple[Series, int], Point]
    rounds: Mapping[str, int]
    gone: Mapping[str, str]

    @classmethod
    def of(cls, run: Run, names: tuple[str, ...]) -> "_Known":
        lines = RunDirectory.read(run.path).journal_lines()
        return cls(
            run,
            {decision.series: decision for decision in run.solve()},
            {(point.series, point.load): point for point in run.points(names=names)},
            {key: number for number, keys in rounds_of(lines).items() for key in keys},
            {line["deployment"]: line["reason"] for line in lines if line["event"] == "given_up"},
        )

    def value(self, deployment: DeploymentConfig, shape: Shape) -> KnobValue:
        """The value of a deployment under a shape."""
        assert deployment.apply is not None
        series, name = Series(deployment.name, shape), f"{deployment.apply.name}={deployment.apply.value:g}"
        decision = self.decisions.get(series)
        chosen = None if decision is None else decision.load
        history = [(t, s) for t, s in self.run.histories.get(series, ()) if t.load == chosen and not spoilt(s)]
        windows = {self.rounds[t.key]: s for t, s in history if t.key in self.rounds}
        windows = dict(zip(windows, device_power.in_parts(list(windows.values())), strict=True))
        point = None if chosen is None else self.points.get((series, chosen))
        return KnobValue(name, point, self.gone.get(deployment.name) or _why(decision), windows)


def _why(decision: Decision | None) -> str:
    return "it was not measured" if decision is None else f"no setting is proven ({decision.verdict.value})"


# ---- for people and JSON


def result(run: Run) -> list[tuple[Table, str, Mapping[str, Any]]]:
    """The result under each shape: a table, what it shows, and both for JSON."""
    return [(_table(found), _sentences(found), _tree(found)) for found in results(run)]


def _table(found: KnobResult) -> Table:
    heads = ("value", "at", *(metric(name).label for name in found.axes), "")
    members, rows = found.members, []
    for value in found.values:
        if value.point is None:
            rows.append((value.name, "–", *("–" for _ in found.axes), clean(value.reason, 200)))
            continue
        figures = (_figure(value.point, name) for name in found.axes)
        standing = "not dominated" if value.name in members else "dominated"
        rows.append((value.name, value.point.load.label, *figures, standing))
    return Table.of(
        heads, rows, f"Values of the knob within the SLA, {found.shape.label}", right=range(2, len(heads) - 1)
    )


def _figure(point: Point, name: str) -> str:
    known = point.metrics.get(name)
    return value_text(name, None if known is None else known.value)


def _sentences(found: KnobResult) -> str:
    """What the values show, in sentences."""
    if not found.proven:
        return "No value is proven to keep the SLA at any load."
    if not found.has_energy:
        return _no_power(found)
    least, baseline = found.least, found.values[0]
    if least is None or least.point is None:
        what = "with its power" if all(value.windows for value in found.proven) else "yet"
        return f"Not every value was measured in turn {what}, so none is named for its energy."
    where = f"{least.name} at {least.point.load.label}, {_figure(least.point, 'energy')}"
    near = [v.name for v in found.proven if v is not least and not _apart(found.ratio(least, v, "energy"))]
    lines = [_headline(found, least, baseline, where)]
    if near:
        lines.append(f"Not told apart from it by energy: {', '.join(near)}.")
    rounds = min(len(v.windows) for v in found.proven)
    lines.append(f"Each value was measured {rounds} times in turn; the intervals hold for all pairs together.")
    return "\n".join(lines)


def _no_power(found: KnobResult) -> str:
    """Why energy is not known: too few readings of a value, or none at all."""
    points = ((value.name, value.point.flags) for value in found.proven if value.point is not None)
    unmeasured = ((name, flag) for name, flags in points for flag in flags if flag.name == "power_unmeasured")
    if (first := next(unmeasured, None)) is None:
        return _NO_POWER
    name, flag = first
    return f"Energy is not known: the power at {name} has {flag.measured}, and needs {flag.limit}; {_BY_LATENCY}."


def _headline(found: KnobResult, least: KnobValue, baseline: KnobValue, where: str) -> str:
    if baseline.point is None:
        return f"Least energy within the SLA: {where}. {baseline.name}, the baseline, has no proven setting."
    if least is baseline:
        return f"Least energy within the SLA: {where}, the baseline. No other value is shown to take less."
    energy, rate = (found.ratio(baseline, least, name) for name in ("energy", "output_throughput"))
    if energy is None or not energy.high < 1:
        saving = "" if energy is None else f": {_change(energy, 'fewer', 'more')} joules a token{_interval(energy)}"
        none = f"No value is shown to take less energy than {baseline.name}, the baseline."
        return f"{none} The best other is {where}{saving}."
    saved = f"{_change(energy, 'fewer', 'more')} joules a token than {baseline.name}{_interval(energy)}"
    cost = "" if rate is None else f", {_change(rate, 'less', 'more')} throughput{_interval(rate)}"
    return f"Least energy within the SLA: {where}: {saved}{cost}."


def _apart(ratio: Estimate | None) -> bool:
    return ratio is not None and ratio.has_interval and not ratio.low <= 1 <= ratio.high


def _change(ratio: Estimate, below: str, above: str) -> str:
    """'18% fewer'."""
    return f"{abs(1 - ratio.value):.0%} {below if ratio.value < 1 else above}"


def _interval(ratio: Estimate) -> str:
    """' (95% CI 15% to 21%)', in the direction of the change; an end beyond none is below 0."""
    if not ratio.has_interval:
        return " (no interval yet)"
    sign = -1 if ratio.value < 1 else 1
    low, high = sorted(sign * (end - 1) for end in (ratio.low, ratio.high))
    digits = 0 if high - low >= 0.02 else 1
    return f" (95% CI {low:.{digits}%} to {high:.{digits}%})"


def _tree(found: KnobResult) -> dict[str, Any]:
    least, baseline = found.least, found.values[0]
    energy, rate = (
        None if least is None or least is baseline else found.ratio(baseline, least, name)
        for name in ("energy", "output_throughput")
    )
    members = found.members
    return {
        "shape": found.shape.label,
        "axes": list(found.axes),
        "least_energy": None if least is None else least.name,
        "energy_ratio": tree_of(energy),
        "throughput_ratio": tree_of(rate),
        "values": [
            {
                "value": value.name,
                **(NO_LOAD if value.point is None else value.point.load).facts,
                "metrics": {} if value.point is None else {n: tree_of(value.point.metrics.get(n)) for n in found.axes},
                "dominated": None if value.point is None else value.name not in members,
                "rounds": len(value.windows),
                "reason": value.reason if value.point is None else None,
            }
            for value in found.values
        ],
    }
