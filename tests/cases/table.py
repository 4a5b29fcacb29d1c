"""The cases: each a situation of a public report, and what the command may, must and must not say
of it."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.cases import situations as s
from tests.cases.allowed import EXCLUDED, MEETS, NATURAL, NEVER_MEETS, limits, tpot
from tests.cases.blocked import BLOCKED
from tests.cases.changes import CHANGES
from tests.cases.comparer import FAILED, NO, UNPROVEN, YES, Case, Expected, Seen
from tests.cases.deployments import DEPLOYMENTS
from tests.cases.failures import FAILURES
from tests.cases.situation import Situation
from tests.cases.workloads import WORKLOADS
from tests.faults.encodings import leaked

# ---- what held, and controls

HELD = (
    Case("honest", Situation, Expected(true=("p50_tpot", "p50_ttft"), counted=True), gate=True),
    Case(
        "compiles",
        lambda: s.Compiles(tpot=0.006),
        Expected(not_words=(r"p50 TTFT +[0-9.]+ s",)),
        {"concurrency": "[2, 4]"},
    ),
    Case("azure", lambda: s.Azure(tpot=0.008), Expected(true=("p50_tpot",)), NATURAL),
    Case("trailers", lambda: s.Trailers(tpot=0.008), Expected(true=("p50_tpot",))),
    Case(
        "ollama_cuts",
        lambda: s.OllamaCuts(tpot=0.008),
        Expected(**EXCLUDED, words=(r"cuts prompts to its context",)),
        {**NATURAL, "shapes": "[512/32]"},
    ),
    Case("router", s.Router, Expected((FAILED, 2), (), words=("m, big, small",))),
    Case("router_named", s.Router, Expected(true=("p50_tpot",)), {"model": "m"}),
    Case(
        "temperature_refused",
        s.OneTemperature,
        Expected((FAILED,), (), words=("only 1 is allowed", r"extra_body: \{temperature: 1\}")),
        NATURAL,
    ),
    Case(
        "temperature_given",
        s.OneTemperature,
        Expected(true=("p50_tpot",)),
        {**NATURAL, "extra_body": "{temperature: 1}"},
    ),
    Case(
        "capacity_by_429",
        lambda: s.AtMost(tpot=0.008),
        Expected(words=("Run at concurrency 4",)),
        NATURAL | limits(ttft="200ms", tpot="30ms") | {"concurrency": "[4, 8]"},
    ),
    Case(
        "reasoning_uncounted",
        lambda: s.Reasoning(think=4, completion="visible", total="completion", told=False),
        Expected(**EXCLUDED, flags=("token_mismatch",)),
        NATURAL,
    ),
    Case(
        "counted_twice",
        lambda: s.Merged(wrong=True, tpot=0.006),
        Expected(**EXCLUDED, flags=("token_mismatch",)),
        NATURAL | {"shapes": "[64/64]", "concurrency": "[8]", "requests": "150", "max_time": "20s"},
    ),
    Case("no_count", s.NoCount, Expected((FAILED,), (), words=("reports no token counts",)), NATURAL),
)

# ---- tokens of a chunk that were not waited for

NO_TPOT = Expected(**EXCLUDED, flags=("buffered_stream",), words=("E2E",), not_words=("judge by TPOT", r" 0 ms"))
SEVERAL = Expected(**NEVER_MEETS, true=("p50_tpot",), not_words=("judge by TPOT",))
SLOW = {"ttft": 0.05, "dialect": "openai", "chat_only": True}


def chunks(tpot: float = 0.02, **how: object) -> Callable[[], Situation]:
    """A gateway that sends several tokens in a chunk."""
    return lambda: s.Chunks(tpot=tpot, **{**SLOW, **how})  # type: ignore[arg-type]


CHUNKS = (
    Case("one_chunk", lambda: s.OneChunk(tpot=0.025), NO_TPOT, tpot("20ms", max_time="4s"), gate=True),
    Case("one_chunk_with_usage", lambda: s.OneChunk(tpot=0.025, how="usage"), NO_TPOT, tpot("20ms")),
    Case("one_call_of_a_tool", lambda: s.OneChunk(tpot=0.025, how="tool"), NO_TPOT, tpot("20ms")),
    Case(
        "one_chunk_rate_per_user",
        lambda: s.OneChunk(tpot=0.025),
        NO_TPOT,
        NATURAL | limits(ttft="3s", interactivity="20"),
    ),
    Case("one_chunk_gaps", lambda: s.OneChunk(tpot=0.025), NO_TPOT, NATURAL | limits(ttft="3s", itl="20ms")),
    Case(
        "one_chunk_by_e2e",
        lambda: s.OneChunk(tpot=0.025),
        Expected(**MEETS, flags=("buffered_stream",), true=("p50_e2e",)),
        NATURAL | limits(ttft="1500ms", e2e="1500ms"),
    ),
    Case(
        "some_in_one_chunk",
        lambda: s.OneChunk(share=0.3),
        Expected(**MEETS, flags=("buffered_stream",), words=("came at once",)),
        tpot("60ms", requests="100", max_time="20s"),
    ),
    Case("two_chunks", chunks(0.025, first=16, every=16), NO_TPOT, tpot("20ms")),
    Case("first_of_16", chunks(first=16), SEVERAL, tpot("15ms"), gate=True),
    Case("first_of_16_role", chunks(first=16, role_with_text=True), SEVERAL, tpot("15ms")),
    Case("every_8", chunks(first=8, every=8), SEVERAL, tpot("17ms")),
    Case("every_4", chunks(first=4, every=4), SEVERAL, tpot("17ms")),
    Case("every_16_of_64", chunks(first=16, every=16), SEVERAL, tpot("17ms", shapes="[64/64]", max_time="16s")),
    Case("every_8_wide", chunks(first=8, every=8, letters="字句"), SEVERAL, tpot("17ms")),
    Case(
        "every_8_inside",
        chunks(first=8, every=8),
        Expected(**MEETS, true=("p50_tpot",), not_words=("judge by TPOT",)),
        tpot("30ms"),
    ),
    Case(
        "every_8_counted",
        chunks(first=8, every=8, more="usage", first_text=" a"),
        SEVERAL,
        tpot("17ms"),
        check=lambda seen: _asked_for_usage_alone(seen),
    ),
    Case("first_of_8_ids", chunks(first=8, more="token_ids", first_text=""), SEVERAL, tpot("15ms")),
    Case("first_12_in_one_read", chunks(held=12), Expected(**NEVER_MEETS), tpot("15ms")),
    Case(
        "thoughts_at_once",
        lambda: s.Reasoning(tpot=0.02, ttft=0.05, think=24, first=24),
        SEVERAL,
        tpot("15ms"),
    ),
    Case(
        "speculative",
        lambda: s.Speculative(tpot=0.002),
        Expected(**MEETS, true=("p50_tpot",), words=("drafts were accepted on random tokens", "prompts: natural")),
        {"shapes": "[64/96]"},
    ),
    Case(
        "speculative_natural",
        lambda: s.Speculative(tpot=0.002),
        Expected(**MEETS, true=("p50_tpot",), not_words=("accepted on random tokens",)),
        {"shapes": "[64/96]", "prompts": "natural"},
    ),
)


def _asked_for_usage_alone(seen: Seen) -> list[str]:
    asked = {json.dumps(tree.get("stream_options")) for tree in seen.server.asked}
    return [] if asked == {'{"include_usage": true}'} else [f"stream_options: {asked}"]


# ---- counts

RIGHT = Expected(**MEETS, true=("p50_tpot",), no_flags=("token_mismatch",))


def reasoning(tpot: float = 0.01, **how: object) -> Callable[[], Situation]:
    """A server whose answers have reasoning tokens."""
    return lambda: s.Reasoning(tpot=tpot, **how)  # type: ignore[arg-type]


COUNTS = (
    Case("reasoning_beside", reasoning(hidden=20, completion="visible"), RIGHT, tpot("15ms"), gate=True),
    Case("reasoning_inside", reasoning(hidden=20), RIGHT, tpot("15ms")),
    Case(
        "reasoning_beside_by_the_chunks",
        reasoning(think=4, completion="visible", total="completion"),
        RIGHT,
        tpot("15ms"),
    ),
    Case("reasoning_partly_beside", reasoning(think=4, completion="visible"), RIGHT, tpot("15ms")),
    Case(
        "reasoning_unsaid",
        reasoning(hidden=20, total=None, first=8, every=8),
        Expected((UNPROVEN, NO, FAILED), ("unproven", "marginal", "violates", "infeasible", "invalid")),
        tpot("8ms"),
    ),
    *(
        Case(
            f"only_reasoning_{name}",
            reasoning(0.012, think=99, completion="visible", total=total),
            Expected(**MEETS, true=("p50_tpot",), not_words=("reports no token counts",)),
            tpot("20ms"),
        )
        for name, total in (("all", "all"), ("completion", "completion"), ("unsaid", None))
    ),
    Case(
        "merged_few",
        s.Merged,
        Expected(**MEETS, true=("p50_tpot",), no_flags=("token_mismatch",)),
        tpot("15ms", shapes="[64/64]", requests="46", max_time="12s"),
    ),
)

ODD_COUNTS = (
    Case("prompt_within_the_completion", s.OddCount, RIGHT, tpot("15ms")),
    Case("zeros_behind_the_count", lambda: s.OddCount(how="zeros"), RIGHT, tpot("15ms")),
    Case(
        "characters_for_tokens",
        lambda: s.OddCount(how="characters"),
        Expected(**EXCLUDED, flags=("token_mismatch",)),
        tpot("15ms"),
    ),
)

# ---- series of metrics

CAPPED = limits(ttft="100ms", tpot="12ms") | {"concurrency": "[4, 8]", "requests": "110", "max_time": "10s"}
GUESS = r"[a-z] \((85|95)%\):"
"""A diagnosis with how often such evidence was right."""
OWN = Expected((YES, NO), (), words=(r"batch cap \(85%\)",), not_words=("one number",))
SEVERAL_TIMES = Expected(
    (YES, NO),
    (),
    words=("one number several times", "(8|7.9) were in flight"),
    not_words=(GUESS, "run at most"),
)
SERIES = (
    Case("same_number_by_ranks", lambda: s.SameNumber(slots=4, tpot=0.008), SEVERAL_TIMES, CAPPED),
    Case("same_number_by_priority", lambda: s.SameNumber(how="priority", slots=4, tpot=0.008), SEVERAL_TIMES, CAPPED),
    Case(
        "same_number_joined",
        lambda: s.Joined(slots=4, tpot=0.008),
        Expected((YES, NO), (), words=("2 times as many",), not_words=(GUESS, "others used it too")),
        CAPPED,
    ),
    Case(
        "histograms_in_milliseconds",
        s.InMilliseconds,
        Expected(**MEETS, words=("another unit",), not_words=(r"decode \d+ s",)),
    ),
    Case(
        "others_use_it",
        lambda: s.Joined(others=True, slots=4, tpot=0.008),
        Expected((YES, NO, FAILED), (), words=("others use",), not_words=("one number",)),
        CAPPED,
    ),
    Case("one_number", lambda: s.SameNumber(how="one", slots=4, tpot=0.008), OWN, CAPPED),
    Case("prefix_with_underscore", lambda: s.SameNumber(how="one", prefix="sglang_", slots=4, tpot=0.008), OWN, CAPPED),
    Case("ranks_add_up", lambda: s.Ranks(slots=4, tpot=0.008), OWN, CAPPED),
    Case(
        "two_processes",
        s.TwoProcesses,
        Expected(**EXCLUDED, words=("metrics: none",)),
    ),
    Case("two_processes_unread", s.TwoProcesses, Expected(**MEETS, true=("p50_tpot",)), {"metrics": "none"}),
    Case(
        "slow_scrape",
        s.SlowScrape,
        Expected(**MEETS, words=("stand still while the server's metrics are read", "metrics: none")),
        {"concurrency": "[3]", "requests": "90", "max_time": "16s"},
    ),
    Case(
        "slow_scrape_off",
        s.SlowScrape,
        Expected(**MEETS, true=("p50_tpot",), not_words=("stand still", "metrics do not tell", "metrics of every")),
        {"concurrency": "[3]", "metrics": "none"},
        check=lambda seen: [f"{seen.server.scrapes} scrapes"] if seen.server.scrapes else [],
    ),
    Case("quick_scrape", Situation, Expected(**MEETS, not_words=("stand still",)), {"concurrency": "[3]"}),
)

# ---- names

SWEEP_AND_VERIFY = (("sweep", "{config}", "-o", "{run}"), ("verify", "{run}"))
SWEEP_AND_HOLD = (("sweep", "{config}", "-o", "{run}"), ("verify", "{run}", "--for", "60s"))
ONE_SERVER = Expected(**MEETS, no_flags=("server_changed",), true=("p50_tpot",))
CHANGED = Expected((YES,), ("meets",), then=((FAILED,),), words=("tiny",), not_words=("keeps the SLA",))


NAMES = (
    *(
        Case(
            f"two_names_{how}",
            lambda how=how: s.TwoNames(how=how, dialect="openai", chat_only=True),  # type: ignore[misc]
            ONE_SERVER,
            NATURAL,
            gate=how == "chunk",
        )
        for how in ("chunk", "last")
    ),
    Case(
        "two_names_by_answers",
        lambda: s.TwoNames(how="answer", dialect="openai", chat_only=True),
        Expected((FAILED,), ("invalid",), flags=("server_changed",), words=("endpoint:", "model:")),
        NATURAL,
    ),
    Case("constant_alias", s.Alias, ONE_SERVER, NATURAL),
    Case(
        "fingerprints",
        lambda: s.Alias(fingerprints=True),
        Expected(**MEETS, flags=("fingerprint_changed",), no_flags=("server_changed",)),
        NATURAL,
    ),
    Case("fallback_in_verify", lambda: s.Fallback(after=1), CHANGED, commands=SWEEP_AND_VERIFY),
    Case("fallback_while_held", lambda: s.Fallback(after=1), CHANGED, commands=SWEEP_AND_HOLD),
    Case(
        "fallback_for_a_while",
        lambda: s.Fallback(after=1, between=(20.0, 40.0)),
        Expected((YES,), ("meets",), then=((FAILED, NO),), words=("tiny",), not_words=("keeps the SLA",)),
        commands=SWEEP_AND_HOLD,
    ),
    Case(
        "fallback_in_one_setting",
        lambda: s.Fallback(fallen_in=(1,)),
        Expected((YES, UNPROVEN, FAILED), (), words=("excluded: the server changed", "tiny")),
        {"concurrency": "[2, 3, 4]"},
    ),
)

# ---- secrets

KEY = "Nq7/planted-Key+5f1e0c77"


def _no_leak(seen: Seen) -> list[str]:
    texts = [seen.words, *(text.read_text(errors="replace") for text in files(seen.run))]
    found = {part for text in texts for line in text.splitlines() if (part := leaked(line, KEY))}
    authorised = any(KEY in header for header in seen.server.authorised)
    return [f"leaked: {part}" for part in found] + ([] if authorised else ["the key was never sent"])


def files(run: Path) -> Iterable[Path]:
    """The files of a run that are text."""
    return (file for file in run.rglob("*") if file.is_file() and file.suffix not in (".png", ".npz"))


SECRETS = (
    *(
        Case(
            f"echoes_the_key_{len(user)}",
            lambda user=user: s.Echo(user=user, dialect="openai", chat_only=True),  # type: ignore[misc]
            Expected((FAILED,), (), words=(r"\*\*\*",)),
            NATURAL | {"api_key_env": f"KEY1  # {KEY}"},
            environ={"KEY1": KEY},
            check=_no_leak,
            gate=user == "us",
        )
        for user in ("u", "us", "use")
    ),
    Case(
        "echoes_the_key_in_a_trial",
        lambda: s.Echo(every=8, dialect="openai", chat_only=True),
        Expected((FAILED,), ()),
        NATURAL | {"api_key_env": f"KEY1  # {KEY}", "max_time": "4s"},
        environ={"KEY1": KEY},
        check=_no_leak,
    ),
    Case(
        "key_in_the_body",
        Situation,
        Expected((2,), (), words=(r"sweep.yaml:\d+", "extra_body")),
        {"api_key_env": "KEY1", "extra_body": f"{{user: '{KEY}'}}"},
        environ={"KEY1": KEY},
        check=lambda seen: [f"leaked: {part}"] if (part := leaked(seen.words, KEY)) else [],
    ),
)

FAILING = (*FAILURES, *DEPLOYMENTS, *BLOCKED)
LISTED = (*HELD, *CHUNKS, *COUNTS, *ODD_COUNTS, *SERIES, *NAMES, *CHANGES, *SECRETS, *FAILING, *WORKLOADS)
CASES = {case.name: case for case in LISTED}
