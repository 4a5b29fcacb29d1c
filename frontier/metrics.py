"""The metrics a point has: their names, units, which way is better, and how a name is read.

A latency metric is a statistic of a per-request quantity: `p99_ttft`, `p50_tpot`, `p99.9_e2e`, `mean_itl`.
`p99_interactivity` is the speed at least 99 % of requests get: the percentile of TPOT is taken first, then inverted.
The rest are rates (`output_throughput`), shares (`error_rate`), and what they come to with a price (`cost`) or a power
(`energy`, `tokens_per_joule`).
"""

import difflib
import math
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from frontier.model import Shape
from frontier.units import format_number, format_seconds, format_share


class Unit(StrEnum):
    """What a metric's number counts."""

    SECONDS = "s"
    TOKENS_PER_SECOND = "tok/s"
    REQUESTS_PER_SECOND = "req/s"
    SHARE = "share"
    TOKENS_PER_SECOND_PER_USER = "tok/s/user"
    DOLLARS_PER_MILLION_TOKENS = "$/Mtok"
    JOULES_PER_TOKEN = "J/tok"  # noqa: S105
    TOKENS_PER_JOULE = "tok/J"


Better = Literal["lower", "higher"]

LATENCIES = {
    "ttft": "time to first token",
    "tpot": "time per output token",
    "itl": "gap between chunks",
    "e2e": "end-to-end latency",
}
_PLAIN: dict[str, tuple[Unit, Better, str]] = {
    "output_throughput": (Unit.TOKENS_PER_SECOND, "higher", "output throughput"),
    "input_throughput": (Unit.TOKENS_PER_SECOND, "higher", "input throughput"),
    "total_throughput": (Unit.TOKENS_PER_SECOND, "higher", "input + output throughput"),
    "request_throughput": (Unit.REQUESTS_PER_SECOND, "higher", "request throughput"),
    "goodput": (Unit.REQUESTS_PER_SECOND, "higher", "goodput (requests within every limit)"),
    "attainment": (Unit.SHARE, "higher", "share of requests within every limit"),
    "error_rate": (Unit.SHARE, "lower", "error rate"),
    "cost": (Unit.DOLLARS_PER_MILLION_TOKENS, "lower", "cost per million output tokens"),
    "energy": (Unit.JOULES_PER_TOKEN, "lower", "energy per output token"),
    "tokens_per_joule": (Unit.TOKENS_PER_JOULE, "higher", "output tokens per joule"),
}
ENERGY = ("energy", "tokens_per_joule")
"""What needs a power, measured or stated."""
_STATISTIC = re.compile(r"(mean|p(?:[1-9]\d?(?:\.\d{1,2})?))_(ttft|tpot|itl|e2e|interactivity)")

