"""The budget of a sweep: what may be spent, what trials took, and which of the next ones therefore
fit. Pure.

Trials are run in the order of their value (see `plan`), and what has no room left is dropped: so
the least valuable is. Whether a trial has room is decided by what its neighbours took
(`TrialTimes`), or by its `max_time`; never by a model.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from frontier.config import BudgetConfig, DeploymentConfig
from frontier.core.model.loads import Load, listed
from frontier.core.model.series import Series
from frontier.core.model.trials import Phase, Trial
from frontier.core.model.units import format_elapsed
from frontier.planning.plan import longest_of, seconds_at
from frontier.store.journal import Amount

MARGIN = 1.15
"""A trial is begun when there is room for this many times its expected need."""
AROUND = 3
"""Requests per stream that a trial sends beside its window: in the warm-up, and while the last
requests of the window end."""
_PARTS = (("seconds", "time"), ("requests", "requests"), ("tokens", "tokens"), ("dollars", "cost"))


@dataclass(frozen=True, slots=True)
class Caps:
    """The most that may be spent in all, infinite where there is no limit. `until` is unix time.

    `words` has each limit as the config writes it: {'time': '8 h', 'until': '07:00'}.
    """

    most: Amount
    until: float = math.inf
    words: Mapping[str, str] = field(default_factory=dict)

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
        caps = (budget.time, budget.requests, budget.tokens, budget.cost)
        most = Amount(*(math.inf if cap is None else cap for cap in caps))
        return cls(most, math.inf if until is None else until, {k: v for k, v in words.items() if v})

    def share(self, spent: Amount, now: float, parts: float) -> "Caps":
        """The caps of what runs next: an equal one of `parts` shares of the rest."""
        most = spent + (self.most + spent * -1.0) * (1.0 / parts)
        return Caps(most, now + (self.until - now) / parts, self.words)

    def refuses(self, spent: Amount, need: Amount, now: float) -> str | None:
        """The limit that has no room for `need` after `spent`, in words ('time 8 h'); None when all
        have room.
        """
        for name, word in _PARTS:
            if getattr(spent, name) + getattr(need, name) > getattr(self.most, name):
                return f"{word} {self.words[word]}"
        return f"until {self.words['until']}" if now + need.seconds > self.until else None

    def seconds_left(self, spent: Amount, now: float) -> float:
        """Seconds until the time or the deadline is over."""
        return min(self.most.seconds - spent.seconds, self.until - now)


@dataclass(frozen=True, slots=True)
class TrialTimes:
    """What trials took so far, which gives what others should take."""

    taken: tuple[tuple[Trial, Amount], ...] = ()

    @classmethod
    def of(cls, lines: Iterable[Mapping[str, Any]], trials: Mapping[str, Trial]) -> "TrialTimes":
        """The times from a run's journal; `trials` are the trials that it may name, by key."""
        done = [line for line in lines if line["event"] == "trial_done" and "took" in line and line["trial"] in trials]
        return cls(tuple((trials[one["trial"]], Amount(one["took"], one["sent"], one["tokens"])) for one in done))

    def seconds(self, trial: Trial, *, growing: bool = False) -> float | None:
        """Seconds a trial will take, from the nearest settings measured; None when its shape was
        not measured yet.

        Seconds per request sent are interpolated on logarithmic axes of concurrency. Below the
        measured settings they grow as concurrency falls. Above these they stay the same; with
        `growing`, for the least time, throughput grows with the load. Beside its window a trial
        sends AROUND requests per stream.
        """
        if (rate := trial.load.per_second) is not None:  # its requests arrive by the clock
            return seconds_at(rate, trial)
        known = self._rates(trial)
        gain = min(1.0, max(known) / trial.load) if growing and known else 1.0
        return self._lasting(trial, _between(known, trial.load) * gain) if known else None

    def each(self, trial: Trial) -> float | None:
        """Seconds per request sent at a trial's setting, by the nearest settings measured; None
        when its shape was not measured yet.
        """
        known = self._rates(trial)
        return _between(known, trial.load) if known else None

    def _rates(self, trial: Trial) -> dict[int, float]:
        """Seconds per request sent in the trial's series, by measured concurrency."""
        rates: dict[int, list[float]] = {}
        for other, amount in self.taken:
            if other.series == trial.series and amount.seconds > 0 and amount.requests > 0:
                rates.setdefault(other.load, []).append(amount.seconds / amount.requests)
        return {c: sum(own) / len(own) for c, own in rates.items()}

    def _lasting(self, trial: Trial, each: float) -> float:
        """Seconds of a trial whose requests take `each` seconds of it."""
        window = min(math.inf if trial.seconds is None else trial.seconds, each * trial.requests)
        longest = max(trial.max_time, *(amount.seconds for _, amount in self.taken))
        return min(longest, max(trial.min_time, window) + each * AROUND * trial.load)

    def expected(self, trial: Trial) -> float | None:
        """Seconds a trial will take: as long as trials of the very same setting and size took,
        else by the nearest settings.
        """
        same = self.same(trial)
        return sum(amount.seconds for amount in same) / len(same) if same else self.seconds(trial)

    def same(self, trial: Trial) -> list[Amount]:
        """What trials of the very same setting and size took."""
        return [amount for other, amount in self.taken if _size(other) == _size(trial)]

    def need(self, trial: Trial, rate: float = 0.0) -> Amount:
        """What a trial will take, at `rate` dollars per second; its longest while nothing is known
        of its shape.
        """
        expected = self.seconds(trial)
        seconds = longest_of(trial) if expected is None else expected
        same = [amount for amount in self.same(trial) if amount.requests > 0]
        arriving = trial.load.per_second
        around = AROUND * trial.load if arriving is None else arriving * trial.shape.requests * trial.warmup
        requests = float(trial.requests + around)
        tokens = requests * trial.shape.osl.mean
        if same:
            requests = max(amount.requests for amount in same)
            tokens = max(amount.tokens for amount in same)
        return Amount(seconds, requests, tokens, seconds * rate)


