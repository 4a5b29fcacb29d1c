"""Words: limits, intervals, cleaning, flags."""

import dataclasses
import math
import re
import string

import pytest

from frontier.cli.status import trial_words
from frontier.config.config_file import load_config_file
from frontier.core.claim.solver import solve_all
from frontier.core.model.decisions import Cause, EndedEarly, Limit, Reason
from frontier.core.model.loads import Concurrency, Rate
from frontier.core.model.points import Estimate, Flag, Point
from frontier.core.model.shapes import Shape
from frontier.core.model.text import clean
from frontier.show.view.explain import SENTENCES, sentence, words_of
from frontier.show.view.figures import figure_row, figures
from frontier.show.view.wording import (
    WIDENS,
    beside_limit,
    flag_kinds,
    flag_words,
    has_no_bound,
    interval_text,
    limit_value_text,
    load_words,
    told,
    value_text,
)
from tests.kit.golden import assert_golden_row
from tests.kit.places import ROOT
from tests.kit.toy import toy_point


@pytest.mark.parametrize("cause", Cause)
def test_every_cause_has_a_sentence_of_words_that_there_are(cause: Cause) -> None:
    """A name that no word has would show only when its sentence is made."""
    names = {name for _, name, _, _ in string.Formatter().parse(SENTENCES[cause]) if name is not None}
    assert names <= words_of(Reason(cause)).keys()
    assert sentence(Reason(cause))


def test_a_percentile_that_failures_make_infinite_is_not_called_alike() -> None:
    """Requests that are too much alike have a value; here they failed."""
    limit, infinite = Limit("p95_ttft", 1.0), Estimate(math.inf, 0.4, math.inf, 199)
    reason = Reason(Cause.TOO_FEW, (Concurrency(6),), "p95_ttft", limit=limit, estimate=infinite, need=200)
    given_up = dataclasses.replace(reason, cut=EndedEarly("given_up"))
    finite = dataclasses.replace(given_up, estimate=Estimate(0.5, 0.4, math.inf, 199))
    why = [sentence(one).rpartition(": ")[2] for one in (given_up, finite)]
    close = [sentence(dataclasses.replace(one, cause=Cause.CROSSES)).rpartition(": ")[2] for one in (given_up, finite)]
    assert [why[0] == close[0], why[1] == close[1]] == [True, False]


@pytest.mark.parametrize(
    ("name", "promise", "text"),
    [
        ("p99_ttft", 0.5, "p99 TTFT ≤ 500 ms"),
        ("p99_tpot", 0.03, "p99 TPOT ≤ 30 ms"),
        ("p99_e2e", 1.5, "p99 E2E ≤ 1.5 s"),
        ("error_rate", 0.01, "error rate ≤ 1%"),
        ("p50_interactivity", 20.0, "p50 interactivity ≥ 20 tok/s/user"),
    ],
)
def test_limits_read_as_they_were_written(name: str, promise: float, text: str) -> None:
    assert text == str(Limit(name, promise))


def test_an_interval_has_the_unit_of_its_value() -> None:
    assert "[373, 438]" == interval_text("p99_ttft", Estimate(0.396, 0.373, 0.438, 900))
    assert "[0.963, 1.14]" == interval_text("p99_ttft", Estimate(1.04, 0.963, 1.14, 900))
    assert "[704, 721]" == interval_text("output_throughput", Estimate(2850, 2816, 2884, 900), 4)
    assert "≥ 373" == interval_text("p99_ttft", Estimate(0.396, 0.373, math.inf, 100))
    assert "" == interval_text("p99_ttft", Estimate.without_interval(0.396, 100))


def test_each_of_several_values_of_a_flag_stands_beside_its_own_limit() -> None:
    flag = Flag("client_bound", "event loop late (p99) 31 ms; sends late (p99) 8.73 ms", "5.00 ms, 7.83 ms", "")
    assert_golden_row("messages", flag_words(flag))


@pytest.mark.parametrize(
    ("busy", "fewer", "left"),
    [
        (None, False, ["under_concurrency"]),
        (False, False, ["client_bound"]),
        (False, True, ["client_bound", "under_concurrency"]),
        (True, True, ["client_bound"]),
    ],
    ids=["the server's", "of a slow client", "excludes by itself", "of a busy client"],
)
def test_one_cause_has_one_flag(busy: bool | None, fewer: bool, left: list[str]) -> None:
    """Fewer requests in flight for a slow client say nothing of the server."""
    flags = [Flag("client_bound", "", "", "", fatal=busy)] if busy is not None else []
    assert left == [flag.name for flag in told([*flags, Flag("under_concurrency", "", "", "", fatal=fewer)])]


def test_what_is_not_known_is_a_dash() -> None:
    assert "–" == value_text("p99_ttft", None)
    assert "–" == value_text("output_throughput", math.nan)


def test_cleaning_removes_what_a_terminal_or_a_page_could_obey() -> None:
    assert "ab c d" == clean("a\x1bb\r\nc\td\x00\u202e\u200b\ud800")
    assert 160 == len(clean("x" * 1000))
    assert "naïve 漢字 ≤" == clean("naïve 漢字 ≤")


