"""Which results of foreign files belong together: the name of each deployment, and the shape of each result.

A deployment is named by the facts that distinguish it from the others. A shape is of lengths that were asked for, or of
observed ones that are alike.
"""

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from frontier.errors import UsageError
from frontier.formats.documents import INCOMPLETE, short_hash
from frontier.formats.results import Result
from frontier.model import DEFAULT_DEPLOYMENT, MAX_TOKENS, Shape

MOST_DEPLOYMENTS = 1_000
LONGEST_NAME = 60
"""Characters of a name that a config takes."""
ALIKE = 0.05
"""Observed mean lengths within this share of each other are one shape."""
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]+")

Facts = tuple[tuple[str, str], ...]
Lengths = tuple[float, float]


# --- deployments


@dataclass(frozen=True, slots=True)
class Deployment:
    """A deployment of an import, as far as the files describe it."""

    name: str
    model: str | None = None
    gpus: int | None = None


def deployments_of(results: Sequence[Result], wanted: str | None = None) -> list[Deployment]:
    """The deployment of each result. `wanted` names the only one.

    Files without facts beside files of one deployment are taken to be of that one.
    UsageError when the files are of too many deployments, or of several where one name is wanted.
    """
    all_facts = [tuple(result.facts.items()) for result in results]
    known = [facts for facts in dict.fromkeys(all_facts) if facts]
    if len(known) > MOST_DEPLOYMENTS:
        raise UsageError(f"the files are of {len(known):,} deployments", "import a part of them")
    names = _distinct_names(known)
    if wanted is not None and len(known) > 1:
        listed = ", ".join(names.values())
        raise UsageError(f"the files are of {len(known)} deployments: {listed[:300]}", "leave --deployment out")
    if len(known) == 1:
        all_facts = known * len(results)
    elif () in all_facts:
        names[()] = _unused(DEFAULT_DEPLOYMENT, names.values())
    made = {}
    for facts in dict.fromkeys(all_facts):
        same = [result for result, theirs in zip(results, all_facts, strict=True) if theirs == facts]
        gpus = next((result.gpus for result in same if result.gpus), None)
        made[facts] = Deployment(wanted or names[facts], dict(facts).get("model"), gpus)
    return [made[facts] for facts in all_facts]


def _distinct_names(known: Sequence[Facts]) -> dict[Facts, str]:
    """As few facts as distinguish them all, joined to a name. A name in the file itself counts as it is."""
    keys = list(dict.fromkeys(key for facts in known for key, _ in facts))
    chosen: list[str] = []

    def groups(by: Iterable[str]) -> int:
        return len({tuple(dict(facts).get(key) for key in by) for facts in known})

    if all("deployment" in dict(facts) for facts in known):
        chosen, keys = ["deployment"], [key for key in keys if key != "deployment"]
    for key in keys:
        if groups(chosen) == len(known):
            break
        if groups([*chosen, key]) > groups(chosen):
            chosen.append(key)
    names: dict[Facts, str] = {}
    for facts in known:
        parts = [_part(key, dict(facts)[key]) for key in chosen if key in dict(facts)]
        names[facts] = _unused(_config_name("-".join(parts)) or DEFAULT_DEPLOYMENT, names.values())
    return names


def _unused(name: str, others: Iterable[str]) -> str:
    """The name, numbered where another has it; names that differ only in case would share a file name."""
    taken = {other.lower() for other in others}
    unused, number = name, 2
    while unused.lower() in taken:
        unused, number = f"{name[: LONGEST_NAME - 5]}-{number}", number + 1
    return unused


def _part(key: str, value: str) -> str:
    """A fact in a name; of a bare number, yes or no the key is part of it, as in 'tp8'."""
    bare = value.rstrip("/").rsplit("/", 1)[-1]
    ambiguous = bare.replace(".", "").isdigit() or bare.lower() in ("true", "false", "yes", "no")
    if not ambiguous or key == "deployment":
        return bare
    return f"v{bare}" if key.endswith("version") else f"{key.removesuffix('_size')}{bare}"


def _config_name(name: str) -> str:
    """A name a config takes: letters, digits, dot, dash, underscore. What is cut off stays in a short hash."""
    plain = _NO_NAME.sub("-", name).strip("-._")
    return plain if len(plain) <= LONGEST_NAME else f"{plain[: LONGEST_NAME - 9].rstrip('-._')}-{short_hash(name)}"


# --- shapes


def lengths_of(file: str, result: Result) -> Lengths:
    """Input and output tokens. ForeignFileError where the file does not give them, or impossible ones."""
    if not result.isl or not result.osl:
        raise result.error(file, "the lengths of inputs and outputs are not in it", "give them with  --shape 1024/256")
    longest = max(result.isl, result.osl)
    if longest > MAX_TOKENS:
        raise result.error(file, f"a length of {longest:,.0f} tokens is impossible", INCOMPLETE)
    return result.isl, result.osl


def replaced_lengths(items: Sequence[tuple[str, Result]], asked: Shape) -> str | None:
    """The note that the files have other lengths than the shape that is to replace them.

    ForeignFileError where they have several: results of different workloads would become one setting.
    """
    known = [(file, result, (result.isl, result.osl)) for file, result in items if result.isl and result.osl]
    for (_, _, first), (file, result, other) in itertools.product(known[:1], known):
        if not _alike(first, other):
            both = f"of the results some have {_words(first)} tokens, this one {_words(other)}"
            hint = "leave --shape out, or import the workloads one by one"
            raise result.error(file, f"--shape {asked.label}, and {both}", hint)
    others = [lengths for *_, lengths in known if not _alike(lengths, (asked.isl.mean, asked.osl.mean))]
    return f"--shape {asked.label} replaces the lengths in the files, {_words(others[0])}" if others else None


def _words(lengths: Lengths) -> str:
    return f"{lengths[0]:.6g}/{lengths[1]:.6g}"


def shapes_of(items: Sequence[tuple[str, Result]], deployments: Sequence[str]) -> list[Shape]:
    """The shape of each result, by the lengths in its file: those asked for are taken as they are; observed means join
    the nearest shape of their deployment that is alike, else each other.
    """
    lengths = [lengths_of(file, result) for file, result in items]
    shapes = [_rounded(of) if result.stated else None for of, (_, result) in zip(lengths, items, strict=True)]
    for deployment in dict.fromkeys(deployments):
        mine = [i for i, name in enumerate(deployments) if name == deployment]
        stated = dict.fromkeys(shape for i in mine if (shape := shapes[i]) is not None)
        groups: list[tuple[Lengths, Shape | None, list[int]]] = [((s.isl.mean, s.osl.mean), s, []) for s in stated]
        for i in [i for i in mine if shapes[i] is None]:
            near = next((group for group in groups if _alike(group[0], lengths[i])), None)
            if near is None:
                groups.append((lengths[i], None, [i]))
            else:
                near[2].append(i)
        for _, shape, members in groups:
            for i in members:
                shapes[i] = shape or _rounded(_middle([lengths[k] for k in members]))
    return [shape for shape in shapes if shape is not None]


def _rounded(lengths: Lengths) -> Shape:
    return Shape.of(*(max(1, round(length)) for length in lengths))


def _alike(a: Lengths, b: Lengths) -> bool:
    return all(abs(x - y) <= max(1.0, ALIKE * max(x, y)) for x, y in zip(a, b, strict=True))


def _middle(several: Sequence[Lengths]) -> Lengths:
    isl, osl = (sorted(side)[len(several) // 2] for side in zip(*several, strict=True))
    return isl, osl
