"""Decisions: an SLA's limits, the verdict on one setting, and the operating point of a series with
its reasons."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from frontier.core.model import metrics
from frontier.core.model.loads import Load
from frontier.core.model.points import Estimate, Flag, Power
from frontier.core.model.series import HasSeries
from frontier.core.model.shapes import Shape


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit of an SLA in the metric's own unit: the promise, and optionally a comfort mark
    within it.

    >>> str(Limit("p99_ttft", 0.5)), str(Limit("goodput", 20))
    ('p99 TTFT ≤ 500 ms', 'goodput (requests within every limit) ≥ 20 req/s')
    """

    metric: str
    promise: float
    comfort: float | None = None

    @property
    def of(self) -> metrics.Metric:
        """The metric that is limited. ValueError when there is none of this name."""
        return metrics.metric(self.metric)

    @property
    def better(self) -> metrics.Better:
        """The direction that is better: 'lower' makes the promise a maximum, 'higher' a minimum."""
        return self.of.better

    def undefined(self, shape: Shape) -> bool:
        """Whether no request of this shape has the metric: times between tokens, where each answer
        is one token.

        >>> [Limit(metric, 0.5).undefined(Shape.of(1024, 1)) for metric in ("p99_tpot", "p99_ttft")]
        [True, False]
        """
        mine = [c.shape for c in shape.mix if self.of.group is not None and self.of.group.split(".")[0] == c.name]
        return self.of.quantity in ("tpot", "itl") and (mine or [shape])[0].osl.high <= 1

    def holds(self, value: float) -> bool:
        """Whether a value keeps the promise, its edge included; never nan, and never inf below a
        finite maximum.
        """
        return value <= self.promise if self.better == "lower" else value >= self.promise

    def breaks(self, value: float) -> bool:
        """Whether a value is beyond the promise. For nan neither this nor `holds` is true."""
        return self.of.improves(self.promise, value)

    def comfortable(self, value: float) -> bool:
        """Whether a value keeps the comfort mark; False when there is none."""
        return self.comfort is not None and Limit(self.metric, self.comfort).holds(value)

    def margin(self, value: float) -> float:
        """The headroom: the share of the promise that a value leaves, negative beyond it, nan for
        nan.

        At a promise of 0 there are no shares: 0 for a value of 0, else an infinity of the side's
        sign.

        >>> Limit("p99_ttft", 0.5).margin(0.4), Limit("error_rate", 0.0).margin(0.01)
        (0.19999999999999996, -inf)
        """
        left = self.promise - value if self.better == "lower" else value - self.promise
        if self.promise == 0 and not math.isnan(left):
            return 0.0 if left == 0 else math.copysign(math.inf, left)
        return left / abs(self.promise) if self.promise else left

    def excess(self, value: float) -> float:
        """ln of value over promise (promise over value when higher is better): below 0 within it,
        inf for infinite.
        """
        above, below = (value, self.promise) if self.better == "lower" else (self.promise, value)
        if above <= 0:
            return -math.inf
        if below <= 0 or math.isinf(above):
            return math.inf
        ratio = above / below
        return math.log(ratio) if ratio != 0 else -math.inf

    def bound(self, estimate: Estimate) -> float:
        """The one-sided bound that must hold for a proof: `upper` when lower is better, else
        `lower`.
        """
        return estimate.upper if self.better == "lower" else estimate.lower

    def bad_bound(self, estimate: Estimate) -> float:
        """The one-sided bound that shows a violation where it breaks the promise: `lower` when
        lower is better, else `upper`.
        """
        return estimate.lower if self.better == "lower" else estimate.upper

    def __str__(self) -> str:
        return f"{self.of.label} {'≤' if self.better == 'lower' else '≥'} {self.of.format_trimmed(self.promise)}"


class Verdict(StrEnum):
    """The five verdicts of a setting against an SLA. Exit codes are in `errors.exit_code`."""

    MEETS = "meets"
    VIOLATES = "violates"
    MARGINAL = "marginal"
    UNPROVEN = "unproven"
    INVALID = "invalid"


