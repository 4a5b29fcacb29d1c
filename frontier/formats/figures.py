"""Figures as a file states them: units, rounding, two statements of one metric, and sums that follow exactly."""

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from frontier.formats.documents import Node
from frontier.metrics import metric

LONGEST = 1e7
"""Seconds; no latency is above this."""
STATISTICS = ("mean", "median", "p50", "p75", "p80", "p90", "p95", "p98", "p99", "p99.9")
"""Those of a latency that are taken over; a median is our p50."""
MOST_ROUNDING = 0.05
"""Two statements of one figure that are further apart than this share differ, however coarsely they are written."""


@dataclass(frozen=True, slots=True)
class Stated:
    """A figure and the place in the file that states it. `name` is our metric, `value` in its own unit.

    `rounding` is half a unit of the last digit that is written there.
    """

    name: str
    value: float
    place: str
    rounding: float = 0.0

    def agrees(self, other: "Stated") -> bool:
        """The same figure, as far as it is written."""
        if math.isinf(self.value) or math.isinf(other.value):
            return self.value == other.value
        larger = max(abs(self.value), abs(other.value))
        allowed = min(self.rounding + other.rounding, MOST_ROUNDING * larger) + 1e-9 * larger
        return abs(self.value - other.value) <= allowed


def statements(node: Node, key: str, name: str, scale: float = 1.0, place: str | None = None) -> list[Stated]:
    """What `key` says of the metric `name`; empty where it says nothing.

    A latency of exactly 0 means "not measured" and is left out; ForeignFileError for one that cannot be.
    """
    value = node.number(key)
    latency = is_latency(name)
    if value is None or (latency and value == 0):
        return []
    value *= scale
    if latency and value > LONGEST:
        raise node.wrong(f"{node.place(key)} is {value:.3g} s", "see whether the unit is right")
    return [Stated(name, value, place or node.place(key), _rounding(node.tree.get(key)) * scale)]


def is_latency(name: str) -> bool:
    """Whether the metric is a time; other names than a metric's are not."""
    try:
        of = metric(name)
    except ValueError:
        return False
    return of.quantity is not None and not of.inverted


def _rounding(written: object) -> float:
    try:
        exponent = Decimal(str(written).strip()).as_tuple().exponent
    except InvalidOperation:
        return 0.0
    return 0.5 * 10.0 ** min(0, exponent) if isinstance(exponent, int) else 0.0


def statistics(node: Node, quantity: str, scale: float, name: str = "{}") -> list[Stated]:
    """The statistics of one latency below `node`, in seconds: `name` makes their keys, as '{}_ttft_ms'."""
    return [
        one
        for statistic in STATISTICS
        for one in statements(
            node, name.format(statistic), f"{'p50' if statistic == 'median' else statistic}_{quantity}", scale
        )
    ]


def agreed(node: Node, all_of: Iterable[Stated]) -> dict[str, float]:
    """Each figure once: of several statements that agree the one written most finely.

    ForeignFileError where two places state one metric differently: which is right, only the user can know.
    """
    found: dict[str, list[Stated]] = {}
    for one in all_of:
        found.setdefault(one.name, []).append(one)
    for name, several in found.items():
        for a, b in itertools.combinations(several, 2):
            if not a.agrees(b):
                raise node.wrong(
                    f"{a.place} says {name} is {_said(name, a.value)} and {b.place} says {_said(name, b.value)}",
                    "remove or correct one of the two",
                )
    return {name: min(several, key=lambda one: one.rounding).value for name, several in found.items()}


def _said(name: str, value: float) -> str:
    try:
        return metric(name).format(value)
    except ValueError:
        return f"{value:g}"


def completed(figures: Mapping[str, float], tokens: float | None, osl: float | None) -> tuple[dict[str, float], str]:
    """The figures with those that follow from them exactly, and which these are in words.

    Total throughput is input plus output; requests times their observed mean `tokens` are output tokens. Mean TPOT
    follows from mean E2E and TTFT only where every answer has one length: the mean is the most that was asked for.
    """
    made = dict(figures)
    said: list[str] = []

    def form(name: str, value: float | None, how: str) -> None:
        if name not in made and value is not None and value >= 0 and math.isfinite(value):
            made[name] = value
            said.append(f"{metric(name).label} is {how}")

    def total(minus: str) -> float | None:
        return made["total_throughput"] - made[minus] if {"total_throughput", minus} <= made.keys() else None

    if {"input_throughput", "output_throughput"} <= made.keys():
        form("total_throughput", made["input_throughput"] + made["output_throughput"], "the sum of input and output")
    form("input_throughput", total("output_throughput"), "total less output")
    form("output_throughput", total("input_throughput"), "total less input")
    if tokens:
        if "output_throughput" in made:
            form("request_throughput", made["output_throughput"] / tokens, "output over the mean output length")
        if "request_throughput" in made:
            form("output_throughput", made["request_throughput"] * tokens, "requests times the mean output length")
    if {"mean_ttft", "mean_e2e"} <= made.keys() and tokens and osl and osl > 1 and abs(tokens - osl) <= 1e-3:
        form("mean_tpot", (made["mean_e2e"] - made["mean_ttft"]) / (osl - 1) or None, "(E2E - TTFT) / (tokens - 1)")
    return made, "; ".join(said)
