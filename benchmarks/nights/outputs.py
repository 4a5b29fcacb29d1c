"""What was written, read as a user reads it: tables, answers, counts, needs and commands."""

import functools
import json
import math
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import unescape
from typing import Any

UNITS = {"µs": 1e-6, "ms": 1e-3, "s": 1.0, "%": 1e-2, "min": 60.0}
_VALUE = r"([\d.,]+)\s?(µs|ms|s|%|min)"
VALUE = re.compile(_VALUE)
FIGURE_WITH_LIMIT = re.compile(
    r"^  (?:[✓✗?]  )?(?P<words>p\d+ \w+|error rate)  +(?P<value>[\d.,]+)\s?(?P<unit>µs|ms|s|%|min)  +"
    r"(?:(?P<side>at most|at least) (?P<bound>[\d.,]+)\s?(?P<in>µs|ms|s|%|min) \([\d.]+%\))?.*?"
    r"limit (?P<limit>[\d.,]+)\s?(?P<of>µs|ms|s|%|min)(?:  (?P<left>[\d.]+)% headroom)?",
    re.M,
)
_NAMED = re.compile(r"c=(\d+)|concurrency (\d+)|(\d+) concurrent sessions?|--prove (\d+)")


def number(text: str, unit: str = "s") -> float:
    """'18.7', 'ms' -> 0.0187."""
    return float(text.replace(",", "")) * UNITS[unit]


@functools.lru_cache(32)
def tree(text: str) -> Mapping[str, Any]:
    """The JSON that a command printed; empty where it printed none."""
    if not text.lstrip().startswith("{"):
        return {}
    found: Mapping[str, Any] = json.loads(text)
    return found


def joined(text: str) -> str:
    """The text with its broken lines joined: a line that is indented by five or more goes on."""
    return re.sub(r"\n {5,}(?=\S)", " ", text)


def near(a: float, b: float, within: float = 0.011) -> bool:
    """Equal as far as three digits tell."""
    return abs(a - b) <= within * max(abs(a), abs(b), 1e-12)


def as_shown(shown: float, known: float) -> bool:
    """Whether a number is shown as it is: to three digits, or to more."""
    if not known or not math.isfinite(known):
        return near(shown, known)
    return abs(shown - known) <= 0.51 * 10.0 ** (math.floor(math.log10(abs(known))) - 2)


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table of points: its setting, its cells by their headers, and its verdict."""

    setting: int
    cells: Mapping[str, str]
    verdict: str

    @property
    def throughput(self) -> float | None:
        return _count(self.cells.get("tok/s", "–"))

    @property
    def n(self) -> int:
        return int(_count(self.cells["n"]) or 0)


def _count(cell: str) -> float | None:
    """A cell of a table; None where it has a dash."""
    return None if cell in "–-" else float(cell.replace(",", ""))


def tables(text: str) -> list[list[Row]]:
    """The rows of each table of points in the text; of a table that is too narrow for n there are
    none.
    """
    found: list[list[Row]] = []
    header: list[str] = []
    for line in text.splitlines():
        parts = re.split(r" {2,}", line.strip())
        if parts[0] in ("c", "N") and parts[-1] == "verdict":
            header = parts
            found.append([])
        elif header and parts[0].isdigit() and len(parts) >= len(header) - 1:
            if "n" in header:
                cells = dict(zip(header[1:-1], parts[1:], strict=False))
                found[-1].append(Row(int(parts[0]), cells, "  ".join(parts[len(header) - 1 :])))
        else:
            header = []
    return found


@dataclass(frozen=True, slots=True)
class Figure:
    """A line of the answer: the metric in words, its value, and its one-sided bound where it has
    one.
    """

    words: str
    value: float
    bound: float | None


@dataclass(frozen=True, slots=True)
class Answer:
    """The block of one answer: its first line, the setting that is named last before its figures,
    and these.
    """

    head: str
    setting: int | None
    figures: tuple[Figure, ...]


def own(line: str) -> str:
    """The part of an answer's head that names its own setting, and not what may give more."""
    return line.partition("Proven so far:")[2] or line.split(" may give")[0]


_FIGURE = re.compile(
    rf"^  (?:[✓✗?]  )?(p\d+ \w+|error rate)  +{_VALUE}  +(?:(at most|at least) {_VALUE} \(95%\)|no bound)?"
)


