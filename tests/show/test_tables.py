"""Tables as text: their width, their words, and what they do with hostile text."""

import dataclasses
import math
import re
from types import SimpleNamespace

import pytest

from frontier.core.claim.solver import solve_all
from frontier.core.model.decisions import Cause, Claim, Decision, Limit, Reason, Verdict
from frontier.core.model.loads import Concurrency
from frontier.core.model.points import Distance, Estimate, Flag, Point
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Phase, Trial
from frontier.planning.sla_result import SlaResult, make_sla_result
from frontier.show.answer import answers_text, decision_table
from frontier.show.tables import plan_table, table_of
from frontier.show.view.answer_view import answer_view, tier_views
from frontier.show.view.explain import sentence
from frontier.show.view.series_view import series_view
from tests.kit.golden import assert_golden, assert_golden_row
from tests.kit.made import Server, trial
from tests.kit.toy import (
    LADDER,
    LIMIT,
    SHAPE,
    points_text,
    toy_decision,
    toy_frontier,
    toy_point,
    toy_points,
    with_times,
)

LIMITS = (LIMIT, Limit("p99_tpot", 0.03))
ERRORS = Flag("errors", "4.2%", "1%", "lower the concurrency")


def below(text: str) -> str:
    """What stands below a table of points."""
    return "\n".join(line for line in text.splitlines()[2:] if not re.match(r"[★●✕○] +\d", line))


def widest(text: str) -> int:
    return max(len(line) for line in text.splitlines())


@pytest.mark.parametrize("width", [60, 80, 100, 140, 200])
def test_points_fit_the_width(width: int) -> None:
    points = [toy_point(c, flags=(ERRORS,) if c > 90 else ()) for c in LADDER]
    text = points_text(points, [toy_frontier(points)], LIMITS, gpus={"default": 1}, width=width)

    assert widest(text) <= width


@pytest.mark.parametrize("width", [60, 80, 120])
def test_decisions_and_plans_fit_the_width(width: int) -> None:
    assert widest(decision_table([answer_view(toy_decision(toy_points(), LIMITS), gpus=1)], width=width)) <= width
    assert (
        widest(plan_table(SimpleNamespace(auto=False, rate=None, tiers=[("", LIMITS)]), a_plan(), width=width)) <= width
    )


def test_more_columns_appear_where_there_is_room() -> None:
    points = toy_points()
    narrow, wide = (points_text(points, [toy_frontier(points)], LIMITS, width=w) for w in (70, 150))

    assert "95% CI" not in narrow
    assert "p99 E2E" in narrow
    (row,) = (line for line in wide.splitlines() if line.startswith(" 64 "))
    assert re.search(r"\[[\d,]+, [\d,]+\]", row)  # of the throughput, which has no limit
    assert re.search(r"at most \d+ ms \(95%\)", row)  # of the tail that has one


def test_the_metrics_of_the_sla_and_the_frontier_are_given_up_last() -> None:
    points = toy_points()
    text = points_text(points, [toy_frontier(points)], (Limit("p99_e2e", 5.0),), width=44)

    assert "p99 E2E" in text
    assert "p50 TTFT" not in text


def test_each_row_says_how_its_setting_stands() -> None:
    points = toy_points()
    points[2] = toy_point(4, flags=(ERRORS,))
    decision = toy_decision(points)
    view = series_view(points, toy_frontier(points), decision, LIMITS)
    words = {each.load: each.words for each in view.settings}

    assert {each.load for each in view.settings if each.chosen} == {decision.load} == {64}
    assert ("meets", "meets") == (words[1], words[64])
    assert words[128] == f"violates {LIMIT.of.label}"
    assert words[4].startswith("excluded")
    text = points_text(points, [toy_frontier(points)], LIMITS, decisions=[decision], width=100, whole=False)
    assert [line.split()[-1] for line in text.splitlines()[1:3]] == ["meets"] * 2


def test_a_setting_of_which_nothing_is_claimed_is_a_short_trial() -> None:
    points, (short,) = toy_points((1, 8, 64)), toy_points((32,))
    over = dataclasses.replace(short, metrics={**short.metrics, "p99_ttft": Estimate.without_interval(9.0, 40)})
    solved = [solve_all(points, (LIMIT,), scanned=[p])[0] for p in (short, over)]
    words = [
        series_view([p], toy_frontier(points), d).settings[0].words for p, d in zip((short, over), solved, strict=True)
    ]
    assert all("quick look" in text for text in words)
    assert [LIMIT.of.label in text for text in words] == [False, True]


