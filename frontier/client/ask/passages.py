"""Natural prompts: passages of English prose from a corpus, cut by the server's own count.

The corpus `natural.txt.gz` holds four books in the public domain (Jane Austen, "Pride and
Prejudice", 1813; Lewis Carroll, "Alice's Adventures in Wonderland", 1865; Arthur Conan Doyle, "The
Adventures of Sherlock Holmes", 1892; H. G. Wells, "The Time Machine", 1895), a paragraph a line,
without titles and headings (NOTICE). A prompt begins with a few random words; a passage from
anywhere follows. A long sweep comes back to a place of the corpus, and the prompts differ in their
first block even then.
"""

import functools
import gzip
import random
import re
from array import array
from pathlib import Path
from typing import Any

from frontier.client.ask.prompt_text import PIECE, WORDS, PromptText

LEAD = 6
"""Random words that a natural prompt begins with: fewer than a cache block has tokens, and hardly
ever the same twice."""
_PASSAGE, _PASSAGES = 512, 32
"""Words and marks of a passage, and number of passages, that calibrate the natural text: their mean
is known within 1%."""


@functools.cache
def _corpus() -> tuple[str, "array[int]"]:
    """The natural text, and where each of its words and punctuation marks begins."""
    text = gzip.decompress(Path(__file__).with_name("natural.txt.gz").read_bytes()).decode("ascii")
    return text, array("L", (match.start() for match in re.finditer(r"\w+|[^\w\s]", text)))


class Passages(PromptText):
    """The corpus of natural text from a place that the seed draws; its end is followed by its
    beginning.
    """

    __slots__ = ("_origin", "_places", "_text")

    def __init__(self, seed: str) -> None:
        self._text, self._places = _corpus()
        self._origin = random.Random(seed).randrange(len(self._places))

    def slice(self, start: int, count: int) -> Any:
        """`count` words and marks from the `start`-th on, in whole rounds where that is more than
        there are.
        """
        text, starts = self._text, self._places
        begin = (self._origin + start) % len(starts)
        end = begin + count
        if end < len(starts):
            return text[starts[begin] : starts[end]].rstrip()
        rounds, rest = divmod(end, len(starts))
        return (text[starts[begin] :] + text * (rounds - 1) + text[: starts[rest]]).rstrip()

    def fresh(self, rng: random.Random, count: int) -> list[Any]:
        """Random words, then a passage from anywhere: `count` words and marks together."""
        lead = min(LEAD, count)
        pieces: list[Any] = [" ".join(rng.choices(WORDS, k=lead))]
        return pieces if count == lead else [*pieces, self.slice(rng.randrange(len(self._places)), count - lead)]


def counted(longest: int) -> tuple[list[str], list[str], int]:
    """The texts that a server counts to calibrate the natural text, in prompts of `longest` tokens
    at most. They are evenly spaced passages, as authors differ; the first passage once more in two
    halves; and the number of words and marks in the passages.
    """
    size = min(_PASSAGE, max(PIECE, longest // 2))
    corpus, places = Passages("calibrate"), len(_corpus()[1])
    passages = -(-_PASSAGES * _PASSAGE // size)
    starts = [i * places // passages for i in range(passages)]
    pieces = [corpus.slice(start, size) for start in starts]
    halves = [corpus.slice(0, size // 2), corpus.slice(size // 2, size - size // 2)]
    return pieces, halves, passages * size
