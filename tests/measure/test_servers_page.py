"""The page on servers says of each dialect what its record says."""

from pathlib import Path

from frontier.measure.dialects import DIALECTS
from frontier.model import Outcome

PAGE = (Path(__file__).parents[2] / "docs" / "servers.md").read_text(encoding="utf-8")


def test_the_table_of_engines_is_that_of_the_records() -> None:
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| `")]
    told = {row[0].strip("`"): row[1:] for row in rows}
    yes = {True: "yes", False: "no"}
    assert told == {
        name: [
            f"{d.paths['completions']}, {d.paths['chat']}", yes[bool(d.length_fields(1))], yes[d.token_ids],
            yes[d.salted], d.reset or "no", d.metrics,
        ]
        for name, d in DIALECTS.items()
    }  # fmt: skip


def test_every_outcome_is_explained() -> None:
    assert all(f"`{outcome.value}`" in PAGE for outcome in Outcome if outcome is not Outcome.OK)
