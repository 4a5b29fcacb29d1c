"""Several frontiers of one shape in sentences: which gives the most, and by how much.

The sentences are the titles of their pictures and the first line of a comparison. They name a
winner only where `extras.compare.contest` names one.
"""

from collections.abc import Sequence
from dataclasses import replace

from frontier.core.model.loads import listed
from frontier.core.model.metrics import RATES, Unit, metric, per_gpu
from frontier.core.model.points import Estimate
from frontier.core.model.units import format_number
from frontier.core.stats.difference import INDIFFERENCE
from frontier.extras.compare.contest import Comparison, Contest, MetricDifference, Side, best_of, compare
from frontier.extras.compare.pooled import Pooled, pooled
from frontier.show.view.sla_notes import best_note, joined_names, serves_more
from frontier.show.view.wording import MANY, count, limits_text, named_value, value_text

LONGEST = 110
"""Characters of a title that names all."""
SAME_TOKENS = 0.05
"""Tokens of two sides whose lengths in characters differ by no more than this share count as alike.
"""


def contest_sentence(contests: Sequence[Contest]) -> str:
    """The title of a picture of several frontiers, with a contest for each shape: who serves most,
    or takes least. Where that differs or is not resolved, it names who is compared; the table of
    answers has the values.
    """
    names = list(dict.fromkeys(name for contest in contests for name in contest.names))
    first = contests[0]
    if "quality" in first.rules.objectives:
        return _quality_sentence(contests)
    if len(contests) == 1 and (least := _least_sentence(first)):
        return least
    if len(contests) == 1 and len(names) == 2:
        return _pair_sentence(first)
    if len(contests) > 1:
        return _same_winner(contests) or _nothing_proven(contests) or _names_sentence(names)
    return _names_sentence(names) if len(names) == 1 or not first.is_judged else _best_sentence(first)


def _same_winner(contests: Sequence[Contest]) -> str:
    """'fp8 serves 28% to 63% more than bf16 within the SLA, with each of 2 shapes'; '' unless one
    side is surely the best with every shape, and the same is the next.
    """
    found = [best_of(contest) if contest.is_judged else None for contest in contests]
    known = [one for one in found if one is not None and one.sure and one.second and not one.by_values]
    best = [one for one in known if not one.open and not one.may_give]
    pairs = {(one.name, one.others[0]) for one in best}
    if len(best) < len(contests) or len(pairs) != 1:
        return ""
    ratios = [one.rate / (one.second or 1.0) for one in best]
    ((winner, rival),) = pairs
    more = serves_more(contests[0].rules.gain, min(ratios), max(ratios))
    return f"{winner} {more} {rival} within the SLA, with each of {len(contests)} shapes"


def _nothing_proven(contests: Sequence[Contest]) -> str:
    """'Neither bf16 nor fp8 is proven within p99 TTFT ≤ 1 s, with any of 2 shapes', or ''."""
    if not all(contest.is_judged and best_of(contest) is None for contest in contests):
        return ""
    if len({(contest.names, contest.rules.limits) for contest in contests}) > 1:
        return ""
    return f"{_best_sentence(contests[0])}, with any of {len(contests)} shapes"


def _least_sentence(contest: Contest) -> str:
    """'int4 takes 0.051 J/tok within the SLA, bf16 1.9 times as much', where the axis across is a
    cost or an energy; '' unless that is resolved.
    """
    across = contest.rules.objectives[1]
    known = {side.name: estimate for side in contest.sides if (estimate := side.at_chosen(across)) is not None}
    if metric(across).needs not in ("power", "price") or len(known) < max(2, len(contest.sides)):
        return ""
    ordered = sorted(known, key=lambda name: known[name].value)
    first, last = known[ordered[0]], known[ordered[-1]]
    if not first.high < min(known[name].low for name in ordered[1:]):
        return ""
    ratio = f"{last.value / first.value:.2g}"
    return f"{ordered[0]} takes {value_text(across, first.value)} within the SLA, {ordered[-1]} {ratio} times as much"


