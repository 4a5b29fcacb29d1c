"""Every nasty behaviour of a server ends a request in exactly one, right way, and none of them
hangs."""

import asyncio
import math
import os
import resource
from collections.abc import Iterator
from dataclasses import replace

import pytest
import trustme

from frontier.client.ask.target import Target, Timeouts
from frontier.client.engines import ENGINES
from frontier.client.engines.request import Prompt
from frontier.client.http.exchange import Exchange
from frontier.client.http.http_client import Client
from frontier.client.http.parse import AnswerParser, to_record
from frontier.core.model.trials import Outcome, Record
from tests.kit.certificates import client_files, secure
from tests.kit.golden import assert_golden_row
from tests.kit.hostile import Hostile
from tests.kit.proxies import Forward, listening

pytestmark = pytest.mark.process

LIMITS = Timeouts(connect=5.0, first_byte=3.0, idle=2.5, total=4.5)


@pytest.fixture(scope="module")
def server() -> Iterator[Hostile]:
    with Hostile() as running:
        yield running


def body(target: Target) -> bytes:
    return ENGINES["vllm"].body("chat", "m", Prompt("hello", 0, 5))


def to_one_record(exchange: Exchange) -> Record:
    parser = AnswerParser(exchange, ENGINES["vllm"], "chat")
    while parser.parse(3):
        pass
    return to_record(parser, exchange.sent)


async def ask(client: Client, times: int = 1) -> list[Record]:
    """Requests one after the other."""
    url = client.target.url("/v1/chat/completions")
    return [to_one_record(await client.post(url, body(client.target))) for _ in range(times)]


def records(url: str, times: int = 1, **options: object) -> tuple[list[Record], Client]:
    target = Target(url, "m", "chat", **({"timeouts": LIMITS} | options))  # type: ignore[arg-type]

    async def run() -> tuple[list[Record], Client]:
        async with Client(target) as client:
            return await asyncio.wait_for(ask(client, times), 20), client

    return asyncio.run(run())


GOOD = [
    "good",
    "one_lump",
    "all_at_once",
    "byte_by_byte",
    "torn_chunks",
    "shouting_chunks",
    "crlf",
    "cr",
    "bom_and_no_space",
    "pings",
    "no_done",
    "done_without_finish",
    "after_done",
    "done_and_no_end",
    "done_and_closed",
    "done_and_reset",
    "done_in_pieces",
    "done_and_more_promised",
    "until_close",
    "with_length",
    "continued",
    "running_usage",
    "null_choices",
    "role_early",
    "huge_event",
    "closes_after",
    "resets_after",
]


@pytest.fixture(scope="module")
def everything(server: Hostile) -> dict[str, list[Record]]:
    """Two requests to every behaviour, all at the same time."""
    names = [*GOOD, *(name for name, _, _ in FAILURES)]
    found: dict[str, list[Record]] = {}

    async def one(name: str) -> None:
        async with Client(Target(server.url(name), "m", "chat", timeouts=LIMITS)) as client:
            found[name] = await asyncio.wait_for(ask(client, 2 if name in GOOD else 1), 20)

    async def all_of_them() -> None:
        await asyncio.gather(*map(one, names))

    asyncio.run(all_of_them())
    return found


Everything = dict[str, list[Record]]


@pytest.mark.parametrize("name", GOOD)
def test_a_good_stream_is_read_in_whatever_shape_it_comes(everything: Everything, name: str) -> None:
    assert 2 == len(everything[name])
    for record in everything[name]:
        assert (Outcome.OK, None) == (record.outcome, record.error)
        assert (5, 7, 5) == (record.events, record.prompt_tokens, record.completion_tokens)
        assert record.first is not None
        assert record.last is not None
        assert 0 < record.first <= record.last <= record.end
        assert 4 == len(record.gaps)
        assert sum(record.gaps) == pytest.approx((record.last - record.first) * 1e6, abs=3)


