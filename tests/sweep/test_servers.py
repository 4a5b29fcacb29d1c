"""What a night promises, in virtual time: money is kept to, turns are taken, and a lost server is
left alone."""

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from frontier.config import DeploymentConfig
from frontier.core.model.decisions import Verdict
from frontier.core.model.errors import MeasurementError
from frontier.core.model.trials import Measurement, Phase, Trial
from frontier.extras.api.notebook_run import load
from frontier.store.run_dir import RunDirectory
from frontier.sweep import servers
from frontier.sweep.backend import Facts
from tests.kit.golden import assert_golden_row
from tests.kit.sweeps import ENGINES, Clock, clocked, conduct_by_the_clock, config_text

TEXT = config_text(ENGINES["smooth"], requests=100).replace("repeats: 3", "repeats: 2")


def last_spent(path: Path) -> dict[str, float]:
    spent: dict[str, float] = RunDirectory.read(path).journal_lines()[-1]["spent"]
    return spent


# --- budgets


def test_a_budget_of_dollars_is_kept_and_most_of_it_used(tmp_path: Path) -> None:
    text = TEXT + "price: $36/h\n"
    conduct_by_the_clock(tmp_path / "whole", text, whole := clocked(text))
    dollars = (whole.now - Clock.now) * 0.01
    assert last_spent(tmp_path / "whole")["dollars"] == pytest.approx(dollars, abs=0.005)
    told, end = conduct_by_the_clock(tmp_path / "run", f"{text}budget: {{cost: ${0.6 * dollars:.2f}}}\n", clocked(text))
    assert end == "budget"
    assert 0.4 * dollars < last_spent(tmp_path / "run")["dollars"] <= 0.6 * dollars
    (dropped,) = [line for line in RunDirectory.read(tmp_path / "run").journal_lines() if line["event"] == "dropped"]
    assert f"cost ${0.6 * dollars:.2f}" in dropped["reason"]
    assert any(note.endswith(dropped["reason"]) for note in told.notes)


def test_a_deadline_drops_the_least_valuable_and_names_it(tmp_path: Path) -> None:
    conduct_by_the_clock(tmp_path / "whole", TEXT, whole := clocked(TEXT))
    at = Clock.now + 0.8 * (whole.now - Clock.now)
    until = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))[:-3]
    told, end = conduct_by_the_clock(tmp_path / "run", f"{TEXT}budget: {{until: '{until}'}}\n", clocked(TEXT))
    assert end == "budget"
    (dropped,) = [line for line in RunDirectory.read(tmp_path / "run").journal_lines() if line["event"] == "dropped"]
    assert {1, 2, 4, 8, 16, 32, 64} == {t.load for t in told.finished if t.repeat == 1}
    assert dropped["trials"]
    assert all(key.endswith("-r2") for key in dropped["trials"]), "every setting once is worth more than any twice"
    assert until in dropped["reason"]
    assert_golden_row("progress", dropped["reason"].replace(until, "TIME"))
    assert any(note.endswith(dropped["reason"]) for note in told.notes)


# --- deployments

TWO = TEXT.replace("endpoint: simulator\n", "").replace("simulator: ", "# ") + (
    "deployments:\n"
    "  - {name: a, endpoint: simulator, simulator: {step_base: 5ms}}\n"
    "  - {name: b, endpoint: simulator, simulator: {step_base: 6ms}}\n"
)


def test_deployments_that_are_up_take_turns_setting_by_setting(tmp_path: Path) -> None:
    told, end = conduct_by_the_clock(tmp_path / "run", TWO, clocked(TWO))
    assert end == "finished"
    pairs = list(zip(told.finished[::2], told.finished[1::2], strict=True))
    assert 14 == len(pairs)
    assert all({"a", "b"} == {one.deployment, other.deployment} for one, other in pairs)
    assert all(one.load == other.load for one, other in pairs)
    firsts = {one.deployment for one, _ in pairs}
    assert {"a", "b"} == firsts, "neither is always the first of its pair"


# --- a lost server


