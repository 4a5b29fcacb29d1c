"""The budget of a sweep and the time it has left: what may be spent, what trials take, which therefore fit. Pure.

A sweep first finds and proves the operating point of every series, then completes the frontiers. `Ahead` is what that
is expected to consist of, as trials.

Trials are run in the order of their value (see `plan`), and what has no room left is dropped: so the least valuable is.
Whether a trial has room is decided by what its neighbours took (`TrialTimes`), or by its `max_time`; never by a model.

`TimeEstimator` says how long trials will take, for the people who wait. A setting that was measured takes as long
again. Others of its shape follow from the engine model fitted to the shape's points; where there are fewer than three,
from the described hardware at its assumed efficiency, scaled by what was measured so far. Where nothing is described,
neighbours decide; before the first trial, half of the longest that a trial may take. `benchmarks/time_left.py` measures
how good this is.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from frontier.config import BudgetConfig, Config, DeploymentConfig
from frontier.config.schema import TURNS
from frontier.decide.prediction import LEAST, Assumption, assumption, rough_e2e
from frontier.decide.proof import WINDOWS, History, by_concurrency
from frontier.decide.search import Ask, Done
from frontier.errors import UsageError
from frontier.hardware.predict import Calibrated, Known, calibrate
from frontier.hardware.roofline import ModelRoofline
from frontier.metrics import claim_floor
from frontier.model import Phase, Series, Shape, Trial
from frontier.plan import PROOF_TRIALS, PROOFS, Plan, estimate, in_turn, longest_of, make_trial
from frontier.stats import intervals
from frontier.stats.window import WindowData
from frontier.units import format_elapsed

MARGIN = 1.15
"""A trial is begun when there is room for this many times what it is expected to take."""
AROUND = 3
"""Requests per stream that a trial sends beside its window: in the warm-up, and while the window's last ones end."""
SCAN_REQUESTS, SCAN_SECONDS, PROOF_SECONDS = 60, 15.0, 120.0
"""What a look at a setting, and a proof, are taken to need before the search was asked."""
USUAL_PROOFS, DEPENDENCE = 1.5, 2
BOUND = 2.0
"""A trial is taken to need at most this many times what is expected, where anything is known of its setting."""
_PARTS = (("seconds", "time"), ("requests", "requests"), ("tokens", "tokens"), ("dollars", "cost"))


@dataclass(frozen=True, slots=True)
class Amount:
    """What something takes: seconds, requests sent, output tokens received, dollars."""

    seconds: float = 0.0
    requests: float = 0.0
    tokens: float = 0.0
    dollars: float = 0.0

    @classmethod
    def of(cls, lines: Sequence[Mapping[str, Any]]) -> "Amount":
        """What the sessions of a run had spent by its journal."""
        return cls(**next((line["spent"] for line in reversed(lines) if "spent" in line), {}))

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(
            self.seconds + other.seconds, self.requests + other.requests,
            self.tokens + other.tokens, self.dollars + other.dollars,
        )  # fmt: skip

    def tree(self) -> dict[str, float]:
        """For JSON."""
        return {name: round(value, 3) for name, value in dataclasses.asdict(self).items()}


