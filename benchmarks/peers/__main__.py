"""Five load clients and ours at one server whose truth is known: what they say, what they cost.

usage: python -m benchmarks.peers --tools FOLDER --tokenizer FOLDER [--only NAME ...] [--rounds 2]
[--minutes 15]
                                  [--keep FILE]
       python -m benchmarks.peers --again FILE

FOLDER of --tools holds a virtual environment per tool (a missing one is named with the command that
makes it, and left out); --tokenizer is any Hugging Face tokenizer folder (`python
tests/real_engines/vllm_cpu.py install` makes one).

First each tool once without counting it, so that its bytecode is compiled and its files are in
memory. Then three loads, each tool in turn, round by round, every other round in the opposite
order: `paced` (TTFT 50 ms, ITL 10 ms, 64 tokens, 128 streams, 1,280 requests), the same with 128
requests, and `flood` (no delay at all, 32 streams). No round begins that would end after --minutes.
Prints the table of docs/validation/clients.md. Per tool:
  error           what it said minus what the server saw, of the paced load CPU             of the
  whole process tree, per 1,000 further requests (paced minus its short form: start-up drops out;
                  of ours 6,400 requests minus the short form, which sends more than it is asked
                  for)
  fixed           wall time of the short form beyond the time the server was at work: the price of
  each start next point      of ours: how long the server waits between two points of one sweep ten
  points      what ten settings cost beyond the server's work: ten starts; of ours one, and nine
  next points chunks/s        of the flood, as the server saw it RSS             the process tree's
  peak, added up
Figures are medians over the rounds; of the ratios the last line has the range of the rounds.
Nothing else should run on the machine.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import psutil

from benchmarks.peers.tools import LABELS, TOOLS, Point, Said, Tool, why_missing
from benchmarks.truth import Served, TruthServer

ISL, OSL = 128, 64


@dataclass(frozen=True)
class Load:
    """What the server does and what is asked of it. Times in seconds."""

    streams: int
    requests: int
    ttft: float
    itl: float


LOADS = {
    "paced": Load(128, 1280, 0.050, 0.010),
    "short": Load(128, 128, 0.050, 0.010),
    "flood": Load(32, 1600, 0.0, 0.0),
    "sweep": Load(128, 128, 0.050, 0.010),
    "long": Load(128, 6400, 0.050, 0.010),
}
OURS = ("sweep", "long")
"""Loads that only ours is asked for: several settings of one start, and one long enough that its
start is small."""
POINTS = 3
"""Of the load `sweep`."""
COMPARED = 10
"""Settings of the sweep whose cost is compared."""
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""Of the tools: with that variable ours, run from a checkout, would be compiled at each start."""
LEAST_SERVED = 0.99
"""A tool that served a smaller share of the requests that it was asked for measured something else.
"""


@dataclass(frozen=True)
class Result:
    """One run of one tool: what it said, what was true, what it cost. Seconds, bytes."""

    tool: str
    load: str
    said: Said
    true: Said
    served: int
    chunks: int
    busy: float
    idle: float
    wall: float
    cpu: float
    rss: int
    turn: int = 0


class Meter:
    """CPU seconds and peak memory of a process tree, as far as they can be seen from outside while
    it runs.
    """

    def __init__(self, pid: int) -> None:
        self.rss = 0
        self._root = psutil.Process(pid)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.25):
            with contextlib.suppress(psutil.Error):
                tree = [self._root, *self._root.children(recursive=True)]
                total = 0
                for process in tree:
                    with contextlib.suppress(psutil.Error):
                        total += process.memory_info().rss
                self.rss = max(self.rss, total)

    def close(self) -> None:
        """No more looking."""
        self._over.set()
        self._thread.join()


def truth(log: list[Served]) -> Said:
    """What the server saw of the requests it answered whole."""
    whole = [s for s in log if not s.cut_short and len(s.sent)]
    first, last = np.array([s.ttft for s in whole]), np.array([s.e2e for s in whole])
    between = [(s.e2e - s.ttft) / (len(s.sent) - 1) for s in whole if len(s.sent) > 1]
    return {
        "ttft_mean": float(first.mean()),
        "ttft_p99": float(np.quantile(first, 0.99, method="inverted_cdf")),
        "tpot_mean": float(np.mean(between)),
        "e2e_mean": float(last.mean()),
    }