class Loses(Clock):
    """Loses its server under the second trial; it answers again at the `answers`-th time it is
    asked.
    """

    answers = 3
    wait: float | None = None
    asked = -1
    lost = False

    async def prepare(self, deployment: DeploymentConfig) -> Facts:
        self.asked += self.lost
        if 0 <= self.asked < self.answers:
            raise MeasurementError("HTTP 503", retry_after=self.wait)
        return await super().prepare(deployment)

    async def run(self, trial: Trial, **how: Any) -> Measurement:
        measurement = await super().run(trial, **how)
        if trial.load == 4 and not self.lost:
            self.lost = True
            return replace(measurement, ended="server_lost")
        return measurement


@pytest.mark.fault("stays away for minutes, with and without Retry-After (virtual time)")
@pytest.mark.parametrize(
    ("wait", "answers", "pauses", "end"),
    [
        (None, 3, [1, 2, 4], "finished"),
        (20.0, 2, [20, 20], "finished"),  # as long as the server asks for
        (None, 99, [1, 2, 4, 8, 15, 15, 15, 15, 15, 10], "server_lost"),  # less and less often, for 100 s in all
        (3600.0, 99, [100], "server_lost"),
    ],
)
def test_a_lost_server_is_asked_less_and_less_often_and_left_alone_as_long_as_it_asks(
    wait: float | None, answers: int, pauses: list[float], end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = clocked(TEXT, Loses)
    assert isinstance(backend, Loses)
    backend.wait, backend.answers, slept = wait, answers, []

    async def sleep(seconds: float, stop: asyncio.Event) -> None:
        slept.append(seconds)
        backend.now += seconds

    monkeypatch.setattr(servers, "sleep_or_stop", sleep)
    told, ended = conduct_by_the_clock(tmp_path / "run", TEXT, backend, ready_wait=100.0)
    assert (end, pauses) == (ended, slept)
    assert (4 in {t.load for t in told.finished}) == (end == "finished")


# --- a server that a trial ends

SHORT = "endpoint: simulator\nsimulator: {step_base: 5ms, per_decode: 200us}\nsla: {p90_ttft: 50ms, p90_tpot: 12ms}\n"


class Ends(Clock):
    """Its server is lost under every proof of the shape 64/16 at `under` or more."""

    under = 0

    async def run(self, trial: Trial, **how: Any) -> Measurement:
        measurement = await super().run(trial, **how)
        ends = trial.phase is Phase.PROVE and trial.shape.isl.mean == 64 and trial.load >= self.under
        return replace(measurement, ended="server_lost") if ends else measurement


@pytest.mark.parametrize("listed", ["", "concurrency: [2, 64]\n"])
def test_a_setting_under_which_the_server_is_lost_again_and_again_is_left_and_a_lower_one_is_proven(
    listed: str, tmp_path: Path
) -> None:
    backend = clocked(text := f"{SHORT}shapes: [64/16]\n{listed}", Ends)
    assert isinstance(backend, Ends)
    backend.under = 20
    _, end = conduct_by_the_clock(tmp_path / "run", text, backend)
    (decision,) = load(tmp_path / "run").solve()
    assert ("finished", Verdict.MEETS) == (end, decision.verdict)
    assert decision.load is not None
    assert 0 < decision.load < 20


def test_a_shape_whose_lowest_setting_ends_the_server_does_not_end_the_others(tmp_path: Path) -> None:
    text = f"{SHORT}shapes: [64/16, 128/16]\nconcurrency: [2, 64]\n"
    _, end = conduct_by_the_clock(tmp_path / "run", text, clocked(text, Ends))
    verdicts = {d.shape.label: d.verdict for d in load(tmp_path / "run").solve()}
    assert ("finished", {"64/16": Verdict.UNPROVEN, "128/16": Verdict.MEETS}) == (end, verdicts)


def test_one_stream_with_an_sla_is_proven(tmp_path: Path) -> None:
    text = f"{SHORT}shapes: [64/16]\nconcurrency: [1]\n"
    conduct_by_the_clock(tmp_path / "run", text, clocked(text))
    assert [1] == [decision.load for decision in load(tmp_path / "run").solve()]
