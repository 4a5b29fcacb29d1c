"""YAML text to a plain tree, with the line and column of every key and value, through PyYAML's
nodes.

YAML 1.1 reads `no` as false, `010` as eight, `1:30` as ninety and `1e3` as text; YAML 1.2 reads
each otherwise. Such scalars are refused by name, so a config means the same to every reader. All
mistakes are reported together. Only a syntax error is reported alone, because the text after it
cannot be trusted.
"""

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from frontier.config.complaints import Complaint, ConfigError
from frontier.fields import Path

MAX_BYTES = 128 * 1024
"""The largest config that is read, in bytes: reading YAML is slow, and nothing that a person writes
comes near."""
MAX_NODES = 10_000
"""The most values, with every alias written out; an alias of aliases grows without bound."""
MAX_DEPTH = 20
LONGEST_SHOWN = 200
"""The longest line, in characters, that a complaint shows."""
_MINIMAL = "write one key a line, as  endpoint: http://localhost:8000/v1"
_WRITE_OUT = "write the value out"
_TEXT = "tag:yaml.org,2002:str"
_LINE_ENDS = re.compile(r"\r\n|[\n\r\x85\u2028\u2029]")


@dataclass(slots=True)
class YamlDocument:
    """The tree of a config, and the place of each key and value.

    - `nodes`: the YAML nodes of the values, with their marks and the text of scalars as written.
    - `complaints`: mistakes in the text itself. The value in question stays in the tree as written.
    """

    file: str
    lines: tuple[str, ...]
    tree: dict[str, Any] = field(default_factory=dict)
    keys: dict[Path, yaml.Mark] = field(default_factory=dict)
    nodes: dict[Path, yaml.Node] = field(default_factory=dict)
    complaints: list[Complaint] = field(default_factory=list)

    def complaint(self, path: Path, what: str, hint: str | None = None, *, at_key: bool = False) -> Complaint:
        """A complaint at `path`, or at the nearest place around it that is in the text."""
        while path and path not in self.nodes:
            path = path[:-1]
        mark = self.keys.get(path) if at_key else None
        return self.at_mark(mark or self.nodes[path].start_mark, what, hint)

    def at_mark(self, mark: Any, what: str, hint: str | None = None) -> Complaint:
        """A complaint at a mark. One in a `--set` names the option, since no line of the file can
        be shown.
        """
        if mark.name != self.file:
            return Complaint(what, hint, where=mark.name)
        line = self.lines[mark.line] if mark.line < len(self.lines) else ""
        shown = line if line.strip() and len(line) <= LONGEST_SHOWN else None
        return Complaint(what, hint, mark.line + 1, mark.column + 1, shown)

    def text(self, path: Path) -> str:
        """The scalar at `path` as it was written; '' without one."""
        node = self.nodes.get(path)
        return node.value if isinstance(node, yaml.ScalarNode) else ""


def compose(text: str, file: str) -> tuple[yaml.MappingNode, YamlDocument]:
    """The node graph of a text, and a document that has no tree yet, only complaints about the
    text. ConfigError when the text holds no mapping, or cannot be read on safely. Messages call it
    `file`.
    """
    doc = YamlDocument(file, tuple(_LINE_ENDS.split(text)))
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        what = f"the config is larger than {MAX_BYTES // 1024} KiB"
        raise ConfigError(file, (Complaint(what, "a config is a page"),))
    root = None
    try:
        root = _Composer(text, doc).get_single_node()
    except _Stop:
        pass
    except yaml.YAMLError as error:
        doc.complaints.append(_syntax(error, text, doc))
    except (ValueError, OverflowError):  # an escape such as "\UFFFFFFFF" names no character
        doc.complaints.append(Complaint("a \\U escape names no character", "write the character itself"))
    if isinstance(root, yaml.MappingNode):
        return root, doc
    if not doc.complaints:
        empty = is_null(root)
        kind = "a list" if isinstance(root, yaml.SequenceNode) else "a single value"
        what = "the config is empty" if empty else f"a config is keys with values; this is {kind}"
        hint = "frontier init URL > sweep.yaml  writes one" if empty else _MINIMAL
        mark = yaml.Mark(file, 0, 0, 0, None, 0) if root is None or empty else root.start_mark
        doc.complaints.append(doc.at_mark(mark, what, hint))
    raise ConfigError(file, tuple(doc.complaints))


class _Stop(Exception):  # noqa: N818
    """Raised where reading on would not be safe; the reason is among the complaints."""


