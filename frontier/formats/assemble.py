"""Aggregates of foreign files as points: failures counted in, repeats joined, what is doubtful flagged.

What files say, put together: deployments named, shapes grouped, repeats joined; points, and trials with records.

An aggregate becomes a Point whose intervals are endless; requests with their times become a Trial, so that every
statistic, flag and interval of ours applies to it.
"""

import dataclasses
import functools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from frontier.errors import UsageError
from frontier.formats.documents import text
from frontier.formats.figures import completed
from frontier.formats.found import IDENTITY, Found, Result, Trace, interactivity, with_failures
from frontier.formats.grouping import lengths_of, replaced, shapes
from frontier.formats.naming import Named, facts_of, named
from frontier.formats.traces import differences, settled, trials
from frontier.metrics import Unit, metric
from frontier.model import Estimate, Flag, Measurement, Point, Record, Shape
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
        {name: Estimate.without_interval(value, n) for name, value in values.items()},
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


MOST_JOINED = 5
"""Settings of several results that are named."""


@dataclass(frozen=True, slots=True)
class Assembled:
    """The import, ready to be stored. `objectives` are the axes that the most points have."""

    points: tuple[Point, ...]
    trials: tuple[tuple[Measurement, Sequence[Record]], ...]
    deployments: tuple[Named, ...]
    objectives: tuple[str, str]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Placed:
    """A result or trace with the setting it is of."""

    deployment: str
    shape: Shape
    what: Result | Trace
    file: str

    @property
    def source(self) -> str:
        """The file, and where in it."""
        name = text(self.file.rstrip("/").rpartition("/")[2], 60)
        return f"{name} {self.what.place}".rstrip()

    @property
    def setting(self) -> tuple[str, Shape, int]:
        return self.deployment, self.shape, self.what.concurrency


def assemble(founds: Sequence[Found], *, deployment: str | None = None, shape: Shape | None = None) -> Assembled:
    """Everything the files say as points and trials. `deployment` names the only one, `shape` replaces all lengths.

    UsageError when the files cannot be put together: no lengths, or one name for several deployments.
    """
    items = [(found.file, settled(found.file, result)) for found in founds for result in found.results]
    items += [(found.file, settled(found.file, trace)) for found in founds for trace in found.traces]
    if not items:
        raise UsageError("the files hold no result", "name a result of a benchmark run")
    called = named([what for _, what in items], deployment)
    placed = _placed(items, [called[facts_of(what)].name for _, what in items], shape)
    whole = [(p.deployment, p.shape, p.what) for p in placed if isinstance(p.what, Trace)]
    points, notes = _points(placed)
    if shape is not None and (note := replaced(items, shape)):
        notes = (note, *notes)
    made = tuple(trials(whole))
    deployments = tuple(dict.fromkeys(called.values()))
    return Assembled(points, made, deployments, _objectives(points, bool(made)), notes)


def _placed(items: Sequence[tuple[str, Result | Trace]], names: Sequence[str], asked: Shape | None) -> list[_Placed]:
    """Each item with its shape: as asked for, as stated, or grouped by the lengths that were observed."""
    if asked is not None:
        return [_Placed(name, asked, what, file) for name, (file, what) in zip(names, items, strict=True)]
    lengths = [lengths_of(file, what) for file, what in items]
    found: dict[int, Shape] = {}
    for name in dict.fromkeys(names):
        mine = [i for i, other in enumerate(names) if other == name]
        found |= shapes(
            {i: lengths[i] for i in mine if items[i][1].stated}, {i: lengths[i] for i in mine if not items[i][1].stated}
        )
    return [
        _Placed(name, found[i], what, file) for i, (name, (file, what)) in enumerate(zip(names, items, strict=True))
    ]


