"""Nights from a seed: they are drawn and played alike, the invariants find planted faults,
and nights have none.
"""

import contextlib
import dataclasses
import io
import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from benchmarks.nights import __main__ as nights
from benchmarks.nights import invariants, outputs, relations
from benchmarks.nights.draw import CONFIG, RUN, SWEEP, Command, Night, draw
from benchmarks.nights.invariants import INVARIANTS, WAITING, too_often
from benchmarks.nights.play import LOOKS, Player, Said, Told, play, playing
from benchmarks.nights.server import Course, Law, played, truth
from frontier.config import load_config
from frontier.core.model.loads import POISSON, Concurrency, Load, Rate
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Outcome, Phase, Trial

SEEDS = [
    line.split() for line in Path(nights.__file__).with_name("seeds.txt").read_text().splitlines() if line[0] != "#"
]
NEW = range(5_000, 5_003)
GATE = range(10_020, 10_100, 20)


def small(**changes: Any) -> Night:
    """A night of seconds: three settings and one limit."""
    config = {
        "endpoint": "http://127.0.0.1:9/v1",
        "model": "m",
        "shapes": ["64/8"],
        "concurrency": [1, 4, 8],
        "sla": {"p90_tpot": "14ms"},
        "refine": 1,
    }
    night = Night(1, config, {"default": Law()}, Course(), (Command(SWEEP),), {"p90_tpot": 0.014}, ("smooth",))
    return dataclasses.replace(night, **changes)


@contextlib.contextmanager
def told(night: Night) -> Iterator[tuple[Player, Told]]:
    with playing(night) as (player, told):
        play(player, told)
        yield player, told


@pytest.mark.parametrize("seed", range(0, 400, 4))
def test_a_seed_is_a_night_with_a_sound_config(seed: int) -> None:
    night = draw(seed)
    assert draw(seed) == night
    assert load_config(night.text, CONFIG).shapes


