"""A background beside a shape, on the embedded engine over HTTP: its steps are known by
arithmetic."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from frontier.core.flags.flags import flags
from frontier.core.model.decisions import Verdict
from frontier.core.model.errors import UsageError
from frontier.core.model.metrics import metric
from frontier.core.model.trials import Outcome
from frontier.core.window.from_records import window_data
from frontier.extras.api.entry import run_sweep
from frontier.read_run import load
from frontier.run import Run
from frontier.simulator.spec import EngineSpec
from frontier.store.run_dir import RunDirectory
from tests.kit.background_server import WORDS, RefusingProcess
from tests.kit.commands import conclusive, frontier

pytestmark = pytest.mark.process
BASE, EACH, CHAT, LIMIT = 0.010, 0.001, 4, 0.022
AMOUNTS = (0, 2, 12)
CONFIG = f"""\
endpoint: simulator
simulator: {{step_base: 10ms, per_decode: 1ms, per_prefill_token: 0us}}
shapes: [{{name: chat, isl: 16, osl: 8}}]
concurrency: {CHAT}
background: {{shape: 16/24, concurrency: {list(AMOUNTS)}, extra_body: {{priority: 10}}}}
sla: {{p50_tpot: 22ms}}
warmup: 100ms
"""


def step(streams: int) -> float:
    """Seconds of a step in which so many requests of the background decode beside the shape's."""
    return BASE + EACH * (CHAT + streams)


@pytest.fixture(scope="session")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real sweep, once a process, also where tests of other modules come between."""
    path = tmp_path_factory.mktemp("background")
    (path / "sweep.yaml").write_text(CONFIG)
    said = conclusive(frontier("sweep", path / "sweep.yaml", "-o", path / "run", cwd=path, timeout=400))
    assert 0 == said.code, said.err
    return path / "run"


@pytest.fixture(scope="session")
def run(swept: Path) -> Run:
    return load(swept)


def test_the_answer_is_the_most_background_whose_steps_keep_the_limit(run: Run) -> None:
    (result,) = run.answers()
    (found,) = result.backgrounds
    assert max(amount for amount in AMOUNTS if step(amount) < LIMIT) == found.most
    assert AMOUNTS == found.streams
    assert Verdict.VIOLATES is found.decisions[-1].verdict
    assert [found.chosen] == result.deciding


@pytest.mark.parametrize("amount", AMOUNTS)
def test_latency_and_background_are_as_the_steps_make_them(run: Run, amount: int) -> None:
    (point,) = [p for p in run.points() if p.shape.background and p.shape.background.streams == amount]
    assert point.valid, point.flags
    assert point.value("p50_tpot") == pytest.approx(step(amount), rel=0.2)
    assert point.value("background_throughput") == pytest.approx(amount / step(amount), rel=0.2)
    # A request of 8 tokens takes 7 steps after its first, and one or two until then.
    assert 7 * step(amount) * 0.9 < point.value("p50_e2e") < 10 * step(amount) * 1.2


def test_the_background_is_in_the_file_and_in_no_metric_of_the_shape(swept: Path, run: Run) -> None:
    directory = RunDirectory.read(swept)
    for key, measurement in directory.finished().items():
        beside = measurement.trial.shape.background
        assert beside is not None
        lines = [json.loads(line) for line in directory.trial_file(key).read_text().splitlines()]
        behind = [line for line in lines if line.get("background")]
        own = list(directory.records(key))
        assert bool(beside.streams) is bool(behind)
        assert len(own) == len(lines) - len(behind)
        window = measurement.window
        (sample,) = [s for h in run.histories.values() for t, s in h if t.key == key]
        assert sample.n == sum(window.start <= r.sent <= window.end and r.outcome is Outcome.OK for r in own)
        assert CHAT == pytest.approx(sample.in_flight.mean(), rel=0.1)
        assert beside.streams == pytest.approx(sample.background_in_flight.mean(), rel=0.1)
        # At least the tokens of requests within the window, at most those of all that touch it.
        inside = [r for r in behind if window.start <= r["sent"] and r["end"] <= window.end]
        touching = [r for r in behind if r["sent"] <= window.end and r["end"] >= window.start]
        least, most = (sum(r.get("completion_tokens") or 0 for r in some) for some in (inside, touching))
        assert least - 1e-6 <= sample.background_tokens.sum() <= most + 1e-6


def test_a_background_that_got_no_token_excludes_the_setting(swept: Path) -> None:
    directory = RunDirectory.read(swept)
    key, measurement = next((k, m) for k, m in directory.finished().items() if m.trial.shape.label.endswith(" 2"))
    own, behind = list(directory.records(key)), list(directory.records(key, background=True))
    assert "background_missing" not in {flag.name for flag in flags(window_data(measurement, own, behind))}
    starved = [
        replace(r, outcome=Outcome.TIMEOUT, gaps=(), first=None, last=None, completion_tokens=None) for r in behind
    ]
    for records in (starved, behind[:1], ()):
        fatal = {flag.name for flag in flags(window_data(measurement, own, records)) if flag.fatal}
        assert "background_missing" in fatal


def test_every_output_names_the_most_background(swept: Path) -> None:
    cwd = swept.parent
    solved = json.loads(frontier("solve", swept, "--json", cwd=cwd, here=True).out)
    (found,) = solved["tiers"][0]["backgrounds"]
    assert {"shape": "16/24", "concurrency": 2} == found["background"]
    assert list(AMOUNTS) == [each["background"] for each in found["amounts"]]
    page = frontier("report", swept, cwd=cwd, here=True)
    text = frontier("solve", swept, cwd=cwd, here=True)
    assert 0 == text.code
    for said in (text.out, page.out):
        assert "16/24" in said
    drawn = frontier("plot", swept, "-o", cwd / "b.svg", cwd=cwd, here=True)
    assert 0 == drawn.code, drawn.error
    assert metric("background_throughput").label in (cwd / "b.svg").read_text()


def test_a_background_that_the_server_refuses_is_no_answer_and_says_why(tmp_path: Path) -> None:
    with RefusingProcess(EngineSpec.from_mapping({"step_base": BASE, "per_decode": EACH})) as server:
        text = CONFIG.replace("endpoint: simulator", f"endpoint: {server.url}").replace("[0, 2, 12]", "[0, 2]")
        text = "\n".join(line for line in text.splitlines() if not line.startswith("simulator:"))
        (tmp_path / "sweep.yaml").write_text(text)
        said = frontier("sweep", tmp_path / "sweep.yaml", "-o", tmp_path / "run", cwd=tmp_path, timeout=170)
    (result,) = load(tmp_path / "run").answers()
    assert Verdict.INVALID is result.backgrounds[0].decisions[-1].verdict
    assert 5 == said.code, said.err
    assert WORDS in said.out
    for command in (("verify", "run"), ("verify", "run", "--for", "1h"), ("users", "run", "--think", "45s")):
        refused = frontier(*command, cwd=tmp_path, here=True)
        assert 2 == refused.code
        assert "background" in refused.error
    for source in ("run", "sweep.yaml"):
        assert "background" in frontier("predict", source, cwd=tmp_path).error


def test_virtual_time_has_no_place_for_it(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(CONFIG)
    with pytest.raises(UsageError, match="background"):
        run_sweep(tmp_path / "sweep.yaml", tmp_path / "run", virtual=True)
