"""Rounds of a knob: each value at its proven setting, in turn, so that a drift is shared by all.

They come after all proofs, and every second round runs in the opposite order. Windows in which a
load was found do not count in them.
"""

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from frontier.config import Config
from frontier.core.claim.changes import History
from frontier.core.model.groups import by_key
from frontier.core.model.loads import Load
from frontier.core.model.points import Point
from frontier.core.model.series import Series
from frontier.core.model.trials import Phase
from frontier.search.next_trial import Ask
from frontier.search.scan import VISIT_TURNS
from frontier.search.series_history import SeriesHistory
from frontier.search.window_size import in_flight, longer, mean_e2e
from frontier.sweep.conductor import Conductor
from frontier.sweep.trial_runner import TrialEnd

IN_TURN = "in_turn"
ROUNDS = 6
"""Rounds in all: even, so that a steady drift cancels. Differences of 1% from round to round then
give an interval of about 2% to each side."""
SECONDS = 15.0
"""The shortest window of a round: of a power that is read each second the edge is one reading of
fifteen."""
AGAIN = 3
"""How often rounds are begun: a round may change a proven setting, or a value is given up."""

Rounds = Mapping[int, Sequence[str]]
"""The keys of the trials of each round, by its number."""


def rounds_of(lines: Iterable[Mapping[str, Any]]) -> Rounds:
    """The rounds in the journal of a run."""
    return by_key((line["round"], line["trial"]) for line in lines if line["event"] == IN_TURN)


def proven_settings(config: Config, histories: Mapping[Series, History]) -> dict[Series, Load]:
    """The proven setting of each series that has one, in the order of the config."""
    order = [deployment.name for deployment in config.deployments]
    found = {}
    for series in sorted(histories, key=lambda series: order.index(series.deployment)):
        decision = SeriesHistory.of(config.limits, histories[series]).decide(marginal_gain=config.marginal_gain)
        if decision is not None and decision.load is not None:
            found[series] = decision.load
    return found


@dataclass(slots=True)
class KnobCourse:
    """The course of a sweep with a knob: what `first` does, all that a sweep measures, the rounds,
    and, however these end, what `last` does.
    """

    first: Callable[[], Awaitable[None]]
    last: Callable[[], Awaitable[None]]

    async def __call__(self, conductor: Conductor, /) -> None:
        await self.first()
        try:
            await self._measure(conductor)
        finally:
            await self.last()

    async def _measure(self, conductor: Conductor) -> None:
        for _ in range(AGAIN):
            await conductor.measure_all()
            before = self._settings(conductor)
            end = await self._rounds(conductor, before)
            if end == "dropped" or (end == "done" and self._settings(conductor) == before):
                return

    def _settings(self, conductor: Conductor) -> dict[Series, Load]:
        gone = conductor.state.failures.given_up
        found = proven_settings(conductor.config, conductor.state.histories) if conductor.config.limits else {}
        return {series: c for series, c in found.items() if series.deployment not in gone}

    async def _rounds(self, conductor: Conductor, settings: Mapping[Series, Load]) -> TrialEnd:
        """Run the rounds that are missing; how the last trial ended."""
        if len({series.deployment for series in settings}) < 2:
            return "done"
        known, histories = rounds_of(conductor.run.journal_lines()), conductor.state.histories
        at = {t.key: (series, t.load) for series in settings for t, _ in histories[series]}
        whole = [n for n, keys in known.items() if settings.items() <= {at[k] for k in keys if k in at}]
        first = max(known, default=0) + 1
        for number in range(first, first + ROUNDS - len(whole)):
            order = list(settings.items())
            for series, c in order if number % 2 else reversed(order):
                points = SeriesHistory.of(conductor.config.limits, histories[series]).points
                if (end := await conductor.run_ask(series, _window(c, points, number))) != "done":
                    return end
                conductor.run.journal(IN_TURN, round=number, trial=histories[series][-1][0].key)
        return "done"


def _window(c: Load, points: Mapping[Load, Point], number: int) -> Ask:
    """A window of a round. Its time ends it: it asks for twice the requests that fit."""
    seconds, e2e = longer(SECONDS, c, points), mean_e2e(c, points)
    requests = math.ceil(in_flight(c, points) * (2 * seconds / e2e if e2e else VISIT_TURNS))
    return Ask(c, Phase.VISIT, requests, f"round {number}: each value in turn", seconds)
