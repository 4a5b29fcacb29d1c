"""Dependencies: in ranges, and what the gate says of pip-audit's answer; what was not audited is
never called clean."""

import runpy
import tomllib

from tests.kit.golden import assert_golden_row
from tests.kit.places import ROOT

told = runpy.run_path(str(ROOT / ".ci" / "advisories.py"))["told"]

CLEAN = {"name": "numpy", "version": "2.4.6", "vulns": []}
BAD = {"name": "jinja2", "version": "3.1.3", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3.1.4"]}]}
UNKNOWN = [
    {"name": name, "skip_reason": f"Dependency not found on PyPI and could not be audited: {name} (1)"} for name in "ab"
]


def test_an_advisory_fails_and_names_the_release_without_it() -> None:
    text, code = told({"dependencies": [CLEAN, BAD]})
    assert code == 1
    assert_golden_row("messages", text)


def test_what_could_not_be_audited_is_reported_with_its_reason() -> None:
    for part, dependencies in (("some", [CLEAN, *UNKNOWN]), ("none", UNKNOWN)):
        text, code = told({"dependencies": dependencies})
        assert code == 0
        assert_golden_row("messages", text, part)


def test_every_dependency_of_a_user_is_held_in_a_range() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert [] == [d for d in project["dependencies"] if ">=" not in d or ",<" not in d]
    optional = {d for name, group in project["optional-dependencies"].items() if name != "test" for d in group}
    assert {"pyarrow>=15"} == {d for d in optional if ">=" not in d or ",<" not in d}
