"""A hold: a latency that grows is named with the time since when, a steady server is left alone,
and what was held is not held again."""

import asyncio
import dataclasses
import json
import math
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import frontier
from benchmarks import hold_drift
from frontier.client.ask.same_server import Identity
from frontier.core.model.decisions import Limit, Verdict
from frontier.extras.api.virtual_backend import VirtualBackend
from frontier.extras.verify import soak_hours
from frontier.extras.verify.open_loop_check import Sender
from frontier.extras.verify.soak import SoakPlan, begun, hold, judge
from frontier.extras.verify.soak_text import hold_json, hold_text, window_text
from frontier.extras.verify.soak_watch import LAG, SURELY, LatencyWatch, threshold
from frontier.extras.verify.soak_windows import Kept, logarithms, window_trial
from frontier.read_run import load
from frontier.run import Run
from frontier.show.view.selection import views_of
from frontier.store.run_dir import RunDirectory
from tests.kit.commands import conclusive, http_sweep, start
from tests.kit.commands import frontier as command
from tests.kit.golden import assert_golden_row

CONFIG = """
endpoint: simulator
simulator: {model_name: sim, step_base: 60ms, per_decode: 900us, per_prefill_token: 80us, max_num_seqs: 16, noise: 0.05}
shapes: [64/8]
concurrency: [2]
requests: 300
repeats: 1
refine: 0
budget: {time: 1h}
sla: {p90_ttft: 1s, p90_tpot: 72ms, error_rate: 2%}
"""


class Slows(VirtualBackend):
    """The embedded engine in virtual time, every step of which costs so many times as much after so
    many seconds; it hears of a stop after so many trials."""

    def __init__(self, run: Run, times: float, after: float, begun: float = 1_790_000_000.0) -> None:
        spec = run.config.deployments[0].engine_spec()
        costs = {name: getattr(spec, name) * times for name in ("step_base", "per_decode", "per_prefill_token")}
        super().__init__({"default": spec})
        self.slower = VirtualBackend({"default": dataclasses.replace(spec, **costs)})
        self.after, self.begun, self.now, self.stops = after, begun, 0.0, math.inf

    async def run(self, trial, *, stop, **given):
        backend = self.slower if self.now >= self.after else super()
        measurement = await backend.run(trial, stop=stop, **given)
        measured = dataclasses.replace(measurement, epoch=self.begun + self.now)
        self.now += measured.window.end
        self.stops -= 1
        if self.stops <= 0:
            stop.set()
        return measured


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hold")
    (folder / "sweep.yaml").write_text(CONFIG)
    frontier.run_sweep(folder / "sweep.yaml", folder / "run", virtual=True)
    return folder / "run"


@pytest.fixture
def run(swept: Path, tmp_path: Path) -> Run:
    shutil.copytree(swept, tmp_path / "run")
    return load(tmp_path / "run")


def held(run, backend, duration, limits=None):
    (decision,) = run.solve()
    assert decision.load == 2

    async def go():
        with RunDirectory.open_to_verify(run.path) as store:
            plan = begun(store, decision, limits or run.config.limits, duration)
            return await hold(Sender(run, backend, store, lambda _: None, asyncio.Event()), plan, lambda _: None)

    return asyncio.run(go())


def test_an_engine_that_slows_by_15_percent_after_five_minutes_is_named_with_the_minute(run):
    found = held(run, Slows(run, 1.15, 300.0), 600.0)
    assert found.over
    ((since, times),) = [(g.since, g.times) for what, g in found.growths if what == "p90_tpot"]
    assert 300.0 - 15 <= since - found.windows[0].begun <= 300.0 + 30
    assert 1.10 < times < 1.20
    assert found.verdict is Verdict.VIOLATES  # as it is now, p90 TPOT is 64 ms x 1.15
    assert [share.limit.metric for share in found.shares if share.verdict is Verdict.VIOLATES] == ["p90_tpot"]
    (pair,) = soak_hours.detail_figures(run, views_of(run, run.config.limits), "hours")
    marked = [rule.at for panel in pair[1].panels for rule in panel.rules if rule.axis == "x"]
    assert pytest.approx((since - found.windows[0].begun) / 60) in marked


