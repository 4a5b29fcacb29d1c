"""Results of foreign files put together: deployments, shapes, points, trials, and a config for the
run.

An aggregate becomes a Point without intervals. Requests with their times become a Trial, so that
all our statistics, flags and intervals apply to them.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from frontier.core.model.errors import UsageError
from frontier.core.model.metrics import metric
from frontier.core.model.points import Estimate, Flag, Point
from frontier.core.model.shapes import DEFAULT_DEPLOYMENT, MAX_TOKENS, Shape
from frontier.core.model.text import short_hash
from frontier.core.model.trials import Measurement, Record
from frontier.extras.exchange.imported_requests import settled, trial_of
from frontier.extras.exchange.results import ImportedFile, Result
from frontier.store.documents import INCOMPLETE

IDENTITY = 0.05
"""The share by which E2E may differ from TTFT + (tokens - 1) x TPOT, all as means."""
ALIKE = 0.05
"""Observed mean lengths that differ by at most this share, or by one token, are one shape."""
MOST_DEPLOYMENTS = 1_000
"""Deployments of one import."""
LONGEST_NAME = 60
"""Most characters of a name that a config accepts."""
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_AXES = (
    ("output_throughput", "total_throughput", "request_throughput"),
    (
        "p99_ttft",
        "p99_e2e",
        "p99_tpot",
        "p95_ttft",
        "p95_e2e",
        "p90_ttft",
        "p50_ttft",
        "mean_ttft",
        "mean_e2e",
        "mean_tpot",
    ),
)
"""The candidates for each axis of the frontier; the first of two that equally many points have is
taken."""

ImportedSetting = tuple[str, Shape, int]


@dataclass(frozen=True, slots=True)
class Deployment:
    """A deployment of an import, as far as the files describe it."""

    name: str
    model: str | None = None
    gpus: int | None = None


@dataclass(frozen=True, slots=True)
class Assembled:
    """The import, ready to be stored. `objectives` are the axes that the most points have."""

    points: tuple[Point, ...]
    trials: tuple[tuple[Measurement, Sequence[Record]], ...]
    deployments: tuple[Deployment, ...]
    objectives: tuple[str, ...]


def assemble(files: Sequence[ImportedFile], *, deployment: str | None = None, shape: Shape | None = None) -> Assembled:
    """All results of the files as points and trials. `deployment` names the only one, `shape` gives
    the lengths that files lack.

    UsageError when the files cannot be put together: no lengths, one name for several deployments,
    or two results of one setting. Only requests are joined, as the repeats of a sweep are.
    """
    items = [(file.file, settled(file.file, result)) for file in files for result in file.results]
    if not items:
        raise UsageError("the files hold no result", "name a result of a benchmark run")
    items.sort(key=lambda item: not all(item[1].asked))
    names = _names([result for _, result in items], deployment)
    settings: dict[ImportedSetting, list[Result]] = {}
    members: dict[str, list[Result]] = {}
    for name, of, (file, result) in zip(names, _shapes(items, shape), items, strict=True):
        members.setdefault(name, []).append(result)
        same = settings.setdefault((name, of, result.concurrency), [])
        if same and not (same[0].records and result.records):
            what = f"a second result of {name} {of.label} at c={result.concurrency}"
            raise result.error(file, what, "import one of the two, or import them apart with --deployment")
        same.append(result)
    points = [point_of(*setting, results[0]) for setting, results in settings.items() if not results[0].records]
    order = {name: place for place, name in enumerate(members)}
    return Assembled(
        tuple(sorted(points, key=lambda p: (order[p.deployment], p.shape.isl.mean, p.shape.osl.mean, p.concurrency))),
        tuple(
            trial_of(*setting, repeat, result)
            for setting, results in settings.items()
            for repeat, result in enumerate(results, 1)
            if result.records
        ),
        tuple(_deployment(name, results) for name, results in members.items()),
        tuple(max(names, key=lambda name: sum(name in p.metrics for p in points)) for names in _AXES),
    )


# --- deployments and shapes


def _names(results: Sequence[Result], wanted: str | None) -> list[str]:
    """The name of each result's deployment: the one in its file, otherwise its model. `wanted`
    names the only one. A result without a name belongs to the only deployment that the others name.
    """
    stated = [_config_name(result.deployment or result.model or "") for result in results]
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
    return Deployment(name, model, gpus.pop() if len(gpus) == 1 else None)


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
            if wanted is None:
                what = "the lengths of inputs and outputs are not in it"
                raise result.error(file, what, "give them with  --shape 1024/256")
            shapes.append(wanted)
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


def point_of(deployment: str, shape: Shape, concurrency: int, result: Result) -> Point:
    """The point of a result, with what follows from its figures: the third of input, output and
    total throughput, the effect of failures on latencies, and interactivity.
    """
    whole, computed = _with_third(result.figures)
    values, failures = _with_failures(whole, result.ok, result.failed)
    values |= {
        name.replace("_tpot", "_interactivity"): 0.0 if math.isinf(value) else 1 / value
        for name, value in values.items()
        if name.endswith("_tpot") and name.startswith("p") and value > 0
    }
    n = result.ok + (result.failed or 0)
    notes = [*result.notes, *failures, *computed]
    if n == 0:
        notes.append("the number of requests behind it is not known")
    flags = (*identity_flags(result.figures, result.came[1]), *result.flags)
    return Point(
        deployment,
        shape,
        concurrency,
        {name: Estimate.without_interval(value, n) for name, value in values.items()},
        n,
        tuple(sorted(flags, key=lambda flag: not flag.fatal)),
        repeats=1,
        notes=tuple(notes),
    )


def _with_third(figures: Mapping[str, float]) -> tuple[dict[str, float], list[str]]:
    """The figures with the third of input, output and total throughput where two are given, and how
    it was computed. Nothing else is computed.
    """
    prompt, output, total = (figures.get(f"{side}_throughput", math.nan) for side in ("input", "output", "total"))
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
        f"of the successes alone: {', '.join(words) or 'nothing'}",
    ]
    return {**figures, **dict.fromkeys(lost, math.inf), "error_rate": share}, notes


def _infinite(name: str, failed_share: float) -> bool:
    """Whether this many failures make this latency infinite."""
    of = metric(name)
    return of.quantity is not None and not of.inverted and (of.p is None or failed_share > 1 - of.p + 1e-12)


def identity_flags(figures: Mapping[str, float], tokens: float | None) -> Iterator[Flag]:
    """The flag of a point whose E2E is not TTFT + (tokens - 1) x TPOT."""
    # NaN for what is not known: no comparison with it holds.
    ttft, tpot, e2e = (figures.get(f"mean_{q}", math.nan) for q in ("ttft", "tpot", "e2e"))
    if tokens and tokens > 1 and abs((total := ttft + (tokens - 1) * tpot) - e2e) > IDENTITY * e2e:
        measured = f"TTFT + TPOT x (tokens - 1) is {total / e2e:.2f} of E2E"
        advice = "one of these figures is not what its name says: do not compare or decide by them"
        yield Flag("identity", measured, f"1 ±{IDENTITY:.0%}", advice)


# --- the config


def config_text(assembled: Assembled) -> str:
    """A config for the run, which solve, plot and report read. Nothing can be swept by it."""
    shapes = list(dict.fromkeys([p.shape for p in assembled.points] + [m.trial.shape for m, _ in assembled.trials]))
    # A config takes 2,000 settings at most.
    listed = shapes[: max(1, min(100, 2_000 // len(assembled.deployments)))]
    lines = [
        "# Made by frontier import: there is no server to sweep here. What solve, plot and report take from a config",
        "# (sla, objectives, price, hardware) can be written here.",
        "endpoint: http://imported.invalid",
        f"shapes: [{', '.join(s.label for s in listed)}]",
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
