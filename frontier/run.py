"""How far the sweep of a run has come: finished, running, interrupted or killed; what is left, and what goes on.

A finished or growing run, looked at: records to samples to points, frontiers and decisions. `load` is the door.

Samples are cached under `derived/samples`, so that a second look never reads the records again unless their file was
touched since; deleting `derived/` is always safe. A trial that is not as it was written down never counts: its setting
is flagged instead.
"""

import functools
import shlex
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from frontier.config import Config, load_config
from frontier.config import Setting as ConfigSetting
from frontier.decide import operating_point, pareto, search, uncertainty
from frontier.decide.frontier_summary import Insight, insight
from frontier.decide.sla_result import Answer, answer
from frontier.decide.verdict import judge
from frontier.decide.wording import clean, count
from frontier.errors import UsageError
from frontier.hardware.roofline import Roofline, bounds, distance
from frontier.metrics import DEFAULT_METRICS, metric
from frontier.model import Estimate, Flag, Frontier, Limit, Point, Power, Shape, Trial, Verdict
from frontier.plan import make_plan
from frontier.report.notebook import Decisions
from frontier.stats import cost_energy, window
from frontier.stats import estimate as summarize
from frontier.stats.flags import beyond_light
from frontier.stats.sample_cache import load_sample
from frontier.stats.window_data import Floats, Sample
from frontier.store.run_dir import RunDirectory
from frontier.store.trial_files import AlteredError
from frontier.text import redact

ENDS = ("finished", "budget", "interrupted", "server_lost", "failed", "stopped")
"""What the journal of a sweep ends with; with anything else it was killed."""
_DONE = ("finished", "budget")
_LARGEST_CONFIG = 1 << 20

