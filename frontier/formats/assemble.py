"""Results of foreign files put together: deployments, shapes, points, trials, and a config for the
run.

An aggregate becomes a Point without intervals. Requests with their times become a Trial, so that
every statistic, flag and interval of ours applies to them.
"""

import dataclasses
import functools
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median_high, median_low

from frontier.errors import UsageError
from frontier.formats.documents import INCOMPLETE, foreign_text
from frontier.formats.imported_requests import differences, settled, trials
from frontier.formats.results import ImportedFile, Result
from frontier.formats.statements import IDENTITY, NOT_ITS_NAME, completed, identity_flags, interactivity, with_failures
from frontier.metrics import Unit, metric
from frontier.model import DEFAULT_DEPLOYMENT, MAX_TOKENS, Estimate, Flag, Measurement, Point, Record, Shape
from frontier.text import short_hash
from frontier.units import format_number

REPEATS = 1.5
"""Results of one setting may differ by this factor before a flag says so."""
LITTLE = 0.10
"""Rate x E2E may be this share away from the concurrency before a flag says so."""
MOST_JOINED = 5
"""Settings of several results that are named."""

MOST_DEPLOYMENTS = 1_000
LONGEST_NAME = 60
"""Characters of a name that a config takes."""
ALIKE = 0.05
"""Observed mean lengths within this share of each other are one shape."""
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]+")

Setting = tuple[str, Shape, int]
Facts = tuple[tuple[str, str], ...]
Lengths = tuple[float, float]


# --- deployments: named by the facts that distinguish them


@dataclass(frozen=True, slots=True)
class Deployment:
    """A deployment of an import, as far as the files describe it."""

    name: str
    model: str | None = None
    gpus: int | None = None


def deployments_of(results: Sequence[Result], wanted: str | None = None) -> list[Deployment]:
    """The deployment of each result. `wanted` names the only one.

    Files without facts beside files of one deployment are taken to be of that one.
    UsageError when the files are of too many deployments, or of several where one name is wanted.
    """
    all_facts = [tuple(result.facts.items()) for result in results]
    known = [facts for facts in dict.fromkeys(all_facts) if facts]
    if len(known) > MOST_DEPLOYMENTS:
        raise UsageError(f"the files are of {len(known):,} deployments", "import a part of them")
    names = _distinct_names(known)
    if wanted is not None and len(known) > 1:
        listed = ", ".join(names.values())
        raise UsageError(f"the files are of {len(known)} deployments: {listed[:300]}", "leave --deployment out")
    if len(known) == 1:
        all_facts = known * len(results)
    elif () in all_facts:
        names[()] = _unused(DEFAULT_DEPLOYMENT, names.values())
    made = {}
    for facts in dict.fromkeys(all_facts):
        same = [result for result, theirs in zip(results, all_facts, strict=True) if theirs == facts]
        gpus = next((result.gpus for result in same if result.gpus), None)
        made[facts] = Deployment(wanted or names[facts], dict(facts).get("model"), gpus)
    return [made[facts] for facts in all_facts]


def _distinct_names(known: Sequence[Facts]) -> dict[Facts, str]:
    """As few facts as distinguish them all, joined to a name. A name in the file itself counts as
    it is.
    """
    keys = list(dict.fromkeys(key for facts in known for key, _ in facts))
    chosen: list[str] = []

    def groups(by: Iterable[str]) -> int:
        return len({tuple(dict(facts).get(key) for key in by) for facts in known})

    if all("deployment" in dict(facts) for facts in known):
        chosen, keys = ["deployment"], [key for key in keys if key != "deployment"]
    for key in keys:
        if groups(chosen) == len(known):
            break
        if groups([*chosen, key]) > groups(chosen):
            chosen.append(key)
    names: dict[Facts, str] = {}
    for facts in known:
        parts = [_part(key, dict(facts)[key]) for key in chosen if key in dict(facts)]
        names[facts] = _unused(_config_name("-".join(parts)) or DEFAULT_DEPLOYMENT, names.values())
    return names


def _unused(name: str, others: Iterable[str]) -> str:
    """The name, numbered where another has it; names that differ only in case would share a file
    name.
    """
    taken = {other.lower() for other in others}
    unused, number = name, 2
    while unused.lower() in taken:
        unused, number = f"{name[: LONGEST_NAME - 5]}-{number}", number + 1
    return unused


