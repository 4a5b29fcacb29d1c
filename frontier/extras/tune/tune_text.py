"""What a race shows, for people and as JSON: the table of variants, the gain in a sentence, the
line to paste.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from frontier.core.difference import in_pairs
from frontier.core.loads import setting
from frontier.core.metrics import metric
from frontier.core.points import Estimate
from frontier.core.text import capital, clean
from frontier.core.units import count
from frontier.extras.tune.gain import value_of
from frontier.extras.tune.race import Race, Runner
from frontier.extras.tune.variants import Variant
from frontier.show.table import Table, to_text
from frontier.show.verbosity import Detail
from frontier.show.wording import value_text

Outcome = Literal["better", "no better", "only", "undecided", "none"]
"""Of a race: a variant is shown to be better; none is; the baseline keeps the SLA at no load and
another does; it was cut short; no variant keeps it."""
Values = tuple[tuple[str, tuple[str, ...]], ...]
LEAST_PAIRS = 3
"""Pairs of variants that differ in one value alone, for what that value does."""


def outcome_of(race: Race) -> Outcome:
    """What a race came to."""
    if race.next_step() is not None:
        return "undecided"
    if race.gain is not None and not race.gain.better and math.isinf(race.gain.ratio.high):
        return "undecided"
    if race.gain is not None:
        return "better" if race.gain.better else "no better"
    best = race.finalist
    if best is not None and best.proven is not None:
        return "only"
    return "none" if race.baseline.proven is None else "no better"


def chosen_of(race: Race) -> Runner | None:
    """The variant to run: the other one where it is shown to be better, or alone keeps the SLA."""
    outcome = outcome_of(race)
    if outcome in ("better", "only"):
        return race.finalist
    return None if outcome == "none" else race.baseline


# ---- for people


def race_text(
    race: Race, variants: Sequence[Variant], *, detail: Detail = Detail.USUAL, width: int, colour: bool
) -> str:
    """The table of variants, what is shown, and the line to paste; where all is asked for the line
    of each variant.
    """
    table = to_text(_table(race, variants).drawn(width), width=width, colour=colour).rstrip()
    lines = [*detail.of((), [table, ""]), answer_text(race)]
    chosen = chosen_of(race)
    pasted = next((v for v in variants if chosen is not None and v.name == chosen.series.deployment), None)
    if pasted is not None and outcome_of(race) != "undecided":
        lines += ["", f"Run it with      {pasted.start or pasted.settings}"]
    does = [f"{'What it does' if i == 0 else '':<17}{line}" for i, line in enumerate(effects(race, variants))]
    starts = [f"{variant.name:<17}{variant.start or variant.settings}" for variant in variants]
    return "\n".join(detail.of(lines, does, ["", *starts]))


def _table(race: Race, variants: Sequence[Variant]) -> Table:
    name = race.rules.objective
    heads = ["variant", f"{_label(name)} inside the SLA", "at", ""]
    rows = []
    for runner, variant in zip(race.runners, variants, strict=True):
        value, at, words = _row(race, runner)
        known = "–" if value is None else value
        rows.append([variant.settings if len(variant.settings) <= 60 else variant.name, known, at, words])
    return Table.of(heads, rows, right=(1, 2))


def _row(race: Race, runner: Runner) -> tuple[str | None, str, str]:
    """What a variant gives, at which load, and how it stands."""
    reach, sign, name = runner.reach(0.0), metric(race.rules.objective).sign, race.rules.objective
    today = "what runs today" if runner is race.baseline else ""
    if runner.gone is not None:
        return None, "", "; ".join(part for part in (today, clean(runner.gone.splitlines()[0], 200)) if part)
    if not runner.history:
        return None, "", "; ".join(part for part in (today, "not measured yet") if part)
    side = runner.side()
    if side is not None:
        value = value_of(tuple(itertools.chain(*side.starts)), race.rules)
        best = race.gain is not None and race.gain.better and runner is race.finalist
        words = ", ".join(filter(None, ["proven", today, "the best" if best else ""]))
        return None if value is None else value_text(name, value.value), setting(side.concurrency), words
    if reach.edge is None:
        return None, "", "no load keeps the SLA"
    about = value_text(name, math.exp(sign * reach.value))
    if runner.final_starts:
        return f"about {about}", setting(reach.edge), "not proven"
    return f"about {about}", setting(reach.edge), "surely worse" if race.dropped(runner) else "short trials"


def answer_text(race: Race) -> str:
    """What the race shows, in a sentence or two."""
    outcome, gain, name = outcome_of(race), race.gain, race.rules.objective
    best = "" if race.finalist is None else race.finalist.series.deployment
    label = _label(name)
    if outcome == "none":
        return "No variant is proven to keep the SLA at any load."
    if outcome == "only" and race.finalist is not None:
        return f"{best} keeps the SLA at {setting(race.finalist.proven or 1)}; what runs today keeps it at no load."
    if gain is None:
        cut = "The race was cut short; " if outcome == "undecided" else ""
        seen = f"; {_would_show(race.unseen, name)}" if outcome == "no better" and 1 < race.unseen < 2 else ""
        return capital(f"{cut}no variant is shown to be better than what runs today{seen}.")
    values = f"{value_text(name, gain.winner)} against {value_text(name, gain.baseline)}, both proven"
    sure = f"Each was started anew {count(gain.pairs, 'time')}, in turn; the interval is of these starts."
    if gain.better:
        return f"{best}: {_change(gain.ratio, name)} {label} ({_interval(gain.ratio, name)}), {values}.\n{sure}"
    first = "Not decided yet" if outcome == "undecided" else "No variant is shown to be better"
    seen = f"; {_would_show(gain.ratio.high, name)}" if 1 <= gain.ratio.high < 2 and outcome != "undecided" else ""
    found = f"{_change(gain.ratio, name)} ({_interval(gain.ratio, name)}), {values}"
    return f"{first}{seen}. The best other is {best}: {found}.\n{sure}"


def _label(name: str) -> str:
    return metric(name).label.partition(" (")[0]


def _of_metric(ratio: Estimate, name: str) -> tuple[float, float, float]:
    """Value, low and high of a ratio of worths, as a ratio of the metric itself: half the cost is
    worth twice as much.
    """
    if metric(name).sign > 0:
        return ratio.value, ratio.low, ratio.high
    return 1 / ratio.value, 1 / ratio.high, 1 / ratio.low if ratio.low else math.inf


def _would_show(ratio: float, name: str) -> str:
    """What the race would have shown, where a gain of so much may be left."""
    if metric(name).sign > 0:
        return f"a gain above {ratio - 1:.0%} would have been seen"
    return f"a saving above {1 - 1 / ratio:.0%} would have been seen"


def _change(ratio: Estimate, name: str) -> str:
    """'+18%', '-3%'."""
    return f"{_of_metric(ratio, name)[0] - 1:+.0%}"


def _interval(ratio: Estimate, name: str) -> str:
    _, low, high = _of_metric(ratio, name)
    known = 0 < low <= high < math.inf
    return f"95% CI {low - 1:+.0%} to {high - 1:+.0%}" if known else "no interval yet"


def effects(race: Race, variants: Sequence[Variant]) -> list[str]:
    """What each value does against the first of its name, where at least three pairs of variants
    that differ in nothing else agree: 'budget 8192 against 2048: +6% (95% CI +2% to +10%)'.
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


def race_json(race: Race, variants: Sequence[Variant]) -> dict[str, Any]:
    """The race as one object."""
    gain, chosen, sign = race.gain, chosen_of(race), metric(race.rules.objective).sign
    value, low, high = (None, None, None) if gain is None else _of_metric(gain.ratio, race.rules.objective)
    return {
        "schema": "frontier.tune/1",
        "objective": race.rules.objective,
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
        },
        "variants": [
            {
                "name": variant.name,
                "values": {key: list(words) for key, words in variant.values.items()},
                "start": variant.start,
                "concurrency": runner.proven if runner.history else None,
                "expected": _finite(math.exp(sign * runner.reach(0.0).value)) if runner.history else None,
                "dropped": race.dropped(runner),
                "reason": runner.gone,
            }
            for runner, variant in zip(race.runners, variants, strict=True)
        ],
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and 0 < value < math.inf else None
