import doctest
import importlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import frontier
from frontier.client import secrets
from frontier.core.model import errors, text
from frontier.core.model.decisions import Verdict
from frontier.show.view.wording import VERDICT_WORDS
from frontier.store.records import stored

PACKAGE = Path(frontier.__file__).parent
WITH_EXAMPLES = sorted(
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    for path in PACKAGE.rglob("*.py")
    if "    >>> " in path.read_text()
)


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_the_examples_in_docstrings_are_true(module: str) -> None:
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted > 0
    assert found.failed == 0


@given(st.text(max_size=300))
def test_every_cleaning_removes_terminal_escapes_and_direction_overrides(outside: str) -> None:
    hostile = f"\x1b[31m{outside}\u202e\x00"
    for clean in (text.clean, text.clean_name, text.one_line, text.without_controls, stored):
        assert not set(clean(hostile)) & set("\x1b\u202e\x00\r")


@given(st.text(max_size=300), st.integers(min_value=3, max_value=60))
def test_shown_text_is_one_line_and_bounded(outside: str, longest: int) -> None:
    for clean in (text.clean, text.clean_name):
        assert len(clean(outside, longest)) <= longest
        assert "\n" not in clean(outside, longest)


def test_several_lines_keep_what_they_need() -> None:
    assert text.without_controls("a\tb\nc\r\x1b") == "a\tb\nc"


@pytest.mark.parametrize(
    ("word", "hint"),
    [("shpes", "did you mean 'shapes'?"), ("SLA", "did you mean 'sla'?"), ("zzzz", None), ("sla", None), ("", None)],
)
def test_a_suggestion_ignores_case_and_never_repeats_the_word(word: str, hint: str | None) -> None:
    assert text.did_you_mean(word, ("shapes", "sla")) == hint
    assert text.suggestion(word, ("shapes", "sla")) == (hint or "known: shapes, sla")


def test_closest_words_come_in_their_own_spelling_best_first() -> None:
    assert text.closest("fp8-a", ["FP8-B", "fp8-ab", "other"], most=2, cutoff=0.4) == ["fp8-ab", "FP8-B"]
    assert text.suggestion(7, ["a", "b"]) == "known: a, b"


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ([], 5),
        (["meets"], 0),
        (["meets", "marginal"], 4),
        (["unproven", "violates"], 3),
        (["violates", "invalid"], 5),
        (["better", "no worse"], 0),
        (["better", "not resolved"], 4),
        (["worse", "not resolved"], 3),
        ([Verdict.MEETS, Verdict.UNPROVEN], 4),
    ],
)
def test_the_worst_verdict_decides_the_exit_code(verdicts: list[str], code: int) -> None:
    assert errors.exit_code(verdicts) == code


def test_every_sla_verdict_has_an_exit_code_and_words() -> None:
    for verdict in Verdict:
        assert errors.exit_code([verdict]) in errors.ExitCode
    assert set(Verdict) == VERDICT_WORDS.keys()


@pytest.mark.parametrize(
    "line",
    ["budget: {tokens: 1e30}", "tokens: 5", "  max_tokens: 8", "tokenizer: meta/llama", '"tokens": 1_000'],
)
def test_numbers_of_tokens_are_no_secret(line: str) -> None:
    assert line == secrets.masked_line(line)


@pytest.mark.parametrize("key", ["token", "access_token", "access_tokens", "auth-token", "token_1", "session_token"])
def test_tokens_that_open_a_door_are(key: str) -> None:
    assert f"  {key}: ***" == secrets.masked_line(f"  {key}: 1e30")