def idle(log: list[Served]) -> float:
    """Seconds between the first request and the last token in which nothing was in flight."""
    spans = sorted((s.receipt, float(s.sent[-1])) for s in log if len(s.sent))
    found, until = 0.0, spans[0][1]
    for begin, end in spans:
        found += max(0.0, begin - until)
        until = max(until, end)
    return found


def measure(tool: Tool, name: str, tools: Path, tokenizer: Path, load: Load, turn: int = 0) -> Result | None:
    """One run of one tool at a fresh server; None where the tool failed."""
    with tempfile.TemporaryDirectory(prefix="peers-") as scratch, TruthServer(ttft=load.ttft, itl=load.itl) as server:
        folder = Path(scratch)
        point = Point(
            server.url.removesuffix("/v1"),
            load.streams,
            load.requests,
            ISL,
            OSL,
            tokenizer,
            folder,
            POINTS if name == "sweep" else 1,
        )
        began, before = time.perf_counter(), os.times()
        with (folder / "log").open("wb") as out:
            process = subprocess.Popen(
                tool.command(point, tools),
                env={**ENVIRONMENT, **tool.environment},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
            meter = Meter(process.pid)
            code = process.wait(600)
        meter.close()
        wall, after = time.perf_counter() - began, os.times()
        # Ours exits 5 when it flags its own point (at the flood it must): what it saw is on record
        # all the same.
        if code and tool.name != "frontier":
            said = (folder / "log").read_text(errors="replace")
            print(f"{tool.name} failed ({name}), which is a dash in the table:\n{said[-1000:]}", file=sys.stderr)
            return None
        server.stop()
        log = [s for s in server.read_log() if s.tokens == OSL]
        asked = load.requests * point.points
        if len(log) < LEAST_SERVED * asked and tool.name != "frontier":  # ours counts a window, and says so
            print(f"{tool.name} sent {len(log)} of {asked} requests as asked: does that compare?", file=sys.stderr)
        busy = max(s.sent[-1] for s in log if len(s.sent)) - min(s.receipt for s in log)
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        chunks = sum(len(s.sent) for s in log)
        return Result(
            tool.name,
            name,
            tool.said(point),
            truth(log),
            len(log),
            chunks,
            float(busy),
            idle(log),
            wall,
            cpu,
            meter.rss,
            turn,
        )


HEADS = (
    "TTFT mean, ms",
    "TTFT p99, ms",
    "TPOT mean, %",
    "E2E mean, ms",
    "CPU s per 1,000",
    "fixed, s",
    "chunks/s",
    "RSS, MiB",
    "next point, s",
    "ten points, s",
)
DIGITS = dict(zip(HEADS, (2, 2, 2, 2, 2, 1, 0, 0, 2, 0), strict=True))
SIGNED = HEADS[:4]
COSTS = ("CPU s per 1,000", "fixed, s", "ten points, s", "RSS, MiB")
"""Less is better."""


def figures(results: list[Result]) -> dict[str, float]:
    """The figures of one tool: medians over the rounds. NaN where no load tells one."""
    paced, short, flood, sweep, long = ([r for r in results if r.load == load] for load in LOADS)

    def middle(values: list[float]) -> float:
        return statistics.median(values) if values else float("nan")

    def off(key: str) -> float:
        return middle([(r.said[key] - r.true[key]) * 1e3 for r in paced])

    fixed = middle([r.wall - r.busy for r in short])
    between = middle([r.idle / (POINTS - 1) for r in sweep])
    return dict(
        zip(
            HEADS,
            (
                off("ttft_mean"),
                off("ttft_p99"),
                middle([(r.said["tpot_mean"] / r.true["tpot_mean"] - 1) * 100 for r in paced]),
                off("e2e_mean"),
                middle(
                    [(a.cpu - b.cpu) / (a.served - b.served) * 1e3 for a, b in zip(long or paced, short, strict=False)]
                ),
                fixed,
                middle([r.chunks / r.busy for r in flood]),
                middle([r.rss / 2**20 for r in paced]),
                between,
                fixed + (COMPARED - 1) * (fixed if np.isnan(between) else between),
            ),
            strict=True,
        )
    )


def table(results: list[Result]) -> str:
    """Markdown, a row per tool, in the order of measuring; then how far the best of the others is
    from ours.
    """
    of = {name: [r for r in results if r.tool == name] for name in dict.fromkeys(r.tool for r in results)}
    lines = ["| | " + " | ".join(HEADS) + " |", "|---|" + "--:|" * len(HEADS)]
    for name, mine in of.items():
        cells = [
            "–" if np.isnan(v) else f"{v:{'+' if head in SIGNED else ''},.{DIGITS[head]}f}"
            for head, v in figures(mine).items()
        ]
        lines.append(f"| {LABELS[name]} | {' | '.join(cells)} |")
    if len(of) > 1 and "frontier" in of:
        rounds = max((r.turn for r in results), default=0) + 1
        each = [
            _ratios({name: [r for r in mine if r.turn == turn] for name, mine in of.items()}) for turn in range(rounds)
        ]
        texts = [
            f"{head} {value:.1f}× ({min(e[head] for e in each):.1f} to {max(e[head] for e in each):.1f})"
            for head, value in _ratios(of).items()
        ]
        lines.append(f"\nThe best of the others to ours, {rounds} rounds: {', '.join(texts)}")
    return "\n".join(lines)


def _ratios(of: dict[str, list[Result]]) -> dict[str, float]:
    """By how many times ours is better than the best of the others, by figure."""
    ours = figures(of["frontier"])
    others = [figures(mine) for name, mine in of.items() if name != "frontier"]
    ratios = {head: min(o[head] for o in others) / ours[head] for head in COSTS}
    return ratios | {"chunks/s": ours["chunks/s"] / max(o["chunks/s"] for o in others if not np.isnan(o["chunks/s"]))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", type=Path, default=Path("peers"))
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--only", nargs="+", choices=sorted(TOOLS), default=list(TOOLS))
    parser.add_argument("--loads", nargs="+", choices=sorted(LOADS), default=list(LOADS))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--share", type=float, default=1.0, help="of the requests, to try the command out")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--again", type=Path)
    asked = parser.parse_args()
    if asked.again:
        print(table([Result(**r) for r in json.loads(asked.again.read_text())]))
        return
    present = []
    for name in asked.only:
        if (reason := why_missing(name, asked.tools)) is not None:
            print(f"{name} is left out; it is installed by:  {reason}", file=sys.stderr)
        else:
            present.append(name)
    if set(present) - {"frontier"} and asked.tokenizer is None:
        parser.error("the other tools need --tokenizer FOLDER")
    tokenizer, tools = (asked.tokenizer or Path()).absolute(), asked.tools.absolute()
    loads = {name: replace(LOADS[name], requests=round(LOADS[name].requests * asked.share)) for name in asked.loads}
    began, results = time.monotonic(), list[Result]()
    for name in present:
        measure(TOOLS[name], "short", tools, tokenizer, LOADS["short"])
    longest = 0.0
    for turn in range(asked.rounds):
        if (at := time.monotonic()) + longest > began + 60 * asked.minutes and turn:
            print(f"no time for round {turn + 1}: raise --minutes", file=sys.stderr)
            break
        for load in loads:
            for name in present if turn % 2 == 0 else present[::-1]:
                if load in OURS and name != "frontier":
                    continue
                if (result := measure(TOOLS[name], load, tools, tokenizer, loads[load], turn)) is None:
                    continue
                results.append(result)
                print(f"round {turn + 1}: {name}, {load}: {result.wall:.1f} s", file=sys.stderr)
                if asked.keep:
                    asked.keep.write_text(json.dumps([asdict(r) for r in results]))
        longest = max(longest, time.monotonic() - at)
    print(table(results))


if __name__ == "__main__":
    main()
