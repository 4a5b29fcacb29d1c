"""State of a sweep under way: its parts, the trials that are finished or left out, and the lost
servers.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from frontier.client.ask.same_server import Identity
from frontier.core.model.loads import Load
from frontier.core.model.series import Series
from frontier.core.model.trials import Trial
from frontier.run import GrowingHistory

FailureCause = Literal["never_came_up", "lost", "another"]


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Why nothing more is run on a deployment: its server never came up, was lost, or is another
    one; and the last error.
    """

    cause: FailureCause
    why: str

    @property
    def text(self) -> str:
        """'its server never came up: fp8 ended with status 1'."""
        said = {"never_came_up": "its server never came up: ", "lost": "its server did not come back: ", "another": ""}
        return f"{said[self.cause]}{self.why}"


@dataclass(slots=True)
class ServerFailures:
    """The failures of servers and client processes.

    - `failed_at`: per series, the lowest concurrency that was given up because servers or client
      processes were lost under it again and again, and why.
    - `given_up`: the deployments on which nothing more is run.
    """

    failed_at: dict[Series, tuple[Load, str]] = field(default_factory=dict)
    given_up: dict[str, GivenUp] = field(default_factory=dict)

    def facts(self) -> dict[str, str]:
        """For the journal: why deployments were given up; {} where none was."""
        if not self.given_up:
            return {}
        causes = {each.cause for each in self.given_up.values()}
        cause: FailureCause = causes.pop() if len(causes) == 1 else "lost"
        return {"cause": cause, "reason": "; ".join(each.why for each in self.given_up.values())}

    def record(self, trial: Trial, why: str) -> None:
        """The trial is given up: `why` says what was lost under it as often as it may be."""
        if trial.series not in self.failed_at or trial.load < self.failed_at[trial.series][0]:
            self.failed_at[trial.series] = trial.load, why

    def reason_to_skip(self, trial: Trial) -> str | None:
        """Why a trial is not run now; None when it may be. A crash at 64 is expected at 128 too."""
        if trial.deployment in self.given_up:
            return self.given_up[trial.deployment].text
        concurrency, why = self.failed_at.get(trial.series, (0, ""))
        return why if why and trial.load >= concurrency else None


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Why a trial's numbers mean nothing, and whether that can pass: a busy machine can, a server
    that counts otherwise cannot. `away`: a gateway answered in the place of its server. `cut_off`:
    the budget ended it.
    """

    why: str
    may_pass: bool
    away: bool = False
    cut_off: bool = False


@dataclass(frozen=True, slots=True)
class SweepState:
    """What changes while a sweep goes on, in collections that its parts share and never replace.

    - `histories`: the finished trials, by series.
    - `done`: the keys of the trials that count.
    - `dropped`: the trials without room in the budget, each with the limit.
    - `skipped`: the trials that are not worth measuring, or cannot be measured.
    - `excluded`: the finished trials whose numbers mean nothing.
    - `identities`: the server that answered first, by deployment.
    - `forecast`: the seconds that are left of the sweep, which go into the journal when a trial
      begins.
    """

    histories: defaultdict[Series, GrowingHistory] = field(default_factory=lambda: defaultdict(list))
    failures: ServerFailures = field(default_factory=ServerFailures)
    done: set[str] = field(default_factory=set)
    dropped: dict[str, tuple[Trial, str]] = field(default_factory=dict)
    skipped: set[str] = field(default_factory=set)
    excluded: dict[str, Exclusion] = field(default_factory=dict)
    identities: dict[str, Identity] = field(default_factory=dict)
    forecast: dict[str, float] = field(default_factory=dict)

    def left(self, trials: Iterable[Trial]) -> list[Trial]:
        """The trials that are neither done nor left out."""
        gone = {*self.done, *self.dropped, *self.skipped}
        return [trial for trial in trials if trial.key not in gone]
