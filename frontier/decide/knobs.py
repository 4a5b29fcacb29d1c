"""Knobs: where the proven concurrency is set, what each engine and gateway does over it, and the lines to set it.

`EMITTED` are the targets of `frontier users --emit`: the flag of an engine, the limit of a gateway, the target of an
autoscaler, an alert. Each is one template, filled in with the numbers of an answer.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from frontier.errors import UsageError
from frontier.metrics import Unit
from frontier.model import Limit
from frontier.units import format_number, trimmed


@dataclass(frozen=True, slots=True)
class Knob:
    """The setting that limits the requests in flight of an engine, `{c}` of them, and what happens over it."""

    engine: str
    setting: str
    over: str


_WAIT = "requests over it wait in the engine's queue, which has no limit"
KNOBS: Mapping[str, Knob] = {
    "vllm": Knob("vLLM", "--max-num-seqs {c}", _WAIT),
    "sglang": Knob("SGLang", "--max-running-requests {c}", _WAIT),
    "trtllm": Knob("TensorRT-LLM", "max_batch_size {c}", "requests over it wait in the engine's queue"),
    "tgi": Knob("TGI", "--max-concurrent-requests {c}", "requests over it are refused (429): let a gateway queue them"),
    "llamacpp": Knob("llama.cpp", "--parallel {c}", "requests over it are deferred by the server"),
    "ollama": Knob(
        "Ollama",
        "OLLAMA_NUM_PARALLEL={c}",
        "requests over it wait, OLLAMA_MAX_QUEUE at most; then 503",
    ),
}
"""By the name of the engine's dialect. Versions read: vLLM 0.32.0, SGLang 0.5.23; the others by their documentation."""


def engine_of(identities: Iterable[str | None]) -> str | None:
    """The engine behind what servers said of themselves ('vllm 0.32.0 (uvicorn)'); None where it has no known knob."""
    names = {(text or "").partition(" ")[0].rstrip(",") for text in identities}
    return names.pop() if len(names) == 1 and names <= KNOBS.keys() else None


def knob_sentence(engine: str | None, concurrency: int) -> str:
    """'set vLLM --max-num-seqs 48; requests over it wait in the engine's queue, which has no limit'."""
    knob = KNOBS.get(engine or "")
    if knob is None:
        return f"set vLLM --max-num-seqs {concurrency}, or your gateway's limit"
    return f"set {knob.engine} {knob.setting.format(c=concurrency)}; {knob.over}"


# --- the lines to set it


@dataclass(frozen=True, slots=True)
class Emitted:
    """What the lines are filled in with. `in_flight` is the mean in flight on a replica that serves its people; None
    where no think time was given, and then no line may need it.
    """

    concurrency: int
    replicas: int
    model: str
    engine: str | None
    limits: tuple[Limit, ...]
    in_flight: float | None = None


def _vllm(e: Emitted) -> str:
    return f"""\
# vLLM: at most {e.concurrency} requests run at once, on each data-parallel rank.
# Further requests wait in the engine's queue, which has no limit.
--max-num-seqs {e.concurrency}
"""


def _sglang(e: Emitted) -> str:
    return f"""\
# SGLang: at most {e.concurrency} requests run at once.
# Further requests wait in the engine's queue, which has no limit (--max-queued-requests sets one; then 503).
--max-running-requests {e.concurrency}
"""


def _litellm(e: Emitted) -> str:
    entries = "".join(
        f"""\
  - model_name: "{e.model}"
    litellm_params:
      model: "hosted_vllm/{e.model}"
      api_base: http://replica-{i}:8000/v1
      max_parallel_requests: {e.concurrency}
"""
        for i in range(1, e.replicas + 1)
    )
    return f"""\
# LiteLLM: at most {e.concurrency} requests in flight on each replica, counted by each proxy process for itself.
# Further requests wait in the proxy. least-busy sends each to the replica with the fewest.
model_list:
{entries}router_settings:
  routing_strategy: least-busy
"""


def _envoy(e: Emitted) -> str:
    hosts = "".join(
        f"""\
              - endpoint:
                  address: {{socket_address: {{address: replica-{i}, port_value: 8000}}}}
"""
        for i in range(1, e.replicas + 1)
    )
    most = e.concurrency * e.replicas
    return f"""\
# Envoy: at most {most} requests in flight, {e.concurrency} for each of {e.replicas} replicas; each Envoy counts for itself.
# With HTTP/1.1 to the replicas, up to 1,024 more wait; further ones get 503 (flag UO).
static_resources:
  clusters:
    - name: llm
      type: STRICT_DNS
      connect_timeout: 5s
      lb_policy: LEAST_REQUEST
      circuit_breakers:
        thresholds:
          - max_connections: {most}
            max_requests: {most}
            max_pending_requests: 1024
      load_assignment:
        cluster_name: llm
        endpoints:
          - lb_endpoints:
{hosts}"""


