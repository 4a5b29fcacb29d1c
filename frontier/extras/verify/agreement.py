"""Quality of a deployment's answers beside a reference's: how often both choose the same next
token.

Both answered the same prompts greedily. As long as two answers are the same, both chose each next
token after the same beginning. So each token up to and including the first difference is a
comparison. A deployment also differs from itself, as a batch of another size rounds differently.
The reference's two passes are therefore compared likewise, and only the difference beyond that is a
loss.

Where a user's command scored the answers, the scores are compared prompt by prompt. Intervals are
by bootstrap over the distinct prompts, with the same draws for both; those of shares and scores are
at least the exact ones.

Whole answers are not compared: of 256 tokens that differ with 1% each hardly any answer is the
same.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from frontier.config import Config
from frontier.config.deployment import QualityConfig
from frontier.core.model.groups import by_key
from frontier.core.model.points import Estimate
from frontier.core.model.series import Series
from frontier.core.stats.intervals import clopper_pearson
from frontier.core.window.window import Floats, Ints
from frontier.extras.verify.replies import GreedyReplies, GreedyReply
from frontier.store.run_dir import RunDirectory

DRAWS = 1000
"""Bootstrap draws of an agreement."""
ERROR = 0.05
"""The chance that a bound fails with."""
Pairs = Sequence[tuple[GreedyReply, GreedyReply]]


@dataclass(frozen=True, slots=True)
class Scores:
    """Mean scores of the answers of a deployment and of its reference. `loss` is how much lower the
    deployment's are, `itself` how much lower the reference's second pass is than its first.
    """

    mine: Estimate
    reference: Estimate
    loss: Estimate
    itself: Estimate


@dataclass(frozen=True, slots=True)
class Agreement:
    """The replies of a deployment beside those of its reference, over a number of distinct
    `prompts`.

    - `agreement`: the share of next tokens that are the same in both.
    - `itself`: the same share of the reference with itself.
    - `loss`: how much smaller `agreement` is than `itself`.
    - `distance`, `own_distance`: how far the log-probabilities of the same tokens are apart (nats),
      from the reference and within the reference; None where the server gives none.
    - `scores`: None without a scorer.
    """

    of: GreedyReplies
    reference: GreedyReplies
    prompts: int
    agreement: Estimate
    itself: Estimate
    loss: Estimate
    distance: Estimate | None
    own_distance: Estimate | None
    scores: Scores | None = None

    @property
    def quality(self) -> Estimate:
        """The deployment's quality: its score, or its agreement without a scorer."""
        return self.agreement if self.scores is None else self.scores.mine


def of_run(config: Config, checks: RunDirectory) -> dict[Series, Agreement]:
    """The answers of a run's deployments compared with those of their references, and those of the
    references with themselves.
    """
    wanted = {d.name: d.quality.reference for d in config.deployments if isinstance(d.quality, QualityConfig)}
    wanted |= {reference: reference for reference in wanted.values() if reference not in wanted}
    pairs = ((Series(name, shape), other) for name, other in wanted.items() for shape in config.shapes)
    kept = checks.answers(GreedyReplies)
    found = {series: compared(kept, series.deployment, series.shape.label, other) for series, other in pairs}
    return {series: each for series, each in found.items() if each is not None}


def compared(answers: Iterable[GreedyReplies], deployment: str, shape: str, reference: str) -> Agreement | None:
    """The comparison of the answers; None where one of the two was not asked, or was asked
    something else.
    """
    known = {(each.deployment, each.shape): each for each in answers}
    mine, other = known.get((deployment, shape)), known.get((reference, shape))
    return None if mine is None or other is None else beside(mine, other)


def beside(mine: GreedyReplies, other: GreedyReplies, comparisons: int = 1) -> Agreement | None:
    """The comparison of two deployments' answers; None where they were asked different things. A
    loss is claimed at 95% over so many `comparisons` together.
    """
    if mine.asked != other.asked:
        return None
    error = ERROR / comparisons
    rows = list(zip(*mine.passes, *other.passes, strict=True))
    distinct = mine.distinct or len(rows)  # a prompt that comes again is no other prompt
    whole = ((number % distinct, _all_answered(row)) for number, row in enumerate(rows))
    groups = by_key((prompt, row) for prompt, row in whole if row is not None)
    if len(groups) < 2:
        return None
    first, again = len(mine.passes), len(mine.passes) + 1
    alike = [
        [pair for row in rows for pair in ((row[0], row[first]), (row[1], row[again]))] for rows in groups.values()
    ]
    own = [[(row[first], row[again]) for row in rows] for rows in groups.values()]
    alike = own if mine is other else alike
    draws = np.random.default_rng(0).multinomial(len(groups), [1 / len(groups)] * len(groups), size=DRAWS)
    (share, drawn, distance), (itself, own_drawn, own_distance) = (
        _compare(np.array([_sums(pairs) for pairs in prompts]), draws) for prompts in (alike, own)
    )
    loss = from_draws(itself.value - share.value, own_drawn - drawn, len(groups), error)
    scores = _scores(list(groups.values()), first, draws, error)
    return Agreement(mine, other, len(groups), share, itself, loss, distance, own_distance, scores)