class Falls(Slows):
    """A gateway before the engine, which answers with another model from some second to another."""

    def __init__(self, run: Run, since: float, until: float = math.inf) -> None:
        super().__init__(run, 1.0, math.inf)
        self.since, self.until = since, until

    async def run(self, trial, *, stop, **given):
        model = "tiny" if self.since <= self.now < self.until else "m"
        measurement = await super().run(trial, stop=stop, **given)
        return dataclasses.replace(measurement, named={"asked": {"m": 0}, "model": {model: 40}})


@pytest.mark.parametrize(
    ("known", "since", "until", "another"),
    [(True, 0.0, math.inf, 60), (True, 50.0, math.inf, 50), (True, 50.0, 61.0, 1), (False, 50.0, math.inf, 50)],
    ids=["all", "later", "a minute", "no names known"],
)
def test_another_model_than_the_runs_holds_nothing(run, known, since, until, another):
    """A gateway fell back to a smaller model, and the hold said that it kept the SLA."""
    if known:
        run = dataclasses.replace(run, identities={"default": Identity(frozenset({"m"}))})
    found = held(run, Falls(run, since, until), 60.0)
    assert Verdict.INVALID is found.verdict
    assert 0 < found.another <= another
    text = hold_text(found, again="frontier verify run --for 60s", width=120)
    assert "keeps the SLA" not in text
    assert "tiny" in text
    assert found.another == hold_json(found)["another_server"]


def test_a_steady_engine_is_left_alone(run):
    found = held(run, Slows(run, 1.0, math.inf), 900.0)
    assert (Verdict.MEETS, ()) == (found.verdict, found.growths)
    assert 900.0 <= found.seconds < 940.0
    assert 0 < found.minutes_to_see < 10
    assert found.least_growth is not None
    assert 1.0 < found.least_growth < 1.5


def test_a_hold_that_was_stopped_goes_on_and_one_that_is_over_begins_anew(run):
    first = Slows(run, 1.0, math.inf)
    first.stops = 3
    stopped = held(run, first, 120.0)
    assert (3, False) == (len(stopped.windows), stopped.over)
    whole = held(run, Slows(run, 1.0, math.inf, 1_790_001_000.0), 120.0)
    assert whole.over
    assert [w.begun for w in whole.windows[:3]] == [w.begun for w in stopped.windows]
    again = held(run, Slows(run, 1.0, math.inf, 1_790_002_000.0), 120.0)
    assert again.plan.hold != whole.plan.hold
    assert again.windows[0].begun == pytest.approx(1_790_002_000.0, abs=60)


def test_windows_that_were_counted_by_other_limits_are_no_part_of_a_hold(run):
    first = Slows(run, 1.0, math.inf)
    first.stops = 3
    held(run, first, 120.0)
    tight = [dataclasses.replace(limit, promise=limit.promise / 1000) for limit in run.config.limits]
    whole = held(run, Slows(run, 1.0, math.inf, 1_790_001_000.0), 120.0, tight)
    assert whole.windows[0].begun >= 1_790_001_000.0
    assert {1.0} == {share.value for share in whole.shares if share.limit.of.p is not None}


def test_a_hold_that_was_cut_off_names_the_command_that_goes_on(run, monkeypatch):
    (decision,) = run.solve()
    cut = judge(SoakPlan(decision, run.config.limits, 60.0, "hold #1"), [])
    monkeypatch.setattr("frontier.extras.verify.soak_command.send", lambda *_: cut)
    done = command("verify", str(run.path), "--for", "1min", cwd=run.path.parent, here=True)
    assert "--for 1min" in done.out


def test_a_limit_of_a_class_is_a_share_of_the_requests_of_that_class():
    limit, windows = Limit("chat.p90_ttft", 0.5), []
    for number in range(10):  # one request in ten is of the class, and each third of those over its limit
        begun = 60.0 * number
        windows.append(Kept(begun, begun + 60, 1000, {}, {limit.metric: 33}, {limit.metric: 100}, {}))
    found = judge(SoakPlan(None, (limit,), 600.0, "hold #1"), windows)
    assert (0.33, Verdict.VIOLATES) == (found.shares[0].value, found.verdict)


