"""Plot, report and completion as commands: what they write, what they refuse, and what they do not
import."""

import csv
import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from frontier.cli.plot import file_names
from frontier.core.model.metrics import LATENCIES, metric
from frontier.core.model.series import Series
from frontier.core.model.shapes import Shape
from frontier.read_run import load
from tests.kit.commands import Said, frontier
from tests.kit.golden import assert_golden_row
from tests.kit.sweeps import sweep_in_virtual_time

CONFIG = """\
endpoint: simulator
simulator: {step_base: 5ms, per_decode: 60us, per_prefill_token: 20us, noise: 0.05}
shapes: [{isl: {uniform: [192, 512]}, osl: 32, name: chat}]
concurrency: [1, 4, 16, 64]
sla: {p99_ttft: 80ms}
requests: 1000
repeats: 1
refine: 0
gpus: 2
price: $3/gpu/h
"""
HEAVY = (
    "aiohttp",
    "uvloop",
    "pandas",
    "scipy.optimize",
    "scipy.stats",
    "matplotlib.pyplot",
    "matplotlib.style.core",
    "prometheus_client",
    "urllib.request",
)


@pytest.fixture(scope="module")
def cwd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("present")
    (here / "runs").mkdir()
    sweep_in_virtual_time(here / "runs" / "night", CONFIG)
    return here


@pytest.mark.parametrize("figure", ["latency", "throughput", "goodput", "inflation", "tails", "jitter", "timeline"])
def test_every_figure_is_written(cwd: Path, figure: str) -> None:
    said = frontier("plot", "--figure", figure, "-o", f"{figure}.svg", cwd=cwd)
    assert (0, f"wrote {figure}.svg") == (said.code, said.err.splitlines()[-1])
    assert "chat" in "".join(ET.parse(cwd / f"{figure}.svg").getroot().itertext())


def test_a_timeline_is_of_the_setting_asked_for(cwd: Path) -> None:
    assert 0 == frontier("plot", "--figure", "timeline", "--at", "4", "-o", "four.svg", cwd=cwd).code
    assert "chat at c=4" in "".join(ET.parse(cwd / "four.svg").getroot().itertext())
    said = frontier("plot", "--figure", "timeline", "--at", "5", "-o", "five.svg", cwd=cwd)
    assert 2 == said.code
    assert_golden_row("messages", said.error)


def test_nothing_to_draw_says_why(cwd: Path) -> None:
    goodput = frontier("plot", "--figure", "goodput", "--sla", "output_throughput>=10", "-o", "x.svg", cwd=cwd)
    contexts = frontier("plot", "--figure", "contexts", "-o", "x.svg", cwd=cwd)
    assert [2, 2] == [goodput.code, contexts.code]
    assert_golden_row("messages", f"{goodput.error}\n{contexts.error}")


@pytest.mark.parametrize(
    "axes", ["output_throughput,p99_e2e", "output_throughput,p50_interactivity", "cost,p99_ttft", "goodput,p99_ttft"]
)
def test_the_axes_are_a_choice(cwd: Path, axes: str) -> None:
    assert 0 == frontier("plot", "--objectives", axes, "-o", "axes.svg", cwd=cwd).code
    words = "".join(ET.parse(cwd / "axes.svg").getroot().itertext())
    for name in axes.split(","):
        of = metric(name)
        label = of.label if of.quantity is None else of.label.replace(of.quantity.upper(), LATENCIES[of.quantity])
        assert label in words


def test_a_report_for_machines_holds_both_answers(cwd: Path) -> None:
    assert 0 == frontier("report", "-o", "new/page.json", "--objectives", "output_throughput,p99_e2e", cwd=cwd).code
    told = json.loads((cwd / "new/page.json").read_text())
    assert ["frontier.report/1", "frontier.solve/1", "frontier.show/1"] == [
        told["schema"],
        told["solve"]["schema"],
        told["show"]["schema"],
    ]
    assert ["output_throughput", "p99_e2e"] == told["show"]["objectives"]
    assert told["sections"][0]["neighbours"]
    said = frontier("report", "-o", "page.txt", cwd=cwd)
    assert 2 == said.code
    assert_golden_row("messages", said.error)


