"""YAML text to a plain tree in which every key and value knows its line and column.

YAML 1.1 reads `no` as false, `010` as eight, `1:30` as ninety and `1e3` as text; YAML 1.2 reads each otherwise. Here
such scalars are refused by name, so a config means the same to every reader. Everything wrong is reported at once,
except after a syntax error, behind which nothing can be trusted.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from frontier.errors import Complaint, ConfigError

MAX_BYTES = 128 * 1024
"""Largest config read: reading YAML is slow, and nothing a person writes comes near."""
MAX_NODES = 10_000
"""Most values after every alias is written out; an alias of aliases grows without bound."""
MAX_DEPTH = 20
MAX_ANCHORS = 100

Path = tuple[str | int, ...]
"""Where a value is: keys and list positions from the top."""


@dataclass(frozen=True, slots=True)
class Place:
    """A line and column, both counted from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Document:
    """The tree, and where each key and value of it stands. `texts` holds each scalar as the user wrote it.

    `complaints` are about the text itself; the values at `unread` are among them, and are None in the tree.
    """

    file: str
    tree: dict[str, Any]
    keys: Mapping[Path, Place]
    values: Mapping[Path, Place]
    texts: Mapping[Path, str]
    lines: tuple[str, ...]
    complaints: tuple[Complaint, ...] = ()
    unread: frozenset[Path] = frozenset()

    def complaint(self, path: Path, what: str, hint: str | None = None, *, at_key: bool = False) -> Complaint:
        """`what` is wrong at `path`, or at the nearest place around it that the text has."""
        while path and path not in self.values:
            path = path[:-1]
        place = self.keys.get(path) if at_key else None
        place = place or self.values.get(path) or Place(1, 1)
        return Complaint(what, hint, place.line, place.column, source_line(self.lines, place.line))


