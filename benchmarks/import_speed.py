"""How long, and in how much memory, a large file of vLLM's `--save-detailed` is imported: `python
-m benchmarks.import_speed [REQUESTS] [TOKENS] [--file FILE]`.

The file is of 20,000 requests of 256 tokens with their gaps: 87 MB. It is imported three times; the
least processor time counts, so that other work on the machine does not. The goals are 10 s and
400 MB.
"""

import argparse
import heapq
import json
import random
import tempfile
from pathlib import Path

from benchmarks.analysis_speed import spent

CONCURRENCY = 64
GOAL, MOST_MB = 10.0, 400


def detailed(requests: int, tokens: int, seed: int = 1) -> dict[str, object]:
    """What vLLM's `bench serve --save-result --save-detailed` writes of a closed loop of
    CONCURRENCY requests in flight: gaps of 9 to 11 ms, times to first token of 50 to 60 ms.
    """
    rng = random.Random(seed)
    free = [0.0] * CONCURRENCY
    starts, ttfts, gaps = [], [], []
    for _ in range(requests):
        starts.append(heapq.heappop(free))
        ttfts.append(0.05 + 0.01 * rng.random())
        gaps.append([round(0.01 * (0.9 + 0.2 * rng.random()), 13) for _ in range(tokens - 1)])
        heapq.heappush(free, starts[-1] + ttfts[-1] + sum(gaps[-1]))
    duration = max(free)
    latencies = {
        "ttft": [1e3 * ttft for ttft in ttfts],
        "tpot": [1e3 * sum(each) / (tokens - 1) for each in gaps],
        "e2el": [1e3 * (ttft + sum(each)) for ttft, each in zip(ttfts, gaps, strict=True)],
        "itl": [1e3 * gap for each in gaps for gap in each],
    }
    result: dict[str, object] = {
        "date": "20260101-000000",
        "backend": "vllm",
        "endpoint_type": "openai",
        "model_id": "m-8b",
        "tokenizer_id": "m-8b",
        "num_prompts": requests,
        "request_rate": "inf",
        "burstiness": 1.0,
        "max_concurrency": CONCURRENCY,
        "duration": duration,
        "completed": requests,
        "failed": 0,
        "total_input_tokens": 128 * requests,
        "total_output_tokens": tokens * requests,
        "request_throughput": requests / duration,
        "output_throughput": tokens * requests / duration,
        "total_token_throughput": (128 + tokens) * requests / duration,
    }
    for name, values in latencies.items():
        ordered = sorted(values)
        result |= {
            f"mean_{name}_ms": sum(ordered) / len(ordered),
            f"median_{name}_ms": ordered[len(ordered) // 2],
            f"p99_{name}_ms": ordered[int(0.99 * len(ordered))],
        }
    return result | {
        "input_lens": [128] * requests,
        "output_lens": [tokens] * requests,
        "ttfts": ttfts,
        "itls": gaps,
        "start_times": [353399.7 + start for start in starts],
        "generated_texts": [""] * requests,
        "errors": [""] * requests,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("requests", type=int, nargs="?", default=20_000)
    parser.add_argument("tokens", type=int, nargs="?", default=256)
    parser.add_argument("--file", type=Path, help="where the file is made; it is kept, and used again")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = options.file or Path(folder) / "vllm.json"
        if not file.exists():
            file.write_text(json.dumps(detailed(options.requests, options.tokens)))
        runs = [Path(folder) / f"run{i}" for i in range(3)]
        measured = [spent("-m", "frontier", "import", str(file), "-o", str(run)) for run in runs]
        seconds, peak = min(measured)
        megabytes, goal = file.stat().st_size / 1e6, GOAL * options.requests * options.tokens / (20_000 * 256)
        print(f"a file of {megabytes:.0f} MB: {seconds:.1f} s, {peak:.0f} MB")
        print(f"of a goal of {goal:.1f} s: ratio {seconds / goal:.2f}; of {MOST_MB} MB: ratio {peak / MOST_MB:.2f}")


if __name__ == "__main__":
    main()
