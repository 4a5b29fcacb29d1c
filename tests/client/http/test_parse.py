"""Parsing events: templates give exactly what full parsing gives, and each dialect is
understood."""

import dataclasses
import json
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontier.client.engines import ENGINES
from frontier.client.engines.request import NO_REQUEST, Prompt
from frontier.client.engines.stream import NO_TOKEN, REASONING, TOOL, VISIBLE, StreamState, message_of
from frontier.client.http.capture import BodyCapture
from frontier.client.http.exchange import Exchange
from frontier.client.http.parse import AnswerParser, no_token_since, parse_all, to_record
from frontier.client.http.sse import event_template
from frontier.core.model.trials import Outcome, Record


def exchange(reads: list[bytes], kind: str = "text/event-stream") -> Exchange:
    done = Exchange(0.0)
    done.status, done.headers = 200, {"content-type": kind}
    done.reads, done.stamps = reads, [1.0 + i for i in range(len(reads))]
    done.end = 2.0 + len(reads)
    return done


def read(
    reads: list[bytes],
    dialect: str = "vllm",
    api: str = "chat",
    kind: str = "text/event-stream",
    templates: bool = True,
    step: int = 1000,
) -> Record:
    with mock.patch("frontier.client.http.parse._MOST_TEMPLATES", 16 if templates else 0):
        parser = AnswerParser(exchange(reads, kind), ENGINES[dialect], api)
    while parser.parse(step):
        pass
    return to_record(parser, 0.0)


def sse(event: Any, separators: tuple[str, str] | None = None) -> bytes:
    return b"data: " + json.dumps(event, separators=separators, ensure_ascii=False).encode() + b"\n\n"


def parse_event(dialect: str, api: str, event: Any, kind: bytes = b"") -> tuple[int, StreamState]:
    state = StreamState()
    data = event if isinstance(event, bytes) else json.dumps(event).encode()
    return ENGINES[dialect].parse_event[api](state, kind, data), state


