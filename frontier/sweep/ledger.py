"""The account of a sweep: what all its sessions have spent, what a trial takes, and whether there is room for it.

Totals go with the lines of the journal and are read back from the last of them, so a killed sweep forgets at most what
its trial in flight had spent.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from frontier.budget import MARGIN, Amount, Caps, Forecast, Pace, forecast
from frontier.config import BudgetConfig
from frontier.model import Record, Trial


class Ledger:
    """Keeps a budget. `clock` counts seconds, `wall` is unix time; `rate` is dollars per second of what is up."""

    def __init__(self, budget: BudgetConfig, clock: Callable[[], float], wall: Callable[[], float]) -> None:
        self._clock, self._wall = clock, wall
        self.whole = self.caps = Caps.of(budget, wall())
        self.pace = Pace()
        self._total = Amount()
        self._since = clock()
        self._rate = 0.0
        self._attempt = Amount()
        self._attempt_since = 0.0

    def recall(self, lines: Iterable[Mapping[str, Any]], trials: Mapping[str, Trial]) -> None:
        """Go on from the journal of earlier sessions."""
        kept = list(lines)
        self._total += Amount(**next((line["spent"] for line in reversed(kept) if "spent" in line), {}))
        self.pace = Pace.of(kept, trials)

    def charge(self, dollars_per_hour: float) -> None:
        """From now on this is what the hour costs."""
        self._total, self._since = self.spent(), self._clock()
        self._rate = dollars_per_hour / 3600

    def spent(self) -> Amount:
        """Everything spent in all sessions so far."""
        seconds = self._clock() - self._since
        return self._total + Amount(seconds, dollars=seconds * self._rate)

    def share(self, parts: float) -> None:
        """What runs next may take an equal part of what is left, as one of `parts`."""
        self.caps = self.whole.share(self.spent(), self._wall(), parts)

    # -- one attempt at a trial ------------------------------------------------------------------------------------

    def begin(self) -> None:
        """An attempt begins."""
        self._attempt, self._attempt_since = Amount(), self._clock()

    def count(self, record: Record) -> None:
        """One request of it has ended."""
        sent = Amount(requests=1.0, tokens=float(record.completion_tokens or 0))
        self._attempt, self._total = self._attempt + sent, self._total + sent

    def facts(self) -> dict[str, Any]:
        """What the attempt took and what was spent in all, for its line in the journal."""
        took = self._clock() - self._attempt_since
        spent = self.spent().tree()
        return {"took": round(took, 3), "sent": self._attempt.requests, "tokens": self._attempt.tokens, "spent": spent}

    def done(self, trial: Trial) -> None:
        """The attempt has become a finished trial: the next ones are expected to take as long."""
        took = replace(self._attempt, seconds=self._clock() - self._attempt_since)
        self.pace = Pace((*self.pace.seen, (trial, took)))

    # -- what fits -------------------------------------------------------------------------------------------------

    def refuses(self, trial: Trial) -> str | None:
        """The limit that has no room for the trial, in words; None to begin it.

        While nobody knows how long it takes it is begun as long as any time is left: the end cuts it off.
        """
        known = self.pace.seconds(trial) is not None
        need = self.pace.need(trial, self._rate)
        margin = MARGIN if known else 0.0
        need = replace(need, seconds=need.seconds * margin, dollars=need.dollars * margin)
        if (left := self.seconds_left()) is not None and left <= 0:
            need = replace(need, seconds=max(need.seconds, 1e-9))
        return self.caps.refuses(self.spent(), need, self._wall())

    def seconds_left(self) -> float | None:
        """Until the time or the deadline is over; None when neither is limited."""
        return self.caps.seconds_left(self.spent(), self._wall())

    def forecast(self, trials: Iterable[Trial]) -> Forecast:
        """What of these fits, as things stand."""
        return forecast(tuple(trials), self.caps, self.pace, now=self._wall(), spent=self.spent(), rate=self._rate)
