"""Only tokens that were waited for are divided by time: servers whose chunks bring several tokens,
read from their bytes, against the pace that they have.

Provenance: ai-dynamo/aiperf#1279 (stream interval), modelscope/evalscope#721 and #585,
BerriAI/litellm#30208, #38722 and #26102 (answers in one chunk), ARahim3/mlx-dspark#37 (reasoning
beside a count of 0), vercel/ai#12425 and UKGovernmentBEIS/inspect_ai#5528 (reasoning beside).
"""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from frontier.client.engines import ENGINES
from frontier.client.http.exchange import Exchange
from frontier.client.http.parse import AnswerParser, output_tokens, to_record
from frontier.core.claim.verdict import judge
from frontier.core.estimates.estimate import estimate, point
from frontier.core.model.decisions import Limit, Verdict
from frontier.core.model.points import Estimate, Point
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Measurement, Phase, Record, Trial, Window
from frontier.core.window.from_records import window_data
from frontier.core.window.window import WindowData

TTFT, TPOT, REQUESTS, CALLERS = 0.050, 0.020, 240, 6
Delta = dict[str, Any]


def words(k: int) -> Delta:
    return {"content": " word" * k}


def thoughts(k: int) -> Delta:
    return {"reasoning_content": " hmmm" * k}


def tool(k: int) -> Delta:
    return {"content": None, "tool_calls": [{"function": {"name": None, "arguments": "12345" * k}}]}


def wide(k: int) -> Delta:
    return {"content": "漢字" * k}


def with_role(k: int) -> Delta:
    return {"role": "assistant", **words(k)}


@dataclass(frozen=True)
class Answers:
    """Answers of chunks of so many tokens, the last at the pace of all; `first` makes the delta of
    the first chunk, `more` that of each other.

    `running`: each chunk has the usage so far; `ids`: each lists its token ids, and the first has
    no text. `in_one_read`: so many chunks come in the first read. `uncounted`: tokens that the
    usage has beyond those streamed.
    """

    chunks: tuple[int, ...]
    first: Callable[[int], Delta] = words
    more: Callable[[int], Delta] = words
    running: bool = False
    ids: bool = False
    in_one_read: int = 1
    uncounted: int = 0

    @property
    def tokens(self) -> int:
        return sum(self.chunks)


def exchange(answers: Answers, sent: float, tpot: float) -> Exchange:
    """One answer, as it came off a socket. A chunk is sent when its last token is made."""
    made, reads, stamps = 0, [], []
    for i, k in enumerate(answers.chunks):
        made += k
        delta = (answers.more if i else answers.first)(k)
        choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": None}
        if answers.ids:
            choice["token_ids"] = list(range(k))
            choice["delta"] = delta if i else {"content": ""}
        event: dict[str, Any] = {"choices": [choice]}
        if answers.running:
            event["usage"] = {"prompt_tokens": 64, "completion_tokens": made, "total_tokens": 64 + made}
        reads.append(sse(event))
        stamps.append(sent + TTFT + (made - 1) * tpot)
    together = answers.in_one_read
    reads[:together], stamps[:together] = [b"".join(reads[:together])], stamps[together - 1 : together]
    counted = answers.tokens + answers.uncounted
    usage = {"prompt_tokens": 64, "completion_tokens": counted, "total_tokens": 64 + counted}
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}
    done = Exchange(sent)
    done.status, done.headers = 200, {"content-type": "text/event-stream"}
    done.reads = [*reads, sse(end) + sse({"choices": [], "usage": usage}) + b"data: [DONE]\n\n"]
    done.stamps = [*stamps, stamps[-1]]
    done.end = stamps[-1]
    return done


def sse(event: Any) -> bytes:
    return b"data: " + json.dumps(event).encode() + b"\n\n"


def read(done: Exchange) -> Record:
    parser = AnswerParser(done, ENGINES["vllm"], "chat")
    while parser.parse(1000):
        pass
    return replace(to_record(parser, 0.0), asked_isl=64, prompt_tokens=64)


