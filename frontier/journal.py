"""The journal of a run: one JSON object a line, on the disk before the next step is taken, and never half a line."""

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from frontier.files import writing


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
        """All of it; a line that was damaged or torn by a kill is left out."""
        lines: list[dict[str, Any]] = []
        if self._path.exists():
            for line in self._path.read_bytes().splitlines():
                with suppress(orjson.JSONDecodeError):
                    said = orjson.loads(line)
                    lines += [said] if isinstance(said, dict) and isinstance(said.get("event"), str) else []
        return lines

    def mend(self) -> None:
        """Take away the half line that a killed predecessor may have left."""
        if self._path.exists() and (said := self._path.read_bytes()) and not said.endswith(b"\n"):
            os.truncate(self._path, said.rfind(b"\n") + 1)

    def forget(self) -> None:
        """It is another sweep's: begin anew."""
        self._path.unlink(missing_ok=True)
