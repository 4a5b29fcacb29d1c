"""The public names, and that they are what a notebook needs."""

import builtins
import copy
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import frontier
from frontier.config import Setting
from frontier.config.complaints import ConfigError
from frontier.core.model.decisions import Verdict
from frontier.core.model.errors import UsageError
from frontier.extras.api.notebook_run import NotebookRun
from frontier.show.point_rows import FIRST
from tests.kit.places import ROOT
from tests.kit.sweeps import ENGINES, commands_in_virtual_time, config_text, sweep_in_virtual_time

NAMES = [
    "Config",
    "ConfigError",
    "Decision",
    "Estimate",
    "ForeignFileError",
    "Frontier",
    "FrontierError",
    "Limit",
    "MeasurementError",
    "Metric",
    "Point",
    "Run",
    "Shape",
    "ShapeError",
    "StoreError",
    "UsageError",
    "Verdict",
    "__version__",
    "compare_runs",
    "import_files",
    "load",
    "load_config",
    "make_plan",
    "metric",
    "nondominated",
    "parse_sla",
    "run_sweep",
]


def test_the_public_names_are_these() -> None:
    assert NAMES == frontier.__all__
    assert NAMES == dir(frontier)
    for name in NAMES:
        assert getattr(frontier, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = frontier.nothing


@pytest.mark.process
def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, frontier; print(sorted({'numpy', 'pandas', 'aiohttp', 'pydantic'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


CONFIG = "endpoint: simulator\nshapes: [32/4]\nconcurrency: [1, 2]\nrequests: 40\n"


def test_a_simulated_deployment_is_swept_in_virtual_time(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(CONFIG)
    run = frontier.run_sweep(file, tmp_path / "a", virtual=True)
    assert [1, 2] == list(run.frame()["concurrency"])
    again = frontier.run_sweep(file, tmp_path / "b", virtual=True)
    assert run.frame().equals(again.frame()), "the same on every machine"
    file.write_text(CONFIG.replace("simulator", "http://127.0.0.1:9/v1"))
    with pytest.raises(UsageError, match="virtual time"):
        frontier.run_sweep(file, tmp_path / "c", virtual=True)


def test_the_command_that_would_decide_a_run_in_virtual_time_measures_in_a_run_of_its_own(tmp_path: Path) -> None:
    """No command goes on with such a run, as another server answers it."""
    file, path = tmp_path / "sweep.yaml", tmp_path / "a"
    file.write_text(CONFIG)
    run = frontier.run_sweep(file, path, virtual=True)
    (decision,) = run.solve("p99_e2e<=10s")
    assert decision.next_step is not None
    words = shlex.split(decision.next_step.command or "")
    assert f"{path}-2" == words[words.index("-o") + 1]
    assert not Path(f"{path}-2").exists()


@pytest.mark.parametrize("kind", [str, Path])
def test_a_config_is_loaded_from_a_path(kind: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sweep.yaml").write_text(CONFIG)
    config = frontier.load_config(kind("sweep.yaml"))
    assert ((1, 2), 40) == (config.loads, config.requests)
    assert config.identity() == frontier.load_config(CONFIG, "sweep.yaml").identity()
    assert {1, 2} == {trial.load for trial in frontier.make_plan(config).trials}
    assert 60 == frontier.load_config("sweep.yaml", settings=["requests=60"]).requests


def test_a_config_is_loaded_from_a_text_with_a_name() -> None:
    assert (1, 2) == frontier.load_config(CONFIG, "any name").loads
    assert 60 == frontier.load_config(CONFIG, "any name", [Setting.of("requests=60")]).requests
    with pytest.raises(ConfigError, match="any name:2:1: unknown key 'shpes'"):
        frontier.load_config(CONFIG.replace("shapes", "shpes"), "any name")


def test_a_config_from_a_path_reads_the_files_that_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("agent.jsonl").write_text('{"turns": [{"new": 64, "out": 3}, {"new": 8, "out": 3}]}\n' * 3)
    Path("sweep.yaml").write_text(CONFIG.replace("[32/4]", "[{name: agent, sessions: agent.jsonl}]"))
    (shape,) = frontier.load_config("sweep.yaml").shapes
    assert shape.has_sessions


def test_what_is_no_config_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no config .*none\.yaml"):
        frontier.load_config(tmp_path / "none.yaml")
    with pytest.raises(UsageError, match="takes a path"):
        frontier.load_config(CONFIG)
    with pytest.raises(UsageError):
        frontier.load_config(tmp_path)


def test_a_program_can_do_what_the_command_does(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(
        "endpoint: simulator\nsimulator: {step_base: 2ms}\nshapes: [32/4]\nconcurrency: [1, 2]\n"
        "sla: {p50_ttft: 10s}\nrequests: 40\nrepeats: 1\nrefine: 0\nmax_time: 5s\n"
    )
    with commands_in_virtual_time():
        run = frontier.run_sweep(tmp_path / "sweep.yaml", tmp_path / "run")
    assert [1, 2] == list(run.frame()["concurrency"])
    assert 2 == len(frontier.load(tmp_path / "run").points())
    (decision,) = run.solve(frontier.parse_sla("p50_ttft<=1us"))
    assert decision.verdict is Verdict.VIOLATES


def test_a_sweep_can_be_run_where_an_event_loop_is_running_already() -> None:
    import asyncio

    from frontier.client.http.http_client import run

    async def inner() -> int:
        await asyncio.sleep(0)
        return 7

    async def notebook() -> int:
        return run(inner())

    assert asyncio.run(notebook()) == 7


def test_objects_show_themselves_in_a_notebook(tmp_path: Path) -> None:
    run, _, _ = sweep_in_virtual_time(tmp_path / "night", config_text(ENGINES["smooth"], requests=120, repeats=10))
    assert "Run at concurrency 32" in run._repr_html_()
    assert str(tmp_path) not in run._repr_html_()
    decisions = run.solve()
    assert isinstance(decisions, tuple)
    assert "Run at concurrency 32" in decisions._repr_html_()
    assert "p99 TTFT" in decisions._repr_html_()
    again = copy.copy(decisions)
    assert (decisions, decisions.gpus) == (again, again.gpus), "a copy is shown alike"
    picture = run.picture()
    assert "<svg" in picture._repr_svg_()
    assert repr(picture).startswith("<picture: Run at concurrency 32")
    picture.save(tmp_path / "a.png", width=800, theme="dark")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_frames_name_their_units(tmp_path: Path) -> None:
    run, _, _ = sweep_in_virtual_time(tmp_path / "night", config_text(ENGINES["smooth"], requests=120, repeats=10))
    frame = run.frame()
    units = frame.attrs["units"]
    assert ("s", "s", "tok/s", "share") == tuple(
        units[name] for name in ("p99_ttft", "p99_ttft_low", "output_throughput", "error_rate")
    )
    assert set(frame.columns) - set(units) == set(FIRST)
    requests = run.requests()
    counted = frame.set_index("concurrency")["n"]
    assert dict(requests.groupby("concurrency").size()) == dict(counted)
    p99 = requests[requests["concurrency"] == 8]["ttft"].quantile(0.99, interpolation="higher")
    assert p99 == pytest.approx(frame.set_index("concurrency").loc[8, "p99_ttft"], rel=0.02)


def documented() -> list[tuple[str, str]]:
    """The docstrings of every public name and of its public members."""
    found = [(name, getattr(frontier, name).__doc__ or "") for name in NAMES if name != "__version__"]
    for name in NAMES:
        if isinstance(value := getattr(frontier, name), type):
            members = ((key, getattr(value, key)) for key in vars(value) if not key.startswith("_"))
            found += [(f"{name}.{key}", member.__doc__ or "") for key, member in members if callable(member)]
    return [*found, *((f"run.{n}", getattr(NotebookRun, n).__doc__ or "") for n in ("solve", "frame", "picture"))]


def test_an_error_that_a_docstring_names_is_a_public_name() -> None:
    named = {(where, error) for where, text in documented() for error in re.findall(r"\b[A-Z]\w+Error\b", text)}
    assert ("run_sweep", "ConfigError") in named
    assert {error for _, error in named if not hasattr(builtins, error)} <= set(NAMES)


def test_limits_are_given_as_a_text_and_a_tier_by_its_name(tmp_path: Path) -> None:
    tiers = "sla: {gold: {p50_ttft: 1us}, silver: {p50_ttft: [1s, 2s]}}\n"
    (tmp_path / "sweep.yaml").write_text(CONFIG + tiers)
    run = frontier.run_sweep(tmp_path / "sweep.yaml", tmp_path / "run", virtual=True)
    by_text, by_limits = run.solve("p50_ttft<=1s"), run.solve(frontier.parse_sla("p50_ttft<=1s"))
    assert by_text == by_limits
    assert run.solve("silver")[0].limits == run.config.tiers[1][1]
    assert list(run.frame("gold")["verdict"]) != list(run.frame("silver")["verdict"])
    with pytest.raises(frontier.UsageError, match="bronze"):
        run.solve("bronze")


def test_a_decision_is_three_lines_of_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(CONFIG)
    run = frontier.run_sweep(tmp_path / "sweep.yaml", tmp_path / "run", virtual=True)
    for sla in ("p50_ttft<=1s, p90_e2e<=9s", "p50_ttft<=1us", "p99.9_ttft<=1s"):
        (decision,) = run.solve(sla)
        lines = repr(decision).splitlines()
        assert 3 == len(lines)
        assert max(map(len, lines)) < 120
        assert all(part in lines[0] for part in ("32/4", decision.verdict, f"load={decision.load}"))
        assert all(str(limit) in lines[1] for limit in decision.limits)


@pytest.mark.process
@pytest.mark.slow
def test_the_examples_of_the_page_are_typed(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "api.md").read_text(), re.DOTALL)
    assert len(blocks) >= 2
    for i, block in enumerate(blocks):
        (tmp_path / f"example_{i}.py").write_text(block)
    command = [sys.executable, "-m", "mypy", "--strict", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout
