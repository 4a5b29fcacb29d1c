"""Results of an importer: figures by our metric names in SI units, their load, and their requests
where known.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from frontier.core.model.loads import POISSON, Arrivals
from frontier.core.model.metrics import metric
from frontier.core.model.points import Flag
from frontier.core.model.trials import Outcome, Record
from frontier.extras.exchange.column_heads import RATES, SECONDS
from frontier.store.documents import ForeignFileError, Node, foreign_text

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
"""The statistics of a latency that are imported, by the tools' names; a later one of two replaces
an earlier one."""
LONGEST_NAME = 400
"""The characters of a model's or deployment's name that are read: as many as a config accepts."""
UNDER_RATE = 0.05
"""The share below the requested rate at which an open loop did not make its load."""
OVER_RATE = 1.25
"""An open loop that made more than this many times its rate had another load than it says."""
_MOST = 1e18
"""The most microseconds: beyond any import, and still an integer of numpy."""

TokenLengths = tuple[float | None, float | None]
"""Input and output tokens, None where the file has none."""
NO_LENGTHS: TokenLengths = (None, None)


@dataclass(frozen=True, slots=True)
class Result:
    """One operating point as a file states it.

    - `figures`: by our metric names, over the requests that succeeded.
    - `failed`: the number of failed requests; None where the file does not give it.
    - `asked`: the lengths asked for. `came`: the mean lengths observed.
    - `deployment`: the name that the file gives the deployment; None: it is called by its model.
    - `rate`: the rate that an open loop asked for, in requests/s.
    - `arrivals`: how an open loop's requests came, where the file says so.
    - `facts`: how the model is served, by the file's keys. Those that differ name the deployment.
    - `place`: where in the file the result stands; empty for the whole file.
    - `records`: its requests, where the file has all of them with the times that full statistics
      need. Times count from the first send. A concurrency of 0 is then to be found from them.
    - `command`: the tool's own command for more of them, with {concurrency} and {requests} in it,
      and capitals for what the file does not state.
    - `epoch`: the first send as unix time; 0 where the tool did not keep it.
    """

    concurrency: int
    figures: Mapping[str, float]
    ok: int
    failed: int | None = None
    asked: TokenLengths = NO_LENGTHS
    came: TokenLengths = NO_LENGTHS
    deployment: str | None = None
    model: str | None = None
    gpus: int | None = None
    rate: float | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    flags: tuple[Flag, ...] = ()
    notes: tuple[str, ...] = ()
    place: str = ""
    records: Sequence[Record] = ()
    epoch: float = 0.0
    arrivals: Arrivals = POISSON
    command: str | None = None

    def error(self, file: str, what: str, hint: str) -> ForeignFileError:
        """The error about this result of a file, with its place in it."""
        return ForeignFileError(file, f"{self.place}: {what}".removeprefix(": "), hint)


@dataclass(frozen=True, slots=True)
class ImportedFile:
    """The results of one file. `notes` name where the tool's definitions differ from ours. `again`:
    the file says again what other files of its tool say, if they are there. `single_stage`: its
    requests count only beside the one result that states their load. `beside`: further figures of
    the one result of its tool in its folder.
    """

    file: str
    format: str
    results: tuple[Result, ...] = ()
    notes: tuple[str, ...] = ()
    again: bool = False
    single_stage: bool = False
    beside: Mapping[str, float] = field(default_factory=dict)

    @property
    def tool(self) -> str:
        """The tool that wrote it: 'AIPerf' of 'AIPerf sweep'."""
        return self.format.partition(" ")[0]


# --- figures


def figure(node: Node, key: str, name: str, scale: float = 1.0) -> dict[str, float]:
    """The value of the metric `name` under `key`, in our unit; empty without one. A latency or a
    throughput of exactly 0 means "not measured" and is left out. ForeignFileError for an impossible
    one, and for a text that begins with a number.
    """
    value, of = node.number(key), metric(name)
    if value is None and isinstance(text := node.tree.get(key), str) and text.strip()[:1].isdigit():
        what = f"{node.place(key)} is {foreign_text(text)!r}, not a number"
        raise node.error(what, "write numbers alone: without units, and with a point before decimals")
    is_latency = of.quantity is not None and not of.inverted
    if value is None or (value == 0 and (is_latency or name.endswith("_throughput"))):
        return {}
    if is_latency and value * scale > LONGEST:
        raise node.error(f"{node.place(key)} is {value * scale:.3g} s", "check that the unit is right")
    return {name: value * scale}


def unit_scale(node: Node, name: str, key: str = "unit") -> float:
    """The factor from the unit that stands beside the values of a metric to ours. A rate may lack
    it. ForeignFileError for one that is not known.
    """
    unit = node.text(key) or ""
    units = SECONDS if metric(name).quantity else {"": 1.0, **RATES}
    if (scale := units.get(unit.lower())) is None:
        known = ", ".join(list(units)[:8]).removeprefix(", ")
        raise node.error(f"{node.where} is in {unit!r}, an unknown unit", f"known are {known} and the like")
    return scale


def statistics(node: Node, quantity: str, scale: float = 1.0, key: str = "{}") -> dict[str, float]:
    """The statistics of one latency below `node`, in seconds. `key` is a pattern of their keys, as
    '{}_ttft_ms'.
    """
    figures: dict[str, float] = {}
    for theirs, ours in STATISTICS.items():
        figures |= figure(node, key.format(theirs), f"{ours}_{quantity}", scale)
    return figures


def rates(node: Node, keys: Mapping[str, str]) -> dict[str, float]:
    """The rates below `node`, by our names; `keys` gives the tool's."""
    return {name: value for name, key in keys.items() for value in figure(node, key, name).values()}


