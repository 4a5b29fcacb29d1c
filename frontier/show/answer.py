"""The answer on a terminal: operating points, each with its figures and lines."""

import textwrap
from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from frontier.show.table import Cell, Table, indented, to_text
from frontier.show.verbosity import Detail
from frontier.show.view.answer_view import LONGEST, AnswerView, TierView, Tone
from frontier.show.view.wording import clean

_STYLES: dict[Tone, str] = {"yes": "green", "no": "red", "open": "yellow"}
_MARK_STYLES = {"✓": "green", "✗": "red", "?": "yellow"}


def answers_text(
    tiers: Sequence[TierView], *, detail: Detail = Detail.USUAL, width: int = 80, colour: bool = False
) -> str:
    """The answers of every tier, under its name where there are several, and what its shapes have
    in common.
    """
    blocks = []
    for tier in tiers:
        lines = [textwrap.fill(clean(text, LONGEST), width) for text in tier.above]
        lines.append(decision_table(tier.answers, detail=detail, width=width, colour=colour))
        below = [textwrap.fill(clean(text, LONGEST), width) for text in tier.below]
        lines += [""] * bool(below) + below
        if len(tier.answers) > 1 and detail >= Detail.USUAL:
            lines += ["", to_text(summary(tier.answers).drawn(width), width=width, colour=colour)]
        if len(tiers) > 1:
            name = tier.name
            alone = name == tier.promise or "<" in name or ">" in name
            lines.insert(0, textwrap.fill(name if alone else f"{name}   {tier.promise}", width))
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def decision_table(
    answers: Sequence[AnswerView], *, detail: Detail = Detail.USUAL, width: int = 80, colour: bool = False
) -> str:
    """A table per answer: its sentence, the limited metrics with bound, limit and margin, and the
    lines on it.
    """
    blocks = []
    for answer in answers:
        lines = _answer(
            answer, answer.series.label([each.series for each in answers], longest=40, keep_shape=True), width
        )
        if detail >= Detail.USUAL:
            rows = answer.whole if detail is Detail.ALL else answer.lines
            lines += [Text("")] * bool(rows) + [Table.of((), rows, right=()).drawn(width)] * bool(rows)
        blocks.append(to_text(*lines, width=width, colour=colour))
    return "\n\n".join(blocks) or "no decision"


def summary(answers: Sequence[AnswerView]) -> Table:
    """Several answers, a row each: where to run, the throughput there, and the tightest limit."""
    among = [answer.series for answer in answers]
    rows = [(answer.series.label(among, longest=40, keep_shape=True), *answer.cells) for answer in answers]
    return Table.of((), rows, right=(2,), spared=(3, 4, 5))


def _fits(rows: Sequence[Sequence[str]], width: int) -> bool:
    """Whether rows of cells, indented by two, have room beside each other."""
    return 2 + sum(max(map(len, column)) + 2 for column in zip(*rows, strict=True)) - 2 <= width


def _answer(answer: AnswerView, name: str, width: int) -> list[RenderableType]:
    """The answer itself as lines."""
    line = answer.headline
    gap, style = min(width, 100) - len(line) - len(name), f"bold {_STYLES[answer.tone]}"
    beside = Text.assemble((line, style), " " * gap, name)
    lines: list[RenderableType] = [beside if gap >= 2 else Text.assemble(f"{name}: ", (line, style))]
    # The throughput of an operating point stands in the headline, but a limit on it does not.
    stated = ("output_throughput",) if answer.chosen is not None else ()
    marked = [(figure.mark, *row) for figure, row in answer.figures if figure.limit or figure.metric not in stated]
    if not _fits(marked, width):
        marked = [(*row, margin.replace(" headroom (", " (")) for *row, margin in marked]
    if not _fits(marked, width):
        marked = [(mark, label, value, ", ".join(filter(None, more))) for mark, label, value, *more in marked]
    rows = [[Cell(mark, style=_MARK_STYLES.get(mark, "")), *map(Cell, cells)] for mark, *cells in marked]
    if rows:
        lines.append(indented(Table.of((), rows, right=(2,)).drawn(width)))
    # Below the figures, which are of the setting in the headline: the step may be of another.
    words, command = answer.step
    lines += [Text(words)] if words else []
    lines += [Text(f"  {command}", no_wrap=True, overflow="ignore")] if command else []
    return lines