def _points(placed: Sequence[_Placed]) -> tuple[tuple[Point, ...], tuple[str, ...]]:
    """The aggregates as points, in order, and what is to be said of it."""
    traced = {p.setting: p.what for p in placed if isinstance(p.what, Trace)}
    stated: dict[tuple[str, Shape, int], list[_Placed]] = {}
    covered, differ = 0, []
    for p in placed:
        if isinstance(p.what, Result):
            if p.setting in traced:
                covered += 1
                if said := differences(p.what.figures, traced[p.setting]):
                    differ.append(f"{p.source} is not of the requests at c={p.what.concurrency}: {said}")
            else:
                stated.setdefault(p.setting, []).append(p)
    order = list(dict.fromkeys(p.deployment for p in placed))
    keys = sorted(stated, key=lambda k: (order.index(k[0]), k[1].isl.mean, k[1].osl.mean, k[2]))
    notes = [f"{covered} aggregates are left out: the requests of the same settings are there"] if covered else []
    joined = [f"{len(results)} results at c={key[2]} ({key[1].label}): of each figure the middle one is shown"
              for key, results in stated.items() if len(results) > 1]  # fmt: skip
    more = [f"and {len(joined) - MOST_JOINED} more settings with several results"] if len(joined) > MOST_JOINED else []
    points = [point_of(*key, [p.what for p in stated[key] if isinstance(p.what, Result)]) for key in keys]
    axes = _objectives(points, bool(traced))
    said_of = [_without(point, axes, stated[key]) for key, point in zip(keys, points, strict=True)]
    return tuple(said_of), (*notes, *differ, *joined[:MOST_JOINED], *more)


def _without(point: Point, axes: Sequence[str], placed: Sequence[_Placed]) -> Point:
    """The point, flagged where its files do not give an axis of the frontier."""
    missing = [metric(name).label for name in axes if name not in point.metrics]
    if not missing:
        return point
    sources = list(dict.fromkeys(p.source for p in placed))
    more = f" and {len(sources) - 3} more" if len(sources) > 3 else ""
    flag = Flag(
        "missing_metric", f"no {' and no '.join(missing)} in {', '.join(sources[:3])}{more}", "",
        "it is not on the frontier: import a file that gives it, or name other axes with --objectives", fatal=False,
    )  # fmt: skip
    return dataclasses.replace(point, flags=(*point.flags, flag))


def _objectives(points: Sequence[Point], traced: bool) -> tuple[str, str]:
    """The axes that the most points have; the usual ones where requests are analysed."""

    def most(names: Sequence[str]) -> str:
        return max(names, key=lambda name: (sum(name in p.metrics for p in points), -names.index(name)))

    if traced or not points:
        return "output_throughput", "p99_ttft"
    rates = ("output_throughput", "total_throughput", "request_throughput")
    tails = ("p99_ttft", "p99_e2e", "p99_tpot", "p95_ttft", "p95_e2e", "p90_ttft", "p50_ttft", "mean_ttft", "mean_e2e",
             "mean_tpot")  # fmt: skip
    return most(rates), most(tails)


def config_text(assembled: Assembled, *, with_models: bool = True) -> str:
    """A config for the run: what solve, plot and report take from one. Nothing can be swept by it."""
    quoted: Callable[[str], str] = functools.partial(json.dumps, ensure_ascii=False)
    of = list(dict.fromkeys([p.shape for p in assembled.points] + [m.trial.shape for m, _ in assembled.trials]))
    room = max(1, min(100, 2_000 // len(assembled.deployments)))
    lines = [
        "# Made by frontier import: there is no server to sweep here. What solve, plot and report take from a config",
        "# (sla, objectives, price, hardware) can be written here.",
        "endpoint: http://imported.invalid",
        f"shapes: [{', '.join(s.label for s in of[:room])}]",
        f"objectives: [{', '.join(assembled.objectives)}]",
        "repeats: 1",
        "deployments:",
    ]
    for d in assembled.deployments:
        parts = [f"name: {quoted(d.name)}"]
        parts += [f"model: {quoted(d.model)}"] if d.model and with_models else []
        parts += [f"hardware: {{gpus: {d.gpus}}}"] if d.gpus and d.gpus <= 100_000 else []
        lines.append("- {" + ", ".join(parts) + "}")
    return "\n".join(lines) + "\n"
