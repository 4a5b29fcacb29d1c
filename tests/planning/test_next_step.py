"""The command that would decide a setting: it asks for that setting, series and SLA, and works when
pasted."""

import dataclasses
import json
import math
import shlex
import shutil
import tarfile
from dataclasses import replace

import pytest

from frontier.cli.sweep import command as sweep
from frontier.config import Setting, load_config, parse_sla
from frontier.core.model.decisions import Decision, Limit, NextStep, Verdict
from frontier.core.model.loads import Concurrency, Rate, as_load
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Phase
from frontier.planning.budget import AROUND, TrialTimes
from frontier.planning.next_step import (
    ENOUGH_FOR_PROOFS,
    SweepAgain,
    between_measured,
    shared_commands,
    with_command,
)
from frontier.planning.plan import make_plan, make_trial
from frontier.planning.sla_result import SlaResult
from frontier.search.series_history import SeriesHistory
from frontier.show.view.explain import with_notes
from frontier.store.journal import Amount
from tests.kit.commands import frontier
from tests.kit.made import Server, trial
from tests.kit.places import DATA
from tests.kit.sweeps import ENGINES, commands_in_virtual_time

CONFIG = """
endpoint: simulator
shapes: [1024/256]
concurrency: [1, 8, 32]
sla: {p99_ttft: 500ms, p99_tpot: 30ms}
"""
AGAIN = "frontier sweep 'my configs/night.yaml' -o runs/night"


SHAPE, NO_TIMES, NOTHING = Shape.of(1024, 256), TrialTimes(), Amount()


def a_decision(limits, concurrency=32, requests=1300, shape=SHAPE, deployment="default"):
    step = NextStep(as_load(concurrency), 0.27, 1837.0, (), requests)
    return Decision(deployment, shape, tuple(limits), Verdict.MEETS, Concurrency(8), None, {}, (), next_step=step)


def commanded(decision, text=CONFIG, times=NO_TIMES, spent=NOTHING):
    return with_command(decision, SweepAgain(load_config(text, "x.yaml"), AGAIN, times, spent, "runs/night-2"))


def options(step, text=CONFIG):
    """The config and the options that the command asks for."""
    words = shlex.split(step.command)
    assert ["frontier", "sweep", "my configs/night.yaml", "-o", "runs/night"] == words[:5]
    settings = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
    only = [words[i + 1] for i, word in enumerate(words) if word == "--only"]
    prove = [words[i + 1] for i, word in enumerate(words) if word == "--prove"]
    return load_config(text, "x.yaml", [Setting.of(setting) for setting in settings]), only, prove


def test_the_run_goes_on_with_its_own_sla():
    step = commanded(a_decision(load_config(CONFIG, "x.yaml").limits))
    assert f"{AGAIN} --prove 32" == step.command


@pytest.mark.parametrize(
    ("sla", "expected"),
    [
        ("p99_ttft<=200ms, p99_tpot<=30ms", "--set 'sla={p99_ttft: 200ms, p99_tpot: 30ms}'"),
        ("p99_ttft<=200ms", "--set 'sla={p99_ttft: 200ms}'"),
        ("p99_ttft<=123.456ms, p99_tpot<=30ms", "--set 'sla={p99_ttft: 123.456ms, p99_tpot: 30ms}'"),
        ("p99_ttft<=100ms..200ms, p99_tpot<=30ms", "--set 'sla={p99_ttft: [100ms, 200ms], p99_tpot: 30ms}'"),
        (
            "p95_e2e<=4s, error_rate<=1%, output_throughput>=900",
            "--set 'sla={p95_e2e: 4s, error_rate: 1%, output_throughput: 900}'",
        ),
    ],
)
def test_another_sla_is_asked_for_in_full(sla, expected):
    limits = parse_sla(sla)
    step = commanded(a_decision(limits))
    assert step.command == f"{AGAIN} --prove 32 {expected}"
    config, _, prove = options(step)
    assert (["32"], {limit.metric: limit for limit in limits}) == (prove, {lm.metric: lm for lm in config.limits})


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        ("chat", "p99_ttft<=300ms, p99_tpot<=50ms"),
        ("p99_ttft<=500ms", "p99_ttft<=300ms"),
        ("{gold: {p99_ttft: 500ms}}", "p99_ttft<=300ms"),
        ("{p99.9_ttft: 500ms}", "p99.9_ttft<=300ms"),
    ],
)
def test_the_command_for_another_sla_works_however_the_config_writes_its_own(written, asked):
    text = CONFIG.replace("{p99_ttft: 500ms, p99_tpot: 30ms}", written)
    config, *_ = options(commanded(a_decision(parse_sla(asked)), text), text)
    assert parse_sla(asked) == config.limits


