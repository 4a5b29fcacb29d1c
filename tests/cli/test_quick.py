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
from frontier.core.model.errors import MeasurementError, UsageError
from frontier.core.model.points import Estimate, Flag, Point
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Outcome, Record
from frontier.show.view.json_out import tree_of
from frontier.simulator.http.process import SimulatorProcess
from frontier.simulator.spec import EngineSpec
from tests.kit.commands import frontier
from tests.kit.golden import assert_golden_row
from tests.kit.sweeps import commands_in_virtual_time

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


@pytest.mark.process
@pytest.mark.slow
def test_a_short_minute_ends_in_plain_words(simulator: SimulatorProcess, short: None) -> None:
    for _ in range(3):  # a machine at work elsewhere may have no valid point; then it says so
        said = run(simulator.url)
        if said.exception is None:
            break
        assert isinstance(said.exception, MeasurementError)
    else:
        pytest.skip("this machine was too busy three times, and quick said so")
    assert f"frontier init {simulator.url} > sweep.yaml" in said.stdout
    assert simulator.spec.model_name in said.stderr
    assert not list(Path("runs").glob("quick*"))


@pytest.mark.process
def test_mistakes_are_told_before_a_minute_is_spent(simulator: SimulatorProcess) -> None:
    began = time.perf_counter()
    wrong = run(simulator.url, "--model", "other")
    assert isinstance(wrong.exception, MeasurementError)
    assert_golden_row("messages", str(wrong.exception))
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
    assert (1, 4) == tuple(config.loads)
    assert seconds == config.max_time
    assert config.deployments[0].timeouts.total >= 60 + 4 * (seconds - quick.SECONDS)


def test_what_the_server_says_of_itself_is_told_where_something_was_short() -> None:
    told = {1: {"num_requests_waiting": 50.0}, 64: {"num_requests_waiting": 12.4, "kv_cache_usage_perc_max": 0.97}}
    assert_golden_row("answers", "\n".join(quick.server_shortages(told)))
    assert [] == quick.server_shortages({64: {"num_requests_waiting": 0.2, "kv_cache_usage_perc_max": 0.4}})
    assert [] == quick.server_shortages({})


def point(c: int, ttft: float, *flags: Flag) -> Point:
    sure = {
        "p50_ttft": ttft / 2,
        "p99_ttft": ttft,
        "p50_tpot": 0.01,
        "p99_tpot": 0.02,
        "output_throughput": 90.0 * c,
    }
    metrics = {name: Estimate(value, value, value, 50) for name, value in sure.items()}
    return Point("default", Shape.of(256, 64), c, metrics, 50, flags)


BUSY = Flag("client_bound", "50 ms", "5 ms", "use an idle machine")


def found(*points: Point) -> quick.Findings:
    told = quick.findings_of(points)
    assert told is not None
    return told


def test_what_a_minute_shows_and_what_it_cannot_is_said_in_plain_words() -> None:
    several = found(point(1, 0.1), point(4, 0.15), point(16, 0.3)), found(point(1, 0.1), point(4, 0.2))
    cases = [*several, found(point(1, 2.0))]
    assert [(4, "p99_ttft"), (4, None), (None, "p99_ttft")] == [(told.fit, told.binding) for told in cases]
    assert_golden_row("answers", "\n\n".join("\n".join(quick.sentences(told, "http://x/v1")) for told in cases))


def test_what_cannot_be_relied_on_is_not_said_and_not_passed_over() -> None:
    assert quick.findings_of([point(1, 0.1, BUSY)]) is None
    busy = found(point(1, 0.1), point(4, 0.2, BUSY), point(16, 0.3, BUSY))
    slow = found(point(1, 0.1), point(64, 0.3, Flag("no_requests", "0 of 0 requests count", "1", "more time")))
    assert [(1, {4, 16}, 1), (1, {64}, 1)] == [(told.fit, set(told.invalid), told.best_at) for told in (busy, slow)]
    sentences = ["\n".join(quick.sentences(told, "http://x/v1")) for told in (busy, slow)]
    assert_golden_row("answers", "\n\n".join(sentences))


def test_the_findings_are_json() -> None:
    told = quick.findings_of([point(1, 0.1), point(4, 0.2, BUSY)])
    assert told is not None
    tree = orjson.loads(orjson.dumps(tree_of(told)))
    assert ({"1": 50, "4": 50}, {"4": ["client_bound"]}) == (tree["requests"], tree["invalid"])
    assert (1, None, 0.05) == (tree["fit"], tree["binding"], tree["ttft"])


def test_a_minute_of_the_embedded_engine_in_virtual_time(tmp_path: Path) -> None:
    with commands_in_virtual_time():
        said = frontier("quick", "simulator", "--json", cwd=tmp_path, here=True)
    assert said.code == 0, said.err
    assert "proven" not in said.err, "a minute proves nothing"
    told = json.loads(said.out)
    assert ("frontier.quick/1", "simulator") == (told["schema"], told["url"])
    assert 0 < told["ttft"] < 1
    assert told["highest"] in quick.USERS
    assert [] == list(tmp_path.iterdir())


@pytest.mark.nightly
@pytest.mark.process
@pytest.mark.slow
def test_the_real_minute(simulator: SimulatorProcess, tmp_path: Path) -> None:
    began = time.perf_counter()
    said = frontier("quick", simulator.url, "--json", cwd=tmp_path)
    assert time.perf_counter() - began < 90
    assert [] == list(tmp_path.iterdir())
    if said.code == 5:
        pytest.skip(f"this machine was too busy, and quick said so: {said.error}")
    assert said.code == 0, said.err
    assert 0 < json.loads(said.out)["ttft"] < 1
