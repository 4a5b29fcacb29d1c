"""A run read back: points, frontiers and decisions from its samples; `read_run.load` reads one.

Nothing here is for the eye: what a notebook shows of a run is the extra `notebook`'s.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from frontier import uncertainty
from frontier.client.ask import metrics_notes
from frontier.client.ask.facts import RANKS
from frontier.client.ask.same_server import Identity, with_others
from frontier.client.engines import KNOWN, engine_of
from frontier.client.load.health import most_connections
from frontier.config import Config, parse_sla
from frontier.core.claim import pareto, solver
from frontier.core.claim.changes import History, unchanged
from frontier.core.claim.claimed import claim_points, claim_windows
from frontier.core.claim.proof import by_concurrency, point_of
from frontier.core.claim.verdict import judge
from frontier.core.flags.failures import failed_trials
from frontier.core.model.decisions import Decision, Limit, Verdict
from frontier.core.model.errors import UsageError
from frontier.core.model.loads import Load
from frontier.core.model.metrics import DEFAULT_METRICS, metric
from frontier.core.model.points import Flag, Frontier, Point, Power
from frontier.core.model.series import Series, by_series
from frontier.core.model.trials import Trial
from frontier.core.model.units import format_number
from frontier.core.window.cost_energy import cost
from frontier.core.window.time_breakdown import time_breakdown
from frontier.core.window.window import Timed, WindowData, join
from frontier.hardware import device_power
from frontier.hardware.above_roofline import above_roofline
from frontier.hardware.distance import bounds, distance
from frontier.hardware.roofline import Roofline
from frontier.planning.alike import with_alike
from frontier.planning.arrivals import arrival_rate
from frontier.planning.budget import TrialTimes
from frontier.planning.most_background import RATE
from frontier.planning.next_step import SweepAgain, go_on, shared_commands, with_command, with_top
from frontier.planning.sla_result import ArrivalRate, SlaResult, failures_judged, make_sla_result
from frontier.planning.standing import Standing
from frontier.planning.stated_size import cut_note
from frontier.search.auto import MOST
from frontier.store.files import free_beside
from frontier.store.journal import Amount
from frontier.store.trial_files import AlteredError

GrowingHistory = list[tuple[Trial, WindowData]]
"""A history to which trials are added."""
Asked = str | Sequence[Limit] | None
"""Limits as they are asked for: a text, limits, or the config's."""
Axes = tuple[str, ...]
Objectives = Axes | Mapping[Any, Axes] | None
"""The metrics asked for: for the frontier of every shape, for each shape, or for each series."""


HOW_TO_GIVE = {
    "price": "say what it costs, as  --set 'price=$12/h'",
    "power": "say what it draws, as  --set hardware.power=5600W,  where nothing measured it",
    "limits": "name limits on latency, as  --sla 'p99_ttft<=500ms'",
    "quality": "state it as  quality: 0.95  in the config, or measure it:  frontier verify --quality",
    "agreement": "measure it:  frontier verify --quality --under-load",
    "background": "sweep with  background: {shape: 8192/512, concurrency: [0, 8, 16]}",
}
"""How to give a metric what it needs (`metrics.NEEDS`)."""


def metrics_of(axes: Mapping[Series, Axes]) -> Axes:
    """All metrics that some axes have."""
    return tuple(dict.fromkeys(name for names in axes.values() for name in names))


