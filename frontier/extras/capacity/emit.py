"""The lines that set a proven concurrency: an engine's flag, an autoscaler's target, an alert.

`emit` fills in one template. Each output is checked by its tool's own parser where that is
installed (tests/report/test_emit.py).
"""

import jinja2

from frontier.client.engines import ENGINES
from frontier.core.model.decisions import Decision
from frontier.core.model.errors import UsageError
from frontier.core.model.units import format_number, trimmed
from frontier.extras.capacity.head_count import HeadCount

GAUGES = {
    "vllm": ("vllm:num_requests_running", "vllm:num_requests_waiting"),
    "sglang": ("sglang:num_running_reqs", "sglang:num_queue_reqs"),
}
"""The gauges of running and of waiting requests, by engine."""
HISTOGRAMS = {"ttft": "time_to_first_token_seconds", "e2e": "e2e_request_latency_seconds"}
"""The latencies that both engines keep as histograms, each under its own prefix."""
BY_PEOPLE = ("keda", "prometheus-rule")
"""Targets whose value is a mean number in flight, which depends on the people."""

TEMPLATES = {
    "vllm": """\
{% if ranks == 1 %}
# vLLM: at most {{ c }} requests run at once, on each data-parallel rank.
{% else %}
# vLLM: at most {{ c // ranks }} requests run at once on each of {{ ranks }} data-parallel ranks.
# That is {{ c // ranks * ranks }} in all.
{% endif %}
# Further requests wait in the engine's queue, which has no limit.
--max-num-seqs {{ c // ranks }}
""",
    "sglang": """\
# SGLang: at most {{ c }} requests run at once.
# Further requests wait in the engine's queue, which has no limit (--max-queued-requests sets one; then 503).
--max-running-requests {{ c }}
""",
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
    engine = decision.engine or "vllm"
    if target in BY_PEOPLE and engine not in GAUGES:
        what = f"no metric names are known for {ENGINES[engine].title}"
        raise UsageError(what, "frontier users --think TIME  gives the number to put into a rule of your own")
    if target in BY_PEOPLE and people is None:
        raise UsageError("this target is a mean number in flight, which depends on the people", "add  --think 45s")
    if target == "vllm" and (decision.concurrency or 0) < decision.ranks:
        what = f"{decision.ranks} data-parallel ranks admit {decision.ranks} requests at least, which is over the limit"
        raise UsageError(what, f"limit your gateway to {decision.concurrency} at a time")
    running, waiting = GAUGES.get(engine, ("", ""))
    percentiles = [limit for limit in decision.limits if limit.of.p is not None and limit.of.quantity in HISTOGRAMS]
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, autoescape=False)  # noqa: S701  # not HTML
    return environment.from_string(TEMPLATES[target]).render(
        c=decision.concurrency,
        ranks=decision.ranks,
        replicas=people.replicas if people else 1,
        mean=trimmed(format_number(people.in_flight)) if people else "",
        running=running,
        waiting=waiting,
        limits=[(limit, f"{engine}:{HISTOGRAMS[limit.of.quantity or '']}") for limit in percentiles],
        note="" if decision.engine else "# Metric names are vLLM's: the engine of this run is not known.\n",
    )
