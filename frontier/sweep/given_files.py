"""Files that a config names and a sweep reads: a server's key, and prompts.

A key file is read only if its permissions keep other users from reading and writing it.
"""

import functools
import hashlib
import json
import os
import platform
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from frontier._version import __version__
from frontier.client.ask.prompts import FilePrompt
from frontier.client.secrets import looks_like_a_key, looks_random
from frontier.config import Config
from frontier.config.config_file import with_prompts, with_trace
from frontier.config.connection import LONGEST_KEY, usable_key
from frontier.core.model.errors import UsageError
from frontier.store.files import read_given


def read_key_file(path: Path) -> str:
    """The key in a file, one line. UsageError when the file is missing, others may read it, or it
    holds no key.
    """
    try:
        data, mode = read_given(path, LONGEST_KEY + 1), stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            others = f"others may read or write it (mode {mode:04o})"
            raise UsageError(f"the key file {path} is not used: {others}", f"chmod 600 {path}")
        text = data.decode()
    except FileNotFoundError as error:
        # A name that is no file's may be the key itself.
        named = "that api_key_file names" if looks_random(path.name) or looks_like_a_key(path.name) else str(path)
        raise UsageError(f"there is no key file {named}", "write the key into it, and  chmod 600  it") from error
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"the key file {path} cannot be read: {reason}") from error
    return usable_key(text, f"the key file {path}")


# --- prompts

_MOST_BYTES = 2 * 2**30
_EXAMPLE = 'write one {"prompt": "..."} per line, or a ShareGPT array'


def read_prompts(path: Path) -> Sequence[FilePrompt]:
    """The prompts of a file: JSON lines with "prompt" (and optionally "output_tokens" and
    "reference"), or a ShareGPT JSON array ("conversations", first human turn). UsageError when
    there are none.
    """
    try:
        return _read(path, path.stat().st_mtime_ns)
    except OSError as error:
        raise UsageError(
            f"cannot read prompts from {path}: {error.strerror}", "write its path as seen from this directory"
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not a text file in UTF-8", _EXAMPLE) from error


@functools.lru_cache(maxsize=2)
def _read(path: Path, _modified: int) -> Sequence[FilePrompt]:
    """As read_prompts, cached: a ShareGPT file takes seconds to read, and every trial needs it."""
    text = read_given(path, _MOST_BYTES).decode("utf-8-sig")
    if text.lstrip().startswith("["):
        rows = _json(text, str(path))
    else:
        # Not splitlines: JSON strings may hold other line ends than this one.
        rows = [_json(line, f"{path}:{i}") for i, line in enumerate(text.split("\n"), 1) if line.strip()]
    prompts = tuple(prompt for prompt in map(_prompt_of, rows) if prompt is not None)
    if not prompts:
        raise UsageError(f"{path} holds no prompts", _EXAMPLE)
    return prompts


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageError(f"{where}: not JSON: {error}", _EXAMPLE) from error


def _prompt_of(row: Any) -> FilePrompt | None:
    if not isinstance(row, dict):
        return None
    osl, reference = row.get("output_tokens"), row.get("reference")
    for turn in row.get("conversations") or row.get("conversation") or ():
        if isinstance(turn, dict) and turn.get("from", turn.get("role")) in ("human", "user"):
            text = turn.get("value", turn.get("content"))
            return FilePrompt(text, reference=reference) if isinstance(text, str) and text else None
    text = row.get("prompt", row.get("text"))
    known = osl if isinstance(osl, int) and osl > 0 else None
    return FilePrompt(text, known, reference) if isinstance(text, str) and text else None


def with_files(config: Config) -> Config:
    """The config with the times of its trace and the number of prompts in its file. UsageError
    where one of them is needed and cannot be read.
    """
    config = with_trace(config)
    if config.passes is None or config.prompts_file is None:
        return config
    return with_prompts(config, len(read_prompts(Path(config.prompts_file))))


def prompts_facts(prompts: str | None) -> dict[str, str]:
    """The digest of the file of prompts, kept in the manifest so that a resumed sweep notices a
    changed file.

    {} where no file has them, or where the file cannot be read: sending the prompts then raises
    the error.
    """
    if prompts is None:
        return {}
    try:
        content = read_given(Path(prompts), _MOST_BYTES)
    except OSError:
        return {}
    return {"prompts_sha256": hashlib.sha256(content).hexdigest()}


def begun_with(config_file: str, prompts_file: str | None) -> dict[str, str]:
    """The facts that a run keeps of its start: the tool, the config, the client's machine and the
    prompts. UsageError when the prompts' file cannot be read.
    """
    return {
        "frontier": __version__,
        "config_file": config_file,
        "python": platform.python_version(),
        "client": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
        **prompts_facts(prompts_file),
    }