def test_no_records_are_kept_of_a_hold(run):
    held(run, Slows(run, 1.0, math.inf), 120.0)
    assert [] == [path for path in (run.path / "verify").rglob("*") if path.suffix not in {"", ".jsonl"}]


@pytest.mark.parametrize("given", [["--for", "5s"], ["--for", "2h"], ["--for", "10min", "--find"], ["--for", "soon"]])
def test_what_cannot_be_held_is_refused(run, given):
    done = command("verify", str(run.path), *given, cwd=run.path.parent, here=True)
    assert done.code == 2
    assert_golden_row("messages", done.err.replace(str(run.path), "RUN"), given[-1])


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.process
def test_a_real_server_is_held_and_the_hold_goes_on_after_a_kill(tmp_path):
    (tmp_path / "sweep.yaml").write_text(http_sweep("[2]", requests=100, step="20ms"))
    assert conclusive(command("sweep", "sweep.yaml", "-o", "run", cwd=tmp_path)).code == 0
    process = start("verify", "run", "--for", "1min", cwd=tmp_path)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(30)
    process.kill()
    process.communicate()
    kept = RunDirectory.read_checks(tmp_path / "run").journal_lines()
    began = time.monotonic()
    done = command("verify", "run", "--for", "1min", "--json", cwd=tmp_path)
    assert (done.code, json.loads(done.out)["verdict"]) == (0, "meets")
    assert time.monotonic() - began < 60, "what was held is not held again"
    assert sum(line["event"] == "held" for line in kept) >= 1


def test_the_answer_and_its_json_say_the_same(run):
    found = held(run, Slows(run, 1.15, 300.0), 600.0)
    tree = hold_json(found)
    assert ("violates", len(found.windows)) == (tree["verdict"], tree["windows"])
    assert {g["of"].partition(",")[0] for g in tree["growths"]} == {"p90_ttft", "p90_tpot"}
    assert_golden_row("messages", "\n".join([hold_text(found, again="AGAIN", width=100), window_text(found)]))


@pytest.mark.parametrize("server", list(hold_drift.SERVERS)[:2])
def test_ten_percent_more_is_known_within_half_an_hour(server):
    minutes = [hold_drift.minutes_to_know(server, 1.1, seed=seed) for seed in range(20)]
    assert sum(m <= 30 for m in minutes) >= 18


@pytest.mark.slow
@pytest.mark.parametrize("server", list(hold_drift.SERVERS))
def test_a_steady_server_is_called_changed_once_a_month_at_most(server):
    assert hold_drift.false_alarms(server, 2) <= 2 + 2.5 * math.sqrt(2)


def test_a_creep_is_named_within_fourteen_windows_and_steady_holds_are_left_alone():
    """One of 56% in two minutes was hidden by the deviation that it made itself."""
    assert sum(hold_drift.names(1.56, 14, 0.01, seed) for seed in range(20)) >= 19
    assert sum(hold_drift.names(1.56, 16, 0.03, seed) for seed in range(20)) >= 15
    assert not any(hold_drift.names(1.0, 16, speed, seed) for speed in hold_drift.SPEEDS for seed in range(50))


@pytest.mark.parametrize("n", [5, 6, 8, 16, 60])
def test_the_deviation_is_the_least_of_two_that_scipy_gives(n):
    levels = np.linspace(0, 0.5, n) + 0.05 * np.random.default_rng(n).standard_normal(n)
    watch = LatencyWatch(1e9)
    for level in levels:
        watch.learn(level)
    apart = np.zeros((n - LAG, n))
    rows = np.arange(n - LAG)
    apart[rows, rows + LAG], apart[rows, rows] = 1, -1
    apart -= apart.mean(axis=0)
    expected, squared = np.trace(apart.T @ apart), np.trace(apart.T @ apart @ apart.T @ apart)
    noise = float(((apart @ levels) ** 2).sum() / expected)
    freedom = expected**2 / squared
    bound = noise * freedom / stats.chi2.ppf(SURELY, freedom)
    own = float(levels.var(ddof=1))
    # The degrees of freedom are by a formula that leaves the ends out.
    assert watch.deviation == pytest.approx(math.sqrt(min(own, bound)), rel=0.12)
    assert (watch.deviation < 0.9 * math.sqrt(own)) == (n >= 8)


