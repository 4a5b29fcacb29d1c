"""What an importer says of a file: results (aggregates) and traces (requests), in our metric names and SI units."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from frontier.formats.documents import ForeignFileError
from frontier.metrics import metric
from frontier.model import Flag, Record

IDENTITY = 0.05
"""E2E may differ by this share from TTFT + (tokens - 1) x TPOT, all as means."""
UNDER_RATE = 0.05
"""An open loop that achieved this much less than the rate it asked for did not make its load."""


@dataclass(frozen=True, slots=True)
class Result:
    """One operating point as a file states it. `figures` by our metric names, over the requests that succeeded.

    `isl` and `osl` are the lengths asked for where `stated`, else the means that were observed, None where the file
    says neither. `tokens` is the observed mean output length. `failed` is None where the file does not say. `facts`
    tell deployments apart (model, hardware, precision...). `rate` is what an open loop asked for, in requests/s.
    `flags` and `notes` are the importer's own. `place` is where in the file it stands, empty for the whole file.
    """

    concurrency: int
    figures: Mapping[str, float]
    ok: int
    failed: int | None = None
    isl: float | None = None
    osl: float | None = None
    stated: bool = False
    tokens: float | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    model: str | None = None
    gpus: int | None = None
    rate: float | None = None
    flags: tuple[Flag, ...] = ()
    notes: tuple[str, ...] = ()
    place: str = ""


@dataclass(frozen=True, slots=True)
class Trace:
    """The requests of one operating point, with their times: what full statistics need.

    Records count from the first send; `epoch` is that moment as unix time, 0 where the tool did not keep it. `figures`
    are what the same file's summary says of these requests.
    """

    concurrency: int
    records: Sequence[Record]
    epoch: float = 0.0
    isl: float | None = None
    osl: float | None = None
    stated: bool = False
    facts: Mapping[str, str] = field(default_factory=dict)
    model: str | None = None
    gpus: int | None = None
    rate: float | None = None
    notes: tuple[str, ...] = ()
    place: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Found:
    """Everything one file says. `notes` tell where the tool's definitions differ from ours."""

    file: str
    format: str
    results: tuple[Result, ...] = ()
    traces: tuple[Trace, ...] = ()
    notes: tuple[str, ...] = ()


def wrong(file: str, what: Result | Trace, complaint: str, hint: str) -> ForeignFileError:
    """The complaint about one result of a file, with its place in it."""
    return ForeignFileError(file, f"{what.place}: {complaint}".removeprefix(": "), hint)


def steps(gaps: Sequence[float], scale: float) -> tuple[int, ...]:
    """Gaps as whole microseconds whose sum does not drift from theirs."""
    stamps = [0, *(round(t * scale * 1e6) for t in accumulate(gaps))]
    return tuple(b - a for a, b in pairwise(stamps))


def in_flight(rate: float | None, e2e: float | None) -> int | None:
    """The mean number in flight by Little's law, at least 1; None where rate or E2E are not known."""
    return None if not rate or not e2e else max(1, round(rate * e2e))


def open_loop_notes(rate: float | None) -> tuple[str, ...]:
    """What to know of a concurrency that nobody set."""
    asked = f" at {rate:g} requests/s" if rate is not None else ""
    return (f"an open loop{asked}: the concurrency is the mean in flight (rate x mean E2E)",)


def rate_flags(asked: float | None, achieved: float | None) -> tuple[Flag, ...]:
    """A load that was not made."""
    if not asked or achieved is None or achieved >= asked * (1 - UNDER_RATE):
        return ()
    return (
        Flag(
            "under_rate", f"{achieved:.4g} of {asked:.4g} requests/s were sent", f"{1 - UNDER_RATE:.0%} of the rate",
            "the load generator did not make the load it was asked for: give it more workers, or ask for less",
        ),
    )  # fmt: skip


def identity_flags(figures: Mapping[str, float], tokens: float | None) -> tuple[Flag, ...]:
    """A point whose E2E is not TTFT + (tokens - 1) x TPOT: one of its figures means something else than its name."""
    ttft, tpot, e2e = (figures.get(f"mean_{q}") for q in ("ttft", "tpot", "e2e"))
    if ttft is None or tpot is None or e2e is None or math.isinf(e2e) or tokens is None or tokens <= 1:
        return ()
    told = ttft + (tokens - 1) * tpot
    if abs(told - e2e) <= IDENTITY * e2e:
        return ()
    return (
        Flag(
            "identity", f"TTFT + TPOT x (tokens - 1) is {told / e2e:.2f} of E2E", f"1 ±{IDENTITY:.0%}",
            "one of these figures is not what its name says: do not compare or decide by them",
        ),
    )  # fmt: skip


def with_failures(
    figures: Mapping[str, float], ok: int, failed: int | None
) -> tuple[dict[str, float], tuple[str, ...]]:
    """Figures of the successes, turned into what they say of all requests: a failure's latency is infinite.

    A percentile above the share of successes is infinite, and so is every mean. Others are left, and a note says that
    they are too low.
    """
    turned = dict(figures)
    if failed is None:
        return turned, ("the file does not say whether requests failed",)
    if ok + failed:
        turned["error_rate"] = failed / (ok + failed)
    if not failed:
        return turned, ()
    share = failed / (ok + failed)
    for name in figures:
        of = metric(name)
        if of.quantity is None or of.inverted:
            continue
        if of.p is None or share > 1 - of.p + 1e-12:
            turned[name] = math.inf
    return turned, (
        f"{failed:,} of {ok + failed:,} requests failed; percentiles below the failures are of the successes",
    )


def interactivity(figures: Mapping[str, float]) -> dict[str, float]:
    """Tokens per second per user at each percentile of TPOT."""
    return {
        name.replace("_tpot", "_interactivity"): 0.0 if math.isinf(value) else 1 / value
        for name, value in figures.items()
        if name.endswith("_tpot") and name.startswith("p") and value > 0
    }
