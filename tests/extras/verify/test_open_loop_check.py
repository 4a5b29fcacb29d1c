"""The open-loop check: Poisson arrivals at the rate that the operating point served, judged by the
same rules."""

import asyncio
import heapq
import json
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

import frontier
from frontier.cli.main import run as cli
from frontier.client.load.loop import TrialProgress
from frontier.config import DeploymentConfig, parse_sla
from frontier.core.model.decisions import Verdict
from frontier.core.model.errors import AnotherServerError, ExitCode, exit_code
from frontier.core.model.loads import CappedRate
from frontier.core.model.points import Flag
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Measurement, Outcome, Phase, Record, Trial, Window
from frontier.extras.verify import finding, open_loop_check
from frontier.extras.verify.checked_text import verified_json, verified_text
from frontier.extras.verify.found_rates import FoundRate
from frontier.extras.verify.found_text import found_json, found_text, load_trial_text
from frontier.planning.sla_result import Checked
from frontier.run import Run
from frontier.search.rate_policy import is_overloaded
from frontier.show.view.wording import VERDICT_WORDS
from frontier.simulator.spec import EngineSpec
from frontier.store.run_dir import RunDirectory
from frontier.sweep.backend import Facts, OnRecord
from tests.kit.commands import frontier as command
from tests.kit.commands import start
from tests.kit.golden import assert_golden_row
from tests.kit.neutral import without_numbers
from tests.kit.sweeps import ENGINES, config_text, sweep_in_virtual_time

