"""Settings given beside the file, as `--set requests=600`: put into the document, then validated like all else.

A setting stands on a line of its own behind the file's, so a complaint about it leads there and is told by its name.
"""

import copy
import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from frontier.config.yamltext import Document, Path, Place, read_yaml
from frontier.errors import Complaint, ConfigError

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_TIME_OF_DAY = re.compile(r"\d{1,2}:\d\d")


@dataclass(frozen=True, slots=True)
class Setting:
    """`key` ('sla.p99_ttft') gets `value` (YAML); `said` is what messages call it ('--set sla.p99_ttft=400ms')."""

    said: str
    key: str
    value: str

    @classmethod
    def of(cls, text: str) -> "Setting":
        """Of 'key=value'. ConfigError without the '='."""
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(
                f"--set {text}",
                (Complaint("this is not key=value", "write  --set requests=600", where=f"--set {text}"),),
            )
        return cls(f"--set {text}", key.strip(), value.strip())


def settled(doc: Document, settings: Sequence[Setting]) -> Document:
    """The document with the settings in place, each on a line behind the last of the file."""
    for setting in settings:
        doc = _settle(doc, setting)
    return doc


def _settle(doc: Document, setting: Setting) -> Document:
    line = len(doc.lines) + 1
    place = Place(line, 1)
    doc = dataclasses.replace(doc, tree=copy.deepcopy(doc.tree), lines=(*doc.lines, setting.said))

    def refused(what: str, hint: str | None = None) -> Document:
        wrong = Complaint(what, hint, line, 1, setting.said)
        return dataclasses.replace(doc, complaints=(*doc.complaints, wrong))

    path: Path = ()
    holder: Any = doc.tree
    *outer, last = setting.key.split(".")
    for part in outer:
        key = _key(holder, part)
        if isinstance(holder, dict) and holder.get(part) is None:
            holder[part] = {}
        if key is None:
            return refused(*_nothing_there(path, part, holder))
        if not isinstance(holder[key], dict | list):
            whole = ".".join([*map(str, path), part])
            return refused(f"{whole} holds no keys to set one of", f"set it as a whole:  --set '{whole}=...'")
        path, holder = (*path, key), holder[key]
    key = _key(holder, last)
    if key is None:
        return refused(*_nothing_there(path, last, holder))
    value = f'"{setting.value}"' if _TIME_OF_DAY.fullmatch(setting.value) else setting.value
    try:
        given = read_yaml(f"value: {value}\n", setting.said)
    except ConfigError as error:
        return refused(error.complaints[0].what, error.complaints[0].hint)
    if set(given.tree) != {"value"} or not value.isprintable():
        return refused("the value is not one value", "quote it")
    holder[key] = given.tree["value"]
    at = (*path, key)

    def moved(table: Mapping[Path, Any], new: Mapping[Path, Any]) -> dict[Path, Any]:
        kept = {p: item for p, item in table.items() if p[: len(at)] != at}
        return kept | {at + p[1:]: item for p, item in new.items() if p[:1] == ("value",)}

    above = {at[:n]: place for n in range(1, len(at)) if at[:n] not in doc.values}
    return dataclasses.replace(
        doc,
        keys=moved(doc.keys, dict.fromkeys(given.keys, place)) | above,
        values=moved(doc.values, dict.fromkeys(given.values, place)) | above,
        texts=moved(doc.texts, given.texts),
        complaints=(
            *doc.complaints,
            *(dataclasses.replace(c, line=line, column=1, source_line=setting.said) for c in given.complaints),
        ),
        unread=frozenset(moved(dict.fromkeys(doc.unread), dict.fromkeys(given.unread))),
    )


def _key(holder: Any, part: str) -> str | int | None:
    """The key or the place in a list that a part of a path means; in a list an entry may be named."""
    if isinstance(holder, dict):
        return part
    assert isinstance(holder, list)
    for i, item in enumerate(holder):
        if isinstance(item, dict) and item.get("name") == part:
            return i
    return int(part) if part.isdecimal() and len(part) < 6 and int(part) < len(holder) else None


def _nothing_there(path: Path, part: str, holder: list[Any]) -> tuple[str, str | None]:
    known = ", ".join(str(item["name"]) for item in holder if isinstance(item, dict) and "name" in item)
    return f"there is no {part!r} in {'.'.join(map(str, path))}", f"known: {known}" if known else None


def told(complaint: Complaint, doc_lines: int) -> Complaint:
    """A complaint about a setting leads to the setting, not to a line that no file has."""
    if complaint.line is None or complaint.line <= doc_lines:
        return complaint
    return Complaint(complaint.what, complaint.hint, where=complaint.source_line or "--set")


def rendered(doc: Document) -> str:
    """The document as YAML of its own, one top-level key a line; numbers as they were written."""
    return "".join(f"{_scalar(key)}: {_flow(doc, (key,), item)}\n" for key, item in doc.tree.items())


def _flow(doc: Document, path: Path, value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_scalar(k)}: {_flow(doc, (*path, k), v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_flow(doc, (*path, i), v) for i, v in enumerate(value)) + "]"
    return _quoted(value) if isinstance(value, str) else doc.texts[path]


def _scalar(key: str) -> str:
    return key if _PLAIN_KEY.fullmatch(key) else _quoted(key)


def _quoted(text: str) -> str:
    plain = (ch if ch.isprintable() and ch not in '"\\' else f"\\U{ord(ch):08x}" for ch in text)
    return '"' + "".join(plain) + '"'
