"""The fault matrix, README.md beside this file: its counts are those of the tests."""

import re

import pytest

from tests.faults.count_faults import count_faults, faults_made
from tests.kit.places import ROOT

PAGE = ROOT / "tests" / "faults" / "README.md"


def test_every_row_of_the_matrix_names_its_count_and_its_test_files() -> None:
    times, files = count_faults()
    rows = re.findall(
        r"^\| ([^|]+) \| ([\d,]+) \| [^|]+ \| [^|]+ \| `([^|]+)` \|$", PAGE.read_text(), flags=re.MULTILINE
    )
    said = {row.replace("`", ""): (int(often.replace(",", "")), set(where.split("`, `"))) for row, often, where in rows}
    assert said == {row: (often, files[row]) for row, often in times.items()}


def test_times_are_counted_case_by_case() -> None:
    @pytest.mark.fault("a", times=2)
    @pytest.mark.parametrize("x", [1, pytest.param(2, marks=pytest.mark.fault("b", times=5))])
    @pytest.mark.parametrize("y", [1, 2, 3])
    def test_it(x: int, y: int) -> None: ...

    assert [12, 15] == [sum(times for row, times in faults_made(test_it) if row == name) for name in "ab"]  # type: ignore[arg-type]
