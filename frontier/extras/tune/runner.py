"""A variant in the race: the evidence of its trials, and the next trial of its proof."""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from frontier.core.claim.changes import MOST_CHANGES, PROOFS, History, spoilt
from frontier.core.claim.proof import SCANS, Candidate, joined
from frontier.core.model.decisions import Verdict
from frontier.core.model.groups import by_key
from frontier.core.model.loads import Concurrency, Load
from frontier.core.model.series import Series
from frontier.core.model.trials import Phase, Trial
from frontier.core.stats.laws import normal_quantile
from frontier.core.window.window import WindowData
from frontier.extras.tune.gain import ProvenVariant, RaceRules
from frontier.search.auto import no_more_throughput
from frontier.search.complete import window_of_proof
from frontier.search.curves import RUN_TO_RUN, interpolated
from frontier.search.next_trial import Ask, Done
from frontier.search.place import LOWER, State
from frontier.search.scan import SearchPolicy, next_ask
from frontier.search.series_history import SeriesHistory

STEP = 1.5
"""The factor above the highest setting within the SLA at which a variant is measured next. The
baseline, of which nothing is known, goes up twice as far."""
AT_MOST, CANDIDATES = 12, 6
"""Windows of a proof after which a lower setting is proven, and how many settings are tried, since
near the edge the differences from start to start do not average out. A proof gets twice as many
windows where more of them would decide: requests are missing, or the speed wanders."""
WINDOW_WORTH = 0.01
"""The share of throughput for which one more window of a proof is measured. What lies between the
proven setting and the edge stays open: at 3% proofs stood at two thirds of the edge's load, and
the race could not show gains of 15%."""
MOST_RAISING = 36
"""Windows of proofs after the first one at most: as many as the longest proof takes."""
MOST_AT_ONE = MOST_RAISING // 2
"""The most of them at one load. Where it took all, and was not proven, none were left for a lower
one when the other side was better known."""
NEAR_LOAD = 1.1
"""The factor within which a setting that was measured stands for another."""
FINAL = (*PROOFS, Phase.VISIT)
Z95 = normal_quantile(0.975)


@dataclass(frozen=True, slots=True)
class Reach:
    """What a variant gives within the SLA (ln, higher is better): the expected value and its
    bounds. `edge` is the concurrency that is expected to give it; None: no setting keeps the SLA.
    `farthest` is the one that may give the most.
    """

    edge: Load | None
    low: float
    value: float
    high: float
    farthest: Load | None = None


