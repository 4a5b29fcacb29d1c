"""KV memory of the simulated engine: blocks, and which of them hold what."""

from collections import OrderedDict
from collections.abc import Hashable, Sequence


class KvMemory:
    """KV memory: how many of its `blocks` are free, and which blocks of which prompts are in the
    prefix cache.

    Blocks are counted, not placed. A cached block that no request uses counts as free until its
    room is needed; then the least recently used goes first, as in vLLM's block pool.
    """

    def __init__(self, blocks: int, prefix_cache: bool = False) -> None:
        self.blocks = blocks
        self.free = blocks
        self.prefix_cache = prefix_cache
        self._users: dict[Hashable, int] = {}
        self._kept = OrderedDict[Hashable, None]()  # cached and unused, least recently used first

    @property
    def used(self) -> float:
        """Share of blocks in use."""
        return 1.0 - self.free / self.blocks

    def take(self, count: int) -> None:
        """Give out blocks that are known to be there; unused cached blocks make way."""
        self.free -= count
        while len(self._kept) > self.free:
            oldest, _ = self._kept.popitem(last=False)
            del self._users[oldest]

    def lookup(self, hashes: Sequence[Hashable], most: int) -> Sequence[Hashable]:
        """The leading blocks of a prompt that are cached, at most `most`."""
        if not self.prefix_cache or not hashes:
            return ()
        found = 0
        for name in hashes[:most]:
            if name not in self._users:
                break
            found += 1
        return hashes[:found]

    def fits(self, total: int, hits: Sequence[Hashable], reserve: int) -> bool:
        """Whether a prompt of `total` blocks leaves `reserve` blocks free; its `hits` are
        cached.
        """
        waking = sum(not self._users[name] for name in hits)
        return self.free - waking - (total - len(hits)) >= reserve

    def hold(self, hits: Sequence[Hashable]) -> None:
        """Use cached blocks."""
        for name in hits:
            if not self._users[name]:
                del self._kept[name]
                self.free -= 1
            self._users[name] += 1

    def register(self, hashes: Sequence[Hashable], held: list[Hashable], full: int) -> None:
        """Put the full blocks of a finished prompt, or of a finished answer, in the cache; they
        join `held`.
        """
        if not self.prefix_cache:
            return
        for name in hashes[len(held) : full]:
            if name in self._users:  # another request computed the same meanwhile: this copy stays private
                break
            self._users[name] = 1
            held.append(name)

    def release(self, held: Sequence[Hashable], total: int) -> None:
        """Take back a request's blocks; those it holds in the cache stay there until their room is
        needed.
        """
        self.free += total - len(held)
        for name in reversed(held):
            self._users[name] -= 1
            if not self._users[name]:
                self._kept[name] = None
                self.free += 1
