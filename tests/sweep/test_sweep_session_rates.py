"""Sessions that arrive at a rate: the proven rate and its truth, turns due by their answers, words,
resume, a file."""

import dataclasses
import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from frontier.config import load_config
from frontier.config.complaints import ConfigError
from frontier.core.flags.load_flags import overloaded
from frontier.core.model.decisions import Limit, Verdict
from frontier.core.model.loads import POISSON, Rate, SessionRate
from frontier.core.model.shapes import Lengths, Session, Shape
from frontier.core.model.trials import Phase, Trial
from frontier.core.window.from_records import window_data
from frontier.core.window.window import WindowData
from frontier.planning.plan import make_plan, seconds_at
from frontier.read_run import load
from frontier.run import Run
from frontier.search import scan
from frontier.search.next_trial import Ask
from frontier.search.scan import SearchPolicy
from frontier.show.tables import plan_table, points_table
from frontier.show.view.json_out import points_json
from frontier.show.view.sentences import production_lines
from frontier.show.view.series_view import series_views
from frontier.simulator.virtual import virtual_trial
from tests.kit.commands import frontier
from tests.kit.golden import assert_golden_row
from tests.kit.sweeps import commands_in_virtual_time, sweep_in_virtual_time, swept, without_last_trials
from tests.kit.virtual_truth import truth