def test_one_line_for_a_seed_that_does_not_exist(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setattr("sys.argv", ["nights", "--night", "-1"])
    assert nights.main() == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def trial(load: Load, requests: int) -> Trial:
    shape = Shape.of(64, 8)
    if load.is_open:
        shape = dataclasses.replace(shape, arrivals=POISSON)
    return Trial("default", shape, load, 0, Phase.PROVE, requests, 3, 0.0, 0.0, 900.0, "f")


@pytest.mark.parametrize("load", [1, 7, 16])
def test_a_played_trial_keeps_its_load_and_has_the_latencies_of_its_law(load: int) -> None:
    law = Law()
    run = played(trial(Concurrency(load), 3_000), law, Course(), 0.0, 5)
    start, end = run.state.start, run.state.end
    assert start is not None
    assert end is not None
    inside = [r for r in run.records if start <= r.sent < end]
    assert len(inside) >= 3_000
    assert all(r.outcome is Outcome.OK for r in inside), "the load is held until the window's last has ended"
    in_flight = sum(min(r.end, end) - max(r.sent, start) for r in run.records if r.end > start and r.sent < end)
    assert in_flight / (end - start) == pytest.approx(load, rel=0.01)
    tpot = sorted((r.end - r.first) / 7 for r in inside if r.first is not None)
    assert tpot[int(0.9 * len(tpot))] == pytest.approx(truth(law, Shape.of(64, 8), load)["p90_tpot"], rel=0.03)


def test_played_arrivals_come_at_their_rate() -> None:
    run = played(trial(Rate.of(40.0), 2_000), Law(), Course(), 0.0, 5)
    sent = [r.sent for r in run.records]
    assert len(sent) / sent[-1] == pytest.approx(40.0, rel=0.1)
    assert all(r.scheduled is not None and r.scheduled <= r.sent for r in run.records)


@pytest.mark.parametrize("load", [Concurrency(4), Rate.of(40.0)])
def test_a_silent_request_holds_a_played_trial_no_longer_than_the_client_does(load: Load) -> None:
    """In the window it takes the whole timeout; once that has closed, ten seconds of silence."""
    run = played(trial(load, 400), Law(silent=0.02), Course(), 0.0, 5)
    end = run.state.end
    assert end is not None
    late = [r for r in run.records if r.outcome is Outcome.TIMEOUT and r.end > end]
    assert late
    assert all(r.end == pytest.approx(max(end, r.sent + 10.0)) for r in late)
    assert run.until < end + 11.0


@pytest.mark.whole
def test_a_night_is_the_same_again() -> None:
    night = small(steps=(Command(SWEEP, stop_at=20), Command(SWEEP)))
    lines = []
    for _ in range(2):
        with told(night) as (_, one):
            assert [said.code for said in one.sweeps] == [130, 0]
            lines.append([(said.words, said.code, said.out, said.trials) for said in one.said])
    assert lines[0] == lines[1]


@pytest.mark.whole
@pytest.mark.parametrize(
    ("law", "course", "expected"),
    [
        pytest.param(Law(), Course(), 0, id="meets"),
        pytest.param(Law(tpot=0.02), Course(), 3, id="violates"),
        pytest.param(Law(fails=1.0), Course(), 3, id="everything fails"),
        pytest.param(Law(), Course(lost=(0.0, 1e6)), 5, id="no server"),
    ],
)
def test_a_sweep_of_a_night_ends_as_its_server_is(law: Law, course: Course, expected: int) -> None:
    with told(small(laws={"default": law}, course=course)) as (_, one):
        assert one.sweeps[0].code == expected
        assert [f for check in (invariants.no_exception, invariants.it_ends) for f in check(one)] == []


@pytest.mark.whole
def test_where_only_an_idle_machine_would_decide_status_and_answer_name_one_way_on() -> None:
    busy = Course(busy=((0.0, 1e6),), lag=0.03)
    with told(small(course=busy)) as (_, one):
        assert one.sweeps[0].code == 5
        status, solved = one.tree("status", RUN, "--json"), one.look("solve", RUN)
        assert (status["state"], status["left"]) == ("finished", 0)
        assert solved is not None
        assert status["go_on"] in [f"frontier {shlex.join(words)}" for words in outputs.commands(solved.out)]
        assert [f for check in INVARIANTS for f in check(one)] == []


@pytest.mark.whole
def test_a_kill_leaves_what_is_finished_and_the_next_sweep_goes_on() -> None:
    night = small(steps=(Command(SWEEP, disk=("kill", 60)), Command(SWEEP)))
    with told(night) as (_, one):
        assert [said.code for said in one.sweeps] == [-9, 0]
        kept = [name for name in one.sweeps[0].after if name.startswith("evidence/")]
        assert kept
        assert [f for check in INVARIANTS for f in check(one)] == []


# --- each invariant finds the fault that it is for


def mutated(said: Said, old: str, new: str) -> Said:
    assert old in said.out + said.err, said
    return dataclasses.replace(said, out=said.out.replace(old, new), err=said.err.replace(old, new))


@pytest.fixture(scope="module")
def sound() -> Iterator[Told]:
    with told(small(steps=(Command(SWEEP), Command(SWEEP)))) as (_, one):
        assert [f for check in INVARIANTS for f in check(one)] == []
        yield one


PLANTED = [
    ("table_and_json_agree", ("show", RUN), lambda out: re.sub(r"(?m)^( *8 +)[\d.,]+", r"\g<1>9", out)),
    ("verdicts_agree", ("show", RUN), lambda out: out.replace("meets", "violates p90 TPOT", 1)),
    ("counts_agree", ("status", RUN), lambda out: out.replace(" trials: ", "9 trials: ", 1)),
]


@pytest.mark.whole
@pytest.mark.parametrize(("name", "words", "change"), PLANTED, ids=[name for name, _, _ in PLANTED])
def test_an_invariant_finds_a_fault_of_its_kind(sound: Told, name: str, words: tuple[str, ...], change: Any) -> None:
    said = [dataclasses.replace(s, out=change(s.out)) if s.words == words else s for s in sound.said]
    wrong = dataclasses.replace(sound, said=said)
    check = next(check for check in INVARIANTS if check.__name__ == name)
    assert list(check(sound)) == []
    assert list(check(wrong))


@pytest.mark.whole
def test_a_count_that_no_file_has_is_found(sound: Told) -> None:
    words = ("show", RUN, "--json")
    point = invariants.tree(sound.look(*words))["points"][0]
    old, new = f'"n": {point["n"]}', f'"n": {point["n"] + 1}'
    said = [mutated(s, old, new) if s.words == words else s for s in sound.said]
    assert list(invariants.figures_are_of_the_files(sound)) == []
    assert list(invariants.figures_are_of_the_files(dataclasses.replace(sound, said=said)))


@pytest.mark.whole
def test_what_progress_called_proven_is_taken_back_by_a_slower_server_alone(sound: Told) -> None:
    first = sound.said[0]
    load = re.findall(r"(?:complete|prove) +c=(\d+) .*   meets", first.err)[-1]

    def found(verdict: str, also: str = "") -> list[str]:
        out = re.sub(rf"(?m)^( *{load} .*?)meets.*$", rf"\1{verdict}", first.out) + also
        changed = dataclasses.replace(first, out=out)
        return list(invariants.progress_and_table_agree(dataclasses.replace(sound, said=[changed, *sound.said[1:]])))

    slower = "Also  c=1: the server was slower for some time at\n     some setting: upper bounds hold"
    open_now = "not proven: p90 TPOT needs about 190 requests"
    assert found("meets") == found(open_now, slower) == []
    assert found(open_now)
    assert found("violates p90 TPOT", slower)


def test_a_figure_of_the_proof_alone_is_known_by_that_of_all_trials() -> None:
    figure = outputs.Figure("p95 TTFT", 0.127, None)
    for whose, when in (("proof", "later trials"), ("newest trial", "earlier ones")):
        text = f"Also  c=1: p95 TTFT is that of the {whose}; with all\n      {when} it was 180 ms\n"
        assert list(outputs.of_all(text, 1, figure)) == [pytest.approx(0.18)]
        assert list(outputs.of_all(text, 2, figure)) == []
        assert list(outputs.of_all(text, 1, dataclasses.replace(figure, words="p90 TTFT"))) == []


@pytest.mark.whole
def test_an_exception_a_lost_file_and_a_repeated_trial_are_found(sound: Told) -> None:
    first = sound.said[0]
    for name, changed in {
        "no_exception": dataclasses.replace(first, raised="Traceback\nValueError: x"),
        "it_ends": dataclasses.replace(first, trials=10_000),
        "no_trial_twice": dataclasses.replace(first, before={"trials/a.jsonl": "1"}, after={"trials/a.jsonl": "2"}),
        "reading_changes_nothing": dataclasses.replace(first, words=("show", RUN), after={}),
    }.items():
        check = next(check for check in INVARIANTS if check.__name__ == name)
        before = first.after if name == "reading_changes_nothing" else changed.before
        wrong = dataclasses.replace(sound, said=[dataclasses.replace(changed, before=before), *sound.said[1:]])
        assert list(check(wrong)), name


def test_an_answer_is_read_with_the_setting_that_its_figures_are_of() -> None:
    text = """\
No setting is proven to meet p99 TPOT ≤ 18 ms; nearest: c=45                                   short
c=32 may keep the SLA: about a minute (1,800 requests) would decide:
  frontier sweep configs/quickstart.yaml -o runs/q --prove 32 --set 'sla={p99_tpot: 18ms}'
     output throughput  2,725 tok/s  95% CI 2,664 to 3,135
  ?  p99 TPOT               16.5 ms  no bound               limit 18 ms  not proven
  ✓  error rate                  0%  at most 2.77% (95%)    limit 5%     3% headroom
"""
    (answer,) = outputs.answers(text)
    assert answer.setting == 32
    assert [(f.words, pytest.approx(f.value), f.bound) for f in answer.figures] == [
        ("p99 TPOT", 0.0165, None),
        ("error rate", 0.0, pytest.approx(0.0277)),
    ]


def test_a_correction_is_read_with_the_name_of_its_series_before_it() -> None:
    heads = ("Corrected: run at 8", "agent: Corrected: run at 8", "agent: Run at 8", "No setting meets")
    assert [outputs.is_corrected(head) for head in heads] == [True, True, False, False]


def test_needs_are_read_from_table_and_reasons() -> None:
    text = "13    592   18.7 ms   0%  156  not proven: error rate needs about 300 requests\n"
    why = (
        "Why  c=11 is not proven: 156 requests prove no p99 TPOT (19.5 ms); about 1,200 requests\n     would decide.\n"
    )
    assert list(outputs.needs(text + why)) == [(13, 300), (11, 1_200)]


def test_a_family_that_breaks_its_sla_too_often_is_named_and_chance_is_not() -> None:
    assert list(too_often({"smooth": (9, 100), "queue": (2, 300)})) == []
    assert len(list(too_often({"smooth": (20, 100), "queue": (2, 300)}))) == 1


# --- nights


def faults(seed: int) -> list[tuple[str, str]]:
    return [fault for fault in nights.one(seed).faults if fault[0] not in WAITING]


@pytest.mark.whole
@pytest.mark.parametrize("seed", [int(seed) for seed, _ in SEEDS])
def test_a_night_that_had_a_fault_has_none(seed: int) -> None:
    assert faults(seed) == []


@pytest.mark.whole
@pytest.mark.parametrize("seed", NEW)
def test_a_new_night_has_no_fault(seed: int) -> None:
    assert faults(seed) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "first",
    [
        *GATE,
        *(pytest.param(first, marks=pytest.mark.nightly) for first in range(10_000, 10_100, 5) if first not in GATE),
    ],
)
def test_nights_have_no_fault(first: int) -> None:
    assert {seed: found for seed in range(first, first + 5) if (found := faults(seed))} == {}


