"""State of a sweep under way: its parts, the trials that are finished or left out, and the lost
servers.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from frontier.client.ask.same_server import Identity
from frontier.config import Config
from frontier.core.model.series import Series
from frontier.core.model.trials import Trial
from frontier.planning.plan import NO_PROOFS, Plan, ToProve
from frontier.planning.sweep_progress import Progress
from frontier.run import GrowingHistory
from frontier.store.run_dir import RunDirectory
from frontier.sweep.backend import Backend
from frontier.sweep.ledger import Ledger

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

    failed_at: dict[Series, tuple[int, str]] = field(default_factory=dict)
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
        if trial.series not in self.failed_at or trial.concurrency < self.failed_at[trial.series][0]:
            self.failed_at[trial.series] = trial.concurrency, why

    def reason_to_skip(self, trial: Trial) -> str | None:
        """Why a trial is not run now; None when it may be. A crash at 64 is expected at 128 too."""
        if trial.deployment in self.given_up:
            return self.given_up[trial.deployment].text
        concurrency, why = self.failed_at.get(trial.series, (0, ""))
        return why if why and trial.concurrency >= concurrency else None


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Why a trial's numbers mean nothing, and whether that can pass: a busy machine can, a server
    that counts otherwise cannot. `away`: a gateway answered in the place of its server.
    """

    why: str
    may_pass: bool
    away: bool = False


@dataclass(slots=True)
class SweepState:
    """What the parts of one sweep share.

    - `prove`: settings that the user asked to be proven; then nothing else is measured.
    - `ready_wait`: the longest wait for a lost server, in seconds; a large model must have time to
      load again.
    - `clock` counts seconds; `wall` is unix time, by which the budget's deadline is kept.
    - `histories`: the finished trials, by series.
    - `done`: the keys of the trials that count.
    - `dropped`: the trials without room in the budget, each with the limit.
    - `skipped`: the trials that are not worth measuring, or cannot be measured.
    - `excluded`: the finished trials whose numbers mean nothing.
    - `identities`: the server that answered first, by deployment.
    - `forecast`: the seconds that are left of the sweep, which go into the journal when a trial
      begins.
    """

    config: Config
    plan: Plan
    run: RunDirectory
    backend: Backend
    progress: Progress
    stop: asyncio.Event
    prove: ToProve = NO_PROOFS
    ready_wait: float = 900.0
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    histories: dict[Series, GrowingHistory] = field(default_factory=dict)
    failures: ServerFailures = field(default_factory=ServerFailures)
    done: set[str] = field(default_factory=set)
    dropped: dict[str, tuple[Trial, str]] = field(default_factory=dict)
    skipped: set[str] = field(default_factory=set)
    excluded: dict[str, Exclusion] = field(default_factory=dict)
    identities: dict[str, Identity] = field(default_factory=dict)
    forecast: dict[str, float] = field(default_factory=dict)
    ledger: Ledger = field(init=False)

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.config.budget, self.clock, self.wall)

    def history(self, series: Series) -> GrowingHistory:
        """The finished trials of one series."""
        return self.histories.setdefault(series, [])
