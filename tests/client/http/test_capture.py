"""The chunked coding off the wire: any cutting of the same bytes gives the same body, and broken
coding is refused."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontier.client.http.capture import BodyCapture, FramingError, Unchunker


def encode(pieces: list[bytes], style: str, trailer: bytes = b"") -> bytes:
    size = {"lower": "{:x}", "upper": "{:X}", "padded": "{:08x}"}[style]
    coded = b"".join(size.format(len(p)).encode() + b"\r\n" + p + b"\r\n" for p in pieces if p)
    return coded + b"0\r\n" + trailer + b"\r\n"


def unpack(reads: list[bytes], at_once: int) -> tuple[bytes, bool]:
    """Through a BodyCapture, unpacked after every so many reads."""
    capture, ended = BodyCapture(), False
    for i, read in enumerate(reads):
        capture.raw_stamps.append(float(i))
        capture.raw_reads.append(read)
        if i % at_once == 0:
            ended = capture.unpack()
    ended = capture.unpack()
    assert len(capture.stamps) == len(capture.reads)
    assert capture.stamps == sorted(set(capture.stamps))
    return b"".join(capture.reads), ended


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.binary(min_size=1, max_size=5000) | st.binary(min_size=1, max_size=40), max_size=12),
    st.sampled_from(["lower", "upper", "padded"]),
    st.lists(st.integers(1, 300), max_size=20),
    st.integers(1, 5),
)
def test_any_cut_gives_the_body_back(pieces: list[bytes], style: str, cuts: list[int], at_once: int) -> None:
    coded = encode(pieces, style, b"X: y\r\n" if len(pieces) % 2 else b"")
    reads, at = [], 0
    for cut in [*cuts, len(coded)]:
        reads.append(coded[at : at + cut])
        at += cut
    assert (b"".join(pieces), True) == unpack([r for r in reads if r], at_once)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=600), min_size=1, max_size=12), st.integers(1, 5))
def test_one_chunk_per_read_is_one_body_read_each(pieces: list[bytes], at_once: int) -> None:
    reads = [b"%x\r\n%b\r\n" % (len(p), p) for p in pieces]
    capture = BodyCapture()
    for i, read in enumerate(reads):
        capture.raw_stamps.append(float(i))
        capture.raw_reads.append(read)
        if i % at_once == 0:
            assert not capture.unpack()
    capture.unpack()
    assert pieces == capture.reads
    assert [float(i) for i in range(len(pieces))] == capture.stamps


@pytest.mark.parametrize("length", [1, 9, 15, 16, 17, 255, 256, 257, 4087, 4088, 4089, 4095, 4096, 5000])
def test_every_size_of_chunk_is_taken_out_whole(length: int) -> None:
    body = b"\n" * length
    assert (body * 2, True) == unpack([b"%x\r\n%b\r\n" % (length, body)] * 2 + [b"0\r\n\r\n"], 3)


def test_body_bytes_that_look_like_an_end_are_body() -> None:
    body = b"0\r\n\r\n"
    assert (body * 3, True) == unpack([encode([body] * 3, "lower")], 1)
    assert (body * 2, False) == unpack([b"5\r\n0\r\n\r\n\r\n"] * 2, 1)


@pytest.mark.parametrize(
    "coded", [b"xyz\r\n", b"3\r\nabcd\r\n", b"\r\n\r\n", b"-1\r\n", b"0x3\r\nabc\r\n", b"1" * 20000]
)
def test_broken_coding_is_refused(coded: bytes) -> None:
    coding, capture = Unchunker(), BodyCapture()
    coding.feed(b"2\r\nok\r\n" + coded)
    assert coding.broken
    capture.raw_stamps, capture.raw_reads = [1.0], [b"2\r\nok\r\n" + coded]
    with pytest.raises(FramingError):
        capture.unpack()
    assert b"".join(capture.reads).startswith(b"ok")


def test_what_follows_the_end_is_surplus() -> None:
    coding = Unchunker()
    assert b"abc" == coding.feed(b"3\r\nabc\r\n0\r\n\r\nHTTP/1.1 200 OK")
    assert (True, b"HTTP/1.1 200 OK") == (coding.ended, coding.surplus)
