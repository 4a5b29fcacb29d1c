"""What an importer returns: the results of a file in our metric names and SI units, with their requests if known."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from frontier.formats.documents import ForeignFileError
from frontier.model import Flag, Outcome, Record

UNDER_RATE = 0.05
"""An open loop that achieved this much less than the rate it asked for did not make its load."""


@dataclass(frozen=True, slots=True)
class Result:
    """One operating point as a file states it. `figures` by our metric names, over the requests that succeeded.

    `isl` and `osl` are the lengths asked for where `stated`, else the means that were observed, None where the file
    has neither. `tokens` is the observed mean output length. `failed` is None where the file does not give it. `facts`
    distinguish deployments (model, hardware, precision...). `rate` is what an open loop asked for, in requests/s.
    `place` is where in the file the result stands, empty for the whole file.

    `records` are its requests where the file has all of them with their times, which full statistics need: they count
    from the first send, `epoch` is that moment as unix time (0 where the tool did not keep it), `figures` are the
    file's own summary of them, and a concurrency of 0 is to be found from them.
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


def in_flight(figures: Mapping[str, float]) -> int | None:
    """The mean number in flight by Little's law, at least 1; None where rate or E2E are not known."""
    rate, e2e = figures.get("request_throughput"), figures.get("mean_e2e")
    return None if not rate or not e2e else max(1, round(rate * e2e))


def open_loop_notes(rate: float | None) -> tuple[str, ...]:
    """The note that the concurrency was not set by anyone."""
    asked = f" at {rate:g} requests/s" if rate is not None else ""
    return (f"an open loop{asked}: the concurrency is the mean in flight (rate x mean E2E)",)


def rate_flags(asked: float | None, achieved: float | None) -> tuple[Flag, ...]:
    """The flag of a load generator that did not send at the rate it was asked for."""
    if not asked or achieved is None or achieved >= asked * (1 - UNDER_RATE):
        return ()
    advice = "the load generator did not make the load it was asked for: give it more workers, or ask for less"
    measured = f"{achieved:.4g} of {asked:.4g} requests/s were sent"
    return (Flag("under_rate", measured, f"{1 - UNDER_RATE:.0%} of the rate", advice),)