class _Composer(yaml.SafeLoader):
    """PyYAML's composer with a bound on depth, and without tags.

    The bound is checked before a node is composed. PyYAML composes recursively, so without the
    bound a text of many brackets would end in a RecursionError.
    """

    def __init__(self, text: str, doc: YamlDocument) -> None:
        super().__init__(text)
        self.name = doc.file  # every mark carries it
        self._doc = doc
        self._open: list[str] = []  # the anchors of the nodes around the next one, '' where it has none

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]
        self._check(event, is_key=isinstance(parent, yaml.MappingNode) and index is None)
        if isinstance(event, yaml.AliasEvent) and event.anchor not in self.anchors:
            self._complain(event, f"*{event.anchor} refers to nothing: no &{event.anchor} comes before it", _WRITE_OUT)
            self.get_event()  # type: ignore[no-untyped-call]
            mark: Any = event.start_mark
            return yaml.ScalarNode(_TEXT, f"*{event.anchor}", mark, mark)
        self._open.append(getattr(event, "anchor", None) or "")
        node = super().compose_node(parent, index)
        self._open.pop()
        return node

    def _check(self, event: yaml.Event, *, is_key: bool) -> None:
        anchor, tag = getattr(event, "anchor", None), getattr(event, "tag", None)
        if is_key and not (isinstance(event, yaml.ScalarEvent) and anchor is None and tag is None):
            self._stop(event, "a key is plain text", _MINIMAL)
        if len(self._open) > MAX_DEPTH:
            self._stop(event, f"values are nested deeper than {MAX_DEPTH} levels", "a config needs three")
        if isinstance(event, yaml.AliasEvent):
            if anchor in self._open:
                self._stop(event, f"*{anchor} stands inside &{anchor} itself", _WRITE_OUT)
        elif anchor is not None:
            self.anchors.pop(anchor, None)  # PyYAML refuses a name that is used again
        if tag is not None:
            name = tag.replace("tag:yaml.org,2002:", "!!")[:60]
            self._complain(event, f"the tag {name} is not used here", "remove it; quote a value that is text")

    def _complain(self, event: yaml.Event, what: str, hint: str) -> None:
        self._doc.complaints.append(self._doc.at_mark(event.start_mark, what, hint))

    def _stop(self, event: yaml.Event, what: str, hint: str) -> None:
        self._complain(event, what, hint)
        raise _Stop


def fill(doc: YamlDocument, root: yaml.MappingNode) -> None:
    """Write the tree of the nodes into the document, with the places. ConfigError when it holds too
    many values.
    """
    try:
        doc.tree = _value(doc, root, ())
    except _Stop:
        raise ConfigError(doc.file, tuple(doc.complaints)) from None


def _value(doc: YamlDocument, node: yaml.Node, path: Path) -> Any:
    if len(doc.nodes) >= MAX_NODES:
        what = f"the config holds more than {MAX_NODES:,} values"
        doc.complaints.append(doc.at_mark(node.start_mark, what, "a config is a page"))
        raise _Stop
    doc.nodes[path] = node
    if isinstance(node, yaml.MappingNode):
        return _mapping(doc, node, path)
    if isinstance(node, yaml.SequenceNode):
        return [_value(doc, item, (*path, i)) for i, item in enumerate(node.value)]
    assert isinstance(node, yaml.ScalarNode)
    if node.style is not None:
        return node.value
    trouble = ambiguous(node.value)
    if trouble is not None:
        doc.complaints.append(doc.at_mark(node.start_mark, *trouble))
        return node.value
    return plain_value(node.value)


def _mapping(doc: YamlDocument, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key: str = key_node.value
        if key == "<<" and key_node.style is None:
            what, hint = "merge keys (<<) are not used here", "write its keys out here"
            if "deployments" in path:
                hint += "; a deployment inherits the top-level keys"
            doc.complaints.append(doc.at_mark(key_node.start_mark, what, hint))
            continue
        if key in tree:
            what = f"{key[:60]!r} is given twice; the first is on line {doc.keys[(*path, key)].line + 1}"
            doc.complaints.append(doc.at_mark(key_node.start_mark, what, "remove one of them"))
            _value(doc, value_node, (*path, f"{key} (again)"))
            continue
        doc.keys[(*path, key)] = key_node.start_mark
        tree[key] = _value(doc, value_node, (*path, key))
    return tree


_BOOL_LIKE = {"yes", "no", "on", "off", "true", "false"}
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)")
_FLOAT = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)?\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?|[-+]?(?:0|[1-9][0-9_]*)\.")
_EXPONENT = re.compile(r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9_]+)[eE][-+]?[0-9]+")
_SEXAGESIMAL = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?")
_OTHER_BASE = re.compile(r"[-+]?0(?:[0-9_]+|x[0-9a-fA-F_]+|o[0-7_]+|b[01_]+)")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_MAX_DIGITS = 18


