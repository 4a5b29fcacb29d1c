"""What is worked out of a window is remembered for a whole night, whichever command read it.

The commands of a night are processes of their own to a user, and each reads the run's files anew.
Here they share a process. Windows with the same contents count as one, so the caches of `frontier`
serve all of them: what is remembered is what would be worked out again.
"""

import contextlib
import dataclasses
import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from frontier.core.claim import changes, proof
from frontier.core.estimates import estimate, widening
from frontier.core.flags import flags, load_flags
from frontier.core.stats import connections, episodes, wander
from frontier.core.window import window
from frontier.core.window.histogram import LogHistogram
from frontier.core.window.window import WindowData
from frontier.search import curves, series_history, window_size

CACHES = (
    changes.level, changes.spoilt, changes._unchanged, changes._joined, changes._with_series,
    proof.join, proof.judged_point, proof.pilot_point, proof.point_of, estimate.estimate, widening.widening,
    flags.flags, load_flags.of_load, connections.clusters, connections.count, episodes.slow_blocks,
    wander.of_latencies, window.narrowed, window.gaps,
    curves._between_episodes, series_history._remembered, window_size.dependence,
)  # fmt: skip
_FIELDS = tuple(field.name for field in dataclasses.fields(WindowData))


def _contents(value: Any) -> bytes:
    if isinstance(value, np.ndarray):
        return bytes(value.dtype.str.encode() + value.tobytes())
    if isinstance(value, tuple) and value and isinstance(value[0], LogHistogram):
        return b"".join(array.tobytes() for array in LogHistogram.flat(value).values())
    return repr(value).encode()


@contextlib.contextmanager
def windows_by_contents() -> Iterator[None]:
    """In this block windows are equal where their contents are; afterwards nothing is remembered
    of them.
    """
    known: dict[int, tuple[WindowData, int]] = {}

    def contents(sample: WindowData) -> int:
        if (found := known.get(id(sample))) is None:
            digest = hashlib.blake2b(digest_size=8)
            for name in _FIELDS:
                part = _contents(getattr(sample, name))
                digest.update(len(part).to_bytes(8, "little") + part)
            known[id(sample)] = found = (sample, int.from_bytes(digest.digest(), "little"))
        return found[1]

    def alike(a: WindowData, b: object) -> bool:
        return a is b or (isinstance(b, WindowData) and contents(a) == contents(b))

    try:
        WindowData.__eq__ = alike  # type: ignore[method-assign, assignment]
        WindowData.__hash__ = contents  # type: ignore[method-assign, assignment]
        yield
    finally:
        for cache in CACHES:
            cache.cache_clear()
        WindowData.__eq__ = object.__eq__  # type: ignore[method-assign]
        WindowData.__hash__ = object.__hash__  # type: ignore[method-assign]
