"""Situations of public reports, each held against what may, must and must not be said of it:
some in the gate, all at night."""

import pytest

from tests.cases.comparer import Case, compare
from tests.cases.situation import Situation
from tests.cases.table import CASES, LISTED

GATE = [case for case in CASES.values() if case.gate]
NIGHT = [case for case in CASES.values() if not case.gate]


def hold(case: Case) -> None:
    result = compare(case)
    if result.state == "busy":
        pytest.skip(f"this machine was too busy to measure on: {', '.join(result.missing)}")
    assert (result.wrong, result.missing) == ((), ()), result.words


@pytest.mark.process
@pytest.mark.parametrize("case", GATE, ids=lambda case: case.name)
def test_a_case_of_the_gate(case: Case) -> None:
    hold(case)


@pytest.mark.nightly
@pytest.mark.timeout(400)
@pytest.mark.parametrize("case", NIGHT, ids=lambda case: case.name)
def test_a_case_of_the_night(case: Case) -> None:
    hold(case)


def test_no_two_cases_share_a_name() -> None:
    assert len(CASES) == len(LISTED)


def test_every_case_names_the_reports_it_was_built_from() -> None:
    situations = {name: case.situation() for name, case in CASES.items()}
    unnamed = [name for name, one in situations.items() if type(one) is not Situation and not one.reports]
    assert unnamed == []
