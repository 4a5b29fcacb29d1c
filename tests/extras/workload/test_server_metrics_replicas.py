"""One address behind which several replicas answer (BerriAI/litellm#10595: each scrape meets
another worker; huggingface/inference-benchmarker#14: four vLLM behind nginx), and restarts, which
look alike: ten requests a second each, counters at 1,000 and 90,000."""

import http.server
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from frontier.client.ask.evidence import parse_metrics
from frontier.client.ask.facts import START
from frontier.extras.workload.server_metrics import MOST_LINES, WANTED, Increases
from tests.extras.workload.test_server_metrics import NAMES, buckets, text
from tests.kit.commands import frontier

RATE = 10
SERIES = (*NAMES["vllm"], "vllm:time_to_first_token_seconds", "vllm:e2e_request_latency_seconds")


def low(second: int) -> int:
    return 1_000 + RATE * second


def high(second: int) -> int:
    return 90_000 + RATE * second


def page(number: int, start: float | None = None) -> bytes:
    """Metrics of a replica that has counted so many requests."""
    h = buckets([100])
    series = dict.fromkeys(SERIES, type(h)(h.bounds, tuple(n * number for n in h.at_most), number, 100.0 * number))
    return text(series, more=() if start is None else (f"{START} {start}",))


def watched(*addresses: Callable[[int], tuple[int, float | None]], seconds: int = 20) -> Increases:
    """Readings once a second of what each address counts; the watch begins at 1,000,000."""
    increases = Increases(1_000_000.0)
    for second in range(seconds):
        pages = [page(*address(second)) for address in addresses]
        increases.add(parse_metrics(*pages, wanted=WANTED, most=MOST_LINES))
    return increases


def requests(increases: Increases) -> float:
    return sum(value for (name, _), value in increases.grown.items() if name == f"{SERIES[0]}_count")


