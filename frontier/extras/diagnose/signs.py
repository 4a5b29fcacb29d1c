"""Signs of a setting: the evidence of the client's stamps and the server's own metrics, for a
diagnosis.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from frontier.client.ask.facts import RANKS
from frontier.client.ask.metrics_notes import contradiction
from frontier.core.model.loads import Load
from frontier.core.model.points import Point
from frontier.core.window.window import Floats, WindowData
from frontier.extras.diagnose.server_settings import ServerSettings


@dataclass(frozen=True, slots=True)
class Signs:
    """The evidence of client and server at one setting. Seconds are means over requests, gauges are
    means over the windows; None: not known.

    - `parts`: the time breakdown, completed from the gauges by Little's law.
    - `step`: the mean time of an engine's step in seconds.
    - `chunks`: the steps in which the engine reads a prompt that is alone; all but the last yield
      no token.
    - `clock`: the mean SM clock of the slowest GPU in Hz; `held`: the share of time in which the
      driver held it down.
    - `memory`: the share of the memory's bandwidth at which decoding reads, by the roofline.
    - `settings`: the server's settings.
    - `ranks`: how many data-parallel ranks it has, each with the cap of its settings.
    """

    load: Load
    rate: float
    prompt: float
    answer: float
    ttft: float
    e2e: float
    in_flight: float
    parts: Mapping[str, float] = field(default_factory=dict)
    running: float | None = None
    running_max: float | None = None
    waiting: float | None = None
    kv: float | None = None
    kv_max: float | None = None
    preempted: float | None = None
    step: float | None = None
    chunks: float | None = None
    clock: float | None = None
    held: float | None = None
    memory: float | None = None
    limited: float = 0.0
    failed: float = 0.0
    outcomes: Mapping[str, int] = field(default_factory=dict)
    client: str = ""
    refused: str = ""
    settings: ServerSettings = field(default_factory=ServerSettings)
    ranks: int = 1

    @property
    def tpot(self) -> float:
        """Mean seconds per token after the first."""
        return (self.e2e - self.ttft) / max(1.0, self.answer - 1)

    @property
    def present(self) -> float:
        """Requests in flight: the concurrency, or the measured mean where the load is a rate."""
        return self.in_flight if self.load.is_open else self.load

    @property
    def ended(self) -> float:
        """Requests that end in a step of the engine."""
        return self.rate * (self.step or self.tpot)

    @property
    def cap(self) -> int | None:
        """The most requests that run by the server's settings; None where more do run, as several
        replicas each have a cap.
        """
        cap = None if self.settings.cap is None else self.settings.cap * self.ranks
        return None if cap is None or (self.running_max or 0) > cap else cap

    @property
    def room(self) -> float | None:
        """The number of requests that the KV cache has room for, by the highest number that ran."""
        return self.running_max / self.kv_max if self.running_max and self.kv_max else None

    @property
    def complete(self) -> bool:
        """Whether the server reported everything that the rules need."""
        known = (self.waiting, self.kv_max, self.running_max, self.step)
        return {"network", "front_end", "queue", "prefill", "decode"} <= self.parts.keys() and None not in known


def signs_of(point: Point, sample: WindowData, settings: ServerSettings | None = None) -> Signs:
    """The signs of one setting of a server with these settings. A server that counted drafts in the
    window speculates, whatever the settings say.
    """
    settings = settings or ServerSettings()
    if _sum(sample.server, "spec_decode_num_drafts_total"):
        settings = replace(settings, drafts=True)
    finite = np.isfinite(sample.ttft) & np.isfinite(sample.e2e)
    seconds = float(sample.block_seconds.sum())
    rate = float(sample.block_finished.sum()) / seconds if seconds > 0 else 0.0
    prompt, answer = (_mean(v[finite]) for v in (sample.prompt_tokens, sample.completion_tokens))
    time = point.time
    ttft, e2e = (time.ttft, time.e2e) if time else (_mean(sample.ttft[finite]), _mean(sample.e2e[finite]))
    refused = (time.refused if time else "") or contradiction(sample.server)
    server = () if refused else sample.server
    in_flight = float(sample.in_flight.mean()) if len(sample.in_flight) else 0.0
    gauges = {name: _gauge(server, fact) for name, fact in _GAUGES.items()}
    total = sum(sample.outcomes.values()) or 1
    limited = sum(facts.get("client_http_429", 0.0) for facts in sample.server) / total
    bad = {k: n for k, n in sample.outcomes.items() if k not in ("ok", "cancelled", "client")}
    observed = [
        facts["observed_until"] - facts["observed_from"]
        for facts in server
        if {"observed_from", "observed_until"} <= facts.keys()
    ]
    steps, made, preemptions = (_sum(server, name) for name in _COUNTERS)
    ended = _sum(server, "client_count") or rate * seconds
    flag = next((f for f in point.flags if f.name == "client_bound" and f.fatal), None)
    return Signs(
        load=point.load,
        rate=rate,
        prompt=prompt,
        answer=answer,
        ttft=ttft,
        e2e=e2e,
        in_flight=in_flight,
        **gauges,
        parts=_parts(dict(time.parts) if time else {}, ttft, e2e, rate, in_flight, gauges),
        preempted=preemptions / ended if preemptions is not None and ended else None,
        step=sum(observed) / steps if steps and observed else None,
        chunks=1 + (steps - made) / ended if steps and made and ended and point.load == 1 else None,
        clock=_gauge(sample.server, "gpu_sm_clock"),
        held=_gauge(sample.server, "gpu_clocks_held"),
        memory=point.roofline_distance.mbu.value if point.roofline_distance and point.roofline_distance.mbu else None,
        limited=limited,
        failed=sum(bad.values()) / total - limited,
        outcomes=bad,
        client=flag.measured if flag else "",
        refused=refused,
        settings=settings,
        ranks=max((int(window.get(RANKS, 1)) for window in sample.server), default=1),
    )


_COUNTERS = ("iteration_tokens_total_count", "generation_tokens_total", "num_preemptions_total")
_GAUGES = {
    "running": "num_requests_running",
    "running_max": "num_requests_running_max",
    "waiting": "num_requests_waiting",
    "kv": "kv_cache_usage_perc",
    "kv_max": "kv_cache_usage_perc_max",
}


def _mean(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else math.nan


def _gauge(server: Sequence[Mapping[str, float]], name: str) -> float | None:
    """A gauge over the windows: the mean, or the maximum of a gauge of highest values. A mean never
    replaces a highest value: a number that equals its own maximum looks like a cap.
    """
    values = [facts[name] for facts in server if name in facts]
    if not values:
        return None
    return max(values) if name.endswith("_max") else sum(values) / len(values)


def _sum(server: Sequence[Mapping[str, float]], name: str) -> float | None:
    values = [facts[name] for facts in server if name in facts]
    return sum(values) if values else None


def _parts(
    parts: dict[str, float], ttft: float, e2e: float, rate: float, in_flight: float, gauges: Mapping[str, float | None]
) -> dict[str, float]:
    """The time breakdown, completed by Little's law: a place with n requests on average holds each
    for n / rate seconds. Without gauges only decode is known, by the client's stamps.
    """
    running, waiting = gauges["running"], gauges["waiting"]
    parts.setdefault("decode", e2e - ttft)
    if waiting is None or running is None or not rate:
        return parts
    parts.setdefault("queue", waiting / rate)
    outside = in_flight - running - waiting
    if "network" not in parts and outside > max(2.0, 0.1 * in_flight):
        parts["outside"] = outside / rate
    parts.setdefault("prefill", max(0.0, ttft - sum(v for name, v in parts.items() if name != "decode")))
    return parts
