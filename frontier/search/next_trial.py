"""What a search says: the next trial, or that it is over."""

from dataclasses import dataclass

from frontier.core.model.decisions import Verdict
from frontier.core.model.loads import Load
from frontier.core.model.trials import Phase


@dataclass(frozen=True, slots=True)
class Ask:
    """One trial to run next, and why.

    Its window ends with `requests` sent, or after `seconds` where these are given. `value` is the
    share of throughput that the trial may bring, or by which its claim gains, per second; 0: not
    known. `warmup` is the least warm-up in seconds.
    """

    load: Load
    phase: Phase
    requests: int
    reason: str
    seconds: float | None = None
    value: float = 0.0
    warmup: float = 0.0


@dataclass(frozen=True, slots=True)
class Done:
    """The search is over, for this `reason`. `proven` is the highest candidate proven, None without
    one.

    A search over rates says more. Without a proven rate, `verdict` is whether no rate can be.
    `located` is the highest rate whose values are within the SLA (no claim), `refused` the lowest
    one above the answer that was tried, and why it is not the answer.
    """

    reason: str
    proven: Load | None = None
    verdict: Verdict = Verdict.UNPROVEN
    located: Load | None = None
    refused: tuple[Load, str] | None = None