def test_a_whole_window_that_completes_the_frontier_is_called_no_quick_look() -> None:
    points, (between,) = toy_points((1, 8, 64)), toy_points((32,))
    asked = trial(32, Phase.FRONTIER)
    history = {between.series: [(asked, Server(lambda c: 0.02).run(asked))]}
    (decision,) = solve_all(points, (LIMIT,), scanned=[between], histories=history)
    (setting,) = series_view([between], toy_frontier(points), decision).settings
    said = sentence(next(r for r in decision.explanation.settings if r.settings == (32,)))

    assert "to compare" in setting.words
    assert "to compare" in said
    assert "quick look" not in setting.words + said


def test_the_usual_table_has_the_limited_metrics_alone() -> None:
    points = toy_points()
    limits = (Limit("p95_tpot", 0.03), Limit("error_rate", 0.01))
    usual, whole = (
        table_of(series_view(points, toy_frontier(points), None, limits), whole=whole).heads for whole in (False, True)
    )
    assert {"p99 TTFT"} <= set(whole) - set(usual)
    assert ("concurrency", "tok/s", "errors", "requests", "verdict") == tuple(h for h in usual if h != "p95 TPOT")


def test_where_the_time_goes_is_one_line_on_the_operating_point_or_the_highest_setting() -> None:
    points = with_times(toy_points((1, 8, 64)))
    decided = points_text(points, [toy_frontier(points)], LIMITS, decisions=[toy_decision(points, LIMITS)], width=400)
    bare = points_text(points[:2], [], width=400)
    without = points_text(toy_points((1, 8)), [], width=400).splitlines()
    (line,) = [line for line in bare.splitlines() if line not in without]
    assert 1 == line.count("c=8")
    assert 1 == decided.count(line.partition("c=8")[0] + "c=64")
    assert_golden_row("pages", line)


def test_a_flag_is_listed_once_with_its_settings_and_what_to_do() -> None:
    points = [toy_point(c, flags=(dataclasses.replace(ERRORS, measured=f"{c}%"),) if c > 90 else ()) for c in LADDER]
    text = points_text(points, [toy_frontier(points)], width=100)

    assert 1 == text.count(ERRORS.advice)
    assert_golden_row("pages", below(text))


def test_a_warning_with_many_figures_names_the_first_and_where_the_others_are() -> None:
    warn = Flag("history_read_again", "", "10%", "look at the prefix cache", fatal=False)
    points = [toy_point(c, flags=(dataclasses.replace(warn, measured=f"{c}%"),)) for c in LADDER]
    text = points_text(points, [toy_frontier(points)], width=100)
    few = points_text(points[:2], [toy_frontier(points[:2])], width=100)
    assert [1, 0] == [found.count("frontier show --json") for found in (text, few)]
    assert_golden_row("pages", f"{below(text)}\n\n{below(few)}")


def test_missing_and_failed_values_are_never_zero() -> None:
    points = toy_points((1, 8))
    bare = {k: v for k, v in points[0].metrics.items() if k != "p99_tpot"}
    points[0] = dataclasses.replace(points[0], metrics=bare)
    points[1] = dataclasses.replace(
        points[1], metrics={**points[1].metrics, "p99_ttft": Estimate(float("inf"), 1.0, float("inf"), 300)}
    )
    lines = points_text(points, [toy_frontier(points)], width=100).splitlines()

    assert "–" in lines[2]
    assert "∞" in lines[3]


def solved(limits: tuple[Limit, ...]) -> SlaResult:
    """The answer on toy points: c=8 excluded, c=64 with too few requests to bound its tail."""
    points = [toy_point(c, n=1200) for c in LADDER if c != 8]
    points.append(toy_point(8, n=1200, flags=(Flag("lockstep", "8.1", "2", "stagger the starts"),)))
    few = {"p99_ttft": Estimate(0.45, 0.42, math.inf, 300, lower=0.42, need=1000)}
    points = [dataclasses.replace(p, metrics={**p.metrics, **few}) if p.load == 64 else p for p in points]
    return make_sla_result("default", limits, points, solve_all(points, limits))


def test_an_answer_that_meets_the_sla() -> None:
    """Figures with the bound that decides, then the reasons, then what it means in production."""
    assert_golden("answer.txt", answers_text(tier_views([solved(LIMITS)]), width=100))


def commanded(decision: Decision, seconds: float | None, claim: Claim | None = None) -> Decision:
    """The decision with a claim, and with the command that its next step gets of a run."""
    step = decision.next_step
    if step is not None:
        run = "runs/a-night-on-the-large-machine"
        command = f"frontier sweep sweep.yaml -o {run} --only 1024/256 --prove {step.load}"
        step = dataclasses.replace(step, seconds=seconds, command=command)
    return dataclasses.replace(decision, claim=claim, next_step=step)


WAVES = Flag("lockstep", "8.1", "2", "stagger the starts")
FEW = {"p99_ttft": Estimate(0.325, 0.3, math.inf, 300, lower=0.3, need=1000)}


