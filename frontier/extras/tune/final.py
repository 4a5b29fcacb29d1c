"""The final between the baseline and one other variant: what to measure next, and the gain so far.

The two take turns, each with a new start, until both are proven and their difference is decided
(`gain`). Where the pairs could not show the gain that is expected, as the other is proven too far
below its edge, a higher load of it is proven first.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

from frontier.core.claim.proof import SCANS
from frontier.core.model.loads import Load
from frontier.core.model.series import Series
from frontier.core.model.trials import Phase
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
from frontier.extras.tune.runner import FINAL, Runner
from frontier.search.curves import RUN_TO_RUN, interpolated
from frontier.search.next_trial import Ask, Done
from frontier.search.scan import SearchPolicy, look_at
from frontier.search.window_size import in_flight, longer

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
class Final:
    """The final of the baseline and another variant. `running` is the variant whose server is up;
    None without one.
    """

    rules: RaceRules
    baseline: Runner
    other: Runner
    running: Series | None = None

    @cached_property
    def gain(self) -> Gain | None:
        """The gain by the final so far; None until both are proven."""
        return None if self.sides is None else gain_of(*self.sides, self.rules)

    @cached_property
    def proven(self) -> tuple[Runner, Runner] | None:
        """Both runners of the final; None until both are proven. Where their pairs show that starts
        differ by more than is usual, what either may still give is judged by that.
        """
        if (mine := self.baseline.side()) is None or (other := self.other.side()) is None:
            return None
        spread = max(RUN_TO_RUN, spread_of(pairs_of(mine, other, self.rules), self.rules))
        return replace(self.baseline, spread=spread), replace(self.other, spread=spread)

    @cached_property
    def sides(self) -> tuple[ProvenVariant, ProvenVariant] | None:
        """Their sides of the claim."""
        mine, other = (None, None) if self.proven is None else (runner.side() for runner in self.proven)
        return None if mine is None or other is None else (mine, other)

    @cached_property
    def open(self) -> tuple[Runner, float] | None:
        """The side that may still give more, and by how much (ln), if that is more than the reach
        of the pairs. None otherwise, or once the gain is decided.
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

    @property
    def is_lost(self) -> bool:
        """Whether the final is over and the other gave no more than the baseline, or could not be
        proven.
        """
        if self.other.gone is not None or _failed(self.other):
            return True
        gain = self.gain
        return gain is not None and gain.ratio.value <= 1 + WORTH and self.next_step is None

    # ---- what is next

    @cached_property
    def next_step(self) -> RaceStep | None:
        """The next trial; None when the final is over or cannot be held."""
        first, second = self.baseline, self.other
        if _failed(second) or second.gone is not None:
            return None
        if first.gone is not None or _failed(first):
            return alone(second, self.running)
        if (look := self._same_load(first, second)) is not None:
            return step_of(first, self.running, look)
        for runner in (first, second):
            if self.running == runner.series and not _turn_is_over(runner):
                return turn_of(runner, self.running)
        if self.sides is None:  # the loads are fixed first, the baseline's before the other's
            return turn_of(first if first.proven is None else second, self.running)
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
        return step_of(winner, self.running, ask, anew=not 0 < len(turn) < windows)

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
        return None if following.visited_since(fixed) >= MOST_STARTS else turn_of(following, self.running)

    def _beyond(self, runner: Runner) -> RaceStep | None:
        """A turn of the side that may still give more: a quick look beyond its proven setting in a
        new start. None after EDGE_TURNS of them.
        """
        if runner.looks_beyond >= EDGE_TURNS or runner.beyond is None:
            return None
        return step_of(runner, self.running, look_of(runner, runner.beyond, "how much more would it give?"), anew=True)

    def _same_load(self, first: Runner, second: Runner) -> Ask | None:
        """A quick look of the baseline at the load of the other, where it has none near it. The
        best of many variants must not beat one with fewer trials.
        """
        edge = second.reach(0.0).edge if second.proven is None else second.proven
        if edge is None or first.final_starts:
            return None
        near = [c for c in first.state.looks if edge / SAME_LOAD <= c <= edge * SAME_LOAD]
        return None if near else look_of(first, edge, "the load of the best other variant")


def turn_of(runner: Runner, running: Series | None) -> RaceStep:
    """The next trial of a turn: a window of its proof. After the proof, a window of the proven
    setting and a quick look at the edge, which shows how much more there may be.
    """
    step, over = runner.proof, running != runner.series or _turn_is_over(runner)
    if isinstance(step, Ask):
        return step_of(runner, running, step, anew=over)
    assert step.proven is not None
    more = runner.beyond
    if not over and more is not None and any(t.load == step.proven for t in runner.turn):
        return step_of(runner, running, look_of(runner, more, "how much more would it give?"))
    points = runner.state.points
    requests = math.ceil(PAIR_TURNS * in_flight(step.proven, points))
    seconds = longer(PAIR_SECONDS, step.proven, points)
    return step_of(runner, running, Ask(step.proven, Phase.VISIT, requests, "started anew", seconds), anew=over)


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


def look_of(runner: Runner, c: Load, reason: str = "where is its edge?") -> Ask:
    ask = look_at(SearchPolicy(()), runner.state.points, c, reason)
    return replace(ask, requests=max(LOOK_REQUESTS, ask.requests))


def alone(runner: Runner, running: Series | None) -> RaceStep | None:
    """The next trial of the proof of a variant that has no opponent."""
    return turn_of(runner, running) if isinstance(runner.proof, Ask) else None


def step_of(runner: Runner, running: Series | None, ask: Ask, *, anew: bool = False) -> RaceStep:
    """The next trial of a variant, whose server is started unless it runs."""
    return RaceStep(runner.series, ask, anew or running != runner.series)