# --- relations of sweeps


@pytest.mark.whole
@pytest.mark.parametrize("stop", [7, 60])
def test_without_noise_an_interruption_changes_no_answer(stop: int) -> None:
    night = small(seed=3, steps=(Command(SWEEP, stop_at=stop), Command(SWEEP)))
    assert len(relations.interrupted(night)) == 2
    assert list(relations.an_interruption_changes_nothing(night)) == []


@pytest.mark.whole
def test_without_noise_shapes_in_another_order_have_the_same_answers() -> None:
    config = {**small().config, "shapes": ["64/8", "256/8"]}
    assert list(relations.the_order_of_shapes_changes_nothing(small(seed=1, config=config))) == []


@pytest.mark.whole
def test_relations_hold_of_a_night_and_an_answer_that_differs_is_found(sound: Told, monkeypatch: Any) -> None:
    for seed in (1, 2):
        one = dataclasses.replace(sound, night=dataclasses.replace(sound.night, seed=seed))
        assert [line for check in relations.RELATIONS for line in check(one)] == []
    monkeypatch.setattr(relations, "_doubled_limit", lambda limit: limit)
    assert list(relations.time_has_no_unit(one))


@pytest.mark.nightly
@pytest.mark.timeout(7_200)
def test_with_noise_as_many_are_proven_after_an_interruption() -> None:
    """McNemar's exact test over pairs of one night, interrupted and not."""
    found = relations.pairs(map(relations.proven, itertools.count(200_000)), 500)
    assert found.chance > 0.01, found


