"""How long a server asks to be left alone: seconds, milliseconds or a date."""

from email.utils import formatdate

import pytest

from frontier.client.http.exchange import Exchange
from frontier.client.http.retry_after import retry_after

DATE = "Sun, 29 Nov 2026 12:00:{:02} GMT"


def waits(**headers: str) -> float | None:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return retry_after(Exchange(0.0, [0.1], [b""], 503, named))


def test_seconds_and_milliseconds_are_read_and_the_more_exact_ones_count() -> None:
    assert (waits(retry_after="7"), waits(retry_after="1.5")) == (7.0, 1.5)
    assert waits(retry_after="1", retry_after_ms="800") == 0.8


def test_a_date_is_held_against_the_date_of_the_answer() -> None:
    assert waits(retry_after=DATE.format(30), date=DATE.format(10)) == 20.0
    assert waits(retry_after="Sunday, 29-Nov-26 12:00:30 GMT", date=DATE.format(10)) == 20.0
    assert waits(retry_after=DATE.format(10), date=DATE.format(30)) == 0.0


def test_a_date_without_one_beside_it_is_no_wait_as_clocks_differ() -> None:
    assert waits(retry_after=formatdate(1_800_000_000, usegmt=True)) is None


@pytest.mark.parametrize("text", ["1e300", "9" * 400, "-5", "nan", "soon", "Mon, 99 Jan 2024 00:00:00 GMT"])
def test_a_wait_that_cannot_be_is_none(text: str) -> None:
    assert waits(retry_after=text) is None
