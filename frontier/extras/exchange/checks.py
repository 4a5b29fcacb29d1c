"""Figures of a result held against each other: what contradicts is excluded, with both numbers."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from frontier.core.model.metrics import metric
from frontier.core.model.points import OVERLOADED, Flag
from frontier.extras.exchange.results import Result, falls_short

IDENTITY = 0.05
"""The share by which E2E may differ from TTFT + (tokens - 1) x TPOT, all as means."""
OFF_LOAD, OTHER_LOAD = 0.10, 0.25
"""The shares by which rate x E2E may differ from the concurrency: before it is said, and before the
point counts as one of another load."""
FAILED = 0.01
"""The share of failures above which a point is excluded, as one of a sweep is."""
_TAIL = 0.9
"""The lowest percentile that is a tail."""
_BEYOND_TAIL = 3
"""How many times its highest percentile a mean cannot be: one request in a hundred would have to
weigh more than all others."""
NOT_ITS_NAME = "one of these figures is not what its name says: do not compare or decide by them"
_QUANTILES = ("p50", "p75", "p80", "p90", "p95", "p98", "p99", "p99.9")


def at_its_load(result: Result) -> Result:
    """The result at the concurrency that it can have had: a cap above the number of requests was
    never reached. Where its figures have more in flight than that number, it counts a window of a
    longer load.
    """
    sent = result.ok + (result.failed or 0)
    if result.rate is not None or result.records or not 0 < sent < result.concurrency:
        return result
    if (mean_in_flight(result.figures, result.came[1] or result.asked[1]) or 0.0) > sent:
        return result
    note = f"the cap of {result.concurrency:,} was never reached: it had {sent:,} requests, a burst and no steady load"
    return replace(result, concurrency=sent, notes=(*result.notes, note))


def flags_of(result: Result, concurrency: int) -> Iterator[Flag]:
    """The flags of a result whose figures contradict each other or its load, and of one with many
    failures. `concurrency` is 0 for a load that is a rate.
    """
    figures, tokens = result.figures, result.came[1]
    yield from identity_flags(figures, tokens)
    yield from _contradictions(figures, result.came[0] or result.asked[0], tokens or result.asked[1])
    if concurrency and (result.failed or 0) <= OFF_LOAD * result.ok:
        yield from _load_flags(result, concurrency)
    yield from _served_flags(result)
    sent = result.ok + (result.failed or 0)
    if result.failed and result.failed > FAILED * sent:
        advice = "see the server's log: the setting may be beyond what it takes. Where some may fail, say how many: "
        advice += "error_rate: 5%  in the sla"
        yield Flag("errors", f"{100 * result.failed / sent:.3g}% failed", f"{FAILED:.2%}", advice)


def identity_flags(figures: Mapping[str, float], tokens: float | None) -> Iterator[Flag]:
    """The flag of a point whose E2E is not TTFT + (tokens - 1) x TPOT.

    The mean TPOT weighs each request alike. Where answers differ in length, its product with the
    mean length is not the mean of the products. The mean ITL weighs each token alike: it is enough
    that one of the two fits.
    """
    ttft, e2e = (figures.get(f"mean_{q}", math.nan) for q in ("ttft", "e2e"))  # no comparison with NaN holds
    if not tokens or tokens <= 1:
        return
    totals = [ttft + (tokens - 1) * figures[f"mean_{q}"] for q in ("tpot", "itl") if f"mean_{q}" in figures]
    if totals and all(abs(total - e2e) > IDENTITY * e2e for total in totals):
        measured = f"TTFT + TPOT x (tokens - 1) is {totals[0] / e2e:.2f} of E2E"
        yield Flag("identity", measured, f"1 ±{IDENTITY:.0%}", NOT_ITS_NAME)


def _contradictions(figures: Mapping[str, float], prompt: float | None, tokens: float | None) -> Iterator[Flag]:
    """The flag of figures of which one rules out another, whatever was measured."""
    found = [*_disorder(figures)]
    output, total, rate = (figures.get(f"{x}_throughput", math.nan) for x in ("output", "total", "request"))
    if total < output * (1 - IDENTITY):
        found.append(f"{_words('total_throughput', figures)} in all is below {_words('output_throughput', figures)}")
    if prompt and tokens and abs(output * (prompt + tokens) / tokens - total) > 0.25 * total:
        lengths = f"at {prompt:.4g} tokens in and {tokens:.4g} out"
        found.append(f"{_words('output_throughput', figures)} beside {_words('total_throughput', figures)} {lengths}")
    if tokens and abs(rate * tokens - output) > 0.25 * output:
        found.append(f"{rate:.4g} requests/s of {tokens:.4g} tokens beside {_words('output_throughput', figures)}")
    if found:
        yield Flag("identity", ", ".join(found[:3]), "", NOT_ITS_NAME)


def _disorder(figures: Mapping[str, float]) -> Iterator[str]:
    """What is above another latency that cannot be below it."""
    for quantity in ("ttft", "tpot", "itl", "e2e"):
        ranked = [name for q in _QUANTILES if (name := f"{q}_{quantity}") in figures]
        above = [low for low in ranked[:-1] if figures[low] > figures[ranked[-1]] * 1.001]
        yield from (f"{_words(low, figures)} is above {_words(ranked[-1], figures)}" for low in above[:1])
        mean, top = f"mean_{quantity}", ranked[-1] if ranked else ""
        if top and mean in figures and figures[mean] > _BEYOND_TAIL * figures[top] > 0:
            yield f"{_words(mean, figures)} is far above {_words(top, figures)}"
    for name in ("mean", *_QUANTILES):
        first, whole = (figures.get(f"{name}_{quantity}", math.nan) for quantity in ("ttft", "e2e"))
        if math.isfinite(first) and first > whole * 1.001:
            yield f"{_words(f'{name}_ttft', figures)} is above {_words(f'{name}_e2e', figures)}"


def _words(name: str, figures: Mapping[str, float]) -> str:
    return f"{metric(name).label} {metric(name).format(figures[name])}"


def _load_flags(result: Result, concurrency: int) -> Iterator[Flag]:
    """The flag of a mean in flight that is not the concurrency: a heavy drain, or another load."""
    tokens, sent = result.came[1] or result.asked[1], result.ok + (result.failed or 0)
    least = least_in_flight(result.figures, tokens)
    mean = mean_in_flight(result.figures, tokens)
    most = most_in_flight(result.figures, tokens) if mean is None else math.inf
    if least > 1.5 * concurrency or most < concurrency / _BEYOND_TAIL:
        bound = f"{least:.3g} in flight at least" if most >= concurrency else f"{most:.3g} in flight at most"
        measured = f"{bound}, by rate and slowest requests"
        yield Flag("littles_law", measured, f"{concurrency:,}", NOT_ITS_NAME)
    elif mean is not None and abs(mean / concurrency - 1) > OFF_LOAD:
        fewer = "ramp and drain weigh that much, or the load was not held: give more requests, ten per user at least"
        advice = fewer if mean < concurrency else "more were in flight than it says: one of the two is wrong"
        measured, limit = f"rate x E2E is {mean:.4g}", f"{concurrency:,} ±{OFF_LOAD:.0%}"
        yield Flag("littles_law", measured, limit, advice, fatal=abs(mean / concurrency - 1) > OTHER_LOAD)
    elif concurrency > 1 and 0 < sent < 2 * concurrency:
        # Medians are no means, but they can show that the load was held.
        typical = {name.replace("p50_", "mean_"): value for name, value in result.figures.items()}
        medians = mean_in_flight({"mean_ttft": 0.0, **typical}, tokens)
        held = mean is not None or (medians is not None and abs(medians / concurrency - 1) <= OTHER_LOAD)
        measured = f"{sent:,} requests at a concurrency of {concurrency:,}"
        advice = "it is one wave, half of it drain: give more requests, ten per user at least"
        yield Flag("littles_law", measured, f"{2 * concurrency:,} requests", advice, fatal=not held)


def _served_flags(result: Result) -> Iterator[Flag]:
    """The flag of an open loop that was sent and not served: its backlog grew."""
    rate, e2e = result.figures.get("request_throughput"), result.figures.get("mean_e2e", 0.0)
    if not (result.rate and rate and math.isfinite(e2e)) or any(flag.name == "under_rate" for flag in result.flags):
        return
    seconds = result.ok / rate
    served = result.ok / (seconds - e2e) if seconds > e2e else rate  # those of the last E2E were under way
    if result.ok and falls_short(result.rate, served, result.ok):
        advice = "latencies grow for as long as this rate lasts, so no SLA holds: send less, or serve it by more"
        yield Flag(OVERLOADED, f"{served:.4g} requests/s were served", f"{result.rate:.4g}", advice, fatal=False)


def mean_in_flight(figures: Mapping[str, float], tokens: float | None) -> float | None:
    """The mean number in flight by Little's law; None where it does not follow from the figures."""
    rate = figures.get("request_throughput")
    if rate is None and tokens and "output_throughput" in figures:
        rate = figures["output_throughput"] / tokens
    e2e, gap = figures.get("mean_e2e"), figures.get("mean_itl", figures.get("mean_tpot"))
    if e2e is None and gap is not None and tokens and "mean_ttft" in figures:
        e2e = figures["mean_ttft"] + (tokens - 1) * gap
    return rate * e2e if rate and e2e and math.isfinite(e2e) else None


