"""Aggregates of foreign files as points: failures counted in, repeats joined, what is doubtful flagged."""

import math
from collections.abc import Mapping, Sequence

from frontier.exchange.figures import completed
from frontier.exchange.found import IDENTITY, Result, interactivity, with_failures
from frontier.metrics import Unit, metric
from frontier.model import Estimate, Flag, Point, Shape
from frontier.units import format_number

REPEATS = 1.5
"""Results of one setting may differ by this factor before it is said."""
LITTLE = 0.10
"""Rate x E2E may be this share away from the concurrency before it is said."""


def point_of(deployment: str, shape: Shape, concurrency: int, results: Sequence[Result]) -> Point:
    """One point of one or several results of a setting: of several, each figure's middle (the worse of two)."""
    whole = [completed(r.figures, r.tokens, r.osl if r.stated else None) for r in results]
    turned = [with_failures(figures, r.ok, r.failed) for r, (figures, _) in zip(results, whole, strict=True)]
    names = dict.fromkeys(name for figures, _ in turned for name in figures)
    n = min(r.ok + (r.failed or 0) for r in results)
    values = {name: _typical([f[name] for f, _ in turned if name in f], metric(name).better) for name in names}
    values |= interactivity(values)
    notes = dict.fromkeys(note for r, (_, said) in zip(results, turned, strict=True) for note in (*r.notes, *said))
    notes |= dict.fromkeys(f"computed: {said}" for _, said in whole if said)
    spread = [_spread(name, [f[name] for f, _ in turned if name in f]) for name in ("output_throughput", "p99_ttft")]
    if len(results) > 1:
        ranges = [text for text in spread if text]
        notes[f"the middle of {len(results)} results" + (f" ({'; '.join(ranges)})" if ranges else "")] = None
    if n == 0:
        notes["how many requests are behind it is not known"] = None
    flags = dict.fromkeys(flag for r in results for flag in (*r.flags, *_sum_flags(r.figures)))
    flags |= dict.fromkeys(_repeat_flags({name: [f[name] for f, _ in turned if name in f] for name in names}))
    lost = [name for name, value in values.items() if math.isinf(value) and name in results[0].figures]
    if lost:
        successes = ", ".join(
            f"{metric(name).label} {metric(name).format(results[0].figures[name])}" for name in lost[:4]
        )
        notes[f"of the successes alone: {successes}"] = None
    return Point(
        deployment, shape, concurrency,
        {name: Estimate.unknown_doubt(value, n) for name, value in values.items()},
        n, tuple(sorted((*flags, *_little(values, concurrency, results)), key=lambda f: not f.fatal)),
        repeats=len(results), notes=tuple(notes),
    )  # fmt: skip


def _typical(values: Sequence[float], better: str) -> float:
    """The middle of repeats, each of which was observed; of an even number the worse of the two."""
    ordered = sorted(values, reverse=better == "higher")
    return ordered[len(ordered) // 2]


def _spread(name: str, values: Sequence[float]) -> str | None:
    if len(values) < 2 or min(values) == max(values):
        return None
    of = metric(name)
    return f"{of.label} from {of.format(min(values))} to {of.format(max(values))}"


def _sum_flags(figures: Mapping[str, float]) -> tuple[Flag, ...]:
    """A total that is not input plus output: one of the three means something else than its name."""
    told = [figures.get(f"{side}_throughput") for side in ("input", "output", "total")]
    if None in told:
        return ()
    output, prompt, total = (value or 0.0 for value in told)
    if abs(output + prompt - total) <= IDENTITY * total:
        return ()
    return (
        Flag(
            "sum", f"input + output throughput is {format_number(output + prompt)}, total {format_number(total)} tok/s",
            f"the total ±{IDENTITY:.0%}",
            "one of these figures is not what its name says: do not compare or decide by them",
        ),
    )  # fmt: skip


def _repeat_flags(repeats: Mapping[str, Sequence[float]]) -> tuple[Flag, ...]:
    """Results that are called one setting and differ by more than two runs of a server do."""
    apart = [
        said for name, values in repeats.items()
        if min(values) >= 0 and max(values) > REPEATS * min(values) and metric(name).unit is not Unit.SHARE
        and (said := _spread(name, values))
    ]  # fmt: skip
    if not apart:
        return ()
    return (
        Flag(
            "repeats_differ", "; ".join(apart[:3]), f"a factor of {REPEATS}",
            "these may be of different deployments: tell them apart by a column deployment, or import them one by one",
            fatal=False,
        ),
    )  # fmt: skip


def _little(values: Mapping[str, float], concurrency: int, results: Sequence[Result]) -> tuple[Flag, ...]:
    """Slots that stood idle, or a ramp and a drain that weigh much: the figures are of a lower load than named."""
    rate, e2e = values.get("request_throughput"), values.get("mean_e2e")
    if rate is None or e2e is None or math.isinf(e2e) or any(r.rate is not None for r in results):
        return ()
    product = rate * e2e
    if abs(product / concurrency - 1) <= LITTLE or not product:
        return ()
    return (
        Flag(
            "littles_law", f"rate x E2E is {format_number(product)}", f"{concurrency} ±{LITTLE:.0%}",
            "on average fewer requests were in flight: ramp and drain weigh that much, or the load was not held"
            if product < concurrency else "more requests were in flight than the concurrency says", fatal=False,
        ),
    )  # fmt: skip
