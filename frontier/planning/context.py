"""Context: whether the requests of a shape have room in that of the server."""

import math
from collections.abc import Iterable

from frontier.core.model.shapes import Lengths, Shape

_TAIL = 0.99
"""Share of the pairs of a trace that must fit: more failures than the others are an error rate."""


def tokens_of(shape: Shape) -> int:
    """The tokens that the longer requests of a shape have, prompt and answer: not its rare ones, of
    a session the last turn of a usual one.
    """
    if shape.mix:
        return max(tokens_of(each.shape) for each in shape.mix)
    if (session := shape.session) is not None:
        turns = session.turns.mean - 1
        return round(session.first.mean + turns * (session.added.mean + shape.osl.mean) + shape.osl.mean)
    if shape.pairs is not None and shape.pairs.table is not None:
        totals = sorted(row.isl + row.osl for row in shape.pairs.table.rows)
        return totals[math.ceil(_TAIL * len(totals)) - 1]
    return _usual(shape.isl) + _usual(shape.osl)


def _usual(side: Lengths) -> int:
    return min(side.high, round(side.mean + 2 * side.sd)) if side.kind == "normal" else side.high


def over_context(shapes: Iterable[Shape], context: int | None, where: str) -> tuple[str, str] | None:
    """What is wrong with the first shape that does not fit into the server's context, and what to
    do. None where all shapes fit, or the context is not known.
    """
    for shape in shapes:
        if context is not None and (tokens := tokens_of(shape)) > context:
            what = f"shape {shape.label} takes {tokens:,} tokens, and the context of {where} is {context:,}"
            return what, f"{_shorter(shape, context)}start the server with a longer one"
    return None


def _shorter(shape: Shape, context: int) -> str:
    """'ask for  shapes: [256/32],  or ', for a shape of fixed lengths."""
    isl, osl = shape.isl.high, shape.osl.high
    while isl + osl > context and isl > 1:
        isl, osl = isl // 2, osl if osl <= context // 2 else osl // 2
    plain = {shape.isl.kind, shape.osl.kind} == {"fixed"} and shape.session is None and not shape.mix
    return f"ask for  shapes: [{isl}/{osl}],  or " if plain else "ask for shorter ones, or "