# --- requests


def successes(records: Sequence[Record]) -> list[Record]:
    """The requests that succeeded."""
    return [r for r in records if r.outcome is Outcome.OK]


def mean_lengths(records: Sequence[Record]) -> TokenLengths:
    """Mean input and output tokens of the successes, where they were counted."""
    ok = successes(records)
    isl = [r.prompt_tokens for r in ok if r.prompt_tokens]
    osl = [r.completion_tokens for r in ok if r.completion_tokens]
    return sum(isl) / len(isl) if isl else None, sum(osl) / len(osl) if osl else None


def microseconds(gaps: Sequence[float], scale: float = 1.0) -> tuple[int, ...]:
    """Gaps in units of `scale` seconds, as whole microseconds whose sum does not drift from
    theirs.
    """
    stamps = np.rint(np.cumsum(gaps, dtype=np.float64) * scale * 1e6).clip(-_MOST, _MOST)
    return tuple(np.diff(stamps, prepend=0.0).astype(np.int64).tolist())


# --- load


class StatedLoad(NamedTuple):
    """The load of a result: the concurrency, the rate that an open loop asked for, and notes on
    them.
    """

    concurrency: int
    rate: float | None = None
    notes: tuple[str, ...] = ()


def open_loop(
    node: Node, figures: Mapping[str, float], rate: float | None, hint: str, mean: float | None = None
) -> StatedLoad:
    """The load of an open loop: its rate, otherwise its mean in flight, which is `mean` or follows
    from Little's law. ForeignFileError with the hint where neither is known.
    """
    stated, mean = mean, mean or figures.get("request_throughput", 0.0) * figures.get("mean_e2e", 0.0)
    came = figures.get("request_throughput", 0.0)
    if rate and not mean and came <= OVER_RATE * rate:
        return StatedLoad(1, rate, (f"an open loop at {rate:g} requests/s",))
    if not mean:
        what = f"{node.where}: neither the concurrency nor the mean number in flight is known"
        raise node.error(what.removeprefix(": "), hint)
    if rate and came > OVER_RATE * rate:
        note = f"{rate:g} requests/s were asked for and {came:.4g} came: the concurrency is the mean in flight"
        return StatedLoad(max(1, round(mean)), None, (note,))
    if rate:
        return StatedLoad(max(1, round(mean)), rate, (f"an open loop at {rate:g} requests/s, {mean:.3g} in flight",))
    note = f"an open loop: the concurrency is the mean in flight{'' if stated else ' (rate x mean E2E)'}"
    return StatedLoad(max(1, round(mean)), None, (note,))


REACHED = 0.95
"""The share of a cap that a rate keeps in flight where it reaches it."""


def stated_load(
    node: Node,
    figures: Mapping[str, float],
    rate: float | None,
    cap: int | None,
    hint: str,
    mean: float | None = None,
) -> StatedLoad:
    """The load of a result that states a rate, a cap of requests in flight, or both. The cap is its
    concurrency where the rate reaches it, or where there is no rate.
    """
    in_flight = mean or figures.get("request_throughput", 0.0) * figures.get("mean_e2e", 0.0)
    if not cap or (rate and in_flight and max(1, round(in_flight)) < REACHED * cap):
        return open_loop(node, figures, rate, hint, mean)
    held = f"a rate of {rate:g} requests/s was asked for, and the cap of {cap:,} in flight held it down" if rate else ""
    return StatedLoad(cap, None, (held,) if held else ())


PARALLEL = (
    ("tensor_parallel_size", "tp"),
    ("pipeline_parallel_size", "pp"),
    ("data_parallel_size", "dp"),
)


def gpus_of(node: Node) -> int | None:
    """TP x PP x DP, where one of them is stated."""
    sizes = [node.count(key) or node.count(key.replace("_", "-")) or node.count(short) for key, short in PARALLEL]
    return math.prod(size or 1 for size in sizes) if any(sizes) else None


def falls_short(asked: float, rate: float, requests: int) -> bool:
    """Whether a rate is below the requested one by more than UNDER_RATE, and by more than chance:
    three standard deviations of a Poisson count.
    """
    return rate < asked * (1 - UNDER_RATE - 3 / math.sqrt(max(1, requests)))


def rate_flags(asked: float | None, achieved: float | None, sent: int) -> Iterator[Flag]:
    """The flag of a load generator that did not send at the requested rate."""
    if asked and achieved is not None and falls_short(asked, achieved, sent):
        advice = "the load generator did not make the load it was asked for: give it more workers, or ask for less"
        measured = f"{achieved:.4g} of {asked:.4g} requests/s were sent"
        yield Flag("under_rate", measured, f"{1 - UNDER_RATE:.0%} of the rate", advice)
