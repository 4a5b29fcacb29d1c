"""A sweep at rates: points by rate, the proven rate, JSON, resume, real HTTP, and what does not
know rates."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from frontier.config import load_config
from frontier.config.complaints import ConfigError
from frontier.core.model.decisions import Verdict
from frontier.core.model.errors import UsageError
from frontier.core.model.loads import Rate
from frontier.extras.exchange import export
from frontier.extras.verify.open_loop_check import checks
from frontier.planning.plan import make_plan
from frontier.read_run import load
from frontier.run import Run
from frontier.search.complete import skip_reason
from frontier.show import point_rows
from frontier.show.tables import plan_table, points_table
from frontier.show.view.json_out import answers_json, decisions_json, points_json
from frontier.show.view.notes import notes_of
from frontier.show.view.selection import provenance_of
from frontier.show.view.sentences import production_lines
from frontier.show.view.series_view import series_views
from tests.kit.commands import frontier
from tests.kit.golden import assert_golden_row
from tests.kit.neutral import neutral
from tests.kit.sweeps import commands_in_virtual_time, sweep_in_virtual_time, without_last_trials
from tests.kit.trial_rules import broken_rules
from tests.kit.virtual_truth import truth
from tests.sweep.test_sweep_http import sweep_over_http

TEXT = """\
endpoint: simulator
simulator: {step_base: 8ms, per_decode: 200us, noise: 0.1, max_num_seqs: 8}
shapes: [{isl: 64, osl: {uniform: [6, 12]}, name: short}]
rate: [5, 40, 320]
sla: {p50_ttft: 40ms}
requests: 150
refine: 1
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return sweep_in_virtual_time(tmp_path_factory.mktemp("rates") / "run", TEXT)[0]


def test_the_answer_is_a_rate_that_keeps_the_limit_in_truth(run: Run) -> None:
    (decision,) = run.solve()
    assert decision.verdict is Verdict.MEETS
    rate = decision.load
    assert isinstance(rate, Rate)
    spec = run.config.deployments[0].engine_spec()
    assert truth(spec, run.config.shapes[0], rate, "p50_ttft", requests=6_000) <= 0.04
    assert truth(spec, run.config.shapes[0], Rate.of(1.6 * rate.per_second), "p50_ttft", requests=6_000) > 0.04
    holds, _ = production_lines(decision, None)
    assert f" {rate.per_second:g} " in holds
    assert_golden_row("answers", "\n".join(production_lines(decision, None)))
    assert not any(answer.common for answer in run.answers())


def test_no_rate_is_called_the_knee_of_a_throughput_that_follows_from_what_is_sent(run: Run) -> None:
    (diagnosis,) = notes_of(run, run.points(), run.solve())["diagnosis"].trees
    roles = [setting.roles for setting in diagnosis.settings]
    assert ("operating point",) in roles
    assert not any("knee" in named for named in roles)


def test_a_proven_rate_is_not_rounded_up_where_it_is_set(run: Run) -> None:
    (decision,) = run.solve()
    holds, *_ = production_lines(replace(decision, load=Rate.of(13.387)), None)
    assert " 13.387 " in holds


def test_its_trials_keep_their_rules(run: Run) -> None:
    assert [] == list(broken_rules(run))


def test_the_answer_names_the_limit_in_flight_that_it_needs(run: Run) -> None:
    """The most that were there at once, when one of them arrived."""
    (decision,) = run.solve()
    rate = decision.load
    assert isinstance(rate, Rate)
    (needed,) = run.answers()[0].arrivals.values()
    sample = run.samples(decision.series)[rate]
    ends = sample.sent + sample.e2e
    mine = zip(sample.sent, sample.window, strict=True)
    found = [int(((sample.sent <= at) & (ends > at) & (sample.window == w)).sum()) for at, w in mine]
    assert needed.cap == max(found)
    assert needed.rate == rate.per_second
    assert needed.streams <= needed.cap < 1024
    (tree,) = answers_json(run.answers())["shapes"]
    assert tree["arrival_rate"]["cap"] == needed.cap
    assert_golden_row("answers", " / ".join(production_lines(decision, needed)).replace(f"{rate.per_second:g}", "RATE"))


