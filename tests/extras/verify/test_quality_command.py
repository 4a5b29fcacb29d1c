"""Quality as a user meets it: stated or measured over HTTP beside a reference, as an axis, a column
and a limit."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from frontier.config import parse_sla
from frontier.core.model.decisions import Cause, Verdict
from frontier.extras.verify.replies import GreedyReplies
from frontier.read_run import load
from frontier.store.run_dir import RunDirectory
from tests.kit.commands import Said, frontier
from tests.kit.golden import assert_golden_row
from tests.kit.sweeps import sweep_in_virtual_time

ENGINE = "step_base: 4ms, per_decode: 40us, token_noise: 0.3%"
CONFIG = f"""\
endpoint: simulator
shapes: [64/24]
concurrency: [1, 8]
sla: {{p95_ttft: 1s}}
requests: 200
repeats: 1
refine: 0
price: $4/h
deployments:
- {{name: bf16, QUALITY1, simulator: {{{ENGINE}}}}}
- {{name: int4, QUALITY2, simulator: {{{ENGINE}, time_scale: 0.5, token_flips: 8%}}}}
"""
MEASURED = CONFIG.replace("QUALITY1, ", "").replace("QUALITY2", "quality: {reference: bf16, prompts: 60}")
STATED = CONFIG.replace("QUALITY1", "quality: 0.95").replace("QUALITY2", "quality: 0.9")


def made(folder: Path, text: str) -> Path:
    """A run of virtual time, whose journal names no server that another engine could differ
    from.
    """
    sweep_in_virtual_time(folder / "run", text)
    journal = folder / "run" / "journal.jsonl"
    lines = [line for line in journal.read_text().splitlines() if json.loads(line)["event"] != "server"]
    journal.write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Said]:
    """A run whose two engines, behind HTTP, have answered."""
    cwd = made(tmp_path_factory.mktemp("measured"), MEASURED)
    return cwd, frontier("verify", "run", "--quality", "--json", cwd=cwd)


@pytest.mark.process
def test_two_engines_are_compared_under_load(asked: tuple[Path, Said]) -> None:
    cwd, said = asked
    assert 0 == said.code, said.err
    tree = json.loads(said.out)
    assert "frontier.quality/1" == tree["schema"]
    int4, bf16 = tree["compared"]
    assert ("int4", "bf16", 8, 60) == (int4["deployment"], int4["reference"], int4["concurrency"], int4["prompts"])
    assert int4["agreement"]["low"] <= 0.92 * 0.997**2 <= int4["agreement"]["high"]
    assert bf16["agreement"] == int4["itself"]
    assert int4["itself"]["low"] <= 0.997**2 <= int4["itself"]["high"]
    assert int4["distance"]["value"] == pytest.approx(0.08, abs=0.002)  # log-probabilities lie as far apart as flips
    (file,) = (cwd / "run" / "verify" / "answers").glob("int4-*.json")
    kept = file.read_text()
    assert not any(word in kept for word in ("river", "stone", "cloud"))  # numbers, no text


@pytest.mark.process
def test_it_is_then_an_axis_a_column_and_a_limit(asked: tuple[Path, Said]) -> None:
    cwd, _ = asked
    tree = json.loads(frontier("show", "run", "--objectives", "quality,cost", "--json", cwd=cwd).out)
    (pool,) = tree["pooled"]
    assert [("bf16", 8), ("int4", 8)] == [(m["deployment"], m["concurrency"]) for m in pool["members"]]
    assert {} == pool["without"]
    bf16, int4 = load(cwd / "run").solve(parse_sla("p95_ttft<=1s,quality>=0.97"))
    assert (Verdict.MEETS, 8) == (bf16.verdict, bf16.load)
    assert (Verdict.VIOLATES, "quality") == (int4.verdict, int4.binding)
    assert Cause.SLOW_ALONE not in {reason.cause for reason in int4.explanation.reasons}, "it is not speed"
    again = frontier("verify", "run", "--quality", "--find", cwd=cwd)
    assert 2 == again.code
    assert_golden_row("messages", again.error)


def test_a_check_of_quality_is_no_hold(tmp_path: Path) -> None:
    made(tmp_path, STATED)
    said = frontier("verify", "run", "--quality", "--for", "1h", cwd=tmp_path, here=True)
    assert (2, True) == (said.code, "--for" in said.error)


@pytest.mark.process
def test_a_picture_has_all_deployments_and_the_frontier_over_them(asked: tuple[Path, Said]) -> None:
    cwd, _ = asked
    assert 0 == frontier("plot", "run", "--objectives", "quality,cost,p95_ttft", "-o", "q.svg", cwd=cwd).code
    drawn = (cwd / "q.svg").read_text().replace("\u00a0", " ")
    assert ["bf16", "int4"] == [name for name in ("bf16", "int4") if f"{name}, c=8" in drawn]


@pytest.mark.process
def test_stated_quality_needs_no_server_and_may_limit_a_sweep(tmp_path: Path) -> None:
    cwd = made(tmp_path, STATED.replace("p95_ttft: 1s", "p95_ttft: 1s, quality: 0.93"))
    bf16, int4 = load(cwd / "run").solve()
    assert [Verdict.MEETS, Verdict.VIOLATES] == [bf16.verdict, int4.verdict]
    assert ("quality", 0.9) == (int4.binding, int4.metrics["quality"].value)
    axes = "quality,cost,p95_ttft,output_throughput"
    report = frontier("report", "run", "--objectives", axes, "-o", "-", cwd=cwd)
    assert (0, True) == (report.code, "64/24" in report.out)
    page = cwd / "page.json"
    assert 0 == frontier("report", "run", "--objectives", "quality,cost", "-o", page, cwd=cwd).code
    assert 0 == frontier("plot", "run", "--objectives", "quality,cost", "-o", "q.svg", cwd=cwd).code
    assert re.search(r"int4: \d+% less cost .* than bf16, for 0.\d+ less quality", (cwd / "q.svg").read_text())
    assert ["bf16", "int4"] == [m["deployment"] for m in json.loads(page.read_text())["pooled"][0]["members"]]
    nothing = frontier("verify", "run", "--quality", cwd=cwd)
    assert 2 == nothing.code
    assert_golden_row("messages", nothing.error)


def test_several_runs_have_one_frontier(tmp_path: Path) -> None:
    made(tmp_path, STATED)
    shutil.copytree(tmp_path / "run", tmp_path / "other")
    tree = json.loads(frontier("show", "run", "other", "--objectives", "quality,cost", "--json", cwd=tmp_path).out)
    owners = ["run · bf16", "other · bf16", "run · int4", "other · int4"]
    assert owners == [m["deployment"] for m in tree["pooled"][0]["members"]]
    assert 0 == frontier("show", "run", "other", "--objectives", "quality,cost", cwd=tmp_path).code


@pytest.mark.process
@pytest.mark.slow
def test_a_scorer_of_the_users_makes_the_quality(tmp_path: Path) -> None:
    """Half of the answers score 0.75, the others 0.25, whoever gave them."""
    cwd = made(tmp_path, MEASURED.replace("prompts: 60", "prompts: 20"))
    (cwd / "score.py").write_text(
        "import json, sys\n"
        "for line in sys.stdin:\n"
        "    row = json.loads(line)\n"
        "    print(0.75 if row['id'].endswith('.1') and row['answer'].strip() else 0.25)\n"
    )
    said = frontier("verify", "run", "--quality", "--scorer", f"{sys.executable} score.py", cwd=cwd)
    assert 0 == said.code, said.err
    assert '"score":0.75' in next((cwd / "run" / "verify" / "answers").glob("int4-*.json")).read_text()
    tree = json.loads(frontier("show", "run", "--json", cwd=cwd, here=True).out)
    assert {0.5} == {point["metrics"]["quality"]["value"] for point in tree["points"] if point["deployment"] == "int4"}


def test_a_scorer_is_for_a_check_of_quality(tmp_path: Path) -> None:
    made(tmp_path, STATED)
    for words in (("--scorer", "cat"), ("--quality", "--scorer", " "), ("--find", "--scorer", "cat")):
        said = frontier("verify", "run", *words, cwd=tmp_path, here=True)
        assert 2 == said.code
        assert_golden_row("messages", said.error)


@pytest.mark.parametrize(
    "value", ["{reference: fp16}", "good", "{reference: bf16, prompts: 3}", "{reference: bf16, prompt: 30}"]
)
def test_a_quality_that_cannot_be_is_refused(value: str, tmp_path: Path) -> None:
    text = CONFIG.replace("QUALITY1", "quality: 1").replace("QUALITY2", f"quality: {value}")
    (tmp_path / "s.yaml").write_text(text)
    said = frontier("sweep", "s.yaml", "--dry-run", cwd=tmp_path)
    assert 2 == said.code
    assert_golden_row("complaints", said.error)


def test_a_sweep_cannot_decide_by_what_is_measured_afterwards(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(MEASURED.replace("p95_ttft: 1s", "quality: 0.9"))
    said = frontier("sweep", "s.yaml", "--dry-run", cwd=tmp_path)
    assert 2 == said.code
    assert_golden_row("complaints", said.error)


def test_objectives_are_two_to_four(tmp_path: Path) -> None:
    made(tmp_path, STATED)
    for names in ("quality", "quality,quality", "quality,cost,p99_ttft,p50_ttft,p99_e2e"):
        said = frontier("show", "run", "--objectives", names, cwd=tmp_path)
        assert 2 == said.code
        assert_golden_row("messages", said.error.replace(names, "NAMES"), "show")
    said = frontier("compare", "run", "run", "--objectives", "quality,cost,p99_ttft", cwd=tmp_path)
    assert 2 == said.code
    assert_golden_row("messages", said.error, "compare")


def test_damaged_answers_are_named(tmp_path: Path) -> None:
    made(tmp_path, MEASURED)
    folder = tmp_path / "run" / "verify" / "answers"
    folder.mkdir(parents=True)
    (folder / "int4-64x24.json").write_text('{"deployment": 4}')
    said = frontier("show", "run", cwd=tmp_path)
    assert_golden_row("messages", said.err)
    assert RunDirectory.read(tmp_path / "run").answers(GreedyReplies) == ()  # those of the checks are elsewhere