SLA = "p90_ttft<=200ms"
MODEL = EngineSpec.from_mapping({}).model_name


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of the simulated engine in virtual time."""
    path = tmp_path_factory.mktemp("runs") / "night"
    sweep_in_virtual_time(path, config_text(ENGINES["smooth"], sla="{p90_ttft: 200ms}", requests=200))
    return path


class Queue:
    """A server of so many places, each a request at a time, at most the trial's concurrency of
    them: what arrives when all are taken waits. `stop_at`: the trial of this number is interrupted
    by the user; `kill_at`: it is killed.
    """

    def __init__(
        self,
        places: int,
        service: float,
        identity: str = "virtual",
        stop_at: int | None = None,
        kill_at: int | None = None,
    ) -> None:
        self.places, self.service, self.identity = places, service, identity
        self.stop_at, self.kill_at = stop_at, kill_at
        self.rates: list[float] = []
        self.prepared = 0
        self.user_stop = asyncio.Event()

    async def prepare(self, deployment: DeploymentConfig) -> Facts:
        self.prepared += 1
        return Facts(deployment.name, "http://queue", MODEL, self.identity)

    async def run(
        self,
        trial: Trial,
        *,
        expected_e2e: float | None,
        on_record: OnRecord,
        on_tick: Callable[[TrialProgress], None],
        stop: asyncio.Event,
    ) -> Measurement:
        rate = trial.load.per_second or 0.0
        self.rates.append(rate)
        rng = random.Random(trial.seed)
        free = [0.0] * min(self.places, trial.load)
        due, opened, sent, number = 0.0, trial.warmup, 0, 0
        while sent < trial.requests * 1.02 and not stop.is_set():
            due += rng.expovariate(rate)
            start = max(due, heapq.heappop(free))
            service = self.service * rng.uniform(0.9, 1.1)
            heapq.heappush(free, start + service)
            first, end = start + 0.2 * service, start + service
            if due >= opened:
                on_tick(TrialProgress("window", opened, 0, sent, 0))
                sent += 1
            if self.stop_at == len(self.rates):
                self.user_stop.set()
                on_tick(TrialProgress("window", opened, 0, sent, 0))
            on_record(
                Record(
                    number,
                    0,
                    start,
                    Outcome.OK,
                    end,
                    256,
                    32,
                    first=first,
                    last=end,
                    prompt_tokens=256,
                    completion_tokens=32,
                    events=32,
                    reads=32,
                    scheduled=due,
                )
            )
            number += 1
            if self.kill_at == len(self.rates) and number > 20:
                raise KeyboardInterrupt
        ended = "interrupted" if stop.is_set() else "requests"
        return Measurement(trial, 1.7e9, Window(min(opened, due), due), ended, server_identity=self.identity)  # type: ignore[arg-type]


@contextmanager
def sender(run: Run, backend: Queue) -> Iterator[open_loop_check.Sender]:
    with RunDirectory.open_to_verify(run.path) as store:
        yield open_loop_check.Sender(run, backend, store, lambda _: None, backend.user_stop)  # type: ignore[arg-type]


def plain(text: str) -> str:
    """An answer without its numbers and their columns: each check of a run has its own seed."""
    return " ".join(without_numbers(text).split())


def check(run: Run, backend: Queue, **options: float) -> list[Checked]:
    wanted = open_loop_check.checks(run, run.limits(), **options)  # type: ignore[arg-type]
    with sender(run, backend) as sending:
        return asyncio.run(open_loop_check.verify(sending, wanted))


def test_the_rate_is_what_was_estimated_and_the_limit_that_of_the_operating_point(swept: Path) -> None:
    run = frontier.load(swept)
    (decision,) = run.solve()
    (estimated,) = run.answers()[0].arrivals.values()
    served = decision.metrics["request_throughput"].value
    (default,) = open_loop_check.checks(run, run.limits())
    (whole,) = open_loop_check.checks(run, run.limits(), load=1.0)
    (part,) = open_loop_check.checks(run, run.limits(), load=0.8, requests=123)
    assert (default.rate, default.load) == (estimated.rate, estimated.rate / served)
    assert (whole.rate, 0.8 * whole.rate) == (served, part.rate)
    assert (False, True, True) == (default.asked, whole.asked, part.asked)
    assert 123 == part.requests
    assert decision.metrics["p90_ttft"].n <= default.requests <= whole.requests
    for check in (default, whole):
        trial = open_loop_check.open_trial(run.config, check, 1)
        assert estimated.cap == decision.load == trial.load
        assert trial.max_time >= 2 * check.requests / check.rate
        assert trial.seed != open_loop_check.open_trial(run.config, check, 2).seed


def test_what_waits_for_admission_waits_and_its_wait_counts(swept: Path) -> None:
    """A server with room for all gives a first token after 0.05 s. With the operating point's limit
    in flight, which it has reached at the closed loop's rate, arrivals wait at the client.
    """
    run = frontier.load(swept)
    (decision,) = run.solve()
    assert decision.load is not None
    service = decision.load / decision.metrics["request_throughput"].value
    (most,) = check(run, Queue(places=10_000, service=service), load=1.0)
    assert Verdict.VIOLATES is most.judgement.verdict
    assert most.point.metrics["p90_ttft"].value > 0.4 * service
    assert most.cap == decision.load
    assert most.in_flight > decision.load  # those that wait are there too
    (less,) = check(run, Queue(places=10_000, service=service), load=0.6)
    assert Verdict.MEETS is less.judgement.verdict


def test_a_server_with_room_meets_and_the_sweep_is_left_alone(swept: Path) -> None:
    run = frontier.load(swept)
    before = {p.load: p.n for p in run.points()}
    backend = Queue(places=10_000, service=0.2)
    (done,) = check(run, backend)
    assert (Verdict.MEETS, ExitCode.YES) == (done.judgement.verdict, exit_code([done.judgement.verdict]))
    assert done.point.metrics["p90_ttft"].value == pytest.approx(0.042, rel=0.1)
    assert done.in_flight == pytest.approx(done.check.rate * 0.2, rel=0.2)
    again = frontier.load(swept)
    assert before == {p.load: p.n for p in again.points()}
    kept = RunDirectory.read(swept)
    assert not any(trial.startswith("verify") for trial in kept.finished())
    assert list((swept / "verify" / "trials").glob("*.jsonl"))


def test_a_load_beyond_the_server_is_a_no_and_not_a_failed_measurement(swept: Path) -> None:
    run = frontier.load(swept)
    (wanted,) = open_loop_check.checks(run, run.limits())
    places = 8
    backend = Queue(places=places, service=1.5 * places / wanted.rate)
    (done,) = check(run, backend)
    assert (Verdict.VIOLATES, ExitCode.NO) == (done.judgement.verdict, exit_code([done.judgement.verdict]))
    assert done.in_flight > 10 * places, "the queue grows"
    assert "    frontier verify --find" == verified_text([done]).splitlines()[-1]
    assert_golden_row("answers", plain(verified_text([done])))


def test_too_few_requests_are_unproven_and_say_what_would_do(swept: Path) -> None:
    run = frontier.load(swept)
    (done,) = check(run, Queue(places=10_000, service=0.2), requests=60)
    assert (Verdict.UNPROVEN, ExitCode.NOT_PROVEN) == (done.judgement.verdict, exit_code([done.judgement.verdict]))
    need = done.judgement.need
    text = verified_text([done], again="frontier verify runs/x")
    assert f"    frontier verify runs/x --requests {need}" == text.splitlines()[-1]
    assert "no bound" in text
    assert "*" not in text, "a star has no legend here"


@pytest.mark.parametrize("need", [None, 700])
def test_a_busy_client_that_widened_the_bounds_is_the_cause_that_is_told(swept: Path, need: int | None) -> None:
    (done,) = check(frontier.load(swept), Queue(places=10_000, service=0.2), requests=60, load=0.8)
    flag = Flag("client_bound", "event loop late (p99) 23.3 ms", "5.00 ms", "free a core", fatal=False)
    busy = replace(done, point=replace(done.point, flags=(flag,)), judgement=replace(done.judgement, need=need))
    text = " ".join(verified_text([busy]).split())
    assert "23.3 ms, limit 5.00 ms" in text
    assert f"frontier verify --load 80% --requests {need or done.point.n}" in text
    assert not any(wrong in text for wrong in ("too few", "too close", "--find"))


def test_the_command_that_would_decide_keeps_the_load(swept: Path) -> None:
    (done,) = check(frontier.load(swept), Queue(places=10_000, service=0.2), requests=60, load=0.8)
    assert f"frontier verify --load 80% --requests {done.judgement.need}" in verified_text([done])


def test_text_and_json_have_both_loops(swept: Path) -> None:
    run = frontier.load(swept)
    done = check(run, Queue(places=10_000, service=0.2))
    assert_golden_row("answers", plain(verified_text(done)))
    tree = verified_json(done)
    (shape,) = json.loads(json.dumps(tree))["shapes"]
    assert ("frontier.verify/1", "meets", "256/32") == (tree["schema"], shape["verdict"], shape["shape"])
    assert {"value", "low", "high", "n"} <= shape["metrics"]["p90_ttft"].keys()
    assert "p90_ttft" in shape["closed_loop"]


def test_a_second_check_is_kept_beside_the_first(swept: Path) -> None:
    run = frontier.load(swept)
    before = len(list((swept / "verify" / "trials").glob("*.jsonl")))
    check(run, Queue(places=10_000, service=0.2))
    assert before + 1 == len(list((swept / "verify" / "trials").glob("*.jsonl")))


def test_another_server_is_refused(swept: Path) -> None:
    backend = Queue(places=10, service=0.1, identity="vllm 9")
    with pytest.raises(AnotherServerError) as refused:
        check(frontier.load(swept), backend)
    assert_golden_row("messages", str(refused.value))


def test_an_interrupted_check_leaves_nothing_behind(swept: Path) -> None:
    before = sorted((swept / "verify" / "trials").glob("*"))
    assert [] == check(frontier.load(swept), Queue(places=10_000, service=0.2, stop_at=1))
    assert before == sorted((swept / "verify" / "trials").glob("*"))


def test_what_cannot_be_checked_says_why(
    swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("concurrency,shape,n,p99_ttft\n8,64/8,2000,0.1\n")
    assert 0 == cli(["import", "t.csv", "-o", "imported"])
    assert 2 == cli(["verify", "imported", "--sla", "p99_ttft<=1s"])
    assert_golden_row("messages", capsys.readouterr().err.partition("error: ")[2], "imported")
    assert 3 == cli(["verify", str(swept), "--sla", "p90_ttft<=1us"])
    assert_golden_row("messages", "\n".join(capsys.readouterr().err.splitlines()[-1:]), "no answer")
    for load in ("0%", "x", "2000%"):
        assert 2 == cli(["verify", str(swept), "--load", load])
        assert_golden_row("messages", capsys.readouterr().err, load)


@pytest.mark.process
@pytest.mark.slow
def test_the_command_sends_real_arrivals_and_answers(tmp_path: Path) -> None:
    path = tmp_path / "run"
    sweep_in_virtual_time(path, config_text(ENGINES["smooth"], sla="{p90_ttft: 200ms}", requests=200))
    journal = path / "journal.jsonl"  # it was no server that answered in virtual time
    journal.write_text("".join(x for x in journal.read_text().splitlines(True) if '"event":"server"' not in x))
    said = command("verify", "run", "--load", "10%", "--requests", "110", cwd=tmp_path)
    assert "256/32  110 requests " in said.err
    assert "trials run" not in said.err
    head = said.out.partition(",")[0]
    verdicts = {words: verdict for verdict, words in VERDICT_WORDS.items()}
    assert said.code == exit_code([verdicts[head]]), said.err
    (records,) = (path / "verify" / "trials").glob("*.jsonl")
    kept = [json.loads(line) for line in records.read_text().splitlines()]
    assert len(kept) >= 110
    assert [] == [record for record in kept if "scheduled" not in record]


# --- the highest rate that holds


@pytest.fixture
def night(tmp_path: Path) -> Path:
    """A run of low concurrencies, so that a search takes few requests, in which nothing was found
    before.
    """
    text = config_text(ENGINES["smooth"], sla="{p90_ttft: 200ms}", requests=200)
    sweep_in_virtual_time(tmp_path / "night", text.replace("[1, 2, 4, 8, 16, 32, 64]", "[1, 2, 4, 8]"))
    return tmp_path / "night"


def fitting(run: Run) -> Queue:
    """A server that serves what the operating point served, with all its places taken."""
    (search,) = open_loop_check.searches(run, run.limits())
    return Queue(10_000, search.policy.in_flight / search.policy.top)


def find(run: Run, backend: Queue, sla: str | None = None) -> list[FoundRate]:
    wanted = open_loop_check.searches(run, parse_sla(sla) if sla else run.limits())
    with sender(run, backend) as sending:
        coroutine = finding.find(sending, wanted, on_ask=lambda *_: None, on_trial=lambda *_: None)
        return asyncio.run(coroutine)


def test_a_rate_is_found_and_the_answer_says_for_how_many_in_flight(night: Path) -> None:
    run = frontier.load(night)
    (search,) = open_loop_check.searches(run, run.limits())
    backend = fitting(run)
    (found,) = find(run, backend)
    assert (Verdict.MEETS, ExitCode.YES) == (found.done.verdict, exit_code([found.done.verdict]))
    assert found.proven is not None
    assert found.proven in backend.rates
    assert 0.5 * search.policy.top < found.proven < search.policy.top
    assert found.policy.in_flight == search.decision.load
    text = verified_and_found(found)
    assert f"{found.loss:.0%} below the" in text.splitlines()[0]
    assert (found.done.refused is not None) == ("Next higher tried: " in text)
    assert_golden_row("answers", text)
    (shape,) = json.loads(json.dumps(found_json([found])))["shapes"]
    assert {"verdict", "rate", "load", "metrics", "closed_loop", "binding", "notes", "flags"} <= shape.keys()
    assert ("meets", found.proven) == (shape["verdict"], shape["rate"])
    assert shape["most_in_flight"] == found.policy.in_flight
    assert len(backend.rates) == len(shape["find"]["trials"])


def verified_and_found(found: FoundRate) -> str:
    return found_text([found], width=200, again="frontier verify night")


def test_the_same_again_sends_nothing_and_says_the_same(night: Path) -> None:
    run = frontier.load(night)
    first = find(run, fitting(run))
    backend = fitting(run)
    second = find(frontier.load(night), backend)
    assert ([], 0) == (backend.rates, backend.prepared)
    assert [verified_and_found(f) for f in first] == [verified_and_found(f) for f in second]
    assert open_loop_check.checks(run, run.limits())  # and the operating point is what it was


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_what_is_finished_counts_when_it_goes_on(night: Path, tmp_path: Path, how: str) -> None:
    shutil.copytree(night, tmp_path / "whole")
    whole = frontier.load(tmp_path / "whole")
    backend = fitting(whole)
    (expected,) = find(whole, backend)
    cut = fitting(whole)
    if how == "stopped":
        cut.stop_at = 3
        assert [] == find(frontier.load(night), cut)
    else:
        cut.kill_at = 3
        with pytest.raises(KeyboardInterrupt):
            find(frontier.load(night), cut)
    assert 2 == len(list((night / "verify" / "trials").glob("*.jsonl")))
    assert not list((night / "verify" / "trials").glob("*.part"))
    rest = fitting(whole)
    (found,) = find(frontier.load(night), rest)
    assert backend.rates == [*cut.rates[:2], *rest.rates]
    assert verified_and_found(expected) == verified_and_found(found)


def test_another_sla_has_trials_of_its_own(night: Path) -> None:
    run = frontier.load(night)
    find(run, fitting(run))
    backend = fitting(run)
    find(run, backend, "p90_ttft<=190ms")
    assert backend.rates


def test_no_rate_is_a_no(night: Path) -> None:
    run = frontier.load(night)
    (found,) = find(run, Queue(places=10_000, service=2.0))
    assert (Verdict.VIOLATES, ExitCode.NO) == (found.done.verdict, exit_code([found.done.verdict]))
    text = verified_and_found(found)
    assert_golden_row("answers", text)
    (shape,) = found_json([found])["shapes"]
    assert ("violates", None, {}) == (shape["verdict"], shape["rate"], shape["metrics"])


def test_what_lies_on_its_limit_is_not_proven_and_says_what_to_try(night: Path) -> None:
    run = frontier.load(night)
    backend = Queue(places=10_000, service=0.2)  # the first token after 36 to 44 ms
    (found,) = find(run, backend, "p90_ttft<=43.2ms")
    assert (Verdict.UNPROVEN, ExitCode.NOT_PROVEN) == (found.done.verdict, exit_code([found.done.verdict]))
    text = verified_and_found(found)
    assert_golden_row("answers", text)


def test_a_rate_that_is_far_too_much_is_ended_early(night: Path) -> None:
    run = frontier.load(night)
    (search,) = open_loop_check.searches(run, run.limits())
    slow = Queue(10_000, 6 * search.policy.in_flight / search.policy.top)  # a sixth of what the closed loop had
    (found,) = find(run, slow, "p90_ttft<=400ms")
    (first, data), *_ = found.history
    assert is_overloaded(data)
    assert data.n < 0.7 * first.requests
    assert found.history[1:]
    assert all(trial.load < first.load for trial, _ in found.history[1:])
    assert_golden_row("progress", load_trial_text(first, data, search.decision.limits))


def test_a_queue_that_grows_ends_a_trial_whose_limits_do_not_see_it() -> None:
    trial = Trial("d", Shape.of(256, 32), CappedRate.at(10.0, 8), 1, Phase.SCAN, 1000, 1, 0.0, 0.0, 60.0, "f")
    watch = finding.EarlyEnd(trial, parse_sla("p99_tpot<=1s"), spare=1.0)

    def answered(due: float, waited: float) -> Record:
        at = due + waited
        return Record(
            0, 0, at, Outcome.OK, at + 1, 256, 32, first=at + 0.5, last=at + 1, completion_tokens=32, scheduled=due
        )

    watch.record(answered(1.0, 16.0))
    assert not watch.halt.is_set()  # in the warm-up
    watch.tick(TrialProgress("window", 5.0, 0, 0, 0), stopped=False)
    watch.record(answered(6.0, 14.0))
    assert not watch.halt.is_set()
    watch.record(answered(6.0, 15.5))
    assert watch.halt.is_set()


def test_a_trial_ends_when_twice_as_many_as_may_are_over_a_limit() -> None:
    trial = Trial("d", Shape.of(256, 32), CappedRate.at(10.0, 8), 1, Phase.SCAN, 100, 1, 0.0, 0.0, 60.0, "f")
    watch = finding.EarlyEnd(trial, parse_sla("p90_ttft<=1s"), spare=1.0)
    watch.tick(TrialProgress("window", 0.0, 0, 0, 0), stopped=False)
    failed = Record(0, 0, 1.0, Outcome.TIMEOUT, 2.0, 256, 32, scheduled=1.0)
    mine = Record(0, 0, 1.0, Outcome.CANCELLED, 2.0, 256, 32, scheduled=1.0)
    for _ in range(20):
        watch.record(failed)
        watch.record(mine)
    assert not watch.halt.is_set()
    watch.record(failed)
    assert watch.halt.is_set()


def test_find_sizes_its_trials_itself(swept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for options in (["--load", "80%"], ["--requests", "100"]):
        assert 2 == cli(["verify", str(swept), "--find", *options])
        assert "leave out --load and --requests" in capsys.readouterr().err
    assert 3 == cli(["verify", str(swept), "--find", "--sla", "p90_ttft<=1us", "--json"])
    assert [] == json.loads(capsys.readouterr().out)["shapes"]


QUICK = "{step_base: 2ms, per_decode: 100us, per_prefill_token: 5us, noise: 0.05}"


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_command_finds_a_rate_of_a_real_server_and_goes_on_after_ctrl_c(tmp_path: Path) -> None:
    path = tmp_path / "run"
    text = config_text(QUICK, sla="{p50_ttft: 60ms}", requests=200).replace("256/32", "64/16")
    text = text.replace("[1, 2, 4, 8, 16, 32, 64]", "[1, 2, 4]") + "warmup: 0.5s\n"
    sweep_in_virtual_time(path, text)
    journal = path / "journal.jsonl"  # it was no server that answered in virtual time
    journal.write_text("".join(x for x in journal.read_text().splitlines(True) if '"event":"server"' not in x))
    process = start("verify", "run", "--find", cwd=tmp_path)
    try:
        until = time.monotonic() + 60
        while not list((path / "verify" / "trials").glob("*.jsonl")) and time.monotonic() < until:
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert ExitCode.INTERRUPTED == process.returncode, err
    assert "  frontier verify run --find" == err.splitlines()[-1]
    kept = len(list((path / "verify" / "trials").glob("*.jsonl")))
    assert kept >= 1
    said = command("verify", "run", "--find", "--json", cwd=tmp_path, timeout=500)
    (shape,) = json.loads(said.out)["shapes"]
    assert len(shape["find"]["trials"]) > kept
    assert said.code == exit_code([shape["verdict"]]), said.err
