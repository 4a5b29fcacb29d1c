"""Connections of a trial: each has a number, and the requests of a window are spread over as many
as asked, none of which makes a request wait for its handshake."""

import asyncio
import dataclasses
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
import trustme

from frontier.client.ask.target import Proxies, Target
from frontier.client.http.http_client import Client, run
from frontier.client.http.pool import Renewal, requests_each
from frontier.core.estimates.estimate import point
from frontier.core.model.decisions import Limit
from frontier.core.model.metrics import claim_floor
from frontier.core.model.trials import Measurement, Outcome, Record
from frontier.core.stats import connections
from frontier.core.window.from_records import window_data
from tests.client.http.test_http_client import ask
from tests.client.load.test_loop import go, target, trial
from tests.client.load.test_shard import go as go_sharded
from tests.kit.certificates import secure
from tests.kit.engine import Engine
from tests.kit.golden import assert_golden_row
from tests.kit.hostile import Hostile
from tests.kit.proxies import Forward, Serve, listening, pump

LIMIT = Limit("p90_ttft", 0.2)


@pytest.fixture(scope="module")
def server() -> Iterator[Hostile]:
    with Hostile() as running:
        yield running


def in_window(measurement: Measurement, records: list[Record]) -> list[Record]:
    window = measurement.window
    return [r for r in records if window.start <= r.sent < window.end]


def numbers(records: list[Record]) -> list[int | None]:
    return [r.connection for r in records]


@pytest.mark.process
def test_a_window_is_spread_over_as_many_connections_as_asked(server: Hostile) -> None:
    engine, before = Engine("renewed").install(), server.connections
    measurement, records = go(trial(4, 80), target(server, engine, connections=40))
    inside = in_window(measurement, records)
    assert {r.outcome for r in inside} == {Outcome.OK}
    used = set(numbers(records))
    assert None not in used
    # Two requests each, less what was opened in the ramp and what ends with the window.
    assert 34 <= len(set(numbers(inside))) <= 60
    assert max(numbers(inside).count(number) for number in used) <= 4
    # The server has seen as many, beside the one that asks for its metrics and those never used.
    assert len(used) < server.connections - before <= len(used) + 4 + 4
    health = measurement.health
    assert health.connections_renewed is not None
    assert len(used) == 4 + health.connections_renewed
    assert 0 == health.renewals_failed == health.resent


@pytest.mark.process
def test_no_renewed_connection_is_on_a_requests_clock(server: Hostile) -> None:
    engine = Engine("off_clock").install()
    measurement, records = go(trial(4, 60), target(server, engine, connections=60))
    inside = in_window(measurement, records)
    assert len(set(numbers(inside))) > 40
    assert [r.connect for r in inside] == [0.0] * len(inside)


def delayed(upstream: str, seconds: float) -> Serve:
    """A relay in which a connection takes so long before its first byte is passed on."""
    parts = urlsplit(upstream)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(seconds)
        theirs, ours = await asyncio.open_connection(parts.hostname, parts.port)
        await asyncio.gather(pump(reader, ours), pump(theirs, writer))

    return serve


@pytest.mark.process
def test_where_a_handshake_takes_longer_than_a_request_the_old_connection_goes_on() -> None:
    authority = trustme.CA()
    with Hostile(tls=secure(authority)) as server, authority.cert_pem.tempfile() as ca:
        engine = Engine("slow_handshake").install()
        with listening(delayed(server.url(""), 0.3)) as relay:
            aim = target(server, engine, connections=200, ca_file=ca)
            aim = dataclasses.replace(aim, base_url=f"https://127.0.0.1:{urlsplit(relay).port}/{engine.name}/v1")
            measurement, records = go(trial(2, 40, max_time=30.0), aim)
    inside = in_window(measurement, records)
    assert {r.outcome for r in inside} == {Outcome.OK}
    assert max(r.end - r.sent for r in inside) < 0.3, "a request waited for a handshake"
    assert 4 <= len(set(numbers(inside))) < 40


