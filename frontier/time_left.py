"""Time left of a sweep: the trials to come, each as long as the nearest setting took. Pure.

Which trials complete the frontier follows from the rules of `decide.completion` and is counted by
them. How many windows the proofs will take is random: UNTIL_PROVEN, AFTER_PROOF and FURTHER have
what sweeps of simulated deployments took. So the time left is shown as a range, and
`benchmarks/time_left.py` counts how often the range holds. While nothing of a sweep is measured its
time is not known.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from frontier.budget import TrialTimes
from frontier.config import Config
from frontier.decide import completion, search
from frontier.decide.changes import History
from frontier.decide.load_search import usual_proof
from frontier.decide.proof import LOOKS, MAX_WINDOWS, WINDOWS
from frontier.decide.search import Ask, Done, SearchPolicy
from frontier.model import Phase, Series, Trial
from frontier.plan import NOTHING, Plan, ToProve, make_trial, runs_grid, search_policy

SPREAD = 1.7
"""The range of the time left reaches from the expected time over this to the expected time times
this: its upper end is less than three times its lower one."""
UNTIL_PROVEN, AFTER_PROOF, FURTHER = 5.0, 6.0, 5.0
"""Windows of proofs that are expected beyond the next judgement of the candidate that is being
proven: until the first setting is proven; after that, before it is known which candidate comes
next; and of candidates that come after the present one."""


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """Seconds expected until the operating points are known, and then until the frontiers are
    complete; the budget ends it after `most`.

    >>> left = TimeLeft(60.0, 240.0)
    >>> left.seconds, [round(end) for end in left.range]
    (300.0, [176, 510])
    """

    answer: float = 0.0
    rest: float = 0.0
    most: float = math.inf

    @property
    def seconds(self) -> float:
        """All that is expected."""
        return self.answer + self.rest

    @property
    def range(self) -> tuple[float, float]:
        """All of it, at least and at most in nine sweeps of ten."""
        return as_range(self.seconds, self.most)

    def within(self, limit: float | None) -> "TimeLeft":
        """As far as it ends within so many seconds; None: there is no limit."""
        if limit is None:
            return self
        most = max(0.0, limit)
        answer = min(self.answer, most)
        return TimeLeft(answer, min(self.rest, most - answer), most)


def as_range(seconds: float, most: float = math.inf) -> tuple[float, float]:
    """The range around an expected time, which is `most` at most."""
    return min(most, seconds / SPREAD), min(most, seconds * SPREAD)


@dataclass(frozen=True, slots=True)
class ToCome:
    """Trials that are to come in a series, and how many of each: until its operating point is
    known, and after that. Where nothing is `measured`, only those that the config states.
    """

    measured: bool
    answer: tuple[tuple[Trial, float], ...] = ()
    rest: tuple[tuple[Trial, float], ...] = ()

    def seconds(self, times: TrialTimes) -> TimeLeft | None:
        """How long they take; None where nothing of the series is measured."""
        if not self.measured:
            return None
        answer, rest = (_seconds(part, times) for part in (self.answer, self.rest))
        return None if answer is None or rest is None else TimeLeft(answer, rest)


def _seconds(trials: Iterable[tuple[Trial, float]], times: TrialTimes) -> float | None:
    each = [(times.expected(trial), count) for trial, count in trials]
    if any(seconds is None for seconds, _ in each):
        return None
    return math.fsum((seconds or 0.0) * count for seconds, count in each)


def of_sweep(series: Mapping[Series, TimeLeft | None], times: TrialTimes) -> TimeLeft | None:
    """The time left of all series: one of which nothing is measured takes as long as those that
    are measured do on average; None while nothing is measured at all.
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
    return TimeLeft(answer + (spent + answer) / len(known) * unknown, rest + rest / len(known) * unknown)


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
        return ToCome(bool(history), tuple(_asked(config, series, policy, history, ask)))
    own = [t for t in planned if t.series == series] if runs_grid(config) else []
    first = [(t, 1.0) for t in own if config.requests is not None and t.repeat == 1]
    rest = [(t, 1.0) for t in own if config.requests is None or t.repeat > 1]
    if config.refine == 0 or not history:
        return ToCome(bool(history), tuple(first), tuple(rest))
    point = completion.operating_concurrency(config.limits, history) if config.limits else None
    if point is None and isinstance(ask, Ask):  # the search goes on until a setting is proven
        first += _until_answer(config, series, policy, history, ask)
        proof = first[-1][0]
        point = proof.concurrency
        rest += [] if config.open_loop else [(proof, AFTER_PROOF)]
    else:
        rest += _further(config, series, history, ask, later)
    rest += _completing(config, series, policy, history, point, {t.concurrency for t in own})
    return ToCome(True, tuple(first), tuple(rest))


