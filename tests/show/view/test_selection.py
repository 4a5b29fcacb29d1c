"""What is drawn of a run: on which axes, and into which files."""

import json
from pathlib import Path

import pytest

from frontier.config import Config, load_config
from frontier.core.model.errors import UsageError
from frontier.extras.present.detail import detail_figures
from frontier.read_run import load
from frontier.run import Run
from frontier.show.view.selection import provenance_of
from frontier.show.view.series_view import series_view
from tests.kit.golden import assert_golden_row
from tests.kit.sweeps import swept
from tests.kit.toy import toy_frontier, toy_points

CONFIG = "endpoint: http://127.0.0.1:8000\nmodel: m\nshapes: [64/8]\nsla: {p99_ttft: 500ms, p99_tpot: 26ms}\n"
NAMED_DEVICES = """\
deployments: [{name: a, endpoint: simulator, hardware: h200, gpus: 2}, {name: b, endpoint: simulator}]
shapes: [64/16]
concurrency: [1]
requests: 20
repeats: 1
refine: 0
"""


def config(more: str = "") -> Config:
    return load_config(CONFIG + more, "sweep.yaml")


def test_an_import_has_no_timeline_of_any_setting() -> None:
    points = toy_points()
    run = Run(Path("imported"), config(), {}, {}, imported=tuple(points))
    with pytest.raises(UsageError) as error:
        detail_figures(run, [series_view(points, toy_frontier(points))], "timeline", at=4)
    assert_golden_row("messages", str(error.value))


def test_a_run_says_when_and_on_what_it_was_measured(tmp_path: Path) -> None:
    swept(tmp_path / "run", NAMED_DEVICES)
    manifest = tmp_path / "run" / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "created": 1_795_433_014.0}))
    known = provenance_of(load(tmp_path / "run"))
    assert ("2 × h200", "2026-11-23 11:23 UTC") == (known.hardware, known.created)
    manifest.write_text(json.dumps({k: v for k, v in json.loads(manifest.read_text()).items() if k != "created"}))
    assert provenance_of(load(tmp_path / "run")).created is None
