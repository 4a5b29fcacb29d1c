"""What files say, put together: deployments named, shapes grouped, repeats joined; points, and trials with records.

An aggregate becomes a Point whose intervals are endless; requests with their times become a Trial, so that every
statistic, flag and interval of ours applies to it.
"""

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from frontier.errors import MisaskedError
from frontier.exchange.found import Found, Result, Trace
from frontier.exchange.grouping import lengths_of, shapes
from frontier.exchange.naming import Named, facts_of, named
from frontier.exchange.points import point_of
from frontier.exchange.traces import settled, trials
from frontier.model import Measurement, Point, Record, Shape


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
    made = tuple(trials(whole))
    deployments = tuple(dict.fromkeys(called.values()))
    return Assembled(points, made, deployments, _objectives(points, bool(made)), notes)


def _placed(items: Sequence[tuple[str, Result | Trace]], names: Sequence[str], asked: Shape | None) -> list[_Placed]:
    """Each item with its shape: as asked for, as stated, or grouped by the lengths that were observed."""
    if asked is not None:
        return [_Placed(name, asked, what) for name, (_, what) in zip(names, items, strict=True)]
    lengths = [lengths_of(file, what) for file, what in items]
    found: dict[int, Shape] = {}
    for name in dict.fromkeys(names):
        mine = [i for i, other in enumerate(names) if other == name]
        found |= shapes(
            {i: lengths[i] for i in mine if items[i][1].stated}, {i: lengths[i] for i in mine if not items[i][1].stated}
        )
    return [_Placed(name, found[i], what) for i, (name, (_, what)) in enumerate(zip(names, items, strict=True))]


def _points(placed: Sequence[_Placed]) -> tuple[tuple[Point, ...], tuple[str, ...]]:
    """The aggregates as points, in order, and what is to be said of it."""
    traced = {p.setting for p in placed if isinstance(p.what, Trace)}
    stated: dict[tuple[str, Shape, int], list[Result]] = {}
    covered = 0
    for p in placed:
        if isinstance(p.what, Result):
            if p.setting in traced:
                covered += 1
            else:
                stated.setdefault(p.setting, []).append(p.what)
    order = list(dict.fromkeys(p.deployment for p in placed))
    keys = sorted(stated, key=lambda k: (order.index(k[0]), k[1].isl.mean, k[1].osl.mean, k[2]))
    notes = [f"{covered} aggregates are left out: the requests of the same settings are there"] if covered else []
    notes += [f"{len(results)} results at c={key[2]} ({key[1].label}): of each figure the middle one is shown"
              for key, results in stated.items() if len(results) > 1][:5]  # fmt: skip
    return tuple(point_of(*key, stated[key]) for key in keys), tuple(notes)


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