def test_listed_rates_are_points_and_one_that_is_not_served_is_none_of_the_frontier(run: Run) -> None:
    points = {p.load: p for p in run.points()}
    assert {Rate.of(5), Rate.of(40)} <= set(points)
    assert 4 < points[Rate.of(5)].metrics["request_throughput"].value < 6
    (frontier,) = run.frontiers(run.points())
    over = [c for c, p in points.items() if p.overloaded]
    assert over
    assert not set(over) & {*frontier.members, *frontier.dominated}
    (decision,) = run.solve()
    assert {j.verdict for j in decision.judgements if j.load in over} <= {Verdict.VIOLATES}
    history = run.histories[decision.series]
    reason = f"at {min(over)} more arrives than is served"
    assert reason == skip_reason(Rate.of(640), [("", run.limits())], history)
    assert skip_reason(Rate.of(5), [("", run.limits())], history) is None


def test_json_has_the_rate_beside_a_concurrency_that_is_null(run: Run) -> None:
    (decision,) = run.solve()
    assert isinstance(decision.load, Rate)
    (tree,) = decisions_json([decision])["shapes"]
    assert (tree["concurrency"], tree["rate"], tree["shape"]) == (None, decision.load.per_second, "short")
    assert tree["judgements"]
    assert all(j["concurrency"] is None and j["rate"] > 0 for j in tree["judgements"])
    points = points_json(series_views(run.points(), run.frontiers(run.points())))["points"]
    assert {5.0, 40.0} <= {point["rate"] for point in points}
    assert {None} == {point["concurrency"] for point in points}
    json.dumps(tree)


def test_tables_for_programs_have_a_rate_in_requests_per_second(run: Run) -> None:
    points, frontiers = run.points(), run.frontiers(run.points())
    for frame in (run.frame(), run.requests(), point_rows.table(series_views(points, frontiers))):
        assert {5.0, 40.0} <= set(frame["rate"])
        assert frame["concurrency"].isna().all()
    (decision,) = run.solve()
    assert isinstance(decision.load, Rate)
    text = export.prometheus_text(series_views(points, frontiers, (), [decision]))
    assert re.search(rf"frontier_operating_point_rate{{.*}} {decision.load.per_second}\n", text)
    assert 'concurrency="40 req/s"' in text


@pytest.mark.slow
def test_tables_and_commands_name_rates(run: Run, tmp_path: Path) -> None:
    table = points_table(series_views(run.points(), run.frontiers(run.points()), run.limits()), width=160)
    assert "rate" in table.splitlines()[1].split()
    assert "in flight" in table
    assert "5 40 320 req/s" in plan_table(run.config, make_plan(run.config))
    copy = tmp_path / "run"
    shutil.copytree(run.path, copy)
    said = frontier("solve", copy, cwd=tmp_path, here=True)
    assert said.out.startswith("Run at ")
    assert " req/s: " in said.out.splitlines()[0]
    assert "proven: " in frontier("status", copy, cwd=tmp_path, here=True).out
    assert provenance_of(run).loop == "open loop, Poisson arrivals"
    assert frontier("plot", copy, "--figure", "latency", "-o", "p.svg", cwd=tmp_path, here=True).code == 0
    for command in (["verify", copy], ["users", copy, "--think", "10s"], ["predict", copy]):
        assert frontier(*command, cwd=tmp_path, here=True).code == 2


@pytest.mark.slow
def test_a_sweep_at_rates_goes_on_where_it_ended(run: Run, tmp_path: Path) -> None:
    again = tmp_path / "again"
    lost = without_last_trials(run, again, 3)
    resumed, told, _ = sweep_in_virtual_time(again, TEXT)
    assert {trial.key for trial in told.finished} >= {trial.key for trial in lost}
    assert len(told.finished) <= len(lost) + 2
    assert resumed.solve()[0].load == run.solve()[0].load
    with pytest.raises(UsageError, match="measured at rates"):
        checks(resumed, resumed.limits())


BASE = "endpoint: simulator\nshapes: [64/8]\nsla: {p90_ttft: 100ms}\n"


