"""Request logs with known contents, for the tests of workloads."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PLANTED = ("my planted prompt", "sk-planted1234567890abcdef", "planted answer")
"""Texts that no output may hold."""


def rows(number: int, seed: int = 1, rate: float = 2.0) -> Iterator[dict[str, Any]]:
    """Requests as a gateway logs them, whose lengths go together, with texts and a key in them."""
    rng, time = random.Random(seed), 1_764_000_000.0
    for i in range(number):
        time += rng.expovariate(rate)
        isl = min(20_000, max(8, round(rng.lognormvariate(6.5, 1.2))))
        osl = min(2_000, max(2, round(rng.lognormvariate(4.5, 0.6) + isl / 100)))
        ttft = 0.05 + isl / 20_000
        yield {
            "request_id": f"r{i}",
            "startTime": time,
            "completionStartTime": time + ttft,
            "endTime": time + ttft + 0.012 * (osl - 1),
            "prompt_tokens": isl,
            "completion_tokens": osl,
            "messages": [{"role": "user", "content": PLANTED[0]}],
            "api_key": PLANTED[1],
            "response": PLANTED[2],
        }


def write(path: Path, logged: Iterator[dict[str, Any]] | list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in logged))
    return path