_WORST_FIRST = (Verdict.INVALID, Verdict.VIOLATES, Verdict.UNPROVEN, Verdict.MARGINAL, Verdict.MEETS)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict that decides among several: invalid, violates, unproven, marginal, meets.
    ValueError without any.
    """
    return min(verdicts, key=_WORST_FIRST.index)


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdicts of one point against one SLA, per metric and jointly, and the binding metric
    (least headroom).
    """

    load: Load
    verdict: Verdict
    per_metric: Mapping[str, Verdict]
    binding: str | None
    headroom: float | None = None
    need: int | None = None

    @property
    def violated(self) -> str | None:
        """The metric that is violated; of several the binding one."""
        names = [name for name, verdict in self.per_metric.items() if verdict is Verdict.VIOLATES]
        return self.binding if self.binding in names else next(iter(names), None)


@dataclass(frozen=True, slots=True)
class Claim:
    """What the proof of an operating point covers.

    Its trials lasted `turns` turns; a turn is the time of one request. An event that hits all
    requests in flight at once, as a stall of the server, may be missed where few turns have it.
    `unseen_share` is the smallest share of turns with such an event that would have been seen with
    95%.

    The claim is `early` until there were enough turns for the percentile that is claimed (300 for a
    p99), then `final`. `corrected`: a later visit contradicts an early claim. `until` is the unix
    time at which the last of these trials ended: the claim is about the server as it was then.
    """

    stage: Literal["early", "final"]
    turns: int
    unseen_share: float
    corrected: bool = False
    until: float | None = None


@dataclass(frozen=True, slots=True)
class RejectedStep:
    """A higher setting that also meets the SLA, with a throughput gain too small for its longer
    tail.
    """

    load: Load
    gain: float
    metric: str
    cost: float
    tie: bool = False


class Cause(StrEnum):
    """The kind of a reason of an explanation; its words are in `show/view/explain.py`."""

    # of one setting
    CHOSEN = "chosen"
    STEP_NOT_WORTH = "step_not_worth"
    MEETS = "meets"
    VIOLATES = "violates"
    EXCLUDED = "excluded"
    CROSSES = "crosses"
    TOO_FEW = "too_few"
    NO_INTERVAL = "no_interval"
    SCANNED = "scanned"
    NOT_JUDGED = "not_judged"
    STALE = "stale"
    DOUBTED = "doubted"
    GROWS = "grows"
    # of a decision
    UNDEFINED = "undefined"
    RANGE = "range"
    HIGHEST_MEASURED = "highest_measured"
    STATED_SLOTS = "stated_slots"
    MOST_TRIED = "most_tried"
    CLIENT_CAPACITY = "client_capacity"
    NO_MORE_THROUGHPUT = "no_more_throughput"
    SCAN_CUT = "scan_cut"
    LOWEST_MEASURED = "lowest_measured"
    BRACKET = "bracket"
    OPTIMUM = "optimum"
    ENERGY = "energy"
    NON_MONOTONE = "non_monotone"
    UNCONFIRMED = "unconfirmed"
    SLOW_ALONE = "slow_alone"
    POINT_ESTIMATES = "point_estimates"
    CORRECTED = "corrected"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class SweepEnding:
    """How a sweep ended: 'finished', 'budget', 'interrupted', ...; 'running': it goes on.

    `asked` are the sets of limits that it was to prove, `dropped` the settings whose proofs its
    budget had no room for, as the keys of their trials begin.
    """

    by: str
    asked: Sequence[Sequence[Limit]] = ()
    dropped: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class EndedEarly:
    """What ended the proof of a setting before it was decided.

    `by` is `max_time`, which let fewer than the `planned` requests be sent; `given_up` where more
    would have been too many; `busy` where the client was; or the way the sweep ended
    (`SweepEnding.by`). `proven`: it ended well, for the limits that the sweep was asked for.
    """

    by: str
    planned: int | None = None


