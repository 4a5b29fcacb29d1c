"""How true the client's numbers are: against a server that logs when each token really left.

usage: python -m benchmarks.client_fidelity [--case STREAMS:TTFT_MS:ITL_MS ...] [--tokens 64]
[--seconds 6] [--connections 0] [--tls]

Every request has a prompt of its own length, so that each record meets its log entry. Shown are the
true values and the errors of the client's mean, p50 and p99 (client minus truth, milliseconds), how
long after its departure a token was stamped, and the flags the trial's own validity checks raise.
Server and client share the machine: part of the error is the network stack and the scheduler.
With `--connections` the window's requests are spread over so many connections, renewed for it; with
`--tls` a relay in a process of its own speaks TLS in front of the server, and its time is part of
the error then. The CPU time per request is the client's.
"""

import argparse
import asyncio
import contextlib
import ssl
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import numpy.typing as npt
import trustme

from benchmarks.truth import Served, TruthServer
from frontier.client import run_trial
from frontier.client.ask.target import Target
from frontier.client.engines.request import Prompt
from frontier.client.http.http_client import run
from frontier.core.flags import flags as validity
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Measurement, Outcome, Phase, Record, Trial
from frontier.core.window.from_records import window_data

Floats = npt.NDArray[np.float64]


def prompt(index: int, tokens: int) -> Prompt:
    """Its length is its name."""
    return Prompt("w " * index + "w", index + 1, tokens)


CASES = ("1:50:10", "32:50:10", "128:50:10", "512:50:10", "128:5:1")
Pairs = list[tuple[Record, Served, float]]
"""Successful records of the window, each with its log entry and the trial's zero on
time.perf_counter()."""
Row = dict[str, tuple[float, ...]]


@dataclass(frozen=True)
class Way:
    """How requests get to the server: over how many connections at least, and by TLS or not."""

    connections: int = 0
    tls: bool = False


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(2**16):
            writer.write(data)
    writer.close()


def relay(certificate: str, to: int, ready: "Connection[int, object]") -> None:
    """A process that takes the TLS off what it passes on to a port of this machine."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection("127.0.0.1", to)
        await asyncio.gather(_copy(reader, ours), _copy(theirs, writer))

    async def serve() -> None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate)
        server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
        ready.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    run(serve())


@contextlib.contextmanager
def behind_tls(port: int) -> Iterator[tuple[str, str]]:
    """The address of a relay to this port, and the file of the authority that vouches for it."""
    authority = trustme.CA()
    with tempfile.TemporaryDirectory() as folder:
        ca, certificate = Path(folder, "ca.pem"), Path(folder, "server.pem")
        authority.cert_pem.write_to_path(ca)
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(certificate)
        context = get_context("spawn")
        here, there = context.Pipe()
        process = context.Process(target=relay, args=(str(certificate), port, there), daemon=True)
        process.start()
        yield f"https://127.0.0.1:{here.recv()}", str(ca)
        process.kill()
        process.join()


def measured(streams: int, tokens: int, ttft: float, itl: float, seconds: float, way: Way = Way()) -> tuple[Pairs, str]:
    """The records against the truth, and the flags of the point they make."""
    records: list[Record] = []
    with TruthServer(ttft=ttft, itl=itl) as server, contextlib.ExitStack() as stack:
        url, ca = stack.enter_context(behind_tls(server.port)) if way.tls else (server.url, None)
        target = Target(url, "truth", "chat", dialect="vllm", ca_file=ca, connections=way.connections)
        trial = Trial("bench", Shape.of(1, tokens), streams, 0, Phase.GRID, 1, 1, 0.5, seconds, 120.0, "bench")
        found: Measurement = run(
            run_trial(
                trial, target, lambda i: prompt(i, tokens), on_record=records.append, expected_e2e=ttft + itl * tokens
            )
        )
        zero = found.epoch - (time.time() - time.perf_counter())
        server.stop()
        log = {served.prompt_tokens: served for served in server.read_log()}
    inside = [r for r in records if found.window.start <= r.sent < found.window.end]
    assert all(r.outcome is Outcome.OK for r in inside), "a request failed"
    flags = validity.flags(window_data(found, records))
    # The prompts are of every length and all alike, and few: what that trips is not what is tested
    # here.
    about_time = [f.name for f in flags if f.name not in ("isl_off", "too_few_samples", "cache_contaminated")]
    cpu = (found.health.cpu_share or 0.0) * found.window.length / max(1, len(inside)) * 1e6
    opened = len({r.connection for r in inside})
    said = f"{opened} connections, {cpu:,.0f} µs CPU a request; flags: {', '.join(about_time) or 'none'}"
    return [(r, log[r.asked_isl], zero) for r in inside], said


def stamps(record: Record) -> Floats:
    """When each token was received, on the trial's clock."""
    assert record.first is not None
    return record.first + np.concatenate(([0.0], np.cumsum(record.gaps))) * 1e-6


def errors(pairs: Pairs) -> Row:
    """Per metric: true mean and p99, then client minus truth of mean, p50, p99, in ms; and the
    stamps' own delay.
    """
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
    found: Row = {}
    for name, values in client.items():
        (mean, p50, p99), true = summary(values), summary(truth[name])
        found[name] = (true[0], true[2], mean - true[0], p50 - true[1], p99 - true[2])
    delay = np.concatenate([t + zero - s.sent for (_, s, zero), t in zip(pairs, seen, strict=True)])
    found["stamp after send"] = (float("nan"), float("nan"), *summary(delay))
    return found


def summary(values: Floats) -> tuple[float, float, float]:
    """Mean, p50, p99 in milliseconds."""
    p50, p99 = np.quantile(values, [0.5, 0.99], method="inverted_cdf") * 1e3
    return float(values.mean() * 1e3), float(p50), float(p99)


def row(streams: int, tokens: int, ttft: float, itl: float, seconds: float, way: Way) -> tuple[int, str, Row]:
    pairs, flags = measured(streams, tokens, ttft, itl, seconds, way)
    return len(pairs), flags, errors(pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", nargs="+", default=CASES, metavar="STREAMS:TTFT_MS:ITL_MS")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--connections", type=int, default=0)
    parser.add_argument("--tls", action="store_true")
    options = parser.parse_args()
    way = Way(options.connections, options.tls)
    print(
        "| streams | metric | true mean | true p99 | error of mean | of p50 | of p99 |\n|--:|---|--:|--:|--:|--:|--:|"
    )
    notes = []
    for case in options.case:
        streams, ttft, itl = (float(part) for part in case.split(":"))
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            asked = (int(streams), options.tokens, ttft / 1e3, itl / 1e3, options.seconds, way)
            n, flags, found = pool.submit(row, *asked).result()
        for name, (mean, p99, *off) in found.items():
            true = "– | –" if np.isnan(mean) else f"{mean:.2f} | {p99:.2f}"
            print(f"| {streams:.0f} | {name} | {true} |", " | ".join(f"{v:+.3f}" for v in off), "|", flush=True)
        case_words = f"{streams:.0f} streams, TTFT {ttft:g} ms, ITL {itl:g} ms"
        notes.append(f"{case_words}: {n} requests; {flags}; TPOT off by {found['TPOT'][2] / found['TPOT'][0]:+.2%}")
    print("", *notes, sep="\n")


if __name__ == "__main__":
    main()
