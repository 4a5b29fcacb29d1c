"""What a reader feels: first visible token, second token, smooth text; against a slow twin that
plays raw stamps."""

import json
import math
import random
from dataclasses import dataclass, replace

import numpy as np
import pytest

from frontier import uncertainty
from frontier.client.engines import ENGINES
from frontier.client.engines.request import NO_REQUEST
from frontier.client.http.exchange import Exchange
from frontier.client.http.parse import parse_all, to_record
from frontier.config import parse_sla
from frontier.core.claim.verdict import judge
from frontier.core.estimates.estimate import estimate, point
from frontier.core.estimates.widening import widening
from frontier.core.model.decisions import Verdict
from frontier.core.model.loads import CappedRate, Concurrency, Load
from frontier.core.model.metrics import READING_SPEED, metric
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Measurement, Outcome, Phase, Record, Trial, Window
from frontier.core.stats import intervals
from frontier.core.window.from_records import window_data
from frontier.core.window.window import WindowData
from frontier.store.records import decode_record, encode_record
from tests.kit.made import sample

KINDS = {
    "role": {"role": "assistant", "content": ""},
    "thought": {"reasoning_content": " so several tokens of a thought may come at once"},
    "blank": {"content": "\n"},
    "text": {"content": " words of three tokens each, as merged chunks have them in English"},
}
NO_TOKEN = ("role",)


@dataclass(frozen=True)
class Streamed:
    """The raw stamps of an answer, as they were read from the socket: (seconds, kind), and the
    server's own count.
    """

    sent: float
    events: tuple[tuple[float, str], ...]
    counted: int | None


def streamed(rng: random.Random) -> Streamed:
    """Thoughts, blanks and text at uneven times, some in one read."""
    sent = rng.uniform(0, 50)
    now, events = sent + rng.uniform(0.01, 1), []
    kinds = ["role"] * rng.randrange(2) + ["thought"] * rng.randrange(4) + ["blank"] * rng.randrange(2)
    kinds += [rng.choice(("text", "text", "blank")) for _ in range(rng.randrange(1, 30))]
    for kind in kinds:
        events.append((now, kind))
        now += rng.choice((0.0, 0.004, 0.03, 0.2, 2.5)) * rng.uniform(0.9, 1.1)
    tokens = sum(kind not in NO_TOKEN for _, kind in events)
    return Streamed(sent, tuple(events), rng.choice((None, tokens, 3 * tokens)))


def recorded(answer: Streamed, index: int) -> Record:
    """What the client makes of it, as read back from a file."""
    exchange = Exchange(answer.sent)
    exchange.request, exchange.status = replace(NO_REQUEST, index=index), 200
    exchange.headers = {"content-type": "text/event-stream"}
    for at, kind in answer.events:
        exchange.reads.append(_sse({"choices": [{"delta": KINDS[kind], "finish_reason": None}]}))
        exchange.stamps.append(at)
    last: dict[str, object] = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
    if answer.counted is not None:
        last["usage"] = {"prompt_tokens": 9, "completion_tokens": answer.counted}
    exchange.reads += [_sse(last), b"data: [DONE]\n\n"]
    exchange.stamps += [answer.events[-1][0]] * 2
    exchange.end = answer.events[-1][0]
    return decode_record(encode_record(to_record(parse_all(exchange, ENGINES["openai"], "chat"), 0.0)))


def _sse(event: object) -> bytes:
    return b"data: " + json.dumps(event).encode() + b"\n\n"


def runs_dry(answer: Streamed, speed: float) -> bool:
    """Play it: text fills a buffer as it comes, the reader empties it from the first visible token
    on.
    """
    tokens = [(at, kind) for at, kind in answer.events if kind not in NO_TOKEN]
    each = (answer.counted or len(tokens)) / len(tokens)
    begins = next((at for at, kind in tokens if kind == "text"), None)
    if begins is None:
        return True
    buffer, now = 0.0, begins
    for at, _ in tokens:
        if at < begins - 1e-9:
            continue
        buffer -= speed * (at - now)
        if buffer < -1e-9:
            return True
        buffer, now = buffer + each, at
    return False


ONE = Concurrency(1)


def windowed(records: list[Record], load: Load = ONE) -> WindowData:
    trial = Trial("a", Shape.of(9, 20), load, 1, Phase.GRID, 100, 1, 0.0, 0.0, 600.0, "f")
    window = Window(0.0, max(r.sent for r in records))
    return window_data(Measurement(trial, 1000.0, window, "requests"), records)


@pytest.mark.parametrize("seed", range(20))
def test_it_is_what_the_raw_stamps_say(seed: int) -> None:
    rng = random.Random(seed)
    answers = sorted((streamed(rng) for _ in range(60)), key=lambda answer: answer.sent)
    window = windowed([recorded(answer, i) for i, answer in enumerate(answers)])
    assert len(answers) == window.n
    for i, answer in enumerate(answers):
        tokens = [(at, kind) for at, kind in answer.events if kind not in NO_TOKEN]
        visible = next((at - answer.sent for at, kind in tokens if kind == "text"), math.inf)
        assert visible == pytest.approx(window.visible[i], abs=3e-6)
        if len(tokens) > 1:
            assert tokens[1][0] - answer.sent == pytest.approx(window.second[i], abs=3e-6)
        elif answer.counted == 3:  # all three tokens in one event
            assert tokens[0][0] - answer.sent == pytest.approx(window.second[i], abs=3e-6)
        else:
            assert math.isnan(window.second[i])
    for speed in (0.3, READING_SPEED, 30.0, 200.0):
        assert [not runs_dry(answer, speed) for answer in answers] == window.stays_ahead(speed).tolist()


