"""Cleaning of text from outside: no control or format characters, one line, bounded."""

import unicodedata

LONGEST = 160


def clean(text: str, longest: int = LONGEST) -> str:
    """Outside text made harmless to a terminal, XML and a layout: no control or format characters, one line, cut.

    Escape sequences, bidirectional overrides, surrogates and unassigned code points all are category C and go.
    """
    return shortened(one_line(text), longest)


def one_line(text: str) -> str:
    """`text` without control and format characters, on one line."""
    if not (text.isascii() and text.isprintable()):
        text = "".join(" " if ch.isspace() else ch for ch in text if ch.isspace() or unicodedata.category(ch)[0] != "C")
    return " ".join(text.split())


def shortened(text: str, longest: int) -> str:
    """At most `longest` characters; a cut is marked."""
    return text if len(text) <= longest else text[: longest - 1] + "…"