def a_better_one(*, chosen: int, undecided: int, excluded: bool = False) -> Decision:
    """The decision on toy points: one proven, one that would give more and has too few requests, or
    was excluded.
    """
    points = [toy_point(c, n=1200) for c in (1, chosen, 80)]
    other = toy_point(undecided, n=1200, flags=(WAVES,) if excluded else ())
    points.append(other if excluded else dataclasses.replace(other, metrics={**other.metrics, **FEW}))
    return solve_all(points, LIMITS)[0]


@pytest.mark.parametrize("width", [80, 100])
def test_an_answer_names_the_better_setting_first_and_says_what_it_covers(width: int) -> None:
    """A better setting that is not proven, one that was excluded and is more than half of the
    throughput, no answer yet, and a proof that a later visit contradicted; each with the command
    that decides on a line of its own.
    """
    none = solve_all([dataclasses.replace(p, metrics={**p.metrics, **FEW}) for p in toy_points((56,))], LIMITS)[0]
    corrected = solve_all([toy_point(c, n=1200) for c in (32, 80)], LIMITS)[0]
    found = corrected.explanation
    reasons = (Reason(Cause.CORRECTED, (Concurrency(56),)), *found.reasons)
    remark = "restarts were delayed by up to one decode step, so that requests do not come in waves"
    corrected = dataclasses.replace(
        corrected, explanation=dataclasses.replace(found, reasons=reasons, remarks=(remark,))
    )
    decisions = [
        commanded(a_better_one(chosen=32, undecided=56), 170.0, Claim("early", 21, 0.133)),
        commanded(a_better_one(chosen=8, undecided=56, excluded=True), 4000.0, Claim("final", 340, 0.0088)),
        commanded(none, 40.0),
        commanded(corrected, None, Claim("early", 1, 0.95, corrected=True)),
    ]
    results = [tier_views([SlaResult("", LIMITS, (decision,))]) for decision in decisions]
    text = "\n\n".join(answers_text(views, width=width) for views in results)

    commands = [line for line in text.splitlines() if line.startswith("  frontier sweep")]
    assert [d.next_step.command for d in decisions if d.next_step] == [line.strip() for line in commands]
    for block in text.split("\n\nWhy")[0].split("\n\n"):  # the figures are of the setting that the headline names last
        order = [line.startswith("  p99") for line in block.splitlines() if re.match(r"  p99|c=\d+( may keep|:)", line)]
        assert order == sorted(order, reverse=True)
    assert widest("\n".join(line for line in text.splitlines() if line not in commands)) <= width
    assert_golden(f"answer-better-{width}.txt", text)


def test_a_limit_on_throughput_has_its_row_though_the_headline_has_the_throughput() -> None:
    limits = (Limit("output_throughput", 100), *LIMITS)
    (decision,) = solved(limits).decisions
    assert decision.load is not None
    (row,) = re.findall(r"^  .  output throughput .*", decision_table([answer_view(decision, gpus=8)], width=100), re.M)
    assert ("limit 100 tok/s" in row, "/GPU" in row) == (True, False)  # the limit is of the whole deployment


def test_an_answer_without_an_operating_point() -> None:
    assert_golden("answer-none.txt", answers_text(tier_views([solved((Limit("p99_ttft", 0.02),))]), width=100))


@pytest.mark.parametrize("verdict", [Verdict.VIOLATES, Verdict.UNPROVEN, Verdict.MARGINAL, Verdict.INVALID])
def test_every_other_verdict_says_what_it_is(verdict: Verdict) -> None:
    decision = dataclasses.replace(toy_decision(toy_points()), verdict=verdict, load=None, candidate=Concurrency(1))

    assert_golden_row("answers", decision_table([answer_view(decision)], width=100))


def test_colour_is_off_unless_asked_for() -> None:
    points = toy_points()
    arguments = (points, [toy_frontier(points)], LIMITS)

    assert "\x1b" not in points_text(*arguments, width=100)
    assert "\x1b[" in points_text(*arguments, width=100, colour=True)


def test_hostile_text_is_neither_markup_nor_control() -> None:
    shape = Shape(SHAPE.isl, SHAPE.osl, name="[red]x[/red]\x1b[2J")
    flag = Flag("[b]f", "\x1b]0;t\x07", "\u202e1", "[/x] \x9b")
    points = [toy_point(8, shape=shape, deployment="\x07d", flags=(flag,))]
    points = [dataclasses.replace(point, notes=("note \x1b[31m [link=x]",)) for point in points]
    decision: Decision = toy_decision(points)
    text = points_text(points, [toy_frontier(points)], width=100) + decision_table([answer_view(decision)], width=100)

    assert "[red]x[/red][2J" in text
    assert "[b]f" in text
    for bad in ("\x1b", "\x07", "\x9b", "\u202e"):
        assert bad not in text


