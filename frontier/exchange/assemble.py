"""What files say, put together: deployments named, shapes grouped, repeats joined; points, and trials with records.

An aggregate becomes a Point whose intervals are endless; requests with their times become a Trial, so that every
statistic, flag and interval of ours applies to it.
"""

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from frontier.errors import MisaskedError
from frontier.exchange.documents import ForeignFileError
from frontier.exchange.found import Found, Result, Trace, interactivity, with_failures
from frontier.exchange.steady import concurrency_of, window_of
from frontier.metrics import metric
from frontier.model import MAX_TOKENS, Estimate, Flag, Measurement, Outcome, Phase, Point, Record, Shape, Trial
from frontier.units import format_number

ALIKE = 0.05
"""Observed mean lengths within this share of each other are one shape."""
OFF = 0.02
"""Lengths may be this share off, or one token, before what came counts instead of what was asked for."""
LITTLE = 0.10
"""Rate x E2E may be this share away from the concurrency before it is said."""
MOST_DEPLOYMENTS = 1_000
MOST_CONCURRENCY = 1_000_000
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Named:
    """A deployment: what the files say of it."""

    name: str
    model: str | None = None
    gpus: int | None = None


@dataclass(frozen=True, slots=True)
class Assembled:
    """The import, ready to be stored. `objectives` are the axes that the most points have."""

    points: tuple[Point, ...]
    trials: tuple[tuple[Measurement, Sequence[Record]], ...]
    deployments: tuple[Named, ...]
    objectives: tuple[str, str]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Item:
    """A result or trace with the file it came from and, step by step, its place."""

    file: str
    what: Result | Trace
    deployment: str = ""
    shape: Shape | None = None


def assemble(founds: Sequence[Found], *, deployment: str | None = None, shape: Shape | None = None) -> Assembled:
    """Everything the files say as points and trials. `deployment` names the only one, `shape` replaces all lengths.

    MisaskedError when the files cannot be put together: no lengths, or one name for several deployments.
    """
    items = [_Item(found.file, what) for found in founds for what in found.results]
    items += [_Item(found.file, what) for found in founds for what in found.traces]
    items = [replace(item, what=_settled(item)) for item in items]
    if not items:
        raise MisaskedError("the files hold no result", "name a result of a benchmark run")
    named = _named(items, deployment)
    items = [replace(item, deployment=named[_facts(item)].name) for item in items]
    items = _shaped(items, shape)
    traced = {(i.deployment, i.shape, i.what.concurrency) for i in items if isinstance(i.what, Trace)}
    trials = tuple(_trials([i for i in items if isinstance(i.what, Trace)]))
    stated: dict[tuple[str, Shape, int], list[Result]] = {}
    covered = 0
    for item in items:
        assert item.shape is not None
        if isinstance(item.what, Result):
            key = (item.deployment, item.shape, item.what.concurrency)
            if key in traced:
                covered += 1
            else:
                stated.setdefault(key, []).append(item.what)
    order = list(dict.fromkeys(item.deployment for item in items))
    keys = sorted(stated, key=lambda k: (order.index(k[0]), k[1].isl.mean, k[1].osl.mean, k[2]))
    points = tuple(_point(*key, stated[key]) for key in keys)
    notes = [f"{covered} aggregates are left out: the requests of the same settings are there"] if covered else []
    notes += [f"{len(results)} results at c={key[2]} ({key[1].label}): of each figure the middle one is shown"
              for key, results in stated.items() if len(results) > 1][:5]  # fmt: skip
    models = tuple(dict.fromkeys(named.values()))
    return Assembled(points, trials, models, _objectives(points, bool(trials)), tuple(notes))


