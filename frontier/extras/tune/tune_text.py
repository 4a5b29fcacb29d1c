"""What a race has to say, as data: the variants, the gain, and the line to paste."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from frontier.core.model.errors import ExitCode
from frontier.core.model.loads import NO_LOAD
from frontier.core.model.metrics import metric
from frontier.core.model.points import Estimate
from frontier.core.model.text import capital, clean
from frontier.core.model.units import count
from frontier.core.stats.difference import in_pairs
from frontier.core.window.window import join
from frontier.extras.tune.gain import WORTH, Gain
from frontier.extras.tune.race import Race
from frontier.extras.tune.runner import Runner
from frontier.extras.tune.variants import Variant
from frontier.show.view.comparison_view import ComparisonView
from frontier.show.view.wording import value_text
from frontier.sweep.start.started_server import LAST_LINES

RaceOutcome = Literal["better", "no better", "only", "undecided", "not proven", "not compared", "not measured", "none"]
"""The outcome of a race:

- better: a variant is shown to be better
- no better: no variant is shown to be better
- only: the baseline keeps the SLA at no load, and another variant does
- undecided: the race was cut short
- not proven: no setting is proven of a variant that may be better, or of the baseline
- not compared: no variant that was measured is shown to be better, and others were not measured
- not measured: nothing could be measured, or nothing but the baseline
- none: no variant keeps the SLA"""
Values = tuple[tuple[str, tuple[str, ...]], ...]
_CODES = {
    "better": ExitCode.YES,
    "only": ExitCode.YES,
    "no better": ExitCode.NO,
    "none": ExitCode.NO,
    "not measured": ExitCode.FAILED,
}
DECIDED = ("better", "only", "no better")
"""Outcomes that name a variant to run."""
NOTHING = "–"
LEAST_PAIRS = 3
"""Fewest pairs of variants that differ in one value alone from which that value's effect is
given."""


def outcome_of(race: Race) -> RaceOutcome:
    """The outcome of a race. What was not measured is not shown to be no better."""
    outcome, gone = _by_the_measured(race), unmeasured(race)
    if outcome in ("no better", "none", "not proven") and len(gone) == len(race.runners) - 1:
        return "not measured"
    return "not compared" if outcome in ("no better", "none") and gone else outcome


def unmeasured(race: Race) -> list[Runner]:
    """The variants beside the baseline that could not be measured, and are not significantly
    worse.
    """
    return [r for r in race.runners[1:] if r.gone is not None and not race.dropped(r)]


def _by_the_measured(race: Race) -> RaceOutcome:
    """The outcome by the variants that were measured."""
    if race.next_step() is not None:
        return "undecided"
    if race.gain is not None and race.gain.better:
        return "better"
    open_ = left_open(race)
    if race.gain is None and race.finalist is not None and race.finalist.proven is not None:
        return "only" if open_ is None else "not proven"
    if race.baseline.proven is None:
        if all(r.gone is not None for r in race.runners) or (open_ is not None and open_.is_spoilt):
            return "not measured"
        return "none" if open_ is None else "not proven"
    if open_ is not None:
        return "not proven"
    return "undecided" if race.gain is not None and math.isinf(race.gain.ratio.high) else "no better"


def exit_code(race: Race) -> ExitCode:
    """The exit code of a race."""
    return _CODES.get(outcome_of(race), ExitCode.NOT_PROVEN)


def left_open(race: Race) -> Runner | None:
    """The variant whose proof would decide the race but was not possible: the baseline, or the most
    promising one that is not significantly worse; None without one.
    """
    if race.baseline.proven is None:
        open_ = (r for r in race.runners if r.unproven is not None or (r.gone is not None and r.history))
        return next(open_, None)
    failed = (r for r in race.runners[1:] if r.unproven is not None and r.gone is None and not race.dropped(r))
    return max(failed, key=lambda r: r.expected, default=None)


def chosen_of(race: Race) -> Runner | None:
    """The variant to run: the other one where it is shown to be better, gives more as `_gives_more`
    says, or alone is proven to keep the SLA; otherwise the baseline. None where no load of either
    is proven.
    """
    if (outcome := outcome_of(race)) in ("better", "only") or _gives_more(race):
        return race.finalist
    if outcome == "not proven" and (alone := proven_alone(race)) is not None:
        return alone
    return race.baseline if outcome == "undecided" or race.baseline.proven is not None else None


def _gives_more(race: Race) -> bool:
    """Whether the best other is what to run although it is not shown to be better at any load."""
    known = race.gain is not None and (race.gain.no_worse or race.gain.more_as_proven)
    return known and outcome_of(race) in ("no better", "not proven")


def proven_alone(race: Race) -> Runner | None:
    """The variant of the final where a load of it is proven and none of the baseline. None where
    that is not the baseline's fault: it was lost, or the client spoilt its proofs.
    """
    mine, other = race.baseline, race.finalist
    failed = mine.gone is None and mine.unproven is not None and not mine.is_spoilt
    return other if failed and other is not None and other.proven is not None else None


def higher_of(race: Race) -> tuple[Runner, Runner] | None:
    """The variant that may be better than the chosen one but was not compared with it, and the
    chosen one. None without such a variant.
    """
    chosen = chosen_of(race) if outcome_of(race) in DECIDED else None
    higher = None if chosen is None else race.may_be_better(chosen)
    return None if chosen is None or higher is None else (higher, chosen)


# ---- for people


def race_view(race: Race, variants: Sequence[Variant], decide: str = "") -> ComparisonView:
    """What the race has to say, to people and as JSON. `decide` is the command that races the
    variant that may be better against the chosen one.
    """
    outcome, chosen = outcome_of(race), chosen_of(race)
    pasted = next((v for v in variants if chosen is not None and v.name == chosen.series.deployment), None)
    lines = [answer_text(race), *_to_decide(race, decide)]
    if pasted is not None and (outcome in DECIDED or chosen is race.finalist):
        lines += ["", f"Run it with      {pasted.start or pasted.settings}"]
    pairs = list(zip(race.runners, variants, strict=True))
    return ComparisonView(
        outcome,
        claim_text(race),
        capital(_label(race.rules.objective)),
        "\n".join(lines),
        tuple((_named(v), *_expected(race, r), *_proven(race, r), _standing(race, r)) for r, v in pairs),
        tuple(f"{'What it does' if i == 0 else '':<17}{line}" for i, line in enumerate(effects(race, variants))),
        ("", *(f"{variant.name:<17}{variant.start or variant.settings}" for variant in variants)),
        _tree(race, variants, decide),
    )


def _named(variant: Variant) -> str:
    """The name of a variant, with its values where the name does not hold them."""
    known = all(key in variant.name for key in variant.values) or len(variant.settings) > 60
    return variant.name if known else f"{variant.name} ({variant.settings})"


def _expected(race: Race, runner: Runner) -> tuple[str, str]:
    """The value that a variant is expected to give, as 'about 2,020 tok/s', and at which load."""
    edge = runner.reach(0.0).edge if runner.history and runner.gone is None else None
    if edge is None:
        return NOTHING, ""
    return f"about {value_text(race.rules.objective, race.rules.given(runner.reach(0.0).value))}", edge.label


def _proven(race: Race, runner: Runner) -> tuple[str, str]:
    """The proven value of a variant, and at which load; where it was compared, the value that the
    comparison has.
    """
    gain = race.gain
    if gain is not None and runner in (race.baseline, race.finalist):
        mean, load = (gain.baseline, gain.loads[0]) if runner is race.baseline else (gain.winner, gain.loads[1])
        return value_text(race.rules.objective, mean), load.label
    side = runner.side() if runner.history and runner.gone is None else None
    value = None if side is None else race.rules.value(join(tuple(itertools.chain(*side.starts.values()))))
    if side is None or value is None:
        return NOTHING, ""
    return value_text(race.rules.objective, value.value), side.load.label


def _standing(race: Race, runner: Runner) -> str:
    """How a variant stands in the race, and why."""
    words = ["the baseline"] if runner is race.baseline else []
    changes = runner.known.kept.changes if runner.gone is None and runner.history else ()
    words += [f"its {metric(change.metric).label} changed by {math.expm1(change.by):+.0%}" for change in changes]
    if runner.gone is not None:
        words.append(_gone(runner))
    elif not runner.history:
        words.append("not measured yet")
    elif runner.unproven is not None:
        words.append(f"not proven: {runner.unproven}")
    elif runner.proven is None and runner.keeps_at_no_load:
        words.append("no load keeps the SLA")
    elif race.gain is not None and race.gain.better and runner is race.finalist:
        words.append("better")
    elif runner is not race.baseline and not runner.final_starts:
        words.append("significantly worse than another" if race.dropped(runner) else "quick looks only")
    return "; ".join(words)


def _gone(runner: Runner) -> str:
    """Why nothing more is run on a variant, without the lines of its log; '' where it may still
    run.
    """
    return clean((runner.gone or "").partition("\n")[0].removesuffix(LAST_LINES), 200)


def claim_text(race: Race) -> str:
    """What the race shows, in a sentence."""
    outcome, gain, name = outcome_of(race), race.gain, race.rules.objective
    best = "" if race.finalist is None else race.finalist.series.deployment
    baseline = race.baseline.series.deployment
    if outcome == "none":
        return "No variant is proven to keep the SLA at any load."
    if outcome in ("not compared", "not measured") or (outcome == "not proven" and gain is None):
        return _open_text(race, outcome)
    if outcome == "only" and race.finalist is not None:
        without = _gone(race.baseline) or "at no load"
        return (
            f"{best} keeps the SLA at {(race.finalist.proven or NO_LOAD).label}; {baseline}, the baseline, {without}."
        )
    if gain is None:
        cut = "The race was cut short; " if outcome == "undecided" else ""
        return capital(f"{cut}no variant is shown to be better than {baseline}, the baseline.")
    found = f"{best}: {_change(gain.ratio, name)} {_label(name)} ({_interval(gain.ratio, name)})"
    winner, today = (value_text(name, value) for value in (gain.winner, gain.baseline))
    found += f", {winner} at {gain.loads[1].label} against {today} at {gain.loads[0].label}, both proven"
    if gain.better:
        return f"{found}."
    run = f"is not worse by {WORTH:.0%}" if gain.no_worse else f"gives over {WORTH:.0%} more at these loads"
    found += f". It is what to run: it {run} (95%)." if _gives_more(race) else "."
    if outcome == "not proven":
        return f"{_open_text(race, outcome)} The best of the others is {found}"
    first = "Not decided yet" if outcome == "undecided" else f"No variant is shown to be better than {baseline}"
    return f"{first}{_would_show(race)}. The best other is {found}"


def _open_text(race: Race, outcome: RaceOutcome) -> str:
    """Why a race is not decided, in a sentence."""
    baseline = race.baseline.series.deployment
    alone = outcome == "not measured" and race.baseline.gone is None
    gone = unmeasured(race) if alone or outcome == "not compared" else []
    runner = next(iter(gone), left_open(race) or race.baseline)
    of, reason = runner.series.deployment, clean(_gone(runner) or runner.unproven or "", 200)
    if outcome == "not proven":
        other = proven_alone(race)
        value, load = (NOTHING, "") if other is None else _proven(race, other)
        kept = "" if other is None else f" {other.series.deployment} is proven to keep it at {load}, with {value}."
        return f"Not decided: no load of {of} is proven to keep the SLA: {reason}.{kept}"
    if outcome == "not measured":
        but = f" but {baseline}, the baseline," if gone else ""
        return f"No variant{but} could be measured. {of}: {reason}."
    names = ", ".join(r.series.deployment for r in gone)
    return f"Not decided: {names} could not be measured; {of}: {reason}. No other variant is shown to be better."


def answer_text(race: Race) -> str:
    """The result of the race; its first line also names a variant that may still be better."""
    claim, higher = claim_text(race), higher_of(race)
    if higher is not None:
        name, more = higher[0].series.deployment, race.rules.given(higher[0].expected - higher[1].expected)
        claim += f" {name} may be better: {more - 1:+.0%} {_label(race.rules.objective)} in quick looks."
    if race.gain is None or outcome_of(race) == "not compared":
        return claim
    pairs = count(race.gain.pairs, "time")
    return f"{claim}\nEach was started anew {pairs}, in turn; the interval is of these starts.{_left(race, race.gain)}"


def _left(race: Race, gain: Gain) -> str:
    """What keeps a gain from being shown: what may be given at loads that were not proven, or the
    number of pairs.
    """
    if gain.better or gain.told:
        return ""
    if race.final is not None and race.final.open is not None:
        side, most = race.final.open
        more = "an unknown amount" if math.isinf(most) else f"{math.expm1(most):.0%}"
        return f" {side.series.deployment} may give {more} more at loads that were not proven."
    if gain.deciding is not None and gain.deciding > gain.pairs:
        return f" About {gain.deciding} starts of each, like these, would decide."
    return ""


def _to_decide(race: Race, command: str) -> list[str]:
    """How much better than the chosen variant another may be, and the command that would decide."""
    higher, rules = higher_of(race), race.rules
    if higher is None:
        return []
    name, chosen = (runner.series.deployment for runner in higher)
    more, than = (value_text(rules.objective, rules.given(runner.expected)) for runner in higher)
    return [f"{name} is expected to give {more}, {chosen} {than}. To decide:", f"  {command}"]


def _label(name: str) -> str:
    return metric(name).label.partition(" (")[0]


def _of_metric(ratio: Estimate, name: str) -> tuple[float, float, float]:
    """Value, low and high of a ratio of worths as a ratio of the metric itself: half the cost is
    twice the worth.
    """
    if metric(name).sign > 0:
        return ratio.value, ratio.low, ratio.high
    return 1 / ratio.value, 1 / ratio.high, 1 / ratio.low if ratio.low else math.inf


def noticed(race: Race) -> float | None:
    """The gain, as a ratio, above which each variant of a final would have been shown to be better;
    None without pairs of starts, where they show no such bound, or one at twice the baseline or
    more.
    """
    if outcome_of(race) != "no better":
        return None
    most = max((final.gain.ratio.high for final in race.finals if final.gain is not None), default=math.inf)
    return most if 1 <= most < 2 else None


def _would_show(race: Race) -> str:
    """'; a gain above 5% would have been seen'; '' where that is not known."""
    ratio = noticed(race)
    if ratio is None:
        return ""
    if metric(race.rules.objective).sign > 0:
        return f"; a gain above {ratio - 1:.0%} would have been seen"
    return f"; a saving above {1 - 1 / ratio:.0%} would have been seen"


def _change(ratio: Estimate, name: str) -> str:
    """'+18%', '-3%'."""
    return f"{_of_metric(ratio, name)[0] - 1:+.0%}"


def _interval(ratio: Estimate, name: str) -> str:
    _, low, high = _of_metric(ratio, name)
    known = 0 < low <= high < math.inf
    return f"95% CI {low - 1:+.0%} to {high - 1:+.0%}" if known else "no interval yet"


def effects(race: Race, variants: Sequence[Variant]) -> list[str]:
    """The effect of each value against the first one of its name: 'budget 8192 against 2048: +6%
    (95% CI +2% to +10%)'. At least three pairs of variants that differ only in it must agree.
    """
    known = {
        tuple(v.values.items()): r.reach(0.0).value
        for v, r in zip(variants, race.runners, strict=True)
        if r.gone is None and r.history and r.reach(0.0).edge is not None
    }
    lines, name = [], race.rules.objective
    for key in variants[0].values:
        first = variants[0].values[key]
        for value in dict.fromkeys(v.values[key] for v in variants):
            steps = list(_steps(known, key, first, value)) if value != first else []
            if len(steps) < LEAST_PAIRS:
                continue
            found = in_pairs(steps).ratio(len(steps))
            if found.low > 1 or found.high < 1:
                words = f"{' '.join(value) or 'none'} against {' '.join(first) or 'none'}"
                said = f"{_change(found, name)} ({_interval(found, name)}, {len(steps)} pairs)"
                lines.append(f"{key} {words}: {said}")
    return lines


def _steps(known: Mapping[Values, float], key: str, first: tuple[str, ...], value: tuple[str, ...]) -> Iterator[float]:
    for values, worth in known.items():
        other = tuple((name, value if name == key else given) for name, given in values)
        if dict(values)[key] == first and other in known:
            yield known[other] - worth


# ---- JSON


def _tree(race: Race, variants: Sequence[Variant], decide: str) -> dict[str, Any]:
    """The race as one object; `decide` as in `race_view`."""
    gain, chosen, higher, rules = race.gain, chosen_of(race), higher_of(race), race.rules
    value, low, high = (None, None, None) if gain is None else _of_metric(gain.ratio, rules.objective)
    return {
        "schema": "frontier.tune/1",
        "objective": rules.objective,
        "outcome": outcome_of(race).replace(" ", "_"),
        "chosen": None if chosen is None else chosen.series.deployment,
        "gain": None
        if gain is None
        else {
            "of": race.finalist.series.deployment if race.finalist is not None else None,
            "ratio": value,
            "low": _finite(low),
            "high": _finite(high),
            "pairs": gain.pairs,
            "baseline": gain.baseline,
            "winner": gain.winner,
            "baseline_concurrency": gain.loads[0],
            "winner_concurrency": gain.loads[1],
            "deciding_pairs": None if gain.better else gain.deciding,
        },
        "may_be_better": None
        if higher is None
        else {
            "name": higher[0].series.deployment,
            "expected": rules.given(higher[0].expected),
            "chosen": higher[1].series.deployment,
            "than": rules.given(higher[1].expected),
            "more": rules.given(higher[0].expected - higher[1].expected),
            "command": decide or None,
        },
        "variants": [
            {
                "name": variant.name,
                "values": {key: list(words) for key, words in variant.values.items()},
                "start": variant.start,
                "concurrency": runner.proven if runner.history else None,
                "expected": _finite(rules.given(runner.reach(0.0).value)) if runner.history else None,
                "dropped": race.dropped(runner),
                "reason": runner.gone or runner.unproven,
            }
            for runner, variant in zip(race.runners, variants, strict=True)
        ],
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and 0 < value < math.inf else None
