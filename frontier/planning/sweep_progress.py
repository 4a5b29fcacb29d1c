"""Progress of a sweep: what it reports of itself while it runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from frontier.core.model.decisions import Decision, Judgement, Limit
from frontier.core.model.loads import Load
from frontier.core.model.points import Estimate, Flag
from frontier.core.model.series import Series
from frontier.core.model.trials import Trial
from frontier.planning.time_left import TimeLeft

if TYPE_CHECKING:
    from frontier.client.load.loop import TrialProgress


@dataclass(frozen=True, slots=True)
class Stage:
    """What the trials of a series are run for now: `grid` and `scan` look at each setting, `prove`
    proves a candidate, `complete` fills the frontier. `place` of `series_count` is this series;
    `measured` of `settings` of the config have trials of their own.
    """

    word: Literal["grid", "scan", "prove", "complete"]
    place: int
    series_count: int
    measured: int
    settings: int


@dataclass(frozen=True, slots=True)
class HigherSetting:
    """A higher setting that is not proven. `gain` is the throughput that it may give more, as a
    share; `seconds` would decide it, None where they are not known.
    """

    load: Load
    gain: float
    seconds: float | None


class Progress:
    """The reports of a running sweep. They do nothing here; a display overrides those that it
    shows.

    `expect` gets the time that is left from now on. `trial_finished` gets point values by metric
    name, None for a missing one; a display chooses among them. It also gets the flags of the trial.
    """

    def plan(self, total: int, finished: int) -> None:
        """The grid has `total` trials; `finished` trials, of the grid and of the search, are kept
        from before.
        """

    def expect(self, left: TimeLeft) -> None:
        """The estimate of the time left has changed."""

    def trial_started(self, trial: Trial) -> None:
        """A trial begins."""

    def tick(self, tick: "TrialProgress") -> None:
        """The state of the running trial, several times a second."""

    def trial_finished(self, trial: Trial, figures: Mapping[str, float | None], flags: Sequence[Flag] = ()) -> None:
        """A trial is finished and stored."""

    def stage(self, stage: Stage) -> None:
        """What the next trial is run for; before each."""

    def judged(self, trial: Trial, judgement: Judgement, limit: Limit, estimate: Estimate) -> None:
        """The setting of a finished trial is judged: its tightest limit, with the value and bounds
        so far.
        """

    def announced(self, decision: Decision, seconds: float, better: HigherSetting | None) -> None:
        """The operating point of a series is proven, `seconds` after the sweep was begun."""

    def stands(self, decision: Decision) -> None:
        """The operating point that was announced stands, by all that was measured since."""

    def corrected(self, series: Series) -> None:
        """The operating point that was announced for a series is no longer proven."""

    def note(self, text: str) -> None:
        """Anything else worth a line."""

    def close(self) -> None:
        """The sweep is over."""