_METRICS = {
    "vllm": ("vllm:num_requests_running", "vllm:num_requests_waiting"),
    "sglang": ("sglang:num_running_reqs", "sglang:num_queue_reqs"),
}
"""The gauges of requests that run and that wait, by engine."""
_HISTOGRAMS = {"ttft": "time_to_first_token_seconds", "e2e": "e2e_request_latency_seconds"}
"""The latencies that both engines keep as histograms, under their own prefix."""


def _metrics(e: Emitted) -> tuple[str, str, str]:
    """The two gauges, and a comment that says whose they are."""
    if e.engine is not None and e.engine not in _METRICS:
        raise UsageError(
            f"no metric names are known for {KNOBS[e.engine].engine}",
            "--emit vllm shows the number to put into a rule",
        )
    running, waiting = _METRICS[e.engine or "vllm"]
    return running, waiting, "" if e.engine else "# Metric names are vLLM's: the engine of this run is not known.\n"


def _mean(e: Emitted) -> str:
    """The mean in flight of a replica that serves its people. UsageError where it is not known."""
    if e.in_flight is None:
        raise UsageError("this target is a mean number in flight, which depends on the people", "add  --think 45s")
    return trimmed(format_number(e.in_flight))


def _in_flight(over: str, time: str, *gauges: str) -> str:
    """The mean of the gauges' sum over a time; `over` all replicas."""
    return " + ".join(f"{over}(avg_over_time({gauge}[{time}]))" for gauge in gauges)


def _keda(e: Emitted) -> str:
    running, waiting, note = _metrics(e)
    mean = _mean(e)
    return f"""\
# KEDA: one replica for each {mean} requests in flight, which is what a replica has that serves its people.
# Set the engine's limit of {e.concurrency} too: waiting alone stays 0 until it is full, which is too late.
{note}apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: llm
spec:
  scaleTargetRef:
    name: llm
  minReplicaCount: {e.replicas}
  maxReplicaCount: {2 * e.replicas}
  pollingInterval: 15
  triggers:
    - type: prometheus
      metricType: AverageValue
      metadata:
        serverAddress: http://prometheus:9090
        query: "{_in_flight("sum", "2m", running, waiting)}"
        threshold: "{mean}"
"""


def _prometheus_rule(e: Emitted) -> str:
    running, waiting, note = _metrics(e)
    mean, prefix = _mean(e), running.partition(":")[0]
    load, queued = _in_flight("avg", "10m", running, waiting), _in_flight("avg", "10m", waiting)
    rules = [
        ("MorePeopleThanPlanned", f"{load} > {mean}", "more requests in flight than planned"),
        ("RequestsWaitForASlot", f"{queued} > 1", "requests wait for a slot all the time"),
    ]
    for limit in e.limits:
        if limit.of.p is not None and limit.of.unit is Unit.SECONDS and limit.of.quantity in _HISTOGRAMS:
            name = f"{prefix}:{_HISTOGRAMS[limit.of.quantity]}_bucket"
            value = f"histogram_quantile({limit.of.p:g}, sum by (le) (rate({name}[10m])))"
            rules.append((f"{limit.metric.replace('.', '_')}_over_limit", f"{value} > {limit.promise:g}", str(limit)))
    alerts = "".join(
        f"""\
      - alert: {name}
        expr: "{expression}"
        for: 5m
        labels:
          severity: warning
        annotations:
          summary: "{summary}"
"""
        for name, expression, summary in rules
    )
    return f"""\
# Prometheus: alerts when a replica has more than the {mean} requests in flight that its people make on average.
# A rule file as it is; for the operator put it below `spec:` of a PrometheusRule.
{note}groups:
  - name: llm-head-count
    rules:
{alerts}"""


EMITTED: Mapping[str, Callable[[Emitted], str]] = {
    "vllm": _vllm, "sglang": _sglang, "litellm": _litellm, "envoy": _envoy, "keda": _keda,
    "prometheus-rule": _prometheus_rule,
}  # fmt: skip
"""The targets of `frontier users --emit`."""
