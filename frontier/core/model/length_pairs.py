"""Pairs of lengths: the input and output tokens of a request together.

A config lists them, or a trace recorded them.
"""

import functools
import hashlib
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Self, TypeVar


class RequestLengths(NamedTuple):
    """The lengths of one request.

    `shared` is how many tokens of its prompt all requests have in common; None: not stated, the
    shape says a share. `blocks` are, for a trace, the names of the blocks that the prompt begins
    with: requests with the same name have all of the prompt up to there in common.
    """

    isl: int
    osl: int
    shared: int | None = None
    blocks: tuple[int, ...] = ()


@functools.lru_cache(maxsize=8)
def order_of(seed: int, passed: int, count: int) -> Sequence[int]:
    """The order in which `count` rows are taken, drawn by the seed, after all of them were taken
    `passed` times.
    """
    return random.Random(f"{seed}/sessions/{passed}").sample(range(count), count)


T = TypeVar("T")


class LengthTable(Generic[T]):
    """The rows of a config or a trace. Shared, never copied: there may be a million of them."""

    __slots__ = ("rows",)

    def __init__(self, rows: Iterable[T]) -> None:
        self.rows = tuple(rows)

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    def drawn(self, seed: int, number: int) -> T:
        """The row of this number in the trial of this seed. Each row is taken once, in an order
        drawn by the seed, then again in another order.
        """
        passed, place = divmod(number, len(self.rows))
        return self.rows[order_of(seed, passed, len(self.rows))[place]]


@dataclass(frozen=True, slots=True)
class LengthPairs:
    """Pairs of lengths: `count` of them. `sha256` are 16 hex digits of their digest; two with the
    same digits are equal.

    For a trace, `path` is its file and `times` the digest of its arrivals. Its rows are then taken
    in their order. In a trial with these very arrivals, each arrival has the row that was recorded
    with it. `block` is how many tokens a block of its prompts has, 0 where it names no blocks.

    `table` holds the rows; None where a run is read back, as nothing is sent then.
    """

    sha256: str
    count: int
    times: str | None = None
    block: int = 0
    path: str | None = field(default=None, compare=False)
    table: LengthTable[RequestLengths] | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, rows: Sequence[RequestLengths], **trace: Any) -> "LengthPairs":
        """The pairs of these rows, with the fields of their trace.

        >>> LengthPairs.of([RequestLengths(512, 128), RequestLengths(64, 8)]).count
        2
        """
        text = " ".join(f"{row.isl}/{row.osl}/{row.shared}/{','.join(map(str, row.blocks))}" for row in rows)
        return cls(hashlib.sha256(text.encode()).hexdigest()[:16], len(rows), table=LengthTable(rows), **trace)

    def row(self, number: int, seed: int, first: int | None) -> RequestLengths:
        """The row for the request of this number in the trial of this seed.

        Pairs that a config lists come once each, in an order drawn by the seed, then again in
        another order. Pairs of a trace come in their order. They begin at its `first` arrival in
        the trial; without one, at a place that the seed draws.
        """
        assert self.table is not None, "the pairs of a run that was read back are not sent"
        if self.times is None:
            return self.table.drawn(seed, number)
        begin = random.Random(f"{seed}/first row").randrange(self.count) if first is None else first
        return self.table.rows[(begin + number) % self.count]
