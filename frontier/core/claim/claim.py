"""The claim of an operating point: what its proof covers, in turns, and whether a later visit
contradicts it.

A stall of the server hits all requests in flight at once, so requests are not independent of each
other. A *turn* is the time of one request. A proof of 1,280 requests at 64 in flight has seen 20
turns, and so had no more than 20 chances to see such a stall. A claim is `early` until there were
enough turns for the percentile that is limited, and until the share of late requests per turn is
small enough; then it is `final`.

The judgement over turns is a betting e-process (Waudby-Smith and Ramdas, "Estimating means of
bounded random variables by betting", JRSS-B 2024). Let Y be the share of a turn's requests that
exceed a limit on the percentile p, and m = 1 - p. A bet against "the mean of Y is m or more", with
a stake between 0 and 1 / (1 - m), comes to the capital

    product over turns of 1 + stake * (m - Y)

If the mean is m or more, the capital does not grow on average. It then reaches 20 in at most one of
twenty cases (Ville's inequality), however often it is looked at and whenever the sweep ends.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from frontier.core.claim.changes import History
from frontier.core.claim.claimed import claim_points, claimed
from frontier.core.claim.proof import candidates
from frontier.core.claim.verdict import judge
from frontier.core.estimates.sources import attains
from frontier.core.model.decisions import Claim, EndedEarly, Limit, SweepEnding, Verdict
from frontier.core.model.loads import Load
from frontier.core.model.metrics import fewest_to_bound
from frontier.core.model.trials import Phase, Trial
from frontier.core.window.held import held_alone
from frontier.core.window.window import Bools, Floats, WindowData, narrowed

PROVEN = 20.0
"""The capital from which a percentile counts as proven over turns: an error of 5%."""
STAKES = ((1.0, 0.6), (0.6, 0.4))
"""Shares of the largest stake, and the part of the capital put on each at first. The largest stake
gains most where no request was late (333 turns prove a p99), and loses all in a turn in which every
request was. The smaller one outlasts such a turn."""


def proof_windows(history: History, concurrency: Load, limits: Sequence[Limit] = ()) -> list[WindowData]:
    """The windows that a claim of a setting about the limits stands on."""
    return [sample for _, sample in claimed(history, limits).get(concurrency, ())]


def claim_of(windows: Sequence[WindowData], limits: Iterable[Limit], *, corrected: bool = False) -> Claim | None:
    """The claim that these windows of one setting support; None without any.

    Only limits on percentiles of requests hold back the stage; means, rates and shares do not. ITL
    is per gap between chunks, so for it only the turns are counted.
    """
    if not windows:
        return None
    percentiles = [limit for limit in limits if limit.of.p is not None]
    turns = int(sum(float(np.sum(turns_per_window(sample))) for sample in windows) + 1e-9)
    enough = turns >= max((fewest_to_bound(limit.of.p or 0.0) for limit in percentiles), default=0)
    final = enough and all(proven_over_turns(windows, limit) for limit in percentiles if limit.of.quantity != "itl")
    unseen = 1 - 0.05 ** (1 / turns) if turns else 1.0
    return Claim("final" if final else "early", turns, unseen, corrected, float(windows[-1].ends[-1]))


def turns_per_window(sample: WindowData) -> Floats:
    """How many turns each window lasted: its length over the mean E2E of its successful requests; 0
    without any.
    """
    windows = len(sample.starts)
    of_window, e2e = sample.window[sample.ok], sample.e2e[sample.ok]
    count = np.bincount(of_window, minlength=windows)
    mean = np.bincount(of_window, e2e, windows) / np.maximum(count, 1)
    turns: Floats = np.where(mean > 0, (sample.ends - sample.starts) / np.where(mean > 0, mean, 1.0), 0.0)
    return turns


def proven_over_turns(windows: Sequence[WindowData], limit: Limit) -> bool:
    """Whether the turns of these windows prove a limit on a percentile."""
    assert limit.of.p is not None
    return capital(np.concatenate([late_shares(sample, limit) for sample in windows]), 1 - limit.of.p) >= PROVEN


@held_alone
def late_shares(sample: WindowData, limit: Limit) -> Floats:
    """The share of requests over the limit in each turn, among requests of the class that is
    limited.
    """
    mine = narrowed(sample, limit.of.group)
    return turn_shares(mine, ~attains(mine, (limit,)))


def turn_shares(sample: WindowData, late: Bools) -> Floats:
    """The share of late requests among those sent in each turn, in the order of time; turns without
    one are left out.

    A window is cut into as many turns of the mean E2E as fit. The piece left over is shared out
    among them, so each is a little longer and every request is in one.
    """
    turns = np.maximum(1, np.floor(turns_per_window(sample) + 1e-9)).astype(np.int64)
    length = (sample.ends - sample.starts)[sample.window]
    into = (sample.sent - sample.starts[sample.window]) / np.where(length > 0, length, 1.0)
    mine = turns[sample.window]
    turn = (np.cumsum(turns) - turns)[sample.window] + np.clip((into * mine).astype(np.int64), 0, mine - 1)
    sent = np.bincount(turn, minlength=int(turns.sum()))
    shares: Floats = np.bincount(turn, late, len(sent))[sent > 0] / sent[sent > 0]
    return shares


def capital(shares: Floats, m: float) -> float:
    """The capital that a bet of 1 against "the mean of these shares is `m` or more" has come to,
    mixed over STAKES.
    """
    with np.errstate(divide="ignore"):
        return math.fsum(
            part * math.exp(min(700.0, float(np.log1p(np.maximum(-1.0, stake / (1 - m) * (m - shares))).sum())))
            for stake, part in STAKES
        )


def corrected_settings(history: History, limits: Sequence[Limit], verdicts: dict[int, Verdict]) -> tuple[Load, ...]:
    """The settings that were proven before their visits, and are not proven by all of their data;
    not those that are excluded. `verdicts` are the verdicts by all data. A limit on a metric that
    the earlier points lack, as cost, is judged by all data alone.
    """
    visited = {trial.load for trial, _ in history if trial.phase is Phase.VISIT}
    contradicted = {c for c in visited if verdicts.get(c, Verdict.MEETS) not in (Verdict.MEETS, Verdict.INVALID)}
    if not contradicted:
        return ()
    earlier = [(t, s) for t, s in history if t.load in contradicted and t.phase is not Phase.VISIT]
    corrected = []
    for point in claim_points(earlier, limits):
        known = [limit for limit in limits if limit.metric in point.metrics]
        if known and judge(point, known).verdict is Verdict.MEETS:
            corrected.append(point.load)
    return tuple(corrected)


def ended_early(
    history: History, limits: Sequence[Limit] = (), end: SweepEnding | None = None
) -> dict[Load, EndedEarly]:
    """What cut short the proof of a setting, by concurrency: `max_time`, or the `end` of the sweep
    while it went on. A budget ends the proofs alone that it had no room for.
    """
    cuts = {}
    for concurrency, proof in claimed(history, limits).items():
        if any(_was_cut(trial, sample) for trial, sample in proof):
            cuts[concurrency] = EndedEarly("max_time", sum(trial.requests for trial, _ in proof))
    if end is None or end.by == "finished":
        return cuts
    dropped = {trial.load for trial, _ in history if trial.key.rsplit("-", 2)[0] in end.dropped}
    proven, open_ = (
        {c for tier in end.asked for c in _judged_so(history, tier, verdict)}
        for verdict in (Verdict.MEETS, Verdict.UNPROVEN)
    )
    return {
        c: EndedEarly("proven" if c in proven - open_ else end.by)
        for c in _judged_so(history, limits, Verdict.UNPROVEN)
        if c in proven - open_ or end.by != "budget" or c in dropped
    } | cuts


def _judged_so(history: History, limits: Sequence[Limit], verdict: Verdict) -> set[Load]:
    """The settings whose proof for these limits stands so; `UNPROVEN`: it is not over."""
    return {each.load for each in candidates(history, tuple(limits)) if each.verdict is verdict}


def _was_cut(trial: Trial, sample: WindowData) -> bool:
    """Whether a window ended before its requests were sent and before the seconds that it was to
    last at most.
    """
    lasted = float((sample.ends - sample.starts).sum())
    whole = trial.seconds is not None and lasted >= 0.99 * trial.seconds
    return "time" in sample.ended and sample.n < trial.requests and not whole
