"""Texts without what differs between runs, for the golden tables."""

import re
from pathlib import Path


def neutral(text: str, *folders: Path) -> str:
    """`text` with folders as DIR and ports of this machine as PORT."""
    for folder in folders:
        text = text.replace(str(folder), "DIR")
    return re.sub(r"\b(127\.0\.0\.1|localhost|\[::1\]):\d+", r"\1:PORT", text)


def without_numbers(text: str) -> str:
    """`text` with N for each number that is no part of a name (p99), and at most two spaces in a
    row: for what a run measured.
    """
    return re.sub(r" {3,}", "  ", re.sub(r"(?<![A-Za-z\d.,])\d+([.,]\d+)*", "N", text))


def line_of(text: str, *parts: str) -> str:
    """The first line of `text` that holds all these parts."""
    lines = [line for line in text.splitlines() if all(part in line for part in parts)]
    assert lines, text
    return lines[0]
