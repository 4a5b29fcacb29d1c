"""Whole passes over a file of prompts: the window ends with the last request of one."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from frontier.client.load.trial import measured_to_pass
from frontier.config import load_config
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Measurement, Phase, Trial, Window
from frontier.planning.plan import make_plan
from frontier.read_run import load
from frontier.sweep.backend import HttpBackend
from frontier.sweep.conductor import Conductor
from frontier.sweep.given_files import with_files
from tests.kit.sweeps import Told, open_run

TRIAL = Trial("d", Shape.of(8, 8), 2, 1, Phase.GRID, 4, 7, 2.0, 0.0, 60.0, "f")
MEASURED = Measurement(TRIAL, 0.0, Window(1.0, 9.0), "requests")
SENT = (6.0, 0.5, 2.0, 8.0, 4.0, 7.0, 9.5)


def test_what_was_sent_after_a_whole_pass_is_not_in_the_window() -> None:
    end = measured_to_pass(MEASURED, SENT, 2).window.end
    assert 7.0 < end < 8.0
    assert 4.0 < measured_to_pass(replace(MEASURED), SENT[2:5], 2).window.end < 8.0


@pytest.mark.parametrize(("ended", "whole"), [("time", 2), ("requests", 5), ("requests", 6), ("requests", 1)])
def test_a_window_that_is_whole_or_was_cut_by_a_time_stays_as_it_is(ended: str, whole: int) -> None:
    measured = replace(MEASURED, ended=ended)
    assert measured == measured_to_pass(measured, SENT, whole)


@pytest.mark.process
@pytest.mark.parametrize(
    ("workers", "loads"), [(1, [8, 16]), (2, [8]), pytest.param(2, [16], marks=pytest.mark.nightly)]
)
def test_a_sweep_of_passes_counts_each_prompt_equally_often(
    workers: int, loads: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [json.dumps({"prompt": f"{i} is the number of this prompt", "output_tokens": 2 + i}) for i in range(12)]
    Path("p.jsonl").write_text("\n".join(rows))
    text = f"""\
endpoint: simulator
shapes: [16/8]
prompts: p.jsonl
requests: 3 passes
concurrency: {loads}
workers: {workers}
refine: 0
"""
    config = with_files(load_config(text, "sweep.yaml"))

    async def go() -> None:
        await Conductor(config, make_plan(config), run, HttpBackend(config, {}), Told(), asyncio.Event()).conduct()

    with open_run(tmp_path / "run", config, text) as run:
        asyncio.run(go())
    for history in load(tmp_path / "run").histories.values():
        for trial, data in history:
            lengths = sorted(data.asked_osl.tolist())
            assert data.n >= trial.requests
            assert data.n % 12 == 0
            if workers == 1:  # of several processes one may be ahead of another by a few requests
                assert sorted(list(range(2, 14)) * (data.n // 12)) == lengths