def test_a_warning_says_that_it_widens_the_bounds() -> None:
    table = re.findall(r"^\| (`.*?) \| ([^|]*) \|", (ROOT / "docs" / "flags.md").read_text(), re.MULTILINE)
    assert WIDENS == {name for names, what in table if "widens" in what for name in re.findall(r"`(\w+)`", names)}
    unsteady = Flag("non_stationary", "TPOT and E2E varied by ±18% over time", "±0.5%", "look for throttling")
    fatal, warning = flag_words(unsteady), flag_words(dataclasses.replace(unsteady, fatal=False))
    assert warning.startswith(fatal)
    assert len(warning) > len(fatal)
    assert_golden_row("flags", warning)


def test_many_settings_with_few_figures_are_listed_under_each() -> None:
    few = [
        toy_point(c, flags=(Flag("few", "401 requests" if c == 8 else "400 requests", "1000", "ask for more"),))
        for c in (1, 2, 4, 8, 16, 32)
    ]
    (kind,) = flag_kinds(few)

    assert_golden_row("flags", kind.text())


def test_of_many_settings_the_first_are_listed_and_a_shared_figure_once() -> None:
    (kind,) = flag_kinds(toy_point(c, flags=(Flag("few", f"{c}%", "", ""),)) for c in (1, 2, 4, 8))
    assert "few: c=1 1%, c=2 2% and 2 more" == kind.text(2)
    assert "few: c=1 1%, c=2 2%, c=4 4%, c=8 8%" == kind.text()
    (kind,) = flag_kinds(toy_point(c, flags=(Flag("few", "7%", "", ""),)) for c in (1, 2, 4, 8))
    assert "few 7%: c=1, c=2, c=4, c=8" == kind.text()
    assert "few 7%: c=1, c=2 and 2 more" == kind.text(2)


def test_a_limit_that_depends_on_the_setting_stands_beside_each_figure() -> None:
    few = [
        toy_point(c, flags=(Flag("few", f"{n} requests", least, "ask for more"),))
        for c, n, least in ((42, 400, "1000"), (64, 1200, "1280"))
    ]
    (kind,) = flag_kinds(few)

    assert_golden_row("flags", kind.text())


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("default-short-c0064-scan-r1", "short c=64"),
        ("fp8-1024x256-c0008-grid-r1", "fp8 1024/256 c=8"),
        ("default-chat80_rag20_-7a0b5ab7-c0004-scan-r1", "chat80 rag20 c=4"),
        ("default-short-q2.5-prove-r3", "proof of short 2.5/s, repeat 3"),
        ("another form", "another form"),
    ],
)
def test_a_trials_key_is_said_in_words(key: str, words: str) -> None:
    assert trial_words(key) == words


def test_a_bound_stands_where_an_interval_has_no_end() -> None:
    """What has a bound in one table has one in every other."""
    proven = Estimate(0.0132, 0.0131, math.inf, 300, 0.013, 0.0137, confidence=0.9875)
    for estimate, level in ((proven, "98%"), (dataclasses.replace(proven, confidence=0.95), "95%")):
        text = interval_text("p99_tpot", estimate)
        assert (True, True, False) == ("13.7" in text, level in text, has_no_bound("p99_tpot", estimate, limited=True))
    unbounded = dataclasses.replace(proven, upper=math.inf)
    ended = dataclasses.replace(unbounded, high=0.014)
    none = [has_no_bound("p99_tpot", each, limited=limited) for each in (unbounded, ended) for limited in (True, False)]
    assert none == [True, True, True, False], "the interval's end is a bound where none has to decide"


@pytest.mark.parametrize("value", [0.0999, 0.09999, 0.1, 0.100003, 0.1003, 0.13, math.inf])
@pytest.mark.parametrize("promise", [0.1, 1.0, 0.01825])
def test_digits_show_on_which_side_of_a_limit_a_value_lies(value: float, promise: float) -> None:
    limit, value = Limit("p99_ttft", promise), value * promise / 0.1
    shown, at = map(in_seconds, (beside_limit(value, limit), limit_value_text("p99_ttft", promise)))
    side = (value > promise * (1 + 1e-9)) - (value < promise * (1 - 1e-9))
    assert side == (shown > at * (1 + 1e-9)) - (shown < at * (1 - 1e-9))
    assert math.isclose(at, promise, rel_tol=1e-6), "a limit as it was written"


def test_a_share_that_is_more_than_nothing_does_not_read_as_0() -> None:
    for value in (0.0996, 0.09998, 0.0999999):
        (figure,) = figures(solve_all([toy_with(value)], (Limit("p99_ttft", 0.1),))[0])[1:]
        headroom = figure_row(figure, None)[-1]
        assert (True, False) == ("headroom" in headroom, headroom.startswith("0%"))


def in_seconds(text: str) -> float:
    number, _, unit = text.partition(" ")
    return float(number.replace(",", "").replace("∞", "inf")) * (1e-3 if unit == "ms" else 1.0)


def toy_with(value: float) -> Point:
    point = toy_point(8, n=3000)
    return dataclasses.replace(
        point, metrics={**point.metrics, "p99_ttft": Estimate(value, value, value, 3000, value, value)}
    )


def test_the_load_of_sessions_is_their_number() -> None:
    agent = next(shape for shape in load_config_file(ROOT / "configs/sessions.yaml").shapes if shape.has_sessions)
    assert "session" in load_words(Concurrency(64), agent)
    assert load_words(Rate.of(2.5), agent) == "2.5 req/s"
    assert load_words(Concurrency(64), Shape.of(1024, 256)) == "concurrency 64"