def _settled(item: _Item) -> Result | Trace:
    """A trace whose window can be found stays one; any other becomes the aggregate it amounts to."""
    what = _observed(item.what)
    if isinstance(what, Result):
        _check(item.file, what.concurrency)
        return what
    held, closed = (what.concurrency, what.rate is None) if what.concurrency else concurrency_of(what.records)
    _check(item.file, held)
    what = replace(what, concurrency=held)
    if closed and window_of(what.records, held) is not None:
        return what
    why = "it is too short to have a steady part" if closed else "it is an open loop"
    return summed(what, f"the requests were summed up, not analysed: {why}")


def _observed(what: Result | Trace) -> Result | Trace:
    """Lengths asked for that were not what came give way to what came: a shape says what was measured."""
    if not what.stated or not what.isl or not what.osl:
        return what
    isl, osl = (None, what.tokens) if isinstance(what, Result) else _mean_lengths(what.records)
    came = (isl or what.isl, osl or what.osl)
    if all(abs(a - b) <= max(1.0, OFF * b) for a, b in zip(came, (what.isl, what.osl), strict=True)):
        return what
    said = f"{what.isl:g}/{what.osl:g} tokens were asked for, {came[0]:.4g}/{came[1]:.4g} came"
    return replace(what, isl=came[0], osl=came[1], stated=False, notes=(*what.notes, said))


def _mean_lengths(records: Sequence[Record]) -> tuple[float | None, float | None]:
    """Mean input and output tokens of the successes, as far as they were counted."""
    ok = [r for r in records if r.outcome is Outcome.OK]
    sides = ([r.prompt_tokens for r in ok if r.prompt_tokens], [r.completion_tokens for r in ok if r.completion_tokens])
    isl, osl = (float(np.mean(side)) if side else None for side in sides)
    return isl, osl


def _check(file: str, concurrency: int) -> None:
    if not 1 <= concurrency <= MOST_CONCURRENCY:
        raise ForeignFileError(file, f"a concurrency of {concurrency:,} cannot be", "see whether the file is whole")


def summed(trace: Trace, note: str) -> Result:
    """The whole trace as an aggregate: percentiles are observed values, of the successes, over the whole run."""
    ok = [r for r in trace.records if r.outcome is Outcome.OK and r.first is not None and r.last is not None]
    failed = sum(r.outcome not in (Outcome.OK, Outcome.CANCELLED) for r in trace.records)
    values: dict[str, list[float]] = {"ttft": [], "tpot": [], "e2e": []}
    for r in ok:
        assert r.first is not None
        assert r.last is not None
        values["ttft"].append(r.first - r.sent)
        values["e2e"].append(r.last - r.sent)
        if r.completion_tokens and r.completion_tokens > 1:
            values["tpot"].append((r.last - r.first) / (r.completion_tokens - 1))
    figures: dict[str, float] = {}
    for quantity, each in values.items():
        if each:
            figures[f"mean_{quantity}"] = float(np.mean(each))
            for p in (50, 90, 95, 99):
                figures[f"p{p}_{quantity}"] = float(np.percentile(each, p, method="inverted_cdf"))
    seconds = max((r.end for r in trace.records), default=0.0) - min((r.sent for r in trace.records), default=0.0)
    if seconds > 0:
        output, prompt = (
            float(sum(getattr(r, f"{side}_tokens") or 0 for r in ok)) for side in ("completion", "prompt")
        )
        figures["request_throughput"] = len(ok) / seconds
        figures["output_throughput"] = output / seconds
        if all(r.prompt_tokens for r in ok):
            figures |= {"input_throughput": prompt / seconds, "total_throughput": (output + prompt) / seconds}
    return Result(
        trace.concurrency, figures, len(ok), failed, trace.isl, trace.osl, trace.stated, facts=trace.facts,
        model=trace.model, gpus=trace.gpus, rate=trace.rate, notes=(*trace.notes, note),
    )  # fmt: skip


# --- deployments


def _facts(item: _Item) -> tuple[tuple[str, str], ...]:
    return tuple(item.what.facts.items())


