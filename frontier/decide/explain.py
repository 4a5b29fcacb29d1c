"""The sentences that go with a decision: what binds, what the next setting did, what would decide."""

import dataclasses
import math
from collections.abc import Callable, Mapping

from frontier.decide.capacity import Capacity
from frontier.decide.verdict import RISING
from frontier.metrics import claim_floor, metric, undefined
from frontier.model import Decision, Estimate, Flag, Judgement, Limit, Point, Verdict
from frontier.stats import cost_energy
from frontier.units import roughly

_WORTH_SAYING = 0.01


def with_notes(decision: Decision, points: Mapping[int, Point], rate: str | None, point_estimates: bool) -> Decision:
    """The decision with its `notes` written."""
    notes: list[str] = _undefined(decision)
    if decision.concurrency is not None:
        notes += _chosen(decision, points, rate)
    else:
        notes += _nothing(decision, points)
    notes += _beside(decision, points, rate)
    notes += _oddities(decision, points)
    if point_estimates:
        notes.append("Decided on values alone, as asked: nothing here is proven.")
    return dataclasses.replace(decision, notes=tuple(notes))


def measured(estimate: Estimate | None, name: str) -> str:
    """'p99 TTFT 396 ms [373 ms, 438 ms]', or '... [373 ms, no upper bound]' where too few requests give none."""
    m = metric(name)
    if estimate is None or math.isnan(estimate.value):
        return f"{m.label} not measured"
    text = f"{m.label} {m.format(estimate.value)}"
    if math.isinf(estimate.low) and math.isinf(estimate.high) and estimate.low != estimate.high:
        return f"{text} (its doubt is not known)"
    low = "no lower bound" if estimate.low == -math.inf else m.format(estimate.low)
    open_above = estimate.high == math.inf and math.isfinite(estimate.value)
    return f"{text} [{low}, {'no upper bound' if open_above else m.format(estimate.high)}]"


def limit_text(limit: Limit) -> str:
    """'p99_ttft <= 500 ms'."""
    m = metric(limit.metric)
    return f"{limit.metric} {'<=' if m.better == 'lower' else '>='} {m.format(limit.promise)}"


def _against(point: Point, judgement: Judgement, limits: tuple[Limit, ...]) -> str:
    """The binding metric's value beside its limit."""
    name = judgement.binding or limits[0].metric
    limit = next(lim for lim in limits if lim.metric == name)
    return f"{measured(point.metrics.get(name), name)} against {metric(name).format(limit.promise)}"


def _judgement(decision: Decision, concurrency: int) -> Judgement:
    return next(j for j in decision.judgements if j.concurrency == concurrency)


def _chosen(d: Decision, points: Mapping[int, Point], rate: str | None) -> list[str]:
    assert d.concurrency is not None
    here = _judgement(d, d.concurrency)
    point = points[d.concurrency]
    left = f", {here.headroom:.0%} left" if here.headroom is not None and math.isfinite(here.headroom) else ""
    notes = [f"Binding: {_against(point, here, d.limits)}{left}."]
    if here.verdict is Verdict.MARGINAL:
        notes.append(f"Accepted although not proven, as asked: {_open(point, here, d.limits)}.")
    notes += _range(d, point)
    above = [c for c in points if c > d.concurrency]
    if not above:
        if all(j.verdict is Verdict.MEETS for j in d.judgements):
            notes.append(f"Every measured setting meets: the limit is above {d.concurrency}; add higher concurrencies.")
        else:
            notes.append(
                f"c={d.concurrency} is the highest measured: the limit may be above it; add higher concurrencies."
            )
        return notes
    if d.rejected is not None:
        notes.append(_rejected(d))
    beyond = min(above)
    if _judgement(d, beyond).verdict is not Verdict.MEETS or (d.first_fail is not None and beyond > d.first_fail):
        notes.append(_next(d, points, beyond, rate))
    elif d.first_fail is None and d.last_pass == max(points):
        notes.append(f"No measured setting violates: the limit is above {max(points)}.")
    elif d.first_fail is not None:
        notes.append(_next(d, points, d.first_fail, rate))
    if d.first_fail is not None and d.first_fail != beyond and d.last_pass is not None:
        notes.append(f"Bracket: c={d.last_pass} is the highest proven, c={d.first_fail} the lowest that violates.")
    return notes