def _quality_sentence(contests: Sequence[Contest]) -> str:
    """Which deployments are on the frontier of quality and the other axis, and which are not."""
    rules = contests[0].rules
    owned = [replace(p, deployment=side.name) for contest in contests for side in contest.sides for p in side.points]
    gpus = {side.name: side.gpus for contest in contests for side in contest.sides}
    pools = pooled(owned, rules.objectives, rules.limits, gpus)
    owners = list(dict.fromkeys(p.deployment for pool in pools for p in pool.members))
    without = "".join(f"; {owner}: {why}" for pool in pools for owner, why in pool.without.items())
    if len(pools) == 1 and len(owners) > 1 and rules.objectives[0] == "quality" and len(rules.objectives) == 2:
        return f"{_price_of_quality(pools[0], rules.objectives[1])}{without}"
    axes = " and ".join(metric(name).label for name in rules.objectives)
    return f"On the frontier of {axes}: {joined_names(owners) if owners else 'nothing'}{without}"


def _price_of_quality(pool: Pooled, name: str) -> str:
    """'fp8: 30% less cost per million output tokens than bf16, for 0.003 less quality', for the
    best owner and the next.
    """
    best = pool.members[0]
    other = next(p for p in pool.members if p.deployment != best.deployment)
    by = [per_gpu(name, pool.gpus.get(p.deployment)) for p in (best, other)]
    ratio = other.metrics[name].value / by[1] / (best.metrics[name].value / by[0])
    per = " per GPU" if max(by) > 1 else ""
    change = f"{abs(ratio - 1):.0%} {'more' if ratio > 1 else 'less'} {metric(name).label.partition(' (')[0]}{per}"
    lost = best.metrics["quality"].value - other.metrics["quality"].value
    return f"{other.deployment}: {change} than {best.deployment}, for {lost:.3g} less quality"


# --- two of one shape


def _pair_sentence(contest: Contest) -> str:
    """The difference that the verdict stands on, with what both serve within the SLA; where not
    both are proven, the side that is.
    """
    a, b = contest.names
    outcome = compare(contest)
    inside, deciding = outcome.inside_sla, outcome.deciding
    if inside is None and contest.is_judged:
        return _best_sentence(contest)
    if outcome.verdict == "invalid" and deciding is None:
        return f"{b} against {a} cannot be compared: no usable measurement"
    if deciding is None:
        return _names_sentence(contest.names)
    promise = f"within {limits_text(contest.rules.limits)}"
    where = promise if deciding.inside_sla else f"at {_load_words(deciding)}"
    best = best_of(contest) if inside else None
    clauses = "".join(f"; {name} may give more, which is not proven" for name, _ in (best.may_give if best else ()))
    if outcome.verdict not in ("better", "worse"):
        both = f"{_value(contest, deciding, 0)}, {_value(contest, deciding, 1)} ({ratio_text(deciding.ratio)})"
        values = both if _has_values(deciding) else ratio_text(deciding.ratio)
        return f"Not resolved between {a} and {b} {where}: {values}{clauses}"
    if inside and inside is not deciding:
        values = ", ".join(f"{name} {_value(contest, inside, side)}" for side, name in ((1, b), (0, a)))
        clauses = f". W{promise[1:]}: {values}{clauses}"
    return f"{_ratio_sentence(contest, deciding, where)}{clauses}"


def _ratio_sentence(contest: Contest, found: MetricDifference, where: str) -> str:
    """'fp8 serves 17% more than bf16 within p99 TTFT ≤ 500 ms: 3,355 tok/s at c=57
    against 2,865 tok/s at c=51', the better one first.
    """
    of = metric(found.metric)
    better = 1 if (found.ratio.value > 1) == of.higher_is_better else 0
    ratio = found.ratio.value if better else 1 / found.ratio.value
    first, second = contest.names[better], contest.names[1 - better]
    said = f"{first} has {format_number(ratio)}× the {of.label} of {second} {where}"
    if of.higher_is_better:
        said = f"{first} {serves_more(found.metric, ratio, ratio)} {second} {where}"
    if not _has_values(found):
        return said
    return f"{said}: {_value(contest, found, better)} against {_value(contest, found, 1 - better)}"