_HEAD = re.compile(
    r"(?:(?!Corrected: )[^\s:]+(?: [^\s:]+)?(?: · [^\s:]+)*: )?(?P<corrected>Corrected: )?"
    r"(?P<words>[Rr]un at|[Nn]o setting|[Nn]o valid|[Nn]o answer, as|[Mm]ore than half)"
)
"""How an answer begins: with the name of its series where that has no room on the right."""


def is_corrected(head: str) -> bool:
    """Whether the first line of an answer is worded as a correction."""
    found = _HEAD.match(head)
    return found is not None and found["corrected"] is not None


def blocks(text: str) -> list[list[str]]:
    """The lines of each answer in a text of `solve`, from its first line on."""
    found: list[list[str]] = []
    for line in text.splitlines():
        if _HEAD.match(line):
            found.append([])
        if found:
            found[-1].append(line)
    return found


def answers(text: str) -> list[Answer]:
    """The answers in a text of `solve`."""
    return list(map(_answer, blocks(text)))


def _answer(lines: list[str]) -> Answer:
    setting, figures = None, list[Figure]()
    for line in lines:
        if match := _FIGURE.match(line):
            bound = number(match[5], match[6]) if match[5] and match[4] == "at most" else None
            figures.append(Figure(match[1], number(match[2], match[3]), bound))
        elif not figures and (named := _NAMED.findall(own(line))):
            # The answer's own setting comes first; what may give more stands after it.
            head = _HEAD.match(line)
            first = head is not None and head["words"].lower() == "run at"
            setting = int(next(filter(None, named[0 if first else -1])))
    return Answer(lines[0], setting, tuple(figures))


def of_all(text: str, load: int | None, figure: Figure) -> Iterator[float]:
    """The value of a figure with all trials, where a text says that the figure is the proof's."""
    own = rf"c={load}: {figure.words} is that of the (?:proof|newest trial); with all \w+ \w+ it was {_VALUE}"
    yield from (number(*match) for match in re.findall(own, joined(text)))


def metric_of(words: str) -> str:
    """'p90 TPOT' -> 'p90_tpot'."""
    return words.lower().replace(" ", "_")


_OPEN = "(?:is not proven|had a quick look|was measured to compare)"


def needs(text: str) -> Iterator[tuple[int, int]]:
    """(setting, requests that would decide it), wherever a text names both."""
    for line in joined(text).splitlines():
        if match := re.match(r" *(\d+) .*needs about ([\d,]+) requests", line):
            yield int(match[1]), int(match[2].replace(",", ""))
        for match in re.finditer(rf"c=(\d+) {_OPEN}.*?; about ([\d,]+) requests", line):
            yield int(match[1]), int(match[2].replace(",", ""))


def commands(text: str) -> list[list[str]]:
    """The command lines of `frontier` that a text prints on lines of their own."""
    lines = re.findall(
        r"^ *(frontier (?:sweep|verify|solve|show) .*[^.])$", text.replace("Next             ", ""), re.M
    )
    return [shlex.split(line)[1:] for line in lines]


def page_text(page: str) -> str:
    """A page as text: a row a line, its cells with ' | ' between them."""
    page = re.sub(r"<(style|script|svg)[^>]*>.*?</\1>", "", page, flags=re.S)
    page = re.sub(r"\s*</t[dh]>\s*", " | ", page)
    page = re.sub(r"</(tr|p|div|h\d|li|dt|dd|summary)>", "\n", page)
    return re.sub(r"\n\s*\n+", "\n", unescape(re.sub(r"<[^>]+>", "", page)))


def points(tree: Mapping[str, Any]) -> dict[tuple[str, str, Any], Mapping[str, Any]]:
    """The points of `show --json`, by deployment, shape and setting."""
    found = {}
    for point in tree.get("points", ()):
        load = point["concurrency"] if point.get("rate") is None else point["rate"]
        found[(point["deployment"], point["shape"], load)] = point
    return found


def by_series(tree: Mapping[str, Any]) -> dict[tuple[str, str], dict[Any, Mapping[str, Any]]]:
    """The same by series, each by setting, in the order of the tables."""
    found: dict[tuple[str, str], dict[Any, Mapping[str, Any]]] = {}
    for (deployment, shape, load), point in points(tree).items():
        found.setdefault((deployment, shape), {})[load] = point
    return found