FAILURES = [
    ("role_only", Outcome.EMPTY, "without a token"),
    ("empty", Outcome.EMPTY, "without a token"),
    ("no_terminal", Outcome.TRUNCATED, "without a finish reason"),
    ("error_object", Outcome.STREAM_ERROR, "out of memory"),
    ("error_string", Outcome.STREAM_ERROR, "out of memory"),
    ("error_event", Outcome.STREAM_ERROR, "out of memory"),
    ("error_flat", Outcome.STREAM_ERROR, "out of memory"),
    ("error_beside_choices", Outcome.STREAM_ERROR, "out of memory"),
    ("not_json", Outcome.PROTOCOL, "not a JSON object"),
    ("wrong_form", Outcome.PROTOCOL, "not of the expected form"),
    ("compressed", Outcome.PROTOCOL, "compressed"),
    ("plain_json", Outcome.PROTOCOL, "not a stream"),
    ("html", Outcome.PROTOCOL, "text/html, not a stream"),
    ("not_http", Outcome.PROTOCOL, "not a proper HTTP answer"),
    ("slow_head", Outcome.TIMEOUT, "first_byte"),
    ("slow_first_byte", Outcome.TIMEOUT, "first_byte"),
    ("stall", Outcome.TIMEOUT, "idle"),
    ("endless_pings", Outcome.TIMEOUT, "total"),
    ("endless_tokens", Outcome.TIMEOUT, "total"),
    ("endless_trailers", Outcome.TIMEOUT, ""),
    ("endless_continue", Outcome.TIMEOUT, "first_byte"),
    ("endless_head", Outcome.PROTOCOL, "not a proper HTTP answer"),
    ("dripping_head", Outcome.TIMEOUT, "first_byte"),
    ("close_before", Outcome.STREAM_ERROR, "before the first byte"),
    ("reset_before", Outcome.STREAM_ERROR, "before the first byte"),
    ("close_in_head", Outcome.STREAM_ERROR, "before the first byte"),
    ("close_mid", Outcome.TRUNCATED, "before the end of the body"),
    ("reset_mid", Outcome.STREAM_ERROR, "reset"),
    ("short_length", Outcome.TRUNCATED, "before the end of the body"),
    ("unauthorized", Outcome.HTTP_ERROR, "HTTP 401: Invalid API key"),
    ("too_many", Outcome.HTTP_ERROR, "HTTP 429: Model is overloaded (Retry-After: 7)"),
    ("not_ready", Outcome.HTTP_ERROR, "HTTP 503: Loading model"),
    ("bad_gateway", Outcome.HTTP_ERROR, "HTTP 502: Bad Gateway"),
    ("invalid", Outcome.HTTP_ERROR, "HTTP 422: extra field ignore_eos"),
    ("chatty_error", Outcome.HTTP_ERROR, "HTTP 500: [31mTraceback[0m x"),
    ("redirect", Outcome.HTTP_ERROR, "not followed"),
    ("no_such_thing", Outcome.HTTP_ERROR, "HTTP 404: Not Found"),
]


@pytest.mark.parametrize(("name", "outcome", "said"), FAILURES)
def test_a_failure_is_named_for_what_it_is(everything: Everything, name: str, outcome: Outcome, said: str) -> None:
    (record,) = everything[name]
    assert (outcome, True) == (record.outcome, said in (record.error or "")), record.error
    assert record.error is not None
    assert record.error.isprintable()
    assert len(record.error) < 400


@pytest.mark.parametrize("name", ["bad_chunk", "long_chunk"])
def test_a_broken_chunked_coding_is_a_protocol_failure_that_keeps_what_came_before(server: Hostile, name: str) -> None:
    (record,), _ = records(server.url(name), timeouts=replace(LIMITS, idle=1.0))  # the server says no more
    assert (Outcome.PROTOCOL, 5) == (record.outcome, record.events)
    assert_golden_row("messages", record.error or "")


def test_an_endless_line_is_given_up(server: Hostile) -> None:
    (record,), _ = records(server.url("endless_line"))
    assert Outcome.PROTOCOL is record.outcome
    assert_golden_row("messages", record.error or "")