def _rejected(d: Decision) -> str:
    step = d.rejected
    assert step is not None
    gain = f"{step.gain:+.1%} throughput"
    tail = f"{step.cost:.2g} x the {metric(step.metric).label}" if step.cost > 1 else "no more tail"
    if step.tie:
        return f"c={step.concurrency} also meets, with {gain} for {tail}: within the noise a tie, so the lower stays."
    return f"c={step.concurrency} also meets, but {gain} for {tail} is not worth the step."


def _undefined(d: Decision) -> list[str]:
    """Limits on what no request has."""
    names = dict.fromkeys(metric(limit.metric).label for limit in d.limits if undefined(limit.metric, d.shape))
    return [
        f"{name} is not defined at {d.shape.label}: an answer of one token has no second. "
        "Limit TTFT or E2E, or measure longer outputs."
        for name in names
    ]


def _next(d: Decision, points: Mapping[int, Point], concurrency: int, rate: str | None) -> str:
    """What a setting above the chosen one did."""
    point, judged = points[concurrency], _judgement(d, concurrency)
    gain = _gain(d, points, concurrency, rate)
    if judged.verdict is Verdict.VIOLATES:
        return f"c={concurrency} violates: {_against(point, judged, d.limits)}."
    if judged.verdict is Verdict.INVALID:
        return f"c={concurrency} was not usable: {_flags(point)}."
    return f"c={concurrency} {gain}is {judged.verdict.value}: {_open(point, judged, d.limits)}."


def _gain(d: Decision, points: Mapping[int, Point], concurrency: int, rate: str | None) -> str:
    if rate is None or d.concurrency is None or rate not in points[concurrency].metrics:
        return ""
    here, there = points[d.concurrency].metrics[rate].value, points[concurrency].metrics[rate].value
    return f"gives {there / here - 1:+.0%} throughput but " if here > 0 and math.isfinite(there) else ""


def _open(point: Point, judged: Judgement, limits: tuple[Limit, ...]) -> str:
    """Why a setting is undecided, and what would decide it."""
    name = judged.binding or limits[0].metric
    estimate = point.metrics.get(name)
    m = metric(name)
    if estimate is None or math.isnan(estimate.value):
        return f"{name} was not measured"
    floor = claim_floor(m.p) if m.p is not None else 0
    limit = next(lim for lim in limits if lim.metric == name)
    if (
        estimate.need is None
        and math.isinf(estimate.low)
        and math.isinf(estimate.high)
        and estimate.low != estimate.high
    ):
        return f"{_against(point, judged, limits)}; --point-estimates decides on the value alone"
    if estimate.need is not None or estimate.n < floor:
        need = max(estimate.need or 0, floor)
        if estimate.n < floor and _inside(estimate, limit):
            few = f"{estimate.n:,} requests prove no {m.label}, however good they look"
            return f"{_against(point, judged, limits)}, but {few}; about {roughly(need)} can"
        return f"{estimate.n:,} requests cannot bound {m.label} ({m.format(estimate.value)}); about {roughly(need)} can"
    text = f"{_against(point, judged, limits)}: the interval crosses the limit"
    if _inside(estimate, limit):  # one of several looks at a setting: its claim stands on a stricter bound
        bound = estimate.upper if m.better == "lower" else estimate.lower
        sure = m.format(bound) if math.isfinite(bound) else "not known"
        text = f"{_against(point, judged, limits)}: the bound that a claim stands on here ({sure}) is not inside"
    if not math.isfinite(estimate.lower) and not math.isfinite(estimate.upper) and estimate.lower != estimate.upper:
        return f"{_against(point, judged, limits)}; --point-estimates decides on the value alone"
    if judged.need is None or judged.need <= estimate.n:
        return f"{text}, and it is too close to be decided at a reasonable cost"
    return f"{text}; about {roughly(judged.need - estimate.n)} more requests would decide"


