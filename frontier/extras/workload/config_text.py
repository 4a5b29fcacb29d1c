"""Config text: a workload as a config that `frontier sweep` runs, with its sources in comments."""

import json
import textwrap
from collections.abc import Callable, Sequence

import jinja2

from frontier.core.model.loads import doublings
from frontier.core.model.text import clean
from frontier.core.model.units import format_elapsed, format_number, format_seconds, format_share
from frontier.extras.workload.observed import Pair, ProductionFigure, Workload

_LINE = 96
"""Characters of a line of pairs, so that a config reads without wrapping."""
_LEAST_CACHED = 0.005
"""The cached share below which nothing counts as cached: some blocks just happened to be alike."""
_MOST_CACHED = 0.95
"""The largest share of a prompt that a config makes common; the rest is the prompt's own."""

_TEMPLATE = """\
# How much of this traffic does a server take, and at which latency?
# Made by  frontier workload  of {{ w.source | clean }}: {{ at_least }}{{ "{:,}".format(w.requests) }} requests
{%- if w.seconds %} in {{ w.seconds | elapsed }}{% endif %}.
{% for note in w.notes %}
# {{ note | clean(500) }}
{% endfor %}
{% if w.running or w.figures %}
# Production today, with the interval that each figure lies in:
{% endif %}
{% if w.running %}
#   in flight {{ w.running | between("{:.3g}".format) }}
{{- " over %d engines" % w.servers if w.servers > 1 }}
{% endif %}
{% for name, figure in w.figures.items() %}
#   {{ name.partition("_")[0] }} {{ name.partition("_")[2] | upper }} {{ figure | between(seconds) -}}
, n = {{ "{:,}".format(figure.n) }}
{% endfor %}

{% if w.endpoint is none %}
# Write the address of a replica that serves no users.
endpoint: http://localhost:8000/v1
{% else %}
# The server that was read. A sweep loads it fully: let a replica without users stand here.
endpoint: {{ w.endpoint | json }}
{% endif %}
{% if w.model is not none %}
model: {{ w.model | clean(200) | json }}
{% endif %}

{% if w.replayed is not none %}
# Each request with its arrival, its lengths and its shared blocks, as it was recorded.
shapes: [{name: recorded, trace: {{ w.replayed | json }}}]
{% elif w.sessions is not none %}
# Sessions as they were recorded, with the time between their turns.
shapes: [{name: sessions, sessions: {{ w.sessions | json }}}]
{% else %}
{% if w.joint %}
# Both lengths of a request were seen together, and are drawn together.
{% else %}
# Counters do not say which answer goes with which prompt: the lengths are drawn independently.
{% endif %}
{% if w.cached is none %}
# Nothing tells of a prefix cache: no prompt has anything in common with another.
{% elif prefix %}
# {{ w.cached | share }} of prompt tokens came from the prefix cache: so much of each prompt is common.
{% elif cached %}
# {{ w.cached | share }} of prompt tokens came from the cache: as many of each prompt as stand third.
{% endif %}
# On average {{ "{:,.0f}".format(w.mean(0)) }} tokens in and {{ "{:,.0f}".format(w.mean(1)) }} out.
shapes:
{% for each in w.classes %}
  - name: {{ each.name }}
{% if prefix %}
    prefix: {{ prefix }}
{% endif %}
    pairs: >
{% for line in each.pairs | lines %}
      {{ line }}
{% endfor %}
{% endfor %}
{% if w.classes[1:] %}
traffic: { {%- for each in w.classes[:-1] -%}
{{ each.name }}: {share: {{ "{:.4g}".format(each.share * 100) }}%}, {% endfor %}{{ w.classes[-1].name }}: {}}
{% endif %}
{% endif %}

{% if w.arrivals %}
# {{ at_least }}{{ rate | number }} requests/s arrive{{ " on each of %d engines" % w.servers if w.servers > 1 }}
{{- " (" }}{{ w.arrivals.when }}
{%- if w.arrivals.busiest >= 1.05 * w.arrivals.rate -%}
, {{ "{:.3g}".format(w.arrivals.busiest / w.arrivals.rate) }} times the mean{% endif %})
{%- for window, value in w.arrivals.dispersion.items() -%}
{{ ", " if not loop.first else "; index of dispersion of counts within 5 min " -}}
{{ "{:.3g} in {} s".format(value, window) }}
{{- " (Poisson: 1)" if loop.last }}{% endfor %}.
{% endif %}
{% if w.replayed is not none and w.arrivals %}
# A higher rate plays the same requests faster.
rate: {{ "{:.4g}".format(w.arrivals.rate) }}
arrivals: {trace: {{ w.replayed | json }}}
{% else %}
# Requests in flight: from one to well beyond what production has.
concurrency: {{ concurrency }}
{% if w.arrivals and not w.classes[1:] and w.sessions is none %}
# In place of concurrency, as the requests of production arrive:
# rate: [{{ rates | join(", ") }}]
# arrivals: {{ "poisson" if (cv - 1) | abs < 0.1 else "{gamma: {cv: %s}}" % "{:.2g}".format(cv) }}
{% endif %}
{% endif %}

# Limits are yours to promise; what production keeps today is above, where it is known.
# sla: { {{- today }}}
"""


