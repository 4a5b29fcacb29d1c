"""The forecast of a sweep: what is left of it, as trials, and the seconds that takes, expected and
at most. Pure.

It is the only one: the time left that a sweep shows, `--dry-run`, and what fits into a budget all
come from here, and `benchmarks/time_left.py` measures how good it is.

*What is left.* A series is scanned, then proven, then its frontier is completed. What completes it
follows from the rules of `decide.completion` and is counted by them. How many windows the proofs
will take is random: FIRST, AGAIN and LATER have what sweeps of simulated deployments took.

*When it ends.* Once the scan is over the end of a series is planned: the time that is then expected
of all of it. What is owed (`completion.next_ask`) is measured even if that takes longer, the rest
only until then, so that proofs that take longer than expected leave out what is worth least instead
of moving the end.

*How long it takes.* A setting that was measured takes as long again. Others of its shape follow
from the engine model fitted to the shape's points; where there are fewer than three, from the
described hardware at its assumed efficiency, scaled by what was measured so far. Where nothing is
described, neighbours decide; before the first trial, a request is taken to last as long as the SLA
lets it, or as at ASSUMED_TPOT. A budget drops nothing by this (see `budget`).
"""

import dataclasses
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from frontier.budget import TrialTimes
from frontier.config import Config
from frontier.decide import completion, search
from frontier.decide.changes import History
from frontier.decide.load_search import EXPECTED_WINDOWS, PROOF_TURNS, usual_proof
from frontier.decide.prediction import LEAST, Assumption, assumption, rough_e2e
from frontier.decide.proof import ALPHA, LOOKS, MAX_WINDOWS, PER_STREAM, SPEND, WINDOWS, by_concurrency, fewest_requests
from frontier.decide.search import Ask, Done, SearchPolicy
from frontier.errors import UsageError
from frontier.hardware.predict import Calibrated, Known, calibrate
from frontier.hardware.roofline import ModelRoofline
from frontier.model import Limit, Phase, Rate, Series, Shape, Trial
from frontier.plan import NOTHING, Plan, ToProve, expected_seconds, longest_of, make_trial, runs_grid, search_policy
from frontier.rate_forecast import Expectation, expectation
from frontier.stats import intervals
from frontier.stats.window import WindowData

ASSUMED_TTFT, ASSUMED_TPOT = 0.2, 0.015
"""Seconds to the first token, and per token after it, while nothing is described and nothing was
measured."""
TAIL = {"ttft": 2.0, "tpot": 1.3, "e2e": 1.5}
"""A high percentile of each as a multiple of its mean, about."""
GROWTH = 0.35
"""The power of concurrency with which a request's time is taken to grow where less than a curve is
known."""
DEPENDENCE = 2
"""Requests that are taken to stand for one independent request before a scan has shown it."""
FIRST, AGAIN, LATER, BETTER, ONWARD = (3.0, 35.0), (8.0, 45.0), (13.0, 45.0), (3.0, 30.0), (9.0, 36.0)
"""Windows of proofs beyond the next judgement of the candidate that is being proven, expected and
in 95 % of sweeps: until the answer, the same where a candidate was given up before, after the
answer, beyond a better candidate of the completion, and beyond one of the search, which goes on
after its first answer whatever time the plan has left."""
AT_RATES = float(EXPECTED_WINDOWS - LOOKS[0]), 35.0
"""The same of a search over rates, which proves no candidate after its answer."""
ANOTHER = 8.0
"""Windows of proofs of candidates that only show while the frontier is completed, at most."""
MORE_VISITS = 1.7
"""Visits at most, as a multiple of what is expected: late requests among them make a claim take
longer."""
MANY = 20
"""Trials, the latest, by which it is known what trials take beside their requests."""
SURE, UNSURE, ASSUMED = 1.2, 1.5, 3.0
"""What a trial takes at most, as a multiple of what is expected: by what was measured of its
setting or its shape, by its neighbours or the described hardware, and by nothing."""


