"""Results of foreign files put together: deployments, shapes, points, trials, and a config for the
run.

An aggregate becomes a Point without intervals. Requests with their times become a Trial, so that
all our statistics, flags and intervals apply to them.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from frontier.core.model.errors import UsageError
from frontier.core.model.loads import Concurrency, Load, Rate
from frontier.core.model.metrics import metric
from frontier.core.model.points import Estimate, Point
from frontier.core.model.shapes import DEFAULT_DEPLOYMENT, MAX_TOKENS, Shape
from frontier.core.model.text import short_hash
from frontier.core.model.trials import Measurement, Record
from frontier.extras.exchange.checks import at_its_load, flags_of
from frontier.extras.exchange.imported_requests import UnsteadyError, settled, trial_of
from frontier.extras.exchange.repeats import AXES, ImportedSetting, joined, unlike_runs
from frontier.extras.exchange.results import ImportedFile, Result, TokenLengths
from frontier.store.documents import INCOMPLETE, ForeignFileError

ALIKE = 0.05
"""Observed mean lengths that differ by at most this share, or by one token, are one shape."""
ADDS_UP = 0.1
"""The share by which input and output throughput may differ from their total."""
MOST_DEPLOYMENTS = 1_000
"""Deployments of one import."""
LONGEST_NAME = 60
"""Most characters of a name that a config accepts."""
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_SHORT = {
    "tensor_parallel_size": "tp",
    "pipeline_parallel_size": "pp",
    "data_parallel_size": "dp",
    "expert_parallel_size": "ep",
    "max_num_seqs": "seqs",
    "max_num_batched_tokens": "batched",
    "gpu_memory_utilization": "mem",
}
"""Flags of engines, as a name has them."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """A deployment of an import, as far as the files describe it."""

    name: str
    model: str | None = None
    gpus: int | None = None
    command: str | None = None


@dataclass(frozen=True, slots=True)
class Assembled:
    """The import, ready to be stored. `objectives` are the axes that the most points have."""

    points: tuple[Point, ...]
    trials: tuple[tuple[Measurement, Sequence[Record]], ...]
    deployments: tuple[Deployment, ...]
    objectives: tuple[str, ...]
    notes: tuple[str, ...] = ()


def assemble(files: Sequence[ImportedFile], *, deployment: str | None = None, shape: Shape | None = None) -> Assembled:
    """All results of the files as points and trials. `deployment` names the only one, `shape` gives
    the lengths that files lack.

    Results of one setting are its repeats; a rate is a setting of its own. Requests count, and not
    an aggregate beside them. UsageError when the files cannot be put together: no lengths, or one
    name for several deployments.
    """
    items, unsteady = _settled(files)
    if not items:
        seen = next((f": {file.file}: {note}" for file in files for note in file.notes), "")
        raise UsageError(f"the files hold no result{seen}", "name a result of a benchmark run")
    items = _once(items)
    items.sort(key=lambda item: (not item[1].ok, not all(item[1].asked)))
    names = _names([result for _, result in items], deployment)
    settings: dict[ImportedSetting, list[Result]] = {}
    members: dict[str, list[Result]] = {}
    for name, lengths, (_, result) in zip(names, _shapes(items, shape), items, strict=True):
        members.setdefault(name, []).append(result)
        of, load = _load(lengths, result)
        same = settings.setdefault((name, of, load), [])
        same.append(result)
    settings, notes = _requests_first(settings)
    notes += [*unsteady, *unlike_runs(settings)]
    points = [
        joined([point_of(*key, result) for result in results])
        for key, results in settings.items()
        if not results[0].records
    ]
    notes += _lacking(points)
    order = {name: place for place, name in enumerate(members)}
    return Assembled(
        tuple(sorted(points, key=lambda p: (order[p.deployment], *_order(p)))),
        tuple(
            trial_of(*key, repeat, result)
            for key, results in settings.items()
            for repeat, result in enumerate(results, 1)
            if result.records
        ),
        tuple(_deployment(name, results) for name, results in members.items()),
        tuple(max(names, key=lambda name: sum(name in p.metrics for p in points)) for names in AXES),
        tuple(notes),
    )


def _lacking(points: Sequence[Point]) -> list[str]:
    """Notes on points without any throughput, or without any latency: they are on no frontier."""
    notes = []
    for what, names in zip(("throughput", "latency"), AXES, strict=True):
        if lacking := [p for p in points if not p.metrics.keys() & set(names)]:
            where = "" if len(lacking) == len(points) else f" of {', '.join(p.load.label for p in lacking[:4])}"
            notes.append(f"no {what}{where} is read: without one a setting is on no frontier")
    return notes


def _settled(files: Sequence[ImportedFile]) -> tuple[list[tuple[str, Result]], list[str]]:
    """Every result that has a point or a trial, with its file, and notes on those of which no part
    is under a steady load. ForeignFileError where all are such.
    """
    kept: list[tuple[str, Result]] = []
    notes: list[str] = []
    refused: list[ForeignFileError] = []
    for file in files:
        for result in file.results:
            try:
                kept.append((file.file, at_its_load(settled(file.file, _at_stated_load(file, result, files)))))
            except UnsteadyError as error:
                refused.append(error)
                notes.append(f"left out: {error.what}")
    if refused and not kept:
        raise refused[0]
    return kept, notes


def _at_stated_load(file: ImportedFile, result: Result, files: Sequence[ImportedFile]) -> Result:
    """Requests without a load at the one that their tool's summary in their folder states, if one
    does. UnsteadyError for requests of stages where there is not one.
    """
    if not result.records or result.concurrency:
        return result
    folder = Path(file.file).parent
    alike = (other for other in files if other.tool == file.tool and Path(other.file).parent == folder)
    beside = [r for other in alike for r in other.results if not r.records]
    if len(beside) == 1:
        of = beside[0]
        return replace(result, concurrency=of.concurrency, rate=of.rate, arrivals=of.arrivals, model=of.model)
    if file.single_stage:
        what = f"its requests name no stage, and {len(beside)} results of stages are in its folder"
        raise UnsteadyError(file.file, what, "import the files of the stages")
    return result


def _requests_first(
    settings: Mapping[ImportedSetting, list[Result]],
) -> tuple[dict[ImportedSetting, list[Result]], list[str]]:
    """The settings without the aggregates that stand beside requests, and notes on them."""
    traced = {key: [result for result in same if result.records] for key, same in settings.items()}
    notes = [
        f"{name} {of.label} at {load.label}: its requests count, not the aggregate beside them"
        for (name, of, load), same in settings.items()
        if 0 < len(traced[name, of, load]) < len(same)
    ]
    return {key: traced[key] or same for key, same in settings.items()}, notes


def _load(shape: Shape, result: Result) -> tuple[Shape, Load]:
    """The shape and the load of a result: the rate of an open loop, otherwise its concurrency."""
    if result.rate is None:
        return shape, Concurrency(result.concurrency)
    return replace(shape, arrivals=result.arrivals), Rate.of(result.rate)


def _once(items: Sequence[tuple[str, Result]]) -> list[tuple[str, Result]]:
    """The results without those that another file has, too, as a summary has those of its runs."""
    first: dict[tuple[object, ...], str] = {}
    kept = []
    for file, result in items:
        named = result.model, result.deployment, result.concurrency, result.ok, result.rate
        what = (*named, *sorted(result.facts.items()), *sorted(result.figures.items()))
        if result.records or first.setdefault(what, file) == file:
            kept.append((file, result))
    return kept


def _order(point: Point) -> tuple[float, ...]:
    shape = point.shape
    return shape.isl.mean, shape.osl.mean, shape.arrivals is not None, point.load


# --- deployments and shapes


def _names(results: Sequence[Result], wanted: str | None) -> list[str]:
    """The name of each result's deployment: the one in its file, otherwise its model. `wanted`
    names the only one. A result without a name belongs to the only deployment that the others name.
    """
    stated = [_config_name(name) for name in _told_apart(results)]
    known: dict[str, str] = {}  # names that differ only in case would share a file: they are one
    for name in filter(None, stated):
        known.setdefault(name.lower(), name)
    if len(known) > MOST_DEPLOYMENTS:
        raise UsageError(f"the files are of {len(known):,} deployments", "import a part of them")
    if len(known) > 1 and (wanted or "" in stated):
        what = f"the files are of {len(known)} deployments: {', '.join(known.values())[:300]}"
        hint = "import the files of each by themselves, with --deployment"
        raise UsageError(what if wanted else f"{what}; and some name none", hint)
    only = _config_name(wanted or "") or next(iter(known.values()), DEFAULT_DEPLOYMENT)
    return [known[name.lower()] for name in stated] if len(known) > 1 else [only] * len(results)


def _told_apart(results: Sequence[Result]) -> list[str]:
    """The name of each result: the one in its file, otherwise its model with the facts that differ
    between results of this model, as 'm-8b-tp2'.
    """
    alike: dict[str, list[Result]] = {}
    for result in results:
        alike.setdefault(result.model or "", []).append(result)
    differ = {
        model: [
            key
            for key in dict.fromkeys(key for result in of for key in result.facts)
            if len({result.facts.get(key) for result in of if result.facts}) > 1
        ]
        for model, of in alike.items()
    }
    names = []
    for result in results:
        facts = [_fact(key, result.facts[key]) for key in differ[result.model or ""] if key in result.facts]
        names.append(result.deployment or "-".join(filter(None, (result.model or "", *facts))))
    return names


def _fact(key: str, value: str) -> str:
    """A fact in a name: 'tp2', 'fp8'; a bare number or a yes has its key before it."""
    short = _SHORT.get(key.lower().replace("-", "_"), key)
    bare = value.rstrip("/").rpartition("/")[2]
    return bare if re.search(r"[A-Za-z]", bare) and bare.lower() not in ("true", "false", "none") else f"{short}{bare}"


def _config_name(name: str) -> str:
    """A name that a config accepts: letters, digits, dot, dash, underscore. A short hash replaces
    what is cut off.
    """
    plain = _NO_NAME.sub("-", name).strip("-._")
    return plain if len(plain) <= LONGEST_NAME else f"{plain[: LONGEST_NAME - 9].rstrip('-._')}-{short_hash(name)}"


def _deployment(name: str, results: Sequence[Result]) -> Deployment:
    """The deployment of these results, with its number of GPUs where they all state the same."""
    gpus = {result.gpus for result in results}
    model = next((result.model for result in results if result.model), None)
    command = next((result.command for result in results if result.records and result.command), None)
    return Deployment(name, model, gpus.pop() if len(gpus) == 1 else None, command)


def _shapes(items: Sequence[tuple[str, Result]], wanted: Shape | None) -> list[Shape]:
    """The shape of each result: of the lengths asked for, or the first shape that is like its
    observed mean lengths. `wanted` comes first, and is the shape of results without lengths.
    ForeignFileError where a file has no lengths, or impossible ones.
    """
    known = {wanted: None} if wanted else {}
    shapes: list[Shape] = []
    for file, result in items:
        isl, osl = result.asked if all(result.asked) else result.came
        if not isl or not osl:
            # Where every request failed no length came: it has the shape of the others, if one.
            others = wanted or (next(iter(known)) if len(known) == 1 and not result.ok else None)
            if others is None:
                what = "the lengths of inputs and outputs are not in it"
                raise result.error(file, what, "give them with  --shape 1024/256")
            shapes.append(others)
            continue
        if max(isl, osl) > MAX_TOKENS:
            raise result.error(file, f"a length of {max(isl, osl):,.0f} tokens is impossible", INCOMPLETE)
        own = Shape.of(max(1, round(isl)), max(1, round(osl)))
        alike = [] if all(result.asked) else [shape for shape in known if _alike(shape, own)]
        shapes.append((alike or [own])[0])
        known.setdefault(shapes[-1])
    return shapes


def _alike(a: Shape, b: Shape) -> bool:
    sides = ((a.isl.mean, b.isl.mean), (a.osl.mean, b.osl.mean))
    return all(abs(x - y) <= max(1.0, ALIKE * max(x, y)) for x, y in sides)


# --- one point


def point_of(deployment: str, shape: Shape, load: Load, result: Result) -> Point:
    """The point of a result, with what follows from its figures: the third of input, output and
    total throughput, the effect of failures on latencies, and interactivity.
    """
    lengths = result.asked if all(result.asked) else result.came
    thirds, computed = _with_third(result.figures)
    whole = _with_output(thirds, lengths)
    values, failures = _with_failures(whole, result.ok, result.failed)
    values |= {
        name.replace("_tpot", "_interactivity"): 0.0 if math.isinf(value) else 1 / value
        for name, value in values.items()
        if name.endswith("_tpot") and name.startswith("p") and value > 0
    }
    n = result.ok + (result.failed or 0)
    notes = [*result.notes, *failures, *computed]
    if whole.keys() > thirds.keys():
        notes.append(f"computed: {metric('output_throughput').label} is by the lengths and the other throughput")
    if n == 0:
        notes.append("the number of requests behind it is not known")
    in_flight = load.turns(1)
    flags = (*flags_of(replace(result, figures=whole), in_flight), *result.flags)
    return Point(
        deployment,
        shape,
        load,
        {name: Estimate.without_interval(value, n) for name, value in values.items()},
        n,
        tuple(sorted(flags, key=lambda flag: not flag.fatal)),
        repeats=1,
        notes=tuple(notes),
    )


def _with_output(figures: Mapping[str, float], lengths: TokenLengths) -> dict[str, float]:
    """The figures with the output throughput, which follows from that of requests or of all tokens
    and the lengths.
    """
    isl, osl = lengths
    requests, total = (figures.get(f"{name}_throughput") for name in ("request", "total"))
    if "output_throughput" in figures or not isl or not osl or (requests is None and total is None):
        return dict(figures)
    output = requests * osl if requests is not None else (total or 0.0) * osl / (isl + osl)
    return {**figures, "output_throughput": output}


def _with_third(figures: Mapping[str, float]) -> tuple[dict[str, float], list[str]]:
    """The figures with the third of input, output and total throughput where two are given, and how
    it was computed. Nothing else is computed. Where three do not add up, output alone stays.
    """
    prompt, output, total = (figures.get(f"{side}_throughput", math.nan) for side in ("input", "output", "total"))
    if total >= output and abs(prompt + output - total) > ADDS_UP * total:
        rest = {name: value for name, value in figures.items() if name not in ("input_throughput", "total_throughput")}
        said = f"{prompt:,.4g} tok/s of input and {output:,.4g} of output are not {total:,.4g} in all"
        return rest, [f"{said}: only output is imported"]
    ways = (
        ("input", total - output, "total less output"),
        ("output", total - prompt, "total less input"),
        ("total", prompt + output, "the sum of input and output"),
    )
    for side, value, words in ways:
        name = f"{side}_throughput"
        if name not in figures and value >= 0:  # never with NaN
            return {**figures, name: value}, [f"computed: {metric(name).label} is {words}"]
    return dict(figures), []


def _with_failures(figures: Mapping[str, float], ok: int, failed: int | None) -> tuple[dict[str, float], list[str]]:
    """Figures of the successes turned into figures of all requests, with notes. A failure's latency
    is infinite, so a percentile above the share of successes is infinite, and so is every mean.
    Other figures stay, and the notes say that they are of the successes.
    """
    if failed is None:
        return dict(figures), ["the file does not say whether requests failed"]
    if not failed:
        return {**figures, **({"error_rate": 0.0} if ok else {})}, []
    share = failed / (ok + failed)
    lost = [name for name in figures if _infinite(name, share)]
    words = (f"{metric(name).label} {metric(name).format(figures[name])}" for name in lost[:4])
    notes = [
        f"{failed:,} of {ok + failed:,} requests failed; percentiles below the failures are of the successes",
        *([f"of the successes alone: {', '.join(words)}"] if ok and lost else []),
    ]
    return {**figures, **dict.fromkeys(lost, math.inf), "error_rate": share}, notes


def _infinite(name: str, failed_share: float) -> bool:
    """Whether this many failures make this latency infinite."""
    of = metric(name)
    return of.quantity is not None and not of.inverted and (of.p is None or failed_share > 1 - of.p + 1e-12)


# --- the config


def config_text(assembled: Assembled) -> str:
    """A config for the run, which solve, plot and report read. Nothing can be swept by it."""
    shapes = [p.shape for p in assembled.points] + [m.trial.shape for m, _ in assembled.trials]
    labels = list(dict.fromkeys(shape.label for shape in shapes))
    # A config takes 2,000 settings at most.
    listed = labels[: max(1, min(100, 2_000 // len(assembled.deployments)))]
    lines = [
        "# Made by frontier import: there is no server to sweep here. What solve, plot and report take from a config",
        "# (sla, objectives, price, hardware) can be written here.",
        "endpoint: http://imported.invalid",
        f"shapes: [{', '.join(listed)}]",
        f"objectives: [{', '.join(assembled.objectives)}]",
        "repeats: 1",
        "deployments:",
    ]
    for d in assembled.deployments:
        parts = [f"name: {json.dumps(d.name)}"]
        parts += [f"model: {json.dumps(d.model, ensure_ascii=False)}"] if d.model else []
        parts += [f"hardware: {{gpus: {d.gpus}}}"] if d.gpus and d.gpus <= 100_000 else []
        lines.append("- {" + ", ".join(parts) + "}")
    return "\n".join(lines) + "\n"