def _has_values(found: MetricDifference) -> bool:
    """Whether each side has a value to print: over several settings the ratio is a mean, and no
    setting has its values.
    """
    return len(found.settings) == 1


def _value(contest: Contest, found: MetricDifference, side: int) -> str:
    """'3,355 tok/s at c=57'; of the same load without that."""
    value = named_value(found.metric, (found.a, found.b)[side], _shown_per(contest))
    return f"{value} at {found.settings[0][side].label}" if found.inside_sla else value


def _shown_per(contest: Contest) -> int | None:
    """The number of GPUs by which the shown values of a difference must still be divided."""
    a, b = (side.gpus for side in contest.sides)
    if contest.per_gpu:
        return 1
    return a if a == b else None


def _load_words(found: MetricDifference) -> str:
    """'the same load (c=1, 8, 32)', 'the same load per GPU (16 settings from c=1 on)'."""
    per = "" if all(x == y for x, y in found.settings) else " per GPU"
    return f"the same load{per} ({_which(found)})"


def _which(found: MetricDifference) -> str:
    """'c=1, 8, 32', '16 settings from c=1 on'."""
    loads = [pair[0] for pair in found.settings]
    return listed(loads) if len(loads) <= MANY else f"{len(loads)} settings from {loads[0].label} on"


def ratio_text(ratio: Estimate) -> str:
    """'1.12× [1.08, 1.16]'."""
    if not ratio.has_interval:
        return f"{format_number(ratio.value)}×, no interval"
    return f"{format_number(ratio.value)}× [{format_number(ratio.low)}, {format_number(ratio.high)}]"


# --- a comparison


def difference_rows(comparison: Comparison) -> list[tuple[str, str, str]]:
    """A row for each compared metric: the ratio with its interval, and the values of A and B.

    Where there are no such values, the row names the settings.
    """
    rows = []
    for found in comparison.differences:
        a, b = (value_text(found.metric, value, _shown_per(comparison.contest)) for value in (found.a, found.b))
        where = "within the SLA" if found.inside_sla else "at the same load"
        at, of_b = (load.label for load in found.settings[0])
        values = f"{a} → {b} at {at}" if at == of_b else f"{a} at {at} → {b} at {of_b}"
        values = values if _has_values(found) else f"mean of {_which(found)}"
        rows.append((f"{metric(found.metric).label} {where}", ratio_text(found.ratio), values))
    return rows


def comparison_notes(comparison: Comparison) -> list[str]:
    """How GPUs and tokens count, and why less is resolved than could be."""
    notes = [gpus_note(comparison), *_open_notes(comparison), _token_note(comparison), *comparison.remarks]
    if comparison.verdict == "invalid":
        notes.append("Each side needs a usable point.")
    elif not comparison.differences:
        notes.append("No setting is usable on both sides: sweep both at the same concurrencies.")
    return [note for note in notes if note]


ON_VALUES = "Decided on values alone, as asked: nothing here is proven."
"""The note of a comparison by --point-estimates."""


def _open_notes(comparison: Comparison) -> list[str]:
    """Why a difference is not resolved, or not compared."""
    notes = []
    surely = [d for d in comparison.differences if not d.ratio.low <= 1 <= d.ratio.high]
    if without := [metric(d.metric).label for d in comparison.differences if not d.ratio.has_interval]:
        of = "" if len(without) == len(comparison.differences) else f" of {joined_names(list(dict.fromkeys(without)))}"
        nothing = "" if of or comparison.verdict != "not resolved" else ", so nothing is resolved"
        asked = comparison.contest.rules.point_estimates
        notes.append(ON_VALUES if asked else f"No confidence interval{of} is known for one side{nothing}.")
    elif any(abs(d.ratio.value - 1) <= INDIFFERENCE for d in surely):
        notes.append(f"A difference within {INDIFFERENCE:.0%} is less than two runs of one server can differ by.")
    notes += _between_runs_note(comparison.contest)
    if (inside := comparison.inside_sla) in surely and inside is not None and inside.verdict == "not resolved":
        less = comparison.contest.sides[0 if (inside.ratio.value > 1) == metric(inside.metric).higher_is_better else 1]
        notes += _gap_note(less, known="known" if comparison.contest.rules.point_estimates else "proven")
    if lost := sorted({*comparison.lost[0], *comparison.lost[1]}):
        notes.append(f"Usable on one side only, and not compared: {listed(lost)}.")
    return notes


