"""Text for prompts: common English words or token ids, drawn at random."""

import itertools
import random
from pathlib import Path
from typing import Any

WORDS = tuple(Path(__file__).with_name("words.txt").read_text(encoding="utf-8").split())
"""Common English words: nearly all are one token, with the space before them, in the tokenizers in
use."""
HEAD = 24
"""Words (or ids) drawn anew per request before the sliced text: more than one cache block of any
engine's default."""
SLIDE = 4096
PIECE = 64
"""Words of the shortest text that is counted: with fewer, what every prompt has beside its words
would weigh too much."""


class PromptText:
    """Random words as one string with the place where each begins, or random token ids; sliced
    cheaply.
    """

    __slots__ = ("_drawn", "_ids", "_starts")

    def __init__(self, rng: random.Random, count: int, ids: tuple[int, int] | None) -> None:
        self._ids = ids
        self._drawn: Any
        if ids is not None:
            self._drawn = rng.choices(range(ids[0], ids[1] + 1), k=count)
        else:
            words = rng.choices(WORDS, k=count)
            self._drawn = " ".join(words)
            self._starts = [0, *itertools.accumulate(len(word) + 1 for word in words)]

    def slice(self, start: int, count: int) -> Any:
        """`count` words (or ids) from the `start`-th on."""
        if self._ids is not None:
            return self._drawn[start : start + count]
        return self._drawn[self._starts[start] : self._starts[start + count] - 1]

    def fresh(self, rng: random.Random, count: int) -> list[Any]:
        """`count` words (or ids) in pieces. The first piece is in no other prompt; the other is
        from this text.
        """
        head = min(HEAD, count)
        pieces = [PromptText(rng, head, self._ids).slice(0, head)]
        return pieces if count == head else [*pieces, self.slice(rng.randrange(SLIDE), count - head)]
