"""`frontier import` as a user meets it: what it says, what it stores, and what comes of it."""

import json
import re
import shutil
from pathlib import Path

import pytest

import frontier
from frontier._version import __version__
from frontier.cli.main import run
from frontier.read_run import load
from frontier.show.picture.labels import bar_key
from frontier.show.view.series_view import series_views
from frontier.store.run_dir import RunDirectory
from tests.extras.exchange.test_imported_requests import N, requests
from tests.kit.golden import assert_golden_row
from tests.kit.peer_files import (
    DATA,
    aiperf,
    aiperf_lines,
    guidellm_detailed,
    vllm,
    vllm_detailed,
    without_parser,
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


def minimax() -> list[str]:
    return sorted(map(str, (DATA / "inferencex-result").glob("*.json")))


def test_files_become_a_run_that_is_shown_plotted_and_solved(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == run(["import", *minimax(), "-o", "runs/minimax"])
    said = capsys.readouterr()
    assert_golden_row("answers", said.out)
    assert_golden_row("messages", said.err)
    assert "--point-estimates" in said.err
    assert 0 == run(["show", "runs/minimax"])
    assert "12,788" in capsys.readouterr().out
    assert 4 == run(["solve", "runs/minimax", "--sla", "p99_ttft<=1s"])
    assert "--point-estimates" in capsys.readouterr().out
    assert 0 == run(["solve", "runs/minimax", "--sla", "p99_ttft<=1s", "--point-estimates"])
    assert "Run at concurrency 32" in capsys.readouterr().out
    assert 3 == run(["solve", "runs/minimax", "--sla", "p99_ttft<=100ms", "--point-estimates"])
    assert 0 == run(["plot", "runs/minimax", "--sla", "p99_ttft<=1s", "-o", "p.svg"])
    picture = (here / "p.svg").read_text()
    assert "vLLM bench serve" in picture.replace("\u00a0", " ")
    assert "requests would decide" not in picture


def section(page: str, title: str) -> str:
    """What stands below a heading of a page in Markdown."""
    return page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_the_page_does_not_say_it_was_measured_here(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["import", *minimax(), "-o", "runs/minimax"])
    capsys.readouterr()
    assert 0 == run(["report", "runs/minimax", "-o", "page.md"])
    page = (here / "page.md").read_text()
    for title in ("Provenance", "How to reproduce", "What this does not cover"):
        assert_golden_row("pages", section(page, title).replace(__version__, "VERSION"), title)
    assert "imported.invalid" not in page


def test_json_says_what_was_made(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == run(["import", *minimax(), "-o", "r", "--json", "--deployment", "mi355x"])
    tree = json.loads(capsys.readouterr().out)
    assert ("frontier.import/1", "r", 8, 0, ["mi355x"]) == (
        tree["schema"],
        tree["run"],
        tree["points"],
        tree["trials"],
        tree["deployments"],
    )
    assert {"vLLM bench serve"} == {source["format"] for source in tree["files"]}
    assert 0 == run(["show", "r", "--json"])
    points = json.loads(capsys.readouterr().out)["points"]
    assert [True] * 8 == [p["on_frontier"] for p in points]
    assert {"value": pytest.approx(0.17999399), "low": None, "high": None, "n": 40} == points[0]["metrics"]["p99_ttft"]


def test_the_same_import_again_changes_nothing_and_another_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == run(["import", *minimax()[:2], "-o", "r"])
    before = (here / "r" / "imported.jsonl").read_bytes()
    assert 0 == run(["import", *minimax()[:2], "-o", "r"])
    assert before == (here / "r" / "imported.jsonl").read_bytes()
    capsys.readouterr()
    assert 2 == run(["import", *minimax()[:3], "-o", "r"])
    assert_golden_row("messages", capsys.readouterr().err)


def test_without_a_name_the_run_is_the_newest(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == run(["import", *minimax()])
    assert 0 == run(["show"])
    assert "12,788" in capsys.readouterr().out
    assert 0 == run(["status"])
    said = capsys.readouterr().out
    assert "8 points" in said
    assert_golden_row("answers", said)


@pytest.mark.parametrize("bad", ["a.json", "b.json", "d.json", "gone.json", "empty"])
def test_a_file_that_cannot_be_used_is_named_and_nothing_is_written(
    here: Path, capsys: pytest.CaptureFixture[str], bad: str
) -> None:
    (here / "empty").mkdir()
    (here / "a.json").write_text("{")
    (here / "b.json").write_text('{"hello": 1}')
    shutil.copy(minimax()[0], here / "c.json")
    shutil.copy(minimax()[0], here / "d.json")
    assert 2 == run(["import", "c.json", bad, "-o", "r"])
    said = capsys.readouterr().err
    assert said.startswith(f"error: {bad}: ")
    assert_golden_row("messages", without_parser(said))
    assert not (here / "r").exists()


WRONG_OPTIONS = {
    "an unknown format": ["--format", "excel"],
    "no name": ["--deployment", "a b"],
    "k": ["--shape", "1k/1k"],
    "digits": ["--shape", "9" * 5000 + "/1"],
    "a length beyond any context": ["--shape", "4194305/1"],
}


@pytest.mark.parametrize("what", WRONG_OPTIONS)
def test_options_that_cannot_be(here: Path, capsys: pytest.CaptureFixture[str], what: str) -> None:
    assert 2 == run(["import", minimax()[0], *WRONG_OPTIONS[what]])
    assert_golden_row("messages", capsys.readouterr().err)
    assert not (here / "runs").exists()


def test_foreign_text_is_harmless_and_secrets_are_not_kept(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b[31m<script>\u202e" + "x" * 500
    tree = aiperf(run_info={"cli_command": "aiperf --api-key sk-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"})
    tree["input_config"]["models"]["items"][0]["name"] = "sk-bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
    (here / "a.json").write_text(json.dumps(tree))
    (here / "b.json").write_text(json.dumps(vllm(model_id=evil, label=evil, p99_ttft_ms=70.0)))
    assert 0 == run(["import", "a.json", "b.json", "-o", "r"])
    assert 0 == run(["report", "r", "-o", "r.html"])
    everything = b"".join(p.read_bytes() for p in [*(here / "r").rglob("*"), here / "r.html"] if p.is_file())
    assert b"sk-aaaa" not in everything
    assert b"\x1b" not in everything
    assert b"<script>x" not in (here / "r.html").read_bytes()
    captured = capsys.readouterr()
    assert "\x1b" not in captured.out + captured.err


def test_price_and_sla_can_be_written_into_the_runs_config(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["import", *minimax(), "-o", "r"])
    config = here / "r" / "config.yaml"
    config.write_text(config.read_text() + "sla: {p99_ttft: 1s}\nprice: $16/h\n")
    found = frontier.load(here / "r")
    cost = found.points()[0].metrics["cost"].value
    assert pytest.approx(16 / 3600 / 258.769951490635 * 1e6) == cost
    (decision,) = found.solve(point_estimates=True)
    assert 32 == decision.load


def test_a_program_can_import_too(here: Path) -> None:
    found = frontier.import_files(minimax(), "r", deployment="mi355x")
    assert found.is_imported
    frame = found.frame()
    assert [4, 8, 16, 32, 64, 128, 256, 512] == list(frame["concurrency"])
    assert {"mi355x"} == set(frame["deployment"])


def test_a_damaged_run_says_so(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["import", *minimax(), "-o", "r"])
    file = here / "r" / "imported.jsonl"
    file.write_bytes(file.read_bytes()[:-40])
    capsys.readouterr()
    assert 2 == run(["show", "r"])
    said = capsys.readouterr().err
    assert "r/imported.jsonl" in said
    assert_golden_row("messages", said)
    assert RunDirectory.read(here / "r").manifest["imported"]["sources"]


def many(deployments: int) -> str:
    """A table of so many deployments in two shapes."""
    rows = [
        f"{c},{isl},256,a100-{'fp8' if i % 2 else 'bf16'}-tp{i},{c * (90 + i)},{30 + c}"
        for i in range(deployments)
        for isl in (1024, 8192)
        for c in (1, 8, 32)
    ]
    return "\n".join(["concurrency,isl,osl,deployment,output_throughput,p99_ttft_ms", *rows]) + "\n"


def test_of_very_many_deployments_some_are_to_be_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "many.csv").write_text(many(150))
    assert 0 == run(["import", "many.csv", "-o", "runs/many"])
    for command in (["plot", "runs/many", "-o", "p.svg"], ["report", "runs/many", "-o", "r.html"]):
        capsys.readouterr()
        assert 2 == run(command)
        said = capsys.readouterr().err
        assert "--deployment 'a100-bf16-tp0'  --shape 1024/256" in said
        assert_golden_row("messages", said)
    assert not (here / "p.svg").exists()

    assert 0 == run(["plot", "runs/many", "--deployment", "*fp8-tp1?", "--shape", "1024/256", "-o", "p.svg"])
    picture = (here / "p.svg").read_text().replace("\u00a0", " ")
    assert {11, 13, 15, 17, 19} == {i for i in range(150) if re.search(rf"a100-fp8-tp{i}\b", picture)}
    assert "bf16" not in picture
    capsys.readouterr()
    assert 0 == run(["show", "runs/many", "--deployment", "a100-fp8-tp1", "--shape", "1024", "--json"])
    points = json.loads(capsys.readouterr().out)["points"]
    assert {("a100-fp8-tp1", "1024/256")} == {(p["deployment"], p["shape"]) for p in points}  # a whole name is that one
    assert 4 == run(["compare", "runs/many", "runs/many", "--deployment", "fp8-tp149", "--shape", "8192"])
    assert 1 == capsys.readouterr().out.count("not resolved ")


def test_a_deployment_that_is_not_there_is_told_with_those_that_are(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "many.csv").write_text(many(8))
    run(["import", "many.csv", "-o", "runs/many"])
    capsys.readouterr()
    assert 2 == run(["plot", "runs/many", "--deployment", "a100-fp9-tp1"])
    said = capsys.readouterr().err
    assert set(re.findall(r"a100-\S+-tp\d", said)) > {"a100-fp9-tp1", "a100-fp8-tp1"}
    assert_golden_row("messages", said, "deployment")
    assert 2 == run(["show", "runs/many", "--shape", "128/128"])
    assert_golden_row("messages", capsys.readouterr().err, "shape")


def test_a_page_names_only_the_checks_that_could_be_made(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["import", *minimax(), "-o", "runs/minimax"])
    capsys.readouterr()
    run(["report", "runs/minimax", "-o", "page.md"])
    quality = section((here / "page.md").read_text(), "Quality of the data")
    assert_golden_row("pages", quality)
    assert "buffered streams" not in quality


def test_how_to_reproduce_has_the_options_the_page_was_made_with(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["import", *minimax(), "-o", "runs/minimax"])
    run(["report", "runs/minimax", "--sla", "p99_ttft<=1s", "--set", "gpus=16", "-o", "page.md"])
    capsys.readouterr()
    page = (here / "page.md").read_text()
    assert "frontier report runs/minimax -o page.md --sla 'p99_ttft<=1s' --set gpus=16" in page


def test_a_picture_of_some_deployments_names_only_their_models(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(f"{c},128,64,{name},{name}-8b,{c * 90},{30 + c}\n" for name in ("llama", "qwen") for c in (1, 8))
    (here / "two.csv").write_text("concurrency,isl,osl,deployment,model,output_throughput,p99_ttft_ms\n" + rows)
    run(["import", "two.csv", "-o", "runs/two"])
    run(["plot", "runs/two", "--deployment", "qwen", "-o", "p.svg"])
    capsys.readouterr()
    picture = (here / "p.svg").read_text()
    assert "qwen-8b" in picture
    assert "llama-8b" not in picture


def test_values_decide_where_they_are_asked_to_and_nothing_is_called_proven(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """modelscope/evalscope#1101: a table of values, decided as solve does."""
    rows = [f"{c},256,128,500,{k * c * 50},{50 + c},{d}" for d, k in (("bf16", 1), ("fp8", 1.4)) for c in (4, 16)]
    (here / "t.csv").write_text("\n".join(["conc,isl,osl,n,output_throughput,p99_ttft_ms,deployment", *rows]))
    assert 0 == run(["import", "t.csv", "-o", "r"])
    capsys.readouterr()
    sides, sla = ["--deployment", "bf16", "--deployment", "fp8"], ["--sla", "p99_ttft<=90ms"]
    assert 4 == run(["compare", "r", *sides, *sla])
    assert "nothing is resolved" in capsys.readouterr().out
    for command, code in (
        (["compare", "r", *sides, *sla], 0),
        (["compare", "r", *sides], 0),
        (["solve", "r", *sla], 0),
        (["users", "r", "--think", "45s", *sla], 0),
        (["trend", "r", *sla], 0),
    ):
        assert code == run([*command, "--point-estimates"]), command
        said = capsys.readouterr()
        words = re.sub(r"nothing here is proven|No SLA, so nothing is to be proven", "", said.out + said.err)
        words = re.sub(r"verify --find proves a rate", "", words)
        assert not re.search(r"proven|prove|within the interval", words), words
    assert 2 == run(["compare", "--gate", "r", *sides, "--point-estimates"])


@pytest.mark.parametrize("asked", [[], ["--point-estimates"]])
def test_repeats_are_called_values_of_runs_and_no_proof(
    here: Path, capsys: pytest.CaptureFixture[str], asked: list[str]
) -> None:
    for name, more in (("a", 0), ("b", 200)):
        rows = [f"{c},64,8,400,{90 * c + more + k},{0.1 * c}" for c in (8, 16) for k in (0, 5, 9)]
        heads = "concurrency,isl,osl,n,output_throughput,p99_ttft"
        Path(f"{name}.csv").write_text("\n".join([heads, *rows]))
        run(["import", f"{name}.csv", "--deployment", name, "-o", name])
    capsys.readouterr()
    run(["compare", "a", "b", "--sla", "p99_ttft<=1s", *asked])
    assert "3 runs" in capsys.readouterr().out
    found = load(Path("a"))
    points = found.points()
    (key,) = bar_key(series_views(points, found.frontiers(points), found.limits(), (), {}))
    assert "between runs" in key
    assert "95% CI" not in key


@pytest.mark.parametrize(
    ("sla", "code", "chosen"),
    [("p90_ttft<=400ms", 5, None), ("p90_ttft<=400ms, error_rate<=6%", 0, 8), ("p99_ttft<=400ms", 3, None)],
)
def test_failures_of_an_aggregate_are_judged_as_those_of_requests(
    here: Path, capsys: pytest.CaptureFixture[str], sla: str, code: int, chosen: int | None
) -> None:
    """5% failed: excluded, unless a limit judges them: the errors, or what they make infinite."""
    head = "concurrency,isl,osl,n,failed,output_throughput,p90_ttft_ms,p99_ttft_ms"
    (here / "a.csv").write_text(f"{head}\n8,256,128,2560,128,900,300,380\n")
    run(["import", "a.csv", "-o", "r"])
    capsys.readouterr()
    assert code == run(["solve", "r", "--sla", sla, "--point-estimates", "--json"])
    assert chosen == json.loads(capsys.readouterr().out)["shapes"][0]["concurrency"]


@pytest.mark.parametrize("tool", ["vllm", "aiperf", "guidellm"])
def test_requests_that_would_decide_come_with_the_tools_own_command(
    here: Path, capsys: pytest.CaptureFixture[str], tool: str
) -> None:
    records = requests(400)
    written = {
        "vllm": lambda: json.dumps(vllm_detailed(records, N)).encode(),
        "aiperf": lambda: aiperf_lines(records),
        "guidellm": lambda: json.dumps(guidellm_detailed(records, N)).encode(),
    }
    (here / "f.json").write_bytes(written[tool]())
    run(["import", "f.json", "-o", "r"])
    capsys.readouterr()
    assert 4 == run(["solve", "r", "--sla", "p99_e2e<=2s", "--json"])
    step = json.loads(capsys.readouterr().out)["shapes"][0]["next_step"]
    assert step["command"].startswith({"vllm": "vllm bench serve"}.get(tool, tool))
    assert "URL" in step["command"]
    (sent,) = map(int, re.findall(r"(?:num-prompts |count[ =])(\d+)", step["command"]))
    assert sent >= step["requests"]
