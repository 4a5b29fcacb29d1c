"""Quality beside a reference: against a slow twin, and on answers whose true losses are known."""

import dataclasses
import math
import random
from typing import Any

import numpy as np
import pytest

from frontier.core.model.points import Estimate
from frontier.extras.verify.agreement import Agreement, compared, from_draws
from frontier.extras.verify.replies import GreedyReplies, GreedyReply

LENGTH = 32


def longer(full: int) -> list[Any]:
    """Draws of a study, beside the few of every run: a part in the gate, all at night."""
    return [
        pytest.param(100, marks=pytest.mark.slow),
        pytest.param(full, marks=[pytest.mark.slow, pytest.mark.nightly]),
    ]


def answer(rng: random.Random, model: random.Random, flips: float, noise: float, shift: float = 0.0) -> GreedyReply:
    """Tokens that are all 0 but for those that differ: for the share `flips` by the model, for
    `noise` by chance.
    """
    tokens = []
    for _ in range(LENGTH):
        u = model.random()
        tokens.append("1" if u < flips else "2" if rng.random() < noise else "0")
    return GreedyReply(" ".join(tokens), " ".join(f"{-0.5 - shift:.4g}" for _ in tokens))


def answers(name: str, seed: int, flips: float, noise: float, prompts: int = 200, shift: float = 0.0) -> GreedyReplies:
    rng = random.Random(f"{name} {seed}")
    passes = tuple(
        tuple(answer(rng, random.Random(f"{seed} {i}"), flips, noise, shift) for i in range(prompts)) for _ in range(2)
    )
    return GreedyReplies(name, "s", 8, "the prompts", passes)


def beside(*both: GreedyReplies) -> Agreement:
    found = compared(both, both[1].deployment, "s", both[0].deployment)
    assert found is not None
    return found


def slow_share(a: GreedyReplies, b: GreedyReplies, pairs: list[tuple[int, int]]) -> float:
    """Token by token."""
    same = differing = 0
    for mine, other in pairs:
        for x, y in zip(a.passes[mine], b.passes[other], strict=True):
            for left, right in zip(x.tokens.split(), y.tokens.split(), strict=True):
                if left != right:
                    differing += 1
                    break
                same += 1
    return same / (same + differing)


def test_it_is_the_share_of_the_same_next_tokens() -> None:
    a, b = answers("a", 1, 0.0, 0.01), answers("b", 1, 0.03, 0.01)
    found = beside(a, b)
    assert slow_share(b, a, [(0, 0), (1, 1)]) == pytest.approx(found.agreement.value)
    assert slow_share(a, a, [(0, 1)]) == pytest.approx(found.itself.value)
    assert found.itself.value - found.agreement.value == pytest.approx(found.loss.value)
    assert (200, 200) == (found.prompts, found.agreement.n)


def test_an_answer_that_ends_earlier_chose_to_end() -> None:
    a = GreedyReplies("a", "s", 1, "p", ((GreedyReply("1 2 3"), GreedyReply("4")),) * 2)
    b = GreedyReplies("b", "s", 1, "p", ((GreedyReply("1 2"), GreedyReply("4")),) * 2)
    assert beside(a, b).agreement.value == 3 / 4
    assert beside(a, b).itself.value == 1.0


def test_what_failed_counts_for_neither_side() -> None:
    a, b = answers("a", 1, 0.0, 0.0, prompts=20), answers("b", 1, 0.1, 0.0, prompts=20)
    lost = dataclasses.replace(b, passes=((None, *b.passes[0][1:]), b.passes[1]))
    assert beside(a, lost).prompts == 19
    rest = [dataclasses.replace(each, passes=tuple(p[1:] for p in each.passes)) for each in (a, b)]
    assert beside(*rest).agreement.value == beside(a, lost).agreement.value


def test_other_prompts_are_not_compared() -> None:
    a, b = answers("a", 1, 0.0, 0.0), answers("b", 1, 0.0, 0.0)
    assert compared([a], "b", "s", "a") is None
    assert compared([a, dataclasses.replace(b, asked="others")], "b", "s", "a") is None
    assert compared([a, b], "b", "another shape", "a") is None
    nothing = dataclasses.replace(b, passes=((None,) * 200,) * 2)
    assert compared([a, nothing], "b", "s", "a") is None


def test_log_probabilities_are_as_far_apart_as_they_are() -> None:
    found = beside(answers("a", 1, 0.0, 0.0), answers("b", 1, 0.02, 0.0, shift=0.25))
    assert found.distance is not None
    assert found.distance.value == pytest.approx(0.25)
    assert found.own_distance is not None
    assert found.own_distance.value == 0.0
    bare = [
        dataclasses.replace(each, passes=tuple(tuple(GreedyReply(x.tokens) for x in p if x) for p in each.passes))
        for each in (found.reference, found.of)
    ]
    assert beside(*bare).distance is None


@pytest.mark.parametrize("seeds", [25, *longer(300)])
def test_a_planted_loss_of_two_points_is_found_and_none_is_invented(seeds: int) -> None:
    """200 prompts of 32 tokens, with a reference that differs from itself; intervals hold the
    truth.
    """
    itself = 0.996**2 + 0.004**2
    found = invented = covered = shares = 0
    for seed in range(seeds):
        reference, same = answers("a", seed, 0.0, 0.004), answers("c", seed, 0.0, 0.004)
        worse, alike = beside(reference, answers("b", seed, 0.02, 0.004)), beside(reference, same)
        found += worse.loss.lower > 0
        invented += alike.loss.lower > 0
        covered += worse.loss.low <= 0.02 * itself <= worse.loss.high
        shares += worse.agreement.low <= 0.98 * itself <= worse.agreement.high
    assert found >= 0.95 * seeds
    assert invented <= 0.06 * seeds + 1
    least = 0.95 - 3 * (0.95 * 0.05 / seeds) ** 0.5  # what chance leaves of 95%
    assert min(covered, shares) >= least * seeds


