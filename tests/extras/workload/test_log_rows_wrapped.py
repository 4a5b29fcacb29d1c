"""Request logs as gateways, containers and collectors write them: prefixes, wrappers, other lines
between."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from frontier.core.model.errors import UsageError
from frontier.extras.workload.log_rows import COLUMNS, LogRow, log_rows

TOKENS = {"prompt_tokens": 400, "completion_tokens": 100}
ROW = {"timestamp": "2026-11-24T08:00:00Z", **TOKENS, "latency_ms": 2400}
VLLM = """\
INFO 11-24 08:00:00 Received request a: prompt: 'x', prompt_token_ids: [1, 1, 1], lora_request: None.
INFO 11-24 08:00:02 Generated response a (x): output: 'y', output_token_ids: [2, 2], finish_reason: x
""".splitlines()


def rows(path: Path, text: str) -> list[LogRow | None]:
    path.write_text(text)
    return list(log_rows(path, COLUMNS))


WRAPPERS: dict[str, Callable[[str], str]] = {
    "kubectl --prefix": lambda line: f"[pod/gw-7d9/gateway] {line}",
    "kubectl --prefix --timestamps": lambda line: f"[pod/gw-7d9/gateway] 2026-11-24T08:00:02.4Z {line}",
    "docker compose": lambda line: f"gateway-1  | {line}",
    "containerd": lambda line: f"2026-11-24T08:00:02.400000000Z stdout F {line}",
    "docker": lambda line: json.dumps({"log": f"{line}\n", "stream": "stdout", "time": "2026-11-24T08:00:02Z"}),
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_what_stands_before_or_around_a_line_is_taken_off(wrapper: str, tmp_path: Path) -> None:
    wrapped = WRAPPERS[wrapper]
    (row,) = filter(None, rows(tmp_path / "a.log", wrapped(json.dumps(ROW)) + "\n"))
    assert (400, 100, 2.4) == (row.isl, row.osl, row.e2e)
    (row,) = filter(None, rows(tmp_path / "b.log", "\n".join(map(wrapped, VLLM))))
    assert (3, 2, 2.0) == (row.isl, row.osl, row.e2e)


GATEWAYS: dict[str, dict[str, Any]] = {
    "Envoy AI Gateway": {"start_time": 1.8e9, "gen_ai.usage.input_tokens": 400, "gen_ai.usage.output_tokens": 100},
    "its examples": {"start_time": 1.8e9, "genai_tokens_input": "400", "genai_tokens_output": "100"},
    "its metadata": {"start_time": 1.8e9, "llm_input_token": "400", "llm_output_token": "100"},
    "Kong": {"started_at": 1.8e12, "ai": {"proxy": {"usage": TOKENS}}},
    "Cloudflare": {"created_at": "2027-01-15T08:00:00Z", "tokens_in": 400, "tokens_out": 100},
    "Helicone": {"request_created_at": "2027-01-15T08:00:00Z", **TOKENS},
    "LLM Gateway": {"createdAt": "2027-01-15T08:00:00Z", "promptTokens": "400", "completionTokens": "100"},
}


@pytest.mark.parametrize("gateway", GATEWAYS)
def test_the_columns_of_gateways_are_known(gateway: str, tmp_path: Path) -> None:
    (row,) = rows(tmp_path / "g.jsonl", json.dumps(GATEWAYS[gateway]) + "\n")
    assert row is not None
    assert (400, 100, 1.8e9) == (row.isl, row.osl, row.time)


def test_other_lines_before_and_between_rows_are_left_out_and_counted(tmp_path: Path) -> None:
    text = "INFO: started\n" * 30 + f"{json.dumps(ROW)}\nINFO: served\n" * 40
    found = rows(tmp_path / "m.log", text)
    assert (40, 70) == (sum(row is not None for row in found), found.count(None))


def test_rows_in_json_within_a_log_of_vllm_are_counted_as_left_out(tmp_path: Path) -> None:
    found = rows(tmp_path / "v.log", "\n".join([*VLLM, json.dumps(ROW)]))
    assert [True, False] == [row is not None for row in found]


def test_a_unit_that_a_name_and_the_stamps_agree_on_raises_no_doubt(tmp_path: Path) -> None:
    stamps = {"startTime": "2027-01-15T08:00:00Z", "endTime": "2027-01-15T08:00:02.4Z"}
    (row,) = rows(tmp_path / "s.jsonl", json.dumps({**stamps, **TOKENS, "latency_ms": 2400}) + "\n")
    assert row is not None
    assert (2.4, ()) == (row.e2e, row.read_as.notes)


def test_an_access_log_without_tokens_names_what_has_them(tmp_path: Path) -> None:
    line = '203.0.113.7 - - [24/Nov/2026:08:00:00 +0000] "POST /v1/chat/completions HTTP/1.1" 200 9000 2.400 "-"\n'
    with pytest.raises(UsageError) as raised:
        rows(tmp_path / "access.log", line * 3)
    assert "metrics" in (raised.value.hint or "")