# -- what is left
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Part:
    """Trials of one kind that are to come: one of them, how many are expected, and the most.
    Optional ones are only measured where the planned end of their series leaves time for them.
    """

    trial: Trial
    expected: float = 1.0
    most: float = 1.0
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Ahead:
    """What is left of a series. Until its answer: `looks`, which are a scan or the first trials of
    a stated grid, and `proofs`. Then `rest`, which completes the frontier; what is optional of it,
    and further visits that `fill` the time, only as far as a planned end leaves room.
    """

    looks: tuple[Part, ...] = ()
    proofs: tuple[Part, ...] = ()
    rest: tuple[Part, ...] = ()
    fill: tuple[Part, ...] = ()

    @property
    def parts(self) -> tuple[Part, ...]:
        """All of it."""
        return (*self.looks, *self.proofs, *self.rest)


@dataclass(frozen=True, slots=True)
class Expected:
    """Seconds until the operating points are known, and then until the frontiers are complete; and
    by how much either may take longer, in 95 % of sweeps.
    """

    answer: float = 0.0
    answer_more: float = 0.0
    rest: float = 0.0
    rest_more: float = 0.0

    def __add__(self, other: "Expected") -> "Expected":
        """Both. That both take their longest is unlikely: what they may take more adds up as
        independent errors do.
        """
        return Expected(
            self.answer + other.answer,
            math.hypot(self.answer_more, other.answer_more),
            self.rest + other.rest,
            math.hypot(self.rest_more, other.rest_more),
        )

    @property
    def answer_longest(self) -> float:
        """Until the operating points are known, at most."""
        return self.answer + self.answer_more

    @property
    def seconds(self) -> float:
        """All that is expected."""
        return self.answer + self.rest

    @property
    def longest(self) -> float:
        """All of it, at most."""
        return self.seconds + math.hypot(self.answer_more, self.rest_more)


def ahead(
    config: Config,
    series: Series,
    planned: Iterable[Trial],
    history: History,
    policy: SearchPolicy,
    ask: Ask | Done | None,
    later: Ask | Done | None = None,
) -> Ahead:
    """What is left of a series. `planned` are the trials of the plan that are not finished,
    `policy` what the search may do. `ask` is what the search asks for next, None before it was
    asked; `later` what the completion asks for.
    """
    if policy.prove:
        return Ahead(proofs=_asked(config, series, policy, history, ask))
    own = [t for t in planned if t.series == series] if runs_grid(config) else []
    looks = [Part(t) for t in own if config.requests is not None and t.repeat == 1]
    rest = [Part(t) for t in own if config.requests is None or t.repeat > 1]
    if config.refine == 0:
        return Ahead(looks=tuple(looks), rest=tuple(rest))
    proofs: tuple[Part, ...] = ()
    point = completion.operating_concurrency(config.limits, history) if config.limits and history else None
    scans = ask is None or (isinstance(ask, Ask) and ask.phase is Phase.SCAN)
    if config.open_loop and config.searches and scans:
        looks += _looks_at_rates(config, series, history)
    elif config.searches and config.requests is None and scans:
        looks.append(_scan(config, series, policy, history))
    after = ask if isinstance(ask, Ask) else later
    if config.searches and point is None and not isinstance(ask, Done):
        now = ask.concurrency if ask is not None else None
        again = any(t.phase is Phase.PROVE and t.concurrency != now for t, _ in history)
        closed = AGAIN if again else FIRST
        more = AT_RATES if config.open_loop else closed
        proofs = (_windows(config, series, policy, history, ask, more),)
        edge = completion.edge(config.limits, completion.pilot_points(config.limits, history)) or 0
        if config.open_loop:  # the search ends with the answer
            point = proofs[0].trial.concurrency
        elif history and min(edge, proofs[0].trial.concurrency) <= min(policy.grid):
            # No setting seems to be clearly inside the SLA: the lowest one is given up soon, and
            # none is visited.
            if not any(t.phase is Phase.PROVE for t, _ in history):
                proofs = (dataclasses.replace(proofs[0], expected=1.0),)
        else:
            point = proofs[0].trial.concurrency
            rest.append(dataclasses.replace(proofs[0], expected=LATER[0], most=LATER[1], optional=True))
    elif isinstance(after, Ask) and after.phase is Phase.PROVE:
        searches = isinstance(ask, Ask)
        part = _windows(config, series, policy, history, after, ONWARD if searches else BETTER)
        owed = searches or completion.may_be_better(after, config.limits, history)
        rest.append(dataclasses.replace(part, optional=not owed))
    elif config.searches and isinstance(later, Ask):  # what is measured now may show another candidate
        another = _windows(config, series, policy, history, None, BETTER)
        rest.append(dataclasses.replace(another, expected=0.0, most=ANOTHER))
    planned_settings = {t.concurrency for t in own}
    for each, count in completion.trials_left(policy, config.tiers, history, point):
        if each.phase is not Phase.GRID or each.concurrency not in planned_settings:
            known = any(t.phase is Phase.VISIT and t.concurrency == each.concurrency for t, _ in history)
            most = count * (MORE_VISITS if each.phase is Phase.VISIT and not known else 1)
            owed = each.phase is not Phase.FRONTIER or completion.may_be_better(each, config.limits, history)
            rest.append(Part(_trial(config, series, each), count, most, optional=not owed))
    fill: tuple[Part, ...] = ()
    if config.limits and point is not None and history:
        visit, count = completion.further_visits(config.limits, history, point)
        fill = (Part(_trial(config, series, visit), count, count, optional=True),)
    return Ahead(tuple(looks), proofs, tuple(rest), fill)


