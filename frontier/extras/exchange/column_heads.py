"""The heads that people and tools write over the columns of a table, and the cells below them."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from frontier.core.model.errors import UsageError
from frontier.core.model.metrics import Unit, metric
from frontier.core.model.text import clean_name

_TIMES = {
    **dict.fromkeys(("ms", "msec", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("us", "µs", "μs", "microseconds"), 1e-6),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("ns", "nanoseconds"), 1e-9),
}
SECONDS = _TIMES | {f"{unit}/{of}": scale for unit, scale in _TIMES.items() for of in ("token", "tok")}
UNIT_SUFFIXES = {"": 1.0, **{f"_{unit}": scale for unit, scale in _TIMES.items()}}
"""What stands behind the name of a latency, and the factor to seconds."""
SHARES = dict.fromkeys(("%", "pct", "percent"), 0.01)
_COUNTED = ("tok", "toks", "token", "tokens", "t", "req", "reqs", "request", "requests", "query", "queries")
RATES = {
    **{f"{what}/{time}": 1.0 for what in _COUNTED for time in ("s", "sec", "second")},
    **{f"{what}/{time}": 1 / 60 for what in _COUNTED for time in ("min", "minute")},
    **dict.fromkeys(("tps", "rps", "qps"), 1.0),
    **dict.fromkeys(("tpm", "rpm", "qpm"), 1 / 60),
    **{f"k{what}/{time}": 1e3 for what in ("tok", "tokens") for time in ("s", "sec", "second")},
    "ktps": 1e3,
}
_OF_REQUESTS = ("req", "rp", "qp")
"""How units of requests, and not of tokens, begin."""
SCALED = frozenset({*SECONDS, *SHARES, *RATES, *(f"{rate}/gpu" for rate in RATES)})
UNITS = SCALED | {"tokens", "token", "tok", "requests", "reqs", "#", "count", "users", "-", "n"}
"""Units that stand in a row of their own; those of SCALED scale what is below."""
_FACTS = {
    "shape": "isl/osl|isl_osl|in/out|input/output|lengths|workload",
    "concurrency": "conc|max_concurrency|num_concurrency|concurrent_(?:users|requests)|users|user_count|vus|clients|"
    "num(?:ber)?_(?:of_)?(?:users|clients|concurrent_(?:users|requests))|number_of_concurrency|concurrency_level",
    "in_flight": "concurrency_(?:mean|avg)|(?:mean|avg|average)_(?:concurrency|in_flight)|requests_in_flight",
    "rate": "rate|(?:requested|target|request|arrival)_rate|rate_qps|target_qps",
    "arrivals": "profile|arrival_pattern|strategy",
    "isl": "(?:input|prompt)_(?:tokens|len|length)(?:_mean)?|"
    "(?:mean|avg)_(?:input|prompt)_(?:tokens|len|length|token_length)|random_input_len",
    "osl": "(?:output|completion)_(?:tokens|len|length)(?:_mean)?|"
    "(?:mean|avg)_(?:output|completion)_(?:tokens|len|length|token_length)|random_output_len",
    "n": "requests|num_requests|total_requests|n_req(?:uests)?|request_count|num_prompts|samples",
    "failed": "failures|failed_requests|error_requests|num_(?:errors|failed)|errors|error_count",
    "ok": "ok|succe(?:ss|ssful|ssful_requests|eded|eded_requests|ss_requests|ss_count)|completed(?:_requests)?",
    "gpus": "gpu|num_gpus?|n_gpus?|gpu_count",
    "success_rate": "success_(?:rate|share|ratio)",
    "deployment": "config|configuration|setup",
    "model": "model_(?:id|name)",
    "valid": "valid",
    "flags": "flags",
}
_PER_S = "_per_s(?:ec(?:ond)?)?"
_WHOLE = {
    "output_throughput": "(?:output_|gen_|generation_|decode_)?(?:tput|throughput|tokens?_throughput)|"
    f"(?:output|system)_(?:tps|tokens?_rate)|(?:output_|gen_|generation_|decode_|throughput_)?tok(?:en)?s?{_PER_S}|tps|tok_s",
    "total_throughput": f"total_(?:tput|tps|tokens?_(?:throughput|rate)|tok(?:en)?s?{_PER_S})",
    "input_throughput": f"(?:input|prompt|prefill)_(?:tput|tps|tokens?_(?:throughput|rate)|tok(?:en)?s?{_PER_S})",
    "request_throughput": f"(?:request|req)_(?:tput|rate_achieved)|req(?:uest)?s?(?:{_PER_S}|_per_min(?:ute)?)|"
    "rps(?:_mean)?|qps",
    "error_rate": "(?:error|failure)s?(?:_(?:rate|share|ratio))?|failed(?:_requests)?",
}
_SIDES = {
    **dict.fromkeys(("output", "gen", "generation", "decode", "system"), "output_throughput"),
    **dict.fromkeys(("input", "prompt", "prefill"), "input_throughput"),
    "total": "total_throughput",
}
"""What a head names whose unit alone says that it is a rate: 'Output (tok/s)'."""
_QUANTITIES = (
    ("time_to_first_token|first_token_latency|first_time_to_token", "ttft"),
    ("time_per_output_token", "tpot"),
    ("inter_token_latency|inter_token", "itl"),
    ("end_to_end_latency|(?:e2e|request|req|end2end)_latency|e2el|latency", "e2e"),
    ("average|avg", "mean"),
    ("median", "p50"),
)
_NAMED_AGAIN = re.compile(r"\s*\((?:ttft|tpot|itl|e2el?)\)")
"""The short name behind a long one: 'Time to First Token (TTFT)'."""
_UNIT = re.compile(r"^(.*?)\s*[(\[]([^()\[\]]*)[)\]]\s*$")
_SUFFIX = re.compile(rf"^(.+)(?<!_per)_({'|'.join((*_TIMES, *SHARES))})$")
_STATISTIC = re.compile(r"\s*[(\[](mean|avg|average|median|p\d+(?:\.\d+)?)[)\]]")
"""The statistic in brackets: 'TTFT (p99)'."""
_UNIT_WITHIN = re.compile(r"^(ttft|tpot|itl|e2e|e2el|latency)[_ ](ms|s|us)[_ ](mean|avg|median|p\d+)$")
"""The unit before the statistic: 'ttft_ms_p99'."""
_NUMBER = re.compile(r"(-?[\d.,]+(?:e[+-]?\d+)?)\s*([^\d\s].*)?")
_GROUPED = re.compile(r"^\s*-?\d{1,3}(?:([,'\u2019\s])\d{3})(?:\1\d{3})*(?![\d,])")
_SPREAD = re.compile(r"(.*?)\s*\(?\s*(?:±|\+/?-)\s*[\d.,]+\s*([^\d\s()%]*)%?\s*\)?")
"""A value with what it varies by: '12.3 ± 0.4 ms'."""
_LOADS = {
    "concurrency": re.compile(
        r"(c|conc|(?:max_?)?concurrency|concurrent|users?|streams?|clients?)?\s*[=:_ -]?\s*"
        r"(\d+(?:\.\d+)?)\s*(users?|streams?|clients?|concurrent|in flight)?",
        re.I,
    ),
    "rate": re.compile(r"(r|rate|rps|qps)?\s*[=:_ -]?\s*(\d+(?:\.\d+)?)\s*(req(?:uests?)?/s(?:ec)?|rps|qps)?", re.I),
}
"""Loads with a name or a unit: 'c=16', '16 users', '2.5 req/s'."""


LONGEST_CELL = 100
"""The characters of a number with its unit that are read; patterns take long on long ones."""


class ColumnHead(NamedTuple):
    """What a column holds: a metric or a fact by our name, the factor to our unit, whether its head
    states a unit, and whether it counts per GPU.
    """

    name: str
    scale: float = 1.0
    stated: bool = False
    per_gpu: bool = False


def column_name(head: str) -> str:
    """A column's head in our spelling: 'P99 TTFT (ms)' as 'p99_ttft_ms'."""
    return re.sub(r"[\s()\[\]-]+", "_", head.strip().lower()).strip("_")