def test_a_tier_of_the_config_needs_no_other_sla():
    text = CONFIG.replace("{p99_ttft: 500ms, p99_tpot: 30ms}", "{gold: {p99_ttft: 200ms}, rest: {p99_ttft: 500ms}}")
    gold = load_config(text, "x.yaml").tiers[0][1]
    assert "--set" not in commanded(a_decision(gold), text).command
    config, *_ = options(commanded(a_decision([Limit("p99_ttft", 0.3)]), text), text)
    assert (Limit("p99_ttft", 0.3),) == config.limits


def test_only_the_series_is_measured_where_the_run_has_several():
    text = CONFIG.replace("[1024/256]", "[1024/256, {name: chat, isl: 64, osl: 6}]").replace(
        "endpoint: simulator", "deployments: [{name: bf16, endpoint: simulator}, {name: fp8, endpoint: simulator}]"
    )
    shape = next(s for s in load_config(text, "x.yaml").shapes if s.name)
    step = commanded(a_decision(load_config(text, "x.yaml").limits, shape=shape, deployment="fp8"), text)
    config, only, _ = options(step, text)
    trials = make_plan(config, only).trials
    assert {("fp8", "chat")} == {(trial.deployment, trial.shape.label) for trial in trials}


def test_the_time_is_what_trials_of_the_setting_took_whatever_max_time_says():
    config = load_config(CONFIG + "max_time: 20s\nrequests: 100\n", "x.yaml")
    trials = [make_trial(config, config.deployments[0], config.shapes[0], c, Phase.GRID, 1, 100) for c in (8, 32)]
    times = TrialTimes(tuple((t, Amount(20.0, 100.0 * (1 + i))) for i, t in enumerate(trials)))  # sent
    step = with_command(a_decision(config.limits), SweepAgain(config, AGAIN, times, NOTHING, "runs/night-2"))
    assert (1300 + AROUND * 32) / 10 == pytest.approx(step.seconds), "1,300 requests, and those around a window"
    assert commanded(a_decision(config.limits)).seconds is None, "nothing was measured yet"


@pytest.mark.parametrize(
    ("budget", "spent", "expected"),
    [
        ("{time: 70s}", Amount(60.0), {"budget.time": "8min"}),  # 60 s, and twice the 198 s of the proof
        ("{time: 1h}", Amount(60.0), {}),
        ("{requests: 3000}", Amount(60.0, 1000.0), {"budget.requests": "3800"}),
        ("{until: '07:00'}", Amount(90_000.0), {}),  # comes again tomorrow
    ],
)
def test_a_budget_without_room_for_the_proof_is_raised(budget, spent, expected):
    text = CONFIG + f"budget: {budget}\n"
    config = load_config(text, "x.yaml")
    trial = make_trial(config, config.deployments[0], config.shapes[0], 32, Phase.GRID, 1, 100)
    step = commanded(a_decision(config.limits), text, TrialTimes(((trial, Amount(14.0, 100.0)),)), spent)
    words = shlex.split(step.command)
    given = dict(words[i + 1].split("=") for i, word in enumerate(words) if word == "--set")
    assert expected == given
    load_config(text, "x.yaml", [Setting.of("=".join(one)) for one in given.items()])


