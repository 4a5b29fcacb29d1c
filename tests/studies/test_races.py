"""Races of server settings on servers of known truth: how often a gain is claimed, and rightly."""

from dataclasses import replace

import pytest

from benchmarks.races import FAMILIES, NO_GAIN, Outcome, Racing, drawn, raced, table, true_best
from frontier.core.model.errors import ExitCode
from frontier.core.model.loads import NO_LOAD
from frontier.core.model.trials import Phase
from frontier.core.stats import intervals
from frontier.extras.tune.gain import SPENT, WORTH
from frontier.extras.tune.tune_text import answer_text, chosen_of, exit_code, noticed


def surely_below(hits: int, of: int, share: float) -> bool:
    """Whether a share is below another, at 95%."""
    return intervals.clopper_pearson(hits, of)[1] < share


@pytest.fixture(scope="module", params=[15, pytest.param(150, marks=pytest.mark.nightly)])
def results(request: pytest.FixtureRequest) -> list[Outcome]:
    return [raced(number) for number in range(request.param)]


CLAIMED, NEAR_THE_BEST = 0.8, 0.9


@pytest.mark.slow
@pytest.mark.timeout(3100)
def test_no_requirement_of_a_race_is_surely_missed(results: list[Outcome]) -> None:
    print(table(results))
    none = [r for r in results if r.family.startswith(NO_GAIN)]
    assert not surely_below(sum(not (r.claimed and r.truth <= 1) for r in none), len(none), 0.95)
    known = [r for r in results if r.low is not None and r.high is not None]
    held = sum(r.low <= r.truth <= r.high for r in known if r.low is not None and r.high is not None)
    assert not surely_below(held, len(known), 0.93)
    said = [r.best <= r.noticed for r in results if r.noticed is not None]
    assert not surely_below(sum(said), len(said), 0.93)
    steady = [r for r in results if r.family in FAMILIES[5:8]]
    assert not surely_below(sum(r.claimed for r in steady), len(steady), CLAIMED)
    alike = [r for r in results if r.family not in FAMILIES[8:10]]  # starts that differ by over 4% decide little
    assert not surely_below(sum(r.chosen >= 0.97 * r.best for r in alike), len(alike), NEAR_THE_BEST)


def test_a_race_is_the_same_by_its_number_and_has_a_family_in_turn() -> None:
    assert [drawn(number).family for number in range(len(FAMILIES))] == list(FAMILIES)
    one, other = drawn(6), drawn(6)
    assert (one.spread, one.start, [s.law for s in one.servers]) == (
        other.spread,
        other.start,
        [s.law for s in other.servers],
    )
    assert true_best(one.servers[1]) > 1.1 * true_best(one.servers[0])


def test_the_pairs_of_a_race_were_begun_after_both_loads_were_found() -> None:
    race = Racing(5).run()
    assert race.final is not None
    assert race.final.sides is not None
    assert race.gain is not None
    fixed = max(side.fixed for side in race.final.sides)
    assert race.gain.pairs <= min(sum(number > fixed for number in side.starts) for side in race.final.sides)
    assert any(number <= fixed for side in race.final.sides for number in side.starts), "those do not count"


def test_a_variant_that_quick_looks_put_second_meets_the_baseline_all_the_same() -> None:
    race = Racing(31).run()
    looks = [
        replace(r, history=[(t, s) for t, s in r.history if r.starts[t.key] < min(r.final_starts)])
        for r in (race.baseline, race.finalist)
        if r is not None
    ]
    assert looks[0].reach(0.0).value > looks[1].reach(0.0).value
    assert race.gain is not None
    assert race.gain.pairs >= min(SPENT)
    assert race.gain.ratio.low < 1 < noticed(race)  # type: ignore[operator]


def test_a_variant_that_alone_is_proven_is_what_to_run_although_its_gain_is_not_known() -> None:
    race = Racing(4).run()
    assert race.gain is None
    assert exit_code(race) is ExitCode.NOT_PROVEN
    assert (race.baseline.proven, chosen_of(race)) == (None, race.finalist)
    assert race.finalist is not None
    assert (race.finalist.proven or NO_LOAD).label in answer_text(race)
    assert chosen_of(replace(race, runners=(replace(race.baseline, gone="was lost"), *race.runners[1:]))) is None


def test_a_variant_that_is_surely_no_worse_is_what_to_run_although_no_gain_is_shown() -> None:
    race = Racing(52).run()
    assert race.gain is not None
    assert (race.gain.better, race.gain.no_worse) == (False, True)
    assert exit_code(race) is ExitCode.NO
    assert chosen_of(race) is race.finalist


def test_a_second_variant_has_a_final_where_the_first_gave_no_more() -> None:
    race = Racing(58).run()
    first, second = race.finals
    assert first.gain is not None
    assert first.gain.ratio.value < 1 + WORTH
    assert (first.is_lost, race.final) == (True, second)
    assert exit_code(race) is ExitCode.YES
    assert min(first.other.final_starts) < min(second.other.final_starts)
    assert race.may_be_better(race.baseline) is None, "both were compared with it"


def test_a_higher_load_of_the_winner_is_proven_where_the_pairs_could_not_show_its_gain() -> None:
    race = Racing(14).run()
    assert race.gain is not None
    assert race.finalist is not None
    assert race.gain.better
    raising = race.finalist.raising
    assert {trial.load for trial in raising} == {race.finalist.proven}
    before = [t.load for t, _ in race.finalist.history if t.phase is Phase.PROVE and t not in raising]
    assert before[-1] < raising[0].load
    assert not race.baseline.raising, "what the baseline may give is an upper bound in any case"