@dataclass(frozen=True, slots=True)
class Caps:
    """The most that may be spent in all; None where there is no limit. `until` is unix time.

    `words` has each limit as the config writes it: {'time': '8 h', 'until': '07:00'}.
    """

    seconds: float | None = None
    requests: float | None = None
    tokens: float | None = None
    dollars: float | None = None
    until: float | None = None
    words: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, budget: BudgetConfig, until: float | None) -> "Caps":
        """The caps of a config's budget, `until` being its deadline in unix time."""
        words = {
            "time": budget.time and format_elapsed(budget.time),
            "until": budget.until,
            "requests": budget.requests and f"{budget.requests:,}",
            "tokens": budget.tokens and f"{budget.tokens:,}",
            "cost": budget.cost and f"${budget.cost:,.10g}",
        }
        return cls(
            budget.time, budget.requests, budget.tokens, budget.cost, until, {k: v for k, v in words.items() if v}
        )

    def share(self, spent: Amount, now: float, parts: float) -> "Caps":
        """An equal part of what is left, as caps of their own: for what runs next of `parts` things in turn."""

        def part(cap: float | None, used: float) -> float | None:
            return None if cap is None else used + (cap - used) / parts

        return Caps(
            part(self.seconds, spent.seconds), part(self.requests, spent.requests), part(self.tokens, spent.tokens),
            part(self.dollars, spent.dollars), part(self.until, now), self.words,
        )  # fmt: skip

    def refuses(self, spent: Amount, need: Amount, now: float) -> str | None:
        """The limit that has no room for `need` after `spent`, in words ('time 8 h'); None when all have room."""
        for name, word in _PARTS:
            cap = getattr(self, name)
            if cap is not None and getattr(spent, name) + getattr(need, name) > cap:
                return f"{word} {self.words[word]}"
        if self.until is not None and now + need.seconds > self.until:
            return f"until {self.words['until']}"
        return None

    def seconds_left(self, spent: Amount, now: float) -> float | None:
        """Seconds until the time or the deadline is over; None when neither is limited."""
        left = [] if self.seconds is None else [self.seconds - spent.seconds]
        left += [] if self.until is None else [self.until - now]
        return min(left, default=None)


@dataclass(frozen=True, slots=True)
class TrialTimes:
    """What trials took so far, and so what others may be expected to take."""

    taken: tuple[tuple[Trial, Amount], ...] = ()

    @classmethod
    def of(cls, lines: Iterable[Mapping[str, Any]], trials: Mapping[str, Trial]) -> "TrialTimes":
        """From a run's journal; `trials` are those that may be named in it, by key."""
        done = [line for line in lines if line["event"] == "trial_done" and "took" in line and line["trial"] in trials]
        return cls(tuple((trials[one["trial"]], Amount(one["took"], one["sent"], one["tokens"])) for one in done))

    def seconds(self, trial: Trial) -> float | None:
        """Seconds a trial will take, from the nearest settings measured; None when its shape was not measured yet.

        Seconds per request sent are interpolated on logarithmic axes of concurrency. Below what was measured they grow
        as concurrency falls; above, no gain is counted on. Beside its window a trial sends AROUND requests per stream.
        """
        rates: dict[int, list[float]] = {}
        for other, amount in self.taken:
            if other.series == trial.series and amount.seconds > 0 and amount.requests > 0:
                rates.setdefault(other.concurrency, []).append(amount.seconds / amount.requests)
        if not rates:
            return None
        each = _between({c: sum(own) / len(own) for c, own in rates.items()}, trial.concurrency)
        window = min(math.inf if trial.seconds is None else trial.seconds, each * trial.requests)
        longest = max(trial.max_time, *(amount.seconds for _, amount in self.taken))
        return min(longest, max(trial.min_time, window) + each * AROUND * trial.concurrency)

    def same(self, trial: Trial) -> list[Amount]:
        """What trials of the very same setting and size took."""
        return [amount for other, amount in self.taken if _size(other) == _size(trial)]

    def need(self, trial: Trial, rate: float = 0.0) -> Amount:
        """What a trial will take, at `rate` dollars per second; its longest while nothing is known of its shape."""
        expected = self.seconds(trial)
        seconds = longest_of(trial) if expected is None else expected
        same = [amount for amount in self.same(trial) if amount.requests > 0]
        requests = float(trial.requests + AROUND * trial.concurrency)
        tokens = requests * trial.shape.osl.mean
        if same:
            requests = max(amount.requests for amount in same)
            tokens = max(amount.tokens for amount in same)
        return Amount(seconds, requests, tokens, seconds * rate)


def raised(budget: BudgetConfig, total: Amount) -> list[tuple[str, str]]:
    """The limits of a budget that are too small for so much, each with a value that is enough."""

    def up(number: float) -> int:
        scale: int = 10 ** max(0, len(str(math.ceil(number))) - 2)
        return math.ceil(number / scale) * scale

    more = []
    if budget.time is not None and total.seconds > budget.time:
        more.append(("budget.time", f"{math.ceil(total.seconds / 60)}min"))
    for name in ("requests", "tokens"):
        cap, needed = getattr(budget, name), getattr(total, name)
        if cap is not None and needed > cap:
            more.append((f"budget.{name}", str(up(needed))))
    if budget.cost is not None and total.dollars > budget.cost:
        more.append(("budget.cost", f"${math.ceil(total.dollars * 100) / 100:.2f}"))
    return more


