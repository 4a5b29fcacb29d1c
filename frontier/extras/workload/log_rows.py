"""Rows of a request log, read one by one: JSON lines, CSV, Parquet, OpenTelemetry spans, vLLM's
request log.

Of a row only lengths, times, cached tokens, and identifiers of requests, sessions and classes are
taken; texts are not looked at. Columns are known by the names that LiteLLM, the GenAI conventions
of OpenTelemetry, gateways, Azure, BurstGPT, Mooncake, Bailian and OpenAI's usage object give them;
others are named by the user. `time_units` decides the units of their times.
"""

import codecs
import csv
import gzip
import hashlib
import itertools
import json
import math
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import orjson

from frontier.client.secrets import looks_like_a_key, looks_random
from frontier.core.model.errors import UsageError, install_command
from frontier.core.model.shapes import MAX_TOKENS
from frontier.core.model.text import did_you_mean
from frontier.extras.workload.arrival_files import number_of, seconds_of
from frontier.extras.workload.time_units import PLAIN, TIMED, UNITS, ReadAs, RowTimes, read_as
from frontier.store.documents import ForeignFileError, foreign_text

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "input": (
        *("prompt_tokens", "usage.prompt_tokens", "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
        *("input_tokens", "usage.input_tokens", "input_length", "ContextTokens", "Request tokens", "num_prompt_tokens"),
        *(
            "prompt_eval_count",
            "genai_tokens_input",
            "llm_input_token",
            "llm_input_tokens",
            "tokens_in",
            "promptTokens",
        ),
        "ai.proxy.usage.prompt_tokens",
    ),
    "output": (
        *("completion_tokens", "usage.completion_tokens", "gen_ai.usage.output_tokens"),
        *("gen_ai.usage.completion_tokens", "output_tokens", "usage.output_tokens", "output_length"),
        *("GeneratedTokens", "Response tokens", "num_generation_tokens", "eval_count", "genai_tokens_output"),
        *(
            "llm_output_token",
            "llm_output_tokens",
            "tokens_out",
            "completionTokens",
            "ai.proxy.usage.completion_tokens",
        ),
    ),
    "time": (
        *("startTime", "start_time", "startTimeUnixNano", "timestamp", "TIMESTAMP", "Timestamp", "arrival_time"),
        *("created_at", "createdAt", "created", "request_created_at", "started_at", "@timestamp", "time", "ts"),
    ),
    "end": ("endTime", "end_time", "endTimeUnixNano", "response_created_at"),
    "first": ("completionStartTime", "completion_start_time", "first_token_time"),
    "ttft": ("ttft", "time_to_first_token", "gen_ai.server.time_to_first_token", "ttft_ms"),
    "latency": (
        *("latency", "duration", "e2e_latency", "Elapsed time", "latency_ms", "duration_ms", "response_time_ms"),
        *("total_duration", "request_time", "latencies.request", "delay_ms"),
    ),
    "cached": (
        *("cached_tokens", "usage.prompt_tokens_details.cached_tokens", "prompt_tokens_details.cached_tokens"),
        *("gen_ai.usage.cache_read.input_tokens", "cache_read_input_tokens", "usage.cache_read_input_tokens"),
    ),
    "session": ("session_id", "Session ID", "gen_ai.conversation.id", "conversation_id", "chat_session_id"),
    "id": ("request_id", "gen_ai.response.id", "spanId", "id"),
    "class": ("class", "request_class", "workload", "Log Type"),
    "blocks": ("hash_ids",),
}
"""The fields of a row, and the names of their columns; the first name that a row has is read."""
BLOCK = 512
"""Tokens of a block that a hash of a Mooncake trace stands for."""
FINER_BLOCK = 16
"""Tokens of a block that a hash of a Bailian trace stands for."""
_LOOK = 1_000
"""Rows within which one must have both lengths, as a log may begin with other lines; also the
requests that decide the units of the times."""
_BEGINNING = 100
"""Lines that tell what a file is; other words may stand before its rows."""
_BATCH = 8_192
"""Rows of a Parquet file that are in memory at once."""
_LONGEST_LINE = 64 * 2**20
"""Most bytes of a line, enough for a very long prompt; a file with longer lines is not a request
log."""
_COLUMN = re.compile(r"[A-Za-z_@][A-Za-z0-9_.-]{0,39}")
_HINT = "name its columns, as  --columns input=tokens_in,output=tokens_out,time=started"


