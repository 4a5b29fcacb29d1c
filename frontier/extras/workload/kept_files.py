"""Kept files: the requests or sessions of a log with only their times and tokens. A config names
them as `trace: FILE` and `sessions: FILE`.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import orjson

from frontier.core.model.errors import UsageError
from frontier.core.model.groups import by_key
from frontier.core.model.units import format_bytes
from frontier.extras.workload.arrival_files import LEAST
from frontier.extras.workload.log_rows import LogRow, name_hash
from frontier.extras.workload.observed import ArrivalFacts, Workload, capped
from frontier.extras.workload.session_files import sessions_in
from frontier.store.documents import MOST_ROWS
from frontier.store.files import write_output

_MOST_BYTES = 128 * 2**20
"""Most bytes of memory for the requests of --replay, which are sorted before they are written."""
_BESIDE = 130
"""Bytes of a kept request beside its line: a pair, a time, and the heads of both."""


def cut_to(row: LogRow, context: int | None) -> LogRow:
    """A request with its lengths cut to a model's context."""
    ((isl, osl),), _ = capped([(row.isl, row.osl)], context)
    return row._replace(isl=isl, osl=osl)


class ReplayWriter:
    """Writes the requests of a share of the fleet to a file in Mooncake's format. A hash of their
    sessions or names selects them. UsageError where there are more than a config reads.
    """

    def __init__(self, path: Path, share: float) -> None:
        self._path, self._below = path, share * 2**64
        self._rows: list[tuple[float, bytes]] = []
        self._seen = self._bytes = 0

    def add(self, row: LogRow) -> None:
        """Add a request of the log."""
        self._seen += 1
        if row.time is None or name_hash(row.session or row.name or str(self._seen)) >= self._below:
            return
        if len(self._rows) >= MOST_ROWS or self._bytes > _MOST_BYTES:
            what = f"--replay holds at most {MOST_ROWS:,} requests, and {format_bytes(_MOST_BYTES)} of them"
            raise UsageError(what, "take a share of them, as  --share 1%,  or a part of the log, by  --from  and  --to")
        tree = {"timestamp": 0, "input_length": row.isl, "output_length": row.osl}
        if row.blocks:
            tree |= {"hash_ids": [name % 2**53 for name in row.blocks]}  # type: ignore[dict-item]
        line = orjson.dumps(tree)
        self._bytes += len(line) + _BESIDE
        self._rows.append((row.time, line))

    def written(self, workload: Workload) -> Workload:
        """Write the requests, ordered by their times, which count in milliseconds from the first
        one. Returns the log's workload as these requests have it.
        """
        self._rows.sort(key=lambda each: each[0])
        facts = workload.arrivals
        if len(self._rows) < LEAST or facts is None or self._rows[-1][0] == self._rows[0][0]:
            what = f"--replay keeps {len(self._rows):,} requests, and {LEAST} at different times are needed"
            raise UsageError(what, "name their times, as  --columns time=started,  or take a larger part or share")
        first, last = self._rows[0][0], self._rows[-1][0]
        stamped = (line.replace(b":0,", f":{1000 * (time - first):.3f},".encode(), 1) for time, line in self._rows)
        write_output(self._path, b"\n".join(stamped) + b"\n")
        rate = len(self._rows) / (last - first)
        dispersion = facts.dispersion if self._below >= 2**64 else {}  # a share comes less in bursts
        kept = ArrivalFacts(rate, facts.busiest * rate / facts.rate, facts.when, dispersion)
        return replace(workload, replayed=str(self._path), arrivals=kept)


def session_lines(rows: Sequence[LogRow]) -> list[bytes]:
    """The sessions of these requests, a line each in our format; empty where no session has a
    second turn. A prompt that is shorter than its session's text so far begins a session of its
    own.
    """
    by_session = by_key((row.session, row) for row in rows if row.session is not None and row.time is not None)
    in_order = (sorted(listed, key=lambda row: row.time or 0.0) for listed in by_session.values())
    sessions = [turns for listed in in_order for turns in sessions_in(listed)]
    if not any(len(turns) > 1 for turns in sessions):
        return []
    named = ([{"new": new, "out": out, "pause": round(pause, 3)} for new, out, pause in turns] for turns in sessions)
    return [orjson.dumps({"turns": turns}) for turns in named]
