"""The cases: each a situation of a public report, and what the command may, must and must not
say of it."""

from tests.cases import situations as s
from tests.cases.comparer import FAILED, YES, Case, Expected
from tests.cases.situation import Situation

NATURAL = {"ignore_eos": "false"}
ANY = ("meets", "violates", "marginal", "unproven", "invalid", "infeasible")


HELD = (
    Case("honest", Situation, Expected(true=("p50_tpot", "p50_ttft")), gate=True),
    Case(
        "compiles",
        lambda: s.Compiles(tpot=0.006),
        Expected(not_words=(r"p50 TTFT [0-9.]+ s",)),
        {"concurrency": "[2, 4]"},
    ),
    Case("azure", lambda: s.Azure(tpot=0.008), Expected(true=("p50_tpot",)), NATURAL),
    Case("trailers", lambda: s.Trailers(tpot=0.008), Expected(true=("p50_tpot",)), gate=True),
    Case(
        "ollama_cuts",
        lambda: s.OllamaCuts(tpot=0.008),
        Expected((FAILED,), (), words=(r"cuts prompts to its context",)),
        {**NATURAL, "shapes": "[512/32]"},
    ),
    Case("router", s.Router, Expected((FAILED, 2), (), words=("m, big, small",))),
    Case("router_named", s.Router, Expected(true=("p50_tpot",)), {"model": "m"}),
    Case(
        "temperature_refused",
        s.OneTemperature,
        Expected((FAILED,), (), words=("only 1 is allowed",)),
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
        Expected((YES,), ("meets",), words=("Run at concurrency 4",)),
        {**NATURAL, "concurrency": "[4, 8]", "sla": "{p50_ttft: 200ms, p50_tpot: 30ms}"},
    ),
    Case(
        "reasoning_uncounted",
        lambda: s.Reasoning(think=4, counted="visible", dialect="openai", chat_only=True),
        Expected((FAILED,), (), flags=("token_mismatch",)),
        NATURAL,
    ),
)

CASES = {case.name: case for case in HELD}
