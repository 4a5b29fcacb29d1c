"""Points as rows: what every tabular export writes. SI units; what is not known is an empty cell."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from frontier.metrics import metric
from frontier.model import Frontier, Point

Cell = str | int | float | bool | None
_FORMULA = ("=", "+", "-", "@")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Table:
    """A header and rows under it."""

    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


FIRST = ("deployment", "shape", "isl", "osl", "concurrency", "n", "valid", "on_frontier", "flags")


def table(points: Sequence[Point], frontiers: Sequence[Frontier]) -> Table:
    """One row per point: its setting (mean lengths), then NAME, NAME_low and NAME_high (95 %) of each metric.

    Where a power is known, its watts and whether it was measured or stated come before them. An endless end of an
    interval is empty: there is no such bound. An infinite value stays infinite.
    """
    names = sorted({name for point in points for name in point.metrics}, key=_order)
    on = {(f.deployment, f.shape): f for f in frontiers}
    powered = ("power_w", "power_source") if any(p.power for p in points) else ()
    header = (*FIRST, *powered, *(name + end for name in names for end in ("", "_low", "_high")))
    rows = []
    for p in points:
        frontier = on.get((p.deployment, p.shape))
        cells: list[Cell] = [
            p.deployment, p.shape.label, p.shape.isl.mean, p.shape.osl.mean, p.concurrency, p.n or None, p.valid,
            frontier is not None and p.concurrency in frontier.members, ", ".join(flag.name for flag in p.flags),
        ]  # fmt: skip
        if powered:
            cells += [p.power.watts, p.power.source] if p.power else [None, None]
        for name in names:
            e = p.metrics.get(name)
            cells += [None, None, None] if e is None else [_value(e.value), _end(e.low), _end(e.high)]
        rows.append(tuple(cells))
    return Table(header, tuple(rows))


def _order(name: str) -> tuple[bool, str, float]:
    """Rates and shares first, then each latency from its mean up."""
    of = metric(name)
    return of.quantity is not None, of.quantity or name, of.p or 0.0


def _value(value: float) -> float | None:
    return None if math.isnan(value) else value


def _end(value: float) -> float | None:
    return value if math.isfinite(value) else None


def guarded(text: str) -> str:
    """Text that no spreadsheet takes for a formula: an apostrophe before what would begin one (OWASP's rule).

    Control characters, which can end a cell or a line, become spaces.
    """
    line = _CONTROL.sub(" ", text)
    return f"'{line}" if line.lstrip().startswith(_FORMULA) else line


def unguarded(text: str) -> str:
    """The inverse of `guarded`."""
    return text[1:] if text.startswith("'") and text[1:].lstrip().startswith(_FORMULA) else text
