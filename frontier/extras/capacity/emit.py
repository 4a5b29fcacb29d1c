"""The lines that set a proven concurrency: an engine's flag, an autoscaler's target, an alert.

`emit` fills in one template. Each output is checked by its tool's own parser where that is
installed (tests/extras/capacity/test_emit.py).
"""

import jinja2

from frontier.client.engines import EMITTED, ENGINES
from frontier.core.model.decisions import Decision
from frontier.core.model.errors import UsageError
from frontier.core.model.units import format_number, trimmed
from frontier.extras.capacity.head_count import HeadCount

_ASSUMED = "vllm"
"""The engine whose metric names are taken where the engine of a run is not known."""
_ALERTED = ("ttft", "e2e")
"""The latencies whose histograms the alerts ask for."""
BY_PEOPLE = ("keda", "prometheus-rule")
"""Targets whose value is a mean number in flight, which depends on the people."""

_LIMIT = """\
{% if ranks == 1 or not per_rank %}
# {{ engine.title }}: at most {{ each }} requests run at once{{ ", on each data-parallel rank" if per_rank }}.
{% else %}
# {{ engine.title }}: at most {{ each }} requests run at once on each of {{ ranks }} data-parallel ranks.
# That is {{ each * ranks }} in all.
{% endif %}
# Further requests {{ engine.over }}{{ " (%s)" % engine.queue_limit if engine.queue_limit }}.
{{ engine.limit.format(c=each) }}
"""
TEMPLATES = {
    **dict.fromkeys(EMITTED, _LIMIT),
    "keda": """\
# KEDA: one replica for each {{ mean }} requests in flight, which is what a replica has that serves its people.
# Set the engine's limit of {{ c }} too: requests that wait are none until it is reached, which is too late.
{{ note }}apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: llm
spec:
  scaleTargetRef:
    name: llm
  minReplicaCount: {{ replicas }}
  maxReplicaCount: {{ 2 * replicas }}
  pollingInterval: 15
  triggers:
    - type: prometheus
      metricType: AverageValue
      metadata:
        serverAddress: http://prometheus:9090
        query: "sum(avg_over_time({{ running }}[2m])) + sum(avg_over_time({{ waiting }}[2m]))"
        threshold: "{{ mean }}"
""",
    "prometheus-rule": """\
# Prometheus: alerts when a replica has more than the {{ mean }} requests in flight that its people make on average.
# A rule file as it is; for the operator put it below `spec:` of a PrometheusRule.
{{ note }}groups:
  - name: llm-head-count
    rules:
      - alert: MorePeopleThanPlanned
        expr: "avg(avg_over_time({{ running }}[10m])) + avg(avg_over_time({{ waiting }}[10m])) > {{ mean }}"
        for: 5m
        annotations: {summary: "more requests in flight than planned"}
      - alert: RequestsWaitForASlot
        expr: "avg(avg_over_time({{ waiting }}[10m])) > 1"
        for: 5m
        annotations: {summary: "requests wait for a slot all the time"}
{% for limit, name in limits %}
      - alert: {{ limit.metric | replace(".", "_") }}_over_limit
        expr: "histogram_quantile({{ limit.of.p }}, sum by (le) (rate({{ name }}_bucket[10m]))) > {{ limit.promise }}"
        for: 5m
        annotations: {summary: "{{ limit }}"}
{% endfor %}
""",
}
"""The templates by the targets of `frontier users --emit`."""


def emit(target: str, decision: Decision, people: HeadCount | None) -> str:
    """The lines for one target. `people` is the number of people that the replicas serve; None
    without a think time.

    UsageError where the target needs the people, and where the names of an engine's metrics are not
    known.
    """
    engine = ENGINES[target if target in EMITTED else decision.engine or _ASSUMED]
    if engine.name not in EMITTED:
        what = f"no metric names are known for {engine.title}"
        raise UsageError(what, "frontier users --think TIME  gives the number to put into a rule of your own")
    if target in BY_PEOPLE and people is None:
        raise UsageError("this target is a mean number in flight, which depends on the people", "add  --think 45s")
    concurrency, ranks = decision.load or 0, decision.ranks
    if target in EMITTED and engine.limit_per_rank and concurrency < ranks:
        what = f"{ranks} data-parallel ranks admit {ranks} requests at least, which is over the limit"
        raise UsageError(what, f"limit your gateway to {concurrency} at a time")
    percentiles = [limit for limit in decision.limits if limit.of.p is not None and limit.of.quantity in _ALERTED]
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, autoescape=False)  # noqa: S701  # not HTML
    running, waiting = engine.gauges
    return environment.from_string(TEMPLATES[target]).render(
        c=concurrency,
        engine=engine,
        each=concurrency // ranks if engine.limit_per_rank else concurrency,
        per_rank=engine.limit_per_rank,
        ranks=ranks,
        replicas=people.replicas if people else 1,
        mean=trimmed(format_number(people.in_flight)) if people else "",
        running=running,
        waiting=waiting,
        limits=[
            (limit, name) for limit in percentiles for name in engine.histograms.get(limit.of.quantity or "", ())[:1]
        ],
        note="" if decision.engine else f"# Metric names are {engine.title}'s: the engine of this run is not known.\n",
    )
