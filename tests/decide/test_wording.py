"""Values, limits, flags and trials in words."""

import pytest

from frontier.decide.wording import trial_words


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("default-short-c0064-scan-r1", "short c=64"),
        ("fp8-1024x256-c0008-grid-r2", "fp8-1024x256 c=8, repeat 2"),
        ("default-chat80_rag20_-7a0b5ab7-c0004-scan-r1", "chat80 rag20 c=4"),
        ("default-short-q2.5-prove-r3", "short 2.5 req/s, repeat 3"),
        ("another form", "another form"),
    ],
)
def test_a_trials_key_is_said_in_words(key: str, words: str) -> None:
    assert trial_words(key) == words