def answers_of(n: int, slow: float, seed: int = 1) -> list[Record]:
    """Answers of 20 tokens of which a share `slow` stops for four seconds in the middle."""
    rng, sent = random.Random(seed), 0.0
    made: list[Record] = []
    for i in range(n):
        gaps = [20_000] * 19
        gaps[10] = 4_000_000 if rng.random() < slow else gaps[10]
        first = sent + rng.uniform(0.1, 0.2)
        last = first + sum(gaps) / 1e6
        made.append(
            Record(
                i,
                0,
                sent,
                Outcome.OK,
                last,
                9,
                20,
                first=first,
                visible=first + 0.04,
                last=last,
                prompt_tokens=9,
                completion_tokens=20,
                events=20,
                reads=20,
                text_chars=90,
                text_bytes=90,
                gaps=tuple(gaps),
            )
        )
        sent = last
    return made


def test_each_can_be_limited_and_is_judged_by_its_bound() -> None:
    window = windowed(answers_of(2500, 0.02))
    limits = parse_sla("p95_visible<=300ms, p95_second<=250ms, smooth>=95%")
    found = point(window, limits=limits)
    assert judge(found, limits).verdict is Verdict.MEETS
    assert judge(found, parse_sla("smooth>=99%")).verdict is Verdict.VIOLATES
    smooth = found.metrics["smooth"]
    hits = int((window.pace >= READING_SPEED).sum())
    low, _ = intervals.clopper_pearson(hits, window.n)
    assert hits / window.n == smooth.value
    assert low - 0.003 <= smooth.lower <= smooth.value, "the bound that a claim rests on is the lower one"
    for name, of in (("p95_visible", window.visible), ("p95_second", window.second)):
        bound = found.metrics[name]
        assert np.sort(of)[intervals.rank(0.95, len(of)) - 1] == bound.value < bound.upper < bound.value * 1.02
    drawn = uncertainty.replicates({1: window}, ("smooth", "p95_visible"))
    assert (1,) == drawn.loads
    assert abs(float(drawn.gain.mean()) - smooth.value) < 0.005


def test_too_few_answers_prove_no_share() -> None:
    few = estimate(windowed(answers_of(20, 0.0)), "smooth")
    assert few is not None
    assert (1.0, -math.inf, 30) == (few.value, few.lower, few.need)


def test_a_failure_is_neither_seen_nor_smooth_and_one_that_shows_nothing_never_came() -> None:
    good = answers_of(40, 0.0)
    failed = replace(good[0], outcome=Outcome.TIMEOUT)
    silent = replace(good[1], visible=None)
    window = windowed([failed, silent, *good[2:]])
    assert [math.inf, math.inf] == window.visible[:2].tolist()
    assert [math.inf, True] == [window.second[0], math.isfinite(window.second[1])]
    assert [0.0, 0.0] == window.pace[:2].tolist()
    smooth = estimate(window, "smooth")
    assert smooth is not None
    assert 38 / 40 == smooth.value


def test_what_was_not_recorded_is_not_known() -> None:
    records = [replace(r, visible=None, gaps=(), text_chars=0, text_bytes=0) for r in answers_of(40, 0.0)]
    for window in (windowed(records), sample(4, np.full(40, 0.1), np.full(40, 0.01))):
        assert [None] * 3 == [estimate(window, name) for name in ("p50_visible", "p50_second", "smooth")]
        limits = parse_sla("p99_visible<=1s")
        assert "goodput" not in point(window, limits=limits).metrics
        assert judge(point(window, limits=limits), limits).verdict is not Verdict.MEETS


def test_of_an_event_with_several_tokens_the_second_may_have_come_with_the_first() -> None:
    several = [replace(r, completion_tokens=60) for r in answers_of(2000, 0.0)]
    one, many = (estimate(windowed(records), "p95_second") for records in (answers_of(2000, 0.0), several))
    ttft = estimate(windowed(several), "p95_ttft")
    assert one is not None
    assert many is not None
    assert ttft is not None
    assert (one.value, one.upper) == (many.value, many.upper)
    assert ttft.lower == many.lower < one.lower


def test_in_open_loop_a_late_send_counts() -> None:
    late = [replace(r, scheduled=r.sent - 0.5) for r in answers_of(40, 0.0)[3:]]
    window = windowed(late, CappedRate.at(10.0, 1))
    assert len(late) == 37
    assert window.visible == pytest.approx([r.visible - r.scheduled for r in late])  # type: ignore[operator]


def test_a_server_that_wanders_widens_them_too() -> None:
    records = []
    for i, r in enumerate(answers_of(2000, 0.0)):
        shift = 0.4 * (1 + math.sin(i / 250))
        later = {name: getattr(r, name) + shift for name in ("first", "visible", "last", "end")}
        records.append(replace(r, **later))
    window = windowed(records)
    wander = widening(window).wander
    assert {"ttft", "visible", "second"} <= set(wander)
    assert wander["ttft"].independent_periods == wander["visible"].independent_periods


def test_their_names_are_found() -> None:
    assert "p99 first visible token" == metric("p99_visible").label
    for wrong, right in (("visible", "p99_visible"), ("p99_visble", "p99_visible"), ("second_p95", "p95_second")):
        with pytest.raises(ValueError, match=right):
            metric(wrong)