def test_a_percentile_without_a_bound_is_marked_where_its_interval_has_no_room() -> None:
    points = toy_points()
    few = Estimate(0.45, 0.42, math.inf, 300, lower=0.42, need=1000)
    points[2] = dataclasses.replace(points[2], metrics={**points[2].metrics, "p99_ttft": few})
    narrow = points_text(points, [toy_frontier(points)], LIMITS, decisions=[toy_decision(points)], width=80)
    wide = points_text(points, [toy_frontier(points)], LIMITS, width=200)
    bounded = points_text(toy_points(), [toy_frontier(toy_points())], LIMITS, width=200)
    (legend,) = [line for line in wide.splitlines() if line.startswith("*")]

    assert 1 == narrow.count("450 ms *")
    assert "450 ms *  no bound " in wide
    assert [1, 0] == [text.count("\n*") for text in (narrow, bounded)]
    assert_golden_row("pages", legend)


def test_the_sign_of_a_missing_bound_is_not_needed_for_an_answer_that_is_there() -> None:
    points = toy_points()
    few = Estimate(0.45, 0.42, math.inf, 300, lower=0.42, need=1000)
    points[2] = dataclasses.replace(points[2], metrics={**points[2].metrics, "p99_e2e": few})
    decision = toy_decision(points)
    table = [
        points_text(points, [toy_frontier(points)], LIMITS, decisions=[d], width=120)
        for d in (decision, dataclasses.replace(decision, load=None))
    ]

    assert_golden_row("pages", "\n".join(line for text in table for line in text.splitlines() if line.startswith("*")))


def test_without_an_sla_nothing_is_proven_and_the_frontier_is_the_answer() -> None:
    points = toy_points((1, 8, 64))
    text = points_text(points, [toy_frontier(points)], width=200)

    with_sla = points_text(points, [toy_frontier(points)], LIMITS, width=200).splitlines()
    assert_golden_row("pages", "\n".join(line for line in text.splitlines() if line not in with_sla))


def test_no_points_is_said() -> None:
    none: list[Point] = []
    assert "no points" == points_text(none, [], width=80)


def a_plan() -> SimpleNamespace:
    trials = tuple(
        Trial("default", SHAPE, c, r, Phase.GRID, 300, 1, 20.0, 0.0, 120.0, "f") for c in LADDER for r in (1, 2, 3)
    )
    return SimpleNamespace(trials=trials, longest=5760.0, expected_bytes=3.1e7)


def test_the_bound_that_decides_is_the_bound_that_is_shown() -> None:
    def table(low: float, high: float, lower: float, upper: float, limit: Limit = LIMIT) -> str:
        value = Estimate(0.41 if limit is LIMIT else 120.0, low, high, 1020, lower, upper)
        decision = toy_decision(toy_points(), (limit,))
        decision = dataclasses.replace(decision, metrics={**decision.metrics, limit.metric: value})
        return decision_table([answer_view(decision)], width=120)

    tables = [
        table(0.4, math.inf, 0.4, 0.44),
        table(0.4, 0.51, 0.4, 0.49),
        table(0.4, math.inf, 0.4, math.inf),
        table(-math.inf, math.inf, -math.inf, math.inf),
        table(39.0, 130.0, 41.0, 128.0, Limit("p50_interactivity", 40.0)),
    ]
    bounds = ("440 ms", "490 ms", "no bound", "no interval", "41.0 tok/s/user")
    assert [] == [bound for bound, text in zip(bounds, tables, strict=True) if bound not in text]
    assert_golden_row("answers", "\n\n".join(tables))


def test_a_plan_says_its_size_and_the_longest_it_can_take() -> None:
    tiers = [("", (LIMIT,))], [("gold", (LIMIT,)), ("bulk", (Limit("p99_e2e", 9.0),))]
    one, two = (plan_table(SimpleNamespace(auto=False, rate=None, tiers=of), a_plan(), width=120) for of in tiers)
    assert f"{len(a_plan().trials)} trials" in one
    assert_golden_row("answers", f"{one}\n\n{two}")


def test_the_distance_from_light_has_its_columns_only_where_it_is_known() -> None:
    points = toy_points((8, 16))
    dark = points_text(points, [toy_frontier(points)], width=200).splitlines()
    lit = Distance(2000.0, Estimate(0.42, 0.41, 0.43, 900), "decode bandwidth", Estimate(0.5, 0.4, 0.6, 900))
    points[1] = dataclasses.replace(points[1], roofline_distance=lit)
    shown = points_text(points, [toy_frontier(points)], width=200).splitlines()
    head, first, second = (" ".join(line.split()) for line in shown[1:4])
    assert "MBU" not in dark[1]
    assert "– – –" in first
    assert "42.0% 50.0% decode bandwidth" in second
    assert_golden_row("pages", head)
