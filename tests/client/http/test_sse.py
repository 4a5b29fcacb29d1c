"""The event-stream parser against a slow twin that reads the whole stream at once, cut in every
way."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontier.client.http.sse import Event, EventParser, EventTooLargeError, LineParser


def slow_twin(stream: bytes) -> list[Event]:
    """The standard's algorithm, word by word, over the whole stream."""
    text = stream[3:] if stream[:3] == b"\xef\xbb\xbf" else stream
    lines, line, i = [], bytearray(), 0
    while i < len(text):
        byte = text[i : i + 1]
        if byte in (b"\r", b"\n"):
            if byte == b"\r" and text[i + 1 : i + 2] == b"\n":
                i += 1
            lines.append(bytes(line))
            line = bytearray()
        else:
            line += byte
        i += 1
    events: list[Event] = []
    data, kind = b"", b""
    for whole in lines:
        if whole == b"":
            if data != b"":
                events.append((kind, data[:-1] if data.endswith(b"\n") else data))
            data, kind = b"", b""
        elif whole[:1] == b":":
            pass
        else:
            name, value = whole, b""
            if b":" in whole:
                at = whole.index(b":")
                name, value = whole[:at], whole[at + 1 :]
                if value[:1] == b" ":
                    value = value[1:]
            if name == b"data":
                data += value + b"\n"
            elif name == b"event":
                kind = value
    return events


def parse(reads: list[bytes], cap: int = 1 << 20) -> list[Event]:
    parser = EventParser(cap)
    return [event for read in reads for event in parser.feed(read)]


STREAMS = [
    b'data: {"a": 1}\n\ndata: {"b": "\xc3\xa9"}\n\ndata: [DONE]\n\n',
    b"\xef\xbb\xbfdata: one\r\n\r\nevent: error\r\ndata: two\r\ndata:three\r\n\r\n",
    b": ping\n\ndata: x\r\rdata:y\r\n\rdata\n\nid: 3\nretry: 5\n\ndata: cut",
    b"\n\n\r\r\n\ndata\ndata\n\n: \xff\xfe\nevent\ndata:  two spaces\n\n",
]


@pytest.mark.parametrize("stream", STREAMS)
def test_every_cut_in_three_gives_the_same_events(stream: bytes) -> None:
    expected = slow_twin(stream)
    for i in range(len(stream) + 1):
        for j in range(i, len(stream) + 1):
            assert expected == parse([stream[:i], stream[i:j], stream[j:]])


@pytest.mark.parametrize("stream", STREAMS)
def test_byte_by_byte_gives_the_same_events(stream: bytes) -> None:
    assert slow_twin(stream) == parse([stream[i : i + 1] for i in range(len(stream))])


PIECES = st.sampled_from(
    [
        b"data: ",
        b"data:",
        b"data",
        b"event: error",
        b":",
        b"\n",
        b"\r",
        b"\r\n",
        b"\n\n",
        b"{}",
        b" ",
        b"\xef\xbb\xbf",
        b"id",
        b'data: {"x":1}\n\n',
        b"\xe2\x82",
    ]
)


@settings(max_examples=600, deadline=None)
@given(st.lists(PIECES | st.binary(max_size=3), max_size=30).map(b"".join), st.randoms(use_true_random=False))
def test_any_bytes_cut_anywhere_agree_with_the_slow_twin(stream: bytes, rng: object) -> None:
    reads, at = [], 0
    while at < len(stream):
        step = rng.choice([1, 2, 3, 8, 40])  # type: ignore[attr-defined]
        reads.append(stream[at : at + step])
        at += step
    assert slow_twin(stream) == parse(reads)


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES | st.binary(max_size=3), max_size=30))
def test_reads_that_end_where_events_do_agree_with_the_slow_twin(pieces: list[bytes]) -> None:
    assert slow_twin(b"".join(pieces)) == parse(pieces)


def test_an_event_over_the_cap_is_refused_in_one_line_and_in_many() -> None:
    for reads in ([b"data: " + b"x" * 50] * 3, [b"data: " + b"x" * 30 + b"\n"] * 5, [b"data: " + b"x" * 200 + b"\n\n"]):
        with pytest.raises(EventTooLargeError):
            parse(reads, cap=100)


def test_many_small_events_never_reach_the_cap() -> None:
    parser = EventParser(cap=100)
    assert 5000 == sum(len(parser.feed(b"data: 0123456789\n\n")) for _ in range(5000))
    assert 20 == len(parser.feed(b"data: 0123456789\n\n" * 20))


def test_lines_are_whole_whatever_the_cut() -> None:
    stream = b'{"a":1}\r\n\n{"b":2}\n{"c":3}\n'
    for i in range(len(stream) + 1):
        parser = LineParser()
        lines = parser.feed(stream[:i]) + parser.feed(stream[i:])
        assert [(b"", b'{"a":1}'), (b"", b'{"b":2}'), (b"", b'{"c":3}')] == lines


def test_a_line_over_the_cap_is_refused() -> None:
    parser = LineParser(cap=100)
    assert [] == [event for _ in range(10) for event in parser.feed(b"x" * 10)]
    with pytest.raises(EventTooLargeError):
        parser.feed(b"x" * 10)


def test_a_long_line_in_many_reads_takes_as_long_as_it_is_long() -> None:
    parser, began = LineParser(), time.process_time()
    for _ in range(50_000):
        assert parser.feed(b"x" * 300) == []
    assert parser.feed(b"\n") == [(b"", b"x" * 15_000_000)]
    assert time.process_time() - began < 10, "counting all reads anew at each took a minute"