def test_a_perfect_agreement_is_not_claimed_for_sure() -> None:
    found = beside(answers("a", 1, 0.0, 0.0, prompts=20), answers("b", 1, 0.0, 0.0, prompts=20))
    assert found.agreement.value == 1.0 == found.agreement.high
    assert np.isclose(found.agreement.lower, 0.05 ** (1 / (20 * LENGTH)))  # nothing differed in so many tokens


def scored(
    name: str, seed: int, right: float, *, steady: float = 0.9, prompts: int = 200, distinct: int = 0
) -> GreedyReplies:
    """Answers that are right (1) or wrong (0): each prompt is as hard for all; a pass flips the
    rest of `steady`.
    """
    distinct, passes = distinct or prompts, []
    hard = np.random.default_rng(seed).random(distinct)
    for turn in range(2):
        luck = np.random.default_rng([ord(name), seed, turn]).random(distinct)
        scores = np.where(luck < steady, hard < right, hard >= right).astype(float).tolist()
        passes.append(tuple(GreedyReply("1", score=scores[i % distinct]) for i in range(prompts)))
    return GreedyReplies(name, "s", 8, "the prompts", tuple(passes), distinct if distinct < prompts else 0)


def test_scores_are_means_and_their_loss_is_paired() -> None:
    a, b = scored("a", 1, 0.7), scored("b", 1, 0.6)
    found = beside(a, b).scores
    assert found is not None
    rows = [[answer.score for answer in p if answer and answer.score is not None] for p in (*b.passes, *a.passes)]
    mine, other = (np.mean(rows[:2]), np.mean(rows[2:]))
    assert (found.mine.value, found.reference.value) == (pytest.approx(mine), pytest.approx(other))
    assert found.loss.value == pytest.approx(other - mine)
    assert found.itself.value == pytest.approx(np.mean(rows[2]) - np.mean(rows[3]))
    assert beside(a, b).quality == found.mine
    assert found.loss.low <= found.loss.lower <= found.loss.value <= found.loss.upper <= found.loss.high
    # Paired: what is hard for one is hard for the other, so the loss is known far better than two
    # scores apart.
    assert found.loss.high - found.loss.low < 0.8 * np.hypot(
        found.mine.high - found.mine.low, found.reference.high - found.reference.low
    )


def test_without_a_scorer_there_are_no_scores() -> None:
    a, b = scored("a", 1, 0.7, prompts=20), scored("b", 1, 0.6, prompts=20)
    bare = dataclasses.replace(b, passes=tuple(tuple(GreedyReply(x.tokens) for x in p if x) for p in b.passes))
    assert beside(a, bare).scores is None
    assert beside(a, bare).quality == beside(a, bare).agreement
    assert compared([a, dataclasses.replace(b, asked="another")], "b", "s", "a") is None


def test_no_difference_in_any_prompt_is_not_claimed_for_sure() -> None:
    found = beside(scored("a", 1, 1.0, steady=1.0, prompts=50), scored("b", 1, 1.0, steady=1.0, prompts=50)).scores
    assert found is not None
    assert (found.loss.value, found.mine.high) == (0.0, 1.0)
    assert np.isclose(found.loss.upper, 1 - 0.05 ** (1 / 50))  # fewer than 3 in 50 could differ
    assert np.isclose(found.mine.lower, 0.05 ** (1 / 50))


def test_prompts_that_come_again_are_no_other_prompts() -> None:
    once, again = scored("a", 1, 0.7, prompts=50), scored("a", 1, 0.7, prompts=200, distinct=50)
    other, others = scored("b", 1, 0.6, prompts=50), scored("b", 1, 0.6, prompts=200, distinct=50)
    few, many = beside(once, other), beside(again, others)
    assert few.prompts == many.prompts == 50
    assert few.scores == many.scores
    assert few.agreement.n == many.agreement.n == 50


@pytest.mark.parametrize("seeds", [10, *longer(500)])
@pytest.mark.parametrize(("right", "steady", "lost"), [(0.7, 0.9, 0.08), (0.98, 0.99, 0.02), (0.6, 1.0, 0.0)])
def test_the_interval_of_a_lost_score_holds_the_truth(right: float, steady: float, lost: float, seeds: int) -> None:
    """True loss: the share of prompts that only the reference gets right, less what flips at random
    undo.
    """
    truth = lost * (2 * steady - 1)
    covered = bounded = claimed = 0
    for seed in range(seeds):
        found = beside(scored("a", seed, right), scored("b", seed, right - lost)).scores
        assert found is not None
        covered += found.loss.low <= truth <= found.loss.high
        bounded += found.loss.lower <= truth
        claimed += found.loss.lower > 0
    least = 0.95 - 3 * (0.95 * 0.05 / seeds) ** 0.5
    assert min(covered, bounded) >= least * seeds
    if lost == 0:
        assert claimed <= (0.05 + 3 * (0.95 * 0.05 / seeds) ** 0.5) * seeds
    if lost == 0.08:
        assert claimed >= 0.7 * seeds


def test_an_interval_from_draws_without_a_value_is_unbounded() -> None:
    assert Estimate.without_interval(1.0, 2) == from_draws(1.0, np.array([1.0, math.inf]), 2)
