"""How often a server's metrics are read: at both edges of a window, between them the more seldom
the longer it takes, and never where the config says so."""

import asyncio
import itertools
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from frontier.cli.probe_checklist import probe
from frontier.client.ask.facts import moments_of
from frontier.client.ask.preflight import preflight
from frontier.client.http.http_client import run
from frontier.core.estimates.estimate import point
from frontier.core.flags.flags import flags
from frontier.core.model.trials import Measurement
from frontier.core.window.from_records import window_data
from frontier.core.window.time_breakdown import time_breakdown
from tests.client.load.test_loop import go, target, trial
from tests.kit.engine import Engine
from tests.kit.hostile import Call, Hostile

pytestmark = pytest.mark.process


@dataclass
class Slow(Engine):
    """An engine whose metrics take a while; `asked` is how often they were asked for."""

    takes: float = 0.0
    asked: int = 0
    began: list[float] = field(default_factory=list)

    async def answer(self, call: Call) -> None:
        if call.path.endswith("/metrics"):
            self.asked += 1
            await asyncio.sleep(self.takes)
        await super().answer(call)


@pytest.fixture(scope="module")
def server() -> Iterator[Hostile]:
    with Hostile() as running:
        yield running


def times_of(measurement: Measurement) -> list[float]:
    (source,) = [source for source in measurement.readings if source.source == "metrics"]
    return moments_of(source)[0]


@pytest.mark.parametrize(("takes", "least"), [(0.0, 1.0), (0.1, 2.0), (0.4, 8.0)])
def test_readings_are_at_both_edges_and_the_rarer_the_longer_they_take(
    server: Hostile, takes: float, least: float
) -> None:
    engine = Slow(f"takes{takes}", takes=takes).install()
    measurement, _ = go(trial(2, 10_000, min_time=4.5, max_time=5.0), target(server, engine))
    times, window = times_of(measurement), measurement.window
    assert window.start <= times[0] <= window.start + takes + 1.0
    assert window.end <= times[-1] + 0.1 <= window.end + 3 * takes + 1.5
    gaps = [b - a for a, b in itertools.pairwise(times[:-1])]
    assert all(gap >= 0.95 * least for gap in gaps)
    assert not gaps or statistics.median(gaps) < 2 * least + 1.0
    assert measurement.server["observed_from"] == pytest.approx(times[0])


def test_metrics_none_reads_nothing_and_what_is_missing_is_not_zero(server: Hostile) -> None:
    engine = Slow("unread", owner="someone").install()
    quiet = target(server, engine, metrics_urls=None, dialect=None)
    run(preflight(quiet))
    checks = {check.name: check for check in run(probe(quiet))}
    assert checks["metrics"].state == "note"
    measurement, records = go(trial(2, 60), target(server, engine, metrics_urls=None))
    assert engine.asked == 0
    assert () == tuple(source for source in measurement.readings if source.source == "metrics")
    sample = window_data(measurement, records)
    (facts,) = sample.server
    assert not [name for name in facts if name.startswith(("num_", "kv_", "observed", "client_"))]
    assert time_breakdown(sample.server) is None
    assert not [flag for flag in flags(sample) if "metrics" in flag.measured]
    assert not [note for note in point(sample).notes if "metrics" in note]


def test_a_probe_sees_processes_that_answer_by_turns(server: Hostile) -> None:
    starts = itertools.cycle([1.7e9, 1.6e9])
    engine = Engine("by_turns", started=lambda _: next(starts)).install()
    checks = {check.name: check for check in run(probe(target(server, engine)))}
    assert checks["replicas"].state == "warn"
    assert "none" in checks["replicas"].detail
