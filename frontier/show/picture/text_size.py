"""Size of text on a picture: its width as matplotlib renders it (pixels, 100 dpi), and wrapping."""

from functools import lru_cache

from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.font_manager import FontProperties

from frontier.core.model.text import middle_cut
from frontier.show.picture.labels import NBSP

PX = 100 / 72
"""Pixels in a point, the unit of font sizes."""


@lru_cache(maxsize=1)
def _renderer() -> RendererAgg:
    return RendererAgg(1, 1, 100)  # type: ignore[no-untyped-call]


@lru_cache(maxsize=4096)
def text_width(text: str, points: float, bold: bool = False) -> float:
    """The width of a line of text in pixels, as matplotlib draws it; to be called under
    `draw.defaults`.
    """
    font = FontProperties(size=points, weight="bold" if bold else "normal")
    width, _, _ = _renderer().get_text_width_height_descent(text, font, False)  # type: ignore[no-untyped-call]
    return float(width)


def line_height(points: float) -> float:
    """Pixels from one line of text to the next."""
    return points * PX * 1.2


def wrap(text: str, points: float, width: float, *, lines: int = 2, bold: bool = False) -> tuple[str, ...]:
    """Text broken at spaces into at most `lines` lines of `width` pixels; the rest is cut with an
    ellipsis. What is to stay together and is wider than a line is broken, too.
    """
    done: list[str] = []
    current = ""
    whole = text.split(" ")
    words = [w for each in whole for w in (each.split(NBSP) if text_width(each, points, bold) > width else (each,))]
    for i, word in enumerate(words):
        longer = f"{current} {word}" if current else word
        if text_width(longer, points, bold) <= width or not current:
            current = longer
            continue
        if len(done) == lines - 1:
            current = " ".join([current, *words[i:]])
            break
        done.append(current)
        current = word
    return tuple(fit(line.strip(f" ·{NBSP}"), points, width, bold=bold) for line in (*done, current))


def fit(text: str, points: float, width: float, *, bold: bool = False, middle: bool = False) -> str:
    """One line, cut with an ellipsis when it is wider than `width` pixels. A name is cut in its
    `middle`, since both its ends tell it apart.
    """
    if text_width(text, points, bold) <= width:
        return text
    low, high = 1, len(text)
    while high - low > 1:
        length = (low + high) // 2
        cut = middle_cut(text, length) if middle else text[: length - 1].rstrip() + "…"
        low, high = (length, high) if text_width(cut, points, bold) <= width else (low, length)
    return middle_cut(text, low) if middle else text[: low - 1].rstrip() + "…"
