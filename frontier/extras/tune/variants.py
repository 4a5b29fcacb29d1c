"""Variants: the deployments that `vary` or `variants` make of one in a config. The first is the
baseline.

    start: vllm serve MODEL --max-num-seqs {seqs} {chunked}
    vary: {seqs: [64, 128], chunked: [null, [--enable-chunked-prefill]]}

A value is one word for the shell, a list is several, null is none. For an embedded engine the names
are parameters of the simulator.
"""

import itertools
import math
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import yaml

from frontier.config.yaml_source import compose, is_null

MOST = 64
"""Most variants of a race: each is started at least once, and a night has room for some 200 starts
of a large model."""
KEYS = ("vary", "variants")
ONLY = "only"
"""The key that limits a race to some of the variants; the first of them is its baseline."""
_COMMANDS = ("start", "ready", "stop")
_NAMED = re.compile(r"(?<!\$)\{([A-Za-z_][A-Za-z0-9_]*)\}")
_MAP, TEXT = "tag:yaml.org,2002:map", "tag:yaml.org,2002:str"
_LIKE_THIS = "write  vary: {seqs: [64, 128]}"

Combination = tuple[str | None, dict[str, yaml.Node]]
"""The values of a variant by their names, and its own name where it is given one."""
Words = tuple[str, ...]
"""A value as words of a command: none, one or several."""
Complain = Callable[[Any, str, str], None]
"""A function that takes a mistake: its mark, what it is, and what to do."""


class Mistake(Exception):  # noqa: N818
    """A deployment that cannot be expanded into variants."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One set of values. `start` is the command that starts it; None for the embedded engine."""

    name: str
    values: Mapping[str, Words]
    start: str | None = None

    @property
    def settings(self) -> str:
        """'seqs=64 budget=2048'."""
        return " ".join(f"{key}={' '.join(words) or 'none'}" for key, words in self.values.items())


def expand(root: yaml.MappingNode, complain: Complain) -> bool:
    """Put a deployment's variants in its place. True where there were any."""
    listed, varied = _deployments(root)
    if not varied:
        return False
    try:
        if len(listed) > 1:
            other = next(node for node in listed if node is not varied[0])
            refuse(complain, other, "a race is between the variants of one deployment", "remove the others")
        listed[:] = [made for _, made in _made_of(varied[0], complain)]
    except Mistake:
        for node in varied:  # what is wrong was said
            node.value = [(key, value) for key, value in node.value if key.value not in (*KEYS, ONLY)]
    return True


def variants_of(text: str, file: str) -> tuple[Variant, ...]:
    """The variants in the text of a sound config, the baseline first; empty where nothing is
    varied.
    """
    _, varied = _deployments(compose(text, file)[0])
    return tuple(variant for node in varied for variant, _ in _made_of(node, lambda *_: None))


def _deployments(root: yaml.Node) -> tuple[list[yaml.Node], list[yaml.MappingNode]]:
    """All deployments of a config, and its deployments with variants of a server."""
    nodes = deployments_in(root)
    mappings = [node for node in nodes if isinstance(node, yaml.MappingNode)]
    varied = [node for node in mappings if not entries(node).keys().isdisjoint(KEYS)]
    return nodes, [node for node in varied if "apply" not in entries(node)]


def deployments_in(root: yaml.Node) -> list[yaml.Node]:
    """The nodes of a config's deployments."""
    listed = entries(root).get("deployments")
    return listed.value if isinstance(listed, yaml.SequenceNode) else []


def _made_of(node: yaml.MappingNode, complain: Complain) -> Iterator[tuple[Variant, yaml.MappingNode]]:
    """Each variant of a deployment, with its node."""
    own, varied, combinations = combined(node, complain)
    only = own.pop(ONLY, None)
    simulated = getattr(own.get("endpoint"), "value", None) == "simulator"
    if not simulated:
        if "start" not in own:
            what = "variants are started by the race, and there is no  start:"
            refuse(complain, varied, what, "add it, or  endpoint: simulator")
        check_names(own, varied, combinations, complain)
    for name, values in _chosen(dict(named(own, combinations)), only, complain):
        words = {key: words_of(value) for key, value in values.items()}
        mine = {**own, "name": yaml.ScalarNode(TEXT, name, node.start_mark, node.end_mark)}
        if simulated:
            mine["simulator"] = _merged(own.get("simulator"), values, varied)
        else:
            mine |= {key: _filled(own[key], words) for key in _COMMANDS if key in own}
        start = mine.get("start")
        yield Variant(name, words, start.value if isinstance(start, yaml.ScalarNode) else None), mapping(mine, node)


