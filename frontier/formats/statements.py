"""Statements of figures in a file: their units and rounding, two statements of one metric, and what
follows from them.

What follows: figures that others give exactly, figures of all requests where some failed, and
contradictions.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from frontier.formats.documents import Node
from frontier.metrics import metric
from frontier.model import Flag

LONGEST = 1e7
"""Seconds; no latency is above this."""
STATISTICS = {
    "mean": "mean",
    "avg": "mean",
    "median": "p50",
    **{name: name for name in ("p50", "p75", "p80", "p90", "p95", "p98", "p99", "p99.9")},
    "p999": "p99.9",
    "p99p9": "p99.9",
}
"""Those of a latency that are imported, by the names that tools give them."""
MOST_ROUNDING = 0.05
"""Two statements of one figure that are further apart than this share differ, however coarsely they
are written."""
IDENTITY = 0.05
"""E2E may differ by this share from TTFT + (tokens - 1) x TPOT, all as means; a total as much from
its parts."""


@dataclass(frozen=True, slots=True)
class Stated:
    """A figure and the place in the file that states it. `name` is our metric, `value` in its own
    unit.

    `rounding` is half a unit of the last digit that is written there.
    """

    name: str
    value: float
    place: str
    rounding: float = 0.0

    def agrees(self, other: "Stated") -> bool:
        """Whether both are the same figure, as far as it is written."""
        if math.isinf(self.value) or math.isinf(other.value):
            return self.value == other.value
        larger = max(abs(self.value), abs(other.value))
        allowed = min(self.rounding + other.rounding, MOST_ROUNDING * larger) + 1e-9 * larger
        return abs(self.value - other.value) <= allowed

    def __str__(self) -> str:
        return f"{self.value:g}" if self.name == "concurrency" else metric(self.name).format(self.value)


def statements(node: Node, key: str, name: str, scale: float = 1.0, place: str | None = None) -> list[Stated]:
    """What `key` states of the metric `name` (or of "concurrency"); empty where it states nothing.

    A latency of exactly 0 means "not measured" and is left out; ForeignFileError for an impossible
    one.
    """
    value = node.number(key)
    latency = name != "concurrency" and metric(name).quantity is not None and not metric(name).inverted
    if value is None or (latency and value == 0):
        return []
    value *= scale
    if latency and value > LONGEST:
        raise node.error(f"{node.place(key)} is {value:.3g} s", "check that the unit is right")
    return [Stated(name, value, place or node.place(key), _rounding(node.tree.get(key)) * scale)]


def _rounding(written: object) -> float:
    try:
        exponent = Decimal(str(written).strip()).as_tuple().exponent
    except InvalidOperation:
        return 0.0
    return 0.5 * 10.0 ** min(0, exponent) if isinstance(exponent, int) else 0.0


def statistics(node: Node, quantity: str, scale: float = 1.0, name: str = "{}") -> list[Stated]:
    """The statistics of one latency below `node`, in seconds: `name` makes their keys, as
    '{}_ttft_ms'.
    """
    return [
        s
        for theirs, ours in STATISTICS.items()
        for s in statements(node, name.format(theirs), f"{ours}_{quantity}", scale)
    ]


def rates(node: Node, names: Mapping[str, str]) -> list[Stated]:
    """The rates that are stated below `node`, of their keys by our names."""
    return [s for ours, key in names.items() for s in statements(node, key, ours)]


def agreed(node: Node, stated: Iterable[Stated]) -> dict[str, float]:
    """Each figure once: of several statements that agree the one written most finely.

    ForeignFileError where two places state one metric differently: only the user can know which is
    right.
    """
    by_name: dict[str, list[Stated]] = {}
    for statement in stated:
        by_name.setdefault(statement.name, []).append(statement)
    for a, b in itertools.chain.from_iterable(itertools.combinations(several, 2) for several in by_name.values()):
        if not a.agrees(b):
            raise node.error(
                f"{a.place} says {a.name} is {a} and {b.place} says {b}", "remove or correct one of the two"
            )
    return {name: min(several, key=lambda s: s.rounding).value for name, several in by_name.items()}


def completed(figures: Mapping[str, float], tokens: float | None, osl: float | None) -> tuple[dict[str, float], str]:
    """The figures with those that follow from them exactly, and which these are in words.

    Total throughput is input plus output; requests times their observed mean `tokens` are output
    tokens. Mean TPOT follows from mean E2E and TTFT only where every answer has one length: the
    mean is the most that was asked for.
    """
    all_figures = dict(figures)
    how: list[str] = []

    def add(name: str, value: float | None, words: str) -> None:
        if name not in all_figures and value is not None and value >= 0 and math.isfinite(value):
            all_figures[name] = value
            how.append(f"{metric(name).label} is {words}")

    def get(name: str) -> float:
        return all_figures.get(name, math.nan)  # NaN, and what is computed of it, is not added

    add("total_throughput", get("input_throughput") + get("output_throughput"), "the sum of input and output")
    add("input_throughput", get("total_throughput") - get("output_throughput"), "total less output")
    add("output_throughput", get("total_throughput") - get("input_throughput"), "total less input")
    if tokens:
        add("request_throughput", get("output_throughput") / tokens, "output over the mean output length")
        add("output_throughput", get("request_throughput") * tokens, "requests times the mean output length")
    if tokens and osl and osl > 1 and abs(tokens - osl) <= 1e-3:
        add("mean_tpot", (get("mean_e2e") - get("mean_ttft")) / (osl - 1) or None, "(E2E - TTFT) / (tokens - 1)")
    return all_figures, "; ".join(how)


def with_failures(
    figures: Mapping[str, float], ok: int, failed: int | None
) -> tuple[dict[str, float], tuple[str, ...]]:
    """Figures of the successes as figures of all requests: a failure's latency is infinite; and a
    note on it.

    A percentile above the share of successes is infinite, and so is every mean. Others stay, and
    the note says that they are of the successes.
    """
    if failed is None:
        return dict(figures), ("the file does not say whether requests failed",)
    if not ok + failed:
        return dict(figures), ()
    share = failed / (ok + failed)
    if not failed:
        return {**figures, "error_rate": share}, ()
    of_all = {name: math.inf if _infinite(name, share) else value for name, value in figures.items()}
    note = f"{failed:,} of {ok + failed:,} requests failed; percentiles below the failures are of the successes"
    return of_all | {"error_rate": share}, (note,)


def _infinite(name: str, failed_share: float) -> bool:
    """Whether this latency is infinite with so many failures."""
    of = metric(name)
    return of.quantity is not None and not of.inverted and (of.p is None or failed_share > 1 - of.p + 1e-12)


def interactivity(figures: Mapping[str, float]) -> dict[str, float]:
    """Tokens per second per user at each percentile of TPOT."""
    return {
        name.replace("_tpot", "_interactivity"): 0.0 if math.isinf(value) else 1 / value
        for name, value in figures.items()
        if name.endswith("_tpot") and name.startswith("p") and value > 0
    }


def identity_flags(figures: Mapping[str, float], tokens: float | None) -> Iterator[Flag]:
    """The flag of a point whose E2E is not TTFT + (tokens - 1) x TPOT."""
    # NaN for what is not known: no comparison with it holds.
    ttft, tpot, e2e = (figures.get(f"mean_{q}", math.nan) for q in ("ttft", "tpot", "e2e"))
    if tokens and tokens > 1 and abs((total := ttft + (tokens - 1) * tpot) - e2e) > IDENTITY * e2e:
        yield Flag(
            "identity", f"TTFT + TPOT x (tokens - 1) is {total / e2e:.2f} of E2E", f"1 ±{IDENTITY:.0%}", NOT_ITS_NAME
        )


NOT_ITS_NAME = "one of these figures is not what its name says: do not compare or decide by them"
