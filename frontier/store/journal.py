"""The journal of a run: one JSON object a line, never a partial line.

A line is on the disk before the next step is taken.
"""

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass
from typing import Any

import orjson

from frontier.client.secrets import masked
from frontier.core.model.errors import StoreError
from frontier.store.files import Folder, too_large, writing
from frontier.store.records import LATEST, build, require_usable, stored, stored_tree
from frontier.world import world

MOST_BYTES, LINE_BYTES = 512 * 2**20, 8 * 2**20
"""The most bytes of a journal, and of one line. The program writes no longer line."""

_NEEDED = {
    **dict.fromkeys(("trial_begun", "trial_done", "skipped"), ("trial",)),
    "dropped": ("trials",),
    "server": ("deployment", "identity", "model"),
    "supervised": ("deployment", "leader", "start", "system"),
    "answered": ("deployment",),
}
"""What a line of this event must have beside its time."""


@dataclass(frozen=True, slots=True)
class Amount:
    """What something takes: seconds, requests sent, output tokens received, dollars."""

    seconds: float = 0.0
    requests: float = 0.0
    tokens: float = 0.0
    dollars: float = 0.0

    @classmethod
    def of(cls, lines: Sequence[Mapping[str, Any]]) -> "Amount":
        """What the sessions of a run had spent by its journal."""
        return cls(**next((line["spent"] for line in reversed(lines) if "spent" in line), {}))

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(  # written out, as it is added up for each request
            self.seconds + other.seconds,
            self.requests + other.requests,
            self.tokens + other.tokens,
            self.dollars + other.dollars,
        )

    def __mul__(self, factor: float) -> "Amount":
        return Amount(*(factor * part for part in astuple(self)))

    def tree(self) -> dict[str, float]:
        """The amount for JSON."""
        return {name: round(value, 3) for name, value in asdict(self).items()}


_KINDS: dict[str, Any] = {
    **dict.fromkeys(("event", "trial", "deployment", "identity", "model", "reason", "text", "version"), str),
    **dict.fromkeys(("config", "directory", "system"), str),
    **dict.fromkeys(("trials", "flags", "settings", "names", "limits"), tuple[str, ...]),
    **dict.fromkeys(("time", "took", "sent", "tokens", "process", "since"), float),
    **dict.fromkeys(("client_processes", "leader", "start"), int),
    "spent": Amount,
}
"""The type of a fact of this name, where a line has it."""


def _is_sound(line: Any) -> bool:
    """Whether a line can be relied on: a run may come from a stranger."""
    try:
        facts = {name: line[name] for name in _KINDS.keys() & line.keys()}
        for name, fact in facts.items():
            build(_KINDS[name], fact)
        require_usable(facts)
        needed = ("event", "time", *_NEEDED.get(line["event"], ()), *(("sent", "tokens") if "took" in line else ()))
        return facts.keys() >= set(needed) and 0 <= line["time"] < LATEST
    except (AttributeError, KeyError, TypeError, ValueError):
        return False


class Journal:
    """The file `name` in a folder; it need not exist yet."""

    def __init__(self, folder: Folder, name: str = "journal.jsonl") -> None:
        self._folder, self._name = folder, name
        self._path = folder.path / name

    def append(self, event: str, **facts: Any) -> None:
        """One line, on the disk when this returns. WriteError otherwise, and then nothing of it is
        left: a partial line would corrupt the next one once there is space again. Texts may be a
        server's: they are bounded, and cleaned; a reason, which may repeat its words, is masked.
        """
        if isinstance(reason := facts.get("reason"), str):
            facts["reason"] = masked(reason)
        tree = stored_tree({"time": round(world().wall(), 3), "event": event, **facts})
        line = orjson.dumps(tree, option=orjson.OPT_APPEND_NEWLINE)
        with writing(self._path), self._folder.appender(self._name) as file:
            before = file.tell()
            try:
                if (written := file.write(line)) != len(line):
                    file.write(line[written:])  # a second try has an error that names the cause
                os.fsync(file.fileno())
            except OSError:
                with suppress(OSError):
                    file.truncate(before)
                raise

    def lines(self) -> list[dict[str, Any]]:
        """All lines, less those that were damaged, cut by a kill, or are not of this program.
        StoreError when it cannot be read.
        """
        try:
            file = self._folder.reader(self._name, MOST_BYTES)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreError(f"cannot read {self._path}: {error.strerror or error}") from error
        lines: list[dict[str, Any]] = []
        with file:
            while line := file.readline(LINE_BYTES):
                with suppress(orjson.JSONDecodeError):
                    lines += [tree] if _is_sound(tree := orjson.loads(line)) else []
                if file.tell() > MOST_BYTES:
                    raise too_large(self._path, None, MOST_BYTES)
        return lines

    def mend(self) -> None:
        """Remove the partial line that a killed predecessor may have left."""
        with suppress(FileNotFoundError):
            descriptor = self._folder.open(self._name, os.O_RDWR)
            with os.fdopen(descriptor, "r+b") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - LINE_BYTES))
                tail = file.read()
                if tail and not tail.endswith(b"\n"):
                    file.truncate(size - len(tail) + tail.rfind(b"\n") + 1)

    def forget(self) -> None:
        """Remove it: it is another sweep's."""
        self._folder.unlink(self._name)


def server_words(model: Any, identity: Any) -> str:
    """A server in words, the same for a server asked now as for the one in a journal, where long
    texts are cut.
    """
    return f"{stored(str(model))} on {stored(str(identity))}"


VIRTUAL = "virtual"
"""The identity of the simulator in virtual time."""


def servers(lines: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The model and server each deployment was begun with."""
    begun = [line for line in lines if line["event"] == "server"]
    return {line["deployment"]: server_words(line["model"], line["identity"]) for line in reversed(begun)}


def sessions(lines: Sequence[Mapping[str, Any]]) -> list[Sequence[Mapping[str, Any]]]:
    """The lines since each time that the sweep was begun or resumed."""
    begun = [i for i, line in enumerate(lines) if i and line["event"] in ("created", "resumed")]
    return [lines[first:end] for first, end in itertools.pairwise((0, *begun, len(lines)))]


def last_session(lines: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The lines since the sweep was last begun or resumed."""
    return sessions(lines)[-1]
