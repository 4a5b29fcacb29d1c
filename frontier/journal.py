"""The journal of a run: one JSON object a line, on the disk before the next step is taken, and never half a line."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from frontier.files import writing
from frontier.units import usable

_NEEDED = {
    **dict.fromkeys(("trial_begun", "trial_done", "skipped"), ("trial",)),
    "dropped": ("trials",),
    "server": ("deployment", "identity", "model"),
}
"""What a line of this event must have beside its time."""


def _number(said: Any) -> bool:
    return usable(said) is not None


def _text(said: Any) -> bool:
    return isinstance(said, str)


def _texts(said: Any) -> bool:
    return isinstance(said, list) and all(map(_text, said))


def _spent(said: Any) -> bool:
    known = {"seconds", "requests", "tokens", "dollars"}
    return isinstance(said, dict) and said.keys() <= known and all(map(_number, said.values()))


_FACTS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("event", "trial", "deployment", "identity", "model", "reason", "text"), _text),
    **dict.fromkeys(("trials", "flags"), _texts),
    **dict.fromkeys(("time", "took", "sent", "tokens"), _number),
    "spent": _spent,
}
"""What a fact of this name must be, where a line has it."""


def _sound(said: Any) -> bool:
    """A run may come from a stranger: a line of the journal is one that can be relied on, or none."""
    if not isinstance(said, dict) or not all(test(said[name]) for name, test in _FACTS.items() if name in said):
        return False
    counted = ("sent", "tokens") if "took" in said else ()
    needed = ("event", "time", *_NEEDED.get(said.get("event", ""), ()), *counted)
    return all(name in said for name in needed) and 0 <= said["time"] < 1e11


class Journal:
    """The file `path`; it need not exist yet."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, event: str, **facts: Any) -> None:
        """One line, on the disk when this returns. WriteError otherwise, and then nothing of it is left.

        Half a line would spoil the next one too, which is told of the same night when there is room again.
        """
        line = orjson.dumps({"time": round(time.time(), 3), "event": event, **facts}, option=orjson.OPT_APPEND_NEWLINE)
        with writing(self._path), self._path.open("ab", buffering=0) as file:
            before = file.tell()
            try:
                if (put := file.write(line)) != len(line):
                    file.write(line[put:])  # which tells what is wrong
                os.fsync(file.fileno())
            except OSError:
                with suppress(OSError):
                    file.truncate(before)
                raise

    def lines(self) -> list[dict[str, Any]]:
        """All of it; a line that was damaged, torn by a kill, or is none of ours is left out."""
        lines: list[dict[str, Any]] = []
        if self._path.exists():
            for line in self._path.read_bytes().splitlines():
                with suppress(orjson.JSONDecodeError):
                    lines += [said] if _sound(said := orjson.loads(line)) else []
        return lines

    def mend(self) -> None:
        """Take away the half line that a killed predecessor may have left."""
        if self._path.exists() and (said := self._path.read_bytes()) and not said.endswith(b"\n"):
            os.truncate(self._path, said.rfind(b"\n") + 1)

    def forget(self) -> None:
        """It is another sweep's: begin anew."""
        self._path.unlink(missing_ok=True)