def test_the_notes_have_the_sentence_with_the_command():
    config = load_config(CONFIG, "x.yaml")
    trial = make_trial(config, config.deployments[0], config.shapes[0], 32, Phase.GRID, 1, 100)
    times = TrialTimes(((trial, Amount(14.0, 100.0)),))
    undecided = a_decision(config.limits)
    step = with_command(undecided, SweepAgain(config, AGAIN, times, NOTHING, "runs/night-2"))
    found = dataclasses.replace(undecided, next_step=step)
    sentence = "c=32 may give 27% more (1,837 tok/s): about 3 min (1,300 requests) would decide"
    assert f"{sentence}: {AGAIN} --prove 32" == with_notes(found).notes[0]


def test_what_is_too_close_to_decide_has_no_command():
    step = commanded(a_decision(load_config(CONFIG, "x.yaml").limits, requests=None))
    assert (None, None) == (step.command, step.seconds)


@pytest.mark.parametrize(
    ("line", "shape", "varied"),
    [
        ("frontier sweep http://h/v1 -o one --shape 128/32", "128/32", ["--shape", "128/24-40"]),
        (AGAIN, "128/32", ["--set", "shapes=[128/24-40]"]),
        (AGAIN, "64-256/100", ["--set", "shapes=[64-256/75-125]"]),
        (AGAIN, "128/24-40", None),
        (AGAIN, "128/3", None),
    ],
)
def test_waves_end_in_a_run_of_its_own_with_outputs_of_several_lengths(line, shape, varied):
    again = SweepAgain(load_config(CONFIG, "x.yaml"), line, NO_TIMES, NOTHING, "runs/other")
    command = again.in_varied_lengths(Shape.parse(shape))
    if varied is None:
        assert command is None
        return
    words = shlex.split(command)
    assert words[words.index("-o") + 1] == "runs/other"
    assert words[words.index(varied[0]) :][:2] == varied
    assert Shape.parse(varied[1].removeprefix("shapes=[").strip("]")).osl.mean == Shape.parse(shape).osl.mean


@pytest.mark.parametrize(("load", "options"), [(32, ["--cap", "32"]), (Rate.of(2.5), ["--pace", "2.5"])])
def test_of_requests_of_a_tool_it_is_the_tools_own_command_with_their_load(load, options):
    limits = parse_sla("p99_ttft<=500ms")
    tool = "tool --model 'm[1]' [--cap {concurrency}][--pace {rate}] -n {requests}"
    words = shlex.split(with_command(a_decision(limits, load), None, tool).command)
    assert ["tool", "--model", "m[1]", *options, "-n"] == words[:-1]
    assert int(words[-1]) >= 1300


def test_of_an_import_it_is_a_sweep_of_its_own():
    limits = parse_sla("p99_ttft<=200ms")
    config = load_config(CONFIG, "x.yaml")
    step = with_command(a_decision(limits, requests=None), None)
    first, _, second = step.command.partition(" && ")
    assert "frontier init URL > sweep.yaml" == first
    words = shlex.split(second)
    settings = [Setting.of(words[i + 1]) for i, word in enumerate(words) if word == "--set"]
    config = load_config(CONFIG, "x.yaml", settings)
    assert (limits, "1024/256") == (config.limits, config.shapes[0].label)
    assert ["--prove", "32"] == words[-2:]


RUNS = DATA / "runs" / "runs-0.1.0.tar.gz"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("next")
    with tarfile.open(RUNS) as archive:
        archive.extractall(path, filter="data")
    return path


