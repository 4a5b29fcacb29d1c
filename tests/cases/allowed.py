"""What is allowed in many cases, and lines of their configs."""

from tests.cases.comparer import FAILED, NO, UNPROVEN, YES

NATURAL = {"ignore_eos": "false"}
MEETS = {"codes": (YES, UNPROVEN), "verdicts": ("meets", "unproven", "marginal")}
NEVER_MEETS = {"codes": (NO, UNPROVEN), "verdicts": ("violates", "infeasible", "unproven", "marginal")}
EXCLUDED = {"codes": (FAILED,), "verdicts": ("invalid",)}


def limits(**of: str) -> dict[str, str]:
    """The SLA as a line of a config."""
    return {"sla": "{" + ", ".join(f"p50_{name}: {value}" for name, value in of.items()) + "}"}


def tpot(value: str, **more: str) -> dict[str, str]:
    """A limit on TPOT, wide ones on TTFT, and answers of natural length."""
    return NATURAL | limits(ttft="3s", tpot=value) | more
