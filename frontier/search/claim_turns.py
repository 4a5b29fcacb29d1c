"""How many turns the claim of an operating point still needs."""

from collections.abc import Sequence

import numpy as np

from frontier.core.claim.changes import History, unchanged
from frontier.core.claim.claim import PROVEN, STAKES, claim_of, late_shares, proof_windows
from frontier.core.model.decisions import Limit
from frontier.core.model.loads import Load
from frontier.core.model.metrics import fewest_to_bound
from frontier.core.model.trials import Phase
from frontier.core.window.window import Floats, WindowData

MOST_TURNS = 600
"""Twice the turns of a p99. A claim that would not be final by then, going by its proof, gets no
more turns than a p99 needs: something rare is there, which more turns may not rule out soon."""


MORE_TURNS = 1.2
"""A claim stays early if it is not final after this many times the turns expected from its proof:
late requests came, and nobody knows how many more turns it would take."""


def turns_to_go(limits: tuple[Limit, ...], history: History, c: Load) -> int:
    """How many more turns of visits a setting is expected to need; 0 once its claim is final."""
    claim = claim_of(proof_windows(history, c, limits), limits)
    if claim is not None and claim.stage == "final":
        return 0
    return max(0, turns_expected(limits, history, c) - (claim.turns if claim is not None else 0))


def turns_expected(limits: tuple[Limit, ...], history: History, c: Load) -> int:
    """The turns after which the claim of an operating point is final, by the data from before its
    first visit.
    """
    kept = unchanged(history, limits)
    proof = proof_windows([(t, s) for t, s in kept if t.phase is not Phase.VISIT], c)
    needed = _turns_needed(proof, limits)
    return needed if needed < MOST_TURNS else _turns_needed([], limits)


def _turns_needed(windows: Sequence[WindowData], limits: tuple[Limit, ...]) -> int:
    """How many turns like those of these windows make a claim final; MOST_TURNS where even that
    many would not.
    """
    needed = max((fewest_to_bound(limit.of.p) for limit in limits if limit.of.p is not None), default=0)
    for limit in limits:
        if limit.of.p is not None and limit.of.quantity != "itl":
            shares = [late_shares(sample, limit) for sample in windows]
            needed = max(needed, turns_to_prove(np.concatenate([np.zeros(0), *shares]), 1 - limit.of.p))
    return needed


def turns_to_prove(shares: Floats, m: float) -> int:
    """The number of turns after which the bet of `claim.capital` is won, if turns like these go on
    in this order again and again; MOST_TURNS where it is not won by then.
    """
    repeated = np.resize(shares, MOST_TURNS) if len(shares) else np.zeros(MOST_TURNS)
    with np.errstate(divide="ignore"):
        capital = sum(
            part * np.exp(np.minimum(700.0, np.cumsum(np.log1p(np.maximum(-1.0, stake / (1 - m) * (m - repeated))))))
            for stake, part in STAKES
        )
    won = np.flatnonzero(capital >= PROVEN)
    return int(won[0]) + 1 if len(won) else MOST_TURNS