DEFAULT_METRICS = (
    *(f"{s}_{q}" for q in ("ttft", "tpot", "itl", "e2e") for s in ("mean", "p50", "p90", "p95", "p99")),
    "p50_interactivity", "output_throughput", "input_throughput", "total_throughput",
    "request_throughput", "error_rate",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `quantity` is ttft/tpot/itl/e2e or None; `p` is the percentile as a share, None for mean or rates."""

    name: str
    unit: Unit
    better: Better
    label: str
    quantity: str | None = None
    p: float | None = None
    inverted: bool = False

    @property
    def is_mean(self) -> bool:
        """A mean of a per-request quantity (never to be shown as a percentile)."""
        return self.quantity is not None and self.p is None

    def format(self, value: float | None) -> str:
        """The value with its unit, as a person reads it."""
        if self.unit is Unit.SECONDS:
            return format_seconds(value)
        if self.unit is Unit.SHARE:
            return format_share(value)
        if self.unit is Unit.DOLLARS_PER_MILLION_TOKENS:
            return f"${format_number(value)}/Mtok"
        return f"{format_number(value)} {self.unit.value}"


def metric(name: str) -> Metric:
    """The metric called `name`. ValueError with a did-you-mean when there is none.

    >>> metric("p99_ttft").p
    0.99
    """
    if name in _PLAIN:
        unit, better, label = _PLAIN[name]
        return Metric(name, unit, better, label)
    found = _STATISTIC.fullmatch(name)
    if found is None:
        raise ValueError(f"unknown metric {name!r}; {_hint(name)}")
    statistic, quantity = found[1], found[2]
    p = None if statistic == "mean" else round(float(statistic[1:]) / 100, 6)
    if quantity == "interactivity":
        if p is None:
            raise ValueError("mean_interactivity is not defined; ask for p50_interactivity")
        label = f"{statistic} interactivity"
        return Metric(name, Unit.TOKENS_PER_SECOND_PER_USER, "higher", label, "tpot", p, inverted=True)
    return Metric(name, Unit.SECONDS, "lower", f"{statistic} {quantity.upper()}", quantity, p)


def undefined(name: str, shape: Shape) -> bool:
    """No request of this shape has such a value: what is between tokens, where every answer has one.

    >>> undefined("p99_tpot", Shape.of(1024, 1)), undefined("p99_ttft", Shape.of(1024, 1))
    (True, False)
    """
    return metric(name).quantity in ("tpot", "itl") and shape.osl.high <= 1


_QUANTITY = r"(?:ttft|tpot|itl|e2e|interactivity)"
_NUMBERED = (
    re.compile(rf"p?(\d+(?:\.\d+)?)[ _-]?({_QUANTITY})(?:_m?s)?"),
    re.compile(rf"({_QUANTITY})(?:_m?s)?[ _-]?p?(\d+(?:\.\d+)?)"),
)
_OTHER_NAMES = {
    "latency": "e2e", "e2el": "e2e", "e2e_latency": "e2e", "request_latency": "e2e", "inter_token_latency": "itl",
    "time_to_first_token": "ttft", "time_per_output_token": "tpot", "median": "p50", "avg": "mean", "average": "mean",
}  # fmt: skip
_WHOLE_NAMES = {
    **dict.fromkeys(("throughput", "tokens_per_second", "tps", "tok_s", "output_tps"), "output_throughput"),
    **dict.fromkeys(("requests_per_second", "rps", "qps", "request_rate"), "request_throughput"),
    **dict.fromkeys(("errors", "failures", "failure_rate"), "error_rate"), "price": "cost", "power": "energy",
}  # fmt: skip
"""What other tools call them."""


def _percentiles(quantity: str) -> str:
    mean = "" if quantity == "interactivity" else f", or mean_{quantity}"
    named = ", ".join(f"p{p}_{quantity}" for p in ("50", "90", "95", "99", "99.9"))
    return f"a percentile is p1 to p99.99: {named}{mean}"


def _hint(name: str) -> str:
    """What is meant by a name that is no metric's: a statistic written otherwise, one that there is not, or a slip."""
    plain = name.lower()
    if plain in _WHOLE_NAMES:
        return f"did you mean {_WHOLE_NAMES[plain]!r}?"
    for other, ours in sorted(_OTHER_NAMES.items(), key=lambda pair: -len(pair[0])):
        plain = re.sub(rf"(?<![a-z]){other}(?![a-z])", ours, plain.replace("-", "_").replace("_" + other, "_" + ours))
    for pattern in _NUMBERED:
        if found := pattern.fullmatch(plain):
            number, quantity = sorted(found.groups(), key=lambda part: not part[0].isdigit())
            close = f"p{float(number):g}_{quantity}"
            if _STATISTIC.fullmatch(close):
                return f"did you mean {close!r}?"
            return _percentiles(quantity)
    if found := re.fullmatch(rf"((?:max|min|std)_)?({_QUANTITY})(?:_m?s)?", plain):
        usual = f"p50_{found[2]}" if found[2] == "interactivity" else f"p99_{found[2]}"
        return _percentiles(found[2]) if found[1] else f"did you mean {usual!r}?"
    if re.fullmatch(r"p\d+(\.\d+)?|mean", plain):
        return f"of what? {plain}_ttft, {plain}_tpot, {plain}_itl or {plain}_e2e"
    turned = re.sub(rf"^({_QUANTITY})_(mean|p\d+(?:\.\d+)?)$", r"\2_\1", plain)
    if turned in _PLAIN or _STATISTIC.fullmatch(turned):
        return f"did you mean {turned!r}?"
    close_ones = difflib.get_close_matches(plain, [*_PLAIN, *DEFAULT_METRICS], n=1, cutoff=0.6)
    if close_ones:
        return f"did you mean {close_ones[0]!r}?"
    return "known: p99_ttft, p50_tpot, p95_itl, p99_e2e, " + ", ".join(_PLAIN)


RATES = (Unit.TOKENS_PER_SECOND, Unit.REQUESTS_PER_SECOND)
"""The units of what more GPUs do more of."""


def per_gpu(name: str, gpus: int | None) -> float:
    """What a metric is divided by: the number of GPUs for rates, when it was given."""
    return float(gpus) if gpus and metric(name).unit in RATES else 1.0


WINDOW_IN_E2E = 20
"""A tail is claimed from a window of this many mean E2E: in closed loop that is n >= 20 N."""


def claim_floor(p: float, concurrency: int = 0) -> int:
    """Fewest requests before a claim about percentile `p` is made at all, however clean they look.

    p50: 30, p95: 200, p99: 1000, p99.9: 10,000. Clustered stalls make a run that saw no cluster look perfect, which
    the order-statistic minimum alone (`fewest_to_bound`) cannot know. For a tail (above p95) also WINDOW_IN_E2E
    requests per slot of the concurrency, so that each of twenty time blocks outlasts a request.
    """
    least = 10_000
    for most, floor in ((0.5, 30), (0.9, 100), (0.95, 200), (0.99, 1000)):
        if p <= most:
            least = floor
            break
    return max(least, WINDOW_IN_E2E * concurrency if p > 0.95 else 0)


def fewest_to_bound(p: float, confidence: float = 0.95) -> int:
    """Fewest independent requests whose largest value bounds percentile `p` from above: 59 for p95, 299 for p99.

    The largest of n exceeds the percentile with chance 1 - p^n (order statistics).
    """
    return math.ceil(math.log(1 - confidence) / math.log(p))


def names() -> list[str]:
    """The names a person is likely to type, for completion; others, as p99.9_ttft, exist too."""
    more = (f"{s}_interactivity" for s in ("p90", "p95", "p99"))
    return sorted({*_PLAIN, *DEFAULT_METRICS, *more})
