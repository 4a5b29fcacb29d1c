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
    share, drawn = _share([_agreement(pairs) for pairs in alike], draws)
    own_share, own_drawn = _share([_agreement(pairs) for pairs in own], draws)
    loss = _estimate(own_share.value - share.value, own_drawn - drawn, len(whole))
    distances = [_mean(_distances(pairs), draws) for pairs in (alike, own)]
    return Compared(mine, other, len(whole), share, own_share, loss, *distances)


def _agreement(pairs: Pairs) -> tuple[float, float]:
    """Of pairs of answers to one prompt: how many next tokens are the same, and how many were compared; means."""
    same = compared = 0
    for a, b in pairs:
        ours, theirs = a.tokens.split(), b.tokens.split()
        alike = _alike(ours, theirs)
        same += alike
        compared += alike + (alike < max(len(ours), len(theirs)))  # an end is a choice as well
    return same / len(pairs), compared / len(pairs)


def _alike(ours: Sequence[str], theirs: Sequence[str]) -> int:
    """How many tokens at their beginning are the same."""
    shorter = min(len(ours), len(theirs))
    return next((i for i in range(shorter) if ours[i] != theirs[i]), shorter)


def _distances(prompts: Sequence[Pairs]) -> list[tuple[float, float]]:
    """Per prompt the distances of log-probabilities of the same tokens, added up, and their number."""
    sums = []
    for pairs in prompts:
        total, count = 0.0, 0
        for a, b in pairs:
            ours, theirs = a.logprobs.split(), b.logprobs.split()
            both = min(_alike(a.tokens.split(), b.tokens.split()), len(ours), len(theirs))
            total += sum(abs(float(x) - float(y)) for x, y in zip(ours[:both], theirs[:both], strict=True))
            count += both
        sums.append((total, float(count)))
    return sums


def _share(prompts: Sequence[tuple[float, float]], draws: Ints) -> tuple[Estimate, Floats]:
    """The share with its interval, and its draws."""
    same, compared = np.array(prompts).sum(axis=0).tolist()
    drawn = _ratios(prompts, draws)
    by_draws = _estimate(same / compared, drawn, len(prompts))
    (low, high), (lower, upper) = (clopper_pearson(same, compared, level) for level in (0.975, 0.95))
    share = Estimate(
        by_draws.value, min(by_draws.low, low), max(by_draws.high, high), len(prompts),
        min(by_draws.lower, lower), max(by_draws.upper, upper),
    )  # fmt: skip
    return share, drawn


def _mean(sums: Sequence[tuple[float, float]], draws: Ints) -> Estimate | None:
    total, count = np.array(sums).sum(axis=0).tolist()
    return _estimate(total / count, _ratios(sums, draws), len(sums)) if count else None


def _ratios(prompts: Sequence[tuple[float, float]], draws: Ints) -> Floats:
    """The ratio of the sums, for each draw of the prompts."""
    parts = draws @ np.array(prompts)
    ratios: Floats = parts[:, 0] / np.maximum(parts[:, 1], 1e-9)
    return ratios


def _estimate(value: float, drawn: Floats, n: int) -> Estimate:
    low, high, lower, upper = np.quantile(drawn, _LEVELS).tolist()
    return Estimate(value, low, high, n, lower, upper)