def _part(key: str, value: str) -> str:
    """A fact in a name; of a bare number, yes or no the key is part of it, as in 'tp8'."""
    bare = value.rstrip("/").rsplit("/", 1)[-1]
    ambiguous = bare.replace(".", "").isdigit() or bare.lower() in ("true", "false", "yes", "no")
    if not ambiguous or key == "deployment":
        return bare
    return f"v{bare}" if key.endswith("version") else f"{key.removesuffix('_size')}{bare}"


def _config_name(name: str) -> str:
    """A name a config takes: letters, digits, dot, dash, underscore. What is cut off stays in a
    short hash.
    """
    plain = _NO_NAME.sub("-", name).strip("-._")
    return plain if len(plain) <= LONGEST_NAME else f"{plain[: LONGEST_NAME - 9].rstrip('-._')}-{short_hash(name)}"


# --- shapes: of lengths that were asked for, or of observed ones that are alike


def lengths_of(file: str, result: Result) -> Lengths:
    """Input and output tokens. ForeignFileError where the file does not give them, or impossible
    ones.
    """
    if not result.isl or not result.osl:
        raise result.error(file, "the lengths of inputs and outputs are not in it", "give them with  --shape 1024/256")
    longest = max(result.isl, result.osl)
    if longest > MAX_TOKENS:
        raise result.error(file, f"a length of {longest:,.0f} tokens is impossible", INCOMPLETE)
    return result.isl, result.osl


def replaced_lengths(items: Sequence[tuple[str, Result]], asked: Shape) -> str | None:
    """The note that the files have other lengths than the shape that is to replace them.

    ForeignFileError where they have several: results of different workloads would become one
    setting.
    """
    known = [(file, result, (result.isl, result.osl)) for file, result in items if result.isl and result.osl]
    for (_, _, first), (file, result, other) in itertools.product(known[:1], known):
        if not _alike(first, other):
            both = f"of the results some have {_words(first)} tokens, this one {_words(other)}"
            hint = "leave --shape out, or import the workloads one by one"
            raise result.error(file, f"--shape {asked.label}, and {both}", hint)
    others = [lengths for *_, lengths in known if not _alike(lengths, (asked.isl.mean, asked.osl.mean))]
    return f"--shape {asked.label} replaces the lengths in the files, {_words(others[0])}" if others else None


def _words(lengths: Lengths) -> str:
    return f"{lengths[0]:.6g}/{lengths[1]:.6g}"


