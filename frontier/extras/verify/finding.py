"""Search for the highest rate on servers. Its trials are sent one after another, and each ends
early once its outcome is clear.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from frontier.client.load.loop import TrialProgress
from frontier.core.claim.changes import History
from frontier.core.model.decisions import Limit
from frontier.core.model.trials import Outcome, Phase, Record, Trial
from frontier.core.window.window import WindowData
from frontier.core.window.window_words import BY_CLIENT
from frontier.extras.verify.found_rates import FoundRate, found_rate, rate_trial, restored, searched
from frontier.extras.verify.open_loop_check import Search, Sender
from frontier.search.highest_rate import next_ask
from frontier.search.next_trial import Ask, Done
from frontier.search.rate_policy import RatePolicy, least_window, rate_of

BEYOND = 2.0
"""A trial of a search ends early when this many times the requests that may be over a limit are
over it, ..."""
PATIENCE = 15.0
"""... or one waited longer than a stable queue makes one wait with probability e^-PATIENCE (M/M/c).
"""
EXPECTED_LOOKS, EXPECTED_WINDOWS = 3, 12
"""The usual numbers of a search, for its expected time: quick looks, and windows of proofs."""


async def find(
    sender: Sender,
    wanted: Sequence[Search],
    *,
    on_ask: Callable[[Search, Ask, float], None],
    on_trial: Callable[[Search, Trial, WindowData], None],
) -> list[FoundRate]:
    """The highest rate of each search, including what was finished before; fewer answers when it is
    stopped. `on_ask` gets each trial before it is sent, with the seconds that the search will take
    from there.
    """
    answers: list[FoundRate] = []
    for search in wanted:
        policy, limits = search.policy, search.decision.limits
        history = restored(sender.run, search, sender.store)
        while isinstance(ask := next_ask(policy, limits, history), Ask):
            on_ask(search, ask, expected_seconds(policy, limits, history))
            trial = rate_trial(sender.run.config, search, ask, 1 + len(sender.store.finished()))
            measurement = await sender.send(trial, EarlyEnd(trial, limits, policy.top - rate_of(ask.load).per_second))
            if measurement is None:
                return answers
            history.append(searched(sender.run, measurement, sender.store))
            on_trial(search, *history[-1])
        answers.append(found_rate(search.decision, policy, ask, history))
    return answers


def expected_seconds(policy: RatePolicy, limits: Sequence[Limit], history: History) -> float:
    """The seconds that the rest of the search usually takes; 0 when it is done."""
    ask = next_ask(policy, limits, history)
    if isinstance(ask, Done):
        return 0.0
    proofs = sum(trial.phase is Phase.PROVE for trial, _ in history)
    windows = max(1, EXPECTED_WINDOWS - proofs)
    if ask.phase is Phase.PROVE:
        return windows * policy.seconds(ask)
    looks = max(1, EXPECTED_LOOKS - len(history))
    size = max(least_window(policy, limits, rate_of(ask.load).per_second), ask.requests)
    return looks * policy.seconds(ask) + windows * policy.seconds(replace(ask, requests=size))


class EarlyEnd:
    """Ends a trial early (sets `halt`) when its outcome is clear.

    That is so when more requests of the window are over a limit than could be forgiven if no other
    one were, or when one waited longer than in any stable queue. `spare` is the rate in requests/s
    that the server could serve beyond the arrivals.
    """

    def __init__(self, trial: Trial, limits: Sequence[Limit], spare: float) -> None:
        self.halt = asyncio.Event()
        self._longest_wait = PATIENCE / spare
        self._limits = [
            (limit.of.quantity, limit.promise, BEYOND * round((1 - limit.of.p) * trial.requests, 6))
            for limit in limits
            if limit.of.p is not None and limit.of.quantity in ("ttft", "tpot", "e2e") and not limit.of.inverted
        ]
        self._over = [0] * len(self._limits)
        self._start = self._end = math.inf

    def tick(self, progress: TrialProgress, stopped: bool) -> None:
        """Take the trial's state: when its window opens and closes, and whether the user stopped
        it.
        """
        if progress.stage == "window":
            self._start = min(self._start, progress.elapsed)
        elif progress.stage == "hold":
            self._end = min(self._end, progress.elapsed)
        if stopped:
            self.halt.set()

    def record(self, record: Record) -> None:
        """Count a request that has ended."""
        due = record.scheduled
        if due is None or not self._start <= due < self._end or record.outcome in BY_CLIENT:
            return
        latencies = _latencies(record, due)
        for i, (quantity, promise, allowed) in enumerate(self._limits):
            self._over[i] += latencies[quantity or ""] > promise
            if self._over[i] > allowed:
                self.halt.set()
        if record.sent - due > self._longest_wait:
            self.halt.set()


def _latencies(record: Record, due: float) -> dict[str, float]:
    """Seconds from the arrival; infinite for a failure, NaN where not defined."""
    if record.outcome is not Outcome.OK or record.first is None or record.last is None:
        return dict.fromkeys(("ttft", "tpot", "e2e"), math.inf)
    tokens = record.completion_tokens or 0
    tpot = (record.last - record.first) / (tokens - 1) if tokens > 1 else math.nan
    return {"ttft": record.first - due, "tpot": tpot, "e2e": record.last - due}
