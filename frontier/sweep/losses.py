"""What a lost server costs the night: which trials are put off or given up, and what is said of it. Pure."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from frontier.model import Outcome, Record, Shape, Trial

LIVES = 2
"""How often one trial is tried when the server is lost under it."""


@dataclass(slots=True)
class Losses:
    """`felled`: per (deployment, shape) the lowest concurrency under which the server was lost LIVES times, and how.
    `gone`: deployments whose server did not come back, and what was last said of it.
    """

    felled: dict[tuple[str, Shape], tuple[int, str]] = field(default_factory=dict)
    gone: dict[str, str] = field(default_factory=dict)

    def fell(self, trial: Trial, why: str) -> None:
        """The server was lost under this trial as often as is borne."""
        at = trial.deployment, trial.shape
        if at not in self.felled or trial.concurrency < self.felled[at][0]:
            self.felled[at] = trial.concurrency, why

    def reason(self, trial: Trial) -> str | None:
        """Why a trial is not run now; None when it may be. What fells a server at 64 will not spare it at 128."""
        if trial.deployment in self.gone:
            return f"its server did not come back: {self.gone[trial.deployment]}"
        concurrency, why = self.felled.get((trial.deployment, trial.shape), (0, ""))
        if why and trial.concurrency >= concurrency:
            return f"the server was lost {LIVES} times under c={concurrency}: {why}"
        return None


class Witness:
    """A sink for records that remembers how requests failed, on its way to another sink."""

    def __init__(self, sink: Callable[[Record], None] = lambda _: None) -> None:
        self._sink = sink
        self._failed: Counter[str] = Counter()

    def __call__(self, record: Record) -> None:
        if record.outcome not in (Outcome.OK, Outcome.CANCELLED, Outcome.CLIENT):
            self._failed[record.error or record.outcome.value] += 1
        self._sink(record)

    def account(self) -> str:
        """The most common failure and how many there were."""
        if not self._failed:
            return "no request failed"
        said, times = self._failed.most_common(1)[0]
        return f"{self._failed.total()} requests failed, {times} of them so: {said}"
