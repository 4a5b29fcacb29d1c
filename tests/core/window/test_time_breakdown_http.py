"""Time breakdown over HTTP with something between: a slow way, two replicas behind a balancer,
somebody else's load."""

import asyncio
import contextlib
import itertools
import queue
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from frontier.client import run_trial
from frontier.client.ask.prompts import random_prompts
from frontier.client.ask.target import Target
from frontier.client.http.http_client import run
from frontier.core.model.points import TimeBreakdown
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Phase, Record, Trial
from frontier.core.window.from_records import window_data
from frontier.core.window.time_breakdown import time_breakdown
from frontier.simulator.http.process import SimulatorProcess
from frontier.simulator.spec import EngineSpec
from tests.core.window.test_time_breakdown import counted

pytestmark = [pytest.mark.slow, pytest.mark.process]
SHAPE = Shape.of(64, 32)


@contextlib.contextmanager
def balancer(*urls: str, delay: float = 0.0) -> Iterator[str]:
    """A TCP relay to these servers in turn, which holds every read back for `delay` seconds on its
    way.
    """
    ports = itertools.cycle([urlsplit(url).port for url in urls])
    tasks: list[asyncio.Task[None] | None] = []
    ready: queue.Queue[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = queue.Queue()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """In order, each read `delay` after it came."""
        loop = asyncio.get_running_loop()
        while data := await reader.read(2**16):
            loop.call_later(delay, writer.write, data)
        await asyncio.sleep(delay)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.current_task())
        onward = await asyncio.open_connection("127.0.0.1", next(ports))
        try:
            await asyncio.gather(relay(reader, onward[1]), relay(onward[0], writer))
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            for side in (writer, onward[1]):
                side.transport.abort()

    async def serve() -> None:
        stop = asyncio.Event()
        async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            ready.put((f"http://127.0.0.1:{port}/v1", asyncio.get_running_loop(), stop))
            await stop.wait()
            for task in filter(None, tasks):
                task.cancel()
            await asyncio.gather(*filter(None, tasks))
            await asyncio.sleep(0.05)  # what was aborted is closed in the loop's next turns

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    address, loop, stop = ready.get(timeout=5)
    try:
        yield address
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(5)


def metrics(*urls: str) -> tuple[str, ...]:
    return tuple(f"{url.removesuffix('/v1')}/metrics" for url in urls)


def measured(url: str, metrics_urls: tuple[str, ...], streams: int = 4) -> TimeBreakdown:
    records: list[Record] = []
    trial = Trial("d", SHAPE, streams, 1, Phase.GRID, 60, 1, 0.5, 0.0, 10.0, "f")
    target = Target(url, "sim-8b", "completions", dialect="vllm", metrics_urls=metrics_urls)
    prompts = random_prompts(SHAPE, 1)
    found = run(run_trial(trial, target, prompts, on_record=records.append, expected_e2e=0.3))
    breakdown = time_breakdown(window_data(found, records).server)
    assert breakdown is not None
    return breakdown


@pytest.fixture
def servers() -> Iterator[tuple[str, str]]:
    spec = EngineSpec.from_mapping({"step_base": "6ms", "max_num_seqs": 8})
    with SimulatorProcess(spec) as one, SimulatorProcess(spec) as other:
        yield one.url, other.url


def test_a_slow_way_is_network_and_nothing_else(servers: tuple[str, str]) -> None:
    near = measured(servers[0], metrics(servers[0]))
    with balancer(servers[0], delay=0.030) as url:
        far = measured(url, metrics(servers[0]))
    assert far.parts["network"] - near.parts["network"] == pytest.approx(0.060, abs=0.010)
    for breakdown in (near, far):
        assert abs(breakdown.rest) < 0.03 * breakdown.e2e
    assert far.parts["prefill"] == pytest.approx(near.parts["prefill"], rel=0.3)


def test_two_replicas_are_added_up_and_one_alone_is_refused(servers: tuple[str, str]) -> None:
    with balancer(*servers) as url:
        both = measured(url, metrics(*servers))
        half = measured(url, metrics(servers[0]))
    assert both.refused == ""
    assert abs(both.rest) < 0.03 * both.e2e
    server, client = counted(half)
    assert server < client


def test_somebody_elses_load_is_refused(servers: tuple[str, str]) -> None:
    other: list[TimeBreakdown] = []
    beside = threading.Thread(target=lambda: other.append(measured(servers[0], metrics(servers[0]), 2)))
    beside.start()
    mine = measured(servers[0], metrics(servers[0]))
    beside.join()
    server, client = counted(mine)
    assert server > client
    assert not mine.parts