def read_yaml(text: str, file: str) -> Document:
    """Read `text` as far as it goes, with complaints. ConfigError only when no tree can be made of it."""
    lines = tuple(re.split(r"\r\n|[\n\r\x85\u2028\u2029]", text))
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        what = f"the config is larger than {MAX_BYTES // 1024} KiB"
        raise ConfigError(file, (Complaint(what, "a config is a page"),))
    composer = _Composer(lines)
    try:
        found, tree = composer.document(yaml.parse(text, Loader=yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise ConfigError(file, (*composer.complaints, _syntax(error, text, lines))) from None
    except (ValueError, OverflowError):  # an escape such as "\UFFFFFFFF" names no character
        raise ConfigError(file, (Complaint("a \\U escape names no character", "write the character itself"),)) from None
    except _Stop:
        raise ConfigError(file, tuple(composer.complaints)) from None
    if not composer.complaints:
        if not found or tree is None:
            composer.complain(Place(1, 1), "the config is empty", "frontier init URL > sweep.yaml  writes one")
        elif not isinstance(tree, dict):
            kind = "a list" if isinstance(tree, list) else "a single value"
            composer.complain(composer.values[()], f"a config is keys with values; this is {kind}", _MINIMAL)
    if not isinstance(tree, dict):
        raise ConfigError(file, tuple(composer.complaints))
    return Document(
        file, tree, composer.keys, composer.values, composer.texts, lines, tuple(composer.complaints),
        frozenset(composer.unread),
    )  # fmt: skip


_MINIMAL = "write one key a line, as  endpoint: http://localhost:8000/v1"


def source_line(lines: tuple[str, ...], line: int) -> str | None:
    """The line as written; None when there is none or it is too long to help."""
    if not 1 <= line <= len(lines):
        return None
    text = lines[line - 1]
    return text if text.strip() and len(text) <= 200 else None


class _Stop(Exception):  # noqa: N818
    """Reading on would not be safe; the reason is among the complaints."""


@dataclass(slots=True)
class _Anchor:
    """What an alias stands for: the value and how many values it is made of."""

    value: Any
    nodes: int
    texts: dict[Path, str]


@dataclass(slots=True)
class _Composer:
    """Builds the tree from the parser's events."""

    lines: tuple[str, ...]
    complaints: list[Complaint] = field(default_factory=list)
    keys: dict[Path, Place] = field(default_factory=dict)
    values: dict[Path, Place] = field(default_factory=dict)
    texts: dict[Path, str] = field(default_factory=dict)
    anchors: dict[str, _Anchor | None] = field(default_factory=dict)
    unread: set[Path] = field(default_factory=set)
    nodes: int = 0

    def complain(self, place: Place, what: str, hint: str | None = None) -> None:
        self.complaints.append(Complaint(what, hint, place.line, place.column, source_line(self.lines, place.line)))

    def document(self, events: Iterator[yaml.Event]) -> tuple[bool, Any]:
        """The first document, and whether there was one."""
        found, tree = False, None
        for event in events:
            if not isinstance(event, yaml.DocumentStartEvent):
                continue
            if found:
                self.complain(_place(event), "a second document starts here", "keep one sweep in one file")
                raise _Stop
            found, tree = True, self.value(next(events), events, ())
        return found, tree

    def value(self, event: yaml.Event, events: Iterator[yaml.Event], path: Path) -> Any:
        """The value that `event` begins."""
        place, before = _place(event), self.nodes
        self.values[path] = place
        self._count(1, place)
        if len(path) > MAX_DEPTH:
            self.complain(place, f"values are nested deeper than {MAX_DEPTH} levels", "a config needs three")
            raise _Stop
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, place, path)
        tag = getattr(event, "tag", None)
        if tag is not None and tag != "!":
            name = tag.replace("tag:yaml.org,2002:", "!!")
            self.complain(place, f"the tag {name[:60]} is not used here", "remove it; quote a value that is text")
        anchor = getattr(event, "anchor", None)
        if anchor is not None:
            if len(self.anchors) >= MAX_ANCHORS:
                self.complain(place, f"more than {MAX_ANCHORS} anchors", "a deployment inherits the top-level keys")
                raise _Stop
            self.anchors[anchor] = None
        result: Any
        if isinstance(event, yaml.ScalarEvent):
            result = self._scalar(event, place, path)
        elif isinstance(event, yaml.SequenceStartEvent):
            result = self._list(events, path)
        else:
            result = self._mapping(events, path)
        if anchor is not None:
            texts = {p[len(path) :]: t for p, t in self.texts.items() if p[: len(path)] == path}
            self.anchors[anchor] = _Anchor(result, self.nodes - before, texts)
        return result

    def _count(self, nodes: int, place: Place) -> None:
        self.nodes += nodes
        if self.nodes > MAX_NODES:
            self.complain(place, f"the config holds more than {MAX_NODES:,} values", "a config is a page")
            raise _Stop

    def _alias(self, event: yaml.AliasEvent, place: Place, path: Path) -> Any:
        name = str(event.anchor)
        if name not in self.anchors:
            self.complain(place, f"*{name} refers to nothing: no &{name} comes before it", "write the value out")
            return None
        anchor = self.anchors[name]
        if anchor is None:
            self.complain(place, f"*{name} stands inside &{name} itself", "write the value out")
            return None
        self._count(anchor.nodes, place)
        self.texts.update({path + p: t for p, t in anchor.texts.items()})
        return anchor.value

    def _list(self, events: Iterator[yaml.Event], path: Path) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(events), yaml.SequenceEndEvent):
            items.append(self.value(event, events, (*path, len(items))))
        return items

    def _mapping(self, events: Iterator[yaml.Event], path: Path) -> dict[str, Any]:
        items: dict[str, Any] = {}
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            place = _place(event)
            if not isinstance(event, yaml.ScalarEvent) or event.anchor is not None or event.tag is not None:
                self.complain(place, "a key is plain text", _MINIMAL)
                raise _Stop
            key = event.value
            at = (*path, key)
            if key == "<<" and event.style is None:
                self.complain(place, "merge keys (<<) are not used here", "a deployment inherits the top-level keys")
            elif key in items:
                first = self.keys[at].line
                self.complain(place, f"{key[:60]!r} is given twice; the first is on line {first}", "remove one of them")
                self.value(next(events), events, (*path, f"{key} (again)"))
                continue
            self.keys[at] = place
            items[key] = self.value(next(events), events, at)
        return items

    def _scalar(self, event: yaml.ScalarEvent, place: Place, path: Path) -> Any:
        self.texts[path] = event.value
        if event.style is not None or event.tag == "!":
            return event.value
        trouble = ambiguous(event.value)
        if trouble is not None:
            self.complain(place, *trouble)
            self.unread.add(path)
            return None
        return plain_value(event.value)


_BOOL_LIKE = {"yes", "no", "on", "off", "true", "false"}
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)")
_FLOAT = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)?\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?|[-+]?(?:0|[1-9][0-9_]*)\.")
_EXPONENT = re.compile(r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9_]+)[eE][-+]?[0-9]+")
_SEXAGESIMAL = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?")
_OTHER_BASE = re.compile(r"[-+]?0(?:[0-9_]+|x[0-9a-fA-F_]+|o[0-7_]+|b[01_]+)")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_MAX_DIGITS = 18