@dataclass(frozen=True, slots=True)
class Reason:
    """One statement of an explanation, about `settings` (concurrencies) and, where there is one, a
    metric's value.

    - `gain`: the throughput over that of the operating point, as a share (0.1: ten percent more)
    - `cost`: the factor by which the tail of `metric` grows
    - `need`: the number of requests in all that would decide
    - `cut`: what ended its proof before that
    - `flags`: the flags that excluded a setting, or the client's that widened its bound
    - `growth`: the share by which a latency changed, or grows in a minute
    - `compared`: a whole window was measured, to compare it with others; no proof was begun
    """

    cause: Cause
    settings: tuple[Load, ...] = ()
    metric: str | None = None
    estimate: Estimate | None = None
    limit: Limit | None = None
    verdict: Verdict | None = None
    gain: float | None = None
    cost: float | None = None
    need: int | None = None
    cut: EndedEarly | None = None
    flags: tuple[Flag, ...] = ()
    power: Power | None = None
    growth: float | None = None
    compared: bool = False


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a decision is what it is.

    `settings` says of each measured setting, ascending, why it is (not) the answer. `reasons` come
    in the order to read them: what binds, which step was rejected, what would decide, what was
    excluded. `remarks` are the notes of the operating point, as how it was measured.
    """

    settings: tuple[Reason, ...] = ()
    reasons: tuple[Reason, ...] = ()
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NextStep:
    """A setting that is not proven and may be a better answer, or the first one; and what would
    decide it.

    `gain` is its throughput over that of the operating point, as a share more; None without an
    operating point. `throughput` is its output throughput as measured. `flags` excluded it, if any
    did; `widened` are flags that made the bound too wide. `requests` would decide it (None: no
    reasonable number, or not known), which would take `seconds` with `command`. Without `seconds`
    the command is what to run instead. `tail`: it gives less throughput and is preferred for the
    tail of this metric, which is this share of the operating point's.
    """

    load: Load
    gain: float | None = None
    throughput: float | None = None
    flags: tuple[Flag, ...] = ()
    requests: int | None = None
    seconds: float | None = None
    command: str | None = None
    widened: tuple[Flag, ...] = ()
    tail: tuple[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Decision(HasSeries):
    """The operating point of one series, or the statement that no setting is one.

    `load` is None unless a setting meets the SLA (or is marginal and was accepted).
    `candidate` is then the best unproven or marginal setting, or the nearest miss. `last_pass` and
    `first_fail` bracket the limit among the measured settings. `holes` are violating settings below
    one that meets. `unconfirmed` settings violate in their only trial although a higher one is
    proven; that does not count yet. `claim` is what the proof covers: of the operating point, or,
    where a later visit contradicted a setting and that left no operating point, of this setting.

    Three fields take no part in deciding. `engine` is the dialect of the server that answered,
    where its limit on requests in flight is known. `ranks` is its number of ranks of data
    parallelism (see `show/view/limit_lines.py`); `run` fills both in. `notes` is the explanation in
    sentences (`show.view.sentences.with_notes`).
    """

    deployment: str
    shape: Shape
    limits: tuple[Limit, ...]
    verdict: Verdict
    load: Load | None
    binding: str | None
    metrics: Mapping[str, Estimate]
    judgements: tuple[Judgement, ...]
    notes: tuple[str, ...] = ()
    candidate: Load | None = None
    last_pass: Load | None = None
    first_fail: Load | None = None
    holes: tuple[Load, ...] = ()
    unconfirmed: tuple[Load, ...] = ()
    explanation: Explanation = Explanation()
    rejected: RejectedStep | None = None
    throughput_optimum: Load | None = None
    goodput_optimum: Load | None = None
    cheapest: Load | None = None
    claim: Claim | None = None
    next_step: NextStep | None = None
    engine: str | None = None
    ranks: int = 1

    def __repr__(self) -> str:
        """Three lines: the answer, the limits with what was measured, and what brackets it."""
        return (
            f"<Decision {self.series.label()}: {self.verdict}, load={self.load!r}, shown={self.shown!r}"
            "\n  "
            + "; ".join(
                f"{each}: {each.of.format_trimmed(self.metrics[each.metric].value)}"
                for each in self.limits
                if each.metric in self.metrics
            )
            + f"\n  binding={self.binding}, last_pass={self.last_pass!r}, first_fail={self.first_fail!r}>"
        )

    @property
    def concurrency(self) -> int | None:
        """The name of `load` in version 1.0."""
        return self.load

    @property
    def shown(self) -> Load | None:
        """The setting whose numbers are shown: the operating point, else the candidate."""
        return self.candidate if self.load is None else self.load

    def judgement(self, load: int | None) -> Judgement | None:
        """The judgement of a setting; None where it was not judged."""
        return next((j for j in self.judgements if j.load == load), None)
