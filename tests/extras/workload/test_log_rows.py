"""Workloads of request logs: the formats, the pairs that stand for a log, its busiest hour, and
what is kept of it."""

import csv
import gzip
import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from frontier.config import load_config
from frontier.core.model.errors import MeasurementError, UsageError
from frontier.extras.workload.config_text import config_text
from frontier.extras.workload.log_rows import BLOCK, LogRow, given_columns, log_rows
from frontier.extras.workload.log_summary import ArrivalCounts, BlockReuse, Sample, summary
from frontier.extras.workload.observed import Workload, capped, representative
from tests.kit import logs


def read(path: Path, columns: str | None = None, context: int | None = None) -> Workload:
    return summary(path.name, log_rows(path, given_columns(columns)), context)[0]


def first(path: Path, columns: str | None = None) -> LogRow:
    return next(row for row in log_rows(path, given_columns(columns)) if row is not None)


OTLP = {
    "resourceSpans": [
        {
            "scopeSpans": [
                {
                    "spans": [
                        {
                            "name": "chat",
                            "startTimeUnixNano": "1764000000000000000",
                            "endTimeUnixNano": "1764000002500000000",
                            "attributes": [
                                {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "812"}},
                                {"key": "gen_ai.usage.output_tokens", "value": {"intValue": "133"}},
                                {"key": "gen_ai.conversation.id", "value": {"stringValue": "c1"}},
                                {"key": "gen_ai.input.messages", "value": {"stringValue": logs.PLANTED[0]}},
                            ],
                        }
                    ]
                }
            ]
        }
    ]
}
LITELLM = {
    "startTime": "2025-11-24 16:00:00",
    "completionStartTime": "2025-11-24T16:00:00.500",
    "endTime": "2025-11-24T16:00:02.500Z",
    "prompt_tokens": 812,
    "completion_tokens": 133,
    "session_id": "c1",
}
MOONCAKE = {"timestamp": 1764000000000, "input_length": 812, "output_length": 133, "hash_ids": [5, 6]}
OPENAI = {"created": 1764000000, "usage": {"prompt_tokens": 812, "completion_tokens": 133}, "latency_ms": 2500}
VLLM = (
    "INFO 11-24 16:00:00 [logger.py:43] Received request cmpl-1: prompt: 'x', params: SamplingParams(n=1), "
    f"prompt_token_ids: [{', '.join(['1'] * 812)}], lora_request: None.\n"
    "INFO 11-24 16:00:02 [logger.py:60] Generated response cmpl-1 (streaming complete): output: 'planted answer', "
    f"output_token_ids: [{', '.join(['2'] * 133)}], finish_reason: stop\n"
)


@pytest.mark.parametrize("row", [OTLP, LITELLM, MOONCAKE, OPENAI], ids=["otel", "litellm", "mooncake", "openai"])
def test_a_line_of_json_is_read_by_the_names_of_its_tool(row: dict[str, Any], tmp_path: Path) -> None:
    found = first(logs.write(tmp_path / "log", [row]))
    assert (found.isl, found.osl) == (812, 133)
    assert found.time == 1764000000.0
    if row not in (MOONCAKE,):
        assert found.e2e == 2.5
    assert found.blocks == ((5, 6) if row is MOONCAKE else ())


AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2025-11-24 16:00:00.9799600,812,133\n"
BURST = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,c1,2.5,m,812,133,945,API log\n"
)