def test_heads_without_end_are_given_up_before_the_memory_is(server: Hostile) -> None:
    (record,), _ = records(server.url("flood_of_heads"))
    assert Outcome.PROTOCOL is record.outcome
    assert_golden_row("messages", record.error or "")


def test_an_answer_cut_anywhere_says_the_same(server: Hostile) -> None:
    found, client = records(server.url("cut_anywhere"), times=150)
    assert {(Outcome.OK, 5, 7, 5, 25)} == {
        (r.outcome, r.events, r.prompt_tokens, r.completion_tokens, r.text_bytes) for r in found
    }
    assert 1 == client.opened


OTHERS = [
    "answer_ahead",
    "cut_anywhere",
    "endless_line",
    "flood_of_heads",
    "lying_keep_alive",
    "thinks_and_dies",
    "reasoning",
    "tools",
    "no_usage",
    "utf8",
    "surplus",
    "bad_chunk",
    "long_chunk",
]


def test_every_behaviour_of_the_server_is_tried() -> None:
    from tests.kit.hostile import BEHAVIOURS

    tried = {*GOOD, *(name for name, _, _ in FAILURES), *OTHERS}
    own = {name for name, run in BEHAVIOURS.items() if run.__module__ == "tests.kit.hostile"}
    assert own == tried - {"no_such_thing"}


def test_the_role_chunk_does_not_start_the_clock_and_usage_does_not_stop_it(server: Hostile) -> None:
    (record,), _ = records(server.url("role_early"))
    assert record.first is not None
    assert record.last is not None
    assert record.first > 0.14
    assert record.last < record.end - 0.1


def test_reasoning_starts_ttft_but_is_not_visible(server: Hostile) -> None:
    (record,), _ = records(server.url("reasoning"))
    assert Outcome.OK is record.outcome
    assert 7 == record.events
    assert record.first is not None
    assert record.visible is not None
    assert record.visible - record.first > 0.03


def test_tool_call_fragments_are_tokens_and_empty_ones_are_not(server: Hostile) -> None:
    (record,), _ = records(server.url("tools"))
    assert (Outcome.OK, 3) == (record.outcome, record.events)
    assert len('find{"x":1}') == record.text_bytes


def test_missing_usage_leaves_the_counts_unknown(server: Hostile) -> None:
    (record,), _ = records(server.url("no_usage"))
    assert (Outcome.OK, None, None) == (record.outcome, record.prompt_tokens, record.completion_tokens)


def test_text_is_counted_in_bytes_and_in_characters(server: Hostile) -> None:
    (record,), _ = records(server.url("utf8"))
    text = "héé\u00e9 – 漢字" * 2
    assert (Outcome.OK, len(text.encode()), len(text)) == (record.outcome, record.text_bytes, record.text_chars)


@pytest.mark.parametrize("name", ["torn_chunks", "good", "with_length"])
def test_connections_are_reused(server: Hostile, name: str) -> None:
    _, client = records(server.url(name), times=4)
    assert 1 == client.opened


def test_surplus_bytes_cost_the_connection(server: Hostile) -> None:
    found, client = records(server.url("surplus"), times=3)
    assert ([Outcome.OK] * 3, 3) == ([r.outcome for r in found], client.opened)


@pytest.mark.process
@pytest.mark.fault("a body without its end after [DONE]: silence, close, reset, [DONE] cut, more promised")
@pytest.mark.parametrize(
    "name", ["done_and_no_end", "done_and_closed", "done_and_reset", "done_in_pieces", "done_and_more_promised"]
)
def test_an_answer_is_complete_with_done_and_its_connection_is_not_used_again(server: Hostile, name: str) -> None:
    found, client = records(server.url(name), times=3)
    assert ([Outcome.OK] * 3, 3) == ([r.outcome for r in found], client.opened)
    assert max(r.end - (r.last or -math.inf) for r in found) < 1.0, "well before any time limit"