@dataclass(frozen=True)
class Run:
    """One run, read from its directory.

    - `histories`: the samples of every finished trial by series, oldest first.
    - `skipped`: why a trial was not run, by its key.
    - `imported`: aggregates of other tools, values without intervals.
    - `altered`: the trials that were changed since they were measured; they do not count.
    - `unhashed`: the number of trials of an earlier version, where a change could not be seen.
    - `standing`: how far its sweep had come; None for an import.
    - `times`: the time that its trials took. `spent`: what its sessions spent.
    - `server_settings`: the settings that each deployment's server reported last.
    - `identities`: the server that answered in the first windows of each deployment.
    """

    path: Path
    config: Config = field(repr=False)
    manifest: Mapping[str, Any] = field(repr=False)
    histories: Mapping[Series, History] = field(repr=False)
    skipped: Mapping[str, str] = field(default_factory=dict, repr=False)
    imported: tuple[Point, ...] = field(default=(), repr=False)
    altered: tuple[tuple[Trial, AlteredError], ...] = field(default=(), repr=False)
    unhashed: int = field(default=0, repr=False)
    standing: Standing | None = field(default=None, repr=False)
    times: TrialTimes = field(default_factory=TrialTimes, repr=False)
    spent: Amount = field(default_factory=Amount, repr=False)
    server_settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    identities: Mapping[str, Identity] = field(default_factory=dict, repr=False)

    @property
    def unfinished(self) -> str:
        """What of the plan is not measured, with the command that goes on; '' for nothing."""
        return "" if self.standing is None else self.standing.text(self.go_on)

    @property
    def not_measured(self) -> str:
        """`unfinished`; for a finished run, the trials that were given up, and why."""
        return self.unfinished or ("" if self.standing is None else self.standing.gaps)

    @functools.cached_property
    def go_on(self) -> str:
        """The command that measures what is left, or all of it where a busy client spoilt it."""
        if not (self.again and self.standing and self.standing.unfinished):
            return ""
        if self.standing.was_busy or self.standing.is_virtual:
            return self.again.fresh().command
        return go_on(self.again, self.histories, most_connections(MOST))

    @property
    def again(self) -> SweepAgain | None:
        """The sweep once more, in a run of its own after virtual time; None for an import."""
        if (known := self.standing) is None:
            return None
        beside = free_beside(self.path.absolute() if " && " in known.again else self.path)  # after a cd
        again = SweepAgain(self.config, known.again, self.times, self.spent, str(beside))
        return again.fresh() if known.is_virtual else again

    @property
    def is_imported(self) -> bool:
        """Whether it was made by `frontier import`, not measured here."""
        return "imported" in self.manifest

    @property
    def gpus(self) -> dict[str, int | None]:
        """The GPUs that each deployment's rates are divided by where they are shown; None: not
        divided.
        """
        return {d.name: d.gpus for d in self.config.deployments}

    def roofline(self, deployment: str) -> Roofline | None:
        """The roofline of a deployment; None when its hardware is not described."""
        return next((d.roofline() for d in self.config.deployments if d.name == deployment), None)

    def limits(self, asked: Asked = None) -> tuple[Limit, ...]:
        """The limits asked for, also as the text of `--sla`; default: the config's first tier."""
        if isinstance(asked, str):
            return parse_sla(asked, self.config.tiers)
        return self.config.limits if asked is None else tuple(asked)

    def samples(self, series: Series, limits: Asked = None) -> dict[Load, WindowData]:
        """The data of each point by concurrency, limits as in `points`; empty for aggregates. What
        was measured before the server changed is in it only where nothing newer is.
        """
        history, wanted = self.histories.get(series, []), self.limits(limits)
        claimed = claim_windows(history, wanted)
        groups = by_concurrency(history) | by_concurrency(unchanged(history, wanted))
        return {c: claimed[c] if c in claimed else join(parts) for c, parts in groups.items()}

    # -- points
    # ----------------------------------------------------------------------------------------------

    def points(self, limits: Asked = None, names: Sequence[str] = ()) -> tuple[Point, ...]:
        """Every measured setting as a point, ordered by deployment, shape and concurrency. `limits`
        default to the config's SLA; their metrics and `names` are added to the default ones.

        A point stands on the data that supports a claim: confirming trials, otherwise the grid's. A
        setting that only served to locate the limit or to refine the frontier is shown too, but
        never chosen.
        """
        wanted = self.limits(limits)
        measured = [
            point
            for series in self.histories
            for points in self._points_of(series, wanted, tuple(names))
            for point in points
        ]
        groups = by_series([*measured, *self._aggregates(wanted)])
        return tuple(p for group in groups.values() for p in sorted(group, key=lambda p: p.load))

    @functools.cached_property
    def _points_of(self) -> Callable[[Series, tuple[Limit, ...], tuple[str, ...]], tuple[list[Point], list[Point]]]:
        """`_compute_points`, remembered: a table, a decision and a picture of one run ask for the
        same points.
        """
        return functools.cache(self._compute_points)

    def _compute_points(
        self, series: Series, limits: tuple[Limit, ...], names: tuple[str, ...]
    ) -> tuple[list[Point], list[Point]]:
        """The points that may be claimed, and the others: of looks and of the frontier."""
        own = (*DEFAULT_METRICS, *([RATE] if series[1].background else []))
        metrics, price = tuple(dict.fromkeys((*own, *names))), self._price(series[0])
        history, samples = self.histories[series], self.samples(series, limits)
        claims = claim_points(history, limits, names=metrics, price=price)
        claimed = {point.load for point in claims}
        looks = [(point_of(s, metrics, limits, price), s) for c, s in samples.items() if c not in claimed]
        return (
            [self._checked(_with_history(p, history, self.config), samples[p.load]) for p in claims],
            [self._checked(_with_history(p, history, self.config), s) for p, s in looks],
        )

    def _aggregates(self, limits: Sequence[Limit]) -> list[Point]:
        """The imported points under these limits, with cost, energy and quality where known."""
        judged = (failures_judged(limits, point) for point in self.imported)
        powers = ((point, power_of(self.config, point.deployment, ())) for point in judged)
        return [device_power.with_energy(self._priced(point), power) for point, power in powers]

    def _priced(self, point: Point) -> Point:
        stated = next((d.stated_quality for d in self.config.deployments if d.name == point.deployment), None)
        if stated is not None:
            point = replace(point, metrics={**point.metrics, "quality": stated})
        price, rate = self._price(point.deployment), point.metrics.get("output_throughput")
        if price is None or rate is None or not rate.value > 0:
            return point
        return replace(point, metrics={**point.metrics, "cost": cost(rate, price)})

    def _price(self, deployment: str) -> float | None:
        return next((d.price for d in self.config.deployments if d.name == deployment), None)

    def _checked(self, point: Point, sample: WindowData) -> Point:
        """The point with its distance from the roofline. It is flagged when it is faster than the
        described hardware can be, and when one of its trials was changed.
        """
        changed = [
            Flag("records_changed", f"the files of trial {error.trial} were changed", "", error.hint or "")
            for trial, error in self.altered
            if (trial.series, trial.load) == (point.series, point.load)
        ]
        powered = device_power.power_flag(sample.timed, self.gpus.get(point.deployment), point.power)
        notes = (*point.notes, *metrics_notes.notes(sample.server), *self._drafted(sample))
        breakdown = time_breakdown(sample.server)
        others = [flag for flag in point.flags if not changed or flag.name != "no_requests"]  # which follows from it
        point = replace(point, flags=(*changed, *others, *powered), notes=notes, time=breakdown)
        roofline = self.roofline(point.deployment)
        if roofline is None:
            return point
        faster = tuple(above_roofline(sample, bounds(roofline, point)))
        return replace(point, flags=(*faster, *point.flags), roofline_distance=distance(roofline, point))

    def _drafted(self, sample: WindowData) -> Iterator[str]:
        """A note that the drafts accepted here were of random tokens, not of real text."""
        accepted, drafts = (
            sum(server.get(f"spec_decode_num_{kind}_total", 0.0) for server in sample.server)
            for kind in ("accepted_tokens", "drafts")
        )
        if accepted > 0 and drafts > 0 and self.config.prompts == "random":
            yield (
                f"drafts were accepted on random tokens ({format_number(accepted / drafts)} a step): prose gives "
                "another number, which  prompts: natural  measures"
            )

    # -- decisions
    # ----------------------------------------------------------------------------------------------

    def solve(self, limits: Asked = None, **options: bool) -> tuple[Decision, ...]:
        """The operating point of each series under `limits`. Options as for `solver.solve`."""
        wanted = self.limits(limits)
        if not wanted:
            raise UsageError("no SLA to decide by", "name one, for example  --sla 'p99_ttft<=500ms'")
        return self._decide(wanted, options)[1]

    def answers(
        self, tiers: Sequence[tuple[str, Sequence[Limit]]] | None = None, **options: bool
    ) -> tuple[SlaResult, ...]:
        """The result of each named set of limits (default: the tiers), and what shapes share."""
        asked = [(name, tuple(limits)) for name, limits in (self.config.tiers if tiers is None else tiers)]
        found = []
        for name, limits in asked:
            points, decisions = self._decide(limits, options)
            rates = self.arrival_rates(decisions)
            found.append(make_sla_result(name, limits, points, decisions, self.gpus, rates, self.config.shapes))
        return tuple(replace(each, commands=shared_commands(each, self.again)) for each in found)

    def arrival_rates(self, decisions: Sequence[Decision]) -> dict[Series, ArrivalRate]:
        """The estimated rate of independent arrivals of each operating point, where it is known."""
        rates = ((d.series, arrival_rate(d, *self.measured(d))) for d in decisions if d.load is not None)
        return {series: rate for series, rate in rates if rate is not None}

    def measured(self, decision: Decision) -> tuple[list[Point], dict[Load, WindowData]]:
        """All points of a decision's series under its limits, and the data they stand on."""
        mine = [point for point in self.points(decision.limits) if point.series == decision.series]
        return mine, self.samples(decision.series, decision.limits)

    def _decide(
        self, limits: tuple[Limit, ...], options: Mapping[str, bool]
    ) -> tuple[list[Point], tuple[Decision, ...]]:
        """The points behind the decisions, and the decisions."""
        points, scanned = self._decidable(limits)
        _check_known(points, limits)
        chosen = {"marginal_gain": self.config.marginal_gain, **options}
        end = None if self.standing is None else self.standing.ended(self.config)
        solved = solver.solve_all(points, limits, scanned=scanned, histories=self.histories, end=end, **chosen)
        most, again = most_connections(MOST), self.again

        def whole(d: Decision) -> Decision:
            history = self.histories.get(d.series, ())
            beside = again and again.beside([e for e in solved if e is not d])
            d = with_alike(d, self.samples(d.series, limits))
            step = with_command(d, beside, self._tools.get(d.deployment), history)
            why, engine = with_top(d, self.config, history, most), self._engine(d.series)
            return replace(d, explanation=why, next_step=step, engine=engine, ranks=self._ranks(d.series))

        return points, tuple(map(whole, solved))

    @property
    def _tools(self) -> Mapping[str, str]:
        """The commands of the tools that sent an import's requests, by deployment."""
        commands: Mapping[str, str] = self.manifest.get("imported", {}).get("commands", {})
        return commands

    def _engine(self, series: Series) -> str | None:
        """The dialect of the server that answered a series, where its limit is known: as the server
        reported it, otherwise as the config says.
        """
        told = engine_of(name for _, sample in self.histories.get(series, ()) for name in sample.server_identities)
        stated = (d.dialect for d in self.config.deployments if d.name == series.deployment)
        return told or next((dialect for dialect in stated if dialect in KNOWN), None)

    def _ranks(self, series: Series) -> int:
        """The number of data-parallel ranks that the metrics in the newest window of a series name;
        1 where they name none.
        """
        newest = [sample.server for _, sample in self.histories.get(series, ())][-1:]
        return max((int(server.get(RANKS, 1)) for windows in newest for server in windows), default=1)

    def _decidable(self, limits: tuple[Limit, ...]) -> tuple[list[Point], list[Point]]:
        """The points that may be claimed, and the points that were only looked at.

        A setting that only located the limit counts as a claim where it violates the SLA. Its
        bounds decide that, even when the decision is by point estimates. What was measured before
        the server changed violates nothing.
        """
        points: list[Point] = []
        scanned: list[Point] = []
        for series in self.histories:
            claims, others = self._points_of(series, limits, self.config.objectives)
            points += claims
            kept = by_concurrency(unchanged(self.histories[series], limits))
            for point in others:
                breaks = point.load in kept and judge(point, limits).verdict is Verdict.VIOLATES
                (points if breaks else scanned).append(point)
        return [*points, *self._aggregates(limits)], scanned

    # -- frontiers
    # ----------------------------------------------------------------------------------------------

    def axes(
        self, objectives: Objectives = None, limits: Asked = None, decisions: Sequence[Decision] | None = None
    ) -> dict[Series, Axes]:
        """The metrics of each series' frontier: one rule for table, JSON, CSV, picture, page and
        comparison. `decisions` are those under the limits, where they are known.

        1. The metrics that are asked for. 2. The metrics that the config names. 3. Output
        throughput against the latency that binds the operating point under `limits` (default: the
        config's) or else the best candidate; where nothing was judged, the first limited latency.
        """
        wanted = self.limits(limits)
        latencies = [limit.metric for limit in wanted if metric(limit.metric).quantity is not None]
        first = latencies[0] if latencies else self.config.objectives[1]
        named = objectives or self.config.given_objectives
        chosen: dict[Series, Axes] = {}
        for series in dict.fromkeys([*self.histories, *(p.series for p in self.imported)]):
            given = named.get(series, named.get(series.shape)) if isinstance(named, Mapping) else named
            chosen[series] = given or (self.config.objectives[0], first)
        if named or not latencies:
            return chosen
        with suppress(UsageError):  # a limit on what no point has a value of: there is no answer
            for decision in self.solve(wanted) if decisions is None else decisions:
                if decision.binding in latencies:
                    chosen[decision.series] = (self.config.objectives[0], decision.binding)
        return chosen

    def frontiers(
        self,
        points: Sequence[Point],
        objectives: Objectives = None,
        uncertainties: Mapping[Series, uncertainty.Replicates] | None = None,
        limits: Asked = None,
    ) -> tuple[Frontier, ...]:
        """The exact non-dominated set of each series on its `axes`, with the probabilities of its
        members where `uncertainties` has its draws.
        """
        axes = self.axes(objectives, limits)
        frontiers = (pareto.frontier(group, axes[series]) for series, group in by_series(points).items())
        odds = {series: uncertainty.membership(drawn) for series, drawn in (uncertainties or {}).items()}
        return tuple(replace(f, probability=odds[f.series]) if f.series in odds else f for f in frontiers)

    def uncertainties(
        self, objectives: Objectives = None, limits: Asked = None
    ) -> dict[Series, uncertainty.Replicates]:
        """How sure each frontier is: draws of its settings by block bootstrap. `membership` makes
        P(non-dominated) of each of them, `band` the attainment band.

        Only settings that have a place on the frontier take part: a flagged one must not lift the
        band or beat others.
        """
        known = {}
        points = self.points(names=metrics_of(self.axes(objectives, limits)))
        for f in self.frontiers(points, objectives, limits=limits):
            if len(f.objectives) != 2:  # bands are of two axes
                continue
            axes = (f.objectives[0], f.objectives[1])
            samples = {c: s for c, s in self.samples(f.series).items() if c not in f.excluded}
            drawn = uncertainty.replicates(samples, axes, limits=self.limits(), price=self._price(f.deployment))
            if drawn.loads:
                known[f.series] = drawn
        return known