End = Literal["running", "finished", "budget", "interrupted", "server_lost", "failed", "stopped", "killed"]


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a sweep has come. `left` are the planned trials that are neither finished nor given up; `given_up` those
    that the last session skipped, or dropped for the budget. A setting is measured when one of its trials is finished.

    `end` is how the last session ended, `reason` why where the journal says so; `again` is the command that goes on.
    """

    end: End
    reason: str
    planned: int
    done: int
    refined: int
    left: tuple[Trial, ...]
    given_up: frozenset[str]
    settings: int
    measured: int
    again: str

    @property
    def state(self) -> Literal["running", "finished", "stopped"]:
        """As `frontier status` says it: finished is what the same command would not go on with."""
        if self.end == "running":
            return "running"
        return "finished" if self.end in _DONE and not self.left else "stopped"

    @property
    def unfinished(self) -> bool:
        """A part of what was planned is not there: it is still to come, was cut off, or had no room in the budget."""
        return self.state != "finished" or self.end == "budget"

    @property
    def brief(self) -> str:
        """'unfinished: 4 of 10 settings measured (12 of 30 trials)'; '' for a finished run."""
        if not self.unfinished:
            return ""
        measured = f"{self.measured} of {count(self.settings, 'setting')} measured"
        return f"unfinished: {measured} ({self.done} of {count(self.planned, 'trial')})"

    @property
    def text(self) -> str:
        """The same with how it ended and the command that goes on, in two lines; '' for a finished run."""
        if not self.unfinished:
            return ""
        words = {
            "running": "a sweep is running on it now",
            "finished": "the last sweep was asked for a part of it",
            "budget": "the budget had no room for more",
            "interrupted": "it was interrupted",
            "server_lost": "the server was lost",
            "failed": f"it failed: {self.reason}" if self.reason else "it failed",
            "stopped": "it was stopped",
            "killed": "it was killed",
        }
        if self.end == "running":
            return f"{self.brief}; {words[self.end]}"
        way = "raise it and go on with" if self.end == "budget" else "go on with"
        return clean(f"{self.brief}; {words[self.end]}; {way}", 400) + f"\n  {self.again}"

    def tree(self) -> dict[str, Any] | None:
        """For JSON; None for a finished run."""
        if not self.unfinished:
            return None
        return {
            "end": self.end,
            "settings": self.settings,
            "measured": self.measured,
            "trials": self.planned,
            "finished": self.done,
            "go_on": self.again,
        }


def standing(run: RunDirectory, config: Config, finished: Mapping[str, Trial]) -> Standing:
    """How far the sweep of `run` has come; `finished` are its finished trials by key."""
    lines = run.journal_lines()
    began = max((i for i, one in enumerate(lines) if one["event"] in ("created", "resumed")), default=0)
    given_up = given_up_in(lines[began:]) - finished.keys()
    planned = {t.key: t for t in make_plan(config).trials}
    last, over = _last(lines)
    running = not over and run.held()
    return Standing(
        end="running" if running else last["event"] if last["event"] in ENDS else "killed",
        reason=str(last.get("reason", "")),
        planned=len(planned),
        done=len(finished.keys() & planned.keys()),
        refined=len(finished.keys() - planned.keys()),
        left=tuple(trial for key, trial in planned.items() if key not in finished and key not in given_up),
        given_up=frozenset(given_up),
        settings=len(_settings(planned.values())),
        measured=len(_settings(planned.values()) & _settings(finished.values())),
        again=_command(run),
    )


def _last(lines: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], bool]:
    """The line that says how the last session ended, and whether it is surely over.

    A server that is stopped says so after the end. A trial that is lost or cut off is not yet the end, and only who
    holds the lock then says whether the sweep lives; after the end it may be `verify` that holds it.
    """
    kept = [line for line in lines if line["event"] != "stopped"] or lines
    last = kept[-1] if kept else {"event": "created"}
    over = last["event"] in ENDS and "trial" not in last
    return (last if over or not lines else lines[-1]), over


def given_up_in(session: Sequence[Mapping[str, Any]]) -> set[str]:
    """The trials that were skipped, or dropped for the budget."""
    skipped = {str(one["trial"]) for one in session if one["event"] == "skipped"}
    return skipped.union(*(one["trials"] for one in session if one["event"] == "dropped"))


def _settings(trials: Any) -> set[tuple[str, Shape, int]]:
    return {(t.deployment, t.shape, t.concurrency) for t in trials}


def _command(run: RunDirectory) -> str:
    """The sweep into this directory again: by the user's own config where that is still the same, else by the run's,
    which has the options in it that were given beside the file.
    """
    own = Path(str(run.manifest.get("config_file", "")))
    kept = run.path / "config.yaml"
    with suppress(OSError, UnicodeDecodeError, ValueError):
        status = own.stat()
        same = stat.S_ISREG(status.st_mode) and status.st_size < _LARGEST_CONFIG
        if same and redact(own.read_text()) == kept.read_text():
            kept = own
    return clean(shlex.join(["frontier", "sweep", str(kept), "-o", str(run.path)]), 4000)


if TYPE_CHECKING:
    import pandas as pd

    from frontier.report.notebook import Shown

History = list[tuple[Trial, Sample]]
Setting = tuple[str, Shape]


_REQUEST_COLUMNS = ("sent", "ok", "ttft", "tpot", "e2e", "prompt_tokens", "completion_tokens", "cached_tokens")


_POWER = "say what it draws, as  --set hardware.power=5600W,  where nothing measured it"
NEEDS = {
    "cost": "say what it costs, as  --set 'price=$12/h'",
    "energy": _POWER,
    "tokens_per_joule": _POWER,
    "goodput": "name limits on latency, as  --sla 'p99_ttft<=500ms'",
    "attainment": "name limits on latency, as  --sla 'p99_ttft<=500ms'",
}
"""What gives a value to a metric that a run may be without."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """How sure a frontier is: each setting's probability to be on it, the band its staircase lies in, and its area.

    The `area` counts up to `reference`: (least of the first objective, worst of the second), the second being the
    loosest tier's limit where there is one, else the worst measured. Areas compare only at one reference.
    """

    probability: Mapping[int, float]
    band: uncertainty.Band
    area: Estimate
    reference: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Run:
    """One run, read. `histories` holds every finished trial's sample per (deployment, shape), oldest first; `skipped`
    why a trial was not run, by its key. `imported` are aggregates of other tools: values without intervals. `altered`
    are the trials that were changed since they were measured: they do not count. `unhashed` counts the trials where
    that could not be seen, as an earlier version made them. `standing` is how far its sweep had come; None for an
    import.
    """

    path: Path
    config: Config = field(repr=False)
    manifest: Mapping[str, Any] = field(repr=False)
    histories: Mapping[Setting, History] = field(repr=False)
    skipped: Mapping[str, str] = field(default_factory=dict, repr=False)
    imported: tuple[Point, ...] = field(default=(), repr=False)
    altered: tuple[tuple[Trial, AlteredError], ...] = field(default=(), repr=False)
    unhashed: int = field(default=0, repr=False)
    standing: Standing | None = field(default=None, repr=False)
    _seen: dict[Any, list[Point]] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Points by what they were asked for: a table, a decision and a picture of one run ask for the same."""

    @property
    def unfinished(self) -> str:
        """That a part of what was planned is not measured, and what goes on with it; '' for a finished run."""
        return "" if self.standing is None else self.standing.text

    @property
    def is_imported(self) -> bool:
        """It was made by `frontier import`, not measured here."""
        return "imported" in self.manifest

    def points(self, limits: Sequence[Limit] | None = None, names: Sequence[str] = ()) -> tuple[Point, ...]:
        """Every measured setting as a point, ordered by deployment, shape and concurrency.

        Limits default to the config's SLA; their metrics and `names` come beside the default ones. A point stands on
        the data that supports a claim (confirming trials, else the grid's); a setting that only served to locate the
        limit or to refine the frontier is shown too, and never chosen.
        """
        wanted = self.limits() if limits is None else tuple(limits)
        found: list[Point] = []
        for deployment, shape in self.histories:
            claims = self._claims((deployment, shape), wanted, names)
            found += [*claims, *self._others((deployment, shape), wanted, names)]
        groups = by_setting([*found, *self._aggregates()])
        return tuple(p for group in groups.values() for p in sorted(group, key=lambda p: p.concurrency))

    def _claims(self, at: Setting, limits: tuple[Limit, ...], names: Sequence[str] = ()) -> list[Point]:
        key = ("claims", at, limits, tuple(names))
        if key not in self._seen:
            self._seen[key] = self._claims_anew(at, limits, names)
        return self._seen[key]

    def _claims_anew(self, at: Setting, limits: tuple[Limit, ...], names: Sequence[str]) -> list[Point]:
        metrics = tuple(dict.fromkeys((*DEFAULT_METRICS, *names)))
        found = search.claim_points(self.histories[at], limits, names=metrics, price=self._price(at[0]))
        samples = search.claim_samples(self.histories[at])
        return [self._lit(point, samples[point.concurrency]) for point in found]

    def _others(self, at: Setting, limits: tuple[Limit, ...], names: Sequence[str] = ()) -> list[Point]:
        """Settings no claim is made about: they were run to locate the limit or to fill the frontier."""
        key = ("others", at, limits, tuple(names))
        if key not in self._seen:
            self._seen[key] = self._others_anew(at, limits, names)
        return self._seen[key]

    def _others_anew(self, at: Setting, limits: tuple[Limit, ...], names: Sequence[str]) -> list[Point]:
        history = self.histories[at]
        claimed = search.claim_samples(history)
        looser = [(trial, sample) for trial, sample in history if trial.concurrency not in claimed]
        metrics = tuple(dict.fromkeys((*DEFAULT_METRICS, *names)))
        return [
            self._lit(summarize.point(sample, names=metrics, limits=limits, price=self._price(at[0])), sample)
            for sample in (window.join(parts) for parts in by_concurrency(looser).values())
        ]

    def _aggregates(self) -> list[Point]:
        """The imported points, with their cost and energy where the config has a price and a power."""
        return [
            cost_energy.with_energy(self._priced(point), _power(self.config, point.deployment, ()))
            for point in self.imported
        ]

    def _priced(self, point: Point) -> Point:
        price, rate = self._price(point.deployment), point.metrics.get("output_throughput")
        if price is None or rate is None or not rate.value > 0:
            return point
        cost = Estimate.without_interval(price * 1e6 / 3600 / rate.value, rate.n)
        return replace(point, metrics={**point.metrics, "cost": cost})

    def _lit(self, point: Point, sample: Sample) -> Point:
        """The point with its distance from light, flagged when it is faster than the described hardware can be, and
        when a trial of it was changed.
        """
        changed = [_altered(error) for trial, error in self.altered if _setting_of(trial) == _setting_of(point)]
        point = replace(point, flags=(*changed, *point.flags))
        light = self.light(point.deployment)
        if light is None:
            return point
        flags = tuple(beyond_light(sample, bounds(light, point)))
        return replace(point, flags=(*flags, *point.flags), light=distance(light, point))

    def light(self, deployment: str) -> Roofline | None:
        """The speed of light of a deployment; None when its hardware is not described."""
        return next((d.roofline() for d in self.config.deployments if d.name == deployment), None)

    def limits(self) -> tuple[Limit, ...]:
        """The config's SLA (its first tier)."""
        return self.config.limits

    def frontiers(self, points: Sequence[Point], objectives: tuple[str, str] | None = None) -> tuple[Frontier, ...]:
        """The exact non-dominated set of each (deployment, shape)."""
        axes = objectives or self.config.objectives
        return tuple(pareto.frontier(group, axes) for group in by_setting(points).values())

    def solve(self, limits: Sequence[Limit] | None = None, **options: bool) -> Decisions:
        """The operating point of each (deployment, shape) under `limits`, as a tuple of decisions.

        Options as for `analyze.sla.solve`.
        """
        wanted = self.limits() if limits is None else tuple(limits)
        if not wanted:
            raise UsageError("no SLA to decide by", "name one, for example  --sla 'p99_ttft<=500ms'")
        return Decisions.of(self.answers([("", wanted)], **options)[0].decisions, self.gpus)

    def answers(
        self, tiers: Sequence[tuple[str, Sequence[Limit]]] | None = None, **options: bool
    ) -> tuple[Answer, ...]:
        """What each named set of limits gives (default: the config's tiers), with what is common to its shapes."""
        options = {"marginal_gain": self.config.marginal_gain, **options}
        found = []
        for name, limits in self.config.tiers if tiers is None else tiers:
            wanted = tuple(limits)
            points = self._decidable(wanted)
            _check_known(points, wanted)
            found.append(answer(name, wanted, points, operating_point.solve_all(points, wanted, **options), self.gpus))
        return tuple(found)

    def _decidable(self, limits: tuple[Limit, ...]) -> list[Point]:
        """What may be claimed; and a setting run to locate, which may not, where it breaks the SLA: that counts."""
        points: list[Point] = []
        for at in self.histories:
            others = self._others(at, limits, self.config.objectives)
            broken = [p for p in others if judge(p, limits).verdict is Verdict.VIOLATES]
            points += [*self._claims(at, limits, self.config.objectives), *broken]
        return [*points, *self._aggregates()]

    @property
    def gpus(self) -> dict[str, int | None]:
        """By how many GPUs each deployment's rates are divided where they are shown; None: by none."""
        return {d.name: d.gpus for d in self.config.deployments}

    def doubts(self, objectives: tuple[str, str] | None = None) -> dict[Setting, Doubt]:
        """How sure each frontier is: P(non-dominated) of its settings and the attainment band, by block bootstrap.

        Only settings that have a place on the frontier take part: a flagged one must not lift the band or beat others.
        """
        axes = objectives or self.config.objectives
        found = {}
        points = self.points(names=axes)
        for f in self.frontiers(points, axes):
            at = (f.deployment, f.shape)
            samples = {c: s for c, s in self.samples(at).items() if c not in f.excluded}
            drawn = uncertainty.replicates(samples, axes, limits=self.limits(), price=self._price(at[0]))
            if drawn.concurrencies:
                mine = [p for p in points if (p.deployment, p.shape) == at and p.concurrency in drawn.concurrencies]
                best = tuple(np.array([p.metrics[name].value for p in mine]) for name in axes)
                reference = self._reference(axes, best)
                area = uncertainty.hypervolume(drawn, (best[0], best[1]), reference)
                found[at] = Doubt(uncertainty.membership(drawn), uncertainty.band(drawn), area, reference)
        return found

    def _reference(self, axes: tuple[str, str], best: Sequence[Floats]) -> tuple[float, float]:
        """Where the area of a frontier ends."""
        gain, price = best
        least = 0.0 if metric(axes[0]).better == "higher" else float(gain.max())
        loosest = max if metric(axes[1]).better == "lower" else min
        promises = [limit.promise for _, limits in self.config.tiers for limit in limits if limit.metric == axes[1]]
        return least, float(loosest(promises)) if promises else float(loosest(price))

    def insights(self, points: Sequence[Point], objectives: tuple[str, str] | None = None) -> tuple[Insight, ...]:
        """What is to be said of each (deployment, shape) as a whole: its frontier with its doubt, and its capacity."""
        doubts = self.doubts(objectives)
        found = []
        for f in self.frontiers(points, objectives):
            doubt = doubts.get((f.deployment, f.shape))
            if doubt is None:
                found.append(insight(f, points))
            else:
                sure = replace(f, probability=doubt.probability)
                found.append(insight(sure, points, doubt.area, doubt.reference))
        return tuple(found)

    def samples(self, at: Setting) -> dict[int, Sample]:
        """Per concurrency the data its point stands on; none for imported aggregates."""
        history = self.histories.get(at, [])
        claimed = search.claim_samples(history)
        groups = by_concurrency(history)
        return {c: claimed[c] if c in claimed else window.join(parts) for c, parts in groups.items()}

    def _price(self, deployment: str) -> float | None:
        return next((d.price for d in self.config.deployments if d.name == deployment), None)

    def picture(self, limits: Sequence[Limit] | None = None, objectives: tuple[str, str] | None = None) -> "Shown":
        """The frontiers with their limits, operating points and, where the hardware is described, the speed of light.

        For a notebook; `.save(path)` writes it.
        """
        from frontier.plot.data import View
        from frontier.plot.roofline_lines import rooflines
        from frontier.report.notebook import shown

        wanted = self.limits() if limits is None else tuple(limits)
        points = self.points(wanted, names=objectives or self.config.objectives)
        decided = {(d.deployment, d.shape): d for d in (self.solve(wanted) if wanted else ())}
        doubts = self.doubts(objectives)
        views = []
        frontiers = self.frontiers(points, objectives)
        lit = rooflines(self.config, points, frontiers)
        for f in frontiers:
            at = (f.deployment, f.shape)
            doubt = doubts.get(at)
            sure = replace(f, probability=doubt.probability) if doubt else f
            band = list(zip(doubt.band.x, doubt.band.low, doubt.band.high, strict=True)) if doubt else ()
            views.append(View(points, sure, decided.get(at), wanted, lit.get(at), self.gpus.get(at[0]), band=band))
        return shown(views)

    def _repr_html_(self) -> str:
        from frontier.report.notebook import run_html

        points = self.points()
        decisions = self.solve() if self.limits() and points else ()
        return run_html(self.path.name, points, self.frontiers(points), decisions, self.limits(), self.gpus)

    def requests(self) -> "pd.DataFrame":
        """One row per request that counts: deployment, shape, concurrency, `sent` (unix seconds), `ok`, `ttft`, `tpot`
        and `e2e` (seconds; infinite for a failure, NaN where not defined), and the token counts of the server.
        """
        import pandas as pd

        parts = []
        for (deployment, shape), history in self.histories.items():
            for trial, sample in history:
                columns = {name: getattr(sample, name) for name in _REQUEST_COLUMNS}
                head = {"deployment": deployment, "shape": shape.label, "concurrency": trial.concurrency}
                parts.append(pd.DataFrame({**head, "phase": trial.phase.value, "repeat": trial.repeat, **columns}))
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()

    def frame(self, limits: Sequence[Limit] | None = None) -> "pd.DataFrame":
        """One row per point: `deployment`, `shape`, `concurrency`, `n` (requests), `valid`, `flags`, and per metric
        `NAME`, `NAME_low`, `NAME_high` (the 95 % interval). Times are seconds, rates per second, shares 0..1; the unit
        of each column is in `frame.attrs["units"]`.
        """
        import pandas as pd

        rows = []
        for point in self.points(limits):
            row: dict[str, Any] = {
                "deployment": point.deployment,
                "shape": point.shape.label,
                "concurrency": point.concurrency,
                "n": point.n,
                "valid": point.valid,
                "flags": ", ".join(flag.name for flag in point.flags),
            }
            for name, estimate in point.metrics.items():
                row |= {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
            rows.append(row)
        found = pd.DataFrame(rows)
        names = [c.removesuffix("_low").removesuffix("_high") for c in found.columns]
        plain = ("deployment", "shape", "concurrency", "n", "valid", "flags")
        found.attrs["units"] = {
            column: metric(name).unit.value
            for column, name in zip(found.columns, names, strict=True)
            if name not in plain
        }
        return found


def _check_known(points: Sequence[Point], limits: Sequence[Limit]) -> None:
    """UsageError for a limit on what no point has a value of, though it could be given one."""
    for name in (limit.metric for limit in limits):
        if name in NEEDS and points and not any(name in p.metrics for p in points):
            raise UsageError(f"a limit on {name}, which is not known of any point", NEEDS[name])


def by_setting(points: Sequence[Point]) -> dict[Setting, list[Point]]:
    """Points grouped by (deployment, shape), in order."""
    groups: dict[Setting, list[Point]] = {}
    for point in points:
        groups.setdefault((point.deployment, point.shape), []).append(point)
    return groups


def by_concurrency(history: History) -> dict[int, list[Sample]]:
    """Samples by concurrency, oldest first."""
    groups: dict[int, list[Sample]] = {}
    for trial, sample in history:
        groups.setdefault(trial.concurrency, []).append(sample)
    return groups


def load(path: str | Path, settings: Sequence[str] = ()) -> Run:
    """The run in a directory, looked at with `settings` ('gpus=8', 'price=$12/h', 'hardware.power=700W/gpu') in its
    config's place; the files stay as they are.

    StoreError when there is none, ConfigError when its config no longer reads, UsageError for a setting that
    decides what is measured.
    """
    run = RunDirectory.read(Path(path))
    config = _read_config(run, settings)
    histories: dict[Setting, History] = {}
    altered: list[tuple[Trial, AlteredError]] = []
    empty: History = []
    finished = run.evidences()
    for evidence in finished.values():
        measurement = evidence.measurement
        trial = measurement.trial
        try:
            sample = load_sample(run, measurement, evidence)
        except AlteredError as error:
            altered.append((trial, error))
            empty.append((trial, window.sample(measurement, ())))
            continue
        windows = list(zip((sample.ends - sample.starts).tolist(), sample.server, strict=True))
        sample = replace(sample, power=_power(config, trial.deployment, windows))
        histories.setdefault((trial.deployment, trial.shape), []).append((trial, sample))
    for trial, sample in empty:  # a setting of which nothing else is left still has its place, and its flag
        history = histories.setdefault((trial.deployment, trial.shape), [])
        if all(other.concurrency != trial.concurrency for other, _ in history):
            history.append((trial, sample))
    ordered = dict(sorted(histories.items(), key=functools.partial(_place, config)))
    told: dict[str, str] = {}
    for line in run.journal_lines():
        keys = {"skipped": [line.get("trial")], "dropped": line.get("trials", ())}.get(line["event"], ())
        told |= {str(key): str(line.get("reason")) for key in keys if key not in finished}
    trials = {key: evidence.measurement.trial for key, evidence in finished.items()}
    now = None if "imported" in run.manifest else standing(run, config, trials)
    unhashed = sum(evidence.sha256 is None for evidence in finished.values()) + run.imported_unhashed()
    return Run(run.path, config, run.manifest, ordered, told, run.imported(), tuple(altered), unhashed, now)


def _read_config(run: RunDirectory, settings: Sequence[str]) -> Config:
    text, file = run.config_text(), str(run.path / "config.yaml")
    config = load_config(text, file)
    if not settings:
        return config
    changed = load_config(text, file, [ConfigSetting.of(one) for one in settings])
    if changed.identity() != config.identity():
        raise UsageError(
            f"--set {' --set '.join(settings)} would be another measurement",
            "of a finished run only what it is looked at with can be set: gpus, price, hardware, sla, objectives",
        )
    return changed


def _power(config: Config, deployment: str, windows: Sequence[tuple[float, Mapping[str, float]]]) -> Power | None:
    """What its GPUs drew in the windows, else what the config states."""
    mine = next((d for d in config.deployments if d.name == deployment), None)
    found = cost_energy.measured(windows, mine.gpus if mine else None)
    if found is not None or mine is None or mine.power is None:
        return found
    return Power(mine.power, "stated")


def _place(config: Config, item: tuple[Setting, History]) -> tuple[int, int]:
    """Where the config lists a setting."""
    (deployment, shape), _ = item
    names = [d.name for d in config.deployments]
    return (
        names.index(deployment) if deployment in names else len(names),
        config.shapes.index(shape) if shape in config.shapes else len(config.shapes),
    )


def _setting_of(what: Trial | Point) -> tuple[str, Shape, int]:
    return what.deployment, what.shape, what.concurrency


def _altered(error: AlteredError) -> Flag:
    return Flag("records_changed", f"the files of trial {error.trial} were changed", "", error.hint or "")


def import_files(
    files: Sequence[str | Path],
    run: str | Path,
    *,
    format: str | None = None,  # noqa: A002  # the option's name
    deployment: str | None = None,
    shape: str | None = None,
) -> Run:
    """Results of other tools as a run: the content of `files` tells their format, unless `format` names it.

    `deployment` names the only deployment, `shape` ("1024/256") its lengths where the files do not give them.
    UsageError when a file cannot be used, StoreError when `run` holds something else.
    """
    from frontier.formats.importing import read_files, store

    store(read_files(files, name=format, deployment=deployment, shape=shape), Path(run))
    return load(run)
