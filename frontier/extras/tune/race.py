"""The race: what to measure next on which variant. It is pure, so a race that is killed goes on
from its history.

Quick looks come first. Each variant is measured at the edge of the best one so far, and from there
up or down, until its own edge is known or it is significantly worse. The most promising ones that
lie close together are started once more.

Then comes the final between the baseline and the most promising other variant, also where quick
looks put the baseline first: they are often wrong by more than a gain. The two take turns, each
with a new start, until both are proven and their difference is decided (`gain`). Where the pairs
could not show the gain that is expected, as the other is proven too far below its edge, a higher
load of it is proven first.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

from frontier.core.claim.proof import ALPHA, SCANS
from frontier.core.model.loads import NO_LOAD, Concurrency, Load
from frontier.core.model.series import Series
from frontier.core.model.trials import Phase
from frontier.core.stats.laws import normal_quantile
from frontier.extras.tune.gain import (
    SPENT,
    WORTH,
    Gain,
    ProvenVariant,
    RaceRules,
    expected_reach,
    gain_of,
    pairs_of,
    spread_of,
    steps_of,
)
from frontier.extras.tune.runner import FINAL, STEP, Runner
from frontier.search.auto import LOOKS_AT_MOST, no_more_throughput
from frontier.search.curves import RUN_TO_RUN, interpolated
from frontier.search.gaps import between
from frontier.search.next_trial import Ask, Done
from frontier.search.place import State
from frontier.search.scan import CLOSE, SearchPolicy, look_at
from frontier.search.window_size import in_flight, longer

FIRST = 8
"""The first concurrency of the baseline."""
BELOW = 0.75
"""A trial at this share of the edge, or lower, shows where a proof is cheap."""
LOOKS = 8
"""Most quick looks of a variant among which the error of a race is divided."""
NEAR, AGAIN = 0.12, 3
"""The largest difference (ln) in expected value between the most promising variants that are
started once more, and their number: 3% from start to start are 9% between two edges."""
SAME_LOAD = 1.1
"""The factor within which the baseline is measured near the load at which the other is best."""
TURN = 5
"""Most windows of a proof in each start of the final: the proof should include the differences from
start to start."""
MOST_STARTS = 16
"""Starts of each side after which the final is over. On a machine that is too busy to measure on,
no pair would ever count."""
EDGE_TURNS = 4
"""Starts in which a side has quick looks beyond its proven setting, where that is what is open."""
SHORT_TURN = 2
"""Windows of the proof of a higher load in each of its first starts: a single slow start must not
end it."""
SHORT_TURNS = 3
"""Starts after which a proof that is not over has longer turns."""
LOOK_REQUESTS = 160
"""Requests of a quick look, unless its time ends it earlier: starting a server costs more."""
PAIR_TURNS, PAIR_SECONDS = 12, 60.0
"""The window of a start of the final after the end of its proof: this many turns of its setting, or
this many seconds."""


@dataclass(frozen=True, slots=True)
class RaceStep:
    """The next trial: on which variant, and why. `anew`: its server is restarted before."""

    series: Series
    ask: Ask
    anew: bool


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
    def finalist(self) -> Runner | None:
        """The variant that meets the baseline in the final: the one that is being proven, otherwise
        the most promising one. The first need not be expected to be better, those after it have to
        be. None where no such variant is left.
        """
        begun = [r for r in self.runners[1:] if r.final_starts]
        today = self.baseline.reach(0.0).value if begun and self.baseline.gone is None else -math.inf
        last = max(begun, key=lambda r: max(r.final_starts), default=None)
        if last is not None and (isinstance(last.proof, Ask) or last.proven is not None) and last.gone is None:
            return last
        return next((r for r in self.challengers if r not in begun and r.reach(0.0).value > today), None)

    @cached_property
    def gain(self) -> Gain | None:
        """The gain by the final so far; None until both are proven."""
        return None if self.sides is None else gain_of(*self.sides, self.rules)

    @cached_property
    def proven(self) -> tuple[Runner, Runner] | None:
        """Both runners of the final; None until both are proven. Where their pairs show that starts
        differ by more than is usual, what either may still give is judged by that.
        """
        if self.finalist is None or (mine := self.baseline.side()) is None or (other := self.finalist.side()) is None:
            return None
        spread = max(RUN_TO_RUN, spread_of(pairs_of(mine, other, self.rules), self.rules))
        return replace(self.baseline, spread=spread), replace(self.finalist, spread=spread)

    @cached_property
    def sides(self) -> tuple[ProvenVariant, ProvenVariant] | None:
        """Their sides of the claim."""
        mine, other = (None, None) if self.proven is None else (runner.side() for runner in self.proven)
        return None if mine is None or other is None else (mine, other)

    @cached_property
    def open(self) -> tuple[Runner, float] | None:
        """The side that may still give more, and by how much (ln), where that widens the interval
        by more than the pairs do; None otherwise, and where the gain is told.
        """
        if self.gain is None or self.gain.told or self.sides is None or self.proven is None:
            return None
        more, place = max((side.most_more, -i) for i, side in enumerate(self.sides))
        return (self.proven[-place], more) if more > self.gain.reach else None

    @cached_property
    def short(self) -> float:
        """How much more (ln) the other has to be proven to give than it is, so that the pairs can
        show its gain; 0 or less where they can.
        """
        if self.sides is None or self.proven is None:
            return 0.0
        (mine, other), (first, second) = self.sides, self.proven
        values = pairs_of(mine, other, self.rules)
        steps = steps_of(values, self.rules)
        apart = interpolated(second.worths, other.load) - interpolated(first.worths, mine.load)
        d = sum(steps) / len(steps) if steps else apart
        spread = spread_of(values, self.rules) or first.spread
        return math.log1p(WORTH) + math.hypot(expected_reach(spread), mine.most_more) - d

    def may_be_better(self, chosen: Runner) -> Runner | None:
        """The best variant that was not compared with the chosen one, if it is expected to give
        more by WORTH; otherwise None.

        The trials of both decide, as a proven value lies below the expected one.
        """
        compared = (chosen, None if self.gain is None else self.finalist)
        best = next((r for r in self.challengers if r not in compared), None)
        return best if best is not None and best.expected > chosen.expected + math.log1p(WORTH) else None

    def next_step(self) -> RaceStep | None:
        """What to measure next; None when the race is over."""
        for runner in self.runners:  # one that is tried again may come during the final
            if not runner.final_starts and (look := self._look(runner)) is not None:
                return self._step(runner, look)
        begun = any(r.final_starts for r in self.runners)
        return (None if begun else self._again()) or self._final()

    def _step(self, runner: Runner, ask: Ask, *, anew: bool = False) -> RaceStep:
        return RaceStep(runner.series, ask, anew or self.running != runner.series)

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
        return None if c is None else _look_at(runner, c)

    def _again(self) -> RaceStep | None:
        """A second start of one of the most promising, where several are close together."""
        most = self.challengers[0].reach(0.0).value if self.challengers else 0.0
        near = [r for r in self.challengers if r.reach(0.0).value >= most - NEAR][:AGAIN]
        left = [r for r in near if r.looked < 2] if len(near) > 1 else []
        for runner in left:
            edge = runner.reach(0.0).edge
            if edge is not None:
                return self._step(runner, _look_at(runner, edge, "it is one of the best; started once more"), anew=True)
        return None

    # ---- the final

    def _final(self) -> RaceStep | None:
        """The next trial of the final; None when the final is over or cannot be held."""
        first, second = self.baseline, self.finalist
        if second is None:
            return self._alone(first) if first.gone is None else None
        if _failed(second) or second.gone is not None:
            return None
        if first.gone is not None or _failed(first):
            return self._alone(second)
        if (look := self._same_load(first, second)) is not None:
            return self._step(first, look)
        for runner in (first, second):
            if self.running == runner.series and not _turn_is_over(runner):
                return self._turn(runner)
        if self.sides is None:  # the loads are fixed first, the baseline's before the other's
            return self._turn(first if first.proven is None else second)
        return self._higher(second, self.gain) or self._after_pairs(first, second, self.gain)

    def _higher(self, winner: Runner, gain: Gain | None) -> RaceStep | None:
        """The next window of a proof at a higher load of the winner, where the pairs would not show
        its gain at the proven one. What is not proven counts for nothing.
        """
        if self.short <= 0 or (gain is not None and (gain.pairs not in SPENT or gain.told)):
            return None
        assert winner.proven is not None
        ask = winner.raised(interpolated(winner.worths, winner.proven) + self.short)
        if ask is None:
            return None
        turn = [trial for trial in winner.turn if trial in winner.raising]
        windows = SHORT_TURN if len(winner.raising) < SHORT_TURN * SHORT_TURNS else TURN
        return self._step(winner, ask, anew=not 0 < len(turn) < windows)

    def _after_pairs(self, first: Runner, second: Runner, gain: Gain | None) -> RaceStep | None:
        """The next trial once both loads are fixed: of what is open where a judgement leaves that,
        else of the next pair. None where neither would help.
        """
        if gain is None or gain.pairs not in SPENT:
            return self._next_pair(first, second)
        beyond = None if self.open is None else self._beyond(self.open[0])
        over = gain.told or gain.ratio.value <= 1 + WORTH or gain.pairs >= max(SPENT)
        return beyond or (None if over else self._next_pair(first, second))

    def _next_pair(self, first: Runner, second: Runner) -> RaceStep | None:
        """A start for the next pair: of the side that was started less often since both loads are
        fixed, else of the baseline. None after MOST_STARTS.
        """
        assert self.sides is not None
        fixed = max(side.fixed for side in self.sides)
        following = min((first, second), key=lambda r: r.visited_since(fixed))
        return None if following.visited_since(fixed) >= MOST_STARTS else self._turn(following)

    def _beyond(self, runner: Runner) -> RaceStep | None:
        """A turn of the side that may still give more: a quick look beyond its proven setting in a
        new start. None after EDGE_TURNS of them.
        """
        if runner.looks_beyond >= EDGE_TURNS or runner.beyond is None:
            return None
        return self._step(runner, _look_at(runner, runner.beyond, "how much more would it give?"), anew=True)

    def _alone(self, runner: Runner) -> RaceStep | None:
        """The next trial of the proof of a variant that has no opponent."""
        return self._turn(runner) if isinstance(runner.proof, Ask) else None

    def _turn(self, runner: Runner) -> RaceStep:
        """The next trial of a turn: a window of its proof. After the proof, a window of the proven
        setting and a quick look at the edge, which shows how much more there may be.
        """
        step, over = runner.proof, self.running != runner.series or _turn_is_over(runner)
        if isinstance(step, Ask):
            return self._step(runner, step, anew=over)
        assert step.proven is not None
        more = runner.beyond
        if not over and more is not None and any(t.load == step.proven for t in runner.turn):
            return self._step(runner, _look_at(runner, more, "how much more would it give?"))
        points = runner.state.points
        requests = math.ceil(PAIR_TURNS * in_flight(step.proven, points))
        seconds = longer(PAIR_SECONDS, step.proven, points)
        return self._step(runner, Ask(step.proven, Phase.VISIT, requests, "started anew", seconds), anew=over)

    def _same_load(self, first: Runner, second: Runner) -> Ask | None:
        """A quick look of the baseline at the load of the other, where it has none near it. The
        best of many variants must not beat one with fewer trials.
        """
        edge = second.reach(0.0).edge if second.proven is None else second.proven
        if edge is None or first.final_starts:
            return None
        near = [c for c in first.state.looks if edge / SAME_LOAD <= c <= edge * SAME_LOAD]
        return None if near else _look_at(first, edge, "the load of the best other variant")


def _failed(runner: Runner) -> bool:
    """Whether its search ended without a proven setting."""
    step = runner.proof
    return isinstance(step, Done) and step.proven is None


def _turn_is_over(runner: Runner) -> bool:
    """Whether the newest start of a runner has had its turn of the final: the windows of its proof;
    or a window of the proven setting, and a quick look at its edge; or what it has beyond that.
    """
    if runner.is_beyond:
        return True
    step, turn = runner.proof, [trial for trial in runner.turn if trial.phase in FINAL]
    if isinstance(step, Ask):
        return len(turn) >= (TURN if len(runner.final_starts) <= SHORT_TURNS else 4 * TURN)
    looked = any(trial.phase in SCANS for trial in runner.turn) or runner.beyond is None
    return looked and any(trial.load == step.proven for trial in turn)


def _look_at(runner: Runner, c: Load, reason: str = "where is its edge?") -> Ask:
    ask = look_at(SearchPolicy(()), runner.state.points, c, reason)
    return replace(ask, requests=max(LOOK_REQUESTS, ask.requests))


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