def outlook(
    config: Config, plan: Plan, histories: Mapping[Series, History], prove: ToProve = NOTHING
) -> dict[Series, Ahead]:
    """What is left of each series of the plan after what was measured of it."""
    aheads = {}
    for series in (
        Series(d.name, shape)
        for d in config.deployments
        if d.name in plan.deployments
        for shape in config.shapes
        if shape.label in plan.shapes
    ):
        history, policy = histories.get(series, ()), search_policy(config, prove.of(series))
        if prove and not policy.prove:
            aheads[series] = Ahead()
            continue
        todo = plan.left({trial.key: trial for trial, _ in history})
        ask = search.next_ask(policy, series.shape, config.tiers, history) if history or prove else None
        later = None
        if isinstance(ask, Done) and config.refine != 0 and not prove:
            later = completion.next_ask(policy, series.shape, config.tiers, history)
        aheads[series] = ahead(config, series, todo, history, policy, ask, later)
    return aheads


def _trial(config: Config, series: Series, ask: Ask) -> Trial:
    deployment = config.deployment(series.deployment)
    size = ask.requests, ask.seconds, ask.warmup
    return make_trial(config, deployment, series.shape, ask.concurrency, ask.phase, 1, *size)


def _scan(config: Config, series: Series, policy: SearchPolicy, history: History) -> Part:
    """The looks of a scan: about every second setting of the grid, and two where the SLA is
    crossed.
    """
    seen, size = len({t.concurrency for t, _ in history}), len(policy.grid)
    c = policy.grid[size // 2]
    requests = max(search.SCAN_REQUESTS, search.SCAN_PER_STREAM * c)
    ask = Ask(c, Phase.SCAN, requests, "", search.SCAN_SECONDS)
    return Part(_trial(config, series, ask), max(1.0, size / 2 + 2 - seen), max(1.0, size + 2 - seen))


def expected_rates(config: Config, series: Series) -> Expectation:
    """What a search over rates is expected to find, while a request takes as long as the SLA lets
    it.
    """
    return expectation(config, series, assumed_e2e(config.limits, series.shape))


def _looks_at_rates(config: Config, series: Series, history: History) -> list[Part]:
    """The looks that are left of a search over rates."""
    seen = sum(trial.phase is Phase.SCAN for trial, _ in history)
    looks = expected_rates(config, series).looks(config.limits, config.concurrency[0] / 1000, seen)
    asks = (Ask(series.shape.load(Rate.of(look.load)), Phase.SCAN, look.requests, "") for look in looks)
    return [Part(_trial(config, series, ask)) for ask in asks]


def _windows(
    config: Config,
    series: Series,
    policy: SearchPolicy,
    history: History,
    ask: Ask | None,
    more: tuple[float, float],
) -> Part:
    """The windows of proofs that are to come: until the next judgement of the candidate, and what
    comes after it.
    """
    if ask is not None and ask.phase is Phase.PROVE:
        trial = _trial(config, series, ask)
    else:
        c = completion.edge(config.limits, completion.pilot_points(config.limits, history))
        if config.open_loop:
            rates = expected_rates(config, series)
            c, least = c or rates.usual, PROOF_TURNS * rates.policy.in_flight
        else:
            c, least = c or policy.grid[len(policy.grid) // 2], 0
        size = max(proof_requests(config, c), least) // WINDOWS
        trial = _trial(config, series, Ask(c, Phase.PROVE, size, ""))
    begun = sum(t.phase is Phase.PROVE and t.concurrency == trial.concurrency for t, _ in history)
    judged = next((look for look in LOOKS if look > begun), begun + 1) - begun
    expected, most = more
    if trial.concurrency == 1:  # there is no lower candidate
        expected, most = 0.0, float(MAX_WINDOWS)
    return Part(trial, judged + expected, judged + most)


def _asked(
    config: Config, series: Series, policy: SearchPolicy, history: History, ask: Ask | Done | None
) -> tuple[Part, ...]:
    """The proofs of the settings that the user asked to be proven; they are decided in their
    order.
    """
    if isinstance(ask, Done):
        return ()
    first = ask.concurrency if ask is not None else 0
    guesses = [Ask(c, Phase.PROVE, proof_requests(config, c) // WINDOWS, "") for c in policy.prove if c >= first]
    return tuple(
        candidate_windows(
            config,
            series,
            history,
            ask if ask is not None and ask.phase is Phase.PROVE and ask.concurrency == guess.concurrency else guess,
        )
        for guess in guesses
    )


def candidate_windows(config: Config, series: Series, history: History, ask: Ask) -> Part:
    """The windows until one candidate is decided: to its second judgement, as half of them are, or
    to its next.
    """
    begun = sum(t.phase is Phase.PROVE and t.concurrency == ask.concurrency for t, _ in history)
    usual = next((look for look in LOOKS[1:] if look > begun), begun + 1)
    return Part(_trial(config, series, ask), usual - begun, max(1, MAX_WINDOWS - begun))


def proof_requests(config: Config, concurrency: int) -> int:
    """About how many requests prove a setting, two of them being late."""
    limited = [limit for _, limits in config.tiers for limit in limits if limit.of.p is not None]
    if isinstance(concurrency, Rate):
        each = max(shape.requests for shape in config.shapes)
        return math.ceil(max(usual_proof(limited), WINDOWS * 30) * each)
    least = WINDOWS * max(30, PER_STREAM * concurrency)
    floors = [fewest_requests(shape, limit, concurrency) for limit in limited for shape in config.shapes]
    percentiles = [p for limit in limited if (p := limit.of.p) is not None]
    independent = [intervals.needed(p, 1 - SPEND * ALPHA, violations=2) for p in percentiles]
    return max([least, *(DEPENDENCE * n for n in independent), *floors])


def proof(config: Config, series: Series, concurrency: int) -> Trial:
    """A whole proof of a setting as one trial."""
    return _trial(config, series, Ask(concurrency, Phase.PROVE, proof_requests(config, concurrency), ""))


# -- how long it takes
# --------------------------------------------------------------------------------------------------


class TimeEstimator:
    """Estimates how long trials of one config will take."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._ends: dict[Series, tuple[str, float]] = {}
        self._assumed: dict[str, Assumption] = {}
        self._rooflines = {d.name: d.roofline() for d in config.deployments}
        self._fits: dict[tuple[Series, int], Calibrated | None] = {}
        self._besides: dict[tuple[Series, bool, int], float] = {}
        for deployment in config.deployments:
            try:
                self._assumed[deployment.name] = assumption(deployment)[0]
            except UsageError:  # too little is described: then it is not known before the first trials
                continue

    def expected(
        self, ahead: Ahead, times: TrialTimes, histories: Mapping[Series, History], room: float = math.inf
    ) -> Expected:
        """Seconds that all of it takes: of what is optional as much as there is `room` for, in
        seconds from now.
        """

        def both(parts: Iterable[Part]) -> tuple[float, float]:
            each = [(part, *self._seconds(part.trial, times, histories)) for part in parts]
            expected = math.fsum(part.expected * seconds for part, seconds, _ in each)
            longest = ((part, max(s, min(s * factor, longest_of(part.trial)))) for part, s, factor in each)
            more = [part.most * most - part.expected * s for (part, most), (_, s, _) in zip(longest, each, strict=True)]
            return expected, math.hypot(*more)

        answer, answer_more = both((*ahead.looks, *ahead.proofs))
        owed, owed_more = both(part for part in ahead.rest if not part.optional)
        optional, optional_more = both(part for part in ahead.rest if part.optional)
        free = max(0.0, room - answer - owed)
        some = min(optional + (both(ahead.fill)[0] if room < math.inf else 0.0), free)
        last = max((self._seconds(part.trial, times, histories)[0] for part in ahead.rest), default=0.0)
        some_more = max(min(optional_more, free - some), last if room < math.inf else 0.0)  # one begun before the end
        return Expected(answer, answer_more, owed + some, math.hypot(owed_more, some_more))

    def room(self, plan: Plan, series: Series, history: History, times: TrialTimes, policy: SearchPolicy) -> float:
        """Seconds until the planned end of a series; infinite before it is planned.

        It is planned when the scan is over, as what was expected then. What is owed is measured
        even if that takes longer; what is optional ends there.
        """
        first = next((k for k, (trial, _) in enumerate(history) if trial.phase is Phase.PROVE), None)
        if first is None or policy.prove:
            return math.inf
        before, trial = history[:first], history[first][0]
        if self._ends.get(series, ("",))[0] != trial.fingerprint:
            keys = {t.key for t, _ in before}
            scan = TrialTimes(tuple((t, took) for t, took in times.taken if t.series == series and t.key in keys))
            ask = Ask(trial.concurrency, Phase.PROVE, trial.requests, "")
            todo = plan.left({t.key: t for t, _ in before})
            left = ahead(self._config, series, todo, before, policy, ask)
            end = _spent(scan, series) + self.expected(left, scan, {series: before}).seconds
            self._ends[series] = trial.fingerprint, end
        return self._ends[series][1] - _spent(times, series)

    def spare(self, series: Series, history: History, times: TrialTimes, policy: SearchPolicy, room: float) -> float:
        """Seconds of the room that what the completion owes leaves."""
        rest = ahead(self._config, series, (), history, policy, Done("")).rest
        owed = Ahead(rest=tuple(part for part in rest if not part.optional))
        return room - self.expected(owed, times, {series: history}).seconds

    def seconds(self, trial: Trial, times: TrialTimes, histories: Mapping[Series, History]) -> float:
        """Seconds one trial will take."""
        return self._seconds(trial, times, histories)[0]

    def _seconds(self, trial: Trial, times: TrialTimes, histories: Mapping[Series, History]) -> tuple[float, float]:
        """The same, and at most how many times as long."""
        if same := times.same(trial):
            return sum(amount.seconds for amount in same) / len(same), SURE
        fit = self._fit(trial.series, histories.get(trial.series, ()))
        if fit is not None:
            by_fit = _by_fit(trial, fit)
            return max(0.5 * by_fit, by_fit + self._beside(trial, times, fit)), SURE
        by_hardware = self._by_hardware(trial)
        if by_hardware is not None:
            return by_hardware * self._ratio(trial, times), UNSURE
        points = completion.pilot_points(self._config.limits, histories.get(trial.series, ()))
        if (e2e := search.mean_e2e(trial.concurrency, points, GROWTH)) is not None:
            return _cost(trial, e2e), UNSURE
        return _cost(trial, assumed_e2e(self._config.limits, trial.shape)), ASSUMED

    def knows(self, times: TrialTimes) -> bool:
        """Whether anything is known of how long a request takes: by a trial, or by the described
        hardware.
        """
        return bool(times.taken or self._assumed)

    def basis(self, times: TrialTimes) -> str:
        """What the seconds rest on, in words."""
        if times.taken:
            return "what was measured"
        if self._assumed:
            return "the engine model, nothing being measured yet"
        if any(limit.of.p is not None and limit.of.quantity in TAIL for limit in self._config.limits):
            return "requests as slow as the SLA allows, as nothing is measured yet"
        return f"an assumed {1e3 * ASSUMED_TPOT:g} ms a token, nothing being measured yet"

    def _beside(self, trial: Trial, times: TrialTimes, fit: Calibrated) -> float:
        """Seconds that trials take beside what follows from their requests: ramps, warm-ups, the
        ends of windows.
        """
        scan = trial.phase is Phase.SCAN
        alike = [(t, a) for t, a in times.taken if t.series == trial.series and (t.phase is Phase.SCAN) == scan]
        key = trial.series, scan, len(alike)
        if key not in self._besides:
            differences = [amount.seconds - _by_fit(t, fit) for t, amount in alike[-MANY:]]
            self._besides[key] = statistics.median(differences or [0.0])
        return self._besides[key]

    def _by_hardware(self, trial: Trial) -> float | None:
        """By the described hardware; None where none is, or a request does not fit it."""
        assumed = self._assumed.get(trial.deployment)
        e2e = None if assumed is None or trial.rate is not None else rough_e2e(assumed, trial.shape, trial.concurrency)
        return None if e2e is None else _cost(trial, e2e)

    def _ratio(self, trial: Trial, times: TrialTimes) -> float:
        """What trials took over what the hardware let expect: those of the shape, else of the
        deployment.
        """
        mine = [(other, amount.seconds) for other, amount in times.taken if other.deployment == trial.deployment]
        alike = [(other, took) for other, took in mine if other.shape == trial.shape] or mine
        ratios = [math.log(took / guess) for other, took in alike if took > 0 and (guess := self._by_hardware(other))]
        return math.exp(sum(ratios) / len(ratios)) if ratios else 1.0

    def _fit(self, series: Series, history: History) -> Calibrated | None:
        """The engine model fitted to what was measured of a series so far; fitted again when there
        is more.
        """
        key = series, len(history)
        if key not in self._fits:
            self._fits[key] = self._fitted(series, history)
        return self._fits[key]

    def _fitted(self, series: Series, history: History) -> Calibrated | None:
        known = [point for c, samples in sorted(by_concurrency(history).items()) if (point := _mean(c, samples))]
        if len(known) < LEAST or series.shape.arrivals is not None:
            return None
        roofline, shape = self._rooflines.get(series.deployment), series.shape
        card = roofline if isinstance(roofline, ModelRoofline) else None
        return calibrate(known, shape.isl.mean, shape.osl.mean, roofline=card)


def _spent(times: TrialTimes, series: Series) -> float:
    """Seconds that the trials of a series took."""
    return math.fsum(took.seconds for trial, took in times.taken if trial.series == series)


def assumed_e2e(limits: Iterable[Limit], shape: Shape) -> float:
    """Seconds of a request while nothing is described and nothing was measured: as long as the SLA
    lets it take, which is how long it takes at the operating point unless the whole grid is inside.
    """
    seconds = {"ttft": ASSUMED_TTFT, "tpot": ASSUMED_TPOT}
    for limit in limits:
        if limit.of.p is not None and limit.of.quantity in TAIL:
            seconds[limit.of.quantity] = limit.promise / TAIL[limit.of.quantity]
    return seconds.get("e2e", seconds["ttft"] + (shape.osl.mean - 1) * seconds["tpot"])


def _by_fit(trial: Trial, fit: Calibrated) -> float:
    known = fit.at(trial.concurrency)
    return _cost(trial, known.ttft.value + (trial.shape.osl.mean - 1) * known.tpot.value)


def _cost(trial: Trial, e2e: float) -> float:
    """Seconds of a trial whose requests take so long. A window that a search bounds by time lasts
    two requests at least (see `search.longer`).
    """
    if trial.seconds is not None and trial.phase is not Phase.PROVE:
        trial = dataclasses.replace(trial, seconds=max(trial.seconds, search.TURNS * e2e))
    seconds = expected_seconds(trial, e2e)
    assert seconds is not None
    return seconds


def _mean(concurrency: int, samples: Sequence[WindowData]) -> Known | None:
    """The mean latencies of the requests that succeeded; None where they say nothing."""
    ttft, tpot = (np.concatenate([getattr(s, name)[s.ok] for s in samples]) for name in ("ttft", "tpot"))
    tpot = tpot[~np.isnan(tpot)]
    if not len(ttft) or not len(tpot) or not (ttft.mean() > 0 and tpot.mean() > 0):
        return None
    return Known(concurrency, float(ttft.mean()), float(tpot.mean()))