def _between(known: Mapping[int, float], concurrency: int) -> float:
    """Interpolated on logarithmic axes."""
    below = max((c for c in known if c <= concurrency), default=None)
    above = min((c for c in known if c >= concurrency), default=None)
    if below is None:
        assert above is not None
        return known[above] * above / concurrency
    if above is None or below == above:
        return known[below]
    share = math.log(concurrency / below) / math.log(above / below)
    return math.exp((1 - share) * math.log(known[below]) + share * math.log(known[above]))


def _size(trial: Trial) -> tuple[Series, int, int, float | None]:
    return trial.series, trial.concurrency, trial.requests, trial.seconds


# -- what is to come -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ahead:
    """What is left of a series. The answer: each setting looked at once, then proofs, `proof` being one and `proofs`
    how many are expected and are the most; then `rest`, which completes the frontier.
    """

    look: tuple[Trial, ...] = ()
    proof: Trial | None = None
    proofs: tuple[float, float] = (0.0, 0.0)
    rest: tuple[Trial, ...] = ()

    @property
    def grid(self) -> tuple[Trial, ...]:
        """The looks that are trials of the grid."""
        return tuple(trial for trial in self.look if trial.phase is Phase.GRID)

    def search_need(self, times: TrialTimes, *, most: bool = False, rate: float = 0.0) -> Amount:
        """What the search takes beside the grid: the proofs, and the scan; as many as expected, or at most."""
        needs = [times.need(trial, rate) for trial in self.look if trial.phase is not Phase.GRID]
        if self.proof is not None:
            proof = dataclasses.astuple(times.need(self.proof, rate))
            needs.append(Amount(*(part * self.proofs[most] for part in proof)))
        return sum(needs, Amount())


@dataclass(frozen=True, slots=True)
class Expected:
    """Seconds, expected and at most: of a grid that is measured first, of scans and proofs, of completing frontiers."""

    looks: float = 0.0
    looks_longest: float = 0.0
    proofs: float = 0.0
    proofs_longest: float = 0.0
    rest: float = 0.0
    rest_longest: float = 0.0

    def __add__(self, other: "Expected") -> "Expected":
        return Expected(*(a + b for a, b in zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)))

    @property
    def answer(self) -> float:
        """Until the operating points are known."""
        return self.looks + self.proofs

    @property
    def answer_longest(self) -> float:
        """The same, at most."""
        return self.looks_longest + self.proofs_longest

    @property
    def seconds(self) -> float:
        """All that is expected."""
        return self.answer + self.rest

    @property
    def longest(self) -> float:
        """All of it, at most."""
        return self.answer_longest + self.rest_longest