def _named(items: Sequence[_Item], wanted: str | None) -> dict[tuple[tuple[str, str], ...], Named]:
    """A name for each set of facts: 'default' when there is one, else the facts that tell them apart."""
    several = list(dict.fromkeys(_facts(item) for item in items))
    known = [facts for facts in several if facts]
    if len(known) > MOST_DEPLOYMENTS:
        raise MisaskedError(f"the files are of {len(known):,} deployments", "import a part of them")
    if wanted is not None and len(known) > 1:
        names = ", ".join(_telling(known).values())
        raise MisaskedError(f"the files are of {len(known)} deployments: {names[:300]}", "leave --deployment out")
    telling = dict.fromkeys(several, wanted) if wanted is not None else _telling(known)
    lone = next(iter(telling.values())) if len(known) == 1 else "default"
    found = {}
    for facts in several:
        mine = [item.what for item in items if _facts(item) == facts or not facts]
        name = telling.get(facts, lone) or "default"
        found[facts] = Named(
            name,
            next((w.model for w in mine if w.model), None),
            next((w.gpus for w in mine if w.gpus), None),
        )
    if len(known) == 1 and len(several) == 2:  # files that say nothing beside files that do
        found[()] = found[known[0]]
    return found


def _telling(known: Sequence[tuple[tuple[str, str], ...]]) -> dict[tuple[tuple[str, str], ...], str]:
    """As few facts as tell them all apart, joined to a name. A name the file itself gives counts as it is."""
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
    names: dict[tuple[tuple[str, str], ...], str] = {}
    for facts in known:
        parts = [_part(key, dict(facts)[key]) for key in chosen if key in dict(facts)]
        name = base = _slug("-".join(parts)) or "default"
        number = 2
        while name.lower() in {n.lower() for n in names.values()}:
            name, number = f"{base[:55]}-{number}", number + 1
        names[facts] = name
    return names


def _part(key: str, value: str) -> str:
    """A fact in a name: what it is of is said of bare numbers and yes or no, as 'tp8'."""
    bare = value.rstrip("/").rsplit("/", 1)[-1]
    says_nothing = bare.replace(".", "").isdigit() or bare.lower() in ("true", "false", "yes", "no")
    if not says_nothing or key == "deployment":
        return bare
    return f"v{bare}" if key.endswith("version") else f"{key.removesuffix('_size')}{bare}"


def _slug(name: str) -> str:
    """A name a config takes: letters, digits, dot, dash, underscore."""
    return _NO_NAME.sub("-", name).strip("-._")[:60].rstrip("-._")


# --- shapes


def _shaped(items: Sequence[_Item], asked: Shape | None) -> list[_Item]:
    """Each item with its shape: as asked for, as stated, or grouped by the lengths that were observed."""
    if asked is not None:
        return [replace(item, shape=asked) for item in items]
    for item in items:
        if not item.what.isl or not item.what.osl:
            raise ForeignFileError(
                item.file, "it does not say how long inputs and outputs are", "say it with  --shape 1024/256"
            )
        longest = max(item.what.isl, item.what.osl)
        if longest > MAX_TOKENS:
            raise ForeignFileError(
                item.file, f"a length of {longest:,.0f} tokens cannot be", "see whether the file is whole"
            )
    stated = {
        i: (round(item.what.isl or 0), round(item.what.osl or 0)) for i, item in enumerate(items) if item.what.stated
    }
    centres: list[tuple[str, tuple[float, float], list[int]]] = []
    for lengths, i in ((lengths, i) for i, lengths in stated.items()):
        if not any(items[i].deployment == d and lengths == at for d, at, _ in centres):
            centres.append((items[i].deployment, lengths, []))
    for i, item in enumerate(items):
        if i in stated:
            continue
        mine = (item.what.isl or 1.0, item.what.osl or 1.0)
        near = next((members for d, at, members in centres if d == item.deployment and _alike(at, mine)), None)
        if near is None:
            centres.append((item.deployment, mine, [i]))
        else:
            near.append(i)
    shapes = {i: Shape.of(max(1, isl), max(1, osl)) for i, (isl, osl) in stated.items()}
    kept = {(items[i].deployment, lengths) for i, lengths in stated.items()}
    for name, at, members in centres:
        middle = at
        if (name, at) not in kept:
            middle = (
                _middle([items[i].what.isl or 1 for i in members]),
                _middle([items[i].what.osl or 1 for i in members]),
            )
        shapes |= {i: Shape.of(max(1, round(middle[0])), max(1, round(middle[1]))) for i in members}
    return [replace(item, shape=shapes[i]) for i, item in enumerate(items)]


