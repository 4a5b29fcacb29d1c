"""Variants that are the same server, however their commands are written.

A race between them measures the noise of the machine. The order of options, `--x=1` against
`--x 1`, `0.90` against `0.9` and `--max_seqs` against `--max-seqs` make no other server.
"""

import json
import re
import shlex
from dataclasses import asdict
from decimal import Decimal
from typing import Any

from frontier.config import Config, DeploymentConfig

Words = tuple[str, ...]
"""An option with the words that follow it; or the words of a command before its first option."""
_NUMBER = re.compile(r"[+-]?[0-9]+([.][0-9]+)?")
_OPTION = re.compile(r"--?[A-Za-z]")
_ASSIGNED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
_ENDS = frozenset(";&|()<>")
"""The characters of the shell that end a command or lead elsewhere."""


def same_server(config: Config) -> tuple[str, str] | None:
    """The names of two variants that differ in nothing but their names or in how their commands are
    written, as where a value is what the engine uses anyway; None without two.
    """
    bare = {"name": "", "simulator": None, "start": None}
    servers = [(d.model_copy(update=bare), _server(d)) for d in config.deployments]
    for i, server in enumerate(servers):
        if server in servers[:i]:
            return config.deployments[servers.index(server)].name, config.deployments[i].name
    return None


def _server(deployment: DeploymentConfig) -> Any:
    """What starts a deployment's server, in a form that equal servers share."""
    return _engine(deployment) if deployment.is_simulator else commands_of(deployment.start or "")


def _engine(deployment: DeploymentConfig) -> Any:
    """The parameters of an embedded engine, to twelve digits: 0.2 ms and 200 us are read as
    neighbouring numbers.
    """
    tree = json.dumps(asdict(deployment.engine_spec()), default=str)
    return json.loads(tree, parse_float=lambda text: f"{float(text):.12g}")


def commands_of(line: str) -> list[Any]:
    """The commands of a shell line, in their order. The options of each are sorted by their names.
    Where one is given several times, its values keep their order, and equal ones count once.
    """
    lexer = shlex.shlex(line.replace("\\\n", " "), posix=True, punctuation_chars="".join(_ENDS))
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(lexer)
    except ValueError:  # a quote that is not closed: the shell will say so
        return [line]
    commands: list[Any] = [[]]
    for word in words:
        if _ENDS.issuperset(word):
            commands += [word, []]
        else:
            commands[-1].append(word)
    return [_sorted(each) if isinstance(each, list) else each for each in commands]


def _sorted(words: list[str]) -> tuple[list[str], Words, list[Words], list[str]]:
    """A command: what is assigned before it, the words before its first option, its options sorted,
    and what follows `--`.
    """
    first = next((i for i, word in enumerate(words) if not _ASSIGNED.fullmatch(word)), len(words))
    end = words.index("--") if "--" in words else len(words)
    groups: list[list[str]] = [[]]
    for word in words[first:end]:
        if not _OPTION.match(word):
            groups[-1].append(_plain(word))
            continue
        name, equals, value = word.partition("=")
        groups.append([name.replace("_", "-"), *([_plain(value)] if equals else [])])
    options = sorted(dict.fromkeys(map(tuple, groups[1:])), key=_place)
    return sorted(words[:first]), tuple(groups[0]), options, words[end:]


def _place(option: Words) -> tuple[str, str]:
    """The place of an option among others: by its name and, as in `--set key=value`, the key."""
    name, *values = option
    return name, values[0].partition("=")[0] if values and "=" in values[0] else ""


def _plain(word: str) -> str:
    """A word; a number without the zeros that change nothing."""
    return str(Decimal(word).normalize()) if _NUMBER.fullmatch(word) else word