def ahead(
    config: Config,
    deployment: DeploymentConfig,
    shape: Shape,
    todo: Iterable[Trial],
    finished: Iterable[Trial] = (),
    ask: Ask | Done | None = None,
) -> Ahead:
    """What is left of a series. `todo` are the trials of the grid that are not finished, `finished` those that are, of
    any kind; `ask` is what the search asks for next, None before it was asked.
    """
    measured = list(finished)
    series = Series(deployment.name, shape)
    own = [trial for trial in todo if trial.series == series]
    if config.requests is None:
        proven = {t.concurrency for t in measured if t.phase in (Phase.PROVE, Phase.VISIT)}
        look, rest = [], [trial for trial in own if trial.repeat > 1 or trial.concurrency not in proven]
    else:
        look, rest = ([t for t in own if (t.repeat == 1) == first] for first in (True, False))
    if not config.searches or isinstance(ask, Done):
        return Ahead(look=tuple(look), rest=tuple(rest))

    def trial(concurrency: int, phase: Phase, requests: int, seconds: float | None) -> Trial:
        return make_trial(config, deployment, shape, concurrency, phase, 1, requests, seconds)

    if config.requests is None and (ask is None or ask.phase in (Phase.SCAN, Phase.LOCATE)):
        seen = {t.concurrency for t in measured}
        look = [trial(c, Phase.SCAN, max(SCAN_REQUESTS, AROUND * c), SCAN_SECONDS)
                for c in config.concurrency if c not in seen]  # fmt: skip
    if ask is not None and ask.phase in (Phase.PROVE, Phase.CONFIRM):
        # The search asks for one window of a proof at a time, and may have to prove a lower candidate after it.
        proved = trial(ask.concurrency, Phase.PROVE, ask.requests, ask.seconds)
        begun = sum(t.phase is Phase.PROVE and t.concurrency == ask.concurrency for t in measured)
        usual = max(1, WINDOWS - begun) + (USUAL_PROOFS - 1) * WINDOWS
        return Ahead(tuple(look), proved, (usual, float(PROOFS * PROOF_TRIALS)), tuple(rest))
    proved = proof(config, deployment, shape, config.concurrency[2 * len(config.concurrency) // 3])
    most = PROOFS if config.refine is None else config.refine * PROOF_TRIALS
    return Ahead(tuple(look), proved, (min(USUAL_PROOFS, most), most), tuple(rest))


def last_asks(lines: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], Ask | Done]:
    """What the search asked for last, or that it had ended, by deployment and shape: from the journal of a run."""
    asks: dict[tuple[str, str], Ask | Done] = {}
    for line in lines:
        key = str(line.get("deployment")), str(line.get("shape"))
        if line["event"] == "search_done":
            asks[key] = Done(str(line.get("reason", "")))
        elif line["event"] == "asked" and "phase" in line:
            asks[key] = Ask(line["concurrency"], Phase(line["phase"]), line["requests"], "", line.get("seconds"))
    return asks


def outlook(
    config: Config, plan: Plan, finished: Mapping[str, Trial], lines: Iterable[Mapping[str, Any]] = ()
) -> dict[Series, Ahead]:
    """What is left of each series of the plan, by the finished trials of its run and its journal."""
    asks = last_asks(lines)
    todo = plan.left(finished)
    return {
        Series(d.name, shape): ahead(
            config, d, shape, todo, [t for t in finished.values() if t.series == (d.name, shape)],
            asks.get((d.name, shape.label)),
        )
        for d in config.deployments if d.name in plan.deployments
        for shape in config.shapes if shape.label in plan.shapes
    }  # fmt: skip


def proof(config: Config, deployment: DeploymentConfig, shape: Shape, concurrency: int) -> Trial:
    """A proof of the SLA as one trial, one of its requests being over the limit and two counting as one."""
    percentiles = [p for _, limits in config.tiers for limit in limits if (p := limit.of.p) is not None]
    sizes = [max(DEPENDENCE * intervals.needed(p, violations=1), claim_floor(p, concurrency)) for p in percentiles]
    requests = max([TURNS * concurrency, SCAN_REQUESTS, *sizes])
    return make_trial(
        config, deployment, shape, concurrency, Phase.PROVE, 1, requests, None if config.max_time else PROOF_SECONDS
    )


# -- what fits -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Turn:
    """Deployments that are up at one time, and the trials that are left on them in their order."""

    deployments: Sequence[DeploymentConfig]
    trials: Sequence[Trial]

    @property
    def rate(self) -> float:
        """Dollars per second while it lasts."""
        return sum(d.price or 0.0 for d in self.deployments) / 3600


def turns_of(deployments: Iterable[DeploymentConfig], trials: Sequence[Trial]) -> list[Turn]:
    """The turns in which these trials are run (see `plan.in_turn`); those with none are left out."""
    groups = in_turn(deployments)
    turns = (Turn(group, [t for t in trials if t.deployment in {d.name for d in group}]) for group in groups)
    return [turn for turn in turns if turn.trials]


def parts_left(groups: Sequence[Sequence[DeploymentConfig]]) -> float:
    """Of how many equal parts the first of these groups may take one: every deployment that is left counts alike."""
    return sum(len(group) for group in groups) / len(groups[0]) if groups[0] else 1.0


@dataclass(frozen=True, slots=True)
class BudgetFit:
    """Which trials of the grid fit, in their order, and which limit drops the others.

    `bounded`: the time of some trial is known by its longest alone. `answer`: what comes before the operating points
    are known fits; `whole`: all that follows fits too.
    """

    fits: tuple[Trial, ...]
    dropped: tuple[Trial, ...]
    by: tuple[str, ...]
    bounded: bool
    answer: bool
    whole: bool


def fit_budget(
    turns: Sequence[Turn],
    caps: Caps,
    times: TrialTimes,
    *,
    now: float,
    spent: Amount,
    search: Mapping[str, Amount] = MappingProxyType({}),
    grid_first: bool = True,
) -> BudgetFit:
    """Which trials fit into what is left, each taking what is expected, or its longest where nothing is known.

    A turn may take the share of its deployments, as it may when the sweep runs. `search` is what the search for the
    operating points takes on each deployment: it comes when every setting was measured once, or before the grid.
    """
    fits: list[Trial] = []
    dropped: list[tuple[Trial, str]] = []
    reasons: list[str] = []
    used, answer = spent, True

    def clock() -> float:
        return now + used.seconds - spent.seconds

    def all_fit(trials: Iterable[Trial]) -> bool:
        nonlocal used
        before = len(dropped)
        for trial in trials:
            need = times.need(trial, turn.rate)
            if (reason := share.refuses(used, need, clock())) is None:
                used += need
                fits.append(trial)
            else:
                dropped.append((trial, reason))
        return len(dropped) == before

    for i, turn in enumerate(turns):
        share = caps.share(used, clock(), parts_left([later.deployments for later in turns[i:]]))
        looks = [trial for trial in turn.trials if grid_first and trial.repeat == 1]
        answer &= all_fit(looks)
        proofs = sum((search.get(d.name, Amount()) for d in turn.deployments), Amount())
        proofs = dataclasses.replace(proofs, dollars=proofs.seconds * turn.rate)
        if (reason := share.refuses(used, proofs, clock())) is None:
            used += proofs
        else:
            answer, reasons = False, [*reasons, reason]
            left = share.seconds_left(used, clock())
            taken = proofs.seconds if left is None else min(proofs.seconds, max(0.0, left))
            used += Amount(taken, dollars=taken * turn.rate)
        all_fit(trial for trial in turn.trials if trial not in looks)
    bounded = any(times.seconds(trial) is None for turn in turns for trial in turn.trials)
    by = tuple(dict.fromkeys([*(reason for _, reason in dropped), *reasons]))
    return BudgetFit(tuple(fits), tuple(trial for trial, _ in dropped), by, bounded, answer, answer and not dropped)


_WORK = {
    Phase.SCAN: "the scan", Phase.LOCATE: "the scan", Phase.FRONTIER: "the frontier between the settings",
    Phase.VISIT: "the visits",
}  # fmt: skip


def described_trials(trials: Sequence[Trial]) -> str:
    """'12 of repeat 3, 2 of repeat 2': the first to be dropped first."""
    groups: dict[str, int] = {}
    for trial in sorted(trials, key=lambda t: (t.phase is Phase.GRID, -t.repeat)):
        name = f"repeat {trial.repeat}" if trial.phase is Phase.GRID else _WORK.get(trial.phase, "the proofs")
        groups[name] = groups.get(name, 0) + 1
    return ", ".join(f"{n} of {name}" for name, n in groups.items())


# -- the time left ---------------------------------------------------------------------------------------------------


class TimeEstimator:
    """Estimates how long trials of one config will take. The only one; the budget drops nothing by it."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._assumed: dict[str, Assumption] = {}
        self._rooflines = {d.name: d.roofline() for d in config.deployments}
        self._fits: dict[tuple[Series, int], Calibrated | None] = {}
        for deployment in config.deployments:
            try:
                self._assumed[deployment.name] = assumption(deployment)[0]
            except UsageError:  # too little is described: then it is not known before the first trials
                continue

    def expected(self, ahead: Ahead, times: TrialTimes, histories: Mapping[Series, History] | None = None) -> Expected:
        """Seconds that all of it takes."""

        def both(trials: Iterable[Trial]) -> tuple[float, float]:
            expected = longest = 0.0
            for trial in trials:
                known = self.seconds(trial, times, histories or {})
                most = longest_of(trial)
                expected += most / 2 if known is None else known
                longest += most if known is None else max(known, min(most, BOUND * known))
            return expected, longest

        grid, scan = both(ahead.grid), both(trial for trial in ahead.look if trial.phase is not Phase.GRID)
        one = (0.0, 0.0) if ahead.proof is None else both((ahead.proof,))
        proofs, longest = (scan[most] + ahead.proofs[most] * one[most] for most in (0, 1))
        return Expected(*grid, proofs, longest, *both(ahead.rest))

    def left(
        self, trials: Iterable[Trial], times: TrialTimes, histories: Mapping[Series, History] | None = None
    ) -> float | None:
        """Seconds these trials will take in all, after what was measured; None when that is not known of each."""
        each = [self.seconds(trial, times, histories or {}) for trial in trials]
        return None if None in each else math.fsum(seconds for seconds in each if seconds is not None)

    def seconds(self, trial: Trial, times: TrialTimes, histories: Mapping[Series, History]) -> float | None:
        """Seconds one trial will take; None when it cannot be estimated."""
        if same := times.same(trial):
            return sum(amount.seconds for amount in same) / len(same)
        fit = self._fit(trial.series, histories.get(trial.series, ()))
        if fit is not None:
            known = fit.at(trial.concurrency)
            return self._cost(trial, known.ttft.value + (trial.shape.osl.mean - 1) * known.tpot.value)
        by_hardware = self._by_hardware(trial)
        return times.seconds(trial) if by_hardware is None else by_hardware * self._ratio(trial, times)

    def _cost(self, trial: Trial, e2e: float) -> float | None:
        return estimate((trial,), lambda _: e2e)[0].expected

    def _by_hardware(self, trial: Trial) -> float | None:
        """By the described hardware; None where none is, or a request does not fit it."""
        assumed = self._assumed.get(trial.deployment)
        if assumed is None:
            return None
        e2e = rough_e2e(assumed, trial.shape, trial.concurrency)
        return None if e2e is None else self._cost(trial, e2e)

    def _ratio(self, trial: Trial, times: TrialTimes) -> float:
        """What trials took over what the hardware let expect: those of the shape, else of the deployment."""
        mine = [(other, amount.seconds) for other, amount in times.taken if other.deployment == trial.deployment]
        alike = [(other, took) for other, took in mine if other.shape == trial.shape] or mine
        ratios = [math.log(took / guess) for other, took in alike if took > 0 and (guess := self._by_hardware(other))]
        return math.exp(sum(ratios) / len(ratios)) if ratios else 1.0

    def _fit(self, series: Series, history: History) -> Calibrated | None:
        """The engine model fitted to what was measured of a series so far; fitted again when there is more."""
        key = series, len(history)
        if key not in self._fits:
            self._fits[key] = self._fitted(series, history)
        return self._fits[key]

    def _fitted(self, series: Series, history: History) -> Calibrated | None:
        known = [point for c, samples in sorted(by_concurrency(history).items()) if (point := _mean(c, samples))]
        if len(known) < LEAST:
            return None
        roofline, shape = self._rooflines.get(series.deployment), series.shape
        card = roofline if isinstance(roofline, ModelRoofline) else None
        return calibrate(known, shape.isl.mean, shape.osl.mean, roofline=card)


def _mean(concurrency: int, samples: Sequence[WindowData]) -> Known | None:
    """The mean latencies of the requests that succeeded; None where they say nothing."""
    ttft, tpot = (np.concatenate([getattr(s, name)[s.ok] for s in samples]) for name in ("ttft", "tpot"))
    tpot = tpot[~np.isnan(tpot)]
    if not len(ttft) or not len(tpot) or not (ttft.mean() > 0 and tpot.mean() > 0):
        return None
    return Known(concurrency, float(ttft.mean()), float(tpot.mean()))
