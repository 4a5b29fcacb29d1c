"""Metrics: their names, units, directions (lower or higher is better), and the parsing of a
metric's name.

A latency metric is a statistic of a per-request quantity: `p99_ttft`, `p50_tpot`, `p99.9_e2e`,
`mean_itl`. `p99_interactivity` is the speed at least 99% of requests get: the percentile of TPOT
is taken first, then inverted. `p99_visible` and `p99_second` are when a reader sees the first
visible and the second token (`core.window.reading_speed`). Each may be for a class of requests.
`later.p99_ttft` is for the turns of sessions after the first, `chat.p99_ttft` for the class chat of
a mix. `agent.later.p99_ttft` is for the later turns of its class agent. The rest are rates
(`output_throughput`), shares (`error_rate`, `smooth`), and what follows from a throughput and a
price (`cost`) or a power (`energy`). `quality` is a score of the deployment, the same at each of
its settings; `agreement` is how alike its answers at a setting are to those that it gives alone.
"""

import functools
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Literal

from frontier.core.model.text import did_you_mean
from frontier.core.model.units import format_number, format_seconds, format_share, trimmed


class Unit(StrEnum):
    """The unit of a metric's number."""

    SECONDS = "s"
    TOKENS_PER_SECOND = "tok/s"
    REQUESTS_PER_SECOND = "req/s"
    SHARE = "share"
    TOKENS_PER_SECOND_PER_USER = "tok/s/user"
    DOLLARS_PER_MILLION_TOKENS = "$/Mtok"
    JOULES_PER_TOKEN = "J/tok"  # noqa: S105
    SCORE = "score"


Better = Literal["lower", "higher"]

LATENCIES = {
    "ttft": "time to first token",
    "tpot": "time per output token",
    "itl": "gap between chunks",
    "e2e": "end-to-end latency",
    "visible": "time to first visible token",
    "second": "time to second token",
}
_SHORT = {"visible": "first visible token", "second": "second token"}
"""What is written for a quantity that is no abbreviation."""
READING_SPEED = 6.5
"""Tokens per second of a fast reader: 300 words a minute, the upper end of most adults reading
English in silence (Brysbaert, "How many words do we read per minute?", 2019), at 1.3 tokens a word.
"""
_PLAIN: dict[str, tuple[Unit, Better, str]] = {
    "output_throughput": (Unit.TOKENS_PER_SECOND, "higher", "output throughput"),
    "input_throughput": (Unit.TOKENS_PER_SECOND, "higher", "input throughput"),
    "total_throughput": (Unit.TOKENS_PER_SECOND, "higher", "input + output throughput"),
    "request_throughput": (Unit.REQUESTS_PER_SECOND, "higher", "request throughput"),
    "background_throughput": (Unit.TOKENS_PER_SECOND, "higher", "output throughput of the background"),
    "goodput": (Unit.REQUESTS_PER_SECOND, "higher", "goodput (requests within every limit)"),
    "attainment": (Unit.SHARE, "higher", "share of requests within every limit"),
    "error_rate": (Unit.SHARE, "lower", "error rate"),
    "smooth": (Unit.SHARE, "higher", f"smooth answers (at {READING_SPEED} tok/s)"),
    "cached_share": (Unit.SHARE, "higher", "prompt tokens from the prefix cache"),
    "cost": (Unit.DOLLARS_PER_MILLION_TOKENS, "lower", "cost per million output tokens"),
    "energy": (Unit.JOULES_PER_TOKEN, "lower", "energy per output token"),
    "quality": (Unit.SCORE, "higher", "quality"),
    "agreement": (Unit.SHARE, "higher", "agreement with c=1"),
    "max_ttft": (Unit.SECONDS, "lower", "max TTFT"),
    "max_e2e": (Unit.SECONDS, "lower", "max E2E"),
    "min_interactivity": (Unit.TOKENS_PER_SECOND_PER_USER, "higher", "min interactivity"),
}
EXTREMES = {"max_ttft": "p99_ttft", "max_e2e": "p99_e2e", "min_interactivity": "p99_interactivity"}
"""Metrics that are the worst of the requests sent, and the percentile that is limited in their
place: the worst of some requests bounds no later request."""
NEEDS = {
    "goodput": "limits",
    "attainment": "limits",
    "cost": "price",
    "energy": "power",
    "quality": "quality",
    "agreement": "agreement",
    "background_throughput": "background",
}
"""What a metric needs, beside requests, to have a value: limits on latency, the deployment's price
or power, a quality that is stated or measured, answers under load, or a background."""
APART = ("quality", "agreement")
"""Metrics that are measured apart from a sweep's requests: more of those decide nothing."""
OfRequests = Callable[[Any], Any]
"""A function of window data (`core.window.window.WindowData`): an array of truth values, True for
each request that counts; None where the data do not tell."""
_COUNTS: dict[str, OfRequests] = {
    "error_rate": lambda window: ~window.ok,
    "smooth": lambda window: window.stays_ahead(READING_SPEED),
}
"""The requests that each share counts. A line here and one in `_PLAIN` make a metric: its intervals
and bounds follow (CONTRIBUTING)."""
_QUANTITY = rf"(?:{'|'.join((*LATENCIES, 'interactivity'))})"
_STATISTIC = re.compile(rf"(mean|p(?:[1-9]\d?(?:\.\d{{1,2}})?))_({_QUANTITY})")
TURN_CLASSES = ("first", "later")
"""The classes of the requests of a session."""
CLASS_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")
"""The name of a class of a mix."""
_TURN = "|".join(TURN_CLASSES)
_OF_CLASS = re.compile(
    rf"((?!(?:{_TURN})\.(?:{_TURN})\.){CLASS_NAME.pattern}(?:\.(?:{_TURN}))?)\.({_STATISTIC.pattern})"
)

