"""A short scan alone, to estimate the time of a sweep: the first trials of its search, and no
proof.
"""

from dataclasses import dataclass

from frontier.client.load.health import most_connections
from frontier.config import Config
from frontier.core.claim.changes import History
from frontier.core.claim.proof import SCANS
from frontier.core.model.series import Series
from frontier.core.model.trials import Phase
from frontier.planning.plan import search_policy
from frontier.planning.time_left import series_of
from frontier.search import scan
from frontier.search.auto import MOST
from frontier.search.next_trial import Ask
from frontier.search.scan import SCAN_REQUESTS, SCAN_SECONDS
from frontier.sweep.conductor import Conductor


@dataclass(frozen=True, slots=True)
class ScanCourse:
    """Measures for about `seconds`: each series for an equal part of them, and at least one trial.
    The starts of servers are not counted.
    """

    seconds: float

    async def __call__(self, conductor: Conductor, /) -> None:
        series, used, running = series_of(conductor.config, conductor.plan), 0.0, ""
        for i, one in enumerate(series):
            gone = conductor.state.failures.given_up  # what did not start for one shape does not for the next
            if one.deployment in gone or (one.deployment != running and not await conductor.start_anew(one.deployment)):
                continue
            running, until = one.deployment, used + (self.seconds - used) / (len(series) - i)
            while ask := next_look(conductor.config, one, conductor.state.histories.get(one, ())):
                began = conductor.clock()
                if await conductor.run_ask(one, ask) != "done":
                    break
                used += conductor.clock() - began
                if used >= until:
                    break


def next_look(config: Config, series: Series, history: History) -> Ask | None:
    """The next trial of the search. Where the search asks for none, the lowest and the highest
    setting.
    """
    policy = search_policy(config, most_connections(MOST), (), series.deployment)
    ask = scan.next_ask(policy, series.shape, config.tiers, history)
    if isinstance(ask, Ask) and (history or ask.phase in SCANS):
        return ask if ask.phase in SCANS else None
    known = {trial.load for trial, _ in history}
    open_ = [c for c in dict.fromkeys((policy.grid[0], policy.grid[-1])) if c not in known]
    return Ask(open_[0], Phase.SCAN, SCAN_REQUESTS, "how long a request takes", SCAN_SECONDS) if open_ else None
