"""Packs for tests: a small run, its pack, and edits of what is in it with or without the hashes
made again."""

import hashlib
import zipfile
from collections.abc import Callable
from pathlib import Path

import orjson

from frontier.audit import archive
from frontier.audit.check import state
from frontier.store.run_dir import RunDirectory
from frontier.store.trial_files import sealed, unsealed

Files = dict[str, bytes]


def packed(run: Path, pack: Path) -> Path:
    """The pack of a run as the command makes it, without its warnings."""
    archive.write(pack, run, RunDirectory.read(run).finished(), state(run)[1])
    return pack


def contents(pack: Path) -> Files:
    """The files in a pack."""
    with zipfile.ZipFile(pack) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def zipped(files: Files, pack: Path) -> Path:
    """A pack of these files."""
    with zipfile.ZipFile(pack, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in files.items():
            made.writestr(name, data)
    return pack


def hashed_again(files: Files) -> Files:
    """The files with every hash made again: of the records, of the evidence, and those that the
    claim lists.
    """
    files = dict(files)
    for name in [name for name in files if name.startswith("run/evidence/")]:
        tree, _ = unsealed(files[name])
        records = files.get(
            name.replace("evidence", "trials").replace(".json", ".jsonl"), files.get("run/imported.jsonl")
        )
        if records is not None:
            tree |= {"sha256": hashlib.sha256(records).hexdigest(), "bytes": len(records)}
        if "records" in tree and records is not None:
            tree["records"] = len(records.splitlines())
        files[name] = sealed(tree)
    claim = orjson.loads(files["claim.json"])
    claim["files"] = {
        name.removeprefix("run/"): {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in files.items()
        if name != "claim.json"
    }
    return files | {"claim.json": orjson.dumps(claim)}


def written(files: Files, scratch: Path) -> Path:
    """The run in these files, with every hash made again, as a directory."""
    for name, data in hashed_again(files).items():
        (scratch / name).parent.mkdir(parents=True, exist_ok=True)
        (scratch / name).write_bytes(data)
    return scratch / "run"


def stated_again(files: Files, scratch: Path) -> Path:
    """A pack of these files as an owner of the run would make it: hashes, points and answers made
    again.
    """
    return packed(written(files, scratch), scratch / "claim.zip")


def of_json(change: Callable[[dict[str, object]], None], data: bytes) -> bytes:
    """A JSON file after a change of its tree."""
    tree = orjson.loads(data)
    change(tree)
    return orjson.dumps(tree)
