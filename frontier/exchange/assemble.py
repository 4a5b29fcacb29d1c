"""What files say, put together: deployments named, shapes grouped, repeats joined; points, and trials with records.

An aggregate becomes a Point whose intervals are endless; requests with their times become a Trial, so that every
statistic, flag and interval of ours applies to it.
"""

import dataclasses
import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from frontier.errors import MisaskedError
from frontier.exchange.documents import text
from frontier.exchange.found import Found, Result, Trace
from frontier.exchange.grouping import lengths_of, replaced, shapes
from frontier.exchange.naming import Named, facts_of, named
from frontier.exchange.points import point_of
from frontier.exchange.traces import differences, settled, trials
from frontier.metrics import metric
from frontier.model import Flag, Measurement, Point, Record, Shape

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

    MisaskedError when the files cannot be put together: no lengths, or one name for several deployments.
    """
    items = [(found.file, settled(found.file, result)) for found in founds for result in found.results]
    items += [(found.file, settled(found.file, trace)) for found in founds for trace in found.traces]
    if not items:
        raise MisaskedError("the files hold no result", "name a result of a benchmark run")
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