def _all_answered(row: Sequence[GreedyReply | None]) -> tuple[GreedyReply, ...] | None:
    """The answers to one prompt; None where one is missing."""
    answers = tuple(answer for answer in row if answer is not None)
    return answers if len(answers) == len(row) else None


def _scores(
    groups: Sequence[Sequence[tuple[GreedyReply, ...]]], first: int, draws: Ints, error: float
) -> Scores | None:
    """The scores of the answers to each prompt; the `first` ones are the deployment's. None without
    scores.
    """
    rows = [[[answer.score for answer in row if answer.score is not None] for row in rows] for rows in groups]
    if any(len(scores) < 2 * first for rows_of in rows for scores in rows_of):
        return None
    table = np.array([np.mean(rows_of, axis=0) for rows_of in rows])  # prompts × answers
    mine, reference = table[:, :first].mean(axis=1), table[:, first:].mean(axis=1)
    return Scores(
        _score(mine, draws),
        _score(reference, draws),
        _difference(reference - mine, draws, error),
        _difference(table[:, first] - table[:, first + 1], draws),
    )


def _score(scores: Floats, draws: Ints) -> Estimate:
    """The mean of scores between 0 and 1, by draws; at least as wide as the exact interval for this
    many scores of 0 or 1.
    """
    n, value = len(scores), float(scores.mean())
    return _at_least(from_draws(value, draws @ scores / n, n), lambda level: clopper_pearson(value * n, n, level))


def _difference(differences: Floats, draws: Ints, error: float = ERROR) -> Estimate:
    """The mean of differences between -1 and 1.

    Where few prompts differ, draws know little of the prompts that were not asked. So the falls and
    the rises are each at least as uncertain as exact bounds say, with the other taken as measured.
    """
    n, value = len(differences), float(differences.mean())
    falls, rises = (float(np.maximum(part, 0.0).sum()) for part in (differences, -differences))

    def exact(level: float) -> tuple[float, float]:
        (fewer, more), (less, greater) = (clopper_pearson(part, n, level) for part in (falls, rises))
        return (
            min(fewer - rises / n, falls / n - greater),
            max(more - rises / n, falls / n - less),
        )

    return _at_least(from_draws(value, draws @ differences / n, n, error), exact, error)


def _sums(pairs: Pairs) -> tuple[float, float, float, float]:
    """Means over pairs of answers to one prompt: the number of equal next tokens, the number
    compared, the sum of the log-probability distances of equal tokens, and their number.
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
    """The share with its interval and its draws, and the distance. `sums` has a row per prompt."""
    (same, compared, apart, number), n = sums.sum(axis=0).tolist(), len(sums)
    parts = draws @ sums
    drawn: Floats = parts[:, 0] / parts[:, 1]
    exact = functools.partial(clopper_pearson, same, compared)
    share = _at_least(from_draws(same / compared, drawn, n), exact)
    distance = from_draws(apart / number, parts[:, 2] / np.maximum(parts[:, 3], 1), n) if number else None
    return share, drawn, distance


def _at_least(by_draws: Estimate, exact: Callable[[float], tuple[float, float]], error: float = ERROR) -> Estimate:
    """An estimate with bounds at least as wide as `exact` ones, which are one-sided at the level
    they are asked for.
    """
    (low, high), (lower, upper) = exact(1 - error / 2), exact(1 - error)
    return Estimate(
        by_draws.value,
        min(by_draws.low, low),
        max(by_draws.high, high),
        by_draws.n,
        min(by_draws.lower, lower),
        max(by_draws.upper, upper),
    )


def from_draws(value: float, draws: Floats, n: int, error: float = ERROR) -> Estimate:
    """An estimate of `n` values from bootstrap draws, by their percentiles; unbounded when some
    draw has no value. `error` is the chance that a one-sided bound may fail with, and that the
    interval may.
    """
    if not np.isfinite(draws).all():
        return Estimate.without_interval(value, n)
    low, lower, upper, high = np.quantile(draws, (error / 2, error, 1 - error, 1 - error / 2)).tolist()
    return Estimate(value, low, high, n, lower, upper)
