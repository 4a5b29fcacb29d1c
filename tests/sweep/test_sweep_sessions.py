"""A sweep of sessions on the simulated engine: answers by class, resume, files, and what does not
know sessions."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from frontier import uncertainty
from frontier.core.model.decisions import Verdict
from frontier.core.model.errors import UsageError
from frontier.extras.verify.open_loop_check import checks
from frontier.read_run import load
from frontier.run import Run
from frontier.show.tables import points_table
from frontier.show.view.json_out import points_json
from frontier.show.view.sentences import production_lines
from frontier.show.view.series_view import series_views
from tests.kit.commands import frontier
from tests.kit.golden import assert_golden_row
from tests.kit.sweeps import resumed_without, sweep_in_virtual_time, swept
from tests.kit.trial_rules import broken_rules

TEXT = """\
endpoint: simulator
simulator: {step_base: 5ms, per_decode: 100us, per_prefill_token: 80us, prefix_cache: true, noise: 0.05}
shapes: [{name: agent, turns: 4, first: 600, per_turn: 40/12, think: 300ms, system: 200}]
concurrency: [2, 8, 32]
requests: 1600
repeats: 1
refine: 0
sla: {first: {p90_ttft: 200ms}, later: {p90_ttft: 60ms}}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return sweep_in_virtual_time(tmp_path_factory.mktemp("sessions") / "run", TEXT)[0]


def test_the_answer_is_a_number_of_sessions_of_which_each_class_keeps_its_limits(run: Run) -> None:
    (decision,) = run.solve()
    points = {p.load: p for p in run.points()}
    assert decision.verdict is Verdict.MEETS
    assert decision.load == 8
    assert decision.first_fail == 32
    worst = points[32].metrics["later.p90_ttft"]
    assert worst.lower > 0.06, "the later turns break their limit at 32"
    assert points[8].metrics["later.p90_ttft"].upper <= 0.06
    assert points[8].metrics["first.p90_ttft"].upper <= 0.2
    assert decision.binding is not None
    assert decision.binding.startswith(("first.", "later."))


def test_sessions_and_requests_in_flight_are_told_apart(run: Run) -> None:
    (decision,) = run.solve()
    assert 8 == decision.load
    assert_golden_row("answers", "\n".join(production_lines(decision, None)))
    point = next(p for p in run.points() if p.load == 8)
    assert point.in_flight is not None
    assert 0 < point.in_flight < 8
    (tree,) = (
        p
        for p in points_json(series_views(run.points(), run.frontiers(run.points())))["points"]
        if p["concurrency"] == 8
    )
    assert tree["in_flight"] == pytest.approx(point.in_flight)
    assert tree["metrics"]["first.p50_ttft"]["value"] > tree["metrics"]["later.p50_ttft"]["value"]
    table = points_table(series_views(run.points(), run.frontiers(run.points()), run.limits()), width=200)
    assert "in flight" in table
    assert "later p90 TTFT" in table
    assert not any(answer.arrivals for answer in run.answers())


def test_records_have_their_labels_and_other_runs_their_old_form(run: Run, tmp_path: Path) -> None:
    (file, *_) = sorted((run.path / "trials").glob("*c0008*.jsonl"))
    lines = [json.loads(line) for line in file.read_text().splitlines() if '"session"' in line]
    assert {"session", "turn", "reusable"} <= set(lines[0])
    plain = tmp_path / "plain"
    swept(
        plain,
        TEXT.replace("{name: agent, turns: 4, first: 600, per_turn: 40/12, think: 300ms, system: 200}", "64/8").replace(
            "sla: {first: {p90_ttft: 200ms}, later: {p90_ttft: 60ms}}", "sla: {p90_ttft: 200ms}"
        ),
    )
    (file, *_) = sorted((plain / "trials").glob("*c0008*.jsonl"))
    assert not {"session", "turn", "reusable"} & set().union(*(json.loads(x) for x in file.read_text().splitlines()))
    (evidence, *_) = sorted((plain / "evidence").glob("*c0008*.json"))
    assert '"session"' not in evidence.read_text()


def test_a_sweep_of_sessions_goes_on_where_it_ended(run: Run, tmp_path: Path) -> None:
    resumed = resumed_without(run, tmp_path / "again", TEXT, "c0032")
    a, b = (next(p for p in each.points() if p.load == 32) for each in (run, resumed))
    assert a.metrics["later.p90_ttft"] == b.metrics["later.p90_ttft"]


def test_a_summary_read_from_its_cache_is_the_same(run: Run) -> None:
    again = load(run.path)
    for series, history in run.histories.items():
        for (_, a), (_, b) in zip(history, again.histories[series], strict=True):
            assert (a.session == b.session).all()
            assert (a.turn == b.turn).all()
            np.testing.assert_array_equal(a.reusable, b.reusable)


def test_what_does_not_know_sessions_says_so(run: Run) -> None:
    with pytest.raises(UsageError) as refused:
        checks(run, run.limits())
    assert_golden_row("messages", str(refused.value), "verify")
    for command in (("users", "--think", "45s"), ("predict",)):
        said = frontier(command[0], run.path.name, *command[1:], cwd=run.path.parent)
        assert (2, "") == (said.code, said.out)
        assert_golden_row("messages", said.err, command[0])


def test_looking_at_it_by_other_limits_of_a_class(run: Run) -> None:
    said = frontier("solve", str(run.path), "--sla", "later.p90_ttft<=1s", "--json", cwd=run.path.parent)
    (shape,) = json.loads(said.out)["shapes"]
    assert (said.code, shape["concurrency"], shape["binding"]) == (0, 32, "later.p90_ttft")
    same = frontier("compare", str(run.path), str(run.path), cwd=run.path.parent)
    assert "Traceback" not in same.err
    for command in (("export", "--csv"), ("report", "-o", str(run.path.parent / "r.md"))):
        assert frontier(command[0], str(run.path), *command[1:], cwd=run.path.parent).code == 0
    page = (run.path.parent / "r.md").read_text()
    assert production_lines(run.solve()[0], None)[0].partition(",")[0] in page
    assert "of later turns" in page


def test_its_trials_keep_their_rules(run: Run) -> None:
    assert [] == list(broken_rules(run))


def test_axes_of_a_class_have_the_uncertainty_of_its_own_requests(run: Run) -> None:
    axes = ("output_throughput", "first.p90_ttft")
    (drawn,) = run.uncertainties(axes).values()
    assert min(x for x, *_ in uncertainty.band(drawn)) > max(
        p.metrics["later.p90_ttft"].value for p in run.points() if p.load == 2
    )


def test_a_number_of_sessions_is_not_printed_as_a_limit_on_requests(run: Run, tmp_path: Path) -> None:
    shutil.copytree(run.path, tmp_path / "run")
    said = frontier("users", "run", "--emit", "vllm", cwd=tmp_path)
    assert (2, "") == (said.code, said.out)
    assert_golden_row("messages", said.err)
