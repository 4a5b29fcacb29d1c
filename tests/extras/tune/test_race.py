"""A race in virtual time, over HTTP and with servers that are started, and what it claims."""

import itertools
import json
import math
import re
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats as dist

from benchmarks.tuning import Restarting, conducted, draw, true_best
from frontier.config import Config, DeploymentConfig, load_config
from frontier.core.model.decisions import Verdict
from frontier.core.model.errors import ExitCode
from frontier.core.model.trials import ClientHealth, Measurement, Phase, Trial
from frontier.core.stats.difference import in_pairs
from frontier.core.window.window import WindowData
from frontier.extras.tune.command import raised as raised_by
from frontier.extras.tune.course import RaceCourse, _starts, race_of, rules_of
from frontier.extras.tune.gain import SPENT, WORTH, ProvenVariant, RaceRules, gain_of, reach_of
from frontier.extras.tune.race import Race
from frontier.extras.tune.race_text import race_text
from frontier.extras.tune.runner import AT_MOST
from frontier.extras.tune.tune_text import (
    answer_text,
    chosen_of,
    claim_text,
    effects,
    exit_code,
    outcome_of,
    race_view,
)
from frontier.extras.tune.variants import Variant, variants_of
from frontier.read_run import load
from frontier.search.next_trial import Done
from frontier.store.run_dir import RunDirectory
from frontier.sweep.backend import Facts
from tests.kit.commands import conclusive, frontier, start
from tests.kit.golden import assert_golden_row
from tests.kit.made import sample
from tests.kit.neutral import without_numbers
from tests.sweep.test_conductor_deployments import SERVE, free_port

HEAD = "shapes: 128/32\nsla: {p95_ttft: 500ms, p95_tpot: 20ms}\ndeployments:\n"
ENGINE = "- {name: e, endpoint: simulator, simulator: {noise: 0.03, per_decode: 200us}, vary: "


class Machine(Restarting):
    """A machine whose speed `drifts` from trial to trial by this standard deviation (ln), and on
    which one variant, `fades`, takes longer from its third start on, `by` this factor. Proofs of
    those that are `spoilt` mean nothing.
    """

    def __init__(
        self, config: Config, *, drifts: float = 0.0, fades: str = "", by: float = 1.25, spoilt: str = ""
    ) -> None:
        super().__init__(config, draw(0))
        self.drifts, self.fades, self.by, self.spoilt = drifts, fades, by, spoilt
        self.begun, self.level, self.rng = Counter[str](), 0.0, np.random.default_rng(5)

    async def prepare(self, deployment: DeploymentConfig) -> Facts:
        self.begun[deployment.name] += 1
        return await super().prepare(deployment)

    async def run(self, trial: Trial, **how: Any) -> Measurement:
        before, name = self._specs, trial.deployment
        self.level = 0.9 * self.level + math.sqrt(1 - 0.9**2) * self.drifts * self.rng.normal()
        slower = math.exp(self.level) * (self.by if name == self.fades and self.begun[name] > 2 else 1.0)
        self._specs = {**before, name: replace(before[name], time_scale=slower * before[name].time_scale)}
        try:
            measured = await super().run(trial, **how)
        finally:
            self._specs = before
        busy = name in self.spoilt.split() and trial.phase is Phase.PROVE
        return replace(measured, health=replace(measured.health, suspended=30.0)) if busy else measured


def raced(
    text: str, path: Path, objective: str = "output_throughput", **machine: Any
) -> tuple[Race, tuple[Variant, ...], float]:
    """A race in virtual time, with what a start of each server takes and differs by as in a
    family; on such a `Machine`.
    """
    config, variants = load_config(text, "s.yaml"), variants_of(text, "s.yaml")
    rules = rules_of(config, objective)
    family = replace(draw(0), text=text)
    seconds = conducted(config, family, path, RaceCourse(variants, rules), Machine(config, **machine))
    return read(text, path, objective), variants, seconds


def read(text: str, path: Path, objective: str = "output_throughput") -> Race:
    config, variants = load_config(text, "s.yaml"), variants_of(text, "s.yaml")
    lines = RunDirectory.read(path).journal_lines()
    return race_of(config, variants, rules_of(config, objective), load(path).histories, lines)


def words(race: Race, variants: tuple[Variant, ...]) -> str:
    """What a race shows, without its numbers."""
    return without_numbers(
        race_text(race_view(race, variants, "frontier tune t.yaml --only A --only B"), width=100, colour=False)
    )