class LogRow(NamedTuple):
    """A request of a log; None where the log does not give a value.

    - `time`: when it arrived, in seconds.
    - `isl`, `osl`, `cached`: its input and output tokens, and the input tokens that came from a
      cache.
    - `ttft`, `e2e`: the seconds to its first token and to its end.
    - `session`, `name`, `kind`: what it belongs to.
    - `blocks`: the blocks that its prompt begins with.
    - `pause`: the seconds before it, where a trace of sessions states them.
    - `read_as`: how the times of its log are read.
    """

    time: float | None
    isl: int
    osl: int
    cached: float | None = None
    ttft: float | None = None
    e2e: float | None = None
    session: str | None = None
    name: str | None = None
    kind: str | None = None
    blocks: tuple[int, ...] = ()
    pause: float | None = None
    read_as: ReadAs = PLAIN


def given_columns(text: str | None) -> dict[str, tuple[str, ...]]:
    """The columns of --columns, over the known ones. UsageError for a name that cannot be a
    column.
    """
    return {**COLUMNS, **{what: (name,) for what, name, _ in _given(text)}}


def given_units(text: str | None) -> dict[str, float]:
    """The seconds of the units that --columns names, as latency=duration:ms does."""
    return {what: UNITS[unit] for what, _, unit in _given(text) if unit}


def _given(text: str | None) -> Iterator[tuple[str, str, str]]:
    """The field, column and unit of each part of --columns; '' without a unit."""
    for part in text.split(",") if text else ():
        what, sign, name = map(str.strip, part.partition("="))
        if what not in COLUMNS or not sign or not name:
            hint = did_you_mean(what, COLUMNS) or f"write {', '.join(f'{each}=COLUMN' for each in COLUMNS)}"
            raise UsageError(f"--columns: {foreign_text(part)!r} is not WHAT=COLUMN", hint)
        column, colon, unit = name.rpartition(":")
        if column and colon and what in TIMED and unit in UNITS:
            yield what, column, unit
        else:
            yield what, name, ""


def log_rows(
    path: Path, columns: Mapping[str, tuple[str, ...]], units: Mapping[str, float] | None = None
) -> Iterator[LogRow | None]:
    """The requests of a log in the order of its rows; None for a row without both lengths, which
    failed or is no request.

    `units` are those that were asked for, in seconds; others are named by a column, or found from
    the first requests. ForeignFileError where the file is not a request log.
    """
    read = _read_rows(path, columns)
    first: list[tuple[LogRow, RowTimes] | None] = []
    for row in read:
        first.append(row)
        if len(first) >= _LOOK:
            break
    known = [row for row in first if row is not None]
    told = read_as([times for _, times in known], [(row.isl, row.osl) for row, _ in known], units or {})
    for row in itertools.chain(first, read):
        if row is None:
            yield None
        else:
            begun, ttft, e2e = told.seconds(row[1])
            yield row[0]._replace(time=begun, ttft=ttft, e2e=e2e, read_as=told)


