"""The result of a hold, in words and as JSON (`frontier verify --for`)."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.text import Text

from frontier.core.model.decisions import Verdict
from frontier.core.model.loads import NO_LOAD
from frontier.core.model.metrics import metric
from frontier.core.model.text import capital
from frontier.core.model.units import count, format_elapsed, format_share
from frontier.extras.verify.soak import Held, OverLimitShare
from frontier.extras.verify.soak_watch import LatencyGrowth
from frontier.extras.verify.soak_windows import Kept, allowed
from frontier.show.table import Table, to_text
from frontier.show.verbosity import Detail
from frontier.show.view.rough import date_text
from frontier.show.view.wording import load_words, value_text

HOLD_SCHEMA = "frontier.hold/1"
HEADS: Mapping[Verdict, str] = {
    Verdict.MEETS: "keeps the SLA",
    Verdict.VIOLATES: "does not keep the SLA",
    Verdict.UNPROVEN: "is too close to a limit for what was measured",
    Verdict.INVALID: "could not be judged: no window counts",
}
WORDS: Mapping[Verdict, str] = {
    Verdict.MEETS: "kept",
    Verdict.VIOLATES: "broken",
    Verdict.UNPROVEN: "not proven",
    Verdict.INVALID: "",
}


def hold_text(held: Held, *, again: str, width: int, detail: Detail = Detail.USUAL) -> str:
    """Whether it held: the requests over each limit, in all and in the worst hour; what has grown,
    since when, and how sure that is. Where all is asked for, also each window.
    """
    decision = held.plan.decision
    requests = sum(w.n for w in held.windows if not w.excluded)
    verdict = HEADS[held.verdict]
    if held.another and held.verdict is Verdict.INVALID:
        verdict = f"could not be judged: another server answered in {held.another} of {len(held.windows)} windows"
    head = f"{capital(load_words(decision.load or NO_LOAD, decision.shape))} {verdict}: {count(requests, 'request')}"
    head += f" in {format_elapsed(held.seconds)}, {count(len(held.windows), 'window')}"
    rows = [_row(share) for share in held.shares]
    table = Table.of(("", "over it", "at most (95%)", "allowed", "worst hour", "from", ""), rows, right=(1, 2, 3, 4))
    answer = [to_text(Text(head, style="bold"), table.drawn(width), width=width), *growth_texts(held)]
    lines = []
    if not held.growths and held.watches:
        lines.append(_nothing_grew(held))
    if not math.isinf(held.minutes_to_see):
        minutes = format_elapsed(60 * held.minutes_to_see)
        lines.append(f"Confidence  +10% would be known within about {minutes}; a steady server is called changed once")
        lines.append(f"{'':<12}a month at most.")
    left_out = dict.fromkeys(w.excluded for w in held.windows if w.excluded)
    if left_out:
        without = count(sum(bool(w.excluded) for w in held.windows), "window")
        lines.append(f"Left out    {without}: {'; '.join(left_out)}")
    if not held.over:
        left = format_elapsed(held.plan.duration - held.seconds)
        lines.append(f"{left} are left. To go on:\n  {again}")
    return "\n".join(detail.of(answer, lines, ("   ".join(_window(window)) for window in held.windows)))


def _nothing_grew(held: Held) -> str:
    """That no growth was seen, with the least one that could have been."""
    if held.least_growth is None:
        return f"Too short to see whether a latency grows: {count(len(held.windows), 'window')}."
    return f"No latency was seen to grow; growth by {held.least_growth - 1:.0%} from the beginning would have been."


def _row(share: OverLimitShare) -> list[str]:
    return [
        str(share.limit),
        format_share(share.value),
        format_share(share.upper),
        format_share(allowed(share.limit)),
        format_share(share.worst),
        date_text(share.worst_at),
        WORDS[share.verdict],
    ]


def growth_texts(held: Held) -> list[str]:
    """A line for each latency that has grown. The usual request is named where the percentile was
    not seen to grow.
    """
    tails = {what for what, _ in held.growths if ", " not in what}
    return [growth_text(what, g) for what, g in held.growths if what in tails or what.partition(", ")[0] not in tails]


def growth_text(what: str, growth: LatencyGrowth) -> str:
    """'p95 TPOT has grown by 15% since 2026-11-22 04:12 (known at 04:15)'."""
    name, _, usual = what.partition(", ")
    label = metric(name).label
    label = f"{label.partition(' ')[2]} of a {usual}" if usual else label
    seen = date_text(growth.seen).rpartition(" ")[2]
    return f"{label} has grown by {growth.times - 1:.0%} since {date_text(growth.since)} (known at {seen} UTC)."


def hold_json(held: Held) -> dict[str, Any]:
    """The answer of `frontier verify --for --json`."""
    decision = held.plan.decision
    return {
        "schema": HOLD_SCHEMA,
        "deployment": decision.deployment,
        "shape": decision.shape.label,
        "concurrency": decision.load,
        "verdict": held.verdict.value,
        "seconds": held.seconds,
        "asked_seconds": held.plan.duration,
        "windows": len(held.windows),
        "excluded": sum(bool(w.excluded) for w in held.windows),
        "another_server": held.another,
        "requests": sum(w.n for w in held.windows if not w.excluded),
        "limits": [_share_json(share) for share in held.shares],
        "growths": [{"of": what, **asdict(growth)} for what, growth in held.growths],
        "least_growth": held.least_growth,
        "minutes_to_see_10_percent": None if math.isinf(held.minutes_to_see) else held.minutes_to_see,
    }


def _share_json(share: OverLimitShare) -> dict[str, Any]:
    names = ("value", "lower", "upper", "worst", "worst_at")
    tree = {name: getattr(share, name) for name in names}
    return {"metric": share.limit.metric, "limit": share.limit.promise, "allowed": allowed(share.limit)} | tree


def window_text(held: Held) -> str:
    """The last window, for a log: '04:12  2 h 0 min held   p95 TPOT 16.1 ms'."""
    date, *values = _window(held.windows[-1])
    return "   ".join([f"{date}  {format_elapsed(held.seconds)} held", *values])


def _window(window: Kept) -> list[str]:
    """When a window ended, its values, and why it does not count, if so."""
    values = (f"{metric(n).label} {value_text(n, value)}" for n, value in window.values.items() if value is not None)
    return [date_text(window.ended), *values, *([window.excluded] if window.excluded else [])]