@pytest.fixture(scope="module")
def capped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Race, tuple[Variant, ...], str, Path]:
    """A race of caps, the first of which is far too low."""
    path, text = tmp_path_factory.mktemp("race") / "run", f"{HEAD}{ENGINE}{{max_num_seqs: [12, 40, 90]}}}}\n"
    race, variants, _ = raced(text, path)
    return race, variants, text, path


def test_the_winner_is_the_true_one_and_its_gain_covers_the_truth(
    capped: tuple[Race, tuple[Variant, ...], str, Path],
) -> None:
    race, variants, text, _ = capped
    config = load_config(text, "s.yaml")
    truths = [true_best(config, d, 4_000) for d in config.deployments]
    assert outcome_of(race) == "better"
    assert race.gain is not None
    assert race.finalist is not None
    chosen = [v.name for v in variants].index(race.finalist.series.deployment)
    assert truths[chosen] >= 0.97 * max(truths)
    assert race.gain.ratio.low <= truths[chosen] / truths[0] <= race.gain.ratio.high
    assert race.gain.ratio.low > 1.1
    assert race.gain.pairs >= min(SPENT)


def test_every_pair_is_of_starts_of_their_own(capped: tuple[Race, tuple[Variant, ...], str, Path]) -> None:
    race, _, _, path = capped
    served = [line["deployment"] for line in RunDirectory.read(path).journal_lines() if line["event"] == "server"]
    assert race.finalist is not None
    final = served[len(race.runners) :]
    pair = [race.baseline.series.deployment, race.finalist.series.deployment]
    assert {final.count(name) for name in pair} <= set(range(len(final) // 2 - 1, len(final) // 2 + 2))
    assert all(a != b for a, b in zip(final[-6:], final[-5:], strict=False))
    for side in (race.baseline.side(), race.finalist.side()):
        assert side is not None
        assert len(side.starts) >= min(SPENT)


def test_half_the_cost_is_a_saving(capped: tuple[Race, tuple[Variant, ...], str, Path]) -> None:
    _, variants, text, path = capped
    text = text.replace("deployments:", "price: $12/h\ndeployments:")
    config = load_config(text, "s.yaml")
    rules, lines = rules_of(config, "cost"), RunDirectory.read(path).journal_lines()
    race = race_of(config, variants, rules, load(path).histories, lines)
    gain = race_view(race, variants).tree["gain"]
    assert gain["ratio"] == pytest.approx(gain["winner"] / gain["baseline"])
    assert gain["low"] <= gain["ratio"] <= gain["high"] < 1
    assert f"{gain['ratio'] - 1:+.0%} cost" in answer_text(race)


def test_a_race_read_back_is_over_and_says_the_same(capped: tuple[Race, tuple[Variant, ...], str, Path]) -> None:
    race, variants, text, path = capped
    again = read(text, path)
    assert again.next_step() is None
    assert race_view(again, variants).tree == race_view(race, variants).tree
    tree = json.loads(json.dumps(race_view(again, variants).tree))
    assert tree["chosen"] == race.finalist.series.deployment  # type: ignore[union-attr]
    assert [v["name"] for v in tree["variants"]] == [v.name for v in variants]


def test_starts_are_counted_over_all_variants_so_that_the_newest_is_known() -> None:
    """The variant in the final is the one that was started last, however often another was."""
    events = [("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("a", "a4")]
    lines: list[dict[str, Any]] = []
    for deployment, trial in events:
        lines.append({"event": "server", "deployment": deployment})
        lines.append({"event": "asked", "deployment": deployment, "trial": trial})
    assert _starts(lines) == {"a1": 1, "a2": 2, "a3": 3, "b1": 4, "a4": 5}


@pytest.mark.nightly
def test_equal_variants_are_not_told_apart(tmp_path: Path) -> None:
    race, variants, _ = raced(f"{HEAD}{ENGINE}{{max_num_seqs: [200, 201, 202]}}}}\n", tmp_path / "run")
    assert outcome_of(race) == "no better"
    assert race.gain is not None
    assert race.gain.ratio.low < 1 < race.gain.ratio.high
    assert race_view(race, variants).tree["chosen"] == variants[0].name


def test_what_is_surely_worse_is_dropped_after_few_looks(tmp_path: Path) -> None:
    text = f"{HEAD}{ENGINE}{{step_base: [4ms, 16ms, 17ms, 18ms]}}}}\n"
    race, _, _ = raced(text, tmp_path / "run")
    worse = race.runners[1:]
    assert sum(race.dropped(runner) for runner in worse) >= 2
    assert all(len(runner.history) <= 4 for runner in worse if race.dropped(runner))


def test_a_baseline_that_keeps_no_load_inside_loses_to_one_that_does(tmp_path: Path) -> None:
    race, variants, _ = raced(f"{HEAD}{ENGINE}{{step_base: [40ms, 6ms]}}}}\n", tmp_path / "run")
    assert outcome_of(race) == "only"
    assert race_view(race, variants).tree["chosen"] == variants[1].name


LUCKY = (
    "- {name: e, endpoint: simulator, simulator: {noise: 0.03, per_decode: 200us}, variants: ["
    "{name: today, max_num_seqs: 12, step_base: 6.5ms}, {name: lucky, max_num_seqs: 96, step_base: 6ms}, "
    "{name: steady, max_num_seqs: 96, step_base: 6.6ms}]}\n"
)


@pytest.mark.process
def test_a_winner_names_the_variant_that_short_trials_put_higher_and_the_command_decides(tmp_path: Path) -> None:
    """The winner was fast in its first starts alone: beside what it gives in the final, what
    another one gave in quick looks is more. A race between the two decides.
    """
    race, variants, _ = raced(HEAD + LUCKY, tmp_path / "run", fades="lucky")
    tree = race_view(race, variants, "COMMAND").tree
    assert (tree["outcome"], tree["chosen"]) == ("better", "lucky")
    higher = tree["may_be_better"]
    assert (higher["name"], higher["chosen"], higher["command"]) == ("steady", "lucky", "COMMAND")
    assert higher["more"] == pytest.approx(higher["expected"] / higher["than"])
    assert higher["more"] > 1.08
    assert "steady" in answer_text(race).splitlines()[0]
    assert_golden_row("answers", words(race, variants))
    (tmp_path / "t.yaml").write_text(HEAD + LUCKY)
    asked = frontier("tune", "t.yaml", "-o", "run", cwd=tmp_path)
    command = next(line for line in asked.out.splitlines() if "--only" in line)
    assert command.split() == ["frontier", "tune", "t.yaml", "-o", "run-2", "--only", "lucky", "--only", "steady"]
    plan = frontier(*command.split()[1:], "--dry-run", "--json", cwd=tmp_path)
    assert [v["name"] for v in json.loads(plan.out)["variants"]] == ["lucky", "steady"]
    only = LUCKY.replace("variants:", "only: [lucky, steady], variants:")
    race, variants, _ = raced(HEAD + only, tmp_path / "only", fades="lucky")
    assert race.baseline.series.deployment == "lucky"
    assert (outcome_of(race), race_view(race, variants).tree["chosen"]) == ("better", "steady")
    assert race_view(race, variants).tree["may_be_better"] is None


TWO = f"{HEAD}{ENGINE}{{max_num_seqs: [16, 48]}}}}\n"
BASELINE, OTHER = "e-max_num_seqs16", "e-max_num_seqs48"
BUSY = {
    "all": (f"{BASELINE} {OTHER}", "not measured", None, ExitCode.FAILED),
    "the baseline": (BASELINE, "not proven", None, ExitCode.NOT_PROVEN),
    "the other": (OTHER, "not proven", BASELINE, ExitCode.NOT_PROVEN),
}


@pytest.mark.parametrize("spoilt", BUSY)
def test_what_this_machine_was_too_busy_to_measure_is_no_no(spoilt: str, tmp_path: Path) -> None:
    names, outcome, chosen, code = BUSY[spoilt]
    race, variants, _ = raced(TWO, tmp_path / "run", spoilt=names)
    assert outcome_of(race) == outcome
    assert exit_code(race) == code
    tree = race_view(race, variants).tree
    assert (tree["outcome"], tree["chosen"]) == (outcome.replace(" ", "_"), chosen)
    unmeasured = [v["name"] for v in tree["variants"] if v["reason"]]
    assert unmeasured == names.split()
    windows = [t for r in race.runners for t, _ in r.history if t.phase is Phase.PROVE and r.unproven]
    assert len(windows) <= 8 * len(unmeasured), "at a lower load the machine is as busy"
    assert exit_code(gone(race, 1)) is ExitCode.FAILED, "nothing but the baseline was measured, if that"
    lines = RunDirectory.read(tmp_path / "run").journal_lines()
    config, histories = load_config(TWO, "s.yaml"), load(tmp_path / "run").histories
    again = race_of(config, variants, race.rules, histories, [*lines, {"event": "resumed"}]).next_step()
    assert again is not None, "the same command tries them again"
    assert again.series.deployment in names.split()
    assert_golden_row("answers", words(race, variants), spoilt)


def test_a_server_that_changed_during_the_race_is_said_to_have(tmp_path: Path) -> None:
    race, variants, _ = raced(TWO, tmp_path / "run", fades=OTHER, by=0.7)
    (change,) = race.runners[1].known.kept.changes
    assert math.exp(change.by) == pytest.approx(0.7, abs=0.05)
    assert_golden_row("answers", words(race, variants))


def test_no_variant_that_keeps_the_sla_is_a_no(tmp_path: Path) -> None:
    race, variants, _ = raced(f"{HEAD}{ENGINE}{{step_base: [40ms, 45ms]}}}}\n", tmp_path / "run")
    assert (outcome_of(race), exit_code(race)) == ("none", ExitCode.NO)
    assert all(runner.keeps_at_no_load for runner in race.runners)
    assert_golden_row("answers", words(race, variants))


def test_a_variant_that_was_measured_at_high_loads_alone_is_not_said_to_keep_the_sla_at_none(
    capped: tuple[Race, tuple[Variant, ...], str, Path],
) -> None:
    race, variants, _, _ = capped
    slow = [(t, replace(s, tpot=10 * s.tpot)) for t, s in race.baseline.history]
    baseline = replace(race.baseline, history=slow)
    assert baseline.reach(0.0).edge is None
    assert not baseline.keeps_at_no_load
    then = replace(race, runners=(baseline, *race.runners[1:]))
    assert outcome_of(then) not in ("only", "none")
    assert "no load keeps" not in race_text(race_view(then, variants, ""), width=100, colour=False)


@pytest.mark.parametrize("drifts", [(0.25,), pytest.param((0.15, 0.25), marks=pytest.mark.nightly)])
def test_a_proof_on_a_machine_whose_speed_drifts_has_more_windows_before_a_lower_load(
    drifts: tuple[float, ...], tmp_path: Path
) -> None:
    """Drift widens the bounds of a proof by far more than twelve windows can bound. A lower load
    would lack as many.
    """
    races = [raced(TWO, tmp_path / str(each), drifts=each)[0] for each in drifts]
    lowered = longer = 0
    for runner in itertools.chain.from_iterable(race.runners for race in races):
        proofs = [i for i, (t, _) in enumerate(runner.history) if t.phase is Phase.PROVE]
        for last, after in itertools.pairwise(proofs):
            then = replace(runner, history=runner.history[: last + 1])
            c, new = (runner.history[i][0].load for i in (last, after))
            now = next(k for k in then.known.candidates if k.load == c)
            wanders = any(flag.name == "non_stationary" for flag in now.point.flags)
            lowered += new < c
            longer += new == c and now.windows >= AT_MOST
            if new < c and wanders:
                assert now.verdict is Verdict.VIOLATES or now.windows >= 2 * AT_MOST
    assert lowered
    assert longer


def test_what_a_value_does_needs_three_pairs_that_agree(tmp_path: Path) -> None:
    text = f"{HEAD}{ENGINE}{{step_base: [7ms, 5ms], max_num_seqs: [200, 210, 220]}}}}\n"
    race, variants, _ = raced(text, tmp_path / "run")
    said = effects(race, variants)
    assert len(said) == 1, "the caps do nothing"
    assert re.match(r"step_base 5ms against 7ms: \+\d+% .* 3 pairs", said[0])


def test_the_interval_of_pairs_is_students() -> None:
    """Against draws: at each judgement the interval of the pairs misses as often as it spends."""
    rng = np.random.default_rng(3)
    for pairs, error in SPENT.items():
        missed = 0
        for steps in rng.normal(0.1, 0.03, (4_000, pairs)):
            found = in_pairs(list(steps))
            missed += abs(found.value - 0.1) > reach_of(found, pairs)
        assert abs(missed / 4_000 - error) < 0.008


def data(load: int, rate: float, seed: int = 0) -> WindowData:
    """A window of a setting whose output throughput is about `rate`."""
    rng = np.random.default_rng(seed)
    tpot = load / rate * np.exp(0.01 * rng.standard_normal(400))
    return sample(load, np.full(400, 0.001), tpot)


def side(load: int, rates: dict[int, float], fixed: int = 0, more: float = 0.0) -> ProvenVariant:
    """A side of the final with these throughputs by the number of the start."""
    return ProvenVariant(load, {n: (data(load, rate, n),) for n, rate in rates.items()}, fixed, more)


RULES = RaceRules(load_config(TWO, "s.yaml").limits, "output_throughput", 256)
TODAY = {2: 1000.0, 4: 1010.0, 6: 990.0, 8: 1005.0}
OTHER_STARTS = {3: 1800.0, 5: 1205.0, 7: 1190.0, 9: 1212.0}


def test_only_starts_begun_after_both_loads_are_fixed_are_pairs() -> None:
    """The other's load was found on a lucky start, which would count as +80%."""
    found = gain_of(side(16, TODAY, 2), side(32, OTHER_STARTS, 3), RULES)
    assert found is not None
    assert (found.pairs, found.loads) == (3, (16, 32))
    assert found.ratio.value == pytest.approx(1.2, abs=0.01)
    assert gain_of(side(16, TODAY, 9), side(32, OTHER_STARTS, 9), RULES) is None


@pytest.mark.parametrize(("mine", "other"), [(0.0, 0.0), (0.05, 0.0), (0.0, 0.3), (0.05, 0.3)])
def test_the_interval_is_of_the_pairs_and_of_what_each_side_may_still_give(mine: float, other: float) -> None:
    steps = [math.log(OTHER_STARTS[n + 1] / TODAY[n]) for n in (4, 6, 8)]
    found = gain_of(side(16, TODAY, 2, mine), side(32, OTHER_STARTS, 3, other), RULES)
    assert found is not None
    d, r = np.mean(steps), dist.t.ppf(1 - SPENT[3] / 2, 2) * np.std(steps, ddof=1) / math.sqrt(3)
    assert found.reach == pytest.approx(r, rel=0.3)
    assert found.ratio.value == pytest.approx(math.exp(d), rel=0.01)
    assert found.ratio.low == pytest.approx(found.ratio.value * math.exp(-math.hypot(found.reach, mine)))
    assert found.ratio.high == pytest.approx(found.ratio.value * math.exp(math.hypot(found.reach, other)))


@pytest.mark.parametrize(("more", "better"), [(0.0, True), (0.16, False)])
def test_better_is_more_than_a_gain_is_worth_looking_for(more: float, better: bool) -> None:
    found = gain_of(side(16, TODAY, 2, more), side(32, OTHER_STARTS, 3), RULES)
    assert found is not None
    assert found.ratio.low > 1.0
    assert found.better is better
    assert found.no_worse


def test_no_worse_is_more_in_the_pairs_and_surely_no_loss_that_counts() -> None:
    both = [gain_of(side(16, TODAY, 2, more), side(32, OTHER_STARTS, 3), RULES) for more in (0.18, 0.3)]
    assert [gain is not None and gain.no_worse for gain in both] == [True, False]
    alike = gain_of(side(16, TODAY, 2), side(32, {n + 1: rate for n, rate in TODAY.items()}, 3), RULES)
    assert alike is not None
    assert alike.ratio.low > 1 / (1 + WORTH)
    assert (alike.no_worse, alike.more_as_proven) == (False, False)


def test_more_as_proven_is_of_the_pairs_alone() -> None:
    scattered = {3: 1800.0, 5: 1500.0, 7: 1050.0, 9: 1250.0}
    sides = [side(32, each, 3, 0.5) for each in (OTHER_STARTS, scattered)]
    found = [gain_of(side(16, TODAY, 2, 0.5), other, RULES) for other in sides]
    assert [(g.better, g.no_worse, g.more_as_proven) for g in found if g is not None] == [
        (False, False, True),
        (False, False, False),
    ]


def test_the_number_of_deciding_pairs_is_that_at_which_the_interval_is_short_enough() -> None:
    wide = side(32, {3: 1800.0, 5: 1300.0, 7: 1050.0, 9: 1250.0}, 3)
    found = gain_of(side(16, TODAY, 2), wide, RULES)
    assert found is not None
    assert found.deciding is not None
    assert not found.better
    assert 3 < found.deciding < 40
    assert gain_of(side(16, TODAY, 2, 0.5), wide, RULES).deciding is None  # type: ignore[union-attr]


def gone(race: Race, *places: int) -> Race:
    """The race without what was measured of some variants, which did not start."""
    why = "did not start: no such option"
    runners = [replace(r, history=[], gone=why) if i in places else r for i, r in enumerate(race.runners)]
    return replace(race, runners=tuple(runners))


def test_what_was_not_measured_is_not_no_better(tmp_path: Path) -> None:
    race, variants, _ = raced(f"{HEAD}{ENGINE}{{max_num_seqs: [200, 201, 202]}}}}\n", tmp_path / "run")
    assert (outcome_of(race), exit_code(race)) == ("no better", ExitCode.NO)
    assert race.finalist is not None
    other = next(i for i, r in enumerate(race.runners) if i and r is not race.finalist)
    some = gone(race, other)
    assert (outcome_of(some), exit_code(some)) == ("not compared", ExitCode.NOT_PROVEN)
    assert variants[other].name in claim_text(some)
    assert "Run it with" not in race_text(race_view(some, variants, ""), width=100, colour=False)
    assert_golden_row("answers", words(some, variants), "some")
    none = gone(race, 1, 2)
    assert (outcome_of(none), exit_code(none)) == ("not measured", ExitCode.FAILED)
    assert_golden_row("answers", words(none, variants), "none")


REASONS = (
    "the server keeps changing",
    "the server was lost at 64",
    "a lower load violates",
    "p99 TPOT is over its limit",
    "300 requests are too few",
    "p99 TTFT grows by 8% a minute",
)
"""How the search for a proven setting ends without one."""


@pytest.mark.parametrize("reason", REASONS)
def test_whatever_keeps_a_variant_from_a_proof_the_race_is_not_decided(
    capped: tuple[Race, tuple[Variant, ...], str, Path], reason: str
) -> None:
    race, _, _, _ = capped
    assert race.finalist is not None
    two = replace(race, runners=(race.baseline, race.finalist))
    for failed in ((0,), (1,), (0, 1)):
        runners = [replace(runner) for runner in two.runners]
        for place in failed:
            vars(runners[place])["proof"] = Done(reason)
        some = replace(two, runners=tuple(runners))
        assert (outcome_of(some), exit_code(some)) == ("not proven", ExitCode.NOT_PROVEN)
        assert runners[failed[0]].series.deployment in claim_text(some)
        best = chosen_of(some)
        assert (best and best.series) == (None if len(failed) == 2 else runners[1 - failed[0]].series)


def test_a_proof_that_fails_leaves_the_race_open_also_where_quick_looks_put_the_variant_last(
    capped: tuple[Race, tuple[Variant, ...], str, Path],
) -> None:
    race, _, _, _ = capped
    assert race.finalist is not None
    swapped = replace(race, runners=(race.finalist, race.baseline))
    assert swapped.dropped(race.baseline), "it is significantly worse"
    worse, unknown = replace(race.baseline), replace(race.baseline, spread=0.5)
    for runner in (worse, unknown):
        vars(runner)["proof"] = Done("the server keeps changing")
    codes = [exit_code(replace(swapped, runners=(race.finalist, runner))) for runner in (worse, unknown)]
    assert codes == [ExitCode.NO, ExitCode.NOT_PROVEN]


def test_a_winner_stands_although_another_was_not_measured(capped: tuple[Race, tuple[Variant, ...], str, Path]) -> None:
    race, _, _, _ = capped
    other = next(i for i, r in enumerate(race.runners) if i and r is not race.finalist)
    assert exit_code(gone(race, other)) is ExitCode.YES


def test_given_again_what_failed_is_tried_again(capped: tuple[Race, tuple[Variant, ...], str, Path]) -> None:
    _, variants, text, path = capped
    config, lines = load_config(text, "s.yaml"), RunDirectory.read(path).journal_lines()
    others = {s: h for s, h in load(path).histories.items() if s.deployment == variants[0].name}
    failed = [*lines, *(not_started(variant) for variant in variants[1:])]
    rules = rules_of(config, "output_throughput")
    assert exit_code(race_of(config, variants, rules, others, failed)) is ExitCode.FAILED
    again = race_of(config, variants, rules, others, [*failed, {"event": "resumed"}])
    step = again.next_step()
    assert step is not None
    assert step.series.deployment == variants[1].name


@pytest.mark.parametrize("resumed", [False, True])
def test_a_variant_whose_trials_were_all_spoilt_is_looked_at_again_in_another_session(
    capped: tuple[Race, tuple[Variant, ...], str, Path], resumed: bool
) -> None:
    _, variants, text, path = capped
    config, lines = load_config(text, "s.yaml"), RunDirectory.read(path).journal_lines()
    asleep = ClientHealth(suspended=30.0)
    histories = {
        s: [(t, replace(x, health=(asleep,)) if s.deployment != variants[0].name else x) for t, x in h]
        for s, h in load(path).histories.items()
    }
    session = [{"event": "resumed"}] if resumed else []
    race = race_of(config, variants, rules_of(config, "output_throughput"), histories, [*lines, *session])
    assert any(runner.gone is not None for runner in race.runners[1:]) is not resumed


# ---- on servers


@pytest.mark.parametrize("budget", [{"time": "1h"}, {"requests": 900}, {"tokens": 5_000, "until": "07:00"}])
def test_a_race_that_the_budget_ended_names_each_part_of_it(budget: dict[str, Any]) -> None:
    config = load_config(f"budget: {json.dumps(budget)}\n{TWO}", "s.yaml")
    assert re.findall(r"--set budget[.](\w+)=", raised_by(config)) == list(budget)


def not_started(variant: Variant) -> dict[str, str]:
    """The line of a journal for a server that did not start."""
    reason = f"{variant.name} ended with status 3 after 1 s; its last lines:\n  no memory"
    return {"event": "given_up", "deployment": variant.name, "cause": "never_came_up", "reason": reason}


def test_a_race_of_which_no_server_starts_is_not_measured() -> None:
    config, variants = load_config(TWO, "s.yaml"), variants_of(TWO, "s.yaml")
    rules = rules_of(config, "output_throughput")
    race = race_of(config, variants, rules, {}, [not_started(variant) for variant in variants])
    assert (outcome_of(race), exit_code(race)) == ("not measured", ExitCode.FAILED)
    assert [v["reason"].count("no memory") for v in race_view(race, variants).tree["variants"]] == [1, 1]
    assert_golden_row("answers", words(race, variants))


def test_a_baseline_that_does_not_start_is_said_to_and_not_to_keep_no_load(
    capped: tuple[Race, tuple[Variant, ...], str, Path],
) -> None:
    _, variants, text, path = capped
    config, lines = load_config(text, "s.yaml"), RunDirectory.read(path).journal_lines()
    others = {s: h for s, h in load(path).histories.items() if s.deployment != variants[0].name}
    rules = rules_of(config, "output_throughput")
    race = race_of(config, variants, rules, others, [*lines, not_started(variants[0])])
    assert (outcome_of(race), exit_code(race)) == ("only", ExitCode.YES)
    assert "did not start" in claim_text(race)


def test_an_energy_that_nothing_tells_ends_the_race_after_two_looks_at_each(tmp_path: Path) -> None:
    race, _, _ = raced(TWO, tmp_path / "run", objective="energy")
    assert (outcome_of(race), exit_code(race)) == ("not measured", ExitCode.FAILED)
    assert [len(runner.history) for runner in race.runners] == [2, 2]


@pytest.mark.process
def test_a_sweep_names_the_race_and_a_race_what_it_needs(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(f"{HEAD}{ENGINE}{{max_num_seqs: [12, 40]}}}}\n")
    said = frontier("sweep", path, cwd=tmp_path)
    assert said.code == 2
    assert f"frontier tune {path}" in said.err
    for text, word in (
        (path.read_text().replace("sla:", "# sla:"), "SLA"),
        (path.read_text().replace("shapes: 128/32", "shapes: [128/32, 64/8]"), "2 shapes"),
        ("shapes: 8/8\nendpoint: simulator\nsla: {p99_ttft: 1s}\n", "varies nothing"),
    ):
        path.write_text(text)
        refused = frontier("tune", path, cwd=tmp_path)
        assert (refused.code, word in refused.err) == (2, True)
    for values, same in (("max_num_seqs: [null, 256, 40]", "256"), ("step_base: [200us, 0.2ms, 1ms]", "0.2ms")):
        path.write_text(f"{HEAD}{ENGINE}{{{values}}}}}\n")
        refused = frontier("tune", path, cwd=tmp_path)
        assert (refused.code, f"{same} are the same" in refused.err) == (2, True)
    path.write_text(f"{HEAD}{ENGINE}{{max_num_seqs: [12, 40]}}}}\n")
    refused = frontier("tune", path, "--objective", "cost", cwd=tmp_path)
    assert (refused.code, "price" in refused.err) == (2, True)


def started(tmp_path: Path, budget: str = "") -> Path:
    """A config of three servers that are started: the second does not start."""
    port = free_port()
    serve = SERVE.format(port=port).replace("step_base=2ms", "step_base={step} --set per_decode=200us {more}")
    text = (
        f"shapes: [16/8]\nsla: {{p90_ttft: 200ms, p90_tpot: 16ms}}\n{budget}deployments:\n"
        f"- name: s\n  endpoint: http://127.0.0.1:{port}/v1\n  start: {json.dumps(serve)}\n"
        "  ready: {within: 40s}\n  stop: {within: 5s}\n"
        "  variants: [{name: today, step: 14ms, more: null}, {name: broken, step: 8ms, more: --no-such-option},"
        " {name: quick, step: 8ms, more: null}]\n"
    )
    path = tmp_path / "t.yaml"
    path.write_text(text)
    return path


@pytest.mark.nightly
@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_race_of_servers_that_is_killed_goes_on_to_the_best_of_those_that_start(tmp_path: Path) -> None:
    path, run = started(tmp_path), tmp_path / "run"
    race = start("tune", str(path), "-o", str(run), cwd=tmp_path)
    journal = run / "journal.jsonl"
    deadline = time.monotonic() + 120
    while (not journal.exists() or journal.read_text().count("trial_done") < 4) and time.monotonic() < deadline:
        time.sleep(0.2)
    race.kill()
    _, before_the_kill = race.communicate()
    before = journal.read_text().count("trial_done")
    said = conclusive(frontier("tune", str(path), "-o", str(run), "--json", timeout=600, cwd=tmp_path))
    lines = RunDirectory.read(run).journal_lines()
    done = [line["trial"] for line in lines if line["event"] == "trial_done"]
    assert len(done) == len(set(done)) > before >= 4, "what was finished is not measured again"
    tree: dict[str, Any] = json.loads(said.out)
    assert said.code == 0, said.err
    assert (tree["schema"], tree["outcome"], tree["chosen"]) == ("frontier.tune/1", "better", "quick")
    broken = tree["variants"][1]
    assert broken["reason"].startswith("did not start: ")
    assert "no-such-option" in before_the_kill + said.err, "the last lines of its log"
    again = frontier("tune", str(path), "-o", str(run), "--json", timeout=60, cwd=tmp_path)
    same = json.loads(again.out)
    reasons = [
        (old.pop("reason"), new.pop("reason")) for old, new in zip(tree["variants"], same["variants"], strict=True)
    ]
    assert same == tree
    assert [re.sub(r"\d+ s", "", old or "") == re.sub(r"\d+ s", "", new or "") for old, new in reasons] == [True] * 3
    later = RunDirectory.read(run).journal_lines()[len(lines) :]
    tried = [(line["event"], line.get("deployment")) for line in later if line["event"] in ("given_up", "trial_done")]
    assert tried == [("given_up", "broken")], "what did not start is tried once more, and nothing else is run"


@pytest.mark.process
def test_given_again_servers_that_do_not_start_are_each_tried_once_more_and_said_to_fail_as_before(
    tmp_path: Path,
) -> None:
    path, run = started(tmp_path), tmp_path / "run"
    path.write_text(path.read_text().replace("more: null", "more: --nor-this"))
    said = [frontier("tune", str(path), "-o", str(run), "--json", timeout=120, cwd=tmp_path) for _ in range(2)]
    assert [each.code for each in said] == [ExitCode.FAILED] * 2
    first, again = (re.sub(r"after \d+ s", "", each.out) for each in said)
    assert again == first
    assert "no-such-option" in first, "the last lines of its log"
    tried = Counter(
        line.get("deployment") for line in RunDirectory.read(run).journal_lines() if line["event"] == "given_up"
    )
    assert tried == {"today": 2, "broken": 2, "quick": 2}


@pytest.mark.process
@pytest.mark.slow
def test_a_budget_ends_a_race_with_what_stands(tmp_path: Path) -> None:
    said = frontier(
        "tune",
        str(started(tmp_path, "budget: {time: 20s}\n")),
        "-o",
        str(tmp_path / "run"),
        "--json",
        timeout=120,
        cwd=tmp_path,
    )
    assert said.code == 4, said.err
    assert json.loads(said.out)["outcome"] == "undecided"
