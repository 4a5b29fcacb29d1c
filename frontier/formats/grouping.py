"""Which results of foreign files are of one workload: lengths that were asked for, or observed ones that are alike."""

import itertools
from collections.abc import Mapping, Sequence

from frontier.formats.found import Result, Trace, wrong
from frontier.model import MAX_TOKENS, Shape

ALIKE = 0.05
"""Observed mean lengths within this share of each other are one shape."""

Lengths = tuple[float, float]


def lengths_of(file: str, what: Result | Trace) -> Lengths:
    """Input and output tokens. ForeignFileError where the file does not say them, or they cannot be."""
    if not what.isl or not what.osl:
        raise wrong(file, what, "it does not say how long inputs and outputs are", "say it with  --shape 1024/256")
    longest = max(what.isl, what.osl)
    if longest > MAX_TOKENS:
        raise wrong(file, what, f"a length of {longest:,.0f} tokens cannot be", "see whether the file is whole")
    return what.isl, what.osl


def replaced(items: Sequence[tuple[str, Result | Trace]], asked: Shape) -> str | None:
    """What to know where the files say other lengths than the shape they are to be of.

    ForeignFileError where they say several: results of different workloads would become one setting.
    """
    told = [(file, what, (what.isl, what.osl)) for file, what in items if what.isl and what.osl]
    others = [(file, what, of) for file, what, of in told if not _alike(of, (asked.isl.mean, asked.osl.mean))]
    for (_, _, first), (file, what, other) in itertools.product(told[:1], told):
        if not _alike(first, other):
            said = f"--shape {asked.label}, and of the results some have {_said(first)} tokens, this one {_said(other)}"
            raise wrong(file, what, said, "leave --shape out, or import the workloads one by one")
    return f"--shape {asked.label} replaces the lengths in the files, {_said(others[0][2])}" if others else None


def _said(lengths: Lengths) -> str:
    return f"{lengths[0]:.6g}/{lengths[1]:.6g}"


def shapes(asked: Mapping[int, Lengths], observed: Mapping[int, Lengths]) -> dict[int, Shape]:
    """The shape of each result of one deployment, by its key: lengths asked for are taken as they are, and observed
    means join the nearest shape that is alike, else each other.
    """
    found = {key: _rounded(lengths) for key, lengths in asked.items()}
    groups: list[tuple[Lengths, Shape | None, list[int]]] = [
        ((shape.isl.mean, shape.osl.mean), shape, []) for shape in dict.fromkeys(found.values())
    ]
    for key, lengths in observed.items():
        near = next((group for group in groups if _alike(group[0], lengths)), None)
        if near is None:
            groups.append((lengths, None, [key]))
        else:
            near[2].append(key)
    for _, shape, keys in groups:
        middle = shape or _rounded((_middle([observed[k][0] for k in keys]), _middle([observed[k][1] for k in keys])))
        found |= dict.fromkeys(keys, middle)
    return found


def _rounded(lengths: Lengths) -> Shape:
    isl, osl = lengths
    return Shape.of(max(1, round(isl)), max(1, round(osl)))


def _alike(a: Lengths, b: Lengths) -> bool:
    return all(_near(x, y) for x, y in zip(a, b, strict=True))


def _near(x: float, y: float) -> bool:
    return abs(x - y) <= max(1.0, ALIKE * max(x, y))


def _middle(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]