def read_head(head: str) -> ColumnHead | None:
    """What a column holds, by its head; None for a column that is not read.

    >>> [tuple(read_head(head) or ()) for head in ("TTFT p99 (ms)", "Tput/GPU (tok/s)")]
    [('p99_ttft', 0.001, True, False), ('output_throughput', 1.0, True, True)]
    """
    if "|" in head:  # the rows of a head: 'ttft | p50'
        parts = [part.strip() for part in head.split("|")]
        return read_head(" ".join(parts)) or read_head(" ".join(reversed(parts)))
    name, unit, per_gpu = _parted(head.strip().lower())
    found = _named(name, unit)
    if found is None or found in _FACTS:
        return ColumnHead(found) if found and not per_gpu else None
    known = {Unit.SECONDS: SECONDS, Unit.SHARE: SHARES}.get(metric(found).unit, RATES)
    if (unit and unit not in known) or (per_gpu and not found.endswith("throughput")):
        return None
    return ColumnHead(found, known.get(unit, 1.0), bool(unit), per_gpu)


def _parted(head: str) -> tuple[str, str, bool]:
    """The name and the unit of a head, and whether it counts per GPU."""
    head = re.sub(r",\s*([^\s,]+)$", r" (\1)", _NAMED_AGAIN.sub("", head))
    text = _UNIT_WITHIN.sub(r"\1_\3_\2", _STATISTIC.sub(r" \1", head))
    text = re.sub(r"\s+per\s+gpu\b", "/gpu", text)
    bracketed = _UNIT.match(text)
    plain, unit = (bracketed[1], bracketed[2].replace(" ", "")) if bracketed else (text, "")
    if text.removesuffix("/gpu") in RATES:
        text = f"throughput {text}"
    before, _, last = text.rpartition(" ")
    if not bracketed and last.removesuffix("/gpu") in RATES:
        plain, unit = before, last
    name, per_gpu = re.sub(r"[\s-]+", "_", plain).strip("_"), "/gpu" in unit
    unit = unit.replace("/gpu", "")
    for tail in ("_per_gpu", "/gpu"):
        per_gpu, name = per_gpu or name.endswith(tail), name.removesuffix(tail)
    if not unit and (behind := _SUFFIX.match(name)):
        name, unit = behind[1].removesuffix("_in"), behind[2]
    elif not unit and re.search("_per_min(ute)?$", name):
        unit = "rpm"
    return name, unit, per_gpu


