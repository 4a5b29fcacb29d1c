"""How true the client's numbers are: against a server that logs when each token really left.

usage: python -m benchmarks.client_fidelity [--streams 1 16 64 128] [--tokens 100] [--ttft-ms 50] [--itl-ms 10]

Every request has a prompt of its own length, so that each record meets its log entry. Shown are the errors of the
client's mean, p50 and p99 against the truth (client minus truth, microseconds), and how long after its departure a
token was stamped. Server and client share the machine: part of the error is the network stack and the scheduler.
"""

import argparse
import time
from multiprocessing import get_context

import numpy as np
import numpy.typing as npt

from benchmarks.truth import Served, TruthServer
from frontier.measure.loop import run_trial
from frontier.measure.prompts import Prompt
from frontier.measure.runner import run
from frontier.measure.target import Target
from frontier.model import Measurement, Outcome, Phase, Record, Shape, Trial

Floats = npt.NDArray[np.float64]


def prompt(index: int, tokens: int) -> Prompt:
    """Its length is its name."""
    return Prompt("w " * index + "w", index + 1, tokens)


def measured(streams: int, tokens: int, ttft: float, itl: float, seconds: float) -> list[tuple[Record, Served, float]]:
    """Successful records of the window, each with its log entry and the trial's zero on time.perf_counter()."""
    records: list[Record] = []
    with TruthServer(ttft=ttft, itl=itl) as server:
        target = Target(server.url, "truth", "chat", dialect="vllm")
        trial = Trial("bench", Shape.of(1, tokens), streams, 0, Phase.GRID, 1, 1, 0.5, seconds, 120.0, "bench")
        found: Measurement = run(
            run_trial(trial, target, lambda i: prompt(i, tokens), sink=records.append, expected_e2e=ttft + itl * tokens)
        )
        zero = found.epoch - (time.time() - time.perf_counter())
        server.stop()
        log = {served.prompt_tokens: served for served in server.read_log()}
    window = found.window
    inside = [r for r in records if window.start <= r.sent < window.end]
    assert all(r.outcome is Outcome.OK for r in inside), "a request failed"
    return [(r, log[r.asked_isl], zero) for r in inside]


def stamps(record: Record) -> Floats:
    """When each token was received, on the trial's clock."""
    assert record.first is not None
    return record.first + np.concatenate(([0.0], np.cumsum(record.gaps))) * 1e-6


def errors(pairs: list[tuple[Record, Served, float]]) -> dict[str, tuple[float, float, float]]:
    """Client minus truth of mean, p50, p99 per metric, in microseconds; and the delay of the stamps themselves."""
    client: dict[str, Floats] = {}
    truth: dict[str, Floats] = {}
    seen, left = [stamps(r) for r, _, _ in pairs], [s.sent for _, s, _ in pairs]
    client["TTFT"] = np.array([t[0] - r.sent for (r, _, _), t in zip(pairs, seen, strict=True)])
    truth["TTFT"] = np.array([s.ttft for _, s, _ in pairs])
    client["TPOT"] = np.array([(t[-1] - t[0]) / (len(t) - 1) for t in seen])
    truth["TPOT"] = np.array([(t[-1] - t[0]) / (len(t) - 1) for t in left])
    client["ITL"], truth["ITL"] = (np.concatenate([np.diff(t) for t in both]) for both in (seen, left))
    client["E2E"] = np.array([t[-1] - r.sent for (r, _, _), t in zip(pairs, seen, strict=True)])
    truth["E2E"] = np.array([s.e2e for _, s, _ in pairs])
    found = {}
    for name, values in client.items():
        a, b = ((v.mean(), *np.quantile(v, [0.5, 0.99], method="inverted_cdf")) for v in (values, truth[name]))
        found[name] = (float(a[0] - b[0]) * 1e6, float(a[1] - b[1]) * 1e6, float(a[2] - b[2]) * 1e6)
    delay = np.concatenate([t + zero - s.sent for (_, s, zero), t in zip(pairs, seen, strict=True)]) * 1e6
    middle, tail = map(float, np.quantile(delay, [0.5, 0.99], method="inverted_cdf"))
    found["stamp delay"] = (float(delay.mean()), middle, tail)
    return found


def row(streams: int, tokens: int, ttft: float, itl: float, seconds: float) -> dict[str, tuple[float, float, float]]:
    return errors(measured(streams, tokens, ttft, itl, seconds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 16, 64, 128])
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--ttft-ms", type=float, default=50.0)
    parser.add_argument("--itl-ms", type=float, default=10.0)
    parser.add_argument("--seconds", type=float, default=6.0)
    options = parser.parse_args()
    print(f"{'streams':>7}  {'':12} {'mean us':>9} {'p50 us':>9} {'p99 us':>9}")
    for streams in options.streams:
        with get_context("spawn").Pool(1) as pool:
            timing = (options.tokens, options.ttft_ms / 1e3, options.itl_ms / 1e3, options.seconds)
            found = pool.apply(row, (streams, *timing))
        for name, values in found.items():
            print(f"{streams:7d}  {name:12}", *(f"{value:9.0f}" for value in values), flush=True)


if __name__ == "__main__":
    main()