def combined(node: yaml.MappingNode, complain: Complain) -> tuple[dict[str, yaml.Node], yaml.Node, list[Combination]]:
    """The fixed keys of a deployment, the node of its `vary` or `variants`, and the combinations
    that this lists.
    """
    own = entries(node)
    _refuse_again([key for key, _ in node.value if key.value in (*KEYS, ONLY)], complain)
    if len(own) < len(node.value):
        raise Mistake  # a key given twice stays in the node, and the reader of configs says so
    given = [(key, own.pop(key)) for key in list(own) if key in KEYS]
    key, varied = given[-1]
    if len(given) == 2:
        refuse(complain, varied, "vary and variants are two lists of the same", "keep one of the two")
    return own, varied, _grid(varied, complain) if key == "vary" else _list(varied, complain)


# ---- the values


def _grid(node: yaml.Node, complain: Complain) -> list[Combination]:
    """Every combination of `vary`, in the order of the lists: the first has the first of each."""
    if not isinstance(node, yaml.MappingNode) or not node.value:
        refuse(complain, node, "vary has names, each with its values", _LIKE_THIS)
    _refuse_again([key for key, _ in node.value], complain)
    names: list[str] = [key.value for key, _ in node.value]
    for key, values in node.value:
        if not isinstance(values, yaml.SequenceNode) or not values.value:
            refuse(complain, values, f"vary has no list of values for {key.value}", _LIKE_THIS)
    lists: list[list[yaml.Node]] = [values.value for _, values in node.value]
    if (count := math.prod(map(len, lists))) > MOST:
        refuse(complain, node, f"vary makes {count:,} combinations, and a race has at most {MOST}", "vary fewer values")
    return _enough([(None, dict(zip(names, each, strict=True))) for each in itertools.product(*lists)], node, complain)


def _list(node: yaml.Node, complain: Complain) -> list[Combination]:
    """The combinations of `variants`, each with its name."""
    entries = node.value if isinstance(node, yaml.SequenceNode) else []
    if not entries or not all(isinstance(entry, yaml.MappingNode) for entry in entries):
        refuse(complain, node, "variants is a list of names with values", "write  variants: [{name: a, seqs: 64}]")
    found: list[Combination] = []
    for entry in entries[: MOST + 1]:
        _refuse_again([key for key, _ in entry.value], complain)
        values = {key.value: value for key, value in entry.value}
        name = values.pop("name", None)
        if not isinstance(name, yaml.ScalarNode) or is_null(name) or not values:
            refuse(complain, entry, "a variant has a name and values", "write  {name: a, seqs: 64}")
        if name.value in (other for other, _ in found):
            refuse(complain, name, f"two variants are called {name.value}", "give each a name of its own")
        if missing := set(found[0][1] if found else values) ^ set(values):
            what = f"the variants do not have the same values: {sorted(missing)[0]} is in some of them"
            refuse(complain, entry, what, "give it in each; null is nothing at all")
        found.append((name.value, values))
    if len(entries) > MOST:
        refuse(complain, node, f"{len(entries):,} variants, and a race has at most {MOST}", "list fewer")
    return _enough(found, node, complain)


def _enough(found: list[Combination], node: yaml.Node, complain: Complain) -> list[Combination]:
    if len(found) < 2:
        refuse(complain, node, "one variant is no race", "add a value, or sweep it without  vary")
    known: list[dict[str, Words]] = []
    for _, values in found:
        words = {key: words_of(value, complain) for key, value in values.items()}
        if words in known:
            same = Variant("", words).settings
            refuse(complain, node, f"two variants are the same: {same}", "remove one of them: a race compares servers")
        known.append(words)
    return found


def words_of(value: yaml.Node, complain: Complain = lambda *_: None) -> Words:
    """A value as the words that it is for the shell. A complaint about any other value."""
    if is_null(value):
        return ()
    parts = value.value if isinstance(value, yaml.SequenceNode) else [value]
    if not all(isinstance(part, yaml.ScalarNode) and part.value.isprintable() for part in parts):
        refuse(complain, value, "a value is a word, a list of words, or null", _LIKE_THIS)
    return tuple(part.value for part in parts)


def named(
    own: Mapping[str, yaml.Node], combinations: Sequence[Combination]
) -> Iterator[tuple[str, dict[str, yaml.Node]]]:
    """The combinations of a deployment with their names: 'vllm-seqs64-budget2048', or a number
    where that is no name.
    """
    of = str(own["name"].value) if "name" in own else "variant"
    names = [name or _name(of, values) for name, values in combinations]
    plain = len(set(names)) == len(names) and max(map(len, names)) <= 60
    for i, (name, (given, values)) in enumerate(zip(names, combinations, strict=True), start=1):
        yield name if plain or given else f"{of[:50]}-{i}", values