ENGINE = "{step_base: 8ms, per_decode: 200us, noise: 0.1, max_num_seqs: 8, prefix_cache: true}"
TEXT = f"""\
endpoint: simulator
simulator: {ENGINE}
shapes: [{{name: chat, turns: 4, first: 64, per_turn: 16/8, think: 300ms}}]
rate: [2, 8, 64]
sla: {{p50_ttft: 22ms}}
requests: 200
refine: 1
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = tmp_path_factory.mktemp("session-rates") / "run"
    swept(path, TEXT)
    return load(path)


@pytest.mark.process
@pytest.mark.slow
def test_the_answer_is_the_highest_proven_rate_of_sessions_and_holds_in_truth(run: Run) -> None:
    (decision,) = run.solve()
    assert decision.verdict is Verdict.MEETS
    rate = decision.load
    assert isinstance(rate, SessionRate)
    spec, shape = run.config.deployments[0].engine_spec(), run.config.shapes[0]
    assert truth(spec, shape, rate, "p50_ttft", requests=6_000) <= 0.022
    assert truth(spec, shape, SessionRate.of(1.6 * rate.per_second), "p50_ttft", requests=6_000) > 0.022
    holds, _ = production_lines(decision, None)
    assert f" {rate.per_second:g} sessions/s ({4 * rate.per_second:g} requests/s) " in holds
    assert_golden_row("answers", "\n".join(production_lines(decision, None)))


@pytest.mark.process
@pytest.mark.slow
def test_rates_count_sessions_and_requests_per_second_stand_beside_them(run: Run) -> None:
    points = {p.load: p for p in run.points()}
    assert {str(c) for c in points} >= {"2 sessions/s", "8 sessions/s"}
    assert points[Rate.of(2)].metrics["request_throughput"].value == pytest.approx(8, rel=0.3)
    assert {2.0, 8.0} <= {
        each["rate"] for each in points_json(series_views(run.points(), run.frontiers(run.points())))["points"]
    }
    table = points_table(series_views(run.points(), run.frontiers(run.points()), run.limits()), width=180)
    assert " req/s " in table.splitlines()[1]
    assert "2 8 64 sessions/s" in plan_table(run.config, make_plan(run.config))
    over = [c for c, p in points.items() if p.overloaded]
    assert over, "more arrived than is served"


@pytest.mark.process
@pytest.mark.slow
def test_a_sweep_of_sessions_at_rates_goes_on_where_it_ended(run: Run, tmp_path: Path) -> None:
    again = tmp_path / "again"
    lost = without_last_trials(run, again, 2)
    resumed, told, _ = sweep_in_virtual_time(again, TEXT)
    assert {trial.key for trial in told.finished} >= {trial.key for trial in lost}
    assert len(told.finished) <= len(lost) + 2
    assert resumed.solve()[0].load == run.solve()[0].load


SHAPE = Shape(
    Lengths.fixed(1),
    Lengths.fixed(8),
    "chat",
    arrivals=POISSON,
    session=Session(Lengths.fixed(4), Lengths.fixed(64), Lengths.fixed(16), think=2.0),
)


def a_trial(rate: float, requests: int = 1_200, warmup: float = 15.0) -> Trial:
    load = SessionRate.of(rate)
    return Trial("d", SHAPE, load, 1, Phase.SCAN, requests, 5, warmup, 0.0, 1e9, "f")


def test_each_arrival_is_a_session_whose_later_turns_are_due_after_their_thinking() -> None:
    spec = load_config(TEXT, "t").deployments[0].engine_spec()
    records, measurement = virtual_trial(a_trial(5.0), spec)
    sessions = defaultdict(list)
    for record in records:
        sessions[record.session].append(record)
    assert sessions
    assert all([r.turn for r in turns] == list(range(len(turns))) for turns in sessions.values()), "from the first one"
    firsts = sorted(turns[0].scheduled for turns in sessions.values())
    assert firsts[-1] / len(firsts) == pytest.approx(1 / 5.0, rel=0.1)
    waits = [b.scheduled - a.end for turns in sessions.values() for a, b in pairwise(turns)]
    assert min(waits) > 0
    assert sum(waits) / len(waits) == pytest.approx(2.0, rel=0.1)
    sample = window_data(measurement, records)
    assert sample.n / (sample.ends[0] - sample.starts[0]) == pytest.approx(4 * 5.0, rel=0.1)
    for turn in range(4):
        assert (sample.turn == turn).mean() == pytest.approx(0.25, abs=0.03), "all turns are there in their number"
    assert not list(overloaded(sample))


def test_a_window_opens_when_the_longest_sessions_can_be_over_also_where_nobody_thinks() -> None:
    spec = load_config(TEXT, "t").deployments[0].engine_spec()
    assert SHAPE.session is not None
    shape = dataclasses.replace(SHAPE, session=dataclasses.replace(SHAPE.session, turns=Lengths.fixed(12), think=0.0))
    trial = dataclasses.replace(a_trial(4.0, 600, warmup=0.0), shape=shape)
    records, measurement = virtual_trial(trial, spec)
    early = [r.end - r.sent for r in sorted(records, key=lambda r: r.end)[:20]]
    assert measurement.window.start >= 12 * sum(early) / 20
    sample = window_data(measurement, records)
    assert (sample.turn == 11).mean() == pytest.approx(1 / 12, abs=0.02), "the last turns are there too"


def test_more_sessions_than_are_served_are_overload_and_fewer_are_not() -> None:
    spec = load_config(TEXT, "t").deployments[0].engine_spec()
    found = {}
    for rate in (12.0, 60.0):
        records, measurement = virtual_trial(a_trial(rate, 1_200), spec)
        found[rate] = any(overloaded(window_data(measurement, records)))
    assert found == {12.0: False, 60.0: True}


def test_a_trial_lasts_until_its_sessions_have_come_to_their_last_turn() -> None:
    config = load_config(TEXT.replace("think: 300ms", "think: 10s"), "t.yaml")
    trial = make_plan(config).trials[0]
    assert str(trial.load) == "2 sessions/s"
    assert trial.warmup == pytest.approx(3 * 10 + 2 * 3**0.5 * 10)
    with pytest.raises(ConfigError) as refused:
        load_config(TEXT.replace("think: 300ms", "think: 10s") + "max_time: 2min\n", "t.yaml")
    assert_golden_row("complaints", str(refused.value))
    assert seconds_at(2.0, trial) == pytest.approx(trial.warmup + 200 / (4 * 2.0))


def test_what_a_rate_cannot_count_is_said() -> None:
    both = TEXT.replace("shapes: [", "shapes: [64/8, ")
    with pytest.raises(ConfigError) as refused:
        load_config(both, "t.yaml")
    assert [3] == [complaint.line for complaint in refused.value.complaints]
    assert_golden_row("complaints", str(refused.value), "both")
    mixed = (
        TEXT.replace("shapes: [", "shapes: [{name: a, isl: 64, osl: 8}, ") + "traffic: {a: {share: 50%}, chat: {}}\n"
    )
    with pytest.raises(ConfigError) as refused:
        load_config(mixed, "t.yaml")
    assert_golden_row("complaints", str(refused.value), "a mix")


def test_the_first_look_shows_how_long_sessions_last_and_is_taken_again() -> None:
    spec = load_config(TEXT, "t").deployments[0].engine_spec()
    history: list[tuple[Trial, WindowData]] = []
    asks = []
    for _ in range(3):
        ask = scan.next_ask(SearchPolicy((SessionRate.of(3),)), SHAPE, [("", [Limit("p90_ttft", 1.0)])], history)
        assert isinstance(ask, Ask)
        asks.append(ask)
        trial = a_trial(3.0, ask.requests, ask.warmup)
        records, measurement = virtual_trial(trial, spec)
        history.append((trial, window_data(measurement, records)))
    thinking = SHAPE.session_seconds(0.0)
    assert [str(ask.load) for ask in asks] == ["3 sessions/s", "3 sessions/s", "6 sessions/s"]
    assert asks[0].warmup == pytest.approx(thinking)
    e2e = float(history[0][1].e2e.mean())
    assert asks[1].warmup == pytest.approx(thinking + 4 * e2e)
    assert asks[1].requests == 4 * 3 * 12, "twelve seconds, in requests"


@pytest.mark.parametrize(
    ("load_key", "sessions"),
    [("concurrency: [2, 6]", False), pytest.param("rate: [4]", True, marks=pytest.mark.slow)],
)
def test_sessions_of_a_file_are_swept(load_key: str, sessions: bool, tmp_path: Path) -> None:
    turns = [{"new": 64, "out": 8}, {"new": 16, "out": 8, "pause": 0.4}, {"new": 24, "out": 6, "pause": 0.7}]
    lines = [{"turns": turns[: 1 + i % 3]} for i in range(30)]
    (tmp_path / "agent.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "s.yaml").write_text(
        f"endpoint: simulator\nsimulator: {ENGINE}\nshapes: [{{name: agent, sessions: agent.jsonl}}]\n"
        f"sla: {{p50_ttft: 60ms}}\nrequests: 60\nrefine: {int(sessions)}\n{load_key}\n"
    )
    assert_golden_row("answers", frontier("sweep", "s.yaml", "--dry-run", cwd=tmp_path, here=True).out)
    with commands_in_virtual_time():
        done = frontier("sweep", "s.yaml", "-o", "run", cwd=tmp_path, here=True)
    assert done.code == 0, done.err
    assert "Run at " in done.out
    (tmp_path / "agent.jsonl").unlink()
    assert frontier("solve", "run", cwd=tmp_path, here=True).code == 0, "a run is read without the file"
    trials = sorted((tmp_path / "run" / "trials").glob("*.jsonl"))
    records = [json.loads(line) for file in trials for line in file.read_text().splitlines()]
    assert {r["asked_osl"] for r in records if r.get("turn", 0) == 2} == {6}
    evidence = (tmp_path / "run" / "evidence" / f"{trials[0].stem}.json").read_text()
    assert '"sha256"' in evidence
    assert '"table"' not in evidence