@pytest.mark.process
@pytest.mark.fault("an answer that nobody asked for, on a kept connection")
@pytest.mark.parametrize("question", [True, False])
def test_what_comes_unasked_on_a_kept_connection_answers_nothing(server: Hostile, question: bool) -> None:
    url = server.url("answer_ahead")

    async def run() -> tuple[list[Record], Client]:
        async with Client(Target(url, "m", "chat", timeouts=LIMITS)) as client:
            found = [to_one_record(await client.ask(url))] if question else await ask(client)
            await asyncio.sleep(0.2)
            return found + await ask(client), client

    found, client = asyncio.run(run())
    assert ([Outcome.OK] * 2, [5, 5]) == ([r.outcome for r in found], [r.events for r in found])
    assert 2 - question == client.opened, "connections of small questions are not counted"


@pytest.mark.process
def test_a_dead_kept_connection_is_resent_once_with_the_clock_running(server: Hostile) -> None:
    found, client = records(server.url("lying_keep_alive"), times=4)
    assert [Outcome.OK] * 4 == [r.outcome for r in found]
    assert [False, True, False, True] == [r.resent for r in found]
    assert 2 == client.resent
    # The server took 0.1 s to close: that wait is part of the answer's time.
    assert all(((r.first or 0) - r.sent > 0.1) is r.resent for r in found)


def test_a_connection_kept_after_a_small_question_may_be_dead_too(server: Hostile) -> None:
    # As `transformers serve`: a 500 to GET /v1/models says nothing of closing, and then the
    # connection is closed.
    url = server.url("lying_keep_alive")

    async def run() -> tuple[list[Record], Client]:
        async with Client(Target(url, "m", "chat", timeouts=LIMITS)) as client:
            await client.ask(url, 2.0)
            return await ask(client), client

    (record,), client = asyncio.run(run())
    assert (Outcome.OK, True) == (record.outcome, record.resent)
    assert (1, 1) == (client.resent, client.opened)


def test_a_request_that_was_worked_on_before_the_connection_died_is_a_failure_and_not_resent(server: Hostile) -> None:
    found, client = records(server.url("thinks_and_dies"), times=2)
    assert [Outcome.OK, Outcome.STREAM_ERROR] == [r.outcome for r in found]
    assert (0, False) == (client.resent, found[1].resent)


def test_a_fresh_connection_that_dies_is_not_resent(server: Hostile) -> None:
    before = server.connections
    found, client = records(server.url("close_before"), times=3)
    assert [False] * 3 == [r.resent for r in found]
    assert (3, 0) == (server.connections - before, client.resent)


def test_a_redirect_is_not_followed_and_the_key_goes_nowhere(server: Hostile) -> None:
    before = len(server.calls)
    (record,), _ = records(server.url("redirect"), api_key="sk-secret")
    assert 1 == len(server.calls) - before
    assert "Bearer sk-secret" == server.calls[-1][1]["authorization"]
    assert "sk-secret" not in (record.error or "")


def test_the_key_is_not_in_the_repr() -> None:
    assert "sk-secret" not in repr(Target("http://h", api_key="sk-secret", headers={"X": "sk-secret"}))


def test_identity_coding_is_asked_for(server: Hostile) -> None:
    records(server.url("good"))
    assert "identity" == server.calls[-1][1]["accept-encoding"]


def test_nobody_listening_is_connect() -> None:
    (record,), _ = records("http://127.0.0.1:1")
    assert Outcome.CONNECT is record.outcome


def test_a_name_that_does_not_exist_is_connect() -> None:
    (record,), _ = records("http://no-such-host.invalid")
    assert record.outcome in (Outcome.CONNECT, Outcome.TIMEOUT)


