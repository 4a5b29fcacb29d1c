"""Half an hour on one GPU: its ceilings, a real-size model alone, served and swept, the engine
model, the client's limits.

usage: python -m benchmarks.gpu_half_hour -o FOLDER [--gpu h200] [--steps ceilings steps burst
server engine client] [--shapes 1024/256 256/256] [--sla p95_ttft=2s p95_tpot=100ms]
[--server-python PYTHON] [--minutes 6] [--device cpu --size tiny]

Six steps in the order of their value. Each has its own files in FOLDER and fails alone;
FOLDER/steps.md says what was reached and how long it took. A later call with other --steps goes on
in the same folder; `server` reads what `burst` left, and `engine` the runs of `server`.

  ceilings  frontier ceilings
  steps     a random llama in the shape of an 8B model alone: its step times over batch and context
  burst     the same behind a server, with CUDA graphs and without: bursts of requests, so that the
            sweep has the faster one, and a limit that it can be near
  server    the same behind transformers' server with continuous batching: probe, sweep, page,
            picture, and the points
  engine    the engine model fitted to four of the sweep's concurrencies, and its error at the
            others
  client    events per second and p99 TTFT error of the client against a server whose times are
            known

PYTHON (default: this one) needs torch and transformers with its server. With --device cpu --size
tiny all of it is rehearsed in about ten minutes without a GPU.
"""

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls

from frontier.extras.predict.fit import Calibrated, Known
from frontier.extras.predict.prediction import EFFICIENCY, OVERHEAD
from frontier.hardware.gpus import hardware
from frontier.hardware.models import card
from frontier.hardware.roofline import ModelRoofline

ROOT = Path(__file__).parents[1]
MODEL = "llama-3.1-8b-random"
FRONTIER = (sys.executable, "-m", "frontier")
CONCURRENCIES = {"8b": [1, 2, 4, 8, 16, 32, 64], "tiny": [1, 2, 4, 6, 8, 12]}
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "DO_NOT_TRACK": "1"}


def shapes(asked: argparse.Namespace) -> list[tuple[int, int]]:
    """Input and output lengths."""
    return [(int(isl), int(osl)) for isl, _, osl in (shape.partition("/") for shape in asked.shapes)]


class StepError(Exception):
    """A step that did not end well; its message says what to look at."""


def ran(asked: argparse.Namespace, name: str, *command: str, limit: float = 600, ends: tuple[int, ...] = (0,)) -> str:
    """Runs a command and keeps what it prints in FOLDER/NAME.txt; returns its standard output."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired as error:
        raise StepError(f"{name}: not done after {limit:.0f} s") from error
    (asked.output / f"{name}.txt").write_text(f"$ {' '.join(command)}\n{done.stdout}{done.stderr}")
    if done.returncode not in ends:
        raise StepError(f"{name}: exit {done.returncode}; see {name}.txt")
    return done.stdout


def ceilings(asked: argparse.Namespace) -> None:
    """What memory, matrix units and attention do at most."""
    text = ran(asked, "ceilings", *FRONTIER, "ceilings", "--device", asked.device, "--json")
    (asked.output / "ceilings.json").write_text(text)


def steps(asked: argparse.Namespace) -> None:
    """Step times of the model alone, without a server."""
    tiny = ("--tiny", "--seconds", "0.1") if asked.size == "tiny" else ()
    text = ran(asked, "steps", asked.server_python, "benchmarks/bare_llama.py", *tiny)
    (asked.output / "steps.json").write_text(text)


@contextlib.contextmanager
def served(asked: argparse.Namespace, *flags: str) -> Iterator[str]:
    """The model behind transformers' own server, after its first answer: its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = ("benchmarks/random_llama.py", str(asked.output / MODEL))
    command = (asked.server_python, *folder, "--port", str(port), "--size", asked.size, *flags)
    with (asked.output / f"server{''.join(flags)}.txt").open("w") as log:
        server = subprocess.Popen(
            command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True, env={**os.environ, **OFFLINE}
        )
        try:
            while not listening(port):
                if server.poll() is not None:
                    raise StepError(f"the server ended with {server.returncode}; see {log.name}")
                time.sleep(1)
            first_answer(f"http://127.0.0.1:{port}/v1/completions")
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGTERM)
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait()