def _further(config: Config, series: Series, history: History, *asks: Ask | Done | None) -> list[tuple[Trial, float]]:
    """The windows of candidates that may be better than what is proven, where one is asked for."""
    asked = next((ask for ask in asks if isinstance(ask, Ask)), None)
    if asked is None or asked.phase is not Phase.PROVE:
        return []
    return [_windows(config, series, history, asked, FURTHER)]


def _completing(
    config: Config,
    series: Series,
    policy: SearchPolicy,
    history: History,
    point: int | None,
    listed: Collection[int],
) -> list[tuple[Trial, float]]:
    """What completes the frontier, without settings that are `listed` in the plan."""
    left = completion.trials_left(policy, config.tiers, history, point)
    mine = ((ask, count) for ask, count in left if ask.phase is not Phase.GRID or ask.concurrency not in listed)
    return [(_trial(config, series, ask), float(count)) for ask, count in mine]


def outlook(
    config: Config, plan: Plan, histories: Mapping[Series, History], prove: ToProve = NOTHING
) -> dict[Series, ToCome]:
    """What is to come in each series of a run that no sweep is measuring."""
    coming: dict[Series, ToCome] = {}
    for series in series_of(config, plan):
        history, policy = histories.get(series, ()), search_policy(config, prove.of(series))
        if prove and not policy.prove:
            continue
        todo = plan.left({trial.key: trial for trial, _ in history})
        ask = search.next_ask(policy, series.shape, config.tiers, history) if history or prove else None
        later = None
        if isinstance(ask, Done) and config.refine != 0 and not prove:
            later = completion.next_ask(policy, series.shape, config.tiers, history)
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
    """The windows until one candidate is decided: to its second judgement, as half of them are, or
    to its next.
    """
    begun = _begun(history, ask.concurrency)
    judged = next((look for look in LOOKS[1:] if look > begun), begun + 1)
    return ToCome(True, ((_trial(config, series, ask), float(judged - begun)),))


def _until_answer(
    config: Config, series: Series, policy: SearchPolicy, history: History, ask: Ask
) -> list[tuple[Trial, float]]:
    """The rest of the scan, and the proofs until the first setting is proven."""
    if ask.phase is not Phase.SCAN:
        return [_windows(config, series, history, ask, UNTIL_PROVEN)]
    seen, size = len({t.concurrency for t, _ in history}), len(policy.grid)
    looks = max(1.0, size / 2 + 2 - seen)
    if config.open_loop:
        requests = math.ceil(usual_proof(config.limits) * series.shape.requests / WINDOWS)
        proof = Ask(ask.concurrency, Phase.PROVE, requests, "", warmup=ask.warmup)
    else:
        edge = completion.edge(config.limits, completion.pilot_points(config.limits, history))
        proof = completion.window_of_proof(edge or ask.concurrency, config.limits, history)
    return [(_trial(config, series, ask), looks), _windows(config, series, history, proof, UNTIL_PROVEN)]


def _windows(config: Config, series: Series, history: History, ask: Ask, further: float) -> tuple[Trial, float]:
    """The windows to the next judgement of a candidate, and so many further ones."""
    begun = _begun(history, ask.concurrency)
    judged = next((look for look in LOOKS if look > begun), begun + 1) - begun
    return _trial(config, series, ask), judged + further


def _asked(
    config: Config, series: Series, policy: SearchPolicy, history: History, ask: Ask | Done | None
) -> list[tuple[Trial, float]]:
    """The windows of the settings that the user asked to be proven; they are decided in their
    order.
    """
    if not isinstance(ask, Ask) or not history:
        return []
    left = [c for c in sorted(policy.prove) if c >= ask.concurrency]
    asks = [
        ask
        if c == ask.concurrency and ask.phase is Phase.PROVE
        else completion.window_of_proof(c, config.limits, history)
        for c in left
    ]
    return [part for each in asks for part in until_decided(config, series, history, each).answer]


def _begun(history: History, concurrency: int) -> int:
    return min(MAX_WINDOWS, sum(t.phase is Phase.PROVE and t.concurrency == concurrency for t, _ in history))


def _trial(config: Config, series: Series, ask: Ask) -> Trial:
    deployment = config.deployment(series.deployment)
    size = ask.requests, ask.seconds, ask.warmup
    return make_trial(config, deployment, series.shape, ask.concurrency, ask.phase, 1, *size)