def _with_history(point: Point, history: History, config: Config) -> Point:
    """The point with notes on its setting's failed requests, by trial, and on stated requests that
    a time cut, and with the flag of another server.
    """
    mine = [sample for trial, sample in history if trial.load == point.load]
    said = filter(None, (failed_trials(mine), cut_note(config, point, history)))
    return with_others(replace(point, notes=(*said, *point.notes)), history)


def _check_known(points: Sequence[Point], limits: Sequence[Limit]) -> None:
    """UsageError for a limit on a metric that no point has a value of, though it could be given
    one, or on an unknown class.
    """
    for name in (limit.metric for limit in limits):
        if metric(name).needs == "background" and any(p.shape.background is not None for p in points):
            raise UsageError("the most background is what is looked for, and needs no limit", f"leave {name} out")
        if (needs := metric(name).needs) and points and not any(name in p.metrics for p in points):
            raise UsageError(f"a limit on {name}, which is not known of any point", HOW_TO_GIVE[needs])
    classes = list(dict.fromkeys(name for p in points for name in p.shape.classes))
    for group in (limit.of.group for limit in limits):
        if group is not None and points and group not in classes:
            hint = f"there are {', '.join(classes)}" if classes else "only sessions and mixes have classes"
            raise UsageError(f"no request is of the class {group}", hint)


def power_of(config: Config, deployment: str, windows: Timed) -> Power | None:
    """The power that its GPUs drew in the windows, otherwise the power that the config states."""
    mine = next((d for d in config.deployments if d.name == deployment), None)
    measured = device_power.measured(windows, mine.gpus if mine else None)
    if measured is not None or mine is None or mine.power is None:
        return measured
    return Power(mine.power, "stated")
