"""Faults of renderers, planted in what nights wrote: each is found, at a stated seed."""

import dataclasses
import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from benchmarks.nights.draw import RUN, SWEEP, draw
from benchmarks.nights.invariants import INVARIANTS, look_further
from benchmarks.nights.play import Told, play, playing
from benchmarks.nights.sentences import SENTENCES

SOLVE, SHOW = (("solve", RUN), ("solve", RUN, "-v")), (("show", RUN),)
Change = Callable[[str], str]
WHOLE = (80_003, 80_009)  # of two tiers, and of two shapes
NIGHTS = (*WHOLE, 80_002, 80_000, 80_024, 80_013, 38, 80_010, 10_261, 11_027, *range(60))
"""The first nine find them all; where a sweep goes another way, another night may show a fault."""
WHEREVER = (
    "a verdict's word swapped",
    "a rounding that hides a difference",
    "a head that says more",
    "a count of one trial less",
    "the requests of another setting",
)
"""Faults that are found in each closed loop that shows them, also of two shapes or tiers."""


@dataclass(frozen=True)
class Mutation:
    """A fault: what it does to the text of the commands `words`, and what finds it."""

    name: str
    words: tuple[tuple[str, ...], ...]
    change: Change
    invariant: str

    def of(self, told: Told) -> Told | None:
        """The night as it would have been with the fault; None where it shows nothing of it."""
        said = [
            dataclasses.replace(s, out=self.change(s.out), err=self.change(s.err)) if s.words in self.words else s
            for s in told.said
        ]
        return None if said == told.said else dataclasses.replace(told, said=said)


def figure(change: Callable[[str, str], str], column: int) -> Change:
    """Change one of the numbers of each figure of an answer: 2 its value, 4 its bound."""
    line = r"^(  (?:\S+ +)?p\d+ \w+ +)([\d.]+)( \S+  +at most )([\d.]+)( \S+ \(.*)$"

    def changed(match: re.Match[str]) -> str:
        parts = list(match.groups())
        parts[column - 1] = change(parts[1], parts[3])
        return "".join(parts)

    return lambda text: re.sub(line, changed, text, flags=re.M)


def rounded(value: str, _bound: str) -> str:
    """The value with two digits, where that hides something."""
    short = f"{float(f'{float(value):.2g}'):g}"
    return value if float(short) == float(value) else short


def swapped_cells(column: str) -> Change:
    """A column of the table, its first two different cells in each other's place."""

    def change(text: str) -> str:
        lines = text.splitlines()
        rows = [k for k, line in enumerate(lines) if re.match(r" *\d+  ", line)]
        header = next((line for line in lines if "verdict" in line), "")
        if not rows or column not in header:
            return text
        end = header.index(column) + len(column)
        cells = {k: re.search(r"[^ ]+( (ms|s|µs))?$", lines[k][:end]) for k in rows}
        known = [(k, cell) for k, cell in cells.items() if cell is not None]
        for (a, one), (b, other) in itertools.pairwise(known):
            if one[0] != other[0]:
                for k, cell, new in ((a, one, other[0]), (b, other, one[0])):
                    lines[k] = lines[k][: cell.start()] + new.rjust(end - cell.start()) + lines[k][end:]
                return "\n".join(lines)
        return text

    return change