def shapes_of(items: Sequence[tuple[str, Result]], deployments: Sequence[str]) -> list[Shape]:
    """The shape of each result, by the lengths in its file: those asked for are taken as they are;
    observed means join the nearest shape of their deployment that is alike, else each other.
    """
    lengths = [lengths_of(file, result) for file, result in items]
    shapes = [_rounded(of) if result.stated else None for of, (_, result) in zip(lengths, items, strict=True)]
    for deployment in dict.fromkeys(deployments):
        mine = [i for i, name in enumerate(deployments) if name == deployment]
        stated = {(s.isl.mean, s.osl.mean): s for i in mine if (s := shapes[i]) is not None}
        groups: dict[Lengths, list[int]] = {near: [] for near in stated}
        for i in [i for i in mine if shapes[i] is None]:
            near = next((near for near in groups if _alike(near, lengths[i])), lengths[i])
            groups.setdefault(near, []).append(i)
        for near, members in groups.items():
            middle = [sorted(side)[len(members) // 2] for side in zip(*(lengths[i] for i in members), strict=True)]
            for i in members:
                shapes[i] = stated.get(near) or _rounded(middle)
    return [shape for shape in shapes if shape is not None]


def _rounded(lengths: Sequence[float]) -> Shape:
    return Shape.of(*(max(1, round(length)) for length in lengths))


def _alike(a: Lengths, b: Lengths) -> bool:
    return all(abs(x - y) <= max(1.0, ALIKE * max(x, y)) for x, y in zip(a, b, strict=True))


# --- points and trials


@dataclass(frozen=True, slots=True)
class Assembled:
    """The import, ready to be stored. `objectives` are the axes that the most points have."""

    points: tuple[Point, ...]
    trials: tuple[tuple[Measurement, Sequence[Record]], ...]
    deployments: tuple[Deployment, ...]
    objectives: tuple[str, str]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Placed:
    """A result with its file and its setting."""

    deployment: str
    shape: Shape
    result: Result
    file: str

    @property
    def source(self) -> str:
        """The file, and where in it."""
        name = foreign_text(self.file.rstrip("/").rpartition("/")[2], 60)
        return f"{name} {self.result.place}".rstrip()

    @property
    def setting(self) -> Setting:
        return self.deployment, self.shape, self.result.concurrency


def assemble(files: Sequence[ImportedFile], *, deployment: str | None = None, shape: Shape | None = None) -> Assembled:
    """All results of the files as points and trials. `deployment` names the only one, `shape`
    replaces all lengths.

    UsageError when the files cannot be put together: no lengths, or one name for several
    deployments.
    """
    # Aggregates first: deployments are named, and lengths grouped, in this order.
    listed = sorted(((f.file, r) for f in files for r in f.results), key=lambda item: bool(item[1].records))
    if not listed:
        raise UsageError("the files hold no result", "name a result of a benchmark run")
    items = [(file, settled(file, result)) for file, result in listed]
    deployments = deployments_of([result for _, result in items], deployment)
    names = [d.name for d in deployments]
    shapes = [shape] * len(items) if shape is not None else shapes_of(items, names)
    placed = [_Placed(name, s, result, file) for name, s, (file, result) in zip(names, shapes, items, strict=True)]
    points, notes = _points(placed)
    if shape is not None and (note := replaced_lengths(items, shape)):
        notes = (note, *notes)
    made = tuple(trials((p.deployment, p.shape, p.result) for p in placed if p.result.records))
    return Assembled(points, made, tuple(dict.fromkeys(deployments)), _objectives(points, bool(made)), notes)


def _points(placed: Sequence[_Placed]) -> tuple[tuple[Point, ...], tuple[str, ...]]:
    """The aggregates as points, in order, and notes on them."""
    traced = {p.setting: p.result for p in placed if p.result.records}
    stated: dict[Setting, list[_Placed]] = {}
    covered, differ = 0, []
    for p in placed:
        if p.result.records:
            continue
        if p.setting not in traced:
            stated.setdefault(p.setting, []).append(p)
            continue
        covered += 1
        if different := differences(p.result.figures, traced[p.setting].records):
            differ.append(f"{p.source} is not of the requests at c={p.result.concurrency}: {different}")
    order = list(dict.fromkeys(p.deployment for p in placed))
    settings = sorted(stated, key=lambda s: (order.index(s[0]), s[1].isl.mean, s[1].osl.mean, s[2]))
    notes = [f"{covered} aggregates are left out: the requests of the same settings are there"] if covered else []
    joined = [
        f"{len(results)} results at c={concurrency} ({shape.label}): of each figure the middle one is shown"
        for (_, shape, concurrency), results in stated.items()
        if len(results) > 1
    ]
    more = [f"and {len(joined) - MOST_JOINED} more settings with several results"] if len(joined) > MOST_JOINED else []
    points = [point_of(*setting, [p.result for p in stated[setting]]) for setting in settings]
    axes = _objectives(points, bool(traced))
    flagged = [_with_missing(point, axes, stated[setting]) for setting, point in zip(settings, points, strict=True)]
    return tuple(flagged), (*notes, *differ, *joined[:MOST_JOINED], *more)


def _with_missing(point: Point, axes: Sequence[str], placed: Sequence[_Placed]) -> Point:
    """The point, flagged where its files do not give an axis of the frontier."""
    missing = [metric(name).label for name in axes if name not in point.metrics]
    if not missing:
        return point
    sources = list(dict.fromkeys(p.source for p in placed))
    more = f" and {len(sources) - 3} more" if len(sources) > 3 else ""
    measured = f"no {' and no '.join(missing)} in {', '.join(sources[:3])}{more}"
    advice = "it is not on the frontier: import a file that gives it, or name other axes with --objectives"
    flag = Flag("missing_metric", measured, "", advice, fatal=False)
    return dataclasses.replace(point, flags=(*point.flags, flag))


def _objectives(points: Sequence[Point], traced: bool) -> tuple[str, str]:
    """The axes that the most points have; the usual ones where requests are analysed."""

    def most(names: Sequence[str]) -> str:
        return max(names, key=lambda name: (sum(name in p.metrics for p in points), -names.index(name)))

    if traced or not points:
        return "output_throughput", "p99_ttft"
    rates = ("output_throughput", "total_throughput", "request_throughput")
    tails = (
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
    )
    return most(rates), most(tails)


# --- one point


def point_of(deployment: str, shape: Shape, concurrency: int, results: Sequence[Result]) -> Point:
    """One point of one or several results of a setting: of several, each figure's middle (the worse
    of two).
    """
    whole = [completed(r.figures, r.tokens, r.osl if r.stated else None) for r in results]
    turned = [with_failures(figures, r.ok, r.failed) for r, (figures, _) in zip(results, whole, strict=True)]
    repeats = {
        name: [figures[name] for figures, _ in turned if name in figures]
        for name in dict.fromkeys(name for figures, _ in turned for name in figures)
    }
    # The middle of repeats, each of which was observed; of an even number the worse of the two.
    values = {name: (median_low if metric(name).higher_is_better else median_high)(x) for name, x in repeats.items()}
    values |= interactivity(values)
    n = min(r.ok + (r.failed or 0) for r in results)
    notes = [note for r, (_, failures) in zip(results, turned, strict=True) for note in (*r.notes, *failures)]
    notes += [f"computed: {how}" for _, how in whole if how]
    if len(results) > 1:
        ranges = [
            words for name in ("output_throughput", "p99_ttft") if (words := _spread(name, repeats.get(name, [])))
        ]
        notes.append(f"the middle of {len(results)} results" + (f" ({'; '.join(ranges)})" if ranges else ""))
    if n == 0:
        notes.append("the number of requests behind it is not known")
    lost = [name for name, value in values.items() if math.isinf(value) and name in results[0].figures]
    if lost:
        figures = (f"{metric(name).label} {metric(name).format(results[0].figures[name])}" for name in lost[:4])
        notes.append(f"of the successes alone: {', '.join(figures)}")
    flags = [flag for r in results for flag in (*identity_flags(r.figures, r.tokens), *r.flags, *_sum_flags(r.figures))]
    flags += [*_repeat_flags(repeats), *_little_flags(values, concurrency, results)]
    return Point(
        deployment,
        shape,
        concurrency,
        {name: Estimate.without_interval(value, n) for name, value in values.items()},
        n,
        tuple(sorted(dict.fromkeys(flags), key=lambda flag: not flag.fatal)),
        repeats=len(results),
        notes=tuple(dict.fromkeys(notes)),
    )


def _spread(name: str, values: Sequence[float]) -> str | None:
    if len(values) < 2 or min(values) == max(values):
        return None
    of = metric(name)
    return f"{of.label} from {of.format(min(values))} to {of.format(max(values))}"


def _sum_flags(figures: Mapping[str, float]) -> Iterator[Flag]:
    """The flag of a total that is not input plus output."""
    prompt, output, total = (figures.get(f"{side}_throughput", math.nan) for side in ("input", "output", "total"))
    if abs(output + prompt - total) > IDENTITY * total:  # never with NaN
        measured = f"input + output throughput is {format_number(output + prompt)}, total {format_number(total)} tok/s"
        yield Flag("sum", measured, f"the total ±{IDENTITY:.0%}", NOT_ITS_NAME)


def _repeat_flags(repeats: Mapping[str, Sequence[float]]) -> Iterator[Flag]:
    """The flag of results of one setting that differ by more than two runs of a server do."""
    apart = [
        words
        for name, values in repeats.items()
        if min(values) >= 0
        and max(values) > REPEATS * min(values)
        and metric(name).unit is not Unit.SHARE
        and (words := _spread(name, values))
    ]
    if apart:
        advice = (
            "these may be different deployments: distinguish them by a column deployment, or import them one by one"
        )
        yield Flag("repeats_differ", "; ".join(apart[:3]), f"a factor of {REPEATS}", advice, fatal=False)


def _little_flags(values: Mapping[str, float], concurrency: int, results: Sequence[Result]) -> Iterator[Flag]:
    """The flag of a mean in flight that is not the concurrency: idle slots, or a ramp and a drain
    that weigh much.
    """
    product = values.get("request_throughput", math.nan) * values.get("mean_e2e", math.nan)
    held = all(r.rate is None for r in results)
    if held and 0 < product < math.inf and abs(product / concurrency - 1) > LITTLE:
        fewer = "on average fewer requests were in flight: ramp and drain weigh that much, or the load was not held"
        advice = fewer if product < concurrency else "more requests were in flight than the concurrency says"
        measured, limit = f"rate x E2E is {format_number(product)}", f"{concurrency} ±{LITTLE:.0%}"
        yield Flag("littles_law", measured, limit, advice, fatal=False)


# --- the config


def config_text(assembled: Assembled, *, with_models: bool = True) -> str:
    """A config for the run: what solve, plot and report take from one. Nothing can be swept by
    it.
    """
    quoted: Callable[[str], str] = functools.partial(json.dumps, ensure_ascii=False)
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
        parts = [f"name: {quoted(d.name)}"]
        parts += [f"model: {quoted(d.model)}"] if d.model and with_models else []
        parts += [f"hardware: {{gpus: {d.gpus}}}"] if d.gpus and d.gpus <= 100_000 else []
        lines.append("- {" + ", ".join(parts) + "}")
    return "\n".join(lines) + "\n"