@pytest.mark.parametrize(
    ("text", "kind"), [(AZURE, None), (BURST, "API log"), (VLLM, None)], ids=["azure", "burstgpt", "vllm"]
)
def test_a_text_is_read_by_the_names_of_its_tool(text: str, kind: str | None, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(text)
    found = first(tmp_path / "log")
    assert (found.isl, found.osl, found.kind) == (812, 133, kind)
    (tmp_path / "log.gz").write_bytes(gzip.compress(text.encode()))
    assert first(tmp_path / "log.gz") == found


def test_a_number_that_is_none_takes_no_row_with_it(tmp_path: Path) -> None:
    rows = [{"timestamp": 1.8e9 + i, "prompt_tokens": 64, "completion_tokens": 8} for i in range(40)]
    odd = [row | {"latency": math.nan if i % 2 else math.inf, "n": -math.inf} for i, row in enumerate(rows)]
    (tmp_path / "log.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in odd))
    assert 40 == sum(row is not None for row in log_rows(tmp_path / "log.jsonl", given_columns(None)))


@pytest.mark.parametrize("between", [",", ";", "\t", "|"])
def test_cells_are_told_apart_by_what_is_between_the_heads(between: str, tmp_path: Path) -> None:
    text = between.join(["timestamp", "prompt_tokens", "completion_tokens", "latency"])
    cells = between.join(["1764000000.5", "812", "133", "2.5"])
    log = tmp_path / "log.csv"
    log.write_text(f"{text}\n{cells if between != ';' else cells.replace('.', ',')}\n")
    assert (1764000000.5, 812, 133, 2.5) == (first(log).time, first(log).isl, first(log).osl, first(log).e2e)


def test_parquet_and_named_columns(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow as pa

    table = pa.table({"tokens_in": [812], "tokens_out": [133], "when": [1764000000.0], "text": [logs.PLANTED[0]]})
    parquet.write_table(table, tmp_path / "log.parquet")
    found = first(tmp_path / "log.parquet", "input=tokens_in, output=tokens_out, time=when")
    assert found == LogRow(1764000000.0, 812, 133)


@pytest.mark.parametrize(
    "text",
    ["", "hello\nworld\n", '{"a": 1}\n', "a,b\n1,2\n", '{"prompt_tokens": "x", "completion_tokens": -1}\n', "{\n" * 20],
)
def test_what_is_no_log_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(text)
    with pytest.raises((UsageError, MeasurementError)):
        read(tmp_path / "log")


@pytest.mark.parametrize("columns", ["input", "prompt=a", "input="])
def test_what_is_no_column_is_refused(columns: str) -> None:
    with pytest.raises(UsageError):
        given_columns(columns)


def test_no_text_of_a_log_is_in_the_config(tmp_path: Path) -> None:
    workload = read(logs.write(tmp_path / "log.jsonl", logs.rows(2_000)))
    said = config_text(workload) + repr(workload)
    assert not [text for text in logs.PLANTED if text in said]
    load_config(config_text(workload), "sweep.yaml")


def test_pairs_keep_means_tails_and_what_both_sides_have_to_do_with_each_other() -> None:
    rows = [(row["prompt_tokens"], row["completion_tokens"]) for row in logs.rows(30_000)]
    pairs, all_of_them = np.asarray(representative(rows)), np.asarray(rows)
    assert len(pairs) == 1_000
    assert np.allclose(pairs.mean(axis=0), all_of_them.mean(axis=0), rtol=0.01)
    for p in (0.5, 0.9, 0.99):
        assert np.allclose(np.quantile(pairs, p, axis=0), np.quantile(all_of_them, p, axis=0), rtol=0.08)
    together = [np.corrcoef(np.log(side), rowvar=False)[0, 1] for side in (pairs, all_of_them)]
    assert together[0] == pytest.approx(together[1], abs=0.05)


def test_lengths_over_the_context_are_cut_to_it() -> None:
    assert capped([(100, 50), (900, 200), (10, 5_000)], 1_000) == ([(100, 50), (800, 200), (1, 999)], 2)


def test_classes_are_a_mix_and_a_name_that_is_none_becomes_a_number(tmp_path: Path) -> None:
    rows = [
        row | {"class": kind} for row, kind in zip(logs.rows(900), ["chat", "chat", "a secret: 1"] * 300, strict=True)
    ]
    workload = read(logs.write(tmp_path / "log.jsonl", rows))
    assert {each.name: round(each.share, 3) for each in workload.classes} == {"chat": 0.667, "class_2": 0.333}
    config = load_config(config_text(workload), "sweep.yaml")
    assert config.shapes[0].classes == ("chat", "class_2")


@pytest.mark.parametrize("kind", ["null", "on", "No", "true", True])
def test_a_class_that_yaml_reads_as_no_text_becomes_a_number(kind: object, tmp_path: Path) -> None:
    rows = [row | {"class": kind if i % 3 else "chat"} for i, row in enumerate(logs.rows(90))]
    config = load_config(config_text(read(logs.write(tmp_path / "log.jsonl", rows))), "sweep.yaml")
    assert config.shapes[0].classes == ("class_1", "chat")


def test_the_busiest_hour_and_its_bursts() -> None:
    counts, rng = ArrivalCounts(), random.Random(1)
    for hour, rate in enumerate((1.0, 4.0, 1.0)):
        time = hour * 3_600.0
        while (time := time + rng.expovariate(rate)) < (hour + 1) * 3_600:
            counts.add(time)
    facts = counts.facts()
    assert facts is not None
    assert facts.busiest == pytest.approx(4.0, rel=0.05)
    assert facts.rate == pytest.approx(2.0, rel=0.05)
    assert "1 h" in facts.when
    assert facts.cv == pytest.approx(1.0, abs=0.15)


def test_a_clock_that_runs_backwards_is_said(tmp_path: Path) -> None:
    rows = list(logs.rows(400))
    for row in rows[200:]:
        row["startTime"] -= 4_000
    workload = read(logs.write(tmp_path / "log.jsonl", rows))
    (note,) = workload.notes
    assert "backwards once" in note
    assert "1 h" in note
    assert workload.arrivals is not None


def test_rows_that_failed_are_counted(tmp_path: Path) -> None:
    rows = [row | ({"completion_tokens": 0} if i % 10 == 0 else {}) for i, row in enumerate(logs.rows(100), 1)]
    workload = read(logs.write(tmp_path / "log.jsonl", rows))
    assert workload.requests == 90
    assert any("10 rows" in note for note in workload.notes)


@pytest.mark.parametrize(("every", "note"), [(1, "None of"), (4, "25 of")])
def test_times_that_cannot_be_read_are_said(every: int, note: str, tmp_path: Path) -> None:
    rows = [
        row | ({"startTime": "24/Nov/2025:16:00"} if i % every == 0 else {}) for i, row in enumerate(logs.rows(100))
    ]
    workload = read(logs.write(tmp_path / "log.jsonl", rows))
    assert [note in said for said in workload.notes] == [True]


def test_a_first_token_after_the_end_is_in_another_unit(tmp_path: Path) -> None:
    rows = [{"prompt_tokens": 9, "completion_tokens": 5, "latency": 2.0, "ttft": ttft} for ttft in (250, 0.25, 2.1)]
    path = logs.write(tmp_path / "log.jsonl", rows)
    assert [row and row.ttft for row in log_rows(path, given_columns(None))] == [None, 0.25, 2.1]


def test_a_sample_is_of_names_and_not_of_places() -> None:
    one, other = Sample(500), Sample(500)
    rows = [LogRow(None, i + 1, 1, name=f"r{i}") for i in range(10_000)]
    for row in rows:
        one.add(row)
    for row in reversed(rows):
        other.add(row)
    assert 200 <= len(one.rows) <= 500
    assert sorted(one.rows) == sorted(other.rows)
    assert np.mean([row.isl for row in one.rows]) == pytest.approx(5_000, rel=0.15)


def test_a_sample_has_whole_sessions() -> None:
    sample = Sample(300)
    for i in range(4_000):
        sample.add(LogRow(float(i), 10, 1, session=f"s{i % 500}", name=f"r{i}"))
    sizes: dict[str | None, int] = {}
    for row in sample.rows:
        sizes[row.session] = sizes.get(row.session, 0) + 1
    assert set(sizes.values()) == {8}


def test_the_reuse_of_blocks_is_that_of_a_cache_that_forgets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(1)
    rows = [LogRow(None, 4 * BLOCK + 10, 1, blocks=tuple(rng.sample(range(4_000), 4))) for _ in range(3_000)]
    exact, sampled = BlockReuse(BLOCK), BlockReuse(BLOCK)
    for row in rows:
        exact.add(row)
    seen: set[int] = set()
    again = 0
    for row in rows:
        again += sum(name in seen for name in row.blocks)
        seen |= set(row.blocks)
    assert exact.share == pytest.approx(again * BLOCK / sum(row.isl for row in rows))
    monkeypatch.setattr("frontier.extras.workload.log_summary._MOST_BLOCKS", 1_000)
    for row in rows:
        sampled.add(row)
    assert sampled.share == pytest.approx(exact.share, rel=0.1)


def test_a_list_of_json_is_refused_without_a_word_of_it(tmp_path: Path) -> None:
    (tmp_path / "log.json").write_text(json.dumps([{"prompt": logs.PLANTED[0], "prompt_tokens": 9}]))
    with pytest.raises(UsageError) as caught:
        read(tmp_path / "log.json")
    assert "JSON list" in caught.value.what
    assert logs.PLANTED[0][:12] not in str(caught.value)


@pytest.mark.parametrize(
    "before",
    [
        "",
        "(EngineCore_DP0 pid=7) ERROR 11-24 15:00:00 [core.py:1] early\n",
        "INFO:     Started\n",
        "(APIServer pid=1) ",
    ],
)
def test_a_log_of_vllm_may_begin_with_any_process(before: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(before + VLLM)
    assert first(tmp_path / "log").isl == 812


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    whole = gzip.compress(random.Random(1).randbytes(3_000).hex().encode())
    for damaged in (whole[:-30], b"PAR1", b"PAR1" + bytes(60) + b"PAR1"):
        (tmp_path / "log").write_bytes(damaged)
        with pytest.raises(UsageError):
            read(tmp_path / "log")


def test_lines_that_are_no_json_are_counted_as_left_out(tmp_path: Path) -> None:
    path = logs.write(tmp_path / "log", logs.rows(30))
    path.write_text(path.read_text() + '{"prompt_tokens": 5, "compl\n' * 2)
    assert any("2 rows" in note for note in read(path).notes)


@pytest.mark.parametrize("head", ["", "timestamp,prompt_tokens,completion_tokens\n"])
def test_a_byte_order_mark_begins_no_other_format(head: str, tmp_path: Path) -> None:
    row = "0,50,7\n" if head else '{"time": 0, "prompt_tokens": 50, "completion_tokens": 7}\n'
    (tmp_path / "log").write_text(head + row * 3, encoding="utf-8-sig")
    found = read(tmp_path / "log")
    assert (found.requests, found.mean(0), found.notes) == (3, 50, ())


def test_more_cached_tokens_than_a_prompt_has_are_the_prompt(tmp_path: Path) -> None:
    rows = [row | {"cached_tokens": 3 * row["prompt_tokens"]} for row in logs.rows(50)]
    assert read(logs.write(tmp_path / "log", rows)).cached == 1.0


def test_what_is_in_flight_is_not_below_zero(tmp_path: Path) -> None:
    rows = [row | {"latency": seconds} for row, seconds in zip(logs.rows(2), (1, 100), strict=True)]
    running = read(logs.write(tmp_path / "log", rows)).running
    assert running is not None
    assert running.low == 0


def test_hostile_rows_neither_end_the_reading_nor_count(tmp_path: Path) -> None:
    good = '{"prompt_tokens": 10, "completion_tokens": 5, "startTime": 1764000000}\n'
    odd = [
        '{"prompt_tokens": NaN}\n',
        "[1]\n",
        "\x00\n",
        '{"a":' * 200 + "\n",
        '{"prompt_tokens": 1e400, "completion_tokens": 5}\n',
        json.dumps({"prompt_tokens": True, "completion_tokens": [1], "startTime": "never"}) + "\n",
        '{"prompt_tokens": 10, "completion_tokens": 5, "startTime": 1e300}\n',
    ]
    (tmp_path / "log.jsonl").write_text(good * 10 + "".join(odd) + good * 10)
    workload = read(tmp_path / "log.jsonl")
    assert workload.requests == 21
    text = config_text(read(tmp_path / "log.jsonl"))
    load_config(text, "sweep.yaml")


def test_a_table_with_quoted_texts_is_read_by_its_columns(tmp_path: Path) -> None:
    with (tmp_path / "log.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "prompt", "prompt_tokens", "completion_tokens"])
        writer.writerows([[i, f"{logs.PLANTED[0]},\n{i}", 10 + i, 5] for i in range(50)])
    workload = read(tmp_path / "log.csv")
    assert workload.requests == 50
    assert logs.PLANTED[0] not in config_text(workload)


def test_what_came_from_a_cache_stays_with_its_request(tmp_path: Path) -> None:
    rows = [
        row | {"cached_tokens": row["prompt_tokens"] // 2 if i % 2 else 0} for i, row in enumerate(logs.rows(3_000))
    ]
    workload = read(logs.write(tmp_path / "log.jsonl", rows))
    pairs = np.asarray(workload.classes[0].pairs)
    assert workload.cached == pytest.approx(
        sum(row["cached_tokens"] for row in rows) / sum(r["prompt_tokens"] for r in rows)
    )
    assert pairs[:, 2].sum() / pairs[:, 0].sum() == pytest.approx(workload.cached, abs=0.03)
    assert (pairs[:, 2] == 0).mean() == pytest.approx(0.5, abs=0.06)
    shape = load_config(config_text(workload), "sweep.yaml").shapes[0]
    assert shape.prefix == pytest.approx(workload.cached, abs=0.03)


def test_a_column_of_a_nested_object_that_the_first_rows_lack_is_learned(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 5}
    rows = [{"usage": usage}, *({"usage": usage | {"prompt_tokens_details": {"cached_tokens": 50}}} for _ in range(9))]
    assert read(logs.write(tmp_path / "log.jsonl", iter(rows))).cached == 0.5


def test_blocks_of_bailian_are_of_sixteen_tokens(tmp_path: Path) -> None:
    """Two prompts of 2,048 tokens, alike in the first 1,536; what is kept has Mooncake's blocks."""
    hashes = [[*range(96), *range(1_000 * i, 1_000 * i + 32)] for i in (1, 2)]
    row = {"chat_id": 1, "parent_chat_id": -1, "input_length": 2_048, "output_length": 9}
    path = logs.write(tmp_path / "log", [row | {"timestamp": float(i), "hash_ids": h} for i, h in enumerate(hashes)])
    assert read(path).cached == pytest.approx(1_536 / 4_096)
    assert [len(found.blocks) for found in log_rows(path, given_columns(None)) if found is not None] == [4, 4]


def test_the_clock_of_vllms_log_runs_on_at_the_end_of_a_month(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(
        VLLM.replace("11-24 16:00:00", "11-30 23:59:59").replace("11-24", "12-01").replace("16:00:02", "00:00:01")
    )
    assert first(tmp_path / "log").e2e == 2.0


def test_a_session_that_most_requests_have_is_sampled_request_by_request() -> None:
    """As a whole it would be all of the sample, or none of it: a column of users, or a default."""
    for name in ("default", "anonymous", "u7"):
        sample = Sample(1_000)
        for i in range(20_000):
            sample.add(LogRow(float(i), 10 if i % 2 else 500, 1, session=name if i % 2 else f"s{i // 8}", name=f"r{i}"))
        assert 400 < len(sample.rows) <= 1_000
        assert np.mean([row.isl == 10 for row in sample.rows]) == pytest.approx(0.5, abs=0.1)
        sizes: dict[str | None, int] = {}
        for row in sample.rows:
            sizes[row.session] = sizes.get(row.session, 0) + 1
        assert set(sizes.values()) - {sizes[None]} == {4}


ROWS = "2026-11-24 08:00,my planted prompt,812,sk-planted1234567890abcdef,Alice Doe\n" * 3
KEYS = {"my planted prompt": 1, "sk-planted1234567890abcdef": 2, "4111 1111 1111 1111": 3, "a@b.example": 4, "took": 5}


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (ROWS.encode(), "names of columns"),
        (ROWS.encode("utf-16"), "UTF-8"),
        (ROWS.encode("utf-16-le"), "UTF-8"),
        (gzip.compress(ROWS.encode("utf-16")), "UTF-8"),
        ((json.dumps(KEYS) + "\n").encode(), "'took'"),
        (("\t".join(KEYS) + "\nx\n").encode(), "columns: none"),
    ],
    ids=["no header", "UTF-16", "UTF-16 without a mark", "UTF-16 in gzip", "odd keys", "tabs"],
)
def test_of_a_file_that_is_no_log_only_what_looks_like_a_column_is_named(
    data: bytes, word: str, tmp_path: Path
) -> None:
    (tmp_path / "log").write_bytes(data)
    with pytest.raises(UsageError) as caught:
        read(tmp_path / "log")
    said = f"{caught.value.what} {caught.value.hint}"
    assert word in said
    leaked = ("planted", "812", "Alice", "4111", "example", "2026")
    assert not [text for text in leaked if text in said.replace(str(tmp_path), "")]


VLLM_LINES = """\
(APIServer pid=9) INFO 11-24 08:00:00 Received request a: prompt: 'x', prompt_token_ids: [1, 1, 1], lora_request: None.
(APIServer pid=9) INFO 11-24 08:00:02 Generated response a (x): output: 'y', output_token_ids: [2, 2], finish_reason: x
""".splitlines(keepends=True)


@pytest.mark.parametrize(
    "before", ["2026-11-24T08:00:00.123456789Z ", "\x1b[0;36m", "2026-11-24T09:00:00+01:00 \x1b[1m"]
)
def test_colours_and_the_times_of_kubectl_are_no_table(before: str, tmp_path: Path) -> None:
    (tmp_path / "vllm.log").write_text("".join(before + line.replace(") ", ")\x1b[0m ", 1) for line in VLLM_LINES))
    row = first(tmp_path / "vllm.log")
    assert (3, 2, 2.0) == (row.isl, row.osl, row.e2e)


def test_a_log_of_vllm_without_tokens_names_the_level(tmp_path: Path) -> None:
    """vllm-project/vllm#29208, #34503: since 0.11.2 no tokens of prompts at INFO."""
    (tmp_path / "vllm.log").write_text("INFO 11-24 08:00:00 [logger.py:49] Received request a: params: x\n")
    with pytest.raises(UsageError, match="DEBUG"):
        first(tmp_path / "vllm.log")


def test_the_times_of_nginx_and_the_columns_of_ollama_are_known(tmp_path: Path) -> None:
    head = "time,request_time,prompt_tokens,completion_tokens\n"
    (tmp_path / "n.csv").write_text(f"{head}24/Nov/2026:08:00:00 +0000,2.4,400,100\n")
    assert (1795507200.0, 2.4) == (first(tmp_path / "n.csv").time, first(tmp_path / "n.csv").e2e)
    line = {"created_at": "2026-11-24T08:00:00Z", "prompt_eval_count": 400, "eval_count": 100}
    (tmp_path / "o.jsonl").write_text(json.dumps(line | {"total_duration": 2_400_000_000}) + "\n")
    row = first(tmp_path / "o.jsonl")
    assert (400, 100, 2.4) == (row.isl, row.osl, pytest.approx(row.e2e))