def _inside(estimate: Estimate, limit: Limit) -> bool:
    """The interval that is shown lies within the limit."""
    if metric(limit.metric).better == "lower":
        return estimate.high <= limit.promise
    return estimate.low >= limit.promise


def _flags(point: Point) -> str:
    fatal = [flag for flag in point.flags if flag.fatal]
    return "; ".join(f"{_plain(flag.name)} ({flag.measured}, limit {flag.limit}): {flag.advice}" for flag in fatal)


def _raised(points: Mapping[int, Point]) -> list[str]:
    """Each kind of fatal flag once: where it was raised, what the first of them measured, and what to do."""
    found: dict[str, list[tuple[int, Flag]]] = {}
    for c, point in points.items():
        for flag in point.flags:
            if flag.fatal:
                found.setdefault(flag.name, []).append((c, flag))
    notes = []
    for name, raised in found.items():
        (first, flag), where = raised[0], ", ".join(str(c) for c, _ in raised)
        at = f"at c={first} " if len(raised) > 1 else ""
        notes.append(f"c={where}: {_plain(name)} ({at}{flag.measured}, limit {flag.limit}): {flag.advice}.")
    return notes


def _plain(name: str) -> str:
    """A flag's name in a sentence."""
    return name.replace("_", " ")


def _nothing(d: Decision, points: Mapping[int, Point]) -> list[str]:
    wanted = " and ".join(limit_text(limit) for limit in d.limits)
    if d.verdict is Verdict.INVALID:
        usable = [c for c in points if points[c].valid]
        why = "no valid measurement" if not usable else f"no valid measurement below c={min(usable)}, which violates"
        return [f"There is {why}.", *_raised(points)]
    assert d.candidate is not None
    point, judged = points[d.candidate], _judgement(d, d.candidate)
    if d.verdict is Verdict.VIOLATES:
        notes = [f"Nothing measured keeps {wanted}; closest: c={d.candidate}, {_against(point, judged, d.limits)}."]
        lowest, highest = min(points), max(points)
        if judged.binding in RISING:
            notes.append(f"c={highest} is the highest measured: add higher concurrencies to know whether any meets.")
        elif lowest == 1:
            notes.append("Even one user waits too long, so queueing is not the cause.")
        else:
            notes.append(f"c={lowest} is the lowest measured: add lower concurrencies to know whether any meets.")
        return notes
    if judged.verdict is Verdict.MEETS:
        return [
            f"c={d.candidate} meets {wanted}, but c={d.first_fail} below it violates.",
            "Nothing is chosen above a violation: measure both again.",
        ]
    return [f"Nothing measured is proven to keep {wanted}.", f"c={d.candidate}: {_open(point, judged, d.limits)}."]


def _range(d: Decision, point: Point) -> list[str]:
    """Where the chosen setting lies between the comfort mark and the promise."""
    notes: list[str] = []
    for limit in d.limits:
        estimate = point.metrics.get(limit.metric)
        if limit.comfort is None or estimate is None:
            continue
        m = metric(limit.metric)
        comfortable = estimate.value <= limit.comfort if m.better == "lower" else estimate.value >= limit.comfort
        if comfortable:
            mark = m.format(limit.comfort)
            notes.append(f"{m.label} is inside the comfort mark {mark}: there is headroom for more concurrency.")
        else:
            notes.append(
                f"{m.label} is between comfort {m.format(limit.comfort)} and promise {m.format(limit.promise)}."
            )
    return notes


