"""The most background in a sentence."""

from frontier.core.model.decisions import Decision, Verdict
from frontier.core.model.series import unnamed
from frontier.core.model.text import clean_name
from frontier.planning.most_background import RATE, MostBackground, is_open
from frontier.show.view.wording import ci_text, evidence_text, value_text


def background_note(of: MostBackground) -> str:
    """The answer: 'Most background beside c=32: 16 of 8192/512, 3,400 tok/s (95% CI 3,300 to
    3,500); p99 TTFT 396 ms, at most 410 ms. 32 is not proven: it violates p99 TTFT ≤ 500 ms.'
    """
    chosen, where = of.chosen, "" if unnamed(of.deployment) else f" on {clean_name(of.deployment, 40)}"
    shape = clean_name(of.shape.label, 40)
    if of.most is None:
        return f"No background of {shape}{where} is proven: beside {of.streams[0]} {_why(of.decisions[0])}."
    rate = chosen.metrics.get(RATE)
    served = "" if rate is None or not of.most else f", {value_text(RATE, rate.value)} ({ci_text(RATE, rate)})"
    text = f"Most background{where} beside c={chosen.load}: {of.most} of {shape}{served}; {_limiting(chosen)}."
    if of.missing is not None and of.ends is None:
        return f"{text} Beside {of.missing} nothing was measured."
    if of.ends is None:
        return f"{text} It is the most of the config: more may keep the SLA too."
    return f"{text} Beside {of.ends[0]} {_why(of.ends[1])}."


def _limiting(decision: Decision) -> str:
    """'p99 TTFT 396 ms, at most 410 ms (95%), limit 500 ms'."""
    limit = next((each for each in decision.limits if each.metric == decision.binding), None)
    return "its limits have no value" if limit is None else evidence_text(decision.metrics.get(limit.metric), limit)


def _why(decision: Decision) -> str:
    """'the SLA is broken: p99 TTFT 620 ms, ...'."""
    if decision.verdict is Verdict.INVALID:
        return "nothing valid was measured"
    return f"the SLA is {'not proven' if is_open(decision) else 'broken'}: {_limiting(decision)}"