def ambiguous(text: str) -> tuple[str, str] | None:
    """Why an unquoted scalar means different things to different readers, and the way out; None when it is clear."""
    quoted = f'"{text}"'
    if text.lower() in _BOOL_LIKE and text not in ("true", "false"):
        word = "true" if text.lower() in ("yes", "on", "true") else "false"
        return f"{text} is a truth value to some YAML readers and text to others", f"write {word}, or {quoted} for text"
    if _NOT_FINITE.fullmatch(text):
        return f"{text} is not a number that can be used here", "write a finite number, or leave the key out"
    if len(text) > 60:
        if text.strip("+-0123456789_.") == "":
            return f"a number of {len(text)} characters is too long", "write a number of at most 18 digits"
        return None
    if _OTHER_BASE.fullmatch(text):
        return f"{text} is octal or hexadecimal to some YAML readers", f"{_decimal(text)}, or {quoted} for text"
    if _SEXAGESIMAL.fullmatch(text):
        return f"{text} is a base-60 number to some YAML readers", f"write a duration as 1min30s, or {quoted} for text"
    if _EXPONENT.fullmatch(text) and not _FLOAT.fullmatch(text):
        return f"{text} is text to some YAML readers and a number to others", f"{_written_out(text)}, or {quoted}"
    if _INT.fullmatch(text) and len(text.strip("+-").replace("_", "")) > _MAX_DIGITS:
        return f"{text[:20]}... has more than {_MAX_DIGITS} digits", "write a smaller number"
    if _FLOAT.fullmatch(text) and abs(float(text.replace("_", ""))) == float("inf"):
        return f"{text} is too large for a number", "write a smaller number"
    return None


def plain_value(text: str) -> str | int | float | bool | None:
    """What an unambiguous unquoted scalar means: null, true, false, a decimal number, else text."""
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text in ("true", "false"):
        return text == "true"
    if _INT.fullmatch(text):
        return int(text.replace("_", ""))
    if _FLOAT.fullmatch(text):
        return float(text.replace("_", ""))
    return text


def _decimal(text: str) -> str:
    digits = text.lstrip("+-0").replace("_", "")
    sign = "-" if text.startswith("-") else ""
    return f"write {sign}{digits or '0'}" if digits.isdecimal() or not digits else "write the number in decimal"


def _written_out(text: str) -> str:
    value = float(text.replace("_", ""))
    if abs(value) >= 1e15 or (value != 0 and abs(value) < 1e-6):
        return "write the number out"
    return f"write {value:.0f}" if value == round(value) else f"write {value:.12f}".rstrip("0")


def _place(event: yaml.Event) -> Place:
    mark = event.start_mark
    assert mark is not None
    return Place(mark.line + 1, mark.column + 1)


_SYNTAX = (
    ("character '\\t'", "a tab stands where spaces must", "indent with spaces"),
    ("character '%'", "a value cannot start with %", "quote it"),
    ("character '@'", "a value cannot start with @", "quote it"),
    ("character '`'", "a value cannot start with `", "quote it"),
    ("mapping values are not allowed", "a ':' stands where no key can", "check the indentation, or quote the text"),
    ("could not find expected ':'", "this is neither  key: value  nor part of a list", "write  key: value"),
    ("expected <block end>", "the indentation does not fit the lines above", "align the key with its neighbours"),
    ("expected ',' or ']'", "a list opened with [ is not closed", "close it with ]"),
    ("expected ',' or '}'", "a mapping opened with { is not closed", "close it with }"),
    ("end of stream", "a quote is opened and never closed", "close it"),
    ("unknown escape character", "a double-quoted text holds an unknown \\ escape", "use single quotes"),
    ("block sequence entries are not allowed", "a '- ' stands where no list can", "start the list on its own line"),
    ("undefined tag handle", "a tag is not used here", "remove it; quote a value that is text"),
    ("expected the node content", "a value is missing here", "write the value, or quote it"),
)


def _syntax(error: yaml.YAMLError, text: str, lines: tuple[str, ...]) -> Complaint:
    """A syntax error in our words."""
    if isinstance(error, yaml.reader.ReaderError):
        line = len(re.findall(r"\r\n|[\n\r\x85\u2028\u2029]", text[: error.position])) + 1
        column = error.position - max(text.rfind("\n", 0, error.position), text.rfind("\r", 0, error.position))
        code = error.character if isinstance(error.character, int) else ord(error.character[:1] or "\0")
        return Complaint(f"the character U+{code:04X} cannot stand in a config", "remove it", line, column)
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = str(getattr(error, "problem", "") or "")
    what, hint = "this cannot be read as YAML", "check quotes, brackets and indentation around here"
    for part, sentence, advice in _SYNTAX:
        if part in problem:
            what, hint = sentence, advice
            break
    if mark is None:
        return Complaint(what, hint)
    opened = getattr(error, "context_mark", None)
    if ("not closed" in what or "never closed" in what) and opened is not None:
        mark = opened
    line = mark.line + 1
    return Complaint(what, hint, line, mark.column + 1, source_line(lines, line))
