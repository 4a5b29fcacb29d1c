"""The journal of a run: one JSON object a line, on the disk before the next step is taken, and never half a line."""

import io
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

import orjson

from frontier.errors import StoreError
from frontier.store.files import Folder, too_large, writing
from frontier.text import stored, stored_tree
from frontier.units import usable

MOST_BYTES, LINE_BYTES = 512 * 2**20, 8 * 2**20
"""Of a journal and of a line of it. A longer line is none of ours."""

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
    """The file `name` in a folder; it need not exist yet."""

    def __init__(self, folder: Folder, name: str = "journal.jsonl") -> None:
        self._folder, self._name = folder, name
        self._path = folder.path / name

    def append(self, event: str, **facts: Any) -> None:
        """One line, on the disk when this returns. WriteError otherwise, and then nothing of it is left.

        Half a line would spoil the next one too, which is told of the same night when there is room again. Its words
        may be a server's: they are bounded, and cleaned.
        """
        said = stored_tree({"time": round(time.time(), 3), "event": event, **facts})
        line = orjson.dumps(said, option=orjson.OPT_APPEND_NEWLINE)
        with writing(self._path), self._folder.appender(self._name) as file:
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
        with self._readable() as file:
            while line := file.readline(LINE_BYTES):
                with suppress(orjson.JSONDecodeError):
                    lines += [said] if _sound(said := orjson.loads(line)) else []
                if file.tell() > MOST_BYTES:
                    raise too_large(self._path, None, MOST_BYTES)
        return lines

    @contextmanager
    def _readable(self) -> Iterator[BinaryIO]:
        """The file, or nothing where there is none. StoreError when it cannot be read."""
        try:
            file = self._folder.reader(self._name, MOST_BYTES)
        except FileNotFoundError:
            file = io.BytesIO()
        except OSError as error:
            raise StoreError(f"cannot read {self._path}: {error.strerror or error}") from error
        with file:
            yield file

    def mend(self) -> None:
        """Take away the half line that a killed predecessor may have left."""
        with suppress(FileNotFoundError):
            descriptor = self._folder.open(self._name, os.O_RDWR)
            with os.fdopen(descriptor, "r+b") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - LINE_BYTES))
                tail = file.read()
                if tail and not tail.endswith(b"\n"):
                    file.truncate(size - len(tail) + tail.rfind(b"\n") + 1)

    def forget(self) -> None:
        """It is another sweep's: begin anew."""
        self._folder.unlink(self._name)


def server_words(model: Any, identity: Any) -> str:
    """A server as the journal knows it: what is told of the same server twice is the same."""
    return f"{stored(str(model))} on {stored(str(identity))}"


def servers(lines: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The model and server each deployment was begun with."""
    said = [line for line in lines if line["event"] == "server"]
    return {line["deployment"]: server_words(line["model"], line["identity"]) for line in reversed(said)}
