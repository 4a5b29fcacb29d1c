"""The sample of a finished trial, and its cache under `derived/`. No pickle: a run directory may
come from a stranger.

A cache is the digest of all that follows; the length of the head in eight bytes; the head as JSON;
then each array that it lists. `np.savez` would be shorter to write, and takes twice as long to
read.
"""

import dataclasses
import gc
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, get_type_hints

import numpy as np

from frontier.core.model.errors import StoreError
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Measurement
from frontier.core.window.from_records import window_of_batches
from frontier.core.window.histogram import ALPHA, X0, LogHistogram
from frontier.core.window.window import WindowData
from frontier.store.records import build, shape_tree
from frontier.store.run_dir import RunDirectory
from frontier.store.trial_files import TrialEvidence

VERSION = 14
"""Raised whenever `window_of_batches` or `WindowData` changes what it says; older caches are then
made anew."""
TYPES = ("<f8", "<i8", "|b1")
_DIGEST = hashlib.sha256().digest_size
_LENGTH = 8
_CACHE_BYTES = 2**32
_KINDS = get_type_hints(WindowData)


def load_window_data(run: RunDirectory, measurement: Measurement, evidence: TrialEvidence | None = None) -> WindowData:
    """The sample of a finished trial: from the cache, or from its records, which then makes the
    cache.

    AlteredError when the records are not as they were written. A cache stands for the records only
    while their file is as it was when they were read and hashed; a run that was copied is read once
    more.
    """
    key = measurement.trial.key
    evidence = evidence or run.evidence(key)
    before, _ = run.mark(key)
    made_from = f"{evidence.digest} {before}"
    if evidence.altered is None:
        with suppress(OSError):
            cached = run.derived("samples").read(f"{key}.sample", _CACHE_BYTES)
            if (sample := unpack(cached, made_from)) is not None:
                return sample
    try:
        behind = run.batches(key, evidence, background=True) if measurement.trial.shape.background else ()
        with _without_collection():
            sample = window_of_batches(measurement, run.batches(key, evidence), behind)
    except (OSError, TypeError, ValueError, AttributeError, OverflowError) as error:
        run.require_unaltered(key)
        file = run.trial_file(key)
        raise StoreError(f"trial {file} cannot be read: {error}", f"remove {file} to measure it again") from error
    if run.mark(key) == (before, True):
        with suppress(OSError):  # a read-only run directory is still read, only more slowly
            cache = run.derived("samples")
            cache.make()
            cache.write_whole(f"{key}.sample", pack(sample, made_from))
    return sample


@contextmanager
def _without_collection() -> Iterator[None]:
    """No garbage collection in this block: it would look through the records read so far again and
    again, which hold no cycles.
    """
    collected = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collected:
            gc.enable()


def pack(sample: WindowData, made_from: str) -> bytes:
    """The sample as bytes behind their own digest; `made_from` names the data it was made of."""
    names = [field.name for field in dataclasses.fields(WindowData) if field.name != "power_rule"]  # the config's
    fields = {name: getattr(sample, name) for name in names}
    fields["load"] = sample.load.stored
    fields |= {f"itl_{part}": array for part, array in LogHistogram.flat(fields.pop("block_itl")).items()}
    arrays = {
        name: np.ascontiguousarray(value, next(t for t in TYPES if t[1] == value.dtype.kind))
        for name, value in fields.items()
        if isinstance(value, np.ndarray)
    }
    head = {
        "version": VERSION,
        "made_from": made_from,
        "bins": [ALPHA, X0],
        "arrays": [[name, array.dtype.str, len(array)] for name, array in arrays.items()],
        "plain": {name: value for name, value in fields.items() if name not in arrays},
    }
    encoded = json.dumps(head, default=_tree).encode()
    body = b"".join([len(encoded).to_bytes(_LENGTH, "little"), encoded, *(a.tobytes() for a in arrays.values())])
    return hashlib.sha256(body).digest() + body


def _tree(value: Any) -> dict[str, Any]:
    return shape_tree(value) if isinstance(value, Shape) else dataclasses.asdict(value)


def unpack(data: bytes, made_from: str) -> WindowData | None:
    """What `pack` made, or None when it is damaged, of another version, or made from other data."""
    body = data[_DIGEST:]
    if data[:_DIGEST] != hashlib.sha256(body).digest():
        return None
    try:
        at = _LENGTH + int.from_bytes(body[:_LENGTH], "little")
        head = json.loads(body[_LENGTH:at])
        if (head["version"], head["made_from"], head["bins"]) != (VERSION, made_from, [ALPHA, X0]):
            return None
        fields: dict[str, Any] = {name: build(_KINDS[name], value) for name, value in head["plain"].items()}
        for name, kind, length in head["arrays"]:
            if kind not in TYPES or length < 0:
                return None
            fields[name] = np.frombuffer(body, kind, length, at) if length else np.empty(0, kind)
            at += fields[name].nbytes
        parts = ("sizes", "bins", "counts", "totals")
        fields["block_itl"] = LogHistogram.of_flat(**{part: fields.pop(f"itl_{part}") for part in parts})
        return WindowData(**fields)
    except (AttributeError, ValueError, KeyError, TypeError, RecursionError):
        return None
