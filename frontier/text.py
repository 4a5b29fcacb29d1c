"""Cleaning of text from outside, to be shown or to be stored: bounded, and without control or format characters."""

import hashlib
import unicodedata
from typing import Any

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


STORED = 2_000
"""Characters of one text that are kept in a run."""
_MOST_ITEMS, _DEEPEST = 100_000, 20


def stored(text: str, longest: int = STORED) -> str:
    """Text as it may be kept: without control and format characters but line ends and tabs, at most `longest` long.

    What is cut ends in how long it was and a hash of it, so that two long names that differ stay two names. Text that
    was stored is stored again as it is.
    """
    if len(text) <= longest and text.isprintable():
        return text
    kept = "".join(ch for ch in text[: 2 * longest] if ch in "\n\t" or unicodedata.category(ch)[0] != "C")
    if len(text) <= 2 * longest and len(kept) <= longest:
        return kept
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    tail = f"… ({len(text):,} characters, sha256 {digest})"
    return kept[: longest - len(tail)] + tail


def stored_tree(tree: Any, depth: int = 0) -> Any:
    """A tree for JSON with every text in it, keys too, as `stored` has it; ValueError for one that no run has."""
    if isinstance(tree, str):
        return stored(tree)
    if depth > _DEEPEST:
        raise ValueError("what is to be stored is nested too deep")
    if isinstance(tree, dict):
        return {
            stored(name) if isinstance(name, str) else name: stored_tree(value, depth + 1)
            for name, value in list(tree.items())[:_MOST_ITEMS]
        }
    if isinstance(tree, list | tuple):
        return [stored_tree(value, depth + 1) for value in tree[:_MOST_ITEMS]]
    return tree
