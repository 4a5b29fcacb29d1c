"""The requests of vLLM's multi-turn script, after its writer: an Excel file, or its rows."""

import json
from pathlib import Path
from typing import Any

import pytest

from frontier.extras.exchange import formats
from frontier.extras.exchange.assemble import assemble
from tests.extras.exchange.test_imported_requests import N, requests
from tests.kit.excel import write_excel


def rows() -> list[dict[str, Any]]:
    """A closed loop of N clients; the process's clock is in milliseconds."""
    free = [0.0] * N
    found = []
    for index, request in enumerate(requests(N * 40)):
        client = min(range(N), key=free.__getitem__)
        free[client] = request.end
        assert request.first is not None
        found.append(
            {
                "ttft_ms": 1e3 * (request.first - request.sent),
                "latency_ms": 1e3 * (request.end - request.sent),
                "start_time_ms": 5e6 + 1e3 * request.sent,
                "input_num_tokens": request.prompt_tokens,
                "output_num_tokens": request.completion_tokens,
                "output_num_first_chunk_tokens": 1,
                "conversation_id": f"CONV_{index % 40}",
                "client_id": index % N,
            }
        )
    return found


def test_the_sheet_of_requests_is_a_window_with_intervals(tmp_path: Path) -> None:
    raw = rows()
    summary = [["model", "num_clients"], ["m", N], ["", "count", "mean"], ["ttft_ms", len(raw), 55.0]]
    sheets = {"Summary": summary, "Raw data": [list(raw[0]), *(list(row.values()) for row in raw)]}
    write_excel(tmp_path / "statistics.xlsx", sheets)
    read = formats.read_files([tmp_path / "statistics.xlsx"])
    ((measurement, records),) = read.assembled.trials
    assert (N, len(raw)) == (measurement.trial.load, len(records))
    assert any("Summary" in note for note in read.notes)
    ((_, listed),) = assemble([formats.read_results("raw.json", json.dumps(raw).encode())]).trials
    assert [r.sent for r in records] == pytest.approx([r.sent for r in listed])