TEXTS = st.sampled_from([" the", "a", "", '"', "\\", "\n", "é漢", "\u2028", " x" * 50, '"content":"', "}]}\n\ndata: "])
DELTAS = st.one_of(
    TEXTS.map(lambda t: {"content": t}),
    TEXTS.map(lambda t: {"content": None, "reasoning_content": t}),
    TEXTS.map(lambda t: {"role": "assistant", "content": t}),
    TEXTS.map(lambda t: {"tool_calls": [{"function": {"arguments": t}}]}),
)
EVENTS = st.one_of(
    st.builds(lambda d: {"id": "x", "choices": [{"index": 0, "delta": d, "finish_reason": None}]}, DELTAS),
    st.builds(lambda t: {"id": "x", "choices": [{"index": 0, "delta": {"content": t}}], "usage": None}, TEXTS),
    st.builds(lambda t, n: {"choices": [{"text": t}], "usage": {"completion_tokens": n}}, TEXTS, st.integers(0, 9)),
    st.just({"choices": [{"delta": {}, "finish_reason": "stop"}]}),
    st.just({"choices": [{"delta": {"content": " last"}, "finish_reason": "length"}]}),
    st.just({"error": "content"}),
)


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.tuples(EVENTS, st.integers(1, 12)), max_size=10),
    st.sampled_from([None, (",", ":")]),
    st.sampled_from(["chat", "completions"]),
    st.lists(st.integers(0, 60), max_size=8),
)
def test_templates_never_change_what_is_read(
    events: list[tuple[Any, int]], separators: tuple[str, str] | None, api: str, joins: list[int]
) -> None:
    reads = [sse(event, separators) for event, times in events for _ in range(times)]
    for join in joins:
        if join + 1 < len(reads):
            whole = reads[join] + reads.pop(join + 1)
            reads[join] = whole[: len(whole) // 3]
            reads.insert(join + 1, whole[len(whole) // 3 :])
    reads = [r for r in reads if r]
    assert read(reads, api=api, templates=False) == read(reads, api=api, step=7)


def test_a_template_is_in_use_on_an_ordinary_stream() -> None:
    event = {"id": "x", "choices": [{"index": 0, "delta": {"content": " the"}, "finish_reason": None}]}
    before, after = event_template(sse(event), b"data: ", b"\n\n", ENGINES["vllm"].parse_event["chat"]) or (b"", b"")
    assert sse(event) == before + b" the" + after


@pytest.mark.parametrize(
    "event",
    [
        {"choices": [{"delta": {"content": " the"}}], "usage": {"completion_tokens": 3}},
        {"choices": [{"delta": {"content": " the"}, "finish_reason": "stop"}]},
        {"choices": [{"delta": {"content": ""}}]},
        {"content": "decoy", "choices": [{"delta": {"content": "a\\nb"}}], "error": {"content": "x"}},
    ],
)
def test_no_template_is_made_from_an_event_that_says_more_than_its_text(event: Any) -> None:
    assert event_template(sse(event), b"data: ", b"\n\n", ENGINES["vllm"].parse_event["chat"]) is None


def test_a_decoy_field_does_not_mislead_the_template() -> None:
    event = {"content": "decoy", "choices": [{"delta": {"content": " the"}}]}
    before, _ = event_template(sse(event), b"data: ", b"\n\n", ENGINES["vllm"].parse_event["chat"]) or (b"", b"")
    assert before.endswith(b'"delta": {"content": "')


@pytest.mark.parametrize(
    ("api", "choice", "channel"),
    [
        ("chat", {"delta": {"role": "assistant", "content": ""}}, NO_TOKEN),
        ("chat", {"delta": {"role": "assistant", "content": None}}, NO_TOKEN),
        ("chat", {"delta": {"content": " x"}}, VISIBLE),
        ("chat", {"delta": {"content": None, "reasoning_content": "hm"}}, REASONING),
        ("chat", {"delta": {"content": None, "reasoning": "hm"}}, REASONING),
        ("chat", {"delta": {"content": "", "reasoning_content": None}}, NO_TOKEN),
        ("chat", {"delta": {"tool_calls": [{"function": {"name": "f", "arguments": ""}}]}}, TOOL),
        ("chat", {"delta": {"tool_calls": [{"function": {"name": None, "arguments": ""}}]}}, NO_TOKEN),
        ("chat", {"delta": {}, "finish_reason": "stop"}, NO_TOKEN),
        ("chat", {"delta": None, "finish_reason": "stop"}, NO_TOKEN),
        ("chat", {"delta": {"content": ""}, "token_ids": [5]}, VISIBLE),
        ("completions", {"text": " x"}, VISIBLE),
        ("completions", {"text": None}, NO_TOKEN),
    ],
)
def test_an_openai_choice_is_a_token_only_when_it_brings_one(api: str, choice: Any, channel: int) -> None:
    assert channel == parse_event("sglang", api, {"choices": [choice]})[0]


def test_an_empty_text_is_a_token_on_vllm_only() -> None:
    event = {"choices": [{"text": "", "finish_reason": None}]}
    assert VISIBLE == parse_event("vllm", "completions", event)[0]
    assert NO_TOKEN == parse_event("sglang", "completions", event)[0]


def test_usage_and_finish_may_share_the_last_token_event() -> None:
    event = {"choices": [{"text": "x", "finish_reason": "length"}], "usage": {"completion_tokens": 3}}
    channel, state = parse_event("vllm", "completions", event)
    assert (VISIBLE, "length", {"completion_tokens": 3}) == (channel, state.finish_reason, state.usage)


def test_tgi_counts_one_token_per_event_and_ends_without_done() -> None:
    token = {"index": 1, "token": {"id": 5, "text": " x", "special": False}, "generated_text": None, "details": None}
    details = {"finish_reason": "length", "generated_tokens": 3, "input_length": 9}
    last = token | {"generated_text": " x x x", "details": details}
    record = read([sse(token), sse(token), sse(last)], "tgi", "completions")
    assert (Outcome.OK, 3, 3, 9) == (record.outcome, record.events, record.completion_tokens, record.prompt_tokens)
    bare = read([sse(token), sse(token), sse(last | {"details": None})], "tgi", "completions")
    assert (Outcome.OK, 3, None) == (bare.outcome, bare.completion_tokens, bare.prompt_tokens)


def test_a_tgi_error_in_the_stream_is_a_failure() -> None:
    record = read([sse({"error": "Input validation error", "error_type": "validation"})], "tgi", "completions")
    assert (Outcome.STREAM_ERROR, "Input validation error") == (record.outcome, record.error)


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_ollama_lines_are_read_with_the_counts_of_the_last(api: str) -> None:
    def line(text: str, **more: Any) -> bytes:
        said = {"response": text} if api == "completions" else {"message": {"role": "assistant", "content": text}}
        return json.dumps({"model": "m", "created_at": "now", **said, "done": False} | more).encode() + b"\n"

    last = line("", done=True, done_reason="length", prompt_eval_count=9, eval_count=3)
    record = read(
        [line(" x") + line(" y"), line(" z")[:20], line(" z")[20:], last], "ollama", api, "application/x-ndjson"
    )
    assert (Outcome.OK, "length", 3, 9, 3) == (
        record.outcome,
        record.finish_reason,
        record.events,
        record.prompt_tokens,
        record.completion_tokens,
    )
    failed = read([line(" x"), b'{"error": "model runner stopped"}\n'], "ollama", api, "application/x-ndjson")
    assert (Outcome.STREAM_ERROR, "model runner stopped") == (failed.outcome, failed.error)


def test_cached_tokens_are_kept_when_told() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 4}}
    record = read([sse({"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}], "usage": usage})])
    assert (9, 1, 4) == (record.prompt_tokens, record.completion_tokens, record.cached_tokens)


@pytest.mark.parametrize("usage", [{"prompt_tokens": "9"}, {"prompt_tokens": -1}, {"prompt_tokens": True}, [1]])
def test_a_nonsensical_usage_counts_nothing(usage: Any) -> None:
    assert read([sse({"choices": [{"delta": {"content": "x"}}], "usage": usage})]).prompt_tokens is None


@pytest.mark.parametrize(
    ("count", "read_as"), [(16.0, 16), (16, 16), (0, None), (16.5, None), (1e300, None), (10**12, None)]
)
def test_a_count_may_be_an_integral_float_and_no_more_than_an_answer_can_hold(count: Any, read_as: int | None) -> None:
    usage = sse({"choices": [], "usage": {"prompt_tokens": count, "completion_tokens": count}})
    record = read([sse({"choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}]}), usage])
    assert (read_as, read_as) == (record.prompt_tokens, record.completion_tokens)


@pytest.mark.parametrize(
    ("texts", "shown"),
    [
        (["a", "b"], None),
        ([" ", "b"], 1),
        (["\u200b", "\n", "\u3164", "b"], 3),
        (["\ufeff", "é"], 1),
        ([" ", "\t"], 1),
        ([" "] * 20 + ["b"] * 20, 20),  # past the point where templates are made
    ],
)
@pytest.mark.parametrize("channel", ["content", "reasoning_content"])
def test_the_first_visible_character_is_timed_on_any_channel(texts: list[str], shown: int | None, channel: str) -> None:
    said = [sse({"choices": [{"delta": {channel: text}, "finish_reason": None}]}) for text in texts]
    record = read([*said, sse({"choices": [{"delta": {}, "finish_reason": "stop"}]})])
    stamps = [1.0 + i for i in range(len(texts))]
    assert (stamps[0], stamps[-1]) == (record.first, record.last)
    assert (None if shown is None else stamps[shown]) == record.first_text
    visible = next((i for i, text in enumerate(texts) if text.strip(" \t\n\u200b\ufeff\u3164")), None)
    assert (stamps[visible] if visible is not None and channel == "content" else None) == record.visible


@pytest.mark.parametrize(
    "reason", ["insufficient_system_resource", "content_filter", "timeout", "what is this", 7, ["x"]]
)
def test_a_finish_reason_not_known_to_be_good_is_a_failure_whatever_follows(reason: Any) -> None:
    token = sse({"choices": [{"delta": {"content": "x"}, "finish_reason": reason}]})
    record = read([token, sse({"choices": [{"delta": {}, "finish_reason": "stop"}]})])
    assert (Outcome.STREAM_ERROR, str(reason)) == (record.outcome, record.finish_reason)


def answer(*more: object, words: int = 4) -> list[bytes]:
    """The reads of a chat's answer of so many one-word events, and what follows them."""
    events = [{"choices": [{"delta": {"content": " word"}}]}] * words
    return [*map(sse, (*events, *more)), b"data: [DONE]\n\n"]


def counted(*counts: int) -> dict[str, object]:
    names = ("prompt_tokens", "completion_tokens", "total_tokens")
    return {"choices": [], "usage": dict(zip(names, counts, strict=True))}


def test_a_completion_that_is_the_total_has_the_prompt_in_it() -> None:
    assert 4 == read(answer(counted(60, 64, 64))).completion_tokens
    assert 64 == read(answer(counted(0, 64, 64))).completion_tokens
    assert 64 == read(answer(counted(63, 64, 64))).completion_tokens, "four chunks are not one token"


def test_a_usage_of_zeros_replaces_no_count() -> None:
    one = read(answer(counted(60, 4, 64), counted(0, 0, 0)))
    assert (60, 4) == (one.prompt_tokens, one.completion_tokens)
    assert read(answer(counted(0, 0, 0))).completion_tokens is None


@pytest.mark.parametrize(
    "error",
    [
        {"detail": "worker died"},
        {"message": "worker died", "type": "x"},
        {"code": 500, "msg": "worker died"},
        {"title": "worker died", "status": 503, "type": "about:blank"},
        {"errors": [{"message": "worker died"}]},
        {"success": False, "error_msg": "worker died"},
        {"status": "error", "reason": "worker died"},
        {"choices": [{"delta": {}, "error": {"code": 502, "message": "worker died"}}]},
    ],
)
def test_an_event_that_is_an_error_alone_is_a_failure(error: dict[str, Any]) -> None:
    failed = read(answer(error))
    assert (Outcome.STREAM_ERROR, "worker died") == (failed.outcome, failed.error)


@pytest.mark.parametrize(
    "event",
    [
        {"choices": [], "detail": "of a filter"},
        {"type": "ping"},
        {"queue_position": 3, "error": None, "error_count": 0},
        {"code": 0, "status": "ok", "success": True},
        {"code": 200},
    ],
)
def test_an_event_that_tells_something_else_is_none(event: dict[str, Any]) -> None:
    assert Outcome.OK is read(answer(event, counted(60, 4, 64))).outcome


def test_an_answer_that_ends_without_reason_and_counts_was_cut() -> None:
    """Whatever a gateway writes between, [DONE] follows it."""
    for more in ((), ({"base_resp": {"status_msg": "rate limit"}},)):
        assert Outcome.TRUNCATED is read(answer(*more)).outcome
    raw = [*answer()[:-1], b"upstream connect error\n\n", b"data: [DONE]\n\n"]
    assert Outcome.TRUNCATED is read(raw).outcome


@pytest.mark.parametrize("kind", [b"error", b"exception", b"ERROR"])
def test_an_event_may_be_an_error_by_its_type(kind: bytes) -> None:
    _, state = parse_event("openai", "chat", {"reason": "worker died"}, kind)
    assert "worker died" == state.error


def part(kind: str, text: str) -> dict[str, Any]:
    return {"type": kind, kind: text if kind == "text" else [part("text", text)]}


def test_a_content_in_parts_is_its_text() -> None:
    said = [[part("text", "")], [part("thinking", " a")], [part("text", " b")], [part("text", " c")]]
    record = read([sse({"choices": [{"delta": {"content": parts}}]}) for parts in said] + answer(words=0))
    assert (3, 6, 2.0, 3.0) == (record.events, record.text_chars, record.first, record.visible)


@pytest.mark.parametrize("name", ["reasoning", "reasoning_text", "thought", "thinking_content"])
def test_reasoning_has_many_names(name: str) -> None:
    assert REASONING == parse_event("openai", "chat", {"choices": [{"delta": {name: "hm", "content": ""}}]})[0]


def empties(count: int) -> list[bytes]:
    return [sse({"choices": [{"delta": {"content": ""}, "finish_reason": None}]})] * count


@pytest.mark.parametrize(("before", "after"), [(4, 0), (0, 4), (2, 2)])
def test_tokens_of_empty_texts_are_not_timed_outside_the_visible_ones(before: int, after: int) -> None:
    """Four tokens in four seconds are seen of eight that are counted."""
    words, end = answer()[:-1], answer(counted(60, 8, 68), words=0)
    assert 5 == read([*empties(before), *words, *empties(after), *end], "openai").first_tokens
    assert read([*empties(4), *words, *answer(counted(60, 4, 64), words=0)], "openai").first_tokens is None, "no tokens"


@pytest.mark.parametrize(("limit", "most"), [(4, None), (5, None), (9, 9)])
def test_an_answer_at_its_limit_has_as_many_tokens(limit: int, most: int | None) -> None:
    """As where a gateway counts the chunks of a server that merges tokens."""
    done = exchange(answer({"choices": [{"delta": {}, "finish_reason": "length"}]}, counted(60, 4, 64)))
    done.request = dataclasses.replace(NO_REQUEST, prompt=Prompt("hi", 0, limit))
    assert most == to_record(parse_all(done, ENGINES["openai"], "chat"), 0.0).most_tokens


def test_an_error_in_place_of_a_stream_has_its_words() -> None:
    record = read([b'{"code": 429, "msg": "too many requests"}'], kind="application/json")
    assert (Outcome.PROTOCOL, True) == (record.outcome, "too many requests" in str(record.error))


def test_more_tokens_than_the_text_can_hold_may_be_hidden() -> None:
    """As where a gateway takes the reasoning out of the stream, and leaves it in the count."""
    hidden = read(answer(counted(60, 12, 72)), "openai")
    assert (4, 12) == (hidden.completion_tokens, hidden.most_tokens)
    told = read(answer({"choices": [], "usage": {"completion_tokens": 12, "completion_tokens_details": {}}}), "openai")
    for sound in (told, read(answer(counted(60, 6, 66)), "openai"), read(answer(counted(60, 12, 72)), "vllm")):
        assert sound.most_tokens is None


@pytest.mark.parametrize(
    ("later", "idle"),
    [
        ([], True),
        ([b": ping\n\n"] * 9, True),
        ([sse({"choices": [{"delta": {"content": ""}}]})] * 9, True),
        ([b": ping\n\n", sse({"choices": [{"delta": {"content": "a"}}]})], False),
        ([b": ping\n\n"] * 99, False),  # so many are not looked at
    ],
)
def test_what_only_keeps_a_connection_open_brings_no_token(later: list[bytes], idle: bool) -> None:
    first, capture = sse({"choices": [{"delta": {"content": "a"}}]}), BodyCapture()
    capture.reads, capture.stamps = [first, *later], [1.0, *(20.0 + k / 10 for k in range(len(later)))]
    under_way = Exchange(0.0)
    under_way.capture = capture
    assert idle is no_token_since(under_way, ENGINES["openai"], "chat", 15.0)
    assert not no_token_since(under_way, ENGINES["openai"], "chat", 0.5), "a token came since"


@pytest.mark.parametrize("reason", ["stop", "length", "STOP", "tool_calls", "eos_token", "max_tokens"])
def test_good_finish_reasons_are_good(reason: str) -> None:
    assert Outcome.OK is read([sse({"choices": [{"delta": {"content": "x"}, "finish_reason": reason}]})]).outcome


def test_an_empty_finish_reason_with_every_event_is_no_end() -> None:
    tokens = [sse({"choices": [{"delta": {"content": "x"}, "finish_reason": ""}]})] * 3
    assert Outcome.TRUNCATED is read(tokens).outcome
    assert Outcome.OK is read([*tokens, *answer(counted(5, 3, 8), words=0)]).outcome


@pytest.mark.parametrize("reason", ["error", "abort"])
def test_a_stream_the_server_gave_up_is_a_failure(reason: str) -> None:
    record = read([sse({"choices": [{"delta": {"content": "x"}, "finish_reason": reason}]})])
    assert Outcome.STREAM_ERROR is record.outcome


@pytest.mark.parametrize(
    ("error", "message"),
    [
        ("plain", "plain"),
        ({"message": "m", "code": 1}, "m"),
        ({"detail": [{"msg": "a"}, {"msg": "b"}]}, "a; b"),
        ({"error": {"message": "inner"}}, "inner"),
        ({"code": 1}, '{"code":1}'),
    ],
)
def test_the_words_of_an_error_are_found_in_any_shape(error: Any, message: str) -> None:
    assert message == message_of(error)


def payload(dialect: str, api: str, shares: bool = False, **options: Any) -> dict[str, Any]:
    prompt = Prompt("hi", 0, 9, shares=shares)
    body: dict[str, Any] = json.loads(ENGINES[dialect].body(api, "m", prompt, **options))
    return body


def test_extension_fields_go_only_where_the_engine_lists_them() -> None:
    for dialect in ("vllm", "sglang", "trtllm"):
        assert {"ignore_eos": True, "min_tokens": 9}.items() <= payload(dialect, "chat").items()
        assert "ignore_eos" not in payload(dialect, "chat", force_length=False)
    for dialect in ("openai", "openai_reasoning", "tgi", "ollama"):
        assert not {"ignore_eos", "min_tokens"} & set(payload(dialect, "chat"))
    assert {"ignore_eos": True, "cache_prompt": False}.items() <= payload("llamacpp", "completions").items()
    # A cache that would only hide how the server does without one, and one that the prompts are
    # meant to meet.
    assert payload("llamacpp", "chat", force_length=False)["cache_prompt"] is False
    assert "cache_prompt" not in payload("llamacpp", "chat", shares=True)
    assert (9, False) == (
        payload("openai_reasoning", "chat")["max_completion_tokens"],
        "max_tokens" in payload("openai_reasoning", "chat"),
    )
    assert 9 == payload("ollama", "chat")["options"]["num_predict"]
    assert 9 == payload("tgi", "completions")["parameters"]["max_new_tokens"]


def test_extra_body_has_the_last_word() -> None:
    assert 0.7 == payload("vllm", "chat", extra={"temperature": 0.7})["temperature"]


ODD = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 2**70) | st.floats(allow_nan=False) | st.sampled_from(["", "x", "é\n"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "delta",
                    "content",
                    "text",
                    "usage",
                    "error",
                    "tool_calls",
                    "function",
                    "arguments",
                    "name",
                    "finish_reason",
                    "token",
                    "details",
                    "message",
                    "response",
                    "done",
                    "prompt_tokens",
                    "completion_tokens",
                    "prompt_tokens_details",
                    "completion_tokens_details",
                    "cached_tokens",
                    "timings",
                    "cache_n",
                    "object",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=400, deadline=None)
@given(
    st.lists(ODD.map(sse) | st.binary(max_size=30) | st.sampled_from([b"data: [DONE]\n\n", b"event: x\n"]), max_size=6),
    st.sampled_from(sorted(ENGINES)),
    st.sampled_from(["chat", "completions"]),
)
def test_whatever_a_server_sends_ends_in_one_outcome_and_sane_counts(
    reads: list[bytes], dialect: str, api: str
) -> None:
    if ENGINES[dialect].framing == "ndjson":
        reads = [r.removeprefix(b"data: ") for r in reads]
    kind = "application/x-ndjson" if dialect == "ollama" else "text/event-stream"
    record = read([r for r in reads if r], dialect, api, kind, step=2)
    assert record.outcome in Outcome
    assert (record.error is None) is (record.outcome is Outcome.OK)
    assert (record.error or "").isprintable()
    assert len(record.error or "") <= 300
    assert (record.first is None) is (record.events == 0)
    assert record.outcome is not Outcome.OK or record.events > 0
    counts = (record.prompt_tokens, record.completion_tokens, record.cached_tokens)
    assert [] == [c for c in counts if c is not None and (type(c) is not int or c < 0)]


TOKEN = sse({"choices": [{"index": 0, "delta": {"content": " a"}, "finish_reason": None}]})
END = sse({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})
ABSURD = ["1" + "0" * 30, "1e300", "-1", "7.5", '"x"', "[]"]
OPTIONAL = [
    "completion_tokens_details.rejected_prediction_tokens",
    "completion_tokens_details.reasoning_tokens",
    "completion_tokens_details",
    "prompt_tokens_details.cached_tokens",
    "prompt_tokens_details",
    "total_tokens",
    "queue_time",
]


@pytest.mark.parametrize("name", OPTIONAL)
@pytest.mark.parametrize("number", ABSURD, ids=lambda number: number[:8])
def test_an_absurd_optional_number_voids_no_other(name: str, number: str) -> None:
    outer, _, inner = name.partition(".")
    field = f'"{outer}": {{"{inner}": {number}}}' if inner else f'"{outer}": {number}'
    usage = f'data: {{"choices": [], "usage": {{"prompt_tokens": 7, "completion_tokens": 5, {field}}}}}\n\n'
    record = read([*[TOKEN] * 5, END, usage.encode(), b"data: [DONE]\n\n"])
    assert (Outcome.OK, None) == (record.outcome, record.error)
    assert (7, 5, None) == (record.prompt_tokens, record.completion_tokens, record.cached_tokens)


def test_absurd_timings_beside_the_usage_void_nothing() -> None:
    usage = sse({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 5}, "timings": 3})
    record = read([*[TOKEN] * 5, END, usage, b"data: [DONE]\n\n"])
    assert (Outcome.OK, 7, 5) == (record.outcome, record.prompt_tokens, record.completion_tokens)


def test_what_is_no_json_is_malformed() -> None:
    for broken in (
        b'{"usage": {"prompt_tokens": NaN}}',
        b'{"usage": {"prompt_tokens": 7,}}',
        b'{"usage": ' + b"[" * 60_000 + b"}",
        b'{"choices": [NaN]}',
    ):
        record = read([TOKEN, b"data: " + broken + b"\n\n", END, b"data: [DONE]\n\n"])
        assert Outcome.PROTOCOL is record.outcome


def test_a_usage_by_the_names_of_another_api_is_read() -> None:
    said = sse({"choices": [{"delta": {"content": " a"}}]}), sse({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    usage = sse({"choices": [], "usage": {"input_tokens": 9, "output_tokens": 1}})
    record = read([*said, usage, b"data: [DONE]\n\n"])
    assert (record.prompt_tokens, record.completion_tokens) == (9, 1)


def test_a_usage_whose_prompt_is_counted_first_and_its_answer_last_is_whole() -> None:
    first = sse({"choices": [{"delta": {"content": " a"}}], "usage": {"prompt_tokens": 9, "completion_tokens": 0}})
    last = sse({"choices": [], "usage": {"prompt_tokens": 0, "completion_tokens": 2, "total_tokens": 2}})
    zeros = sse({"choices": [], "usage": {"prompt_tokens": 0, "completion_tokens": 0}})
    end = sse({"choices": [{"delta": {"content": " b"}, "finish_reason": "stop"}]})
    record = read([first, end, last, zeros, b"data: [DONE]\n\n"])
    assert (record.prompt_tokens, record.completion_tokens) == (9, 2)


def two_answers(*, together: bool, text: bool = False) -> list[bytes]:
    """Two choices, as `n: 2` gives them: in the same events, or one after the other."""

    def choice(index: int, number: int) -> dict[str, Any]:
        said: dict[str, Any] = {"text": " the"} if text else {"delta": {"content": " the"}}
        return said | {"index": index, "finish_reason": "length" if number == 9 else None}

    both = [[choice(0, number), choice(1, number)] for number in range(10)]
    listed = both if together else [[each] for pair in both for each in pair]
    usage = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 20}}
    return [*(sse({"choices": choices}) for choices in listed), sse(usage), b"data: [DONE]\n\n"]


@pytest.mark.parametrize("api", ["chat", "completions"])
@pytest.mark.parametrize("together", [True, False])
def test_several_answers_in_a_stream_are_a_failure_of_their_own_name(api: str, together: bool) -> None:
    record = read(two_answers(together=together, text=api == "completions"), api=api)
    assert (record.outcome, "choices" in (record.error or "")) == (Outcome.PROTOCOL, True)


def test_one_answer_may_have_any_number_and_say_twice_that_it_ended() -> None:
    end = sse({"choices": [{"index": 3, "delta": {}, "finish_reason": "stop"}], "usage": {"completion_tokens": 1}})
    reads = [sse({"choices": [{"index": 3, "delta": {"content": " a"}}]}), end, end, b"data: [DONE]\n\n"]
    assert read(reads).outcome is Outcome.OK