@dataclass(frozen=True)
class Runner:
    """A variant in the race: its finished trials, the start in which each was run, and why nothing
    more is run on it (`gone`). Its starts differ by the standard deviation `spread` (ln).
    """

    rules: RaceRules
    series: Series
    history: History
    starts: Mapping[str, int]
    gone: str | None = None
    spread: float = RUN_TO_RUN

    @cached_property
    def known(self) -> SeriesHistory:
        """The search's view of its trials."""
        return SeriesHistory.of(self.rules.limits, list(self.history))

    @cached_property
    def state(self) -> State:
        """The state of every setting by its trials."""
        return State.of(self.known)

    @cached_property
    def worths(self) -> Mapping[Load, float]:
        """The values of the measured settings (ln), where they are known."""
        samples = joined([(t, s) for t, s in self.history if t.load in self.state.points], tuple(Phase))
        return {c: worth for c, sample in samples.items() if (worth := self.rules.worth(sample)) is not None}

    def reach(self, z: float) -> Reach:
        """What it gives within the SLA, with bounds of `z` standard errors: of the latencies, and
        of the differences from start to start.
        """
        worths = self.worths
        if not worths:
            return Reach(None, -math.inf, -math.inf, math.inf)
        values = self._violations

        def best(shift: float) -> tuple[float, Load | None]:
            inside = [c for c, (value, error) in values.items() if value + shift * error <= 0]
            return max(((interpolated(worths, c), c) for c in inside), default=(-math.inf, None))

        (low, _), (value, edge), (high, farthest) = best(z), best(0.0), best(-z)
        apart = z * self.spread / math.sqrt(2)
        lowest, highest = min(worths), max(worths)
        if high == -math.inf and lowest > 1:
            high = worths[lowest]  # lower loads give no more
        top_value, top_error = values[highest]
        if top_value - z * top_error <= 0 and not self._ends_at(highest):
            high = math.inf
        return Reach(edge, low - apart, value, high + apart, farthest)

    @cached_property
    def _violations(self) -> Mapping[Load, tuple[float, float]]:
        """The expected violation (ln) at each setting among which its edge is looked for, with its
        standard error.
        """
        return {c: (self.state.value(c), self._error(c)) for c in _settings(self.worths)}

    def _error(self, c: Load) -> float:
        """The standard error of the latencies (ln) expected at a setting. Start-to-start variance
        counts less where it was measured in several starts.
        """
        near = min(self._starts_at, key=lambda k: abs(math.log(k / c)))
        within = max(max(x.standard_error(c) ** 2 - RUN_TO_RUN**2, 0.0) for x in self.state.curves)
        return math.sqrt(within + self.spread**2 / self._starts_at[near])

    @cached_property
    def _starts_at(self) -> Mapping[int, int]:
        """In how many starts each setting was measured."""
        found = {(t.load, self.starts[t.key]) for t, _ in self.history if t.load in self.state.points}
        return Counter(c for c, _ in found)

    def _ends_at(self, highest: int) -> bool:
        """Whether nothing above a setting could give more."""
        return highest >= self.rules.top or no_more_throughput(self.state.points)

    @cached_property
    def proof(self) -> Ask | Done:
        """The next trial of the search for a setting that is proven, or how the search ended."""
        if not self.history:
            return Done("it was not measured")
        stands = [k.load for k in self.known.candidates if k.verdict is Verdict.MEETS]
        proven = max((c for c in stands if self.known.stands(c) is Verdict.MEETS), default=None)
        if proven is not None:
            return Done(f"c={proven} is proven", proven)
        shape, tiers = self.series.shape, (("", self.rules.limits),)
        policy = SearchPolicy(tuple(sorted(self.state.looks)), prove=self._asked)
        step = next_ask(policy, shape, tiers, list(self.history), window_worth=WINDOW_WORTH)
        return Done(step.reason) if isinstance(step, Done) else step

    @property
    def _asked(self) -> tuple[Load, ...]:
        """The setting that is being proven, or a lower one where more windows would not decide; ():
        the search chooses.
        """
        proofs = [trial.load for trial, _ in self.history if trial.phase is Phase.PROVE]
        if not proofs:
            return ()
        c, tried = proofs[-1], len(set(proofs))
        now = next((k for k in self.known.candidates if k.load == c), None)
        hopeless = tried >= CANDIDATES or (tried > 1 and self.is_spoilt)
        lower = now is not None and not hopeless and not self._goes_on(now)
        return (Concurrency(max(1, math.floor(LOWER * c))),) if lower else (c,)

    def _goes_on(self, now: Candidate) -> bool:
        """Whether a proof gets more windows: AT_MOST, or twice as many where it lacks requests.

        Where the speed wanders or requests run in step, few windows give a bound that is far too
        wide, and each further window narrows it a lot.
        """
        wanders = any(flag.name in ("non_stationary", "lockstep") for flag in now.point.flags)
        lacks_requests = wanders or any(map(now.shortage, self.rules.limits))
        return now.verdict is not Verdict.VIOLATES and now.windows < (2 * AT_MOST if lacks_requests else AT_MOST)

    @property
    def proven(self) -> Load | None:
        """The proven setting; None where no setting is proven, or not yet."""
        step = self.proof
        return step.proven if isinstance(step, Done) else None

    @property
    def expected(self) -> float:
        """What it is expected to give within the SLA (ln): by all of its trials, or at its proven
        setting where that is more.
        """
        at = -math.inf if self.proven is None else interpolated(self.worths, self.proven)
        return max(at, self.reach(0.0).value)

    @property
    def keeps_at_no_load(self) -> bool:
        """Whether no load is expected to keep the SLA, down to one request in flight. What a change
        of the server made stale shows nothing.
        """
        return self.reach(0.0).edge is None and 1 in self.state.points

    @property
    def unproven(self) -> str | None:
        """Why no setting is proven although some load may keep the SLA. None where a setting is
        proven, where no load keeps the SLA, and while its proof goes on.
        """
        step = self.proof if self.final_starts and not self.keeps_at_no_load else None
        if not isinstance(step, Done) or step.proven is not None:
            return None
        last = next(reversed(self.known.candidates), None)
        if last is None or len(self.known.kept.changes) >= MOST_CHANGES:
            return step.reason
        reason = last.reason or "a lower load violates"  # its own proof holds
        return f"{reason} (tried down to c={min(k.load for k in self.known.candidates)})"

    @property
    def is_spoilt(self) -> bool:
        """Whether the client spoilt most windows of its proofs, which then say nothing about the
        variant.
        """
        windows = [sample for trial, sample in self.history if trial.phase in PROOFS]
        return 2 * sum(map(spoilt, windows)) > len(windows)

    @cached_property
    def final_starts(self) -> Mapping[int, History]:
        """The trials of each of its starts in the final, in their order."""
        return by_key((self.starts[each[0].key], each) for each in self.history if each[0].phase in FINAL)

    @property
    def turn(self) -> Sequence[Trial]:
        """The trials of its newest start, if that is one of the final."""
        newest = max((self.starts[t.key] for t, _ in self.history), default=0)
        return [t for t, _ in self.history if self.starts[t.key] == newest] if newest in self.final_starts else ()

    @property
    def looked(self) -> int:
        """The number of its starts in which it had a quick look."""
        return len({self.starts[trial.key] for trial, _ in self.history if trial.phase in SCANS})

    @property
    def beyond(self) -> Load | None:
        """The setting that shows how much more it may give than at its proven one: the farthest
        that may be inside, or above all that was measured as long as that may be. None: the proven
        one. Near a setting that was measured it is that one: starts average out at one load alone.
        """
        most = self.reach(Z95)
        edge = Concurrency(math.ceil(STEP * max(self.state.points))) if most.high == math.inf else most.farthest
        if edge is None or edge == self.proven:
            return None
        near = [c for c in self.state.points if edge / NEAR_LOAD <= c <= edge * NEAR_LOAD and c != self.proven]
        return Concurrency(min(self.rules.top, min(near, key=lambda c: abs(math.log(c / edge)), default=edge)))

    def side(self) -> ProvenVariant | None:
        """Its side of the claim; None while nothing is proven."""
        c = self.proven
        if c is None:
            return None
        starts: dict[int, tuple[WindowData, ...]] = {}
        for number, each in self.final_starts.items():
            if mine := tuple(s for t, s in each if t.load == c and not spoilt(s)):
                starts[number] = mine
        proof = (self.starts[t.key] for t, _ in self.history if t.load == c and t.phase in PROOFS)
        more = self.reach(Z95).high - Z95 * self.spread / math.sqrt(2) - interpolated(self.worths, c)
        return ProvenVariant(c, starts, max(proof, default=0), max(0.0, more))

    # ---- how much more there may be above the proven setting

    @cached_property
    def looks_beyond(self) -> int:
        """In how many starts since its first proof nothing but quick looks were run."""
        first = min(self.final_starts, default=math.inf)
        return len({n for t, _ in self.history if (n := self.starts[t.key]) > first} - self.final_starts.keys())

    @property
    def is_beyond(self) -> bool:
        """Whether its newest start is for what lies above the proven setting."""
        newest = max((self.starts[t.key] for t, _ in self.history), default=0)
        looks = bool(self.final_starts) and newest not in self.final_starts
        return self.proven is not None and (looks or any(self.starts[t.key] == newest for t in self.raising))

    def visited_since(self, start: int) -> int:
        """In how many later starts the proven setting was visited."""
        later = (each for number, each in self.final_starts.items() if number > start)
        return sum(any(t.phase is Phase.VISIT for t, _ in each) for each in later)

    @cached_property
    def raising(self) -> tuple[Trial, ...]:
        """The windows of proofs that were run after its first proof, which is the lowest: a proof
        begins near the edge and goes down.
        """
        lowest = min((k.load for k in self.known.candidates if k.verdict is Verdict.MEETS), default=None)
        proofs = [trial for trial, _ in self.history if trial.phase is Phase.PROVE]
        last = max((i for i, trial in enumerate(proofs) if trial.load == lowest), default=len(proofs))
        return tuple(proofs[last + 1 :])

    def raised(self, worth: float) -> Ask | None:
        """The next window of a proof at the lowest setting above the proven one that is expected to
        give `worth` (ln), up to the expected edge; None where there is none, or after
        MOST_RAISING windows.
        """
        edge, c = self.reach(0.0).edge, self.proven
        if edge is None or c is None or len(self.raising) >= MOST_RAISING:
            return None
        verdicts = {k.load: k.verdict for k in self.known.candidates}
        tried = Counter(trial.load for trial in self.raising)
        given_up = [k for k, v in verdicts.items() if k > c and (v is Verdict.VIOLATES or tried[k] >= MOST_AT_ONE)]
        above = map(Concurrency, range(c + 1, min([edge + 1, *given_up])))
        begun = (k for k in reversed(tried) if verdicts.get(k) is Verdict.UNPROVEN and k not in given_up)
        target = next(itertools.chain(begun, (k for k in above if interpolated(self.worths, k) >= worth)), None)
        return None if target is None else window_of_proof(target, self.known, "more has to be proven")


def _settings(worths: Iterable[Load]) -> list[Load]:
    """The settings among which a variant's edge is looked for: the measured ones and at most 81
    spread over their range.
    """
    known = sorted(worths)
    low, high = known[0], known[-1]
    steps = min(high - low, 80)
    spread = [Concurrency(round(low * (high / low) ** (i / steps))) for i in range(steps + 1)] if steps else []
    return sorted({*known, *spread})
