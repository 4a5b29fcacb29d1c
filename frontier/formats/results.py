"""Results of an importer: in our metric names and SI units, with their load, and their requests if
known."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import NamedTuple

from frontier.formats.documents import ForeignFileError, Node
from frontier.model import Flag, Outcome, Record

UNDER_RATE = 0.05
"""An open loop that achieved this much less than the rate it asked for did not make its load."""


@dataclass(frozen=True, slots=True)
class Result:
    """One operating point as a file states it. `figures` by our metric names, over the requests
    that succeeded.

    `isl` and `osl` are the lengths asked for where `stated`, else the means that were observed,
    None where the file has neither. `tokens` is the observed mean output length. `failed` is None
    where the file does not give it. `facts` distinguish deployments (model, hardware,
    precision...). `rate` is what an open loop asked for, in requests/s. `place` is where in the
    file the result stands, empty for the whole file.

    `records` are its requests where the file has all of them with their times, which full
    statistics need: they count from the first send, `epoch` is that moment as unix time (0 where
    the tool did not keep it), `figures` are the file's own summary of them, and a concurrency of 0
    is to be found from them.
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
    gpus: int | None = None
    rate: float | None = None
    flags: tuple[Flag, ...] = ()
    notes: tuple[str, ...] = ()
    place: str = ""
    records: Sequence[Record] = ()
    epoch: float = 0.0

    def error(self, file: str, what: str, hint: str) -> ForeignFileError:
        """The error about this result of a file, with its place in it."""
        return ForeignFileError(file, f"{self.place}: {what}".removeprefix(": "), hint)


@dataclass(frozen=True, slots=True)
class ImportedFile:
    """The results of one file. `notes` name where the tool's definitions differ from ours."""

    file: str
    format: str
    results: tuple[Result, ...] = ()
    notes: tuple[str, ...] = ()


def successes(records: Sequence[Record]) -> list[Record]:
    """The requests that succeeded."""
    return [r for r in records if r.outcome is Outcome.OK]


def mean_lengths(records: Sequence[Record]) -> tuple[float | None, float | None]:
    """Mean input and output tokens of the successes, as far as they were counted."""
    ok = successes(records)
    isl = [r.prompt_tokens for r in ok if r.prompt_tokens]
    osl = [r.completion_tokens for r in ok if r.completion_tokens]
    return sum(isl) / len(isl) if isl else None, sum(osl) / len(osl) if osl else None


def microseconds(gaps: Sequence[float], scale: float = 1.0) -> tuple[int, ...]:
    """Gaps of `scale` seconds as whole microseconds whose sum does not drift from theirs."""
    stamps = [0, *(round(t * scale * 1e6) for t in accumulate(gaps))]
    return tuple(b - a for a, b in pairwise(stamps))


class Load(NamedTuple):
    """How a result was loaded: the concurrency, the rate that an open loop asked for, and notes on
    them.
    """

    concurrency: int
    rate: float | None = None
    notes: tuple[str, ...] = ()


def open_loop(
    node: Node, figures: Mapping[str, float], rate: float | None, hint: str, mean: float | None = None
) -> Load:
    """The load of an open loop, whose concurrency is its mean in flight: `mean`, else by Little's
    law.

    ForeignFileError with the hint where it is not known.
    """
    mean = mean or figures.get("request_throughput", 0.0) * figures.get("mean_e2e", 0.0)
    if not mean:
        what = f"{node.where}: neither the concurrency nor the mean number in flight is known"
        raise node.error(what.removeprefix(": "), hint)
    asked = f" at {rate:g} requests/s" if rate is not None else ""
    note = f"an open loop{asked}: the concurrency is the mean in flight (rate x mean E2E)"
    return Load(max(1, round(mean)), rate, (note,))


def rate_flags(asked: float | None, achieved: float | None) -> Iterator[Flag]:
    """The flag of a load generator that did not send at the rate it was asked for."""
    if asked and achieved is not None and achieved < asked * (1 - UNDER_RATE):
        advice = "the load generator did not make the load it was asked for: give it more workers, or ask for less"
        measured = f"{achieved:.4g} of {asked:.4g} requests/s were sent"
        yield Flag("under_rate", measured, f"{1 - UNDER_RATE:.0%} of the rate", advice)
