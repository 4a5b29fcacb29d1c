"""How much of an answer is printed: -q, the default, -v."""

from collections.abc import Iterable
from enum import IntEnum
from typing import TypeVar

T = TypeVar("T")


class Detail(IntEnum):
    """How much a command prints: only the answer (-q), the answer with its evidence, or everything
    (-v). Each holds the lines of the one before it.
    """

    ANSWER = 0
    USUAL = 1
    ALL = 2

    def of(self, answer: Iterable[T], usual: Iterable[T] = (), more: Iterable[T] = ()) -> list[T]:
        """The parts of an answer that are printed, in this order."""
        return [part for least, parts in enumerate((answer, usual, more)) if least <= self for part in parts]