def raised(budget: BudgetConfig, total: Amount) -> list[tuple[str, str]]:
    """The limits of a budget that are too small for so much, each with a value that is enough."""
    most = Caps.of(budget, None).most
    needed = [(word, getattr(total, name)) for name, word in _PARTS if getattr(total, name) > getattr(most, name)]
    return [(f"budget.{word}", _ENOUGH[word](number)) for word, number in needed]


def _two_digits_up(number: float) -> str:
    scale: int = 10 ** max(0, len(str(math.ceil(number))) - 2)
    return str(math.ceil(number / scale) * scale)


_ENOUGH: Mapping[str, Callable[[float], str]] = {
    "time": lambda seconds: f"{math.ceil(seconds / 60)}min",
    "requests": _two_digits_up,
    "tokens": _two_digits_up,
    "cost": lambda dollars: f"${math.ceil(dollars * 100) / 100:.2f}",
}
"""A limit of the budget that is enough for an amount, as a config writes it."""


def _between(known: Mapping[int, float], concurrency: Load) -> float:
    """Seconds per request at a concurrency, interpolated on logarithmic axes; below the measured
    settings they grow as concurrency falls.
    """
    levels = sorted(known)
    each = np.interp(math.log(concurrency), np.log(levels), np.log([known[level] for level in levels]))
    return math.exp(each) * max(1.0, levels[0] / concurrency)


def _size(trial: Trial) -> tuple[Series, int, int, float | None]:
    return trial.series, trial.load, trial.requests, trial.seconds


# -- shares, and what is left out
# --------------------------------------------------------------------------------------------------


def price_of(deployments: Iterable[DeploymentConfig]) -> float:
    """Dollars per second while these deployments are up."""
    return sum(d.price or 0.0 for d in deployments) / 3600


def parts_left(groups: Sequence[Sequence[DeploymentConfig]]) -> float:
    """Number of equal budget shares left, of which the first group takes one; every deployment left
    counts alike.
    """
    return sum(len(group) for group in groups) / len(groups[0]) if groups[0] else 1.0


_WORK = {
    Phase.SCAN: "quick look at ",
    Phase.LOCATE: "quick look at ",
    Phase.FRONTIER: "trial on the frontier at ",
    Phase.VISIT: "repeat of ",
}


def described_trials(trials: Sequence[Trial]) -> str:
    """'repeat 3 of c=8, 16; proof of c=45': the first to be dropped first."""
    groups: dict[str, list[Load]] = {}
    for trial in sorted(trials, key=lambda t: (t.phase is Phase.GRID, -t.repeat)):
        again = f"repeat {trial.repeat} of " if trial.repeat > 1 else ""
        proof = "rest of the proof of " if trial.repeat > 1 else "proof of "
        name = again if trial.phase is Phase.GRID else _WORK.get(trial.phase, proof)
        groups.setdefault(name, []).append(trial.load)
    return "; ".join(f"{name}{listed(sorted(set(loads)))}" for name, loads in groups.items())