def _fact(name: str, unit: str) -> str | None:
    """The fact of a head. Only shares of successes and rates have a unit: 'Rate (req/s)'."""
    facts = [ours for ours, theirs in _FACTS.items() if name == ours or re.fullmatch(theirs, name)]
    of_rate = unit.startswith(_OF_REQUESTS) and RATES.get(unit) == 1
    return next((f for f in facts if not unit or f == "success_rate" or (f == "rate" and of_rate)), None)


def _named(name: str, unit: str) -> str | None:
    """The fact or the metric of a head without its unit."""
    if fact := _fact(name, unit):
        return fact
    if name in _SIDES and unit in RATES and not unit.startswith(_OF_REQUESTS):
        return _SIDES[name]
    if name in ("tput", "throughput") and unit.startswith(_OF_REQUESTS):
        return "request_throughput"
    whole = [ours for ours, theirs in _WHOLE.items() if re.fullmatch(theirs, name)]
    for theirs, ours in _QUANTITIES:
        name = re.sub(rf"(?<![a-z])(?:{theirs})(?![a-z])", ours, name)
    name = re.sub(r"^(ttft|tpot|itl|e2e)_(mean|p\d+(?:\.\d+)?)$", r"\2_\1", name)
    try:
        of = metric(whole[0] if whole else name)
    except ValueError:
        return None
    derived = ("goodput", "attainment", "cost", "energy")  # of an SLA, a price or a power not in the table
    if of.name in derived or of.inverted or of.group is not None:
        return None
    return of.name if of.p is None else f"p{of.p * 100:g}_{of.quantity}"


def plain_number(cell: str, of: str, *, stated: bool) -> tuple[str, float]:
    """A cell without thousands' commas, spread and unit, and the factor of that unit where the head
    of the column states none: '1,283.2 tok/s', '126ms', '12%', '12.3 ± 0.4 ms'.
    """
    text = ungrouped(cell.strip().lower()[:LONGEST_CELL])
    if spread := _SPREAD.fullmatch(text):
        text = f"{spread[1]} {spread[2] if spread[1][-1:].isdigit() else ''}"
    found = _NUMBER.fullmatch(text.strip())
    if found is None:
        return cell, 1.0
    number, unit = found[1], (found[2] or "").replace(" ", "")
    if unit == "k" and metric(of).unit not in (Unit.SECONDS, Unit.SHARE):
        return number, 1000.0
    units: Mapping[str, float] = {**SECONDS, **SHARES, **RATES}
    kind = metric(of).unit
    fits = {Unit.SECONDS: SECONDS, Unit.SHARE: SHARES}.get(kind, RATES)
    if unit not in fits:
        return (cell, 1.0) if unit else (number, 1.0)
    return number, 1.0 if stated else units[unit]


def ungrouped(cell: str) -> str:
    """A cell whose number has nothing between its thousands: '1,283.2', "1'283.2", '1 283.2'."""
    return _GROUPED.sub(lambda found: re.sub(r"[,'\u2019\s]", "", found[0]), cell, count=1)


def plain_load(cell: str, name: str) -> str:
    """The number in a cell of a load: 'c=16', '16 users'."""
    found = _LOADS["rate" if name == "rate" else "concurrency"].fullmatch(cell[:LONGEST_CELL])
    return found[2] if found else cell


def load_head(head: str) -> tuple[str, str] | None:
    """The load that a head names, and its number: 'c=16', '2 req/s'; None for a bare number."""
    named = ((name, pattern.fullmatch(head.strip()[:LONGEST_CELL])) for name, pattern in _LOADS.items())
    return next(((name, found[2]) for name, found in named if found and (found[1] or found[3])), None)


def given_columns(text: str) -> dict[str, ColumnHead]:
    """What --columns names, by the heads of the table. UsageError for what is no metric or fact.

    >>> {head: tuple(of) for head, of in given_columns("p99_ttft=first tok:ms,n=count").items()}
    {'first tok': ('p99_ttft', 0.001, True, False), 'count': ('n', 1.0, False, False)}
    """
    given: dict[str, ColumnHead] = {}
    for part in text.split(","):
        ours, equals, theirs = part.strip().partition("=")
        head, _, unit = theirs.rpartition(":") if ":" in theirs else (theirs, "", "")
        found = read_head(f"{ours} ({unit})" if unit else ours)
        if not equals or not head.strip() or found is None:
            hint = "write  --columns 'p99_ttft=their column:ms,concurrency=users'"
            raise UsageError(f"--columns: {clean_name(part)!r} is not a known WHAT=COLUMN", hint)
        given[head.strip()] = found
    return given
