"""The sweep's own metrics: true, and on loopback only."""

import socket
import time
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from frontier.config import load_config
from frontier.extras.cluster.prometheus_exporter import Telemetry
from frontier.planning.plan import make_plan
from frontier.planning.time_left import TimeLeft
from frontier.read_run import load
from tests.kit.commands import frontier, http_sweep, start, until_said
from tests.kit.golden import assert_golden_row
from tests.kit.sweeps import Told, sweep_in_virtual_time

TEXT = http_sweep("[1, 3]", requests=100, shape="32/4")


def read(text: bytes) -> dict[tuple[str, ...], float]:
    """Values by name and label values, in the order of the labels' names."""
    families = text_string_to_metric_families(text.decode())
    return {
        (s.name, *(s.labels[label] for label in sorted(s.labels))): s.value
        for family in families
        for s in family.samples
    }


def after_one_trial() -> tuple[Telemetry, Told, Told]:
    trials = make_plan(load_config(TEXT, "s")).trials
    told = Told()
    telemetry = Telemetry(told)
    telemetry.plan(2, 0)
    telemetry.trial_started(trials[0])
    telemetry.expect(TimeLeft(10.0))
    figures = {"p50_ttft": 0.1, "p99_ttft": 0.2, "p99_tpot": None, "output_throughput": 50.0, "error_rate": 0.0}
    telemetry.trial_finished(trials[0], figures)
    return telemetry, told, told


def test_what_the_conductor_tells_is_counted_and_passed_on() -> None:
    telemetry, told, _ = after_one_trial()
    found = read(telemetry.text())
    assert (2.0, 1.0) == (found[("frontier_sweep_trials_planned",)], found[("frontier_sweep_trials_finished",)])
    assert 0.2 == found[("frontier_ttft_seconds", "1", "default", "0.99", "32/4")]
    assert 50.0 == found[("frontier_output_tokens_per_second", "1", "default", "32/4")]
    assert 10.0 == found[("frontier_sweep_seconds_left",)]
    assert [10.0] == told.left
    assert not any(name[0] == "frontier_tpot_seconds" for name in found), "missing is not 0"
    assert 1 == len(told.finished)


def test_the_running_trial_is_told_and_gone_when_it_has_ended() -> None:
    telemetry, _, _ = after_one_trial()
    trial = make_plan(load_config(TEXT, "s")).trials[1]
    telemetry.trial_started(trial)
    tick = SimpleNamespace(
        stage="window", elapsed=3.0, in_flight=3, window_sent=70, failed=2, rate=None, p50_ttft=0.1, p99_ttft=None
    )
    telemetry.tick(tick)
    found = read(telemetry.text())
    assert 1.0 == found[("frontier_trial_running", "3", "default", "32/4")]
    assert (3.0, 70.0, 2.0) == tuple(
        found[(f"frontier_trial_{name}",)] for name in ("in_flight", "window_requests_sent", "requests_failed")
    )
    assert 1.0 == found[("frontier_trial_stage", "window")]
    telemetry.close()
    assert not any(name[0] == "frontier_trial_running" for name in read(telemetry.text()))


def test_the_sla_its_values_and_the_operating_point_are_exported_until_it_is_corrected(tmp_path: Path) -> None:
    text = TEXT.replace("p90_ttft: 500ms", "p50_ttft: 500ms, p50_e2e: 9s")
    sweep_in_virtual_time(tmp_path / "run", text)
    run = load(tmp_path / "run")
    (decision,) = run.solve()
    telemetry, (trial, *_) = Telemetry(Told(), run.limits()), make_plan(run.config).trials
    where = ("default", "p50_e2e", "32/4")
    telemetry.trial_started(trial)
    telemetry.trial_finished(trial, {"p50_ttft": 0.1, "p50_e2e": None})
    found = read(telemetry.text())
    assert (0.5, 9.0) == (found[("frontier_sla_limit", "p50_ttft")], found[("frontier_sla_limit", "p50_e2e")])
    assert [("frontier_sla_value", "1", "default", "p50_ttft", "32/4")] == [n for n in found if "sla_value" in n[0]]
    assert not any("operating_point" in name for name, *_ in found), "missing is not 0"
    telemetry.announced(decision, 60.0, None)
    found = read(telemetry.text())
    assert decision.load == found[("frontier_operating_point", "default", "32/4")]
    assert decision.metrics["p50_e2e"].value == found[("frontier_operating_point_value", *where)]
    assert decision.metrics["p50_e2e"].upper == found[("frontier_operating_point_bound", *where)]
    telemetry.corrected(decision.series)
    assert not any("operating_point" in name for name, *_ in read(telemetry.text()))


@pytest.mark.process
def test_a_sweep_serves_them_on_loopback_while_it_runs(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(TEXT.replace("requests: 100", "requests: 100000"))
    process = start("sweep", "sweep.yaml", "--prometheus", "0", cwd=tmp_path)
    try:
        address = until_said(process, r"http://127\.0\.0\.1:\d+/metrics")[0]
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            found = read(urllib.request.urlopen(address, timeout=5).read())
            if found.get(("frontier_trial_in_flight",)):
                break
            time.sleep(0.2)
        assert 1.0 == found[("frontier_trial_in_flight",)]
        assert 2.0 == found[("frontier_sweep_trials_planned",)]
    finally:
        process.kill()
        process.communicate()


@pytest.mark.process
def test_a_taken_port_is_told(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(TEXT)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        said = frontier("sweep", "sweep.yaml", "--prometheus", port, cwd=tmp_path, here=True)
    assert said.code == 2
    assert_golden_row("messages", said.err[said.err.index("error: ") :].replace(port, "PORT"))
