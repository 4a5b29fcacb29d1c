"""Evidence beside a trial: the server's metrics (Prometheus text) and this machine's GPUs (nvidia-smi), in the window.

It answers whether the load arrived and whether requests were preempted; it is never a source of latencies. Counters
become differences over the window, gauges means of samples taken at most once a second. Names of all engines are mapped
to vLLM's, without the prefix.
"""

import asyncio
import dataclasses
import ipaddress
import re
import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from frontier.client.http import Client
from frontier.client.target import Target
from frontier.units import usable

_FIELDS = ("index", "power.draw", "utilization.gpu", "memory.used", "clocks.sm", "temperature.gpu")
_ARGUMENTS = (f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits", "--loop=1")

GpuSample = tuple[float | None, ...]
"""One GPU at one moment, as _FIELDS; None where nvidia-smi has no value."""


class Gpus:
    """Reads the GPUs once a second while a trial runs. `result()` covers what was read in its window."""

    def __init__(self, target: Target) -> None:
        self._tool = shutil.which("nvidia-smi") if is_here(target.base_url) else None
        self._gpu_samples: list[GpuSample] = []

    async def watch(self, opened: asyncio.Event, closed: asyncio.Event) -> None:
        """One process for the whole trial, begun before the window, so that starting it disturbs nothing."""
        if self._tool is None:
            return
        try:
            process = subprocess.Popen(  # noqa: ASYNC220, S603 - quick, before the window; our own arguments
                [self._tool, *_ARGUMENTS], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        except OSError:
            return
        threading.Thread(target=self._read, args=(process, opened), daemon=True).start()
        try:
            await closed.wait()
        finally:
            process.kill()
            process.wait()

    def _read(self, process: "subprocess.Popen[bytes]", opened: asyncio.Event) -> None:
        """In a thread of its own: a line a second."""
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                sample = parse_gpu_line(line.decode(errors="replace"))
                if sample is not None and opened.is_set():
                    self._gpu_samples.append(sample)

    def result(self) -> dict[str, float]:
        """Over all GPUs: power in watts and memory in bytes added up, utilization as a mean share, the lowest clock in
        hertz, the highest temperature in degrees Celsius. A value that no GPU has is left out."""
        samples = list(self._gpu_samples)
        if not samples:
            return {}
        count = float(len({sample[0] for sample in samples}))
        columns = ([value for value in column if value is not None] for column in list(zip(*samples, strict=True))[1:])
        power, busy, memory, clock, heat = columns
        values = {
            "gpu_count": count,
            "gpu_power": _mean(power) * count if power else None,
            "gpu_utilization": _mean(busy) / 100 if busy else None,
            "gpu_memory_used": _mean(memory) * count * 2**20 if memory else None,
            "gpu_sm_clock_min": min(clock) * 1e6 if clock else None,
            "gpu_temperature_max": max(heat, default=None),
        }
        return {name: value for name, value in values.items() if value is not None}


def parse_gpu_line(line: str) -> GpuSample | None:
    """A line of nvidia-smi's CSV; None for anything else. What is not supported reads '[N/A]' or the like."""
    fields = [field.strip() for field in line.split(",")]
    if len(fields) != len(_FIELDS) or not fields[0].isdigit():
        return None
    return tuple(_number(field) for field in fields)


def _number(text: str) -> float | None:
    try:
        return usable(float(text))
    except ValueError:
        return None


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def is_here(url: str) -> bool:
    """The address is this machine's own."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


_GAUGES = {
    "vllm:num_requests_running": "num_requests_running",
    "vllm:num_requests_waiting": "num_requests_waiting",
    "vllm:kv_cache_usage_perc": "kv_cache_usage_perc",
    "vllm:gpu_cache_usage_perc": "kv_cache_usage_perc",
    "sglang:num_running_reqs": "num_requests_running",
    "sglang:num_queue_reqs": "num_requests_waiting",
    "sglang:token_usage": "kv_cache_usage_perc",
    "llamacpp:requests_processing": "num_requests_running",
    "llamacpp:requests_deferred": "num_requests_waiting",
    "tgi_batch_current_size": "num_requests_running",
    "tgi_queue_size": "num_requests_waiting",
    "trtllm_kv_cache_utilization": "kv_cache_usage_perc",
}
_COUNTERS = {
    "vllm:num_preemptions_total": "num_preemptions_total",
    "vllm:prefix_cache_queries_total": "prefix_cache_queries_total",
    "vllm:prefix_cache_hits_total": "prefix_cache_hits_total",
    "vllm:gpu_prefix_cache_queries_total": "prefix_cache_queries_total",
    "vllm:gpu_prefix_cache_hits_total": "prefix_cache_hits_total",
    "vllm:generation_tokens_total": "generation_tokens_total",
    "vllm:prompt_tokens_total": "prompt_tokens_total",
    "vllm:spec_decode_num_drafts_total": "spec_decode_num_drafts_total",
    "vllm:spec_decode_num_draft_tokens_total": "spec_decode_num_draft_tokens_total",
    "vllm:spec_decode_num_accepted_tokens_total": "spec_decode_num_accepted_tokens_total",
    "sglang:num_retracted_requests_total": "num_preemptions_total",
    "sglang:generation_tokens_total": "generation_tokens_total",
    "sglang:prompt_tokens_total": "prompt_tokens_total",
    "llamacpp:tokens_predicted_total": "generation_tokens_total",
    "llamacpp:prompt_tokens_total": "prompt_tokens_total",
    # TGI counts tokens in histograms only.
    "tgi_request_generated_tokens_sum": "generation_tokens_total",
    "tgi_request_input_length_sum": "prompt_tokens_total",
}
_START = "process_start_time_seconds"
_WANTED = re.compile(
    rb"^(?:%s)(?:\{[^\n]*)?[ \t][^\n]*$"
    % b"|".join(re.escape(name.encode()) for name in (*_GAUGES, *_COUNTERS, _START)),
    re.MULTILINE,
)
_EVERY = 1.0
_SETTLED = 2.0
_MOST_SERIES = 5_000
"""Far more than the replicas of one server have, and read in a fraction of a second."""
_SHARES = frozenset({"kv_cache_usage_perc"})


@dataclasses.dataclass(frozen=True, slots=True)
class Scrape:
    """One reading of the metrics: counters and gauges under common names, and the server process's start."""

    counters: Mapping[str, float]
    gauges: Mapping[str, float]
    started: float | None


def parse_metrics(*texts: bytes) -> Scrape:
    """The known metrics in Prometheus texts, one per replica. Series of one name are added up (of shares the
    highest counts).

    ValueError when one is no such text, or has so many that reading them would disturb what is measured. NaN and
    infinite values, which some exporters give before their first request, say nothing and are left out, as is what no
    server can mean: a value below zero or beyond `units.MOST`.
    """
    # Only the known lines reach the parser: an engine exports thousands of histogram lines, and time is short here.
    known = [line for text in texts for line in _WANTED.findall(text)]
    if len(known) > _MOST_SERIES * len(texts):
        raise ValueError(f"{len(known):,} series of the known metrics")
    lines = b"\n".join(known).decode(errors="replace") + "\n"
    counters: dict[str, float] = {}
    gauges: dict[str, float] = {}
    started: float | None = None
    for family in _families(lines):
        for sample in family.samples:
            name, value = sample.name, usable(sample.value)
            if value is None or value < 0:
                continue
            if name in _COUNTERS:
                counters[_COUNTERS[name]] = counters.get(_COUNTERS[name], 0.0) + value
            elif name in _GAUGES:
                common = _GAUGES[name]
                before = gauges.get(common, 0.0)
                gauges[common] = max(before, value) if common in _SHARES else before + value
            elif name == _START:
                started = max(started or 0.0, value)
    return Scrape(counters, gauges, started)


def _families(lines: str) -> list[Metric]:
    try:
        return list(text_string_to_metric_families(lines))
    except (IndexError, KeyError, TypeError, AttributeError, OverflowError) as error:
        # The parser stumbles over some of what is not in the format instead of saying so.
        raise ValueError(f"not a Prometheus text: {error}") from error


async def scrape(client: Client) -> Scrape | None:
    """The known metrics of a target now, of all its replicas; None when one of them has none."""
    target, texts = client.target, []
    for url in target.metrics_urls or (target.url(target.adapter.metrics),):
        exchange = await client.ask(url, 2.0)
        if exchange.failure is not None or exchange.status != 200:
            return None
        texts.append(b"".join(exchange.reads))
    try:
        metrics = parse_metrics(*texts)
    except ValueError:
        return None
    return metrics if metrics.counters or metrics.gauges else None


class Evidence:
    """The metrics of a target and of its machine's GPUs, read when the window opens, when it closes, and between.

    A context manager, which reads in a task of its own.
    """

    def __init__(self, target: Target) -> None:
        short = dataclasses.replace(target.timeouts, connect=2.0)
        self._target = dataclasses.replace(target, timeouts=short)
        self._gpus = Gpus(target)
        self._first: Scrape | None = None
        self._last: Scrape | None = None
        self._samples: list[Scrape] = []
        self._reading: asyncio.Task[None] | None = None
        self.opened = asyncio.Event()
        self.closed = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._reading = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._reading is not None:
            self._reading.cancel()

    async def settle(self) -> None:
        """Wait for the last reading, after the close of the window."""
        if self._reading is not None and self.opened.is_set():
            await asyncio.wait([self._reading], timeout=_SETTLED)

    async def _run(self) -> None:
        """From the opening of the window to its close; ends quietly where there is nothing to read."""
        await asyncio.gather(self._scrape(), self._gpus.watch(self.opened, self.closed))

    async def _scrape(self) -> None:
        async with Client(self._target) as client:
            if await scrape(client) is None:
                return
            await self.opened.wait()
            self._first = await scrape(client)
            while self._first is not None and not self.closed.is_set():
                try:
                    await asyncio.wait_for(self.closed.wait(), _EVERY)
                except TimeoutError:
                    sample = await scrape(client)
                    self._samples += [] if sample is None else [sample]
            self._last = await scrape(client)

    def result(self) -> tuple[dict[str, float], str | None]:
        """The window's metrics with those of this machine's GPUs, if the server is on it, and the start of the server's
        process, which changes when it is restarted (None: it does not say)."""
        first, last = self._first, self._last
        gpus = self._gpus.result()
        if first is None or last is None:
            return gpus, None
        samples = [first, *self._samples, last]
        steps = {name: last.counters[name] - first.counters[name] for name in first.counters if name in last.counters}
        metrics = {name: step for name, step in steps.items() if step >= 0}
        starts = {s.started for s in samples if s.started is not None}
        if len(starts) > 1 or len(metrics) < len(steps):
            # Another process answered within the window: its start is another, or its counters began anew.
            metrics["restarts"] = float(max(1, len(starts) - 1))
        for name in sorted(set().union(*(s.gauges for s in samples))):
            values = [s.gauges[name] for s in samples if name in s.gauges]
            metrics[name] = _mean(values)
            metrics[f"{name}_max"] = max(values)
        return metrics | gpus, None if last.started is None else f"started {last.started:.0f}"