RNG = random.Random(3)
CHOSEN = [RNG.random() < 0.5 for _ in range(20)]
SEVERAL: dict[str, Callable[[int], tuple[int, float | None]]] = {
    "by turns": lambda s: ((low, high)[s % 2](s), None),
    "at random": lambda s: ((low, high)[CHOSEN[s]](s), None),
    "another for three readings": lambda s: ((high if 8 <= s < 11 else low)(s), None),
    "three, one of them restarted": lambda s: (
        (low(s), high(s), 500 + RATE * s if s < 10 else RATE * (s - 10))[s % 3],
        None,
    ),
    "another that is older, for good": lambda s: (low(s), 5e5) if s < 10 else (high(s), 4e5),
    "another that was there before, for good": lambda s: (low(s), 5e5) if s < 10 else (low(s) + 40, 6e5),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_replicas_behind_one_address_are_seen(name: str) -> None:
    assert watched(SEVERAL[name]).several == 0


def test_the_address_with_replicas_is_named() -> None:
    assert watched(lambda s: (low(s), None), SEVERAL["by turns"]).several == 1


ONE: dict[str, Callable[[int], tuple[int, float | None]]] = {
    "from zero": lambda s: (low(s) if s < 10 else RATE * (s - 10), None),
    "to more than zero": lambda s: (low(s) if s < 10 else 400 + RATE * (s - 10), None),
    "of a server that had just begun": lambda s: (RATE * s + 5 if s < 10 else 6 + RATE * (s - 10), None),
    "said by its start, above what it had": lambda s: (
        (RATE * s, 9e5) if s < 10 else (40 * RATE + RATE * s, 1_000_009.0)
    ),
    "twice, said by its starts": lambda s: (
        (low(s), 9e5) if s < 5 else (RATE * (s - (5 if s < 12 else 12)), 1_000_005.0 if s < 12 else 1_000_012.0)
    ),
}


@pytest.mark.parametrize("name", ONE)
def test_after_a_restart_the_increase_is_a_lower_bound(name: str) -> None:
    increases = watched(ONE[name])
    assert increases.several is None
    assert increases.restarted
    assert 0.75 * 19 * RATE <= requests(increases) <= 19 * RATE


def test_of_three_named_replicas_one_or_all_may_be_restarted() -> None:
    restarted = ONE["from zero"]
    others = [lambda s: (low(s), None), lambda s: (high(s), None)]
    for addresses in ([restarted, *others], [restarted] * 3):
        increases = watched(*addresses)
        assert increases.several is None
        assert increases.restarted
        assert 3 * 0.9 * 19 * RATE <= requests(increases) <= 3 * 19 * RATE


def test_steady_counters_are_neither() -> None:
    increases = watched(lambda s: (low(s), 5e5))
    assert increases.several is None
    assert not increases.restarted
    assert requests(increases) == 19 * RATE


class Balanced(http.server.BaseHTTPRequestHandler):
    """The metrics of one address, of what `counted` says at each reading."""

    protocol_version = "HTTP/1.1"
    counted: Callable[[float], int]
    begun: float | None = None

    def do_GET(self) -> None:
        cls = type(self)
        if not self.path.endswith("/metrics"):
            self.send_error(404)
            return
        cls.begun = cls.begun or time.monotonic()
        body = page(cls.counted(time.monotonic() - cls.begun))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def said(counted: Callable[[float], int], tmp_path: Path, *words: str, over: str = "5s") -> Any:
    handler = type("Handler", (Balanced,), {"counted": staticmethod(counted)})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            url = f"http://127.0.0.1:{server.server_port}/metrics"
            return frontier("workload", url, "--over", over, *words, cwd=tmp_path)
        finally:
            server.shutdown()


@pytest.mark.process
def test_two_replicas_behind_one_address_are_refused_with_the_way_on(tmp_path: Path) -> None:
    turn = iter(range(10_000))
    answer = said(lambda s: (low, high)[next(turn) % 2](int(s)), tmp_path)
    assert answer.code == 5
    assert "replicas" in answer.error
    assert "frontier workload http://" in answer.err
    assert "requests/s" not in answer.out + answer.err


@pytest.mark.process
def test_a_leap_to_a_replica_for_good_is_refused(tmp_path: Path) -> None:
    answer = said(lambda s: (low if s < 2.5 else high)(int(s)), tmp_path)
    assert answer.code == 5
    assert "replicas" in answer.error


@pytest.mark.process
def test_after_one_restart_all_that_is_counted_is_called_a_lower_bound(tmp_path: Path) -> None:
    answer = said(lambda s: int(low(0) + RATE * s if s < 2.5 else RATE * (s - 2.5)), tmp_path)
    assert answer.code == 0, answer.err
    assert "at least" in next(line for line in answer.out.splitlines() if "requests/s arrive" in line)
    assert "at least" in next(line for line in answer.out.splitlines() if "Made by" in line)
    assert any("lower bound" in line for line in answer.err.splitlines())


def joined(number: int, *, alike: bool) -> bytes:
    """Two exporters behind one proxy, of one server (vllm-project/production-stack#617) or two."""
    pages = []
    for exporter in (0, 1):
        mean = 0.73012 if alike else 0.73012 + exporter * 0.0007
        h = buckets([100])
        series = {n: type(h)(h.bounds, tuple(b * number for b in h.at_most), number, mean * number) for n in SERIES}
        pages.append(text(series).replace(b"{", b'{exporter="%d",' % exporter))
    return b"\n".join(pages)


@pytest.mark.parametrize(("alike", "times"), [(True, 1), (False, 2)])
def test_a_server_that_is_exported_twice_is_counted_once(alike: bool, times: int) -> None:
    increases = Increases()
    for second in range(10):
        increases.add(parse_metrics(joined(low(second), alike=alike), wanted=WANTED, most=MOST_LINES))
    assert times * 9 * RATE == requests(increases)


def test_a_server_that_is_named_twice_is_counted_once() -> None:
    increases = Increases()
    for second in range(10):
        page = joined(low(second), alike=True).split(b"\n\n")[0]
        increases.add(parse_metrics(page, page, wanted=WANTED, most=MOST_LINES))
    assert 9 * RATE == requests(increases)
