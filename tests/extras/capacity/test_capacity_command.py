"""`frontier users` on runs made in virtual time: the answer, its JSON, its exit codes, and the
lines it prints."""

import asyncio
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

from frontier.config import parse_sla
from frontier.core.model.trials import ClientHealth, Measurement, Outcome, Record, Trial, Window
from frontier.extras.capacity.command import TARGETS
from frontier.extras.capacity.head_count import HeadCount, Users
from frontier.extras.capacity.people import users_text
from frontier.extras.verify import finding, open_loop_check
from frontier.extras.verify.found_rates import rates_found
from frontier.read_run import load
from frontier.store.run_dir import RunDirectory
from tests.kit.commands import frontier
from tests.kit.golden import assert_golden_row
from tests.kit.neutral import without_numbers
from tests.kit.sweeps import ENGINES, sweep_in_virtual_time

SLA = "p90_ttft<=120ms"
TEXT = f"""\
endpoint: simulator
simulator: {ENGINES["smooth"]}
shapes: [256/32]
concurrency: [1, 4, 16]
sla: {{p90_ttft: 120ms}}
requests: 250
repeats: 1
refine: 0
"""


@pytest.fixture(scope="module")
def cwd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("users")
    (here / "runs").mkdir()
    sweep_in_virtual_time(here / "runs" / "night", TEXT)
    return here


def answer(cwd: Path, *arguments: str) -> dict:
    said = frontier("users", "runs/night", *arguments, "--json", cwd=cwd)
    assert said.code == 0, said.err
    tree = json.loads(said.out)
    assert "frontier.users/1" == tree["schema"]
    (shape,) = tree["shapes"]
    return shape


def test_people_per_replica_and_replicas_for_so_many_people(cwd: Path) -> None:
    one = answer(cwd, "--think", "45s")
    assert one["basis"] == "closed_loop"
    assert one["people"] is None
    assert one["one"]["people"] > 0
    many = answer(cwd, "--think", "45s", "--people", "20000", "--spare", "2", "--set", "price=$3/h")
    fleet = many["fleet"]
    assert many["replicas"] == fleet["replicas"] + 2
    assert fleet["people"] >= 20000
    assert many["sticky_replicas"] == -(-20000 // one["one"]["people"])
    assert many["cost_per_hour"] == pytest.approx(3 * many["replicas"])
    assert fleet["replicas"] <= -(-20000 // one["one"]["people"])
    assert answer(cwd, "--think", "10s")["one"]["people"] < one["one"]["people"]


def test_the_answer_reads_as_a_user_needs_it(cwd: Path) -> None:
    said = frontier("users", "--think", "45s", "--people", "20000", "--set", "price=$3/h", cwd=cwd)
    assert said.code == 0
    alone = frontier("users", "--think", "45s", cwd=cwd)
    for answered in (said, alone):
        assert "limit the engine or your gateway to" in answered.out, "the engine is not known"
        assert "frontier verify --find" in answered.out
    assert_golden_row("answers", without_numbers(f"{said.out}\n{alone.out}"))


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "--think 0s",
        "--think soon",
        "--people 5 --emit vllm",
        "--emit keda",
        "--think 45s --sla p90_ttft<=120ms,output_throughput>=9",
    ],
)
def test_usage_errors_say_what_to_do(cwd: Path, arguments: str) -> None:
    said = frontier("users", "runs/night", *arguments.split(), cwd=cwd)
    assert said.code == 2, said.out
    assert_golden_row("messages", said.error)


def test_the_lines_of_an_unknown_tool_are_refused_with_the_known_ones(cwd: Path) -> None:
    said = frontier("users", "runs/night", "--emit", "caddy", cwd=cwd)
    assert said.code == 2
    assert [] == [target for target in TARGETS if repr(target) not in said.err]


def test_without_a_proven_point_it_says_the_command_that_would_decide(cwd: Path) -> None:
    measured = load(cwd / "runs" / "night")
    points = measured.points()
    tight = max(p.metrics["p99_ttft"].value for p in points) * 1000
    said = frontier(
        "users", "runs/night", "--think", "45s", "--sla", f"p99_ttft<={tight + 0.01:.2f}ms, p99.9_e2e<=9s", cwd=cwd
    )
    assert said.code == 4
    assert said.out == ""
    assert_golden_row("messages", without_numbers(said.err))
    no = frontier("users", "runs/night", "--think", "45s", "--sla", "p99_ttft<=1ms", "--json", cwd=cwd)
    assert no.code == 3
    assert json.loads(no.out)["shapes"] == []
    assert frontier("users", "runs/night", "--emit", "vllm", "--sla", "p99_ttft<=1ms", cwd=cwd).code == 3


