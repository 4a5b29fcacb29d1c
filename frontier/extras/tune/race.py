"""The race: what to measure next on which variant. It is pure, so a race that is killed goes on
from its history.

Quick looks come first. Each variant is measured at the edge of the best one so far, and from there
up or down, until its own edge is known or it is significantly worse. The most promising ones that
lie close together are started once more.

Then comes the final between the baseline and the most promising other variant, also where quick
looks put the baseline first: they are often wrong by more than a gain. If it gives no more, the
others that may be better are started once more, and the best of these has a final too.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from frontier.core.claim.proof import ALPHA
from frontier.core.model.loads import NO_LOAD, Concurrency, Load
from frontier.core.model.series import Series
from frontier.core.stats.laws import normal_quantile
from frontier.extras.tune.final import Final, RaceStep, alone, look_of, step_of
from frontier.extras.tune.gain import WORTH, Gain, RaceRules
from frontier.extras.tune.runner import STEP, Z95, Runner
from frontier.search.auto import LOOKS_AT_MOST, no_more_throughput
from frontier.search.gaps import between
from frontier.search.next_trial import Ask
from frontier.search.place import State
from frontier.search.scan import CLOSE

FIRST = 8
"""The first concurrency of the baseline."""
BELOW = 0.75
"""A trial at this share of the edge, or lower, shows where a proof is cheap."""
LOOKS = 8
"""Most quick looks of a variant among which the error of a race is divided."""
NEAR, AGAIN = 0.12, 3
"""The largest difference (ln) in expected value between the most promising variants that are
started once more, and their number: 3% from start to start are 9% between two edges."""
MOST_FINALS = 2
"""Finals that end with pairs at most: each may claim a gain falsely."""


@dataclass(frozen=True)
class Race:
    """All variants, the baseline first. `running` is the variant whose server is up; None without
    one.
    """

    rules: RaceRules
    runners: tuple[Runner, ...]
    running: Series | None = None

    @property
    def baseline(self) -> Runner:
        """The baseline: the variant that runs today."""
        return self.runners[0]

    @cached_property
    def z(self) -> float:
        """The number of standard errors beyond which a variant is significantly worse: all variants
        and quick looks share the error of a race.
        """
        return normal_quantile(1 - ALPHA / (len(self.runners) * LOOKS))

    @cached_property
    def _least(self) -> float:
        """The value (ln) that the best variant surely gives."""
        return max((r.reach(self.z).low for r in self.runners if r.history), default=-math.inf)

    def dropped(self, runner: Runner) -> bool:
        """Whether a variant is significantly worse than another."""
        return bool(runner.history) and runner.reach(self.z).high < self._least

    @cached_property
    def challengers(self) -> tuple[Runner, ...]:
        """The variants beside the baseline that may be better than all others, the most promising
        first.
        """
        left = [r for r in self.runners[1:] if r.gone is None and r.history and not self.dropped(r)]
        known = [r for r in left if r.reach(0.0).edge is not None]
        return tuple(sorted(known, key=lambda r: -r.reach(0.0).value))

    @cached_property
    def finals(self) -> tuple[Final, ...]:
        """The finals in their order, with the one that comes next. The first opponent need not be
        expected to be better than the baseline.
        """
        begun = sorted((r for r in self.runners[1:] if r.final_starts), key=lambda r: max(r.final_starts))
        finals = [Final(self.rules, self.baseline, other, self.running) for other in begun]
        if not finals or (finals[-1].is_lost and sum(f.gain is not None for f in finals) < MOST_FINALS):
            left = self.challengers if not finals else self._left(begun)
            finals += [Final(self.rules, self.baseline, other, self.running) for other in left[:1]]
        return tuple(finals)

    def _left(self, begun: Sequence[Runner]) -> list[Runner]:
        """The variants for the next final after a lost one, the most promising first. One that was
        started once may still be better than the baseline; one started twice is close to it.
        """
        today = -math.inf if self.baseline.gone is not None else self.baseline.reach(0.0).value
        left = [r for r in self.challengers if r not in begun]
        if len(begun) > 1:
            return [r for r in left if r.reach(0.0).value > today]
        return [r for r in left if (r.reach(0.0).value > today - NEAR if r.looked > 1 else r.reach(Z95).high > today)]

    @cached_property
    def final(self) -> Final | None:
        """The final that counts: the one that goes on or shows a gain, otherwise the one whose
        variant gave the most. None without one.
        """
        if self.finals and not self.finals[-1].is_lost:
            return self.finals[-1]
        known = [(f.gain.ratio.value, f) for f in self.finals if f.gain is not None and f.other.gone is None]
        return max(known, key=lambda each: each[0], default=(0.0, None))[1]

    @property
    def finalist(self) -> Runner | None:
        """The variant that meets the baseline in the final that counts."""
        return None if self.final is None else self.final.other

    @property
    def gain(self) -> Gain | None:
        """The gain by that final so far; None until both are proven."""
        return None if self.final is None else self.final.gain

    def may_be_better(self, chosen: Runner) -> Runner | None:
        """The best variant that was not compared with the chosen one, if it is expected to give
        more by WORTH; otherwise None.

        The trials of both decide, as a proven value lies below the expected one.
        """
        compared = [chosen, *(final.other for final in self.finals if final.gain is not None)]
        best = next((r for r in self.challengers if r not in compared), None)
        return best if best is not None and best.expected > chosen.expected + math.log1p(WORTH) else None

    def next_step(self) -> RaceStep | None:
        """What to measure next; None when the race is over."""
        for runner in self.runners:  # one that is tried again may come during the final
            if not runner.final_starts and (look := self._look(runner)) is not None:
                return step_of(runner, self.running, look)
        return self._again() or self._final()

    def _final(self) -> RaceStep | None:
        """The next trial of the final, or of the baseline where it has no opponent."""
        if self.finals and not self.finals[-1].is_lost:
            return self.finals[-1].next_step
        return alone(self.baseline, self.running) if self.baseline.gone is None else None

    # ---- looks

    def _look(self, runner: Runner) -> Ask | None:
        """The next quick look of a variant in its first start; None where its edge is known, or it
        is significantly worse.
        """
        if runner.gone is not None or runner.looked > 1 or (runner is not self.baseline and self.dropped(runner)):
            return None
        edges = [r.reach(0.0) for r in self.runners if r.history and r is not runner]
        best = max(edges, key=lambda reach: reach.value, default=None)
        start = Concurrency(min(self.rules.top, FIRST if best is None or best.edge is None else best.edge))
        c = next_setting(runner.state, start, self.rules.top, 2.0 if runner is self.baseline else STEP)
        return None if c is None else look_of(runner, c)

    def _again(self) -> RaceStep | None:
        """A second start of one of the most promising, where several are close together, and of the
        next opponent after a final that was lost.
        """
        begun = [r for r in self.runners if r.final_starts]
        if not begun:
            most = self.challengers[0].reach(0.0).value if self.challengers else 0.0
            near = [r for r in self.challengers if r.reach(0.0).value >= most - NEAR][:AGAIN]
            near = near if len(near) > 1 else []
        else:
            near = [final.other for final in self.finals[1:] if final.other not in begun]
        for runner in near:
            edge = runner.reach(0.0).edge
            if runner.looked < 2 and edge is not None:
                look = look_of(runner, edge, "it is one of the best; started once more")
                return step_of(runner, self.running, look, anew=True)
        return None


def next_setting(state: State, start: Load, top: int, step: float) -> Load | None:
    """The next setting of the quick looks: `start`, then up in steps or down in halves until the
    edge is known within CLOSE. None when it is.
    """
    if not state.points:
        tried = [c for c, looks in state.looks.items() if looks >= LOOKS_AT_MOST]
        lower = Concurrency(min(tried, default=2 * start) // 2)
        return min(start, lower) if lower >= 1 and len(tried) < LOOKS_AT_MOST else None
    if (odd := min((c for c in state.contradicted if state.looks.get(c, 0) < LOOKS_AT_MOST), default=None)) is not None:
        return odd
    bracket = state.bracket()
    c: Load = Concurrency(round(min(state.points) / step)) if bracket is None else _from(state, *bracket, top, step)
    return c if c >= 1 and state.looks.get(c, 0) < LOOKS_AT_MOST else None


def _from(state: State, low: Load, high: Load | None, top: int, step: float) -> Load:
    """The next setting of the quick looks where some setting is within the SLA; 0 where no more is
    needed.
    """
    if high is None:
        over = low >= top or no_more_throughput(state.points)
        return NO_LOAD if over else Concurrency(min(top, max(low + 1, round(step * low))))
    if high - low > 1 and high / low > CLOSE:
        return between(low, high)
    return Concurrency(math.floor(BELOW * low)) if low > 1 and min(state.points) > BELOW * low else NO_LOAD
