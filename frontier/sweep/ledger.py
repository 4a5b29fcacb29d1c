"""The budget tracker of a sweep: what its sessions have spent, what trials take, and what still
fits.

Totals go with the lines of the journal and are read back from the last of them, so a killed sweep
forgets at most what its trial in flight had spent. Free memory is checked before a sweep, because C
libraries crash when an allocation fails.
"""

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from frontier.config import BudgetConfig, DeploymentConfig
from frontier.core.claim.proof import SCANS
from frontier.core.model.errors import MemoryShortError
from frontier.core.model.trials import Record, Trial
from frontier.planning.budget import MARGIN, Caps, TrialTimes, price_of
from frontier.store.journal import Amount

_CGROUP = Path("/sys/fs/cgroup")


def require_free(needed: float) -> None:
    """Check that at least `needed` bytes are free on this machine and in the container of this
    process. MemoryShortError otherwise.
    """
    free = available()
    if free is not None and free < needed:
        raise MemoryShortError(
            f"this sweep needs about {_mb(needed)} of memory and {_mb(free)} are free here",
            "end something else, or measure from another machine",
        )


def available() -> int | None:
    """Free bytes of the machine and of the container, without swapping; None where neither is
    known.
    """
    return min((free for free in (_of_the_machine(), _of_the_container()) if free is not None), default=None)


def _of_the_machine() -> int | None:
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _of_the_container() -> int | None:
    """Free bytes by the control group (version 2) at the root of this process's file system.
    Inactive file caches count as free, as the kernel can drop them.
    """
    with suppress(OSError, ValueError, KeyError):
        limit = int((_CGROUP / "memory.max").read_text())  # "max" where there is none
        stat = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
        used = int((_CGROUP / "memory.current").read_text()) - int(stat["inactive_file"])
        return max(0, limit - used)
    return None


def _mb(count: float) -> str:
    return f"{count / (1 << 20):,.0f} MB"


class Ledger:
    """Keeps a budget. `clock` counts seconds, `wall` is unix time."""

    def __init__(self, budget: BudgetConfig, clock: Callable[[], float], wall: Callable[[], float]) -> None:
        self._clock, self._wall = clock, wall
        until = None if budget.until is None else deadline(budget.until, wall())
        self.whole = self._of_turn = self.caps = Caps.of(budget, until)
        self.times = TrialTimes()
        self._total = Amount()
        self._since = clock()
        self._price = 0.0
        self._attempt = Amount()
        self._attempt_since = 0.0

    def recall(self, lines: Iterable[Mapping[str, Any]], trials: Mapping[str, Trial]) -> None:
        """Go on from the journal of earlier sessions."""
        kept = list(lines)
        self._total += Amount.of(kept)
        self.times = TrialTimes.of(kept, trials)

    def begin_turn(self, deployments: Sequence[DeploymentConfig], parts: float = 1.0) -> None:
        """Begin a turn: these deployments are up and cost money, and may spend one of `parts` equal
        parts of what is left.
        """
        self._total, self._since = self.spent(), self._clock()
        self._price = price_of(deployments)
        self._of_turn = self.caps = self.whole.share(self._total, self._wall(), parts)

    def begin_share(self, parts: float = 1.0) -> None:
        """Let the next trials spend one of `parts` equal parts of what the turn has left; by
        default all of it.
        """
        self.caps = self._of_turn if parts == 1.0 else self._of_turn.share(self.spent(), self._wall(), parts)

    def spent(self) -> Amount:
        """Everything spent in all sessions so far."""
        seconds = self._clock() - self._since
        return self._total + Amount(seconds, dollars=seconds * self._price)

    # -- one attempt at a trial
    # ----------------------------------------------------------------------------------------------

    def begin_attempt(self) -> None:
        """Begin a trial."""
        self._attempt, self._attempt_since = Amount(), self._clock()

    def count(self, record: Record) -> None:
        """Count one of its requests that has ended."""
        sent = Amount(requests=1.0, tokens=float(record.completion_tokens or 0))
        self._attempt, self._total = self._attempt + sent, self._total + sent

    def facts(self) -> dict[str, Any]:
        """What the attempt took and what was spent in all, for its line in the journal."""
        took = self._clock() - self._attempt_since
        spent = self.spent().tree()
        return {"took": round(took, 3), "sent": self._attempt.requests, "tokens": self._attempt.tokens, "spent": spent}

    def finish_attempt(self, trial: Trial) -> None:
        """Take in a finished trial: the next ones are expected to take as long."""
        amount = replace(self._attempt, seconds=self._clock() - self._attempt_since)
        self.times = TrialTimes((*self.times.taken, (trial, amount)))

    # -- what fits
    # ----------------------------------------------------------------------------------------------

    def refuses(self, trial: Trial) -> str | None:
        """The limit that has no room for the trial, in words; None: begin it.

        While the time of a trial is not known, it begins as long as any time is left, and the end
        of the time cuts it off. A scan begins when there is room for the shortest that it may be,
        as nothing else can come before it.
        """
        need = self.times.need(trial, self._price)
        seconds = self.times.seconds(trial, growing=trial.phase in SCANS)
        seconds = 0.0 if seconds is None else seconds * MARGIN
        need = replace(need, seconds=seconds, dollars=seconds * self._price)
        if self.seconds_left() <= 0:
            need = replace(need, seconds=max(need.seconds, 1e-9))
        return self.caps.refuses(self.spent(), need, self._wall())

    def seconds_left(self) -> float:
        """Seconds until the share's time or the deadline is over; infinite without either."""
        return self.caps.seconds_left(self.spent(), self._wall())

    def whole_seconds_left(self) -> float:
        """Seconds until the time or the deadline of all shapes together is over."""
        return self.whole.seconds_left(self.spent(), self._wall())

    def need(self, trials: Iterable[Trial]) -> Amount:
        """The amount that these trials take together."""
        return sum((self.times.need(trial, self._price) for trial in trials), Amount())


def deadline(until: str, now: float) -> float:
    """Unix time of '07:00', the next time this machine's clock shows it, or of '2026-11-22 07:00',
    which may lie in the past. The config has checked the form.
    """
    day, _, clock = until.replace("T", " ").rpartition(" ")
    at = dt.time.fromisoformat(clock.zfill(5))
    if day:
        return dt.datetime.combine(dt.date.fromisoformat(day), at).timestamp()
    today = dt.date.fromtimestamp(now)  # noqa: DTZ012  # as this machine's clock has it
    # Not 24 hours later: the day on which the clock is set back has 25.
    first, second = (dt.datetime.combine(today + dt.timedelta(days), at).timestamp() for days in (0, 1))
    return first if first > now else second
