"""What is worked out of a window is remembered for a whole night, whichever command read it.

The commands of a night are processes of their own to a user, and each reads the run's files anew.
Here they share a process. Bytes that were decoded once are not decoded again, and windows with the
same contents count as one and hold the same results: these are what would be worked out again.
"""

import contextlib
import dataclasses
import functools
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import orjson

from frontier.core.claim import changes
from frontier.core.model.trials import Measurement
from frontier.core.window import window
from frontier.core.window.histogram import LogHistogram
from frontier.core.window.window import WindowData
from frontier.search import series_history
from frontier.store import trial_files, window_cache

CACHES = (changes._unchanged, window.narrowed, window.gaps, series_history._remembered)
_FIELDS = (*(field.name for field in dataclasses.fields(WindowData) if field.name != "power_rule"), "power")
"""What makes windows equal. A rule counts by the power that it gives: a sweep sets none."""


def _digest(value: Any) -> bytes:
    """Eight bytes for the contents of a field."""
    if isinstance(value, np.ndarray):
        contents = bytes(value.dtype.str.encode() + value.tobytes())
    elif isinstance(value, tuple) and value and isinstance(value[0], LogHistogram):
        contents = b"".join(array.tobytes() for array in LogHistogram.flat(value).values())
    else:
        contents = repr(value).encode()
    return hashlib.blake2b(contents, digest_size=8).digest()


@contextlib.contextmanager
def windows_by_contents() -> Iterator[None]:
    """In this block windows are equal where their contents are; afterwards nothing is remembered
    of them.
    """
    known: dict[int, tuple[WindowData, int]] = {}
    parts: dict[int, tuple[Any, bytes]] = {}
    identity = object.__hash__  # `id` is an event for the hook that the disk has

    def digest(part: Any) -> bytes:
        """That of a part, which the windows of one trial share."""
        if (found := parts.get(identity(part))) is None:
            parts[identity(part)] = found = (part, _digest(part))
        return found[1]

    def contents(sample: WindowData) -> int:
        if (found := known.get(identity(sample))) is None:
            fields = b"".join(digest(getattr(sample, name)) for name in _FIELDS)
            whole = hashlib.blake2b(fields, digest_size=8)
            known[identity(sample)] = found = (sample, int.from_bytes(whole.digest(), "little"))
        return found[1]

    def alike(a: WindowData, b: object) -> bool:
        return a is b or (isinstance(b, WindowData) and contents(a) == contents(b))

    made, held = WindowData.__post_init__, dict[int, dict[Any, Any]]()

    def make(sample: WindowData) -> None:
        made(sample)
        sample.__dict__["known"] = held.setdefault(contents(sample), {})

    unpack, decode = window_cache.unpack, trial_files.decode_measurement
    decoded = functools.cache(lambda encoded: decode(orjson.loads(encoded)))

    def decode_once(tree: Mapping[str, Any]) -> Measurement:
        found: Measurement = decoded(orjson.dumps(tree))
        return found

    try:
        window_cache.unpack = functools.cache(unpack)
        trial_files.decode_measurement = decode_once  # type: ignore[attr-defined]
        WindowData.__post_init__ = make  # type: ignore[method-assign]
        WindowData.__eq__ = alike  # type: ignore[method-assign, assignment]
        WindowData.__hash__ = contents  # type: ignore[method-assign, assignment]
        yield
    finally:
        for cache in CACHES:
            cache.cache_clear()
        window_cache.unpack, trial_files.decode_measurement = unpack, decode  # type: ignore[attr-defined]
        WindowData.__post_init__ = made  # type: ignore[method-assign]
        WindowData.__eq__ = object.__eq__  # type: ignore[method-assign]
        WindowData.__hash__ = object.__hash__  # type: ignore[method-assign]
