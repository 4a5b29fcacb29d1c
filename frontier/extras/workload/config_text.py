"""Config text: a workload as a config that `frontier sweep` runs, with its reasons in comments."""

import json
import textwrap
from collections.abc import Callable, Iterator

from frontier.core.loads import doublings
from frontier.core.text import clean
from frontier.core.units import format_elapsed, format_number, format_seconds, format_share
from frontier.extras.workload.observed import ArrivalFacts, Figure, Workload

_LINE = 96
"""Characters of a line of pairs, so that a config reads without wrapping."""
_LEAST_CACHED = 0.005
"""A cached share below this is none: blocks that happened to be alike."""
_MOST_CACHED = 0.95
"""The largest share of a prompt that a config asks to be common: the rest is its own."""


def config_text(workload: Workload) -> str:
    """YAML that `frontier sweep` runs, each part with what it is made of."""
    return "\n".join(_lines(workload)) + "\n"


def _lines(w: Workload) -> Iterator[str]:
    yield "# How much of this traffic does a server take, and at which latency?"
    span = f" in {format_elapsed(w.seconds)}" if w.seconds else ""
    yield f"# Made by  frontier workload  of {clean(w.source)}: {w.requests:,} requests{span}."
    yield from (f"# {clean(note, 400)}" for note in w.notes)
    yield from _today(w)
    yield ""
    if w.endpoint is None:
        yield "# Write the address of a replica that serves no users."
        yield "endpoint: http://localhost:8000/v1"
    else:
        yield "# The server that was read. A sweep loads it fully: let a replica without users stand here."
        yield f"endpoint: {json.dumps(w.endpoint)}"
    if w.model is not None:
        yield f"model: {json.dumps(clean(w.model, 200), ensure_ascii=False)}"
    yield ""
    yield from _shape_lines(w)
    yield ""
    yield from _load_lines(w)
    yield ""
    yield "# Limits are yours to promise; what production keeps today is above, where it is known."
    # What holds today: the upper end of what is known.
    figures = ((name, w.figures.get(name)) for name in ("p99_ttft", "p99_tpot"))
    today = [f"{name}: {max(1.0, 1000 * each.high):.3g}ms" for name, each in figures if each and each.high is not None]
    yield f"# sla: {{{', '.join(today) or 'p99_ttft: 500ms, p99_tpot: 30ms'}}}"


def _today(w: Workload) -> Iterator[str]:
    """What production runs at, as comments."""
    if w.running is None and not w.figures:
        return
    yield "# Production today, with the interval that each figure lies in:"
    if w.running is not None:
        over = f" over {w.servers} engines" if w.servers > 1 else ""
        yield f"#   in flight {between(w.running, lambda value: f'{value:.3g}')}{over}"
    for name, figure in w.figures.items():
        percentile, _, what = name.partition("_")
        yield f"#   {percentile} {what.upper()} {between(figure, format_seconds)}, n = {figure.n:,}"


def between(figure: Figure, written: Callable[[float], str]) -> str:
    """'120 ms, between 100 ms and 250 ms'; where a side is not known, 'at least' or 'at most'."""
    low, high = (None if side is None else written(side) for side in (figure.low, figure.high))
    if low is None or high is None:
        bound = f"at most {high}" if low is None else f"at least {low}"
        return f"{written(figure.value)}, {bound}" if low or high else written(figure.value)
    return f"{written(figure.value)}, between {low} and {high}"


def _shape_lines(w: Workload) -> Iterator[str]:
    for file, kind, what in ((w.replayed, "trace", "recorded"), (w.sessions, "sessions", "sessions")):
        if file is not None:
            text = {"trace": "Each request with its arrival, its lengths and its shared blocks, as it was recorded"}
            yield f"# {text.get(kind, 'Sessions as they were recorded, with the time between their turns')}."
            yield f"shapes: [{{name: {what}, {kind}: {json.dumps(file, ensure_ascii=False)}}}]"
            return
    if w.joint:
        yield "# Both lengths of a request were seen together, and are drawn together."
    else:
        yield "# Counters do not say which answer goes with which prompt: the lengths are drawn independently."
    cached = w.cached if w.cached is not None and w.cached >= _LEAST_CACHED else None
    if cached is not None and len(w.classes[0].pairs[0]) > 2:
        yield f"# {format_share(cached)} of prompt tokens came from the cache: as many of each prompt as stand third."
        cached = None
    elif cached is not None:
        yield f"# {format_share(cached)} of prompt tokens came from the prefix cache: so much of each prompt is common."
    elif w.cached is None:
        yield "# Nothing tells of a prefix cache: no prompt has anything in common with another."
    yield f"# On average {w.mean(0):,.0f} tokens in and {w.mean(1):,.0f} out."
    yield "shapes:"
    for each in w.classes:
        yield f"  - name: {each.name}"
        if cached is not None:
            yield f"    prefix: {min(cached, _MOST_CACHED) * 100:.3g}%"
        yield "    pairs: >"
        words = " ".join("/".join(map(str, pair)) for pair in each.pairs)
        yield from (f"      {line}" for line in textwrap.wrap(words, _LINE))
    if len(w.classes) > 1:
        *most, last = w.classes
        shares = [f"{each.name}: {{share: {each.share * 100:.4g}%}}" for each in most]
        yield f"traffic: {{{', '.join([*shares, f'{last.name}: {{}}'])}}}"


def _load_lines(w: Workload) -> Iterator[str]:
    each = "" if w.servers == 1 else f" on each of {w.servers} engines"
    rate = w.arrivals.busiest / w.servers if w.arrivals is not None else None
    if w.arrivals is not None and rate is not None:
        yield f"# {format_number(rate)} requests/s arrive{each}{_busiest(w.arrivals)}{_bursts(w.arrivals)}."
    if w.replayed is not None and w.arrivals is not None:
        yield "# A higher rate plays the same requests faster."
        yield f"rate: {w.arrivals.rate:.4g}"
        yield f"arrivals: {{trace: {json.dumps(w.replayed, ensure_ascii=False)}}}"
        return
    running = 0.0 if w.running is None else w.running.value / w.servers
    yield "# Requests in flight: from one to well beyond what production has."
    yield f"concurrency: {list(doublings(1, max(64, 2 ** int(4 * running).bit_length())))}"
    if rate is not None and len(w.classes) == 1 and w.sessions is None:
        cv = (w.arrivals and w.arrivals.cv) or 1.0
        cv = (1 + (cv**2 - 1) / w.servers) ** 0.5  # a share of the requests comes less in bursts
        yield "# In place of concurrency, as the requests of production arrive:"
        yield f"# rate: [{', '.join(f'{factor * rate:.3g}' for factor in (0.5, 1, 1.5, 2))}]"
        yield "# arrivals: poisson" if abs(cv - 1) < 0.1 else f"# arrivals: {{gamma: {{cv: {cv:.2g}}}}}"


def _busiest(arrivals: ArrivalFacts) -> str:
    mean = "" if arrivals.busiest < 1.05 * arrivals.rate else f", {arrivals.busiest / arrivals.rate:.3g} times the mean"
    return f" ({arrivals.when}{mean})"


def _bursts(arrivals: ArrivalFacts) -> str:
    if not arrivals.dispersion:
        return ""
    known = ", ".join(f"{value:.3g} in {window} s" for window, value in arrivals.dispersion.items())
    return f"; index of dispersion of counts {known} (Poisson: 1)"
