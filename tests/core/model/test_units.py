import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontier import fields
from frontier.core.model import units


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("0.5s", 0.5), ("5min", 300.0), ("1h30min", 5400.0), ("250us", 0.00025), (" 2 s ", 2.0)],
)
def test_a_duration_is_read_with_its_unit(text: str, seconds: float) -> None:
    assert units.parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["500", "", "ms", "5 parsecs", "-1s", "1e3s", "nan s", "1s 2"])
def test_a_duration_without_a_known_unit_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        units.parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"), [("16GB", 16e9), ("80GiB", 80 * 2.0**30), ("131kB", 131e3), ("0.5 MB", 5e5), ("7B", 7.0)]
)
def test_a_size_is_read_with_its_unit(text: str, size: float) -> None:
    assert fields.parse_size(text) == pytest.approx(size)


def test_a_bandwidth_is_a_size_per_second() -> None:
    assert fields.parse_bandwidth("4.8TB/s") == pytest.approx(4.8e12)
    for wrong in ("4.8TB", "4.8/s", "TB/s", "4.8TB/min"):
        with pytest.raises(ValueError):
            fields.parse_bandwidth(wrong)


@pytest.mark.parametrize(("text", "share"), [("1%", 0.01), ("0.01", 0.01), ("100%", 1.0), ("0%", 0.0)])
def test_a_share_is_read(text: str, share: float) -> None:
    assert units.parse_share(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["101%", "2", "-1%", "one"])
def test_a_share_outside_0_to_1_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        units.parse_share(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.396, "396 ms"),
        (2.333, "2.33 s"),
        (0.0082, "8.20 ms"),
        (812e-6, "812 µs"),
        (0.0, "0 ms"),
        (math.inf, "∞"),
        (None, "–"),
        (math.nan, "–"),
        (1.0, "1.00 s"),
        (0.9996, "1.00 s"),
        (1234.0, "1,234 s"),
    ],
)
def test_seconds_are_written_in_a_fitting_unit(seconds: float | None, text: str) -> None:
    assert units.format_seconds(seconds) == text


@pytest.mark.parametrize(("number", "text"), [(2850.4, "2,850"), (41.72, "41.7"), (0.125, "0.125"), (0, "0")])
def test_numbers_keep_three_digits(number: float, text: str) -> None:
    assert units.format_number(number) == text


@pytest.mark.parametrize(("seconds", "text"), [(45, "45 s"), (552, "9 min 12 s"), (27600, "7 h 40 min")])
def test_elapsed_time_is_written_in_two_units(seconds: float, text: str) -> None:
    assert units.format_elapsed(seconds) == text


@given(st.floats(min_value=1e-6, max_value=1e4))
def test_what_is_formatted_reads_back_within_its_digits(seconds: float) -> None:
    text = units.format_seconds(seconds).replace(",", "")
    assert units.parse_duration(text) == pytest.approx(seconds, rel=6e-3)


@given(st.text(max_size=20))
def test_any_text_parses_or_raises_value_error(text: str) -> None:
    for parse in (units.parse_duration, fields.parse_size, fields.parse_bandwidth, units.parse_share):
        try:
            value = parse(text)
        except ValueError:
            continue
        assert value >= 0


@given(st.floats(min_value=1e-9, max_value=1e7))
def test_the_unit_of_a_duration_is_the_one_it_is_written_in(seconds: float) -> None:
    factor, unit = units.seconds_unit(seconds)
    assert units.format_seconds(seconds) == f"{units.format_number(seconds * factor)} {unit}"


@pytest.mark.parametrize(("number", "text"), [("1.50", "1.5"), ("1.00", "1"), ("500", "500"), ("1,200", "1,200")])
def test_trailing_zeros_go_only_after_a_point(number: str, text: str) -> None:
    assert units.trimmed(number) == text