def test_one_wild_window_is_no_growth():
    watch, rng = LatencyWatch(threshold(100_000)), np.random.default_rng(3)
    levels = rng.normal(0, 0.05, 300)
    levels[100], levels[200] = 3.0, math.inf
    assert [watch.add(x, i, i + 1) for i, x in enumerate(levels)] == [None] * 300


@pytest.mark.parametrize("windows", [12, 20, 60, 300])
def test_the_least_growth_that_could_be_named_is_named_and_a_smaller_one_is_not(windows):
    def named(times: float) -> bool:
        watch, rng = LatencyWatch(threshold(10_000)), np.random.default_rng(1)
        learned = rng.normal(0, 0.001, 5)
        levels = [*learned, *[math.log(times)] * (windows - 5)]
        return any(watch.add(level, i, i + 1) is not None for i, level in enumerate(levels))

    steady = LatencyWatch(threshold(10_000))
    for i in range(windows):
        steady.add(0.0, i, i + 1)
    least = steady.least_named
    assert least is not None
    assert named(least + 0.02)
    assert not named(least - 0.02)


def test_of_few_windows_no_growth_could_be_named():
    watch = LatencyWatch(threshold(10_000))
    for i in range(8):
        assert math.isinf(watch.windows_to_see(1.1)) == (i < 5), "how windows scatter is not known before"
        watch.add(0.0, i, i + 1)
    assert watch.least_named is None


def test_failures_that_reach_the_percentile_are_a_growth():
    watch = LatencyWatch(threshold(100_000))
    steady = [watch.add(0.0, i, i + 1) for i in range(20)]
    grown = [watch.add(math.inf, i, i + 1) for i in range(20, 40)]
    assert set(steady) == {None}
    assert next(g for g in grown if g).since == 20


def test_of_few_requests_a_lower_percentile_is_followed():
    values = np.arange(1.0, 41.0)
    assert logarithms(values, 0.99)[0] == math.log(35)
    assert logarithms(np.append(values, np.inf), 0.5)[1] == pytest.approx(np.log(values).mean())


def test_a_latency_of_zero_has_a_logarithm_and_no_warning():
    assert logarithms(np.zeros(40), 0.9) == (-math.inf, math.inf)


def test_a_window_at_a_rate_lasts_as_long_as_one_in_a_closed_loop(tmp_path: Path) -> None:
    """The streams of a rate bound what may be in flight; they are no requests to wait for."""
    (tmp_path / "s.yaml").write_text(
        "endpoint: simulator\nshapes: 64/16\nrate: [4, 8]\nrequests: 200\nrepeats: 1\nrefine: 0\n"
        "sla: {p90_ttft: 500ms}\nsimulator: {step_base: 6ms, noise: 0.05}\n"
    )
    run = frontier.run_sweep(tmp_path / "s.yaml", tmp_path / "run", virtual=True)
    (decision,) = run.solve()
    trial = window_trial(run, decision, 10.0, 1, "hold")
    assert trial.load.is_open
    assert trial.requests <= 2 * 10.0 * 8


def test_a_window_at_a_rate_plays_the_trace_of_the_run(tmp_path: Path) -> None:
    """A recorded trial knows the name of its trace; the run has its times."""
    (tmp_path / "a.txt").write_text("".join(f"{i * 0.2:.3f}\n" for i in range(300)))
    (tmp_path / "s.yaml").write_text(
        "endpoint: simulator\nshapes: 64/16\nrate: [4, 8]\nrequests: 300\nrepeats: 1\nrefine: 0\n"
        f"arrivals: {{trace: {tmp_path / 'a.txt'}}}\n"
        "sla: {p90_ttft: 500ms}\nsimulator: {step_base: 6ms, noise: 0.05}\n"
    )
    run = frontier.run_sweep(tmp_path / "s.yaml", tmp_path / "run", virtual=True)
    (decision,) = run.solve()
    arrivals = window_trial(run, decision, 10.0, 1, "hold").shape.arrivals
    assert arrivals is not None
    assert arrivals.trace is not None
    assert 0 <= arrivals.trace.start(seed=1)[0] <= arrivals.trace.seconds
