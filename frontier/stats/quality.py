"""Quality of a deployment's answers beside those of a reference: how often both choose the same next token.

Both answered the same prompts greedily. As long as two answers are the same, both chose the next token after the same
beginning: each token up to and with the first that differs is a comparison. One deployment differs from itself, too (a
batch of another size rounds otherwise), so the reference's two passes are compared likewise, and a loss is what is seen
beyond that. Intervals are by bootstrap over prompts, the same draws for both; a share's are at least the exact ones.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from frontier.model import Answer, Answers, Estimate
from frontier.stats.intervals import clopper_pearson
from frontier.stats.window import Floats, Ints

DRAWS = 1000
_LEVELS = (0.025, 0.975, 0.05, 0.95)
Pairs = Sequence[tuple[Answer, Answer]]


@dataclass(frozen=True, slots=True)
class Compared:
    """A deployment beside its reference over so many `prompts`: the share of the same next tokens, that of the
    reference with itself, the loss (how much smaller the first is), and how far log-probabilities of the same tokens
    are apart (nats), likewise; None where the server gives none.
    """

    of: Answers
    reference: Answers
    prompts: int
    agreement: Estimate
    itself: Estimate
    loss: Estimate
    distance: Estimate | None
    own_distance: Estimate | None


def compared(answers: Iterable[Answers], deployment: str, shape: str, reference: str) -> Compared | None:
    """The comparison of what was answered; None where one of the two was not asked, or something else."""
    known = {(each.deployment, each.shape): each for each in answers}
    mine, other = known.get((deployment, shape)), known.get((reference, shape))
    if mine is None or other is None or mine.asked != other.asked:
        return None
    rows = list(zip(*mine.passes, *other.passes, strict=True))
    whole = [[answer for answer in row if answer is not None] for row in rows if None not in row]
    if len(whole) < 2:
        return None
    first, again = len(mine.passes), len(mine.passes) + 1
    alike = [[(row[0], row[first]), (row[1], row[again])] for row in whole]
    own = [[(row[first], row[again])] for row in whole]
    alike = own if mine is other else alike
    draws = np.random.default_rng(0).multinomial(len(whole), [1 / len(whole)] * len(whole), size=DRAWS)
    (share, drawn, distance), (itself, own_drawn, own_distance) = (
        _compare(np.array([_sums(pairs) for pairs in prompts]), draws) for prompts in (alike, own)
    )
    loss = _estimate(itself.value - share.value, own_drawn - drawn, len(whole))
    return Compared(mine, other, len(whole), share, itself, loss, distance, own_distance)


def _sums(pairs: Pairs) -> tuple[float, float, float, float]:
    """Of pairs of answers to one prompt, on average: how many next tokens are the same and how many were compared; the
    distances of the log-probabilities of the same tokens, added up, and their number.
    """
    sums = np.zeros(4)
    for a, b in pairs:
        ours, theirs = a.tokens.split(), b.tokens.split()
        shorter = min(len(ours), len(theirs))
        same = next((i for i in range(shorter) if ours[i] != theirs[i]), shorter)
        end = same < max(len(ours), len(theirs))  # to end is a choice as well
        both = list(zip(a.logprobs.split()[:same], b.logprobs.split()[:same], strict=False))
        sums += (same, same + end, sum(abs(float(x) - float(y)) for x, y in both), len(both))
    return tuple((sums / len(pairs)).tolist())


def _compare(sums: Floats, draws: Ints) -> tuple[Estimate, Floats, Estimate | None]:
    """The share with its interval and its draws, and the distance. `sums` has a row for each prompt."""
    (same, compared, apart, number), n = sums.sum(axis=0).tolist(), len(sums)
    parts = draws @ sums
    drawn: Floats = parts[:, 0] / parts[:, 1]
    by_draws = _estimate(same / compared, drawn, n)
    (low, high), (lower, upper) = (clopper_pearson(same, compared, level) for level in (0.975, 0.95))
    share = Estimate(
        by_draws.value, min(by_draws.low, low), max(by_draws.high, high), n,
        min(by_draws.lower, lower), max(by_draws.upper, upper),
    )  # fmt: skip
    distance = _estimate(apart / number, parts[:, 2] / np.maximum(parts[:, 3], 1), n) if number else None
    return share, drawn, distance


def _estimate(value: float, drawn: Floats, n: int) -> Estimate:
    low, high, lower, upper = np.quantile(drawn, _LEVELS).tolist()
    return Estimate(value, low, high, n, lower, upper)
