"""`frontier quick` as a user meets it: a short one in this process, the real minute as a slow
test."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner, Result

from frontier.cli import quick
from frontier.config import load_config
from frontier.errors import MeasurementError, UsageError
from frontier.model import Estimate, Flag, Outcome, Point, Record, Shape
from frontier.simulator.process import SimulatorProcess
from frontier.simulator.spec import EngineSpec
from tests.commands import frontier

ENGINE = {"step_base": "4ms", "per_decode": "50us", "max_num_seqs": 8, "noise": 0.05}


@pytest.fixture(scope="module")
def simulator() -> Iterator[SimulatorProcess]:
    with SimulatorProcess(EngineSpec.from_mapping(ENGINE)) as running:
        yield running


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick, "USERS", (1, 24))
    monkeypatch.setattr(quick, "SECONDS", 3)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(quick.command, arguments, standalone_mode=False)


@pytest.mark.slow
def test_a_short_minute_ends_in_plain_words(simulator: SimulatorProcess, short: None) -> None:
    for _ in range(3):  # a machine at work elsewhere may have no valid point; then it says so
        said = run(simulator.url)
        if said.exception is None:
            break
        assert isinstance(said.exception, MeasurementError)
        assert "can be relied on" in str(said.exception)
    else:
        pytest.skip("this machine was too busy three times, and quick said so")
    assert "One user waits" in said.stdout
    assert "A minute cannot bound a p99" in said.stdout
    assert f"frontier init {simulator.url} > sweep.yaml" in said.stdout
    assert f"model   {simulator.spec.model_name} on " in said.stderr
    assert not list(Path("runs").glob("quick*"))


def test_mistakes_are_told_before_a_minute_is_spent(simulator: SimulatorProcess) -> None:
    began = time.perf_counter()
    wrong = run(simulator.url, "--model", "other")
    assert isinstance(wrong.exception, MeasurementError)
    assert "does not serve 'other'" in str(wrong.exception)
    unset = run(simulator.url, "--api-key-env", "NO_SUCH_VARIABLE_HERE")
    assert isinstance(unset.exception, UsageError)
    assert time.perf_counter() - began < 10


@pytest.mark.parametrize("model", ["yes", "a: b", "#x", 'say "hi"', "meta-llama/Llama-3.1-8B", None])
def test_any_name_of_a_model_survives_the_config(model: str | None) -> None:
    config = load_config(quick.config_text("http://127.0.0.1:1/v1", model, None), "quick")
    assert model == config.deployments[0].model


@pytest.mark.parametrize(
    ("tpot", "seconds"), [(0.01, quick.SECONDS), (0.04, quick.SECONDS), (0.1, 26), (3.0, quick.MOST_SECONDS)]
)
def test_a_slow_server_is_given_time_for_a_few_requests(tpot: float, seconds: int) -> None:
    times = {"sent": 0.0, "first": 9.0, "last": 9.0 + 15 * tpot, "end": 30.0}
    record = Record(0, 0, outcome=Outcome.OK, asked_isl=0, asked_osl=16, completion_tokens=16, **times)
    assert seconds == quick.seconds_for(record)
    config = load_config(quick.config_text("http://127.0.0.1:1/v1", None, None, (1, 4), each=seconds), "quick")
    assert (1, 4) == tuple(config.concurrency)
    assert seconds == config.max_time
    assert config.deployments[0].timeouts.total >= 60 + 4 * (seconds - quick.SECONDS)


def test_what_the_server_says_of_itself_is_told_where_something_was_short() -> None:
    told = {1: {"num_requests_waiting": 50.0}, 64: {"num_requests_waiting": 12.4, "kv_cache_usage_perc_max": 0.97}}
    assert [
        "With 64 users the server had 12.4 requests waiting on average and its KV cache 97.0% full."
    ] == quick.server_shortages(told)
    assert [] == quick.server_shortages({64: {"num_requests_waiting": 0.2, "kv_cache_usage_perc_max": 0.4}})
    assert [] == quick.server_shortages({})


def point(c: int, ttft: float, *flags: Flag) -> Point:
    sure = {
        "p50_ttft": ttft / 2,
        "p90_ttft": ttft,
        "p50_tpot": 0.01,
        "p90_tpot": 0.02,
        "output_throughput": 90.0 * c,
    }
    metrics = {name: Estimate(value, value, value, 50) for name, value in sure.items()}
    return Point("default", Shape.of(256, 64), c, metrics, 50, flags)


BUSY = Flag("client_bound", "50 ms", "5 ms", "use an idle machine")


def said_of(*points: Point) -> str:
    told = quick.findings_of(points)
    assert told is not None
    return " ".join(quick.sentences(told, "http://x/v1"))


def test_what_a_minute_shows_and_what_it_cannot_is_said_in_plain_words() -> None:
    said = said_of(point(1, 0.1), point(4, 0.4), point(16, 1.5))
    assert "One user waits 50.0 ms for the first token and then reads 100 tokens a second." in said
    assert "About 4 users at once fit a chat" in said
    assert "p90 TTFT exceeds its limit first" in said
    assert "A minute cannot bound a p99" in said
    assert "frontier init http://x/v1 > sweep.yaml && frontier sweep sweep.yaml" in said
    assert "All 4 users tried at once fit a chat" in said_of(point(1, 0.1), point(4, 0.2))
    assert "Not even 1 user fit a chat" in said_of(point(1, 2.0))


def test_what_cannot_be_relied_on_is_not_said_and_not_passed_over() -> None:
    assert quick.findings_of([point(1, 0.1, BUSY)]) is None
    said = said_of(point(1, 0.1), point(4, 0.2, BUSY), point(16, 0.3, BUSY))
    assert "1 user at once fit a chat" in said
    assert "nothing can be said about more" in said
    assert "Not counted: 4, 16 users (client_bound): this machine was too busy to measure them." in said
    slow = said_of(point(1, 0.1), point(64, 0.3, Flag("no_requests", "0 of 0 requests count", "1", "more time")))
    assert "Not counted: 64 users (no_requests): no request was sent and answered in the time they had." in slow
    assert "with 1 user." in said


def test_the_findings_are_json() -> None:
    told = quick.findings_of([point(1, 0.1), point(4, 0.2, BUSY)])
    assert told is not None
    tree = orjson.loads(orjson.dumps(told.tree()))
    assert ({"1": 50, "4": 50}, {"4": ["client_bound"]}) == (tree["requests"], tree["invalid"])
    assert (1, None, 0.05) == (tree["fit"], tree["binding"], tree["ttft"])


@pytest.mark.slow
def test_the_real_minute(simulator: SimulatorProcess, tmp_path: Path) -> None:
    began = time.perf_counter()
    said = frontier("quick", simulator.url, "--json", cwd=tmp_path)
    assert time.perf_counter() - began < 90
    assert said.code in (0, 5), said.err
    if said.code == 0:
        told = json.loads(said.out)
        assert "frontier.quick/1" == told["schema"]
        assert 0 < told["ttft"] < 1
        assert told["highest"] in quick.USERS
    assert [] == list(tmp_path.iterdir())