def at_most(upstream: str, connections_at_once: int) -> Serve:
    """A relay that closes what is opened beyond so many connections."""
    parts, open_now = urlsplit(upstream), [0]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if open_now[0] >= connections_at_once:
            return
        open_now[0] += 1
        try:
            theirs, ours = await asyncio.open_connection(parts.hostname, parts.port)
            await asyncio.gather(pump(reader, ours), pump(theirs, writer))
        finally:
            open_now[0] -= 1

    return serve


@pytest.mark.process
def test_where_a_proxy_lets_none_be_renewed_the_trial_goes_on_and_the_point_says_what_it_cannot_have_seen(
    server: Hostile,
) -> None:
    engine = Engine("few").install()
    asked = trial(4, 150)
    with listening(at_most(server.url(""), 5)) as relay:
        aim = dataclasses.replace(target(server, engine, connections=60), base_url=f"{relay}/{engine.name}/v1")
        measurement, records = go(asked, aim)
    inside = in_window(measurement, records)
    assert {r.outcome for r in inside} == {Outcome.OK}
    health = measurement.health
    assert health.renewals_failed is not None
    assert health.connections_renewed is not None
    assert health.renewals_failed > health.connections_renewed
    sample = window_data(measurement, records)
    seen = connections.count(sample)
    assert seen is not None
    assert seen < 29
    found = point(sample, names=(), limits=(LIMIT,))
    assert connections.least_requests(sample, 0.9) == claim_floor(0.9, 4)
    assert "too_few_connections" not in {flag.name for flag in found.flags}
    (note,) = [note for note in found.notes if "connections" in note]
    assert_golden_row("flags", re.sub(r"\d+ connections", "4 connections", re.sub(r"[\d.]+%", "53%", note, count=1)))


@pytest.mark.process
def test_client_processes_number_their_connections_apart(server: Hostile) -> None:
    engine = Engine("apart").install()
    measurement, records = go_sharded(trial(4, 60), target(server, engine, connections=30), 2)
    of_process = [{r.connection for r in records if r.stream % 2 == part} for part in (0, 1)]
    assert None not in set.union(*of_process)
    assert not set.intersection(*of_process)
    assert len({r.connection for r in in_window(measurement, records)}) >= 24
    assert (measurement.health.connections_renewed or 0) >= 16


@pytest.mark.process
def test_streams_that_are_enough_keep_their_connections(server: Hostile) -> None:
    engine = Engine("kept").install()
    measurement, records = go(trial(8, 80), target(server, engine, connections=8))
    assert set(numbers(records)) == set(range(8))
    assert 0 == measurement.health.connections_renewed


@pytest.mark.process
def test_through_a_forwarding_proxy_connections_have_no_number(server: Hostile) -> None:
    async def asked(**how: object) -> set[int | None]:
        async with Client(Target(server.url("good"), "m", "chat", trust_env=True), **how) as client:  # type: ignore[arg-type]
            client.renewal.requests_each = 1.0
            return {r.connection for r in await ask(client, 3)}

    with listening(Forward().serve) as proxy:
        assert {None} == run(asked(proxies=Proxies({"http": proxy})))
    direct = run(asked(proxies=Proxies()))
    assert {0, 1} <= direct <= {0, 1, 2}, "on a busy machine the next may not be open in time"


def test_allowances_are_the_wanted_number_on_average() -> None:
    renewal = Renewal()
    renewal.requests_each = 2.6
    given = [renewal.allowance() for _ in range(100)]
    assert {2, 3} == set(given)
    assert sum(given) in (259, 260)


def test_connections_from_before_are_not_all_replaced_at_once() -> None:
    renewal = Renewal()
    renewal.requests_each = 8.0
    rests = [renewal.rest() for _ in range(32)]
    assert set(range(1, 9)) == set(rests)
    assert max(rests.count(each) for each in rests) <= 5


@pytest.mark.parametrize(
    ("wanted", "streams", "requests", "open_loop", "each"),
    [
        (0, 1, 100, False, None),
        (8, 8, 100, False, None),
        (8, 8, 100, True, 12.5),
        (25, 8, 100, False, 4.0),
        (400, 8, 100, False, 1.0),
    ],
)
def test_requests_of_each_connection(
    wanted: int, streams: int, requests: int, open_loop: bool, each: float | None
) -> None:
    assert requests_each(wanted, streams, requests, open_loop=open_loop) == each
