"""The fault matrix, faults of servers: finished trials are kept, the sweep goes on, and the reason
is reported."""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from benchmarks.faults.server import FaultyServer
from frontier.client.ask import preflight
from frontier.client.load import loop
from frontier.core.model.trials import Outcome
from frontier.extras.present.page import report_markdown
from frontier.extras.present.report import report_of
from frontier.read_run import load
from frontier.store.run_dir import RunDirectory
from frontier.sweep import conductor
from tests.faults.faulty_sweep import CONFIG, SPEC, FaultInjector, at_concurrency, run_sweep
from tests.kit.commands import frontier
from tests.kit.golden import assert_golden_row
from tests.kit.neutral import line_of, neutral, without_numbers
from tests.kit.sweeps import own_exit_code

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short waits of the circuit breaker."""
    monkeypatch.setattr(loop, "_LOST_AFTER", 0.3)
    monkeypatch.setattr(loop, "_DOWN_AFTER", 0.8)
    monkeypatch.setattr(preflight, "_TRY_EVERY", 0.3)
    monkeypatch.setattr(conductor, "MOST_REPEATS", 0)  # a busy machine is another matter


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FaultyServer]:
    with FaultyServer(SPEC, log=tmp_path / "server.log") as running:
        yield running


def journal(path: Path, event: str) -> list[dict[str, object]]:
    return [line for line in RunDirectory.read(path).journal_lines() if line["event"] == event]


def measured(path: Path) -> list[int]:
    return [point.load for point in load(path).points()]


def crash(server: FaultyServer) -> None:
    server.kill()
    time.sleep(0.8)
    server.start()


def hang(server: FaultyServer) -> None:
    server.freeze()
    time.sleep(3.0)
    server.thaw()


def storm(server: FaultyServer) -> None:
    server.fault("status", status=503, seconds=2.5)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(crash, marks=pytest.mark.fault("crash (SIGKILL) and restart")),
        pytest.param(hang, marks=[SLOW, pytest.mark.fault("freeze with open sockets (SIGSTOP)")]),
    ],
)
def test_a_server_that_comes_back_costs_the_trial_in_flight_and_no_more(
    fault: Callable[[FaultyServer], None], server: FaultyServer, tmp_path: Path
) -> None:
    injector = FaultInjector(at_concurrency(4, lambda: fault(server)))
    assert run_sweep(server, tmp_path / "run", injector, requests=30) == "finished"
    assert [2, 4] == measured(tmp_path / "run")
    assert [2, 4, 4] == [trial.load for trial in injector.started]
    (lost,) = journal(tmp_path / "run", "server_lost")
    assert "requests failed" in str(lost["reason"])
    assert_golden_row("progress", next(note for note in injector.notes if "back" in note))
    assert [0.0, 0.0] == [p.metrics["error_rate"].value for p in load(tmp_path / "run").points()]


@pytest.mark.fault("503 to everything")
@SLOW
def test_a_server_that_refuses_for_a_while_is_not_lost_and_its_refusals_count(
    server: FaultyServer, tmp_path: Path
) -> None:
    injector = FaultInjector(at_concurrency(4, lambda: storm(server)))
    assert run_sweep(server, tmp_path / "run", injector, requests=90) == "finished"
    assert not journal(tmp_path / "run", "server_lost")
    refused = [line for line in server.arrivals() if line["fault"] == "status"]
    run = RunDirectory.read(tmp_path / "run")
    kept = [record for key in run.finished() for record in run.records(key)]
    assert len(refused) == sum(record.status == 503 for record in kept), "each is in a file"
    (point,) = [p for p in load(tmp_path / "run").points() if p.load == 4]
    assert point.metrics["error_rate"].value > 0


@pytest.mark.fault("crash, and stays away")
@pytest.mark.slow
def test_a_server_that_stays_away_ends_the_sweep_with_what_is_finished(server: FaultyServer, tmp_path: Path) -> None:
    injector = FaultInjector(at_concurrency(4, server.kill))
    began = time.monotonic()
    assert run_sweep(server, tmp_path / "run", injector, ready_wait=2.0) == "server_lost"
    assert time.monotonic() - began < 15
    assert [2] == measured(tmp_path / "run")
    (given_up,) = journal(tmp_path / "run", "given_up")
    assert ("lost", True) == (given_up["cause"], "connection refused" in str(given_up["reason"]))
    (skipped,) = journal(tmp_path / "run", "skipped")
    assert skipped["trial"] in load(tmp_path / "run").skipped
    assert_golden_row("progress", without_numbers(neutral(str(skipped["reason"]))))
    server.start()
    again = FaultInjector(lambda _: None)
    assert run_sweep(server, tmp_path / "run", again) == "finished"
    assert [4] == [trial.load for trial in again.started]
    assert [2, 4] == measured(tmp_path / "run")
    assert {} == load(tmp_path / "run").skipped


@pytest.mark.fault("gone after the last trial")
@SLOW
def test_a_finished_run_is_reported_again_when_its_server_is_gone(server: FaultyServer, tmp_path: Path) -> None:
    """The server may be taken down in the morning: the same command tells the answer, and sends
    nothing.
    """
    (tmp_path / "sweep.yaml").write_text(CONFIG.format(url=server.url))
    first = frontier("sweep", "sweep.yaml", cwd=tmp_path)
    assert first.code == own_exit_code(next((tmp_path / "runs").iterdir())), first.err
    server.stop()
    again = frontier("sweep", "sweep.yaml", cwd=tmp_path)
    assert (first.code, first.out) == (again.code, again.out), again.err
    assert "cannot reach" not in again.err
    (run,) = (tmp_path / "runs").iterdir()
    assert [2, 1] == [len(journal(run, event)) for event in ("session", "server")]


@pytest.mark.fault("crashes whenever concurrency is high", times=4)
@SLOW
def test_a_setting_that_crashes_the_server_every_time_is_given_up_and_the_rest_goes_on(
    server: FaultyServer, tmp_path: Path
) -> None:
    injector = FaultInjector(at_concurrency(4, lambda: crash(server), times=99))
    assert (
        run_sweep(server, tmp_path / "run", injector, more="objectives: [output_throughput, p50_ttft]\n") == "finished"
    )
    assert [2] == measured(tmp_path / "run")
    assert 4 == sum(trial.load == 4 for trial in injector.started)  # twice, put off, and twice again at the end
    (why,) = load(tmp_path / "run").skipped.values()
    assert why.startswith("the server was lost 2 times")
    assert any("put off" in note for note in injector.notes)
    page = report_markdown(report_of(load(tmp_path / "run"), ()))
    assert why[1:] in line_of(page.replace("\\", ""), "Not measured", "c=4")


@pytest.mark.fault("429 with Retry-After")
@pytest.mark.slow
def test_a_server_that_says_retry_after_is_left_alone_that_long(server: FaultyServer, tmp_path: Path) -> None:
    act = at_concurrency(4, lambda: server.fault("status", status=429, retry_after="2", seconds=1.0))
    assert run_sweep(server, tmp_path / "run", FaultInjector(act)) == "finished"
    refused = [line for line in server.arrivals() if line["fault"] == "status"]
    assert 4 <= len(refused) <= 8  # each stream once, then quiet for two seconds
    (flagged,) = [p for p in load(tmp_path / "run").points() if p.load == 4]
    assert flagged.metrics["error_rate"].value > 0


@pytest.mark.fault("another model behind the address, between trials")
def test_another_model_behind_the_same_address_is_never_mixed_in(server: FaultyServer, tmp_path: Path) -> None:
    def reload(_: object) -> None:
        server.stop()
        server.start(model_name="sim-70b")

    injector = FaultInjector(lambda _: None, before=at_concurrency(4, lambda: reload(None)))
    assert run_sweep(server, tmp_path / "run", injector) == "server_lost"
    assert [2] == measured(tmp_path / "run")
    (given_up,) = journal(tmp_path / "run", "given_up")
    assert "another" == given_up["cause"]
    assert_golden_row("messages", neutral(str(given_up["reason"])))


@pytest.mark.fault("restarted between trials, the same model and version")
@SLOW
def test_a_server_that_is_restarted_between_trials_costs_nothing(server: FaultyServer, tmp_path: Path) -> None:
    def restart() -> None:
        server.stop()
        server.start()

    injector = FaultInjector(lambda _: None, before=at_concurrency(4, lambda: restart()))
    assert run_sweep(server, tmp_path / "run", injector) == "finished"
    assert [2, 4] == [trial.load for trial in injector.started]
    assert [] == journal(tmp_path / "run", "server_lost")
    assert [0.0, 0.0] == [p.metrics["error_rate"].value for p in load(tmp_path / "run").points()]


@pytest.mark.fault("another model or version after a crash")
@pytest.mark.slow
def test_another_model_after_a_crash_is_not_waited_for(server: FaultyServer, tmp_path: Path) -> None:
    def swap() -> None:
        server.kill()
        time.sleep(0.8)
        server.start(model_name="sim-70b")

    injector = FaultInjector(at_concurrency(4, swap))
    began = time.monotonic()
    assert run_sweep(server, tmp_path / "run", injector, ready_wait=60) == "server_lost"
    assert time.monotonic() - began < 20
    assert "another server answers" in str(journal(tmp_path / "run", "given_up")[0]["reason"])


@pytest.mark.fault("certificate expires")
@pytest.mark.slow
def test_a_certificate_that_expires_in_the_sweep_is_named(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    for name, days in (("good", 1), ("expired", -1)):
        leaf = authority.issue_cert("127.0.0.1", not_after=datetime.now(UTC) + timedelta(days=days))
        leaf.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / f"{name}.pem"))
    with FaultyServer(SPEC, tls=tmp_path / "good.pem") as server:

        def expire() -> None:
            server.kill()
            server.tls = tmp_path / "expired.pem"
            server.start()

        injector = FaultInjector(at_concurrency(4, expire))
        tls = f"tls: {{ca: {tmp_path / 'ca.pem'}}}\n"
        assert run_sweep(server, tmp_path / "run", injector, ready_wait=2.0, more=tls) == "server_lost"
    (given_up,) = journal(tmp_path / "run", "given_up")
    assert "expired" in str(given_up["reason"])


CLASSES = {
    "reset": {Outcome.STREAM_ERROR, Outcome.TRUNCATED},
    "close": {Outcome.TRUNCATED, Outcome.STREAM_ERROR},
    "drip": {Outcome.TIMEOUT},
    "hang": {Outcome.TIMEOUT},
    "garbage": {Outcome.PROTOCOL},
    "empty": {Outcome.EMPTY},
    "error_event": {Outcome.STREAM_ERROR},
    "not_a_stream": {Outcome.PROTOCOL},
}


@pytest.mark.fault("reset, close, silence, drip, garbage, empty stream, error in the stream, no stream")
@SLOW
@pytest.mark.parametrize("kind", CLASSES)
def test_requests_that_fail_one_by_one_are_failures_of_their_kind_and_never_sent_again(
    kind: str, server: FaultyServer, tmp_path: Path
) -> None:
    act = at_concurrency(4, lambda: server.fault(kind, share=0.4, after=0.02))
    injector = FaultInjector(act)
    assert run_sweep(server, tmp_path / "run", injector) == "finished"
    assert [2, 4] == [trial.load for trial in injector.started]
    run = RunDirectory.read(tmp_path / "run")
    records = [r for key in run.finished() for r in run.records(key)]
    failed = {r.outcome for r in records} - {Outcome.OK, Outcome.CANCELLED}
    assert failed
    assert failed <= CLASSES[kind]
    keys = [line["key"] for line in server.arrivals()]
    assert len(keys) == len(set(keys))
    point = load(tmp_path / "run").points()[-1]
    assert point.metrics["error_rate"].value > 0
    assert point.metrics["p90_ttft"].value == float("inf")
