"""The answering commands on a run: what they print, in JSON and for people, and their exit
codes."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from frontier.read_run import load
from frontier.show.view.sentences import decision_sentence
from tests.kit.commands import frontier
from tests.kit.golden import assert_golden_row
from tests.kit.sweeps import ENGINES, config_text, sweep_in_virtual_time


@pytest.fixture(scope="module")
def cwd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with one finished run, runs/night."""
    here = tmp_path_factory.mktemp("answers")
    (here / "runs").mkdir()
    sweep_in_virtual_time(here / "runs" / "night", config_text(ENGINES["smooth"], requests=120, repeats=10))
    return here


def headline(cwd: Path) -> str:
    """What the answer begins with."""
    (decision,) = load(cwd / "runs" / "night").solve()
    assert decision.load == 32
    return decision_sentence(decision, throughput="output_throughput").partition(":")[0]


def test_solve_answers_in_json_as_the_contract_says(cwd: Path) -> None:
    said = frontier("solve", "--json", cwd=cwd)
    answer = json.loads(said.out)
    (shape,) = answer["shapes"]
    assert (said.code, answer["schema"]) == (0, "frontier.solve/1")
    assert {"shape", "verdict", "concurrency", "binding", "metrics", "notes"} <= set(shape)
    assert ("256/32", "meets", "p99_ttft") == (shape["shape"], shape["verdict"], shape["binding"])
    assert {"value", "low", "high", "n"} <= set(shape["metrics"]["p99_ttft"])
    assert "run  runs/night" in said.err


@pytest.mark.parametrize(
    ("sla", "code", "verdict"),
    [
        ("p99_ttft<=50ms", 0, "meets"),
        ("p99_ttft<=1ms", 3, "violates"),
        ("p99.9_ttft<=50ms", 4, "unproven"),
        ("p99_ttft<=50ms, p99_tpot<=8ms, error_rate<=1%", 0, "meets"),
        ("output_throughput>=900", 0, "meets"),
    ],
)
def test_the_exit_code_says_the_verdict(cwd: Path, sla: str, code: int, verdict: str) -> None:
    said = frontier("solve", "runs/night", "--sla", sla, "--json", cwd=cwd)
    assert (code, verdict) == (said.code, json.loads(said.out)["shapes"][0]["verdict"])


@pytest.mark.parametrize("sla", ["p99_tfft<=50ms", "p99_ttft<=50", "p99_ttft>=50ms", "fast", ""])
def test_an_sla_that_makes_no_sense_is_refused(cwd: Path, sla: str) -> None:
    said = frontier("solve", "--sla", sla, cwd=cwd)
    assert (said.code, said.out) == (2, "")
    assert said.err.count("error:") == 1


def test_show_answers_in_json_as_the_contract_says(cwd: Path) -> None:
    said = frontier("show", "--json", "--objectives", "output_throughput,p99_e2e", cwd=cwd)
    answer = json.loads(said.out)
    assert [1, 2, 4, 8, 16, 32, 64] == [p["concurrency"] for p in answer["points"]]
    assert {"shape", "concurrency", "valid", "flags", "on_frontier", "metrics"} <= set(answer["points"][0])
    assert ["output_throughput", "p99_e2e"] == answer["objectives"]
    assert said.code == 0


def test_show_fits_eighty_columns(cwd: Path) -> None:
    said = frontier("show", cwd=cwd, COLUMNS="80")
    assert max(map(len, said.out.splitlines())) <= 80
    assert "p99 TTFT" in said.out
    assert "\x1b" not in said.out


def test_plot_writes_a_picture_with_text_as_text_and_the_same_bytes_each_time(cwd: Path) -> None:
    for names in (("a.svg", "c.png", "d.pdf"), ("b.svg",)):
        assert 0 == frontier("plot", "runs/night", *(word for name in names for word in ("-o", name)), cwd=cwd).code
    assert (cwd / "a.svg").read_bytes() == (cwd / "b.svg").read_bytes()
    words = " ".join(ET.parse(cwd / "a.svg").getroot().itertext())
    assert headline(cwd) in " ".join(words.split())
    assert (cwd / "c.png").read_bytes().startswith(b"\x89PNG")
    assert (cwd / "d.pdf").read_bytes().startswith(b"%PDF")


def test_a_picture_of_an_unknown_kind_is_refused(cwd: Path) -> None:
    said = frontier("plot", "-o", "a.gif", cwd=cwd)
    assert said.code == 2
    assert_golden_row("messages", said.error)


def test_report_is_one_page_without_anything_from_elsewhere(cwd: Path) -> None:
    assert 0 == frontier("report", "-o", "page.html", cwd=cwd).code
    page = (cwd / "page.html").read_text()
    assert headline(cwd) in page
    assert not re.search(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//""", page)
    assert len(page) < 2_000_000


def test_report_for_a_pull_request_goes_to_standard_output(cwd: Path) -> None:
    said = frontier("report", cwd=cwd)
    assert said.code == 0
    assert headline(cwd) in said.out


def test_status_tells_how_a_run_stands(cwd: Path) -> None:
    said = frontier("status", "--json", cwd=cwd)
    told = json.loads(said.out)
    assert ("finished", 70, 70, 0) == (told["state"], told["done"], told["planned"], told["left"])
    assert "71 trials: 70 listed, 1" in frontier("status", cwd=cwd).out


@pytest.mark.process
def test_init_prints_a_config_that_a_dry_run_accepts(cwd: Path) -> None:
    said = frontier("init", "http://localhost:8000/v1", cwd=cwd)
    (cwd / "new.yaml").write_text(said.out)
    dry = frontier("sweep", "new.yaml", "--dry-run", "--json", cwd=cwd)
    assert dry.code == 0
    assert json.loads(dry.out)["schema"] == "frontier.plan/1"
    assert "trials" in frontier("sweep", "new.yaml", "--dry-run", cwd=cwd).out
    assert sorted(p.name for p in (cwd / "runs").iterdir()) == ["night"]