def _chosen(
    named: Mapping[str, dict[str, yaml.Node]], only: yaml.Node | None, complain: Complain
) -> Iterable[tuple[str, dict[str, yaml.Node]]]:
    """All named variants, or those in `only`, in its order."""
    if only is None:
        return named.items()
    names = words_of(only, complain)
    for name in names:
        if name not in named:
            refuse(complain, only, f"there is no variant {name}", f"the variants are {', '.join(named)}")
    if len(set(names)) < 2:
        refuse(complain, only, "one variant is no race", "name two of them or more")
    return [(name, named[name]) for name in dict.fromkeys(names)]


def _name(of: str, values: Mapping[str, yaml.Node]) -> str:
    name = "-".join([of, *(f"{key}{'-'.join(words_of(value))}" for key, value in values.items())])
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)


# ---- the places of the values


def check_names(
    own: Mapping[str, yaml.Node],
    node: yaml.Node,
    combinations: Sequence[Combination],
    complain: Complain,
    commands: Sequence[str] = _COMMANDS,
) -> None:
    """Complain about a name in a command that has no value, and about a value without a place."""
    texts = [text for key in commands if key in own for text in _texts(own[key])]
    used = [(name, text) for text in texts for name in _NAMED.findall(text.value)]
    values = combinations[0][1]
    for name, text in used:
        if name not in values:
            hint = f"there are {', '.join(values)}; a variable of the shell is written ${{{name}}}"
            refuse(complain, text, f"{{{name}}} has no value", hint)
    for name in values:
        if not _NAMED.fullmatch(f"{{{name}}}"):
            what = f"{name} is no name: one has letters, digits and _, and does not begin with a digit"
            refuse(complain, node, what, f"call it another, in  {commands[0]}:  too")
        if name not in dict(used):
            refuse(complain, node, f"no command uses the value {name}", f"put  {{{name}}}  into  {commands[0]}:")


def _texts(node: yaml.Node) -> Iterator[yaml.ScalarNode]:
    """The texts of a node, which may be a mapping: {command: …}."""
    if isinstance(node, yaml.MappingNode):
        yield from (value for _, value in node.value if isinstance(value, yaml.ScalarNode))
    elif isinstance(node, yaml.ScalarNode):
        yield node


def _filled(node: yaml.Node, words: Mapping[str, Words]) -> yaml.Node:
    """A command with the values filled in; any other `{…}`, as of JSON, stays."""
    if isinstance(node, yaml.MappingNode):
        pairs = [(key, _filled(value, words)) for key, value in node.value]
        return yaml.MappingNode(node.tag, pairs, node.start_mark, node.end_mark)
    if not isinstance(node, yaml.ScalarNode):
        return node
    text = _NAMED.sub(lambda match: shlex.join(words.get(match[1], (match[0],))), node.value).strip()
    return yaml.ScalarNode(node.tag, text, node.start_mark, node.end_mark, style='"')


def _merged(simulator: yaml.Node | None, values: Mapping[str, yaml.Node], at: yaml.Node) -> yaml.MappingNode:
    """The engine's parameters with the values among them; null leaves one out."""
    merged = mapping({key: value for key, value in values.items() if not is_null(value)}, at)
    before = simulator.value if isinstance(simulator, yaml.MappingNode) else []
    merged.value = [*((key, value) for key, value in before if key.value not in values), *merged.value]
    return merged


# ---- nodes


def entries(node: yaml.Node | None) -> dict[str, yaml.Node]:
    """What a mapping holds by its keys; nothing of another node."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return {key.value: value for key, value in pairs if isinstance(key, yaml.ScalarNode)}


def mapping(entries: Mapping[str, yaml.Node], at: yaml.Node) -> yaml.MappingNode:
    """A mapping of these entries, in the place of a node."""
    pairs = [(yaml.ScalarNode(TEXT, k, at.start_mark, at.end_mark), value) for k, value in entries.items()]
    return yaml.MappingNode(_MAP, pairs, at.start_mark, at.end_mark)


def _refuse_again(keys: Sequence[yaml.Node], complain: Complain) -> None:
    """Complain about a key that is given twice; a dict would keep only the last."""
    for i, key in enumerate(keys):
        if key.value in [before.value for before in keys[:i]]:
            refuse(complain, key, f"{key.value!r} is given twice", "remove one of them")


def refuse(complain: Complain, node: yaml.Node, what: str, hint: str) -> NoReturn:
    complain(node.start_mark, what, hint)
    raise Mistake
