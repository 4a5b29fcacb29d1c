"""The race: what to measure next on which variant; pure, so that a race that is killed goes on.

Looks of seconds first: each variant is looked at where the best one so far has its edge, and up or
down from there until its own is known, or until it is surely worse. The most promising that lie
close together are started once more. Then the final: the baseline and the best other variant, in
turn, each time started anew, until both are proven and their difference is decided (`gain`).
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from frontier.core.changes import PROOFS, spoilt
from frontier.core.decisions import Verdict
from frontier.core.laws import normal_quantile
from frontier.core.proof import ALPHA, SCANS, joined
from frontier.core.series import Series
from frontier.core.trials import Phase, Trial
from frontier.core.window import WindowData
from frontier.extras.tune.gain import Gain, Rules, Side, gain_of
from frontier.search.auto import LOOKS_AT_MOST, no_more_throughput
from frontier.search.curves import RUN_TO_RUN, interpolated
from frontier.search.place import LOWER, State
from frontier.search.scan import CLOSE, Ask, Done, SearchPolicy, between, look_at, next_ask
from frontier.search.series_history import SeriesHistory
from frontier.search.window_size import in_flight, longer

FIRST = 8
"""The concurrency that the baseline is looked at first."""
STEP = 1.5
"""How far above the highest setting inside the SLA a variant is looked at next; the baseline, of
which nothing is known, twice as far."""
BELOW = 0.75
"""A look at this share of the edge, or lower, shows where a proof is cheap."""
LOOKS = 8
"""Looks at a variant that the error of a race is spent on, at most."""
NEAR, AGAIN = 0.06, 3
"""So many of the most promising variants are started once more, where what they are expected to
give differs by no more than this share."""
SAME_LOAD = 1.1
"""The baseline is looked at within this factor of the load at which the other is best."""
TURN = 5
"""Windows of a proof that each start of the final has at most: what differs from start to start
belongs to the proof, too."""
MOST_STARTS = 16
"""Starts of each side after which the final is over: on a machine that is too busy to measure on no
pair would ever count."""
AT_MOST, CANDIDATES = 6, 6
"""Windows of a proof after which a lower setting is proven (twice as many where only requests are
missing, as a lower setting lacks as many), and how many settings are tried: near the edge what
differs from start to start does not average out. Of 10 families of 4 variants a race took 66 % of
sweeping all with 6 windows in any case, 76 % with 12 where requests are missing, 80 % with 36."""
SHORT_TURNS = 3
"""Starts after which a proof that is not over has longer turns."""
WINDOW_WORTH = 0.03
"""The share of throughput for which one more window of a proof is measured: in a race both sides
may as well be proven a little below their edge."""
PAIR_TURNS, PAIR_SECONDS = 12, 60.0
"""A start of the final whose proof has ended has a window of this many turns of its setting, or of
this long."""
FINAL = (*PROOFS, Phase.VISIT)
Z95 = normal_quantile(0.975)

History = Sequence[tuple[Trial, WindowData]]


@dataclass(frozen=True, slots=True)
class Reach:
    """What a variant gives inside the SLA (ln, the higher the better): as expected, and between
    which bounds. `edge` is the concurrency that is expected to give it; None: none keeps the SLA.
    """

    edge: int | None
    low: float
    value: float
    high: float


@dataclass(frozen=True)
class Runner:
    """A variant in the race: its finished trials, in which of its starts each was run, and why
    nothing more is run on it.
    """

    rules: Rules
    series: Series
    history: History
    starts: Mapping[str, int]
    gone: str | None = None

    @cached_property
    def known(self) -> SeriesHistory:
        """What follows from its trials."""
        return SeriesHistory.of(self.rules.limits, list(self.history))

    @cached_property
    def state(self) -> State:
        """What its trials show of every setting."""
        return State.of(self.known)

    @cached_property
    def _worths(self) -> Mapping[int, float]:
        samples = joined([(t, s) for t, s in self.history if t.concurrency in self.state.points], tuple(Phase))
        return {c: worth for c, sample in samples.items() if (worth := self.rules.worth(sample)) is not None}

    def reach(self, z: float) -> Reach:
        """What it gives inside the SLA, with bounds of so many standard errors: of the latencies,
        and of what differs from start to start.
        """
        state, worths = self.state, self._worths
        if not worths:
            return Reach(None, -math.inf, -math.inf, math.inf)
        values = {c: (state.value(c), self._error(c)) for c in _settings(worths)}

        def best(shift: float) -> tuple[float, int | None]:
            inside = [c for c, (value, error) in values.items() if value + shift * error <= 0]
            return max(((interpolated(worths, c), c) for c in inside), default=(-math.inf, None))

        (low, _), (value, edge), (high, _) = best(z), best(0.0), best(-z)
        apart = z * RUN_TO_RUN / math.sqrt(2)
        lowest, highest = min(worths), max(worths)
        if high == -math.inf and lowest > 1:
            high = worths[lowest]  # lower loads give no more
        top_value, top_error = values[highest]
        if top_value - z * top_error <= 0 and not self._ends_at(highest):
            high = math.inf
        return Reach(edge, low - apart, value, high + apart)

    def _error(self, c: int) -> float:
        """Standard error of the latencies (ln) expected at a setting: what differs from start to
        start is less where it was measured in several.
        """
        near = min(self._starts_at, key=lambda k: abs(math.log(k / c)))
        within = max(max(x.standard_error(c) ** 2 - RUN_TO_RUN**2, 0.0) for x in self.state.curves)
        return math.sqrt(within + RUN_TO_RUN**2 / self._starts_at[near])

    @cached_property
    def _starts_at(self) -> Mapping[int, int]:
        """In how many starts each setting was measured."""
        found = {(t.concurrency, self.starts[t.key]) for t, _ in self.history if t.concurrency in self.state.points}
        return Counter(c for c, _ in found)

    def _ends_at(self, highest: int) -> bool:
        """Whether nothing above a setting could give more."""
        return highest >= self.rules.top or no_more_throughput(self.state.points)

    def proof(self) -> Ask | Done:
        """The next trial of its search for a setting that is proven, or how that ended."""
        stands = [k.concurrency for k in self.known.candidates if k.verdict is Verdict.MEETS]
        proven = max((c for c in stands if self.known.stands(c) is Verdict.MEETS), default=None)
        if proven is not None:
            return Done(f"c={proven} is proven", proven, proven)
        shape, tiers = self.series.shape, (("", self.rules.limits),)
        policy = SearchPolicy(tuple(sorted(self.state.looks)), prove=self._asked)
        step = next_ask(policy, shape, tiers, list(self.history), window_worth=WINDOW_WORTH)
        return Done(step.reason) if isinstance(step, Done) else step

    @property
    def _asked(self) -> tuple[int, ...]:
        """The setting that is being proven, or a lower one where it took more than AT_MOST windows,
        or twice as many where what it lacks is requests; (): the search chooses.
        """
        proofs = [trial.concurrency for trial, _ in self.history if trial.phase is Phase.PROVE]
        if not proofs:
            return ()
        c, tried = proofs[-1], len(set(proofs))
        over = any(k.concurrency == c and k.verdict is Verdict.VIOLATES for k in self.known.candidates)
        lacks_requests = any(
            k.concurrency == c and any(map(k.shortage, self.rules.limits)) for k in self.known.candidates
        )
        lower = over or proofs.count(c) >= (2 * AT_MOST if lacks_requests else AT_MOST)
        return (max(1, math.floor(LOWER * c)),) if lower and tried < CANDIDATES else (c,)

    @property
    def proven(self) -> int | None:
        """The setting that is proven; None where none is, or not yet."""
        step = self.proof()
        return step.proven if isinstance(step, Done) else None

    @cached_property
    def final_starts(self) -> Mapping[int, History]:
        """The trials of each of its starts in the final, in their order."""
        found: dict[int, list[tuple[Trial, WindowData]]] = {}
        for trial, sample in self.history:
            if trial.phase in FINAL:
                found.setdefault(self.starts[trial.key], []).append((trial, sample))
        return found

    @property
    def turn(self) -> Sequence[Trial]:
        """The trials of its newest start, if that is one of the final."""
        newest = max((self.starts[t.key] for t, _ in self.history), default=0)
        return [t for t, _ in self.history if self.starts[t.key] == newest] if newest in self.final_starts else ()

    @property
    def looked(self) -> int:
        """In how many of its starts it was looked at."""
        return len({self.starts[trial.key] for trial, _ in self.history if trial.phase in SCANS})

    @property
    def beyond(self) -> int | None:
        """The setting that shows how much more than at its proven one it may give: where its edge
        is, or above all that was measured as long as that may be inside; None: the proven one.
        """
        most = self.reach(Z95)
        edge = math.ceil(STEP * max(self.state.points)) if most.high == math.inf else most.edge
        return None if edge in (None, self.proven) else min(self.rules.top, edge or 1)

    def side(self) -> Side | None:
        """Its side of the claim; None while nothing is proven."""
        c = self.proven
        if c is None:
            return None
        starts = [[s for t, s in each if t.concurrency == c and not spoilt(s)] for each in self.final_starts.values()]
        reach, at = self.reach(Z95), interpolated(self._worths, c)
        more = reach.high - Z95 * RUN_TO_RUN / math.sqrt(2) - at
        return Side(c, tuple(tuple(each) for each in starts if each), max(0.0, reach.value - at), max(0.0, more))


@dataclass(frozen=True, slots=True)
class Step:
    """The next trial, on which variant, why; `anew`: its server is started anew before."""

    series: Series
    ask: Ask
    anew: bool


@dataclass(frozen=True)
class Race:
    """All variants, the baseline first. `running` is the one whose server is up, if any."""

    rules: Rules
    runners: tuple[Runner, ...]
    running: Series | None = None

    @property
    def baseline(self) -> Runner:
        """What runs today."""
        return self.runners[0]

    @cached_property
    def z(self) -> float:
        """Standard errors beyond which a variant is surely worse: the error of a race is shared by
        all variants and looks.
        """
        return normal_quantile(1 - ALPHA / (len(self.runners) * LOOKS))

    @cached_property
    def _least(self) -> float:
        """What the best variant surely gives."""
        return max((r.reach(self.z).low for r in self.runners if r.history), default=-math.inf)

    def dropped(self, runner: Runner) -> bool:
        """Whether a variant is surely worse than another."""
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
        """The variant that meets the baseline in the final: the one that is being proven, else the
        most promising one; None where none is left that is expected to be better.
        """
        today = self.baseline.reach(0.0).value if self.baseline.gone is None else -math.inf
        begun = [r for r in self.runners[1:] if r.final_starts]
        last = max(begun, key=lambda r: len(r.history) and _last(r), default=None)
        if last is not None and (isinstance(last.proof(), Ask) or last.proven is not None) and last.gone is None:
            return last
        return next((r for r in self.challengers if r not in begun and r.reach(0.0).value > today), None)

    @cached_property
    def gain(self) -> Gain | None:
        """What the final shows so far; None while not both are proven."""
        mine, other = self.baseline.side(), None if self.finalist is None else self.finalist.side()
        return None if mine is None or other is None else gain_of(mine, other, self.rules)

    @property
    def unseen(self) -> float:
        """The gain (a ratio) up to which another variant may still be better than the baseline, by
        looks alone; 1.0 where all are surely worse.
        """
        mine, left = self.baseline.reach(Z95), [r.reach(Z95) for r in self.challengers]
        most = (x.value - mine.value + math.hypot(x.high - x.value, mine.value - mine.low) for x in left)
        return math.exp(max(most, default=0.0))

    def next_step(self) -> Step | None:
        """What to measure next; None when the race is over."""
        if not any(r.final_starts for r in self.runners):
            for runner in self.runners:
                if (look := self._look(runner)) is not None:
                    return self._step(runner, look)
            if (again := self._again()) is not None:
                return again
        return self._final()

    def _step(self, runner: Runner, ask: Ask, *, anew: bool = False) -> Step:
        return Step(runner.series, ask, anew or self.running != runner.series)

    # ---- looks

    def _look(self, runner: Runner) -> Ask | None:
        """The next look at a variant in its first start; None where its edge is known, or it is
        surely worse.
        """
        if runner.gone is not None or runner.looked > 1 or (runner is not self.baseline and self.dropped(runner)):
            return None
        edges = [r.reach(0.0) for r in self.runners if r.history and r is not runner]
        best = max(edges, key=lambda reach: reach.value, default=None)
        start = min(self.rules.top, FIRST if best is None or best.edge is None else best.edge)
        c = next_setting(runner.state, start, self.rules.top, 2.0 if runner is self.baseline else STEP)
        return None if c is None else _look_at(runner, c)

    def _again(self) -> Step | None:
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

    def _final(self) -> Step | None:
        """The next trial of the final; None when it is over, or there is none."""
        first, second = self.baseline, self.finalist
        if second is None:
            return self._alone(first) if first.gone is None else None
        if _failed(second) or second.gone is not None:
            return None
        if first.gone is not None or _failed(first):
            return self._alone(second)
        if (look := self._same_load(first, second)) is not None:
            return self._step(first, look)
        sides = (first, second)
        for runner in sides:
            if self.running == runner.series and not _turn_is_over(runner):
                return self._turn(runner)
        over = min(len(r.final_starts) for r in sides) >= MOST_STARTS
        return None if over or (self.gain is not None and self.gain.decided) else self._turn(_next_of(sides))

    def _alone(self, runner: Runner) -> Step | None:
        """The next trial of the proof of a variant that is compared with none."""
        return self._turn(runner) if isinstance(runner.proof(), Ask) else None

    def _turn(self, runner: Runner) -> Step:
        """The next trial of a turn: a window of its proof; else one of the setting that is proven,
        and a look at the edge, which tells how much more there may be.
        """
        step, over = runner.proof(), self.running != runner.series or _turn_is_over(runner)
        if isinstance(step, Ask):
            return self._step(runner, step, anew=over)
        assert step.proven is not None
        more = runner.beyond
        if not over and more is not None and any(t.concurrency == step.proven for t in runner.turn):
            return self._step(runner, _look_at(runner, more, "how much more would it give?"))
        points = runner.state.points
        requests = math.ceil(PAIR_TURNS * in_flight(step.proven, points))
        seconds = longer(PAIR_SECONDS, step.proven, points)
        return self._step(runner, Ask(step.proven, Phase.VISIT, requests, "started anew", seconds), anew=over)

    def _same_load(self, first: Runner, second: Runner) -> Ask | None:
        """A look of the baseline at the load of the other, where it has none near it: the best of
        many variants must not beat one that was looked at less.
        """
        edge = second.reach(0.0).edge if second.proven is None else second.proven
        if edge is None or first.final_starts:
            return None
        near = [c for c in first.state.looks if edge / SAME_LOAD <= c <= edge * SAME_LOAD]
        return None if near else _look_at(first, edge, "the load of the best other variant")


def _next_of(sides: Iterable[Runner]) -> Runner:
    """The side whose turn it is: the one that was started less often, else the baseline."""
    return min(sides, key=lambda r: len(r.final_starts))


def _failed(runner: Runner) -> bool:
    """Whether no setting of it could be proven."""
    step = runner.proof()
    return isinstance(step, Done) and step.proven is None


def _last(runner: Runner) -> int:
    return max(runner.final_starts)


def _turn_is_over(runner: Runner) -> bool:
    """Whether the newest start of a runner has had its turn of the final: windows of its proof; or
    one of what is proven, and a look at its edge.
    """
    step, turn = runner.proof(), [trial for trial in runner.turn if trial.phase in FINAL]
    if isinstance(step, Ask):
        return len(turn) >= (TURN if len(runner.final_starts) <= SHORT_TURNS else 4 * TURN)
    looked = any(trial.phase in SCANS for trial in runner.turn) or runner.beyond is None
    return looked and any(trial.concurrency == step.proven for trial in turn)


def _look_at(runner: Runner, c: int, reason: str = "where is its edge?") -> Ask:
    return look_at(SearchPolicy(()), runner.state.points, c, reason)


def next_setting(state: State, start: int, top: int, step: float) -> int | None:
    """The next setting to look at: `start`, then up in steps or down in halves until the edge is
    known within CLOSE; None when it is.
    """
    if not state.points:
        tried = [c for c, looks in state.looks.items() if looks >= LOOKS_AT_MOST]
        c = min(tried, default=2 * start) // 2
        return min(start, c) if c >= 1 and len(tried) < LOOKS_AT_MOST else None
    if (odd := min((c for c in state.contradicted if state.looks.get(c, 0) < LOOKS_AT_MOST), default=None)) is not None:
        return odd
    bracket = state.bracket()
    c = round(min(state.points) / step) if bracket is None else _from(state, *bracket, top, step)
    return c if c >= 1 and state.looks.get(c, 0) < LOOKS_AT_MOST else None


def _from(state: State, low: int, high: int | None, top: int, step: float) -> int:
    """The next setting to look at where one is known that is inside; 0 where no more is needed."""
    if high is None:
        over = low >= top or no_more_throughput(state.points)
        return 0 if over else min(top, max(low + 1, round(step * low)))
    if high - low > 1 and high / low > CLOSE:
        return between(low, high)
    return math.floor(BELOW * low) if low > 1 and min(state.points) > BELOW * low else 0


def _settings(worths: Iterable[int]) -> list[int]:
    """The settings between which a variant's edge is looked for: all where they are few."""
    known = sorted(worths)
    low, high = known[0], known[-1]
    steps = min(high - low, 80)
    spread = (round(low * (high / low) ** (i / steps)) for i in range(steps + 1)) if steps else ()
    return sorted({*known, *spread})