def _beside(d: Decision, points: Mapping[int, Point], rate: str | None) -> list[str]:
    """The other optima inside the SLA, where they differ from the choice."""
    notes: list[str] = []
    if d.concurrency is None or rate is None:
        return notes
    best = d.throughput_optimum
    if best is not None and best != d.concurrency:
        here, there = points[d.concurrency].metrics[rate].value, points[best].metrics[rate].value
        if there > here * (1 + _WORTH_SAYING):
            text = metric(rate).format(there)
            notes.append(f"The most throughput inside the SLA is at c={best}: {text}, {there / here - 1:+.0%}.")
    if d.goodput_optimum is not None and d.goodput_optimum != d.concurrency:
        good = points[d.goodput_optimum].metrics["goodput"]
        notes.append(f"The most goodput is at c={d.goodput_optimum}: {metric('goodput').format(good.value)}.")
    cost = points[d.cheapest].metrics["cost"] if d.cheapest is not None else None
    if cost is not None and math.isfinite(cost.value):
        notes.append(f"The cheapest inside the SLA is c={d.cheapest}: {metric('cost').format(cost.value)}.")
    power = points[d.concurrency].power if d.concurrency is not None else None
    if power is not None and (joules := points[d.concurrency].metrics.get("energy")) is not None:
        notes.append(f"It takes {metric('energy').format(joules.value)}: {cost_energy.power_text([power])}.")
    return notes


def _oddities(d: Decision, points: Mapping[int, Point]) -> list[str]:
    notes = []
    if d.holes and d.concurrency is not None:
        higher = [j.concurrency for j in d.judgements if j.verdict is Verdict.MEETS and j.concurrency > d.holes[0]]
        notes.append(
            f"c={', '.join(map(str, d.holes))} violates although c={', '.join(map(str, higher))} above meets: latency "
            f"does not only grow with concurrency here, and nothing above c={d.holes[0]} is chosen."
        )
    left_out = [c for c, p in points.items() if not p.valid]
    if left_out and d.verdict is not Verdict.INVALID:
        names = (f"c={c} ({', '.join(_plain(f.name) for f in points[c].flags if f.fatal)})" for c in left_out)
        notes.append(f"Left out as invalid: {'; '.join(names)}.")
    return notes


def capacity_notes(found: Capacity, rate: str = "output_throughput") -> list[str]:
    """Where and why a throughput curve ends, as far as its points show it."""
    notes: list[str] = []
    if found.knee is not None:
        notes.append(f"Knee: the most throughput per latency is at c={found.knee}.")
    if found.best is not None:
        notes.append(f"{_fit(found, metric(rate).format)} (fits within {found.best.error:.1%}).")
    if found.limit == "queueing":
        notes.append(
            f"Queueing from c={found.onset} on: throughput is flat and only the first token waits, as behind an "
            "admission cap (max_num_seqs)."
        )
    if found.limit == "thrashing":
        notes.append(
            f"Thrashing from c={found.onset} on: throughput falls and latency jumps, as when requests are preempted "
            "and computed again (KV memory)."
        )
    elif found.retrograde:
        notes.append(f"Less throughput than at a lower concurrency: c={', '.join(map(str, found.retrograde))}.")
    return notes


def _fit(found: Capacity, spell: Callable[[float | None], str]) -> str:
    assert found.best is not None
    p = found.best.parameters
    if found.best.model == "capped":
        if math.isfinite(p["cap"]):
            return f"Throughput grows as N / (a + b N) up to a cap of {spell(p['cap'])}"
        return "Throughput grows as N / (a + b N), no cap in sight"
    if found.peak is not None:
        span = f"{found.peak.low:.0f} to {found.peak.high:.0f}"
        return f"Throughput follows the scalability law and peaks near c={found.peak.value:.0f} ({span})"
    return "Throughput follows the scalability law, without a peak that these points prove"
