"""A test lies where its module lies: `tests/core/claim/test_solver.py` for
`frontier/core/claim/solver.py`."""

from tests.conftest import SECONDS_EACH
from tests.kit.places import ROOT, TESTS

APART = ("adversaries", "cases", "faults", "house", "journeys", "real_engines", "studies")
"""Folders of tests of the whole: servers that lie, situations of reports, breaks, the house itself,
a user's ways through it, real engines, and studies of how often it is right."""


def test_each_file_of_tests_names_a_module_or_its_room() -> None:
    astray, known = [], 0
    for path in sorted(TESTS.rglob("test_*.py")):
        room = path.relative_to(TESTS).parent
        if room.parts and room.parts[0] in APART:
            continue
        home = ROOT / "frontier" / room
        names = [module.stem for module in home.glob("*.py") if module.stem != "__init__"] if home.is_dir() else []
        topic = path.stem.removeprefix("test_")
        known += 1
        if not any(topic == name or topic.startswith(f"{name}_") for name in (*names, home.name)):
            astray.append(str(path.relative_to(TESTS)))
    assert known > 150
    assert astray == []


def test_files_of_slow_tests_are_there() -> None:
    """A file that was moved or renamed would put seconds a test into the fast lane."""
    assert [name for name in SECONDS_EACH if not (TESTS / name).exists()] == []