def first_answer(url: str) -> None:
    """Waits for an answer: with the first request the server reserves its KV memory, which can take
    minutes.
    """
    body = json.dumps({"model": MODEL, "prompt": "hello there", "max_tokens": 4}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        urllib.request.urlopen(request, timeout=300).read()
    except OSError as error:
        raise StepError(f"the server gave no first answer: {error}; see server.txt") from error


def listening(port: int) -> bool:
    """Whether something accepts connections there."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def tokens_per_second(url: str, streams: int) -> float:
    """Of `streams` requests of 32 tokens at once, after two rounds of them."""

    def one(index: int) -> None:
        body = json.dumps({"model": MODEL, "prompt": f"{index} one two three " * 40, "max_tokens": 32}).encode()
        request = urllib.request.Request(f"{url}/completions", body, {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=60).read()

    with ThreadPoolExecutor(streams) as pool:
        for _ in range(3):
            began = time.monotonic()
            list(pool.map(one, range(streams)))
    return streams * 32 / (time.monotonic() - began)


def burst(asked: argparse.Namespace) -> None:
    """Rates of the server with CUDA graphs and without them."""
    rates: dict[str, dict[int, float]] = {}
    for flag in ("--graphs", "") if asked.device == "cuda" else ("",):
        try:
            with served(asked, *flag.split()) as url:
                rates[flag] = {streams: tokens_per_second(url, streams) for streams in (1, 8, 32, 64)}
        except (StepError, OSError) as error:
            print(f"server {flag or 'without graphs'}: {error}", flush=True)
    print(f"tokens per second by streams: {rates}", flush=True)
    if not rates:
        raise StepError("the server does not run; see server*.txt")
    (asked.output / "burst.json").write_text(json.dumps(rates, indent=1))


def server(asked: argparse.Namespace) -> None:
    """Probe and sweep, one shape after the other; picture, page and points."""
    rates = json.loads((asked.output / "burst.json").read_text())
    with served(asked, *max(rates, key=lambda flag: rates[flag]["32"]).split()) as url:
        ran(asked, "probe", *FRONTIER, "probe", url, "--model", MODEL, "--wait", "5min", ends=(0, 4, 5))
        for isl, osl in shapes(asked):
            swept(asked, url, isl, osl)


def swept(asked: argparse.Namespace, url: str, isl: int, osl: int) -> None:
    """One shape's sweep, its page, picture and points."""
    run = asked.output / f"run-{isl}x{osl}"
    config = {
        "name": f"{asked.size}-{isl}x{osl}",
        "endpoint": url,
        "model": MODEL,
        "shapes": [f"{isl}/{osl}"],
        "concurrency": CONCURRENCIES[asked.size],
        "sla": dict(limit.split("=") for limit in asked.sla) | {"error_rate": "1%"},
        "budget": {"time": f"{asked.minutes:g}min"},
    }
    if asked.device == "cuda":
        config |= {"hardware": {"name": asked.gpu, "model": "llama-3.1-8b"}, "gpus": 1, "price": "$3/gpu/h"}
    file = asked.output / f"{run.name}.yaml"
    file.write_text(json.dumps(config, indent=1))  # JSON is YAML
    # 3 and 4 are answers: no setting meets the SLA, or none was proven in the time.
    sweep = (*FRONTIER, "sweep", str(file), "-o", str(run))
    ran(asked, run.name, *sweep, limit=60 * asked.minutes + 60, ends=(0, 3, 4))
    shown(asked, run)


def shown(asked: argparse.Namespace, run: Path) -> None:
    """What people see of a run, and its points for the next step."""
    ran(asked, f"{run.name}-page", *FRONTIER, "report", str(run), "-o", str(asked.output / f"{run.name}.html"))
    ran(asked, f"{run.name}-picture", *FRONTIER, "plot", str(run), "-o", str(asked.output / f"{run.name}.png"))
    points = ran(asked, f"{run.name}-show", *FRONTIER, "show", str(run), "--json")
    (asked.output / f"{run.name}.json").write_text(points)


FITTED = ((1, 256), (64, 256), (256, 1024), (16, 16384))
"""Batch and context of the steps that the prices of the embedded engine are fitted to."""


def step_table(rows: list[dict[str, Any]], gpu: str) -> list[str]:
    """Measured steps of the model alone beside the roofline, the prediction without a measurement
    (60% of the roofline and 2 ms), and the embedded engine's prices fitted to four of them.
    """
    roofline = ModelRoofline.of(card("llama-3.1-8b"), hardware(gpu), 1, "bf16", "bf16")
    steps = {(row["batch"], row["context"]): row["s"] for row in rows if row["kind"] == "decode"}
    parts = np.array([[1, b, b * c] for b, c in FITTED]) / np.array([[steps[at]] for at in FITTED])
    prices, _ = nnls(parts, np.ones(len(FITTED)))
    base, decode, token = prices
    lines = [
        f"Fitted: {1e3 * base:.2f} ms a step, {1e6 * decode:.1f} us a request, {1e9 * token:.1f} ns a token of context",
        "",
        "| batch | context | step | of the roofline | predicted unmeasured | fitted |",
        "|--:|--:|--:|--:|--:|--:|",
    ]
    for (batch, context), took in steps.items():
        bound = roofline.decode(batch, context).seconds
        blind = bound / EFFICIENCY + OVERHEAD
        fitted = base + batch * decode + batch * context * token
        role = "(used)" if (batch, context) in FITTED else f"{fitted / took - 1:+.1%}"
        lines.append(
            f"| {batch} | {context:,} | {1e3 * took:.2f} ms | {bound / took:.0%} | {blind / took - 1:+.0%} | {role} |"
        )
    return lines


def engine(asked: argparse.Namespace) -> None:
    """The engine model fitted to the first, the last and two settings between, beside what the
    others measured; and the step times of the model alone.
    """
    if (asked.output / "steps.json").exists() and asked.size == "8b":
        rows = json.loads((asked.output / "steps.json").read_text())["steps"]
        (asked.output / "step-table.md").write_text("\n".join(step_table(rows, asked.gpu)) + "\n")
    lines = [
        "| shape | concurrency | | TTFT measured | predicted | TPOT measured | predicted |",
        "|---|--:|---|--:|--:|--:|--:|",
    ]
    for isl, osl in shapes(asked):
        file = asked.output / f"run-{isl}x{osl}.json"
        if not file.exists():
            raise StepError(f"{file.name} is missing: run the step server first")
        points = [p for p in json.loads(file.read_text())["points"] if p["valid"]]
        known = sorted(
            (
                Known(p["concurrency"], p["metrics"]["p50_ttft"]["value"], p["metrics"]["p50_tpot"]["value"])
                for p in points
            ),
            key=lambda k: k.concurrency,
        )
        if len(known) < 5:
            raise StepError(f"{isl}/{osl}: {len(known)} valid settings; a fit to four needs a fifth to be judged by")
        last = len(known) - 1
        fitted = {0, round(last / 3), round(2 * last / 3), last}
        roofline = None
        if asked.device == "cuda":
            roofline = ModelRoofline.of(card("llama-3.1-8b"), hardware(asked.gpu), 1, "bf16", "bf16")
        model = Calibrated([known[i] for i in sorted(fitted)], isl, osl, roofline=roofline)
        for i, point in enumerate(known):
            said = model.at(point.concurrency)
            role = "fitted" if i in fitted else "left out"
            ttft = f"{1e3 * point.ttft:.1f} ms | {1e3 * said.ttft.value:.1f} ms"
            tpot = f"{1e3 * point.tpot:.2f} ms | {1e3 * said.tpot.value:.2f} ms"
            lines.append(f"| {isl}/{osl} | {point.concurrency} | {role} | {ttft} | {tpot} |")
    (asked.output / "engine.md").write_text("\n".join(lines) + "\n")


def client(asked: argparse.Namespace) -> None:
    """What the load client costs, and how true its numbers are, on this processor."""
    short = ("--seconds", "2", "--repeats", "1") if asked.size == "tiny" else ()
    ran(asked, "client-capacity", sys.executable, "-m", "benchmarks.client_capacity", *short)
    ran(asked, "client-fidelity", sys.executable, "-m", "benchmarks.client_fidelity", *(short[:2]))


STEPS: dict[str, Callable[[argparse.Namespace], None]] = {
    "ceilings": ceilings,
    "steps": steps,
    "burst": burst,
    "server": server,
    "engine": engine,
    "client": client,
}


def main() -> int:
    """Runs the steps that are asked; 1 when one of them did not end well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--gpu", default="h200", help="its name in frontier's list, for the roofline")
    parser.add_argument("--size", choices=CONCURRENCIES, default="8b")
    parser.add_argument("--shapes", nargs="+", default=["1024/256", "256/256"])
    parser.add_argument("--sla", nargs="+", default=["p95_ttft=2s", "p95_tpot=100ms"])
    parser.add_argument("--minutes", type=float, default=6, help="budget of each sweep")
    parser.add_argument("--server-python", default=sys.executable)
    asked = parser.parse_args()
    asked.output = asked.output.resolve()
    asked.output.mkdir(parents=True, exist_ok=True)
    table = asked.output / "steps.md"
    if not table.exists():
        table.write_text("| step | outcome | seconds |\n|---|---|--:|\n")
    failed = False
    for name in asked.steps:
        began, outcome = time.monotonic(), "done"
        try:
            STEPS[name](asked)
        except StepError as error:
            outcome, failed = str(error), True
        line = f"| {name} | {outcome} | {time.monotonic() - began:.0f} |"
        print(line, flush=True)
        with table.open("a") as file:
            file.write(f"{line}\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
