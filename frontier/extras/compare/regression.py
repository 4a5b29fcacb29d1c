"""Regression gate and trend: runs read as dated measurements, and what both have to say."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from frontier.core.estimates.estimate import estimate
from frontier.core.model.decisions import Limit
from frontier.core.model.errors import UsageError
from frontier.core.model.groups import by_key
from frontier.core.model.loads import Load
from frontier.core.model.metrics import metric
from frontier.core.model.series import Series, by_series
from frontier.core.model.text import clean, clean_name
from frontier.core.model.trials import Phase
from frontier.core.model.units import format_share
from frontier.core.window import window
from frontier.core.window.window import WindowData
from frontier.extras.compare import gate as judging
from frontier.extras.compare.comparison_tables import partners, two_deployments
from frontier.extras.compare.gate import (
    CAUGHT,
    MISS,
    AtProven,
    Gate,
    GateRules,
    Measured,
    MetricChange,
    family_size,
    judged_metrics,
)
from frontier.extras.compare.trend import trend
from frontier.planning.next_step import ENOUGH_FOR_PROOFS, least_to_prove
from frontier.run import Run
from frontier.show.view.comparison_view import ComparisonView, TrendView
from frontier.show.view.json_out import tree_of
from frontier.show.view.wording import beside_limit, bound_text, count, limit_value_text
from frontier.store.journal import servers
from frontier.store.run_dir import RunDirectory

GATE_SCHEMA = "frontier.gate/1"

# --- runs as dated measurements


def measured(
    runs: Iterable[Run], limits: Sequence[Limit], *, point_estimates: bool = False
) -> dict[Series, list[Measured]]:
    """Each run as one dated measurement per series. Runs are read one at a time, as many of them do
    not fit into memory. With `point_estimates` values alone decide what is `proven`.
    """
    histories: dict[Series, list[Measured]] = {}
    for run in runs:
        points = run.points(limits)
        decided = run.solve(limits, point_estimates=point_estimates) if limits else ()
        proven = {d.series: d.load for d in decided if run.histories or point_estimates}
        for series, mine in by_series(points).items():
            values = {p.load: p.metrics for p in mine if p.valid}
            excluded = frozenset(p.load for p in mine if not p.valid)
            name, begun = clean_name(run.path.name), _begun(run, run.samples(series).values())
            one = Measured(name, begun, _key(run, series.deployment), values, excluded, proven.get(series))
            histories.setdefault(series, []).append(one)
    return histories


def _begun(run: Run, samples: Iterable[WindowData]) -> float:
    """The unix time of the run's first window; for an import, or a run in virtual time, that of the
    run directory.
    """
    first = min((float(sample.starts.min()) for sample in samples), default=0.0)
    return first if first > 1e8 else float(run.manifest.get("created", 0.0))


def _key(run: Run, deployment: str) -> dict[str, str]:
    """What was measured, as far as the run knows it."""
    mine = next((d for d in run.config.deployments if d.name == deployment), None)
    if mine is None:
        return {}
    body = " ".join(f"{name}={value}" for name, value in {**(mine.simulator or {}), **mine.extra_body}.items())
    load = run.config.load()
    key = {
        "device": mine.devices or (run.manifest.get("client") if mine.is_simulator else None),
        "engine": servers(RunDirectory.read(run.path).journal_lines()).get(deployment),
        "flags": " ".join(filter(None, (mine.start, body))),
        "model": mine.model,
        "load": f"prompts={load['prompts']} ignore_eos={load['ignore_eos']}",
    }
    return {name: clean(str(text), 4_000) for name, text in key.items() if text is not None}


def _repeats(run: Run, series: Series) -> dict[int, Measured]:
    """Each repeat of a run's grid as a measurement of its own, with the settings that are usable in
    the whole run.
    """
    points = [p for p in run.points() if p.series == series]
    usable, excluded = ({p.load for p in points if p.valid is wanted} for wanted in (True, False))
    grid = ((trial, sample) for trial, sample in run.histories[series] if trial.phase is Phase.GRID)
    repeats = by_key((trial.repeat, (trial.load, sample)) for trial, sample in grid)
    made = {}
    for repeat, samples in ((repeat, dict(settings)) for repeat, settings in repeats.items()):
        names = ("output_throughput", "p50_ttft", "p50_tpot", "p50_e2e")
        values = {
            c: {n: e for n in names if (e := estimate(s, n)) is not None} for c, s in samples.items() if c in usable
        }
        begun = min(float(s.starts.min()) for s in samples.values())
        made[repeat] = Measured(f"repeat {repeat}", begun, _key(run, series.deployment), values, frozenset(excluded))
    return made


# --- the gate


def gate_runs(
    base: Iterable[Run],
    new: Sequence[Run],
    *,
    allow: float,
    limits: Sequence[Limit],
    names: tuple[str, str],
    spread: float | None = None,
) -> list[Gate]:
    """NEW against BASE for each series that both measured. Runs that alternate in time are judged
    in pairs; otherwise only the stated `spread` of runs gives the uncertainty of a difference.
    """
    old, fresh = measured(base, limits), measured(new, limits)
    matched = partners(old, fresh)
    if not matched:
        raise UsageError(f"{names[1]} and {names[0]} measured nothing in common", "sweep the same shapes on both sides")
    rules = GateRules(judged_metrics(limits), allow, family_size(len(matched), limits), tuple(limits), spread)
    gates = []
    for a, b in matched:
        pairs = judging.in_turn(old[a], fresh[b])
        left, right = (old[a], fresh[b]) if pairs is None else ([p[i] for p in pairs] for i in (0, 1))
        # The least that BASE proved on any day: the best of several would be a lucky pick. A day on
        # which nothing was proven, as one cut short, is no reason not to judge the SLA.
        proven = min((one.proven for one in left if one.proven), default=None)
        design: judging.Design = "history" if pairs is None else "in turn"
        made = judging.gate(left, right, rules, design, b.shape, names, proven, _joined(new, b))
        gates.append(_elsewhere(made, new[-1], b, limits))
    return gates


def gate_deployments(run: Run, named: Sequence[str], *, allow: float, limits: Sequence[Limit]) -> list[Gate]:
    """The second of two deployments of one run against the first, in pairs of repeats."""
    names = two_deployments(run, named)
    shapes = [s for d, s in run.histories if d == names[1] and Series(names[0], s) in run.histories]
    proven = {d.series: d.load for d in run.solve(limits)} if limits else {}
    rules = GateRules(judged_metrics(limits), allow, family_size(len(shapes), limits), tuple(limits))
    gates = []
    for shape in shapes:
        a, b = (Series(name, shape) for name in names)
        left, right = _in_pairs(run, a, b)
        made = judging.gate(left, right, rules, "repeats", shape, names, proven.get(a), _joined([run], b))
        gates.append(_elsewhere(made, run, b, limits))
    return gates


def _in_pairs(run: Run, a: Series, b: Series) -> tuple[list[Measured], list[Measured]]:
    """The repeats of the grid that both series of a run finished, in pairs. UsageError where there
    are no repeats, or where they were not measured in turn.
    """
    of_a, of_b = _repeats(run, a), _repeats(run, b)
    numbers = sorted(of_a.keys() & of_b.keys())
    if not numbers:
        what = f"{run.path} has no repeat of the grid that both deployments finished"
        raise UsageError(what, "add  repeats: 10  to its config")
    left, right = ([side[n] for n in numbers] for side in (of_a, of_b))
    began = [[one.at for one in side] for side in (left, right)]
    if max(began[0]) < min(began[1]) or max(began[1]) < min(began[0]):
        what = f"{run.path} measured {a.deployment} and {b.deployment} one after the other, not in turn"
        raise UsageError(what, "sweep each into runs of its own, in turn, and name two folders of runs")
    return left, right


def _joined(runs: Sequence[Run], series: Series) -> dict[Load, WindowData]:
    """The usable window data of several runs by concurrency."""
    usable = ((run, {p.load for p in run.points() if p.series == series and p.valid}) for run in runs)
    parts = by_key((c, sample) for run, loads in usable for c, sample in run.samples(series).items() if c in loads)
    return {c: window.join(samples) for c, samples in parts.items()}


def gate_views(gates: Sequence[Gate], allow: float) -> list[ComparisonView]:
    """What each gate has to say: its verdict with the evidence, and a row for each judgement."""
    rates = f"An unchanged server is called worse in {judging.ALARM:.0%} of cases at most, and a loss larger than "
    rates += f"allowed passes in {MISS:.0%}."
    return [
        ComparisonView(
            one.verdict,
            f"{one.b} against {one.a}",
            clean_name(one.shape.label),
            _evidence(one),
            (
                *(_change_row(change, allow, one.confidence) for change in one.changes),
                *([_proven_row(one.at_proven, allow)] if one.at_proven else []),
            ),
            (*one.notes, *_advice(one, allow)),
            (rates,),
            tree_of(one),
        )
        for one in gates
    ]


def _evidence(one: Gate) -> str:
    """The evidence of the verdict."""
    if one.breaks:
        return f"A break, not a regression: {'; '.join(one.breaks)}. Sweep both in turn to compare them."
    if not one.changes:
        return "No usable setting in common: see which are excluded, and why, with  frontier show"
    days = f"{one.a} was measured on {count(one.units, 'day')}"
    what = days if one.design == "history" else count(one.units, "pair") + " measured in turn"
    stated = "" if one.spread is None else f"; runs of one server are stated to differ by {_percent(one.spread)}"
    return f"{what}, at {', '.join(load.label for load in one.settings)}{stated}"


TELLS_NOTHING = 1.0
"""The change from which a bound is of no use: all of the throughput, or twice the latency."""


def _change_row(change: MetricChange, allow: float, confidence: float) -> tuple[str, ...]:
    of = metric(change.metric)
    if change.verdict == "worse":
        bound = f"worse by at least {_percent(change.at_least)} ({confidence:.1%})"
    elif math.isinf(change.at_most):
        bound = "no bound"
    elif change.at_most >= TELLS_NOTHING:
        bound = f"no bound near {_percent(allow)}"
    elif change.at_most <= 0:
        bound = f"not worse ({1 - MISS:.0%})"
    else:
        bound = f"worse by at most {_percent(change.at_most)} ({1 - MISS:.0%}), allowed {_percent(allow)}"
    caught = f"caught {_percent(change.smallest)}" if change.smallest < TELLS_NOTHING else ""
    return of.label, f"{-of.sign * change.value:+.1%}", bound, caught


def _proven_row(check: AtProven, allow: float) -> tuple[str, ...]:
    """The SLA at the concurrency that BASE proved, with the bound that decides."""
    label, word = (
        f"SLA at {(check.at or check.proven).label}",
        {"no worse": "kept", "worse": "broken"}.get(check.verdict, "not proven"),
    )
    if check.estimate is None:
        return label, word, "not measured there"
    value = f"{check.limit.of.label} {beside_limit(check.estimate.value, check.limit)}"
    sign = "+" if check.limit.better == "lower" else "-"
    wanted = f"limit {limit_value_text(check.limit.metric, check.limit.promise)} {sign} {_percent(allow)}"
    return label, word, f"{value}, {bound_text(check.estimate, check.limit)}, {wanted}"


def _elsewhere(one: Gate, run: Run, series: Series, limits: Sequence[Limit]) -> Gate:
    """The gate with a note where the SLA was not judged at the setting that BASE proved, and `run`
    could measure that setting in its `series`.
    """
    check = one.at_proven
    if check is None or check.at == check.proven:
        return one
    where = "" if check.at is None else f"; the SLA is judged at {check.at.label}, the next lower that both measured"
    again = f"frontier sweep CONFIG -o NEW --prove {check.proven.amount}"
    if run.again is not None and not check.proven.is_open:
        again, _ = run.again.to_prove(check.proven, limits, {series: least_to_prove(limits)}, ENOUGH_FOR_PROOFS)
    lacks = "excluded" if check.proven in run.samples(series, limits) else "not measured"
    return replace(
        one,
        notes=(
            *one.notes,
            f"{check.proven.label}, which {one.a} proved, is {lacks} in {one.b}{where}.",
            f"To judge it there:  {again}",
        ),
    )


def _advice(one: Gate, allow: float) -> list[str]:
    """The meaning of the last column, and what would decide where nothing is decided."""
    if not one.changes:
        return []
    if all(math.isinf(change.smallest) for change in one.changes):
        return [
            "How much runs of one server differ is not known: measure both in turn, two pairs at least,",
            "or state it as a standard deviation:  --spread 1%",
        ]
    legend = f"caught: the smallest loss that would raise an alarm in {CAUGHT:.0%} of cases."
    widest = max(change.smallest for change in one.changes)
    lines = [legend] if any(change.smallest < TELLS_NOTHING for change in one.changes) else []
    if one.verdict == "not resolved" and widest >= TELLS_NOTHING:
        lines.append(f"Too few requests to tell {_percent(allow)}: measure both longer.")
    elif one.verdict == "not resolved" and allow < widest:
        pairs = math.ceil(one.units * (widest / allow) ** 2)
        more = f"Runs differ too much to tell {_percent(allow)}: measure both in turn, or allow more."
        lines.append(more if one.design == "history" else f"About {pairs} pairs would tell {_percent(allow)}.")
    return lines


def _percent(share: float) -> str:
    return format_share(share) if abs(share) >= 1 else f"{share:.1%}"


# --- the trend


def trends_of(runs: Iterable[Run], limits: Sequence[Limit], *, point_estimates: bool = False) -> list[TrendView]:
    """The trend of each series over dated runs; `point_estimates` as in `measured`."""
    histories, names = measured(runs, limits, point_estimates=point_estimates), judged_metrics(limits)
    return [trend(mine, names, series, by_values=point_estimates) for series, mine in histories.items()]
