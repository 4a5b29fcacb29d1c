"""The pages on servers and on flags say what the code says."""

import re
from pathlib import Path

from frontier.client.engines import ENGINES
from frontier.core.model.points import FLAG_WORDS
from frontier.core.model.trials import Outcome
from frontier.hardware import above_roofline
from tests.kit.places import ROOT

SERVERS = (ROOT / "docs" / "servers.md").read_text(encoding="utf-8")


def test_the_table_of_engines_is_that_of_the_records() -> None:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in SERVERS.splitlines() if line.startswith("| `")
    ]
    told = {row[0].strip("`"): row[1:] for row in rows}
    yes = {True: "yes", False: "no"}
    assert told == {
        name: [
            f"{d.paths['completions']}, {d.paths['chat']}",
            yes[bool(d.length_fields(1))],
            yes[d.token_ids],
            yes[d.salted],
            d.metrics,
        ]
        for name, d in ENGINES.items()
    }


def test_every_outcome_is_explained() -> None:
    assert all(f"`{outcome.value}`" in SERVERS for outcome in Outcome if outcome is not Outcome.OK)


def test_every_flag_has_its_row_with_the_limit_of_the_code() -> None:
    from frontier.core.flags import cache_flags, flags, load_flags, stream_flags

    page = (ROOT / "docs" / "flags.md").read_text(encoding="utf-8")
    source = "".join(Path(module.__file__).read_text(encoding="utf-8") for module in (load_flags, cache_flags, flags))
    named = set(re.findall(r'Flag\(\s*"([a-z_]+)"', source)) | {"under_concurrency", "over_concurrency"}
    assert len(named) > 18
    assert sorted(name for name in named if f"`{name}`" not in page) == []
    shares = {
        "errors": load_flags.ERRORS,
        "short_output": flags.SHORT_OUTPUT,
        "wrong_input_length": flags.INPUT_OFF,
        "cache_contaminated": cache_flags.CACHED,
        "token_mismatch": stream_flags.MISCOUNTED,
        "uncounted": flags.UNCOUNTED,
        "littles_law": load_flags.OCCUPANCY,
        "non_stationary": load_flags.DRIFT,
        "client_bound": load_flags.CLIENT_CPU,
        "faster_than_light": above_roofline.ABOVE_ROOFLINE,
    }
    for name, limit in shares.items():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{name}`"))
        assert f"{limit * 100:g}%" in row, row


def test_every_flag_has_the_words_that_the_page_has() -> None:
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "frontier").rglob("*.py")]
    raised = {name for text in sources for name in re.findall(r'\bFlag\(\s*"([a-z_]+)"', text)}
    assert len(raised) > 25
    assert raised - FLAG_WORDS.keys() == set()
    page = (ROOT / "docs" / "flags.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([a-z_]+)` ([^|]+?) \|", page, flags=re.MULTILINE))
    assert rows == {name: FLAG_WORDS[name] for name in rows}
    assert len(rows) > 25