def ambiguous(text: str) -> tuple[str, str] | None:
    """Why an unquoted scalar means different things to different readers, and the remedy; None when
    it is clear.
    """
    quoted = f'"{text}"'
    if text.lower() in _BOOL_LIKE and text not in ("true", "false"):
        word = "true" if text.lower() in ("yes", "on", "true") else "false"
        return f"{text} is a boolean to some YAML readers and text to others", f"write {word}, or {quoted} for text"
    if _NOT_FINITE.fullmatch(text):
        return f"{text} is not a number that can be used here", "write a finite number, or leave the key out"
    if len(text) > 60:
        if text.strip("+-0123456789_.") == "":
            return f"a number of {len(text)} characters is too long", "write a number of at most 18 digits"
        return None
    if _OTHER_BASE.fullmatch(text):
        hint = f"write the number in decimal, or {quoted} for text"
        return f"{text} is octal or hexadecimal to some YAML readers", hint
    if _SEXAGESIMAL.fullmatch(text):
        return f"{text} is a base-60 number to some YAML readers", f"write a duration as 1min30s, or {quoted} for text"
    if _EXPONENT.fullmatch(text) and not _FLOAT.fullmatch(text):
        return f"{text} is text to some YAML readers and a number to others", f"{_written_out(text)}, or {quoted}"
    if _INT.fullmatch(text) and len(text.strip("+-").replace("_", "")) > _MAX_DIGITS:
        return f"{text[:20]}... has more than {_MAX_DIGITS} digits", "write a smaller number"
    if _FLOAT.fullmatch(text) and abs(float(text.replace("_", ""))) == float("inf"):
        return f"{text} is too large for a number", "write a smaller number"
    return None


def is_null(node: yaml.Node | None) -> bool:
    """Whether there is no node, or the node is null."""
    return node is None or (isinstance(node, yaml.ScalarNode) and not node.style and plain_value(node.value) is None)


def plain_value(text: str) -> str | int | float | bool | None:
    """The value of an unambiguous unquoted scalar: null, true, false, a decimal number, otherwise
    text.
    """
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text in ("true", "false"):
        return text == "true"
    if _INT.fullmatch(text):
        return int(text.replace("_", ""))
    if _FLOAT.fullmatch(text):
        return float(text.replace("_", ""))
    return text


def _written_out(text: str) -> str:
    value = float(text.replace("_", ""))
    if abs(value) >= 1e15 or (value != 0 and abs(value) < 1e-6):
        return "write the number out"
    return f"write {value:.0f}" if value == round(value) else f"write {value:.12f}".rstrip("0")


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
    ("but found another document", "a second document starts here", "keep one sweep in one file"),
    ("expected the node content", "a value is missing here", "write the value, or quote it"),
)


_HIDDEN = re.compile("^[^#'\"\n]*?[\u00a0\u2007\u202f\u200b\u2060]", re.MULTILINE)
"""A space of a word processor outside of quotes and comments."""


def _syntax(error: yaml.YAMLError, text: str, doc: YamlDocument) -> Complaint:
    """The complaint about a syntax error, in plain words."""
    if (hidden := _HIDDEN.search(text)) is not None:
        line, column = text.count("\n", 0, hidden.end()), hidden.end() - text.rfind("\n", 0, hidden.end()) - 2
        place = yaml.Mark(doc.file, hidden.end(), line, column, None, 0)
        return doc.at_mark(place, "an invisible character stands here, no plain space", "write a plain space")
    if isinstance(error, yaml.reader.ReaderError):
        line = len(_LINE_ENDS.findall(text[: error.position])) + 1
        column = error.position - max(text.rfind("\n", 0, error.position), text.rfind("\r", 0, error.position))
        code = error.character if isinstance(error.character, int) else ord(error.character[:1] or "\0")
        return Complaint(f"the character U+{code:04X} cannot stand in a config", "remove it", line, column)
    opened = getattr(error, "context_mark", None)
    mark, problem = getattr(error, "problem_mark", None) or opened, str(getattr(error, "problem", "") or "")
    unknown = "this cannot be read as YAML", "check quotes, brackets and indentation around here"
    what, hint = next(((what, hint) for part, what, hint in _SYNTAX if part in problem), unknown)
    if mark is None:
        return Complaint(what, hint)
    if ("not closed" in what or "never closed" in what) and opened is not None:
        mark = opened
    return doc.at_mark(mark, what, hint)
