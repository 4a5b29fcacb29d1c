"""A fake inference server whose truth is known, for checking how well a client measures.

`truth.c` streams tokens on an absolute schedule and logs when each one really left. Build it, start
it, drive a client against `url`, and compare what the client says with `read_log()`:

    with TruthServer(ttft=0.050, itl=0.010) as server:
        ...                                    # any client, against server.url
    served = server.read_log()

All times are seconds on the clock of `time.perf_counter()` (CLOCK_MONOTONIC), so stamps taken by a
Python client on the same machine compare with these directly. Linux only; needs a C compiler once.
"""

from benchmarks.truth.server import NoCompilerError, Served, TruthServer, build, parse_log

__all__ = ["NoCompilerError", "Served", "TruthServer", "build", "parse_log"]
