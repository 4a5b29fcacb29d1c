"""A sample as bytes and back, for the cache under `derived/`. No pickle: a run directory may come from a stranger."""

import dataclasses
import hashlib
import io
import json
import zipfile
from typing import Any

import numpy as np

from frontier.analyze.histogram import LogHistogram
from frontier.analyze.sample import Sample
from frontier.model import ClientHealth, Lengths, Shape

VERSION = 1
"""Raised whenever `window.sample` or `Sample` changes what it says; older caches are then made anew."""
_DIGEST = hashlib.sha256().digest_size


def pack(sample: Sample, made_from: str) -> bytes:
    """The sample as an npz file behind its own digest; `made_from` names the data it was made of."""
    arrays: dict[str, Any] = {}
    plain: dict[str, Any] = {}
    for field in dataclasses.fields(Sample):
        value = getattr(sample, field.name)
        if isinstance(value, np.ndarray):
            arrays[field.name] = value
        elif field.name == "block_itl":
            plain[field.name] = [histogram.to_dict() for histogram in value]
        elif field.name == "shape":
            plain[field.name] = dataclasses.asdict(value)
        elif field.name == "health":
            plain[field.name] = [dataclasses.asdict(health) for health in value]
        else:
            plain[field.name] = value
    head = json.dumps({"version": VERSION, "made_from": made_from, "plain": plain})
    out = io.BytesIO()
    np.savez(out, allow_pickle=False, head=np.frombuffer(head.encode(), np.uint8), **arrays)
    body = out.getvalue()
    return hashlib.sha256(body).digest() + body


def unpack(data: bytes, made_from: str) -> Sample | None:
    """What `pack` made, or None when it is damaged, of another version, or made from other data."""
    body = data[_DIGEST:]
    if data[:_DIGEST] != hashlib.sha256(body).digest():
        return None  # not left to the parser: numpy's stumbles over a damaged head in more ways than one can list
    try:
        with np.load(io.BytesIO(body), allow_pickle=False) as file:
            head = json.loads(file["head"].tobytes())
            if head["version"] != VERSION or head["made_from"] != made_from:
                return None
            fields = {name: file[name] for name in file.files if name != "head"} | head["plain"]
            shape = fields["shape"]
            fields["shape"] = Shape(**shape | {"isl": Lengths(**shape["isl"]), "osl": Lengths(**shape["osl"])})
            fields["block_itl"] = tuple(LogHistogram.from_dict(tree) for tree in fields["block_itl"])
            fields["health"] = tuple(ClientHealth(**tree) for tree in fields["health"])
            for name in ("server_identities", "server", "ended"):
                fields[name] = tuple(fields[name])
            return Sample(**fields)
    except (ValueError, KeyError, TypeError, EOFError, OSError, zipfile.BadZipFile):
        return None