MUTATIONS = [
    Mutation("a bound and its value swapped", SOLVE, figure(lambda value, bound: f"{float(value) * 0.98:.3g}", 4),
             "figures_and_limits_are_whole"),
    Mutation("a count of one trial less", SHOW, lambda text: re.sub(
        r"(?m)(\d+)(  (?:meets|violates|over))", lambda m: f"{int(m[1]) - 7}{m[2]}", text), "table_and_json_agree"),
    Mutation("another setting's latency", SHOW, swapped_cells("p90 TTFT"), "cells_are_of_their_settings"),
    Mutation("a wrong unit", SOLVE, lambda text: re.sub(r"(?m)^(  (?:[✓✗?]  )?p\d+ \w+ +[\d.]+) ms", r"\1 s", text),
             "figures_are_of_the_setting_named"),
    Mutation("a rounding that hides a difference", SOLVE, figure(rounded, 2), "figures_are_of_the_setting_named"),
    Mutation("a command of the next setting", SOLVE, lambda text: re.sub(
        r"--prove (\d+)", lambda m: f"--prove {int(m[1]) + 1}", text), "commands_are_of_the_setting_named"),
    Mutation("a verdict's word swapped", SOLVE, lambda text: re.sub(r"(c=\d+) violates", r"\1 is not proven", text),
             "sentences_and_verdicts_agree"),
    Mutation("a reason swapped", SOLVE, lambda text: re.sub(
        r"is not proven: ", "was measured before the server changed, and not since: ", text),
        "sentences_and_verdicts_agree"),
    Mutation("words that no reason has", SOLVE, lambda text: re.sub(r"(c=\d+) (?:is|excluded|violates)", r"\1 may be",
        text), "sentences_and_verdicts_agree"),
    Mutation("a head that says more", SOLVE, lambda text: text.replace("is proven to meet", "meets"),
             "sentences_and_verdicts_agree"),
    Mutation("another setting named next", SOLVE, lambda text: re.sub(
        r"c=(\d+) may", lambda m: f"c={int(m[1]) + 1} may", text), "sentences_and_verdicts_agree"),
    Mutation("progress that says another verdict", (SWEEP,), lambda text: re.sub(
        r"(search +c=\d+ .*   )over \w+ \w+", r"\1within", text), "progress_and_table_agree"),
    Mutation("another rate of arrivals", SOLVE, lambda text: re.sub(
        r"about ([\d.]+)(\s+requests/s)", lambda m: f"about {float(m[1]) * 1.1:.3g}{m[2]}", text),
        "one_rate_of_arrivals"),
    Mutation("a budget that ended nothing", SOLVE, lambda text: re.sub(
        r"its(\s+)proof(\s+)was(\s+)given(\s+)up", r"the budget\1ended\2its\3proof", text), "the_budget_is_no_excuse"),
    Mutation("a sweep that is called finished", (("status", RUN),), lambda text: re.sub(
        r"^(unfinished|stopped)", "finished", text), "left_agrees"),
    Mutation("another need", SHOW, lambda text: re.sub(
        r"needs about ([\d,]+)", lambda m: f"needs about {2 * int(m[1].replace(',', '')):,}", text),
        "a_harder_question_takes_more"),
    Mutation("a flag's cause swapped", SHOW, lambda text: text.replace("this machine was busy", "the budget ended it"),
             "causes_are_the_flags"),
    Mutation("the requests of another setting", SHOW, swapped_cells("n"), "table_and_json_agree"),
    Mutation("the error rate of another trial", SHOW, swapped_cells("errors"), "cells_are_of_their_settings"),
    Mutation("the requests of another answer", SOLVE, lambda text: re.sub(
        r"(Confidence +(?:95%, from )?)([\d,]+)", lambda m: f"{m[1]}{int(m[2].replace(',', '')) + 30:,}", text),
        "requests_are_of_the_setting"),
    Mutation("the limit of another tier", SOLVE, lambda text: re.sub(
        r"limit ([\d.]+)", lambda m: f"limit {float(m[1]) * 1.5:g}", text), "figures_and_limits_are_whole"),
]  # fmt: skip


CHECKS = {check.__name__: check for check in (*INVARIANTS, *SENTENCES)}


@pytest.mark.whole
def test_nights_find_each_fault_of_a_renderer() -> None:
    left = {mutation.name: mutation for mutation in MUTATIONS}
    for seed in NIGHTS:
        with playing(draw(seed)) as (player, told):
            play(player, told)
            look_further(player, told)
            assert [(name, line) for name, check in CHECKS.items() for line in check(told)] == []
            for mutation in MUTATIONS if seed in WHOLE else list(left.values()):
                if (wrong := mutation.of(told)) is None:
                    continue
                if any(CHECKS[mutation.invariant](wrong)):
                    left.pop(mutation.name, None)
                else:
                    assert mutation.name not in WHEREVER or draw(seed).kind == "rate"
        if not left:
            return
    assert not left
