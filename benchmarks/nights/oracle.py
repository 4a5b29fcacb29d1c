"""A second program: it reads the trial files alone, knows nothing of `frontier`, and says how many
requests each trial's window has, how many of them failed, and how slow they were.
"""

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Window:
    """One trial: its deployment and setting, and of the requests sent in its window the TTFTs and
    E2Es; a failed one's are infinite.
    """

    key: str
    deployment: str
    setting: int
    ttft: tuple[float, ...]
    e2e: tuple[float, ...]

    @property
    def n(self) -> int:
        return len(self.ttft)

    @property
    def failed(self) -> int:
        return sum(map(math.isinf, self.ttft))


def finished(run: Path) -> list[Path]:
    """The evidence of each finished trial. A kill can leave evidence without records: no trial."""
    return [e for e in sorted((run / "evidence").glob("*-r*.json")) if (run / "trials" / f"{e.stem}.jsonl").exists()]


def windows(run: Path) -> list[Window]:
    """The windows of all finished trials of a closed loop."""
    found = []
    for file in finished(run):
        evidence = json.loads(file.read_text())
        trial, edges = evidence["trial"], evidence["window"]
        if trial.get("rate") is not None:
            continue
        ttft, e2e = [], []
        for line in (run / "trials" / f"{file.stem}.jsonl").read_text().splitlines():
            record = json.loads(line)
            if not edges["start"] <= record["sent"] < edges["end"] or record["outcome"] == "cancelled":
                continue
            ok = record["outcome"] == "ok"
            ttft.append(record["first"] - record["sent"] if ok else math.inf)
            e2e.append(record["last"] - record["sent"] if ok else math.inf)
        found.append(Window(file.stem, trial["deployment"], trial["concurrency"], tuple(ttft), tuple(e2e)))
    return found


def explains(parts: Sequence[Window], n: int, error_rate: float | None, max_ttft: float | None) -> bool:
    """Whether some of a setting's windows, joined, have these figures."""
    for size in range(1, len(parts) + 1):
        for some in itertools.combinations(parts, size):
            if sum(part.n for part in some) != n:
                continue
            failed = sum(part.failed for part in some) / max(n, 1)
            slowest = max((v for part in some for v in part.ttft if math.isfinite(v)), default=None)
            same = error_rate is None or abs(failed - error_rate) < 1e-9
            if same and (max_ttft is None or slowest is None or failed or abs(slowest - max_ttft) < 1e-5):
                return True
    return False
