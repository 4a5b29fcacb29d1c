"""Five load clients and ours at one server whose truth is known: what they say, what they cost.

usage: python -m benchmarks.peers --tools FOLDER --tokenizer FOLDER [--only NAME ...] [--rounds 2] [--keep FILE]
       python -m benchmarks.peers --again FILE

FOLDER of --tools holds a virtual environment per tool (a missing one is named with the command that makes it, and left
out); --tokenizer is any Hugging Face tokenizer folder (`python tests/engines/vllm_cpu.py install` makes one).

Three loads, each tool in turn, round by round: `paced` (TTFT 50 ms, ITL 10 ms, 64 tokens, 128 streams, 1,280 requests),
the same with 128 requests, and `flood` (no delay at all, 32 streams). Per tool:
  error           what it said minus what the server saw, of the paced load
  CPU             of the whole process tree, per 1,000 further requests (paced minus its short form: start-up drops out)
  fixed           wall time of the short form beyond the time the server was at work: the price of each start
  next point      of ours: how long the server waits between two points of one sweep
  chunks/s        of the flood, as the server saw it
  RSS             the process tree's peak, added up
Figures are medians over the rounds. Nothing else should run on the machine.
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
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import psutil

from benchmarks.peers.tools import TOOLS, Point, Said, Tool, why_missing
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
    "flood": Load(32, 3200, 0.0, 0.0),
    "sweep": Load(128, 128, 0.050, 0.010),
}
POINTS = 3
"""Of the load `sweep`."""


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


class Meter:
    """CPU seconds and peak memory of a process tree, as far as they can be seen from outside while it runs."""

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


def measure(tool: Tool, name: str, tools: Path, tokenizer: Path) -> Result:
    """One run of one tool at a fresh server."""
    load = LOADS[name]
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
                tool.command(point, tools), env={**os.environ, **tool.environment}, cwd=folder,
                stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            )  # fmt: skip
            meter = Meter(process.pid)
            code = process.wait(600)
        meter.close()
        wall, after = time.perf_counter() - began, os.times()
        # Ours exits 5 when it flags its own point (at the flood it must): what it saw is on record all the same.
        if code and tool.name != "frontier":
            sys.exit(f"{tool.name} failed:\n{(folder / 'log').read_text(errors='replace')[-3000:]}")
        server.stop()
        log = [s for s in server.read_log() if s.tokens == OSL]
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
        )


def table(results: list[Result]) -> str:
    """Markdown, a row per tool, in the order of measuring; the last line says how far the best of the others is."""
    rows, figures = [], {}
    for name in dict.fromkeys(r.tool for r in results):
        paced, short, flood = (
            [r for r in results if (r.tool, r.load) == (name, load)] for load in ("paced", "short", "flood")
        )

        def middle(values: list[float]) -> float:
            return statistics.median(values) if values else float("nan")

        def off(key: str, runs: list[Result] = paced) -> float:
            return middle([(r.said[key] - r.true[key]) * 1e3 for r in runs])

        cpu = middle([
            (a.cpu - b.cpu) / (a.served - b.served) * 1e3 for a, b in zip(paced, short, strict=False)
        ])  # fmt: skip
        found = {
            "TTFT mean, ms": off("ttft_mean"),
            "TTFT p99, ms": off("ttft_p99"),
            "TPOT mean, %": middle([(r.said["tpot_mean"] / r.true["tpot_mean"] - 1) * 100 for r in paced]),
            "E2E mean, ms": off("e2e_mean"),
            "CPU s per 1,000": cpu,
            "fixed, s": middle([r.wall - r.busy for r in short]),
            "chunks/s": middle([r.chunks / r.busy for r in flood]),
            "RSS, MiB": middle([r.rss / 2**20 for r in paced]),
        }
        figures[name] = found
        digits = (2, 2, 2, 2, 2, 1, 0, 0)
        cells = [
            f"{v:+,.{d}f}" if i < 4 else f"{v:,.{d}f}"
            for i, (v, d) in enumerate(zip(found.values(), digits, strict=True))
        ]
        between = [r.idle / (POINTS - 1) for r in results if (r.tool, r.load) == (name, "sweep")]
        cells.append(f"{statistics.median(between):.2f}" if between else "–")
        rows.append(f"| {name} | {' | '.join(cells)} |")
    heads = [*next(iter(figures.values())), "next point, s"]
    lines = ["| | " + " | ".join(heads) + " |", "|---|" + "--:|" * len(heads), *rows]
    others = [f for name, f in figures.items() if name != "frontier"]
    if "frontier" in figures and others:
        ours = figures["frontier"]
        ratios = {
            head: f"{min(o[head] for o in others) / ours[head]:.1f}×"
            for head in ("CPU s per 1,000", "fixed, s", "RSS, MiB")
        }
        ratios["chunks/s"] = f"{ours['chunks/s'] / max(o['chunks/s'] for o in others):.1f}×"
        lines.append("\nThe best of the others to ours: " + ", ".join(f"{k} {v}" for k, v in ratios.items()))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", type=Path, default=Path("peers"))
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--only", nargs="+", choices=sorted(TOOLS), default=list(TOOLS))
    parser.add_argument("--loads", nargs="+", choices=sorted(LOADS), default=list(LOADS))
    parser.add_argument("--rounds", type=int, default=2)
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
    results = []
    for turn in range(asked.rounds):
        for load in asked.loads:
            for name in present if turn % 2 == 0 else present[::-1]:
                tokenizer = (asked.tokenizer or Path()).absolute()
                if load == "sweep" and name != "frontier":
                    continue
                results.append(measure(TOOLS[name], load, asked.tools.absolute(), tokenizer))
                print(f"round {turn + 1}: {name}, {load}: {results[-1].wall:.1f} s", file=sys.stderr)
                if asked.keep:
                    asked.keep.write_text(json.dumps([asdict(r) for r in results]))
    print(table(results))


if __name__ == "__main__":
    main()