@pytest.mark.process
def test_looking_at_a_run_imports_no_client_and_no_optimiser(cwd: Path) -> None:
    """In one process: what a command imported would still be there after the next."""
    code = (
        "import sys\n"
        "from frontier.cli.main import run\n"
        f"heavy = set({HEAVY!r})\n"
        "assert run(['show']) == run(['plot', '-o', 'quick.svg']) == 0\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
        "assert run(['report', '-o', 'quick.html']) == 0\n"  # a page fits the capacity
        "print(sorted((heavy - {'scipy.optimize'}) & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, check=True)
    assert ["[]", "[]"] == [line for line in done.stderr.splitlines() if line.startswith("[")]


def test_several_runs_share_a_panel(cwd: Path) -> None:
    sweep_in_virtual_time(cwd / "runs" / "day", CONFIG.replace("per_decode: 60us", "per_decode: 90us"))
    said = frontier("plot", "runs/night", "runs/day", "-o", "both.svg", cwd=cwd)
    words = "".join(ET.parse(cwd / "both.svg").getroot().itertext())
    shutil.rmtree(cwd / "runs" / "day")
    assert (0, "wrote both.svg") == (said.code, said.err.strip())
    assert "night" in words
    assert "day" in words


@pytest.mark.slow
def test_the_deployments_of_a_run_share_a_panel_when_asked(cwd: Path) -> None:
    engine = CONFIG.splitlines()[1].removeprefix("simulator: ")
    head = "\n".join(
        line for line in CONFIG.splitlines() if not line.startswith(("endpoint", "simulator", "gpus", "price"))
    )
    several = "\n".join(
        f"  - {{name: {name}, endpoint: simulator, simulator: {engine.replace('60us', cost)}}}"
        for name, cost in (("bf16", "90us"), ("fp8", "50us"))
    )
    sweep_in_virtual_time(cwd / "other" / "two", f"{head}\ndeployments:\n{several}\n")
    assert 0 == frontier("plot", "other/two", "--overlay", "-o", "two.svg", cwd=cwd).code
    words = "".join(ET.parse(cwd / "two.svg").getroot().itertext()).replace("\u00a0", " ")
    fp8 = next(d for d in load(cwd / "other" / "two").solve() if d.deployment == "fp8")
    assert ["bf16", "fp8"] == [name for name in ("bf16", "fp8") if name in words]
    assert f"run at c={fp8.load}" in words
    said = frontier("plot", "other/two", "--overlay", "--figure", "tails", "-o", "two.svg", cwd=cwd)
    assert 2 == said.code
    assert_golden_row("messages", said.error)


def complete(cwd: Path, words: str) -> Said:
    last = str(len(words.split(" ")) - 1)
    return frontier(cwd=cwd, here=False, _FRONTIER_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=last)


@pytest.mark.process
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("frontier pl", "plain,plot"),
        ("frontier show ru", "plain,runs/night"),
        ("frontier plot --figure ti", "plain,timeline"),
        ("frontier plot --objectives output_throughput,p99_e", "plain,output_throughput,p99_e2e"),
        ("frontier solve --sla p99_ttft<=1s,p99_tp", "plain,p99_ttft<=1s,p99_tpot"),
        ("frontier solve --sla voi", "plain,voice"),
        ("frontier plot runs/night --shape ", "plain,chat"),
        ("frontier plot --deployment ", "plain,default"),
        ("frontier show --set budget.t", "plain,budget.time"),
        ("frontier sweep --set sl", "plain,sla"),
    ],
)
def test_the_shell_completes_commands_runs_figures_and_metrics(cwd: Path, words: str, offered: str) -> None:
    assert offered in complete(cwd, words).out.splitlines()


@pytest.mark.process
def test_the_shell_offers_no_limit_that_is_refused(cwd: Path) -> None:
    assert [] == [line for line in complete(cwd, "frontier solve --sla m").out.splitlines() if "max_" in line]


def test_answers_in_a_pipe_have_no_colour_and_fit_the_columns(cwd: Path) -> None:
    for columns in ("60", "80", "140"):
        said = frontier("show", cwd=cwd, COLUMNS=columns, NO_COLOR="")
        assert "\x1b" not in said.out
        table = [line for line in said.out.splitlines() if re.match(r" *\d+ ", line)]
        assert max(map(len, table)) <= int(columns)


