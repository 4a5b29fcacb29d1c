"""What the answers of a window say in words: odd finish reasons, and what requests failed of."""

import re
from collections import Counter
from collections.abc import Sequence

from frontier.core.model.trials import FINISHED, Outcome, Record, Window

BY_CLIENT = (Outcome.CANCELLED, Outcome.CLIENT)
"""Outcomes that say nothing about the server."""
_CAUSES = 256
"""Causes of failures that are told apart in a window: a server may word each anew."""
_NUMBER = re.compile(r"\d+")


class WindowWords:
    """How often answers in the window ended with each finish reason that is not known to be good,
    and what requests in it failed of. Words that differ in their numbers alone are one cause, in
    the first one's words: 'HTTP 429: try again in 16 s'.
    """

    def __init__(self, window: Window) -> None:
        self.window = window
        self.odd, self.failures = Counter[str](), Counter[str]()
        self.first: dict[tuple[int | None, str], str] = {}

    def add(self, batch: Sequence[Record]) -> None:
        """A batch of records."""
        for r in batch:
            reason = r.finish_reason if r.finish_reason and r.finish_reason.lower() not in FINISHED else None
            if (reason is None and r.outcome is Outcome.OK) or not self.window.start <= r.sent <= self.window.end:
                continue
            if reason is not None:
                self.odd[reason] += 1
            elif r.outcome not in BY_CLIENT:
                words = r.error or r.outcome.value
                known = self.first.setdefault((r.status, _NUMBER.sub("0", words)), words)
                self.failures[known if known in self.failures or len(self.failures) < _CAUSES else "others"] += 1