def _read_rows(path: Path, columns: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[LogRow, RowTimes] | None]:
    """As log_rows, each with its times as they stand in the log."""
    names: dict[str, str] = {}
    keys: dict[str, None] = {}
    for number, row in enumerate(_mappings(path, columns)):
        if number < _LOOK:
            keys |= dict.fromkeys(list(row)[:30])
            found = _names_in(row, columns)
            if names or {"input", "output"} <= found.keys():
                names = found | names  # a later row tells a column in which those before had no value
        elif not names:
            break
        yield _request(row, names) if names else None
    if not names and any(seconds_of(key) is not None for key in keys):
        hint = "write the names of its columns above it, as  timestamp,prompt_tokens,completion_tokens"
        raise ForeignFileError(str(path), "its first line has no names of columns, but values", hint)
    if not names:
        held = ", ".join([repr(key) for key in keys if _may_be_said(key)][:12])
        none = "a log of HTTP alone has no tokens: take a gateway's log in JSON, or the metrics of the server's URL"
        hint = _HINT if held else none
        raise ForeignFileError(str(path), f"no row has two lengths in tokens; columns: {held or 'none'}", hint)


def _may_be_said(key: object) -> bool:
    """Whether a text looks like the name of a column: one word, and neither a value nor a key."""
    text = str(key)
    return _COLUMN.fullmatch(text) is not None and not looks_like_a_key(text) and not looks_random(text)


