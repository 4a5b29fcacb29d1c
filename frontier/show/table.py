"""Table of an answer: columns and notes as data. It is drawn on a terminal, filled into the page's
template, and given as JSON.

A table gives up its least important columns where there is no room. Colour only repeats what a sign
or a word says. Text from outside is cleaned and never read as markup.
"""

import io
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from markupsafe import escape
from rich.console import Console, Group, OverflowMethod, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

WIDE = 110
"""Columns of a table in a notebook."""
_PRE = '<pre style="line-height:1.35;white-space:pre;overflow-x:auto">{}</pre>'


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: a value, its interval (may be empty), the number to sort by, and the style on a
    terminal.
    """

    value: str
    interval: str = ""
    key: float | None = None
    style: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    - `rank`: the higher, the earlier the column is left out when there is no room; 0: never.
    - `long`: its head on a page.
    - `wraps`: its texts may be broken.
    - `interval_rank`: gives the intervals of its cells a column of their own, never shown without
      the values.
    """

    head: str
    cells: tuple[Cell, ...]
    rank: int = 0
    left: bool = False
    long: str = ""
    interval_head: str = "95% CI"
    interval_rank: int | None = None
    wraps: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table with its caption; `gap` is the room between columns."""

    columns: tuple[Column, ...]
    caption: str = ""
    gap: int = 2

    @classmethod
    def of(
        cls,
        heads: Sequence[str],
        rows: Sequence[Sequence[str | Cell]],
        caption: str = "",
        *,
        right: Sequence[int] = (),
        spared: Sequence[int] = (),
        gap: int = 2,
    ) -> "Table":
        """A table of rows whose first cell names the row; without heads none are drawn. `right` are
        the columns set to the right. These columns and the first are not broken. `spared` are left
        out where there is no room, the last one first.
        """
        cells = [[Cell(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
        columns = zip(heads, *cells, strict=True) if heads else itertools.zip_longest(*cells, fillvalue=Cell(""))
        made = []
        for i, column in enumerate(columns):
            head, texts = (str(column[0]), column[1:]) if heads else ("", column)
            rank = 1 + i if i in spared else 0
            made.append(Column(head, tuple(texts), rank, left=i not in right, wraps=i not in (0, *right)))
        return cls(tuple(made), caption, gap=gap)

    @property
    def heads(self) -> tuple[str, ...]:
        """The heads, at length."""
        return tuple(column.long or column.head for column in self.columns)

    @property
    def rows(self) -> tuple[tuple[Cell, ...], ...]:
        """The cells, row by row."""
        return tuple(zip(*(column.cells for column in self.columns), strict=True))

    @property
    def texts(self) -> list[tuple[str, ...]]:
        """The values, row by row."""
        return [tuple(cell.value for cell in row) for row in self.rows]

    def as_json(self) -> list[dict[str, str]]:
        """One object per row, by head."""
        return [dict(zip(self.heads, row, strict=True)) for row in self.texts]

    def drawn(self, width: int) -> RichTable:
        """The table for a terminal, at most this many columns wide."""
        table = RichTable(
            box=None,
            pad_edge=False,
            padding=(0, self.gap, 0, 0),
            show_edge=False,
            show_header=any(column.head for column in self.columns),
            header_style="dim",
        )
        parts = self._parts()
        shown = [parts[at] for at in self._fitting(width)]
        for head, texts, column, left in shown:
            wide = left and max([len(head), *(text.cell_len for text in texts)]) > width // 2
            broken = column.wraps or wide
            overflow: OverflowMethod = "fold" if broken else "ellipsis"  # a word of a text is broken, not lost
            table.add_column(head, justify="left" if left else "right", no_wrap=not broken, overflow=overflow)
        for row in zip(*(texts for _, texts, _, _ in shown), strict=True):
            table.add_row(*row)
        return table

    def hidden_intervals(self, width: int) -> list[str]:
        """The heads of the columns whose intervals have no room."""
        hidden = self._parts().keys() - set(self._fitting(width))
        return [self.columns[i].head for i, interval in sorted(hidden) if interval]

    def rest(self, width: int) -> "Table | None":
        """The columns that `drawn` leaves out at that width, beside the first column; None where it
        leaves out none.
        """
        hidden = sorted(self._parts().keys() - set(self._fitting(width)))
        if not hidden:
            return None
        ranks = {i: 0 if (i, True) in hidden else None for i, _ in hidden}
        columns = (replace(self.columns[i], rank=0, interval_rank=rank) for i, rank in ranks.items())
        return replace(self, columns=(self.columns[0], *columns))

    def beside(self, above: "Table", width: int) -> "Table":
        """The table without the columns that one drawn `above` it at that width has, but for the
        first, and for those whose intervals have room here.
        """
        stated = {above.columns[i].head for i, interval in above._fitting(width) if not interval}
        shown = self._fitting(width)
        kept = (
            column for i, column in enumerate(self.columns) if i == 0 or column.head not in stated or (i, True) in shown
        )
        return replace(self, columns=tuple(kept))

    def _parts(self) -> dict[tuple[int, bool], tuple[str, list[Text], Column, bool]]:
        """The parts that may be drawn: head, texts, column, whether they are its intervals, and
        whether they are set to the left.
        """
        parts = {}
        for i, column in enumerate(self.columns):
            texts = [Text(cell.value, style=cell.style) for cell in column.cells]
            parts[i, False] = column.head, texts, column, column.left
            if column.interval_rank is not None and any(cell.interval for cell in column.cells):
                intervals = [Text(cell.interval, style="dim") for cell in column.cells]
                parts[i, True] = column.interval_head, intervals, column, True
        return parts

    def _fitting(self, width: int) -> list[tuple[int, bool]]:
        """The parts that fit: the more important first, in their order."""
        shown, room = [], width + self.gap
        ranked = [
            (column.interval_rank or 0 if at[1] else column.rank, at, head, texts)
            for at, (head, texts, column, _) in self._parts().items()
        ]
        for rank, at, head, texts in sorted(ranked, key=lambda part: part[:2]):
            wide = max([len(head), *(text.cell_len for text in texts)]) + self.gap
            if rank == 0 or (wide <= room and (not at[1] or (at[0], False) in shown)):
                shown.append(at)
                room -= wide
        return sorted(shown)


def to_text(*renderables: RenderableType, width: int = 80, colour: bool = False) -> str:
    """Rich renderables below each other, as text of at most `width` columns, whatever the
    environment says.
    """
    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=colour,
        no_color=not colour,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
        color_system="standard" if colour else None,
        _environ={},
        force_jupyter=False,
    )
    console.print(Group(*renderables), crop=False)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def as_html(text: str) -> str:
    """A table of the terminal as HTML."""
    return _PRE.format(escape(text))


def captioned(tables: Sequence[Table], *, width: int, colour: bool = False) -> str:
    """Tables below their captions as text."""
    blocks = (block for table in tables for block in (Text(table.caption, style="bold"), table.drawn(width)))
    return to_text(*blocks, width=width, colour=colour)


def indented(content: RenderableType, style: str = "", by: int = 2) -> Padding:
    """A line or a table, set in from the left."""
    return Padding(Text(content, style=style) if isinstance(content, str) else content, (0, 0, 0, by))
