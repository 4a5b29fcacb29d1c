"""Recorded arrivals and sessions in the plan of a sweep: what is known of them, and their speed of
replay.
"""

from typing import Any

from frontier.config import Config
from frontier.core.model.loads import Trace
from frontier.core.model.text import clean
from frontier.core.model.units import format_elapsed, format_number
from frontier.extras.workload.arrival_files import of_column, read_trace
from frontier.extras.workload.dispersion import WINDOWS, gap_cv, index_of_dispersion
from frontier.extras.workload.session_files import read_sessions
from frontier.extras.workload.trace_files import read_requests

__all__ = ["of_column", "read_requests", "read_sessions", "read_trace", "recorded_lines", "trace_facts"]


def recorded_lines(config: Config) -> list[str]:
    """The lines of a plan on a config's trace and its files of sessions; empty without them."""
    return [*_trace_lines(config), *_session_files(config)]


def trace_facts(trace: Trace) -> dict[str, Any]:
    """The facts of a trace's arrivals as they were recorded, for JSON."""
    index = {str(s): index_of_dispersion(trace.times, trace.seconds, s) for s in WINDOWS}
    facts = {"name": trace.name, "digest": trace.digest, "arrivals": trace.count, "seconds": trace.seconds}
    return facts | {"gap_cv": gap_cv(trace.times), "index_of_dispersion": index, "placed_within": trace.grid}


def _trace_lines(config: Config) -> list[str]:
    """'Arrivals of azure.csv: 19,366 in 58 min, 5.53/s; gap CV 1.09; ...', and the speed of replay;
    empty without a trace.
    """
    trace = config.trace
    if trace is None:
        return []
    facts = trace_facts(trace)
    known = {f"{s} s": value for s, value in facts["index_of_dispersion"].items() if value is not None}
    index = ", ".join(f"{format_number(value)} in {window}" for window, value in known.items()) or "not known"
    times = f"{trace.count:,} in {format_elapsed(trace.seconds)}, {format_number(trace.rate)}/s"
    spread = f"gap CV {facts['gap_cv']:.3g}; index of dispersion of counts {index} (Poisson: 1)"
    lines = [f"Arrivals of {trace.name}: {times}; {spread}."]
    if trace.grid is not None:
        lines.append(f"Its stamps lie on a grid of {trace.grid:g} s: each arrival is placed at random within its step.")
    if config.rate:
        ends = [load / 1000 for load in (config.loads[0], config.loads[-1])]
        at = " to ".join(dict.fromkeys(f"{rate:g}" for rate in ends))
        factor = " to ".join(dict.fromkeys(f"{rate / trace.rate:.3g}" for rate in ends))
        pace = "as fast as it was recorded" if factor == "1" else f"{factor} times as fast"
        least = f"a window of a proof has at least {trace.long_enough:,} arrivals"
        lines.append(f"At {at} req/s it is played {pace}; {least}, so that its parts are alike.")
    return lines


def _session_files(config: Config) -> list[str]:
    """'agent: 120 sessions with 960 requests of agent.jsonl (Bailian); 4 begin anew as their
    history was cut.'
    """
    lines = []
    for shape in config.given_shapes:
        if shape.session is None or (file := shape.session.file) is None:
            continue
        first, added, osl = (f"{side.mean:,.0f}" for side in (shape.session.first, shape.session.added, shape.osl))
        later = f"{added}/{osl} after {shape.session.think:.3g} s"
        odd = {
            "begin anew as their history was cut": file.cut,
            "begin with a history that is not in it": file.begun,
            "rows without tokens are left out": file.left_out,
        }
        notes = [f"{number:,} {what}" for what, number in odd.items() if number]
        lines.append(
            f"{shape.label}: {file.sessions:,} sessions with {file.requests:,} requests of {clean(file.path)} "
            f"({file.tool}); first prompts of {first} tokens, later turns {later}"
            f" on average{'; ' if notes else ''}{', '.join(notes)}."
        )
    return lines
