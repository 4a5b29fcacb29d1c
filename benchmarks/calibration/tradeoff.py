"""python -m benchmarks.calibration.tradeoff [NAME=RESULTS ...] [--picture FILE.svg]

What each design of the search gives for its minutes, as a Markdown table and a picture. Designs
that are no longer in the code are data here, with where they were measured; others come from
results files of this study.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.calibration.__main__ import known
from benchmarks.calibration.study import SHIPPED
from benchmarks.calibration.tables import summary

GOAL_MINUTES, GOAL_SHARE = 5.0, 0.93


class Design(NamedTuple):
    """A design: the median minutes to its answer over the reference, the median share of the best
    throughput, and the deployments on which both were measured.
    """

    name: str
    minutes: float
    share: float
    measured: str


_FIRST, _TUNING = "70 or more, other kinds than the study's", "70 to 140, seven families"
EARLIER = (
    Design("0.1.0: grid of three repeats, 3 settings more", 22, 0.88, _FIRST),
    Design("0.1.0: grid of three repeats, 6 settings more", 24, 0.91, _FIRST),
    Design("0.1.0: grid of one repeat, 6 settings more", 12, 0.90, _FIRST),
    Design("scan; candidate where a fifth of what is allowed is late; judged after 3, 5, 9", 2.4, 0.79, _TUNING),
    Design(
        "the same with quick looks between listed settings, candidate by chance times throughput", 3.0, 0.81, _TUNING
    ),
    Design("candidate by expected worth of windows; judged after 3, 6, 12", 3.2, 0.90, _TUNING),
    Design("the same, ascents with a geometric share of the error, wider steps", 3.35, 0.90, _TUNING),
    Design("error spent by judgement; judged after 3, 6, 12, 20", 3.25, 0.91, _TUNING),
    Design("the same with a drift charged at 90% of confidence", 3.1, 0.91, "540 to 960, ten families"),
    Design("the same with a drift charged at 95% of confidence", 3.9, 0.90, "960, ten families"),
    Design(
        "five judgements, drift by windows, synchronised requests by half lifetimes", 4.4, 0.93, "442, ten families"
    ),
    Design("the same, windows sized by what candidates before showed", 3.9, 0.94, "1,001, ten families"),
)
"""As docs/decisions/0012 has them; of a range the middle."""


def measured(name: str, results: Path) -> Design:
    """The design whose results these are."""
    of = known(results)
    s = summary(of, SHIPPED)
    return Design(name, s["early"], s["share"], f"{len(of):,}, {len({r['family'] for r in of})} families")


def table(designs: Sequence[Design]) -> str:
    """The designs as Markdown, in the order in which they were tried."""
    head = ["| | design | minutes over reference | share of best | deployments |", "|--:|---|--:|--:|---|"]
    rows = [f"| {i} | {d.name} | {d.minutes:.1f} | {d.share:.0%} | {d.measured} |" for i, d in enumerate(designs, 1)]
    return "\n".join([*head, *rows])


def draw(designs: Sequence[Design], file: Path) -> None:
    """The picture: a point for each design, numbered as in the table, and the goals as lines."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    axes.axvline(GOAL_MINUTES, color="0.7", linestyle="--", linewidth=1)
    axes.axhline(100 * GOAL_SHARE, color="0.7", linestyle="--", linewidth=1)
    for number, design in enumerate(designs, 1):
        earlier = design in EARLIER
        axes.plot(design.minutes, 100 * design.share, "o", color="0.6" if earlier else "#D55E00")
        label, offset, side = (str(number), 5, "left") if earlier else (f"{number}, {design.name}", -6, "right")
        at, colour = (design.minutes, 100 * design.share), "0.4" if earlier else "#D55E00"
        axes.annotate(label, at, xytext=(offset, 4), textcoords="offset points", color=colour, ha=side)
    axes.text(GOAL_MINUTES * 1.02, 78.4, "asked: 5 minutes", color="0.4")
    axes.text(29, 100 * GOAL_SHARE + 0.2, "asked: 93%", color="0.4", ha="right")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xscale("log")
    ticks = [2, 3, 5, 10, 20, 30]
    axes.set_xticks(ticks, [str(t) for t in ticks])
    axes.minorticks_off()
    axes.set_xlim(2, 30)
    axes.set_xlabel("minutes to the answer over the reference, median")
    axes.set_ylabel("share of the best throughput, median, %")
    with rc_context({"svg.hashsalt": "tradeoff", "svg.fonttype": "none"}):
        figure.savefig(file, metadata={"Date": None})


def main() -> None:
    """Print the table, and draw the picture where a file is given."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calibration.tradeoff", description=__doc__)
    parser.add_argument("results", nargs="*", metavar="NAME=RESULTS", help="a design and the results file of its study")
    parser.add_argument("--picture", type=Path, help="an SVG file to draw")
    asked = parser.parse_args()
    designs = list(EARLIER)
    for word in asked.results:
        name, _, file = word.rpartition("=")
        designs.append(measured(name, Path(file)))
    print(table(designs))
    if asked.picture is not None:
        draw(designs, asked.picture)


if __name__ == "__main__":
    main()