def _names_in(row: Mapping[str, Any], columns: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """The columns in which a row has a value, by field."""
    found = {what: next((n for n in known if _at(row, n) is not None), "") for what, known in columns.items()}
    return {what: name for what, name in found.items() if name}


def _at(row: Mapping[str, Any], name: str) -> Any:
    """The value of a column, which may lie inside another: usage.prompt_tokens."""
    if name in row:
        value = row[name]
        return None if value == "" else value
    head, dot, rest = name.partition(".")
    below = row.get(head) if dot else None
    return _at(below, rest) if isinstance(below, dict) else None


def _request(row: Mapping[str, Any], names: Mapping[str, str]) -> tuple[LogRow, RowTimes] | None:
    values = {what: _at(row, name) for what, name in names.items()}
    isl, osl, cached = (_count(values.get(what)) for what in ("input", "output", "cached"))
    if not isl or not osl:
        return None
    bailian = "chat_id" in row
    # Mooncake's stamps are milliseconds.
    mooncake = names["input"] == "input_length" and not bailian
    stated = dict.fromkeys(("time", "end", "first"), 1e-3) if mooncake else {}
    times = RowTimes(tuple(values.get(what) for what in TIMED), names, stated)
    texts = (values.get(what) for what in ("session", "id", "class"))
    session, name, kind = (None if text is None else str(text)[:200] for text in texts)
    blocks, step = values.get("blocks"), BLOCK // FINER_BLOCK if bailian else 1
    listed = blocks[step - 1 :: step] if isinstance(blocks, list) else []
    named = (each if isinstance(each, int) else name_hash(str(each)) for each in listed)
    return LogRow(None, isl, osl, cached, None, None, session, name, kind, tuple(named)), times


def name_hash(name: str) -> int:
    """64 bits of a name, the same everywhere."""
    return int.from_bytes(hashlib.blake2b(name.encode(errors="replace"), digest_size=8).digest())


def _count(value: Any) -> int | None:
    """A number of tokens; None for any other value."""
    number = number_of(value, MAX_TOKENS)
    return None if number is None or number < 0 else int(number)


# --- files to mappings


def _mappings(path: Path, columns: Mapping[str, tuple[str, ...]]) -> Iterator[Mapping[str, Any]]:
    """The rows of a file, one at a time."""
    try:
        with path.open("rb") as raw:
            head = raw.read(4)
        if head == b"PAR1":
            yield from _parquet(path, columns)
            return
        with gzip.open(path) if head[:2] == b"\x1f\x8b" else path.open("rb") as opened:
            file = cast("IO[bytes]", opened)
            begins = [_bare(line).lstrip() for line in itertools.islice(_lines(file), _BEGINNING) if line.strip()]
            first = begins[0] if begins else b""
            file.seek(0)
            if b"\0" in first or first[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
                hint = "save it as UTF-8, as  iconv -f UTF-16 -t UTF-8 LOG > log.csv"
                raise ForeignFileError(str(path), "it is no text in UTF-8: its first line has NUL bytes", hint)
            if first[:1] == b"[":
                raise ForeignFileError(str(path), "it is one JSON list", "write a JSON object per line:  jq -c '.[]'")
            of_vllm = any(b"Received request " in line for line in begins)
            if first[:1] == b"{" or (not of_vllm and any(line[:1] == b"{" for line in begins)):
                yield from _json_lines(path, file)
            elif of_vllm or _LOGGED.match(first):
                yield from _vllm_log(path, file)
            else:
                yield from _table(path, file)
    except (OSError, EOFError, zlib.error, ValueError) as error:  # the last of damaged Parquet
        raise ForeignFileError(str(path), f"it cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    return iter(lambda: file.readline(_LONGEST_LINE).removeprefix(codecs.BOM_UTF8), b"")


def _json_lines(path: Path, file: IO[bytes]) -> Iterator[Mapping[str, Any]]:
    bad = 0
    for number, line in enumerate(_lines(file), 1):
        try:
            tree = _json(_bare(line)) if line.strip() else None
        except (ValueError, RecursionError):
            tree, bad = {}, bad + 1  # left out, and counted
            if bad > number / 2 and number >= 2 * _BEGINNING:
                raise ForeignFileError(
                    str(path), f"line {number} is not JSON", "write a JSON object per line"
                ) from None
        if isinstance(tree, dict):
            yield from _spans(tree) if "resourceSpans" in tree else (tree,)


def _json(line: bytes) -> Any:
    """The value of a line of JSON, which may hold the NaN and Infinity that Python writes."""
    return json.loads(line) if b"NaN" in line or b"Infinity" in line else orjson.loads(line)


def _spans(tree: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The spans of a line of OpenTelemetry's file exporter, their attributes beside their times."""
    for resource in _listed(tree, "resourceSpans"):
        for scope in _listed(resource, "scopeSpans"):
            for span in _listed(scope, "spans"):
                values = {str(a.get("key")): a.get("value") for a in _listed(span, "attributes")}
                flat = {
                    key: next(iter(value.values()), None) for key, value in values.items() if isinstance(value, dict)
                }
                yield {**span, **flat}


def _listed(tree: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    listed = tree.get(key)
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []


_DECIMAL_COMMA = re.compile(r"\s*-?\d{1,40},\d{1,40}\s*")


def _with_point(cell: str) -> str:
    """A cell whose number has a decimal point in the place of its comma."""
    return cell.replace(",", ".") if _DECIMAL_COMMA.fullmatch(cell) else cell


def _table(path: Path, file: IO[bytes]) -> Iterator[Mapping[str, Any]]:
    lines = (line.decode("utf-8", "replace").replace("\0", "") for line in _lines(file) if line[:1] != b"#")
    csv.field_size_limit(_LONGEST_LINE)
    try:
        first = next(lines, "")
        between = max(",;\t|", key=first.count)
        reader = csv.reader(itertools.chain([first], lines), delimiter=between)
        heads = [head.strip() for head in next(reader, [])]
        # Spreadsheets write semicolons where their comma is that of decimals.
        rows = ([_with_point(cell) for cell in cells] for cells in reader) if between == ";" else reader
        for cells in rows:
            yield dict(zip(heads, cells, strict=False))
    except csv.Error as error:
        raise ForeignFileError(str(path), f"not a CSV table: {foreign_text(str(error), 100)}") from None


def _parquet(path: Path, columns: Mapping[str, tuple[str, ...]]) -> Iterator[Mapping[str, Any]]:
    try:
        from pyarrow import parquet
    except ImportError:
        raise UsageError(f"{path.name} is Parquet, which needs pyarrow", install_command("pyarrow")) from None
    with parquet.ParquetFile(path) as file:
        known = {part for names in columns.values() for name in names for part in (name, name.partition(".")[0])}
        flat = [name for name in file.schema_arrow.names if name in known] or None
        for batch in file.iter_batches(_BATCH, columns=flat):
            yield from batch.to_pylist()


_BEFORE = re.compile(
    rb"^(?:\[(?:pod|container)/[^\]\s]{1,200}\] |[\w.-]{1,64} +\| )?"
    rb"(?:\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) )?(?:std(?:out|err) [FP] )?"
)
"""What kubectl, docker compose and container runtimes put before a line."""
_LOGGED = re.compile(rb"(?:\(\w+ pid=\d+\) )?(?:DEBUG|INFO|WARNING|ERROR)[: ]")
_VLLM = re.compile(rb"(?:Received r|R)equest (\S{1,100})(?: details)?: .*prompt_token_ids: \[([\d, ]*)\]")
_ANSWERED = re.compile(rb"Generated response (\S{1,100}) .*output_token_ids: \[([\d, ]*)\]")
_STAMP = re.compile(rb"\d\d-\d\d \d\d:\d\d:\d\d")
_YEAR = 366 * 86_400.0
_OPEN = 100_000
"""Requests of vLLM's log that may wait for their answers; beyond it, the oldest are given up."""


def _bare(line: bytes) -> bytes:
    """A line without colours, and without what a collector of logs puts before or around it."""
    if line.startswith(b'{"log":'):  # docker's own files
        with suppress(orjson.JSONDecodeError, AttributeError):
            return cast("bytes", orjson.loads(line)["log"].encode())
    if line.startswith(b"{"):
        return line
    return _BEFORE.sub(b"", re.sub(rb"\x1b\[[\d;]*m", b"", line) if b"\x1b[" in line[:200] else line)


def _vllm_log(path: Path, file: IO[bytes]) -> Iterator[Mapping[str, Any]]:
    """The requests of vLLM's own log. With --enable-log-requests and --enable-log-outputs it has
    the tokens of prompts and answers, which are counted, not read. ForeignFileError where it has
    requests without tokens, as since 0.11.2 above the level DEBUG.
    """
    waiting: dict[bytes, tuple[int, float | None]] = {}
    latest, bare, found = 0.0, False, False
    for line in map(_bare, _lines(file)):
        bare = bare or b"Received request " in line
        if line.startswith(b"{") and b"prompt_tokens" in line:
            yield {}  # of another log in this one: counted as left out
        asked, answer = _VLLM.search(line), _ANSWERED.search(line)
        at = _stamp(line, latest) if asked or answer else None
        latest = at or latest
        found = found or asked is not None
        if asked is not None:
            waiting[asked[1]] = _listed_tokens(asked[2]), at
            if len(waiting) > _OPEN:
                del waiting[next(iter(waiting))]
        elif answer is not None and (begun := waiting.pop(answer[1], None)) is not None:
            times = {"start_time": begun[1], "end_time": at}
            yield {"prompt_tokens": begun[0], "completion_tokens": _listed_tokens(answer[2]), **times}
    if bare and not found:
        hint = "log at  VLLM_LOGGING_LEVEL=DEBUG  with --enable-log-requests and --enable-log-outputs"
        raise ForeignFileError(str(path), "vLLM since 0.11.2 logs no tokens of prompts at INFO", hint)


def _listed_tokens(text: bytes) -> int:
    return len(text.split(b",")) if text.strip() else 0


def _stamp(line: bytes, latest: float) -> float | None:
    """Seconds from the start of the log's first year, taken as a leap year. Stamps name no year:
    one long before the latest is of the next.
    """
    match = _STAMP.search(line)
    at = None if match is None else seconds_of(f"1972-{match[0].decode()}")
    return None if at is None else at + _YEAR * max(0, math.ceil((latest - _YEAR / 2 - at) / _YEAR))