def _alike(a: tuple[float, float], b: tuple[float, float]) -> bool:
    return all(abs(x - y) <= max(1.0, ALIKE * max(x, y)) for x, y in zip(a, b, strict=True))


def _middle(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


# --- points


def _point(deployment: str, shape: Shape, concurrency: int, results: Sequence[Result]) -> Point:
    """One point of one or several results of a setting: of several, each figure's middle (the worse of two)."""
    turned = [with_failures(r.figures, r.ok, r.failed) for r in results]
    names = dict.fromkeys(name for figures, _ in turned for name in figures)
    n = min(r.ok + (r.failed or 0) for r in results)
    values = {name: _typical([f[name] for f, _ in turned if name in f], metric(name).better) for name in names}
    values |= interactivity(values)
    notes = dict.fromkeys(note for r, (_, said) in zip(results, turned, strict=True) for note in (*r.notes, *said))
    spread = [_spread(name, [f[name] for f, _ in turned if name in f]) for name in ("output_throughput", "p99_ttft")]
    if len(results) > 1:
        ranges = [text for text in spread if text]
        notes[f"the middle of {len(results)} results" + (f" ({'; '.join(ranges)})" if ranges else "")] = None
    if n == 0:
        notes["how many requests are behind it is not known"] = None
    flags = dict.fromkeys(flag for r in results for flag in r.flags)
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


# --- trials


def _trials(items: Sequence[_Item]) -> Iterable[tuple[Measurement, Sequence[Record]]]:
    """Each trace as a trial, the repeats of a setting numbered."""
    seen: dict[tuple[str, Shape, int], int] = {}
    for item in items:
        trace, shape = item.what, item.shape
        assert isinstance(trace, Trace)
        assert shape is not None
        window = window_of(trace.records, trace.concurrency)
        assert window is not None
        key = (item.deployment, shape, trace.concurrency)
        seen[key] = seen.get(key, 0) + 1
        asked = (round(shape.isl.mean), round(shape.osl.mean)) if trace.stated else (0, 0)
        records = [replace(r, asked_isl=asked[0], asked_osl=asked[1]) for r in trace.records]
        trial = Trial(
            item.deployment, shape, trace.concurrency, seen[key], Phase.GRID, len(records), 0, window.start, 0.0,
            window.end, _digest([dataclasses.asdict(shape), trace.concurrency, [r.sent for r in records[:1000]]]),
        )  # fmt: skip
        yield Measurement(trial, trace.epoch, window, "requests"), records


def _digest(tree: object) -> str:
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:16]


# --- the run's config


def config_text(assembled: Assembled, *, with_models: bool = True) -> str:
    """A config for the run: what solve, plot and report take from one. Nothing can be swept by it."""
    quoted: Callable[[str], str] = json.dumps
    shapes = list(dict.fromkeys([p.shape for p in assembled.points] + [m.trial.shape for m, _ in assembled.trials]))
    room = max(1, min(100, 2_000 // len(assembled.deployments)))
    lines = [
        "# Made by frontier import: there is no server to sweep here. What solve, plot and report take from a config",
        "# (sla, objectives, price, hardware) can be written here.",
        "endpoint: http://imported.invalid",
        f"shapes: [{', '.join(s.label for s in shapes[:room])}]",
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
