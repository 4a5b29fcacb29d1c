"""What several client processes carry: streams held with exact accounting, events per second, and
agreement.

usage: python -m benchmarks.scale [--streams 4096] [--workers 1,2,4] [--tokens 100] [--itl 100]
[--seconds 8]

Against the truth server, whose log says how many requests and tokens it served. A row is a whole
trial: every request on record is compared with the log, and in flight is the integral over the
window. The second table compares a setting that one process holds with ease, by its 95% intervals,
with the same setting on more processes.
"""

import argparse
import asyncio
from typing import Any

from benchmarks.truth import TruthServer
from frontier.client import run_trial
from frontier.client.ask.prompts import PromptPlan
from frontier.client.ask.target import Target
from frontier.client.http.http_client import run
from frontier.client.load.health import raise_fd_limit
from frontier.client.load.processes import LocalWorkers, cores
from frontier.client.load.shard import run_sharded
from frontier.core.estimates.estimate import estimate
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Measurement, Outcome, Phase, Record, Trial
from frontier.core.window.from_records import window_data

ISL = 32
AGREE = (64, 50, 0.010)
"""Streams, tokens and seconds between tokens of the setting whose figures are compared."""
FIGURES = ("output_throughput", "p50_ttft", "p90_ttft", "mean_tpot", "p90_e2e")


async def trial_on(workers: int, port: int, trial: Trial, e2e: float) -> tuple[Measurement, list[Record]]:
    """One trial on so many client processes."""
    target = Target(f"http://127.0.0.1:{port}/v1", "truth", "chat", dialect="vllm")
    records: list[Record] = []
    plan, local = PromptPlan(trial.shape, trial.seed), LocalWorkers()
    how: dict[str, Any] = {"on_record": records.append, "expected_e2e": e2e}
    try:
        if workers == 1:
            measured = await run_trial(trial, target, plan.source(), **how)
        else:
            measured = await run_sharded(trial, target, plan, local.get(workers), **how)
    finally:
        local.close()
        await asyncio.sleep(0)
    return measured, sorted(records, key=lambda record: record.end)


def measured(
    workers: int, streams: int, tokens: int, itl: float, seconds: float
) -> tuple[Measurement, list[Record], str]:
    """A trial, its records in order of their ends, and what of its accounting is not exact (''
    where all of it is).
    """
    trial = Trial("scale", Shape.of(ISL, tokens), streams, 1, Phase.GRID, 1, 7, 0.5, seconds, 300.0, "scale")
    with TruthServer(ttft=0.05, itl=itl) as server:
        found, records = run(trial_on(workers, server.port, trial, 0.05 + itl * tokens))
    served = server.read_log()
    whole = [record for record in records if record.outcome is Outcome.OK]
    problems = []
    if {record.outcome for record in records} - {Outcome.OK, Outcome.CANCELLED}:
        problems.append("some failed")
    if len({record.index for record in records}) != len(records):
        problems.append("a request is there twice")
    if len(whole) > (finished := sum(not entry.cut_short for entry in served)):
        problems.append(f"{len(whole)} answers on record, {finished} served")
    # Cut off while its last token was on the way: served to its end, and not on record as such.
    if finished - len(whole) > sum(record.outcome is Outcome.CANCELLED for record in records):
        problems.append(f"{finished} served, {len(whole)} on record")
    if any(record.completion_tokens != record.asked_osl or record.events != record.asked_osl for record in whole):
        problems.append("tokens are missing")
    return found, records, ", ".join(problems)


def row(workers: int, streams: int, tokens: int, itl: float, seconds: float) -> str:
    """A line of the table of load."""
    found, records, problem = measured(workers, streams, tokens, itl, seconds)
    start, end = found.window.start, found.window.end
    inside = [r for r in records if r.outcome is Outcome.OK and start <= r.end < end]
    in_flight = sum(max(0.0, min(r.end, end) - max(r.sent, start)) for r in records) / (end - start)
    data = window_data(found, records)
    health = found.health
    cells = (
        workers,
        f"{streams:,}",
        f"{sum(r.events for r in inside) / (end - start):,.0f}",
        f"{in_flight:,.1f}",
        problem or "exact",
        f"{len(records):,}",
        f"{value(data, 'p50_ttft') * 1e3:.1f}",
        f"{value(data, 'p99_ttft') * 1e3:.1f}",
        f"{(health.loop_lag_p99 or 0.0) * 1e3:.1f}",
        f"{health.cpu_share or 0.0:.0%}",
    )
    return "| " + " | ".join(map(str, cells)) + " |"


def value(data: Any, name: str) -> float:
    """The value of a metric; infinite where there is none."""
    found = estimate(data, name)
    return float("inf") if found is None else found.value


def agreement(counts: list[int], seconds: float) -> list[str]:
    """Lines of the table of agreement: each metric with its interval, by the number of
    processes.
    """
    windows = {}
    for workers in counts:
        found, records, problem = measured(workers, *AGREE, seconds)
        assert not problem, problem
        windows[workers] = window_data(found, records)
    lines = []
    for name in FIGURES:
        estimates = [estimate(windows[workers], name) for workers in counts]
        cells = [f"{e.value:.5g} [{e.low:.5g}, {e.high:.5g}]" for e in estimates if e is not None]
        first = estimates[0]
        assert first is not None
        same = all(e is not None and e.low <= first.high and first.low <= e.high for e in estimates)
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {'yes' if same else 'NO'} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=4096)
    parser.add_argument("--workers", default="1,2,4")
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--itl", type=float, default=100.0, help="milliseconds")
    parser.add_argument("--seconds", type=float, default=8.0)
    options = parser.parse_args()
    counts = [int(count) for count in options.workers.split(",")]
    raise_fd_limit(2 * options.streams + 64)
    print(f"{cores()} cores, the server's included\n")
    heads = (
        "processes",
        "streams",
        "events/s",
        "in flight",
        "accounting",
        "requests",
        "p50 TTFT ms",
        "p99 TTFT ms",
        "lag p99 ms",
        "CPU of the busiest",
    )
    print("| " + " | ".join(heads) + " |\n" + "|--:" * len(heads) + "|", flush=True)
    for workers in counts:
        print(row(workers, options.streams, options.tokens, options.itl / 1e3, options.seconds), flush=True)
    print("\n| metric | " + " | ".join(f"{count} processes" for count in counts) + " | overlap |")
    print("|---|" + "--:|" * (len(counts) + 1))
    print("\n".join(agreement(counts, options.seconds)))


if __name__ == "__main__":
    main()
