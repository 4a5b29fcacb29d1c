"""How fast and how punctual the truth server itself is: the limit of what a benchmark against it
can tell.

usage: python -m benchmarks.truth.ceiling [--clients N]

The client only counts: it reads whatever has arrived, looks for the end of the answer and sends the
next request. With it on the same machine the figures are lower bounds of the server's own.
"""

import argparse
import json
import os
import selectors
import socket
import time
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from benchmarks.truth.server import TruthServer

END = b"\r\n0\r\n\r\n"


def drive(port: int, connections: int, requests: int, tokens: int) -> None:
    """Holds `connections` requests in flight until `requests` are answered."""
    body = {"messages": [{"role": "user", "content": "w " * 128}], "max_tokens": tokens, "stream": True}
    text = json.dumps(body).encode()
    request = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text)
    selector = selectors.DefaultSelector()
    buffer = bytearray(1 << 18)
    sent = min(connections, requests)
    for _ in range(sent):
        opened = socket.create_connection(("127.0.0.1", port))
        selector.register(opened, selectors.EVENT_READ)
        opened.sendall(request)
    left = requests
    while left:
        for key, _ in selector.select():
            sock = key.fileobj
            assert isinstance(sock, socket.socket)
            size = sock.recv_into(buffer)
            assert size, "the server hung up"
            if not buffer.endswith(END, 0, size):  # an end split over two reads would hang: it is sent in one piece
                continue
            left -= 1
            if sent < requests:
                sent += 1
                sock.sendall(request)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(clients: int, connections: int, requests: int, tokens: int, ttft: float, itl: float) -> str:
    """One row: `connections` and `requests` in all, spread over `clients` processes."""
    with TruthServer(ttft=ttft, itl=itl) as server:
        share = (server.port, connections // clients, requests // clients, tokens)
        workers = [get_context("spawn").Process(target=drive, args=share) for _ in range(clients)]
        start = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        wall = time.perf_counter() - start
        cpu = cpu_seconds(server.pid)
    served = server.read_log()
    assert len(served) == requests // clients * clients, "a client failed"
    span = max(s.sent[-1] for s in served) - min(s.receipt for s in served)
    chunks = sum(len(s.sent) for s in served)
    late = np.concatenate([s.lateness for s in served]) * 1e3
    cells = (
        f"{connections} | {ttft * 1e3:g} | {itl * 1e3:g} | {tokens} | {len(served)}",
        f"{len(served) / span:.0f} | {chunks / span:.0f}",
        " / ".join(f"{v:.3f}" for v in (late.mean(), *np.percentile(late, [50, 99]), late.max())),
        f"{cpu:.2f} / {wall:.1f} | {sum(s.blocked for s in served)}",
    )
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description="How fast and how punctual the truth server is")
    parser.add_argument("--clients", type=int, default=1, help="client processes (default 1)")
    clients = parser.parse_args().clients
    print("| C | TTFT ms | ITL ms | OSL | requests | req/s | chunks/s ", end="")
    print("| late ms mean / p50 / p99 / max | server CPU s / wall s | blocked |")
    print("|" + "---|" * 10)
    for connections, requests, tokens, ttft, itl in (
        (32, 16000, 64, 0.0, 0.0),
        (128, 16000, 64, 0.0, 0.0),
        (128, 6400, 64, 0.0, 0.001),
        (1, 30, 64, 0.050, 0.010),
        (32, 320, 64, 0.050, 0.010),
        (128, 1280, 64, 0.050, 0.010),
        (512, 5120, 64, 0.050, 0.020),
    ):
        print(measure(clients, connections, requests, tokens, ttft, itl), flush=True)


if __name__ == "__main__":
    main()