def _between_runs_note(contest: Contest) -> list[str]:
    """A note that intervals are those between runs of imported values, where some are."""
    points = [point for side in contest.sides for point in side.points if contest.rules.gain in point.metrics]
    values = [(point, point.metrics[contest.rules.gain]) for point in points]
    runs = sorted({point.repeats for point, of in values if of.has_interval > of.has_bound and point.repeats > 1})
    if not runs:
        return []
    of_runs = f"{runs[0]} to {runs[-1]} runs" if runs[1:] else count(runs[0], "run")
    return [f"Values of {of_runs} a setting, not a proof: the intervals are between runs."]


def _gap_note(side: Side, known: str) -> list[str]:
    """A note where a side may serve more within the SLA than at its operating point."""
    decision = side.decision
    if decision is None or decision.last_pass is None:
        return []
    top = decision.last_pass.label
    if decision.first_fail is None:
        return [f"{side.name} may serve more within the SLA: no setting violates it, {top} is the highest that meets."]
    return [f"{side.name} may serve more within the SLA: nothing is {known} from {top} to {decision.first_fail.label}."]


def _token_note(comparison: Comparison) -> str:
    """A warning that a token holds different amounts of text on the two sides; '' where it does
    not.
    """
    a, b = (side.characters_per_token for side in comparison.contest.sides)
    if a is None or b is None or abs(b / a - 1) <= SAME_TOKENS:
        return ""
    of_tokens = (d for d in comparison.differences if metric(d.metric).unit is Unit.TOKENS_PER_SECOND)
    ratio = next((d.ratio.value for d in of_tokens), None)
    counted = f" In characters per second the ratio of {ratio:.3g} is {ratio * b / a:.3g}." if ratio else ""
    names = comparison.contest.names
    lengths = f"those of {names[0]} have {a:.3g} characters on average, those of {names[1]} {b:.3g}"
    return f"Tokens differ: {lengths} (another tokenizer, or other text).{counted}"


def gpus_note(comparison: Comparison) -> str | None:
    """How the GPUs of both sides count: rates are divided by them, or why not; None where nothing
    needs saying. For divided rates it also gives the whole deployments' ratio, which is the ratio
    times their GPUs.
    """
    (a, b), (of_a, of_b) = comparison.contest.names, (side.gpus for side in comparison.contest.sides)
    if comparison.contest.per_gpu:
        rates = [d for d in comparison.differences if metric(d.metric).unit in RATES]
        times = rates[0].ratio.value * (of_b or 0) / (of_a or 1) if rates else None
        whole = "" if times is None else f" As whole deployments {b} is {format_number(times)}× {a}."
        return f"Per GPU: {a} has {count(of_a or 0, 'GPU')}, {b} {of_b}.{whole}"
    if of_a == of_b or not any(metric(name).unit in RATES for name in comparison.contest.rules.objectives):
        return None
    known, unknown, side = (a, b, "b") if of_b is None else (b, a, "a")
    return (
        f"Whole deployments, not per GPU: {known} has {count(of_a or of_b or 0, 'GPU')}, that of {unknown} "
        f"is not known; give it with  --set-{side} gpus=N."
    )


# --- any number


def _best_sentence(contest: Contest) -> str:
    """The deployment that gives the most within the SLA, as far as it is proven, in the words of
    `frontier solve`.
    """
    best = best_of(contest)
    if best is not None:
        return best_note(best, contest.rules.gain).removesuffix(".")
    names = f"None of {joined_names(contest.names)}"
    if len(contest.names) == 2:
        names = f"Neither {joined_names(contest.names, 'nor')}"
    return f"{names} is{'' if contest.rules.point_estimates else ' proven'} within {limits_text(contest.rules.limits)}"


def _names_sentence(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"The frontier of {names[0]}"
    sentence = f"The frontiers of {joined_names(names)}"
    return sentence if len(sentence) <= LONGEST else f"The frontiers of {len(names)} deployments"