def most_in_flight(figures: Mapping[str, float], tokens: float | None) -> float:
    """The mean number in flight if each request took as long as those of the tail; infinite where
    it does not follow from the figures.
    """
    tails = [(of.quantity, figures[of.name]) for of in map(metric, figures) if (of.p or 0) >= _TAIL and not of.inverted]
    tail = {quantity: max(value for of, value in tails if of == quantity) for quantity, _ in tails}
    ttft, e2e, gap = (tail.get(name, math.nan) for name in ("ttft", "e2e", "tpot" if "tpot" in tail else "itl"))
    rate = figures.get("request_throughput", figures.get("output_throughput", math.nan) / (tokens or math.nan))
    most = rate * (ttft + ((tokens or math.nan) - 1) * gap if math.isnan(e2e) else e2e)
    return math.inf if math.isnan(most) else most


def least_in_flight(figures: Mapping[str, float], tokens: float | None) -> float:
    """The fewest requests in flight that the percentiles allow: one in a hundred takes the p99."""
    rate = figures.get("request_throughput", figures.get("output_throughput", 0.0) / tokens if tokens else 0.0)
    least = 0.0
    for name, value in figures.items():
        of = metric(name)
        if of.p is None or of.quantity not in ("ttft", "tpot", "e2e") or not math.isfinite(value) or of.inverted:
            continue
        seconds = value * (tokens - 1 if tokens else 0) if of.quantity == "tpot" else value
        least = max(least, rate * (1 - of.p) * seconds)
    return least