@pytest.mark.parametrize(
    ("keys", "line", "column"),
    [
        ("rate: [1, 2]\nconcurrency: 4\n", 4, 1),
        ("rate: [1, -2]\n", 4, 11),
        ("rate: fast\n", 4, 7),
        ("rate: []\n", 4, 7),
        ("rate: [2, 2.0]\n", 4, 7),
        ("arrivals: poisson\n", 4, 1),
        ("rate: 1\narrivals: {gamma: {cv: 20}}\n", 5, 11),
        ("rate: 1\narrivals: {gamma: 2}\n", 5, 11),
        ("rate: 1\narrivals: {trace: 5}\n", 5, 11),
        ("rate: 1\nworkers: 2\n", 5, 10),
        ("rate: auto\nrefine: 0\n", 5, 9),
    ],
)
def test_what_does_not_go_with_a_rate_is_said_with_its_line(keys: str, line: int, column: int) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(BASE + keys, "s.yaml")
    (complaint,) = caught.value.complaints
    assert (line, column) == (complaint.line, complaint.column)
    assert_golden_row("complaints", str(caught.value))


def test_arrivals_decide_what_a_trial_is_and_a_rate_has_no_streams() -> None:
    poisson, bursts = (
        load_config(f"{BASE}rate: [2.5, 10]\n{more}", "s.yaml") for more in ("", "arrivals: {gamma: {cv: 2}}\n")
    )
    first, other = (make_plan(config).trials[0] for config in (poisson, bursts))
    assert first.key == "default-64x8-q2.5-grid-r1"
    assert (first.load.per_second, first.load, first.streams) == (2.5, Rate.of(2.5), 1024)
    assert first.fingerprint != other.fingerprint
    assert first.seed != other.seed
    assert make_plan(poisson).summary(poisson)["rate"] == [2.5, 10.0]
    assert load_config(f"{BASE}rate: auto\n", "s.yaml").loads == (Rate.of(1),)


def test_a_list_of_rates_that_grew_goes_on_in_the_same_run_as_one_of_concurrencies_does(tmp_path: Path) -> None:
    text = TEXT.replace("rate: [5, 40, 320]", "rate: [5, 40]").replace("refine: 1", "refine: 0")
    (tmp_path / "sweep.yaml").write_text(text)
    with commands_in_virtual_time():
        assert frontier("sweep", "sweep.yaml", cwd=tmp_path, here=True).code == 0
        (tmp_path / "sweep.yaml").write_text(text.replace("[5, 40]", "[5, 12.5, 40]"))
        said = frontier("sweep", "sweep.yaml", cwd=tmp_path, here=True)
    assert said.code == 0, said.err
    assert_golden_row("messages", said.err.splitlines()[0].replace(next((tmp_path / "runs").iterdir()).name, "RUN"))
    (path,) = (tmp_path / "runs").iterdir()
    assert {Rate.of(r) for r in (5, 12.5, 40)} == {p.load for p in load(path).points()}
    (tmp_path / "sweep.yaml").write_text(text.replace("[5, 40]", "[5, 40, 80]"))
    said = frontier("sweep", "sweep.yaml", "-o", path, cwd=tmp_path, here=True)
    assert 2 == said.code
    assert_golden_row("messages", neutral(said.err, path), "another list")


@pytest.mark.nightly
@pytest.mark.chance
@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_over_http_the_proven_rate_is_near_the_true_one(tmp_path: Path) -> None:
    text = """\
endpoint: simulator
simulator: {step_base: 8ms, per_decode: 200us, noise: 0.1, max_num_seqs: 8}
shapes: [{isl: 64, osl: {uniform: [6, 12]}, name: short}]
rate: [40]
sla: {p50_ttft: 40ms}
requests: 150
refine: 1
budget: {time: 100s}
"""
    run, _, _ = sweep_over_http(tmp_path / "run", text)
    (decision,) = run.solve()
    assert isinstance(decision.load, Rate)
    spec, shape = run.config.deployments[0].engine_spec(), run.config.shapes[0]
    assert truth(spec, shape, decision.load, "p50_ttft", requests=6_000) <= 0.04 * 1.1
    records = [json.loads(line) for line in sorted((tmp_path / "run" / "trials").glob("*"))[0].read_text().splitlines()]
    assert records
    assert all(record["scheduled"] <= record["sent"] + 1e-6 for record in records)