# --- a night as Hypothesis makes it: a failing one is shrunk to the fewest steps


class ANight(RuleBasedStateMachine):
    """The steps of a user, in any order, against one drawn server."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = contextlib.ExitStack()

    @initialize(seed=st.integers(0, 500))
    def begin(self, seed: int) -> None:
        night = dataclasses.replace(draw(seed), steps=(), pictures=False)
        self.player, self.told = self.stack.enter_context(playing(night))

    def run_one(self, command: Command) -> None:
        self.told.said.append(self.player.run(command))

    @rule()
    def sweep(self) -> None:
        self.run_one(Command(SWEEP))

    @rule(tick=st.integers(1, 60))
    def stopped(self, tick: int) -> None:
        self.run_one(Command(SWEEP, stop_at=tick))

    @rule(step=st.integers(1, 120), kind=st.sampled_from(["kill", "full"]))
    def failing_disk(self, step: int, kind: str) -> None:
        self.run_one(Command(SWEEP, disk=(kind, step)))

    @rule(load=st.integers(1, 20))
    def prove(self, load: int) -> None:
        self.run_one(Command((*SWEEP, "--prove", str(load))))

    @rule(words=st.sampled_from(LOOKS))
    def look(self, words: tuple[str, ...]) -> None:
        self.run_one(Command(words))

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "told"):
            return
        self.told.looks = len(self.told.said)
        checks = (invariants.no_exception, invariants.it_ends, invariants.reading_changes_nothing)
        assert [line for check in (*checks, invariants.every_trial_is_whole) for line in check(self.told)] == []

    def teardown(self) -> None:
        self.stack.close()


@pytest.mark.nightly
@pytest.mark.timeout(3_600)
def test_a_night_in_any_order() -> None:
    case = ANight.TestCase
    case.settings = settings(max_examples=60, stateful_step_count=8, deadline=None)
    with contextlib.redirect_stdout(io.StringIO()):
        case().runTest()