def test_the_answer_of_a_run_has_a_command_that_can_be_pasted(run):
    said = frontier("solve", "before", "--sla", "p99_ttft<=200ms", "--shape", "short", "--json", cwd=run, here=True)
    (shape,) = json.loads(said.out)["shapes"]
    step = shape["next_step"]
    assert (16, 1000, None) == (step["concurrency"], step["requests"], step["gain"])
    assert 0 < step["seconds"] < math.inf
    assert step["command"] in shape["notes"][0]
    text = frontier("solve", "before", "--sla", "p99_ttft<=200ms", "--shape", "short", cwd=run, here=True)
    assert f"  {step['command']}" in text.out.splitlines(), "on a line of its own, never broken"
    if not any("--prove" in parameter.opts for parameter in sweep.params):
        pytest.skip("frontier sweep has no --prove yet")
    again = frontier(*shlex.split(step["command"])[1:], "--dry-run", cwd=run, here=True)
    assert 0 == again.code, again.err


SWEPT = f"""\
endpoint: simulator
simulator: {ENGINES["smooth"]}
shapes: [64/16]
concurrency: [2, 8, 32, 64]
sla: {{p90_tpot: 7ms}}
requests: 200
repeats: 1
refine: 0
"""
LATER = ("--sla", "p90_tpot<=9.5ms", "--json")


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A run of a config with settings given beside it, one of which would need consent in a config
    of a stranger.
    """
    here = tmp_path_factory.mktemp("swept")
    (here / "sweep.yaml").write_text(SWEPT)
    given = ["--set", "sla.p90_tpot=8ms", "--set", "on_finish=/bin/true"]
    with commands_in_virtual_time():
        frontier("sweep", "sweep.yaml", "-o", "my runs/a", *given, cwd=here, here=True)
    return here


def next_step_there(where, name):
    """The command that decides under a later SLA, asked in a directory, and its setting."""
    (shape,) = json.loads(frontier("solve", name, *LATER, cwd=where, here=True).out)["shapes"]
    return shape["next_step"]["command"], shape["next_step"]["concurrency"]


@pytest.mark.process
def test_the_command_works_where_it_is_printed_and_asks_for_no_consent(swept):
    own = "frontier sweep sweep.yaml -o {} --set sla.p90_tpot=8ms --set on_finish=/bin/true --prove 32"
    later = own + " --set 'sla={{p90_tpot: 9.5ms}}'"
    assert (later.format("'my runs/a'"), 32) == next_step_there(swept, "my runs/a")
    run = shlex.quote(str(swept / "my runs" / "a"))
    for place, name in (("my runs", "a"), ("my runs/a", ".")):
        assert f"cd {swept} && {later.format(run)}" == next_step_there(swept / place, name)[0]


@pytest.mark.process
def test_the_command_pasted_makes_the_answer_green(swept, tmp_path):
    shutil.copytree(swept, tmp_path, dirs_exist_ok=True)
    command, c = next_step_there(tmp_path, "my runs/a")
    with commands_in_virtual_time():
        said = frontier(*shlex.split(command)[1:], cwd=tmp_path, here=True)
    assert 0 == said.code, said.err
    assert f"Run at concurrency {c}: " in said.out
    assert "on_finish: /bin/true" in (tmp_path / "my runs" / "a" / "config.yaml").read_text()


@pytest.mark.process
def test_a_config_that_was_changed_since_is_not_taken(swept, tmp_path):
    shutil.copytree(swept, tmp_path, dirs_exist_ok=True)
    for file in (tmp_path / "sweep.yaml", swept / "sweep.yaml"):
        file.write_text(SWEPT + "seed: 7\n")
    try:
        command, _ = next_step_there(tmp_path, "my runs/a")
    finally:
        (swept / "sweep.yaml").write_text(SWEPT)
    words = ["frontier", "sweep", "my runs/a/config.yaml", "-o", "my runs/a", "--prove", "32"]
    assert words == shlex.split(command)[: len(words)]


def test_the_json_says_what_a_claim_covers(run):
    said = frontier("solve", "before", "--json", cwd=run, here=True)
    claims = [shape["claim"] for shape in json.loads(said.out)["shapes"]]
    assert [("early", 27, False), ("final", 109, False)] == [(c["stage"], c["turns"], c["corrected"]) for c in claims]
    assert [1 - 0.05 ** (1 / c["turns"]) for c in claims] == pytest.approx([c["unseen_share"] for c in claims])
    none = frontier("solve", "before", "--sla", "p99_ttft<=200ms", "--json", cwd=run, here=True)
    assert [None, None] == [shape["claim"] for shape in json.loads(none.out)["shapes"]]


def test_the_commands_of_one_answer_have_room_for_each_other():
    text = CONFIG.replace("[1024/256]", "[1024/256, 512/256]") + "budget: {requests: 1000}\n"
    config = load_config(text, "x.yaml")
    trials = [make_trial(config, config.deployments[0], shape, 32, Phase.GRID, 1, 100) for shape in config.shapes]
    times = TrialTimes(tuple((trial, Amount(14.0, 100.0)) for trial in trials))
    again = SweepAgain(config, AGAIN, times, Amount(600.0, 1000.0), "runs/night-2")
    first, second = (a_decision(config.limits, shape=shape) for shape in config.shapes)
    for own, other in ((first, second), (second, first)):
        given, _, _ = options(with_command(own, again.beside([other])), text)
        assert given.budget.requests >= 1000 + 2 * 1300, "a budget counts what the other command sent before"


def test_the_command_for_one_concurrency_in_all_shapes_has_room_in_a_budget_that_is_spent():
    config = load_config(CONFIG + "budget: {requests: 3000}\n", "x.yaml")
    trial = make_trial(config, config.deployments[0], config.shapes[0], 32, Phase.GRID, 1, 100)
    again = SweepAgain(
        config, AGAIN, TrialTimes(((trial, Amount(14.0, 100.0)),)), Amount(600.0, 3000.0), "runs/night-2"
    )
    decision = replace(a_decision(config.limits), load=16)
    answer = SlaResult("x", config.limits, (decision,), {decision.deployment: None})
    (command,) = shared_commands(answer, again).values()
    (raised,) = [word for word in shlex.split(command) if word.startswith("budget.requests=")]
    assert int(raised.partition("=")[2]) > 3000 + ENOUGH_FOR_PROOFS * 1000, "a p99 takes a thousand"


# --- a server that is full between two measured settings


def full_at(seats, limit=10.0, settings=(16, 32, 64, 128)):
    """The decision of a sweep of a server with so many seats, where c=64 is proven; its history."""
    server = Server(lambda c: 0.05 + 1.04 * max(0, c - seats) / seats, lambda c: 0.01, sigma=0.02)
    history = []
    for c in settings:
        for repeat in range(1, 4 if c == 64 else 2):
            t = trial(c, Phase.PROVE if c == 64 else Phase.SCAN, repeat, 2000)
            history.append((t, server.run(t)))
    return SeriesHistory.of((Limit("p99_e2e", limit),), history).decision, history


def test_a_setting_between_measured_ones_that_may_be_the_better_answer_is_named_with_its_price():
    decision, history = full_at(69)
    assert (64, None) == (decision.load, decision.next_step)
    step = between_measured(decision, history)
    assert step.load in range(66, 73)
    assert step.gain == pytest.approx(5 / 64, abs=0.01)
    assert step.requests > 0
    again = SweepAgain(load_config(CONFIG, "x.yaml"), AGAIN, NO_TIMES, NOTHING, "runs/night-2")
    assert ["--prove", str(step.load)] == shlex.split(with_command(decision, again, None, history).command)[5:7]
    off = replace(again, config=load_config(CONFIG + "marginal_gain: false\n", "x.yaml"))
    assert with_command(decision, off, None, history) is None


@pytest.mark.parametrize(("seats", "limit"), [(65, 10.0), (300, 10.0), (69, 1.5)])
def test_none_is_named_without_more_throughput_where_the_higher_one_is_worth_its_tail_or_breaks_the_sla(seats, limit):
    decision, history = full_at(seats, limit)
    assert 64 == decision.load
    assert between_measured(decision, history) is None
