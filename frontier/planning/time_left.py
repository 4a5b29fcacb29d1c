"""Time left of a sweep: the trials to come, each as long as the nearest setting took. Pure.

The rules of `search.complete` count the trials that complete the frontier. The number of windows of
a proof is random, so while proofs go on only the least time is given: to the next judgement, and
what follows in any case. Once no candidate is left the time is a range; `benchmarks/time_left.py`
counts how often both hold. While nothing of a sweep is measured its time is not known.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from frontier.config import Config
from frontier.config.sla import Tiers
from frontier.core.claim.changes import History
from frontier.core.claim.proof import JUDGED_AFTER, SCANS
from frontier.core.model.loads import Load
from frontier.core.model.series import Series
from frontier.core.model.trials import Phase, Trial
from frontier.planning.budget import TrialTimes
from frontier.planning.plan import NO_PROOFS, Plan, ToProve, make_trial, runs_grid, search_policy
from frontier.search import complete, scan
from frontier.search.next_trial import Ask, Done
from frontier.search.scan import SearchPolicy
from frontier.search.series_history import SeriesHistory

SEARCHED = (*SCANS, Phase.PROVE)
"""The trials of a search, whose number is random."""
SPREAD = 1.7
"""The time left is a range: from the expected time divided by this to the expected time times this.
Its upper end is less than three times its lower one."""


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """Seconds expected until the operating points are known, and then until the frontiers are
    complete. `open`: proofs go on, and these are the least seconds. The budget ends the sweep after
    `most`.

    >>> left = TimeLeft(60.0, 240.0)
    >>> left.seconds, [round(end) for end in left.range], TimeLeft(60.0, open=True).range
    (300.0, [176, 510], (35.294117647058826, inf))
    """

    answer: float = 0.0
    rest: float = 0.0
    open: bool = False
    most: float = math.inf

    @property
    def seconds(self) -> float:
        """All expected seconds."""
        return self.answer + self.rest

    @property
    def range(self) -> tuple[float, float]:
        """The least and the most seconds."""
        longest = math.inf if self.open else self.seconds * SPREAD
        return min(self.most, self.seconds / SPREAD), min(self.most, longest)

    def tree(self) -> dict[str, float | None]:
        """For JSON."""
        low, high = self.range
        return {
            "answer_seconds": self.answer,
            "frontier_seconds": self.rest,
            "shortest_seconds": low,
            "longest_seconds": None if math.isinf(high) else high,
        }

    def within(self, limit: float) -> "TimeLeft":
        """The time left, cut to `limit` seconds."""
        most = max(0.0, limit)
        answer = min(self.answer, most)
        return TimeLeft(answer, min(self.rest, most - answer), self.open, most)

    def after(self, seconds: float) -> "TimeLeft":
        """The time left after `seconds` more."""
        answer = max(0.0, self.answer - seconds)
        rest = max(0.0, self.seconds - seconds) - answer
        return TimeLeft(answer, rest, self.open, max(0.0, self.most - seconds))


@dataclass(frozen=True, slots=True)
class ToCome:
    """Trials that are to come in a series, and how many of each: until its operating point is
    known, and after that. Where nothing is `measured`, they are only the trials that the config
    states. `open`: more will follow from these.
    """

    measured: bool
    open: bool
    answer: tuple[tuple[Trial, float], ...] = ()
    rest: tuple[tuple[Trial, float], ...] = ()

    def seconds(self, times: TrialTimes) -> TimeLeft | None:
        """How long they take; None where nothing of the series is measured."""
        if not self.measured:
            return None
        answer, rest = (_seconds(part, times) for part in (self.answer, self.rest))
        return None if answer is None or rest is None else TimeLeft(answer, rest, self.open)


def _seconds(trials: Iterable[tuple[Trial, float]], times: TrialTimes) -> float | None:
    each = [(times.expected(trial), count) for trial, count in trials]
    if any(seconds is None for seconds, _ in each):
        return None
    return math.fsum((seconds or 0.0) * count for seconds, count in each)


def of_sweep(series: Mapping[Series, TimeLeft | None], times: TrialTimes) -> TimeLeft | None:
    """The time left of all series; None while nothing is measured at all. A series without measured
    trials takes as long as the measured series on average.
    """
    if not series:
        return TimeLeft()
    known = {one: left for one, left in series.items() if left is not None}
    if not known:
        return None
    spent = math.fsum(took.seconds for trial, took in times.taken if trial.series in known)
    answer, rest = (math.fsum(getattr(left, name) for left in known.values()) for name in ("answer", "rest"))
    unknown = len(series) - len(known)
    # What was spent went to the answers as far as is known: they come first.
    answer, rest = answer + (spent + answer) / len(known) * unknown, rest + rest / len(known) * unknown
    return TimeLeft(answer, rest, unknown > 0 or any(left.open for left in known.values()))


def to_come(
    config: Config,
    series: Series,
    planned: Iterable[Trial],
    history: History,
    policy: SearchPolicy,
    ask: Ask | Done | None,
    later: Ask | Done | None = None,
) -> ToCome:
    """The trials that are to come in a series. `planned` are those of the plan that are not
    finished, `policy` what the search may do, `ask` what the search asks for next and `later` what
    the completion asks for.
    """
    if policy.prove:
        return ToCome(bool(history), isinstance(ask, Ask), tuple(_asked(config, series, policy, history, ask)))
    listed = [t for t in planned if t.series == series] if runs_grid(config) else []
    first, rest = stated(config, listed)
    if config.refine == 0 or not history:
        return ToCome(bool(history), config.refine != 0, tuple(first), tuple(rest))
    point = SeriesHistory.of(config.limits, history).operating_point if config.limits else None
    if point is None and isinstance(ask, Ask):
        return ToCome(True, True, (*first, _to_judgement(config, series, history, ask)), tuple(rest))
    candidate = next((each for each in (ask, later) if isinstance(each, Ask) and each.phase in SEARCHED), None)
    rest += [] if candidate is None else [_to_judgement(config, series, history, candidate)]
    rest += completing(config, series, policy, config.tiers, history, point, listed)
    return ToCome(True, candidate is not None, tuple(first), tuple(rest))


def stated(config: Config, listed: Iterable[Trial]) -> tuple[list[tuple[Trial, float]], list[tuple[Trial, float]]]:
    """The trials of a stated grid that come before the answer, and those after it."""
    first = [t for t in listed if config.requests is not None and t.repeat == 1]
    return [(t, 1.0) for t in first], [(t, 1.0) for t in listed if t not in first]


def completing(
    config: Config,
    series: Series,
    policy: SearchPolicy,
    tiers: Tiers,
    history: History,
    point: Load | None,
    listed: Iterable[Trial],
) -> list[tuple[Trial, float]]:
    """What completes the frontier, without settings that are `listed` in the plan."""
    planned = {trial.load for trial in listed}
    left = complete.trials_left(policy, tiers, history, point)
    mine = ((ask, count) for ask, count in left if ask.phase is not Phase.GRID or ask.load not in planned)
    return [(trial_of(config, series, ask), float(count)) for ask, count in mine]


def outlook(
    config: Config, plan: Plan, histories: Mapping[Series, History], connections: int, prove: ToProve = NO_PROOFS
) -> dict[Series, ToCome]:
    """The trials to come in each series of a run that no sweep is measuring; the client can hold
    `connections` at once.
    """
    coming: dict[Series, ToCome] = {}
    for series in series_of(config, plan):
        history = histories.get(series, ())
        policy = search_policy(config, connections, prove.of(series), series.deployment)
        if prove and not policy.prove:
            continue
        todo = plan.left({trial.key: trial for trial, _ in history})
        ask = scan.next_ask(policy, series.shape, config.tiers, history) if history or prove else None
        later = None
        if isinstance(ask, Done) and config.refine != 0 and not prove:
            later = complete.next_ask(policy, series.shape, config.tiers, history)
        coming[series] = to_come(config, series, todo, history, policy, ask, later)
    return coming


def series_of(config: Config, plan: Plan) -> list[Series]:
    """The series of a plan."""
    return [
        Series(deployment.name, shape)
        for deployment in config.deployments
        if deployment.name in plan.deployments
        for shape in config.shapes
        if shape.label in plan.shapes
    ]


def until_decided(config: Config, series: Series, history: History, ask: Ask) -> ToCome:
    """The windows until one candidate is decided: to its second judgement, at which half of them
    are decided, or to its next.
    """
    return ToCome(True, True, ((trial_of(config, series, ask), _windows_to(JUDGED_AFTER[1:], history, ask)),))


def _to_judgement(config: Config, series: Series, history: History, ask: Ask) -> tuple[Trial, float]:
    """A look of the search, or the windows of a proof to its next judgement."""
    trial = trial_of(config, series, ask)
    if ask.phase is not Phase.PROVE:
        return trial, 1.0
    return trial, _windows_to(JUDGED_AFTER, history, ask)


def _asked(
    config: Config, series: Series, policy: SearchPolicy, history: History, ask: Ask | Done | None
) -> list[tuple[Trial, float]]:
    """The windows of the settings that the user asked to be proven; they are decided in their
    order.
    """
    if not isinstance(ask, Ask) or not history:
        return []
    left = [c for c in sorted(policy.prove) if c >= ask.load]
    asks = [
        ask
        if c == ask.load and ask.phase is Phase.PROVE
        else complete.window_of_proof(c, SeriesHistory.of(config.limits, history))
        for c in left
    ]
    return [part for each in asks for part in until_decided(config, series, history, each).answer]


def _windows_to(judgements: Sequence[int], history: History, ask: Ask) -> float:
    """How many windows of a proof are left to the next of these judgements; 1 after the last."""
    begun = sum(t.phase is Phase.PROVE and t.load == ask.load for t, _ in history)
    return float(next((look - begun for look in judgements if look > begun), 1))


def trial_of(config: Config, series: Series, ask: Ask) -> Trial:
    """The trial that a search asks for, in its first repeat."""
    deployment = config.deployment(series.deployment)
    size = ask.requests, ask.seconds, ask.warmup
    return make_trial(config, deployment, series.shape, ask.load, ask.phase, 1, *size)
