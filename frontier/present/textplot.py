"""A frontier as a few lines of text: each setting's concurrency where it lies, for a terminal."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from rich.text import Text

from frontier.units import format_number, format_seconds

MARGIN = 9
"""Columns left of the plot, for the numbers of the vertical axis."""


@dataclass(frozen=True, slots=True)
class Spot:
    """A setting: a latency in seconds (across, logarithmic) and a rate (upward, from 0). An excluded one is drawn with
    a ring, and beats no other.
    """

    latency: float
    rate: float
    excluded: bool = False


def best_so_far(spots: Mapping[int, Spot]) -> set[int]:
    """The settings that no other beats in both, without the excluded ones."""
    found, most = set(), -math.inf
    spots = {c: spot for c, spot in spots.items() if not spot.excluded}
    for concurrency, spot in sorted(spots.items(), key=lambda item: (item[1].latency, -item[1].rate)):
        if spot.rate > most:
            found.add(concurrency)
            most = spot.rate
    return found


def text_plot(spots: Mapping[int, Spot], *, across: str, up: str, width: int = 60, height: int = 8) -> Text:
    """The settings on a grid of so many columns and rows, those not finite named below it; '' for fewer than two.

    A number that would cover another is drawn as a dot, or not at all where the place itself is taken.
    """
    drawn = {c: s for c, s in spots.items() if math.isfinite(s.rate) and 0 < s.latency < math.inf}
    if len(drawn) < 2:
        return Text("")
    columns = max(20, width - MARGIN - 2)
    least, most = (pick(s.latency for s in drawn.values()) for pick in (min, max))
    top = max(s.rate for s in drawn.values()) or 1.0
    span = math.log(most / least) or 1.0
    grid = [[" "] * columns for _ in range(height)]
    styles = [[""] * columns for _ in range(height)]
    on_it = best_so_far(drawn)
    for concurrency, spot in sorted(
        drawn.items(), key=lambda item: (item[0] not in on_it, item[0] & (item[0] - 1) != 0, item[0])
    ):
        column = round(math.log(spot.latency / least) / span * (columns - 1))
        row = height - 1 - round(max(0.0, spot.rate) / top * (height - 1))
        label = f"{'○' if spot.excluded else ''}{concurrency}"
        start = min(max(0, column - len(label) + 1), columns - len(label))
        if any(ch != " " for ch in grid[row][max(0, start - 1) : start + len(label) + 1]):
            label, start = "·", column
        if grid[row][start] == " ":
            for i, ch in enumerate(label):
                grid[row][start + i] = ch
                styles[row][start + i] = "bold blue" if concurrency in on_it else "dim"
    text = Text(no_wrap=True, overflow="ellipsis")
    for i in range(height):
        number = format_number(top) if i == 0 else "0" if i == height - 1 else ""
        text.append(f"{number:>{MARGIN - 1}} │", style="dim")
        for ch, style in zip(grid[i], styles[i], strict=True):
            text.append(ch, style=style)
        text.append(f" {up}\n" if i == 0 else "\n", style="dim")
    left, right = format_seconds(least), f"{format_seconds(most)}  {across}"
    text.append(" " * MARGIN + "└" + "─" * columns + "\n", style="dim")
    text.append(f"{'':{MARGIN + 1}}{left}{right:>{max(0, columns - len(left))}}", style="dim")
    if beyond := sorted(spots.keys() - drawn.keys()):
        text.append(f"\n{'':{MARGIN + 1}}not on this chart, with no such {across}: ", style="dim")
        text.append(", ".join(f"c={c}" for c in beyond), style="dim")
    return text