def test_a_comparison_is_drawn_with_its_verdict_as_the_title(cwd: Path, tmp_path: Path) -> None:
    for name in ("before", "after"):
        shutil.copytree(cwd / "runs" / "night", tmp_path / name)
    said = frontier("compare", "before", "after", "--json", cwd=tmp_path)
    assert (4, "not resolved") == (said.code, json.loads(said.out)["verdict"])
    assert 0 == frontier("plot", "before", "after", "-o", "both.svg", cwd=tmp_path).code
    drawn = "".join(ET.parse(tmp_path / "both.svg").getroot().itertext()).replace("\u00a0", " ")
    assert {"● before", "■ after"} <= set(map(str.strip, drawn.splitlines()))
    assert "Not resolved between" in drawn
    said = frontier("plot", "before", "after", "-o", "both.gif", cwd=tmp_path)
    assert 2 == said.code
    assert_golden_row("messages", said.error)


def test_what_one_panel_cannot_tell_apart_is_refused_before_anything_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [f"variant-{i},1024,256,{c},{90 * c},{0.1 * c}" for i in range(9) for c in (1, 2, 4)]
    head = "deployment,isl,osl,concurrency,output_throughput,p99_ttft"
    (tmp_path / "nine.csv").write_text("\n".join([head, *rows]))
    assert 0 == frontier("import", "nine.csv", "-o", "nine", cwd=tmp_path).code

    def computed(*_: object) -> None:
        raise AssertionError("it was computed first")

    monkeypatch.setattr("frontier.show.view.selection.views_of", computed)
    nine = frontier("plot", "nine", "--overlay", "-o", "x.svg", cwd=tmp_path)
    ten = frontier("plot", *["nine"] * 2, "--deployment", "variant-[0-4]", "-o", "x.svg", cwd=tmp_path)
    assert [2, 2] == [nine.code, ten.code]
    assert_golden_row("messages", f"{nine.error}\n{ten.error}")


def test_every_answering_command_looks_at_the_run_as_asked(cwd: Path) -> None:
    priced = ("--set", "price=$9/h", "--shape", "chat")
    text = frontier("export", "--csv", *priced, "--objectives", "cost,p99_ttft", cwd=cwd).out
    table = list(csv.DictReader(io.StringIO(text)))
    assert {"cost,p99_ttft"} == {row["objectives"] for row in table}
    shown = json.loads(frontier("show", "--json", *priced, cwd=cwd).out)["points"]
    assert [p["metrics"]["cost"]["value"] for p in shown] == pytest.approx([float(row["cost"]) for row in table])
    solved = json.loads(frontier("solve", "--json", "--sla", "cost<=$90/Mtok, p99_ttft<=80ms", *priced, cwd=cwd).out)
    assert "cost" in solved["shapes"][0]["metrics"]
    for command in ("export --csv", "solve", "show"):
        said = frontier(*command.split(), "--shape", "4096/1", cwd=cwd)
        assert 2 == said.code
        assert_golden_row("messages", said.error)


@pytest.mark.parametrize(
    ("series", "names"),
    [
        ([("d", (64, 8))], ["fig.png"]),
        ([("d", (1024, 256)), ("d", (64, 8))], ["fig-1024x256.png", "fig-64x8.png"]),
        ([("bf16", (64, 8)), ("fp8", (64, 8))], ["fig-bf16.png", "fig-fp8.png"]),
        ([("bf16", (64, 8)), ("fp8", (128, 8))], ["fig-bf16-64x8.png", "fig-fp8-128x8.png"]),
        ([("d", (64, 8)), ("d", (64, 8))], ["fig-64x8.png", "fig-64x8-2.png"]),
    ],
)
def test_several_figures_are_named_by_what_differs(series: list[tuple[str, tuple[int, int]]], names: list[str]) -> None:
    assert names == [f.name for f in file_names(Path("fig.png"), [Series(d, Shape.of(*s)) for d, s in series])]


def test_a_hostile_deployment_leaves_the_directory_alone() -> None:
    shape = Shape.of(64, 8)
    for file in file_names(Path("out/fig.png"), [Series("../../etc/x", shape), Series("b\0c", shape)]):
        assert Path("out") == file.parent
        assert file.name.isprintable()