DEFAULT_METRICS = (
    *(f"{s}_{q}" for q in ("ttft", "tpot", "itl", "e2e") for s in ("mean", "p50", "p90", "p95", "p99")),
    "p50_interactivity",
    "output_throughput",
    "input_throughput",
    "total_throughput",
    "request_throughput",
    "error_rate",
    *EXTREMES,
)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `quantity` is one of LATENCIES or None; `p` is the percentile as a share, None
    for mean or rates.

    `group` is its class of requests, as the later turns of sessions; None: all requests. `counts`
    is, for a share, the function that marks the requests that count. `needs` is what the metric
    needs beside requests (NEEDS). How it is estimated and drawn is in `core.estimates.sources`.
    """

    name: str
    unit: Unit
    better: Better
    label: str
    quantity: str | None = None
    p: float | None = None
    inverted: bool = False
    group: str | None = None
    counts: OfRequests | None = None
    needs: str = ""

    @property
    def is_mean(self) -> bool:
        """Whether it is the mean of a per-request quantity (never to be shown as a percentile)."""
        return self.quantity is not None and self.p is None

    @property
    def higher_is_better(self) -> bool:
        """Whether a higher value is the better one."""
        return self.better == "higher"

    @property
    def sign(self) -> float:
        """1.0 when higher is better, else -1.0. A better value has a larger `sign * value`."""
        return 1.0 if self.better == "higher" else -1.0

    @property
    def worst_possible(self) -> float:
        """The worst value that there can be: inf when lower is better, else -inf."""
        return -self.sign * math.inf

    def improves(self, a: float, b: float) -> bool:
        """Whether `a` is strictly better than `b`; False when either is nan."""
        return a > b if self.better == "higher" else a < b

    def best(self, values: Iterable[float]) -> float:
        """The best of the values. ValueError without any."""
        return max(values) if self.better == "higher" else min(values)

    def worst(self, values: Iterable[float]) -> float:
        """The worst of the values. ValueError without any."""
        return min(values) if self.better == "higher" else max(values)

    def worsening(self, before: float, after: float) -> float:
        """The factor by which a positive value got worse: 2.0 for a latency that doubled or a rate
        that halved.
        """
        return before / after if self.better == "higher" else after / before

    def format(self, value: float | None, spelled: Callable[[str], str] = str) -> str:
        """The value with its unit and three digits: '396 ms', '1.50 s', '2,850 tok/s', '0.2%'."""
        if self.unit is Unit.DOLLARS_PER_MILLION_TOKENS:
            return f"${spelled(format_number(value))}/Mtok"
        if self.unit is Unit.SECONDS:
            number, sign, unit = format_seconds(value).partition(" ")
        elif self.unit is Unit.SHARE:
            number, sign, unit = format_share(value).partition("%")
        elif self.unit is Unit.SCORE:
            number, sign, unit = "–" if value is None else f"{value:.4g}", "", ""
        else:
            number, sign, unit = format_number(value), " ", self.unit.value
        return f"{spelled(number)}{sign}{unit}"

    def format_trimmed(self, value: float) -> str:
        """The value with its unit and no trailing zeros, as limits are written: '500 ms', '1.5 s',
        '1%'.
        """
        return self.format(value, trimmed)


def short(quantity: str) -> str:
    """The name of a per-request quantity where there is little room: 'TTFT', 'first visible
    token'.
    """
    return _SHORT.get(quantity, quantity.upper())


@functools.lru_cache(maxsize=1024)
def metric(name: str) -> Metric:
    """The metric called `name`. ValueError with a did-you-mean when there is none.

    >>> metric("p99_ttft").p
    0.99
    """
    if name in _PLAIN:
        unit, better, label = _PLAIN[name]
        return Metric(name, unit, better, label, counts=_COUNTS.get(name), needs=NEEDS.get(name, ""))
    if of_class := _OF_CLASS.fullmatch(name):
        whole = metric(of_class[2])
        if whole.quantity == "itl":
            raise ValueError(f"{name} is not known: gaps between chunks are not kept by class; ask for {name[:-3]}tpot")
        return replace(whole, name=name, label=f"{whole.label} of {_class_words(of_class[1])}", group=of_class[1])
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
    return Metric(name, Unit.SECONDS, "lower", f"{statistic} {short(quantity)}", quantity, p)


def _class_words(group: str) -> str:
    """A class in words: `later turns`, `chat`, `later turns of agent`."""
    name, _, turns = group.rpartition(".")
    if turns not in TURN_CLASSES:
        return group
    return f"{turns} turns of {name}" if name else f"{turns} turns"


_NUMBERED = (
    re.compile(rf"p?(\d+(?:\.\d+)?)[ _-]?({_QUANTITY})(?:_m?s)?"),
    re.compile(rf"({_QUANTITY})(?:_m?s)?[ _-]?p?(\d+(?:\.\d+)?)"),
)
_OTHER_NAMES = {
    "latency": "e2e",
    "e2el": "e2e",
    "e2e_latency": "e2e",
    "request_latency": "e2e",
    "inter_token_latency": "itl",
    "time_to_first_token": "ttft",
    "time_per_output_token": "tpot",
    "median": "p50",
    "avg": "mean",
    "average": "mean",
}
_WHOLE_NAMES = {
    **dict.fromkeys(("throughput", "tokens_per_second", "tps", "tok_s", "output_tps"), "output_throughput"),
    **dict.fromkeys(("requests_per_second", "rps", "qps", "request_rate"), "request_throughput"),
    **dict.fromkeys(("errors", "failures", "failure_rate"), "error_rate"),
    "price": "cost",
    "power": "energy",
    "tokens_per_joule": "energy",
}
"""Names that other tools give to these metrics."""


def _percentiles(quantity: str) -> str:
    mean = "" if quantity == "interactivity" else f", or mean_{quantity}"
    named = ", ".join(f"p{p}_{quantity}" for p in ("50", "90", "95", "99", "99.9"))
    return f"a percentile is p1 to p99.99: {named}{mean}"


def _hint(name: str) -> str:
    """The hint for an unknown name: the metric that it spells otherwise, the closest one, or a list
    of the metrics.
    """
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
    likely = did_you_mean(plain, names())
    return likely or "known: p99_ttft, p50_tpot, p95_itl, p99_e2e, " + ", ".join(_PLAIN)


RATES = (Unit.TOKENS_PER_SECOND, Unit.REQUESTS_PER_SECOND)
"""The units of metrics that grow with the number of GPUs."""


def per_gpu(name: str, gpus: int | None) -> float:
    """The divisor of a metric shown per GPU: the number of GPUs for rates, when it was given, else
    1.
    """
    return float(gpus) if gpus and metric(name).unit in RATES else 1.0


WINDOW_IN_E2E = 20
"""A tail is claimed from a window of this many mean E2E: in closed loop that is n >= 20 N."""


def claim_floor(p: float, concurrency: int = 0) -> int:
    """The fewest requests with which a claim about percentile `p` is made, whatever their values.

    p50: 30, p95: 200, p99: 1000, p99.9: 10,000. Stalls come in clusters; a run that saw no cluster
    looks perfect, which the order-statistic minimum alone (`fewest_to_bound`) cannot detect. A tail
    (above p95) also needs WINDOW_IN_E2E requests per unit of concurrency, so that each of twenty
    time blocks is longer than a request.
    """
    floors = ((0.5, 30), (0.9, 100), (0.95, 200), (0.99, 1000))
    least = next((floor for most, floor in floors if p <= most), 10_000)
    return max(least, WINDOW_IN_E2E * concurrency if p > 0.95 else 0)


def fewest_to_bound(p: float) -> int:
    """The fewest independent requests whose largest value bounds percentile `p` at 95%: 59 for
    p95, 299 for p99.

    The largest of n exceeds the percentile with chance 1 - p^n (order statistics).
    """
    return math.ceil(math.log(0.05) / math.log(p))


def names() -> list[str]:
    """Metric names for shell completion: the usual ones; others, such as p99.9_ttft, exist too."""
    more = (f"{s}_{q}" for q in ("interactivity", "visible", "second") for s in ("p90", "p95", "p99"))
    return sorted({*_PLAIN, *DEFAULT_METRICS, *more})