def test_the_lines_of_each_target_hold_the_proven_concurrency(cwd: Path) -> None:
    concurrency = answer(cwd, "--think", "45s")["concurrency"]
    for target in ("vllm", "sglang", "keda", "prometheus-rule"):
        said = frontier("users", "runs/night", "--think", "45s", "--people", "9000", "--emit", target, cwd=cwd)
        assert said.code == 0, said.err
        assert (str(concurrency) in said.out) == (target != "prometheus-rule"), target
        if target not in ("vllm", "sglang"):
            assert yaml.safe_load(said.out)
    plain = frontier("users", "runs/night", "--emit", "vllm", cwd=cwd)
    assert f"--max-num-seqs {concurrency}" in plain.out.splitlines()


def test_a_run_of_two_shapes_answers_for_each_and_emits_for_one(tmp_path: Path) -> None:
    text = TEXT.replace("[256/32]", "[256/32, 128/32]").replace("[1, 4, 16]", "[1, 8]")
    sweep_in_virtual_time(tmp_path / "run", text)
    said = frontier("users", "run", "--think", "45s", "--json", cwd=tmp_path)
    assert len(json.loads(said.out)["shapes"]) == 2
    assert "--shape" in frontier("users", "run", "--emit", "vllm", cwd=tmp_path).err
    assert frontier("users", "run", "--emit", "vllm", "--shape", "128/32", cwd=tmp_path).code == 0


def test_people_are_counted_of_a_shape_that_was_swept_beside_sessions(tmp_path: Path) -> None:
    """Of which `verify` searches no rate."""
    sessions = "{name: agent, turns: 2, first: 128, per_turn: 32/16, think: 10ms}"
    text = TEXT.replace("[256/32]", f"[256/32, {sessions}]").replace("[1, 4, 16]", "[1, 8]")
    sweep_in_virtual_time(tmp_path / "run", text)
    said = frontier("users", "run", "--think", "45s", "--shape", "256/32", "--json", cwd=tmp_path)
    assert said.code == 0, said.err
    (shape,) = json.loads(said.out)["shapes"]
    assert ("256/32", "closed_loop") == (shape["shape"], shape["basis"])


def test_a_rate_that_verify_proved_is_what_people_are_counted_by(cwd: Path, tmp_path: Path) -> None:
    shutil.copytree(cwd / "runs" / "night", tmp_path / "run")
    run, limits = load(tmp_path / "run"), parse_sla(SLA)
    assert rates_found(run, limits) == []

    class Store(open_loop_check.Sender):
        """Open-loop trials whose requests always take 80 ms to their first token and 0.4 s in
        all.
        """

        async def send(self, trial: Trial, watch: open_loop_check.OutcomeWatch | None = None) -> Measurement | None:
            assert trial.load.per_second is not None
            rng = np.random.default_rng(trial.repeat)
            with self.store.writer(trial) as writer:
                sent = np.cumsum(rng.exponential(1 / trial.load.per_second, trial.requests + 1))
                for i, at in enumerate(sent.tolist()):
                    writer.add(
                        Record(
                            i,
                            0,
                            at,
                            Outcome.OK,
                            at + 0.4,
                            256,
                            32,
                            first=at + 0.08,
                            visible=at + 0.08,
                            last=at + 0.4,
                            prompt_tokens=256,
                            completion_tokens=32,
                            events=32,
                            reads=32,
                            text_bytes=160,
                            text_chars=160,
                            finish_reason="length",
                            status=200,
                            scheduled=at,
                            gaps=(10_000,) * 31,
                        )
                    )
                measurement = Measurement(
                    trial, float(trial.repeat * 10**6), Window(0.0, float(sent[-1])), "requests", ClientHealth()
                )
                writer.commit(measurement)
            return measurement

    with RunDirectory.open_to_verify(run.path) as store:
        nobody = type("Nobody", (), {"close": lambda self: asyncio.sleep(0)})()
        sender = Store(run, nobody, store, lambda _: None, asyncio.Event())
        (found,) = asyncio.run(
            finding.find(
                sender, open_loop_check.searches(run, limits), on_ask=lambda *_: None, on_trial=lambda *_: None
            )
        )
    assert found.done.proven is not None
    said = frontier("users", "run", "--think", "45s", "--people", "20000", "--json", cwd=tmp_path)
    (shape,) = json.loads(said.out)["shapes"]
    assert shape["basis"] == "verified_rate"
    assert shape["one"]["people"] == pytest.approx(found.done.proven * 45.4, abs=1)
    assert shape["fleet"]["replicas"] == -(-20000 // shape["one"]["people"])
    assert_golden_row("answers", without_numbers(frontier("users", "run", "--think", "45s", cwd=tmp_path).out))


def test_where_nobody_is_safe_it_says_so(cwd: Path) -> None:
    (decision,) = load(cwd / "runs" / "night").solve(parse_sla(SLA))
    text = users_text([Users(decision, 45.0, HeadCount(0, 1, 0.0, 0.0, 0.0))])
    assert "frontier verify --find" in text
    assert_golden_row("answers", without_numbers(text))
