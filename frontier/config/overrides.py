"""Values given beside the config file, as `--set requests=600`: put into its YAML nodes before anything is validated.

Each replacing node carries the option as the name of its mark, so a complaint about it names the option.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import yaml

from frontier.config.yaml_source import Document, compose
from frontier.errors import Complaint, ConfigError

_TIME_OF_DAY = re.compile(r"\d{1,2}:\d\d")
_MAP, _STR = "tag:yaml.org,2002:map", "tag:yaml.org,2002:str"


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
            where = f"--set {text}"
            complaint = Complaint("this is not key=value", "write  --set requests=600", where=where)
            raise ConfigError(where, (complaint,))
        return cls(f"--set {text}", key.strip(), value.strip())


def apply_settings(doc: Document, root: yaml.MappingNode, settings: Sequence[Setting]) -> None:
    """Put the settings into the nodes of a document, in their order; what cannot be put is added to its complaints."""
    for setting in settings:
        try:
            _apply(root, setting)
        except ConfigError as error:
            first = error.complaints[0]
            doc.complaints.append(Complaint(first.what, first.hint, where=setting.said))


def _refused(what: str, hint: str | None = None) -> ConfigError:
    return ConfigError("", (Complaint(what, hint),))


def _apply(root: yaml.MappingNode, setting: Setting) -> None:
    value = f'"{setting.value}"' if _TIME_OF_DAY.fullmatch(setting.value) else setting.value
    given, given_doc = compose(f"value: {value}\n", setting.said)
    if given_doc.complaints:
        raise ConfigError("", tuple(given_doc.complaints))
    if len(given.value) != 1 or not value.isprintable():
        raise _refused("the value is not one value", "quote it")
    holder: yaml.Node = root
    *outer, last = parts = setting.key.split(".")
    for i, part in enumerate(outer):
        node = _entry(holder, part, parts[:i])
        if node is None or (isinstance(node, yaml.ScalarNode) and not node.style and node.value in ("", "null", "~")):
            mark = given.start_mark
            node = yaml.MappingNode(_MAP, [], mark, mark, flow_style=True)
            _put(holder, part, node, parts[:i])
        if isinstance(node, yaml.ScalarNode):
            whole = ".".join(parts[: i + 1])
            raise _refused(f"{whole} holds no keys to set one of", f"set it as a whole:  --set '{whole}=...'")
        holder = node
    _put(holder, last, given.value[0][1], outer)


def _entry(holder: yaml.Node, part: str, path: Sequence[str]) -> yaml.Node | None:
    """The node under a key of a mapping, None when it is not there; in a list the entry of that name or position."""
    if isinstance(holder, yaml.MappingNode):
        return next((node for key, node in holder.value if key.value == part), None)
    return holder.value[_position(holder, part, path)]  # type: ignore[no-any-return]


def _put(holder: yaml.Node, part: str, node: yaml.Node, path: Sequence[str]) -> None:
    """Replace the node of a key or of a list's entry, or add the key."""
    if isinstance(holder, yaml.MappingNode):
        key = yaml.ScalarNode(_STR, part, node.start_mark, node.end_mark)
        index = next((i for i, (key, _) in enumerate(holder.value) if key.value == part), len(holder.value))
        holder.value[index : index + 1] = [(key, node)]
    else:
        holder.value[_position(holder, part, path)] = node


def _position(holder: yaml.Node, part: str, path: Sequence[str]) -> int:
    names: list[str | None] = [
        next((value.value for key, value in item.value if key.value == "name"), None)
        if isinstance(item, yaml.MappingNode)
        else None
        for item in holder.value
    ]
    if part in names:
        return names.index(part)
    if part.isdecimal() and len(part) < 6 and int(part) < len(names):
        return int(part)
    known = ", ".join(name for name in names if name is not None)
    raise _refused(f"there is no {part!r} in {'.'.join(path)}", f"known: {known}" if known else None)


def rendered(root: yaml.MappingNode) -> str:
    """The nodes as YAML, scalars as they were written; comments are lost."""
    text: str = yaml.serialize(root, Dumper=yaml.SafeDumper, width=10**9, allow_unicode=True)
    return text