def today(w: Workload) -> dict[str, float]:
    """Limits that hold today, in seconds: the upper ends of the known latencies, or defaults where
    none is known.
    """
    figures = ((name, w.figures.get(name)) for name in ("p99_ttft", "p99_tpot"))
    known = {name: max(1e-3, each.high) for name, each in figures if each is not None and each.high is not None}
    return known or {"p99_ttft": 0.5, "p99_tpot": 0.03}


def config_text(w: Workload) -> str:
    """YAML that `frontier sweep` runs, each part with its source."""
    cached = w.cached is not None and w.cached >= _LEAST_CACHED
    by_request = len(w.classes[0].pairs[0]) > 2
    running = 0.0 if w.running is None else w.running.value / w.servers
    rate = 0.0 if w.arrivals is None else w.arrivals.busiest / w.servers
    cv = (w.arrivals and w.arrivals.cv) or 1.0
    environment = jinja2.Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701  # not HTML
    )
    environment.filters |= {
        "clean": clean,
        "elapsed": format_elapsed,
        "share": format_share,
        "number": format_number,
        "between": between,
        "json": lambda text: json.dumps(text, ensure_ascii=False),
        "lines": _pair_lines,
    }
    return environment.from_string(_TEMPLATE).render(
        w=w,
        at_least="at least " if w.lower_bound else "",
        seconds=format_seconds,
        cached=cached,
        prefix=f"{min(w.cached or 0.0, _MOST_CACHED) * 100:.3g}%" if cached and not by_request else "",
        rate=rate,
        rates=[f"{factor * rate:.3g}" for factor in (0.5, 1, 1.5, 2)],
        concurrency=list(doublings(1, max(64, 2 ** int(4 * running).bit_length()))),
        cv=(1 + (cv**2 - 1) / w.servers) ** 0.5,  # a share of the requests comes less in bursts
        today=", ".join(f"{name}: {1000 * limit:.3g}ms" for name, limit in today(w).items()),
    )


def _pair_lines(pairs: Sequence[Pair]) -> list[str]:
    return textwrap.wrap(" ".join("/".join(map(str, pair)) for pair in pairs), _LINE)


def between(figure: ProductionFigure, written: Callable[[float], str]) -> str:
    """'120 ms, between 100 ms and 250 ms'; 'at least' or 'at most' where one side is not known."""
    low, high = (None if side is None else written(side) for side in (figure.low, figure.high))
    if low is None or high is None:
        bound = f"at most {high}" if low is None else f"at least {low}"
        return f"{written(figure.value)}, {bound}" if low or high else written(figure.value)
    return f"{written(figure.value)}, between {low} and {high}"
