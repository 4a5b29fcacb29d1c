"""What a page says first: what was measured, what it gives, what would make it false, who signs."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from frontier.core.model.points import Flag
from frontier.extras.present.page import report_markdown
from frontier.extras.present.report import Report, other_axes, report_of
from frontier.extras.present.review import Review, _doubts, made_by, portable
from frontier.read_run import load
from frontier.show.view.series_view import series_view
from tests.extras.present.test_report import LIMITS
from tests.kit.commands import frontier
from tests.kit.sweeps import sweep_in_virtual_time
from tests.kit.toy import toy_decision, toy_frontier, toy_points

CONFIG = """\
endpoint: simulator
deployments:
  - {name: bf16, hardware: {name: h200, gpus: 2, precision: bf16}, simulator: {step_base: 6ms}, price: $4/h}
  - {name: fp8, hardware: {name: h200, gpus: 2, precision: fp8}, simulator: {step_base: 4ms}, price: $4/h%s}
shapes: [64/16]
concurrency: [1, 4, 8]
sla: {p90_ttft: 1s, p90_tpot: 40ms}
requests: 400
repeats: 1
refine: 0
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("review") / "night"
    sweep_in_virtual_time(path, CONFIG % "")
    return path


def report(path: Path, *settings: str) -> Report:
    read = load(path, settings)
    return report_of(read, read.limits())


def test_the_first_screen_says_what_was_measured_and_what_it_gives(run: Path) -> None:
    found = report(run)
    review = found.review
    assert ["bf16: ", "fp8: "] == [line[: line.index(": ") + 2] for line in review.measured]
    assert all("in virtual time" in line and "2 × h200" in line for line in review.measured)
    assert review.per is not None
    heads = " ".join(review.per.heads)
    assert all(part in heads for part in ("requests/s", "per GPU", "per user", "$ per million", "independent users"))
    rows = [dict(zip(review.per.heads, row, strict=True)) for row in review.per.texts]
    for row in rows:
        per_gpu, whole = (float(row[head].replace(",", "")) for head in ("tok/s per GPU", "output tok/s"))
        assert whole == pytest.approx(2 * per_gpu, rel=0.01)
    # As `frontier users` counts them.
    answers = json.loads(frontier("users", str(run), "--think", "45s", "--json", cwd=run.parent).out)["shapes"]
    for answer, row in zip(answers, rows, strict=True):
        known, shown = answer["one"]["people"], int(re.sub(r"\D", "", row[review.per.heads[-1]]))
        assert 0.9 * known < shown <= known
    assert ["closed loop" in line and "45 s" in line for line in review.counted] == [True]
    text = report_markdown(found)
    assert 0 < text.index("in virtual time") < text.index("| at |") < text.index("make this false")


def test_quality_is_spoken_of_where_deployments_are_compared(run: Path, tmp_path: Path) -> None:
    assert "not looked at" in report(run).review.compared
    assert "stated" in report(run, "quality=0.9").review.compared
    part = report(run, "deployments.0.quality=0.9").review.compared
    assert "stated" in part
    assert "fp8" in part
    sweep_in_virtual_time(tmp_path / "one", "endpoint: simulator\nshapes: [32/4]\nconcurrency: [1]\nrequests: 40\n")
    assert "" == report(tmp_path / "one").review.compared


def test_what_excluded_and_what_concerns_the_answer_is_said_and_nothing_else() -> None:
    points = toy_points((1, 8, 64))
    fatal = Flag("client_bound", "50 ms", "5 ms", "use an idle machine")
    warning = Flag("non_stationary", "drifts by 9%", "5%", "wait", fatal=False)

    def doubts(*flags: tuple[int, Flag]) -> list[str]:
        flagged = [replace(p, flags=tuple(f for c, f in flags if c == p.load)) for p in points]
        decision = toy_decision(flagged, LIMITS)
        return list(_doubts([series_view(flagged, toy_frontier(flagged), decision, LIMITS)]))

    shown = toy_decision(points, LIMITS).shown
    assert shown is not None
    assert ["No warning"] == [line[:10] for line in doubts()]
    elsewhere = next(p.load for p in points if p.load != shown)
    assert ["No warning"] == [line[:10] for line in doubts((elsewhere, warning))]
    (mine,) = doubts((shown, warning))
    assert "drifts by 9%" in mine
    (excluded,) = doubts((elsewhere, fatal))
    assert f"c={elsewhere} excluded" in excluded
    assert "50 ms" in excluded


def test_a_page_can_be_signed_and_holds_no_path_of_its_author(run: Path, tmp_path: Path) -> None:
    named = dict(report(run).review.signed)
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["identity"].startswith(named["config"].removeprefix("sha256 "))
    assert re.search(r"\d requests in \d+ trials", named["effort"])
    said = frontier("report", str(run), "-o", "-", cwd=tmp_path)
    assert said.code == 0
    assert str(run.parent) not in said.out
    assert "virtual=True" in said.out, "the command makes such a run again"


@pytest.mark.parametrize(
    ("path", "shown"), [("/home/me/runs/night", "runs/night"), ("runs/night", "runs/night"), ("night", "night")]
)
def test_a_path_is_written_without_what_is_its_authors(path: str, shown: str) -> None:
    assert shown == portable(Path(path))


def test_the_other_pairs_of_axes_are_of_the_other_limits_and_of_what_users_get(run: Path) -> None:
    read = load(run)
    views = report_of(read, read.limits()).views
    over = [across for _, across in other_axes(read.limits(), views)]
    assert ["p50_interactivity"] == over[-1:]
    assert {"p90_ttft", "p90_tpot"} == {view.axes[0] for view in views} | {over[0]}


def test_a_line_is_made_again_by_the_line(run: Path) -> None:
    read = load(run)
    assert "night" in made_by(read, None)
    assert "python -c" in made_by(read, "virtual")
    assert Review() == Report(views=()).review