def records(kinds: Sequence[Answers], *, tpot: float = TPOT) -> list[Record]:
    """A closed loop of CALLERS streams, whose answers are of these kinds by turns."""
    ends, made = [0.0] * CALLERS, []
    for i in range(REQUESTS):
        stream = i % CALLERS
        sent = ends[stream] + 0.003 * stream * (i < CALLERS)
        answers = kinds[i // CALLERS % len(kinds)]
        one = read(exchange(answers, sent, tpot))
        ends[stream] = one.end
        made.append(replace(one, index=i, stream=stream, asked_osl=answers.tokens + answers.uncounted))
    return made


def window(made: Sequence[Record]) -> WindowData:
    until = min(record.sent for record in made[-CALLERS:])
    trial = Trial("d", Shape.of(64, 32), CALLERS, 0, Phase.GRID, REQUESTS, 1, 0.0, 0.0, 60.0, "f")
    return window_data(Measurement(trial, 0.0, Window(0.0, until), "requests"), made)


def known(sample: WindowData, name: str) -> Estimate:
    value = estimate(sample, name)
    assert value is not None
    return value


def judged(sample: WindowData, *limits: Limit) -> tuple[Point, Verdict]:
    found = point(sample, limits=limits)
    return found, judge(found, limits).verdict


SPECULATED = (1, *[5] * 6, 1)
SEVERAL = {
    "interval_2": Answers((2,) * 16),
    "interval_4": Answers((4,) * 8),
    "interval_8": Answers((8,) * 4),
    "diffusion": Answers((16,) * 4),
    "first_of_16": Answers((16, *[1] * 16)),
    "all_but_a_few": Answers((29, 1, 1, 1)),
    "role_and_several": Answers((8, *[1] * 24), first=with_role),
    "thoughts_at_once": Answers((24, *[1] * 8), first=thoughts),
    "tool_calls": Answers((12, 12, 12), first=tool, more=tool),
    "wide_characters": Answers((8,) * 4, first=wide, more=wide),
    "running_usage": Answers((8, *[4] * 6), running=True, first=lambda k: words(1)),
    "ids_without_text": Answers((8, *[1] * 24), ids=True),
    "one_read": Answers((1,) * 32, in_one_read=12),
    "several_in_one_read": Answers((4,) * 8, in_one_read=3),
    "speculation": Answers(SPECULATED),
    "a_chunk_a_token": Answers((1,) * 32),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_the_first_chunks_tokens_are_not_divided_by(name: str) -> None:
    sample = window(records([SEVERAL[name]]))
    found = known(sample, "p90_tpot")
    assert found.value == pytest.approx(TPOT, rel=0.01)
    assert found.upper >= TPOT * 0.99
    assert known(sample, "p50_interactivity").value == pytest.approx(1 / TPOT, rel=0.01)
    assert judged(sample, Limit("p90_tpot", 0.3 * TPOT))[1] is Verdict.VIOLATES
    assert judged(sample, Limit("p90_tpot", 0.95 * TPOT))[1] is not Verdict.MEETS
    above, verdict = judged(sample, Limit("p90_tpot", 1.15 * TPOT))
    assert verdict is Verdict.MEETS, above.flags
    assert judged(sample, Limit("p90_tpot", 1.02 * TPOT))[1] is not Verdict.VIOLATES


@pytest.mark.parametrize(("name", "limit"), [("interval_8", 0.85), ("first_of_16", 0.75), ("speculation", 0.97)])
def test_that_a_limit_is_broken_is_proven_though_chunks_are_of_several_tokens(name: str, limit: float) -> None:
    """True are 20 ms for limits of 17, 15 and 19.4."""
    assert judged(window(records([SEVERAL[name]])), Limit("p90_tpot", limit * TPOT))[1] is Verdict.VIOLATES


@pytest.mark.parametrize("first", [1, 8, 16])
def test_words_of_uneven_length_do_not_hide_a_slow_server(first: int) -> None:
    """Text per token as that of one answer in ten is twice that of another."""
    rng = random.Random(first)

    def text(k: int) -> Delta:
        return {"content": "".join(" " + "x" * rng.choice((0, 1, 2, 3, 4, 5, 7, 11)) for _ in range(k))}

    sample = window(records([Answers((first, *[1] * 8, *[4] * 6), first=text, more=text)]))
    assert known(sample, "p50_tpot").value == pytest.approx(TPOT, rel=0.05)
    assert judged(sample, Limit("p90_tpot", 0.9 * TPOT))[1] is not Verdict.MEETS
    assert judged(sample, Limit("p90_tpot", 1.02 * TPOT))[1] is not Verdict.VIOLATES


@pytest.mark.parametrize("first", [8, 16])
def test_a_first_chunk_without_text_may_have_brought_any_number(first: int) -> None:
    made = [replace(record, first_chars=0) for record in records([Answers((first, *[1] * 16))])]
    sample = window(made)
    found = known(sample, "p90_tpot")
    assert found.upper >= TPOT * 0.99
    assert found.lower == pytest.approx(16 * TPOT / (first + 15))


# --- answers that came whole


@pytest.mark.parametrize("chunks", [(32,), (16, 16), (31, 1), (8,)])
@pytest.mark.parametrize("metric", ["p90_tpot", "p50_interactivity", "p90_itl"])
def test_answers_in_a_chunk_or_two_have_no_time_per_token(chunks: tuple[int, ...], metric: str) -> None:
    sample = window(records([Answers(chunks)]))
    limit = Limit(metric, 10.0 if metric == "p50_interactivity" else 1.0)
    held, verdict = judged(sample, limit)
    assert verdict is Verdict.INVALID
    flag = next(flag for flag in held.fatal if flag.name == "buffered_stream")
    assert "E2E" in flag.advice
    free, verdict = judged(sample, Limit("p90_ttft", 60.0), Limit("p90_e2e", 60.0))
    assert verdict is Verdict.MEETS
    assert [False] == [flag.fatal for flag in free.flags if flag.name == "buffered_stream"]


@pytest.mark.parametrize(("whole", "raised"), [(1, False), (3, True)])
def test_it_takes_most_of_the_long_answers(whole: int, raised: bool) -> None:
    kinds = [Answers((32,))] * whole + [Answers((1,) * 32)] * 2
    flags = {flag.name for flag in point(window(records(kinds)), limits=(Limit("p90_tpot", 1.0),)).fatal}
    assert raised is ("buffered_stream" in flags)


def test_short_answers_in_a_chunk_are_not_held_back() -> None:
    flags = {flag.name for flag in point(window(records([Answers((4,)), Answers((1,) * 32)]))).flags}
    assert "buffered_stream" not in flags


def test_a_whole_answer_took_no_longer_per_token_than_all_of_it() -> None:
    """A few whole answers leave a TPOT provable: between 0 and their E2E by their tokens."""
    kinds = [Answers((1,) * 32)] * 7 + [Answers((32,))]
    sample = window(records(kinds))
    assert TPOT < known(sample, "p95_tpot").upper <= (TTFT + 31 * TPOT) / 31 * 1.001
    assert judged(sample, Limit("p90_tpot", 1.02 * TPOT))[1] is not Verdict.MEETS


def test_one_word_and_the_end_of_the_text_have_no_pace() -> None:
    """Two tokens are counted, one is streamed, as of a yes."""
    sample = window(records([Answers((1,), uncounted=1), Answers((1,) * 32)]))
    assert known(sample, "p90_tpot").value == pytest.approx(TPOT, rel=1e-6)
    assert not sample.untimed.any()


# --- records of earlier versions


@pytest.mark.parametrize(("name", "chunks"), [("interval_8", 4), ("first_of_16", 17), ("speculation", 8)])
def test_without_the_first_chunks_text_the_interval_has_what_an_average_chunk_brought(name: str, chunks: int) -> None:
    then = [replace(record, first_chars=None) for record in records([SEVERAL[name]])]
    tokens, span = SEVERAL[name].tokens, then[0].last - then[0].first  # type: ignore[operator]
    found = known(window(then), "p90_tpot")
    assert found.value == pytest.approx(span / (tokens - 1))
    assert found.upper == pytest.approx(span / (tokens - tokens / chunks))
    assert found.lower == pytest.approx(span / (tokens - 1))


@pytest.mark.parametrize("answers", [Answers((1,) * 32), Answers((1,) * 31, uncounted=1)])
def test_where_a_chunk_is_a_token_nothing_changes(answers: Answers) -> None:
    now = records([answers])
    then = [replace(record, first_chars=None, first_tokens=None, most_tokens=None) for record in now]
    for name in ("p50_tpot", "p99_tpot", "mean_tpot", "p90_interactivity", "p99_itl"):
        assert known(window(then), name) == known(window(now), name)
    span = then[0].last - then[0].first  # type: ignore[operator]
    assert window(then).tpot[0] == pytest.approx(span / 31, rel=1e-9)


# --- what a usage means


@pytest.mark.parametrize(
    ("completion", "reasoning", "total", "chunks", "streamed", "counts"),
    [
        (32, 24, 96, 8, False, (8, None)),  # within, and never streamed
        (32, 24, 96, 32, True, (32, None)),  # within, and streamed as such
        (32, 24, 96, 32, False, (32, None)),  # within, and streamed as text
        (8, 24, 96, 8, False, (8, None)),  # beside, and never streamed
        (8, 24, 96, 32, True, (32, None)),  # beside, and streamed
        (8, 24, 96, 32, False, (32, None)),  # beside, and streamed as text
        (0, 16, 80, 16, True, (16, None)),  # nothing but reasoning
        (0, 16, 64, 16, True, (16, None)),  # the total made of the other two
        (0, 16, None, 16, True, (16, None)),
        (0, 16, 80, 32, True, (16, None)),  # held against the chunks: a mismatch
        (64, 24, 999, 10, False, (40, 64)),  # neither: both
        (64, 24, None, 10, True, (64, 88)),
        (88, 148, None, 88, False, (88, None)),  # by the chunks
        (8, 7, None, 8, False, (8, None)),
        (28, 4, 92, 32, True, (32, None)),  # said to be within; the chunks have both
        (0, 0, 64, 16, False, (None, None)),
        (0, None, 64, 16, False, (None, None)),
        (16, None, None, 16, False, (16, None)),
    ],
)
def test_the_total_tells_where_reasoning_stands(
    completion: int,
    reasoning: int | None,
    total: int | None,
    chunks: int,
    streamed: bool,
    counts: tuple[int | None, int | None],
) -> None:
    usage: dict[str, Any] = {"prompt_tokens": 64, "completion_tokens": completion}
    usage |= {"total_tokens": total} if total is not None else {}
    usage |= {"completion_tokens_details": {"reasoning_tokens": reasoning}} if reasoning is not None else {}
    assert counts == output_tokens(usage, chunks, reasoned=streamed)


def test_reasoning_named_beside_the_details_is_read_too() -> None:
    usage = {"prompt_tokens": 64, "completion_tokens": 0, "reasoning_tokens": 16, "total_tokens": 80}
    assert (16, None) == output_tokens(usage, 16, reasoned=True)
    within = {"prompt_tokens": 64, "completion_tokens": 64, "reasoning_tokens": 40, "total_tokens": 128}
    assert (64, None) == output_tokens(within, 8, reasoned=False)


def test_of_two_readings_the_higher_tpot_proves_and_the_lower_refutes() -> None:
    """40 or 64 tokens in ten chunks of one size."""
    tokens = 40
    made = [replace(one, most_tokens=64) for one in records([Answers((4,) * 10)])]
    sample = window(made)
    found, most = known(sample, "p90_tpot"), 36 * TPOT
    assert found.value == pytest.approx(most / (tokens - 4))
    assert found.lower == pytest.approx(most / 63)
    assert TPOT <= found.upper <= 1.03 * TPOT
    assert judged(sample, Limit("p90_tpot", 0.7 * TPOT))[1] not in (Verdict.MEETS, Verdict.VIOLATES)
    rate = known(sample, "output_throughput")
    assert rate.high >= rate.value * 1.55
    assert any("reasoning" in note for note in point(sample).notes)