def test_a_proxy_in_the_environment_is_ignored_unless_asked(server: Hostile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    assert Outcome.OK is records(server.url("good"))[0][0].outcome
    assert Outcome.CONNECT is records(server.url("good"), trust_env=True)[0][0].outcome


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_bodies_are_captured_through_a_forward_proxy_too(
    authority: trustme.CA, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def post(url: str) -> list[Exchange]:
        async with Client(Target(url, "m", "chat", trust_env=True, verify_tls=False, timeouts=LIMITS)) as client:
            return [await client.post(client.target.url("/v1/chat/completions"), body(client.target)) for _ in range(2)]

    proxy = Forward()
    monkeypatch.delenv("no_proxy", raising=False)
    with Hostile(secure(authority) if scheme == "https" else None) as server, listening(proxy.serve) as address:
        monkeypatch.setenv(f"{scheme}_proxy", address)
        exchanges = asyncio.run(post(server.url("good")))
    assert [(None, True, False), (None, True, True)] == [
        (e.failure, e.capture is not None, e.reused) for e in exchanges
    ]
    assert ["CONNECT" if scheme == "https" else "POST"] == [line.split()[0] for line in proxy.seen]


def test_tls_is_verified_trusted_by_a_file_or_waived(authority: trustme.CA, tmp_path: object) -> None:
    with Hostile(secure(authority)) as server, authority.cert_pem.tempfile() as ca_file:
        assert Outcome.TLS is records(server.url("good"))[0][0].outcome
        assert Outcome.OK is records(server.url("good"), ca_file=ca_file)[0][0].outcome
        found, client = records(server.url("torn_chunks"), times=2, verify_tls=False)
        assert ([Outcome.OK] * 2, 1) == ([r.outcome for r in found], client.opened)


def test_tls_to_a_plain_port_is_tls(server: Hostile) -> None:
    (record,), _ = records(server.url("good").replace("http:", "https:"))
    assert Outcome.TLS is record.outcome


def test_a_client_certificate_is_shown(authority: trustme.CA) -> None:
    with Hostile(secure(authority, asks_clients=True)) as server, client_files(authority) as (ca, cert, key):
        shown = records(server.url("good"), ca_file=ca, cert_file=cert, key_file=key)
        assert Outcome.OK is shown[0][0].outcome
        assert Outcome.OK is not records(server.url("good"), ca_file=ca)[0][0].outcome


def test_running_out_of_file_descriptors_is_our_own_failing(server: Hostile) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def run() -> Record:
        async with Client(Target(server.url("good"), "m", "chat", timeouts=LIMITS)) as client:
            spare = os.open("/dev/null", os.O_RDONLY)
            resource.setrlimit(resource.RLIMIT_NOFILE, (spare, hard))
            try:
                return (await ask(client))[0]
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                os.close(spare)

    assert Outcome.CLIENT is asyncio.run(run()).outcome


async def in_flight(client: Client, last: bytes = b"") -> Exchange:
    """The one exchange of the client, when `last` of its answer has been read."""
    async with asyncio.timeout(30):
        while True:
            for flight in client.in_flight:
                come = flight.capture.raw_reads if flight.capture is not None else flight.reads
                if last in b"".join(come):
                    return flight
            await asyncio.sleep(0.005)


def test_cutting_a_flight_ends_it_at_once_and_only_it(server: Hostile) -> None:
    """The server stalls for half a minute after its five tokens."""

    async def run() -> tuple[Record, Record]:
        async with Client(Target(server.url("stall"), "m", "chat")) as client, asyncio.timeout(20):
            url = client.target.url("/v1/chat/completions")
            cut = asyncio.create_task(client.post(url, b"{}"))
            flight = await in_flight(client, b"tok4")
            other = asyncio.create_task(client.post(server.url("good") + "/v1/chat/completions", b"{}"))
            client.cut(flight, Outcome.CANCELLED, "enough")
            return to_one_record(await cut), to_one_record(await other)

    first, other = asyncio.run(run())
    assert (Outcome.CANCELLED, "enough", 5) == (first.outcome, first.error, first.events)
    assert Outcome.OK is other.outcome


def test_a_cancellation_from_outside_is_not_swallowed(server: Hostile) -> None:
    async def run() -> None:
        async with Client(Target(server.url("stall"), "m", "chat")) as client:
            task = asyncio.create_task(client.post(client.target.url("/v1/chat/completions"), b"{}"))
            await in_flight(client)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert set() == client.in_flight

    asyncio.run(run())
