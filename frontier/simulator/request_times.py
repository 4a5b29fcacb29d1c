"""Request times as in vLLM's histograms: TTFT, E2E, queue, prefill, decode, time per token,
lengths, tokens a step. All have sums and counts; the histograms that users look at have vLLM's
buckets.

They are observed as in vLLM: TTFT when the first token leaves, all others when the last token does,
and only for requests that end well. Queue is from reaching the engine to the first admission,
prefill from there to the first token; a preemption falls into whichever it interrupts. TTFT and E2E
count from when the server received the request.
"""

import bisect
from dataclasses import dataclass, field

_SECONDS = (2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
_FRACTIONS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0)
_TOKENS = tuple(digit * 10.0**power for power in range(6) for digit in (1, 2, 5))
BOUNDS = {
    "time_to_first_token_seconds": (*_FRACTIONS, *_SECONDS, 160.0, 640.0, 2560.0),
    "request_time_per_output_token_seconds": (
        *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0),
        *_SECONDS,
    ),
    "e2e_request_latency_seconds": (
        *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
        *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
    ),
    "request_prompt_tokens": _TOKENS,
    "request_generation_tokens": _TOKENS,
}
"""Upper bounds of the buckets that vLLM 0.32 gives these histograms, up to a long context."""


@dataclass(slots=True)
class Observed:
    """A histogram: the sum and the count of its values, and how many are in each bucket."""

    bounds: tuple[float, ...] = ()
    total: float = 0.0
    count: int = 0
    buckets: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.buckets = [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        """A value."""
        self.total += value
        self.count += 1
        self.buckets[bisect.bisect_left(self.bounds, value)] += 1

    @property
    def at_most(self) -> list[tuple[str, int]]:
        """How many are at most each bound, by the bound as Prometheus writes it."""
        counts = [sum(self.buckets[: i + 1]) for i in range(len(self.bounds))]
        return [*((str(bound), n) for bound, n in zip(self.bounds, counts, strict=True)), ("+Inf", self.count)]


@dataclass(slots=True)
class Clocks:
    """When a request was received, reached the engine, was first admitted, and had its first
    token.
    """

    received: float
    arrived: float
    admitted: float | None = None
    first: float | None = None


class RequestTimes:
    """The histograms of one engine, by vLLM's names: `observed`."""

    def __init__(self) -> None:
        names = (
            "request_queue_time",
            "request_prefill_time",
            "request_decode_time",
            "request_inference_time",
            "time_to_first_token",
            "e2e_request_latency",
        )
        every = dict.fromkeys((*(f"{name}_seconds" for name in names), "iteration_tokens_total", *BOUNDS))
        self.observed = {name: Observed(BOUNDS.get(name, ())) for name in every}
        self._steps = self.observed["iteration_tokens_total"]

    def step(self, tokens: int) -> None:
        """A step that read or made `tokens` tokens."""
        self._steps.add(tokens)

    def first_token(self, clocks: Clocks, now: float) -> None:
        """The first token of a request leaves; later ones, after a preemption, are no first
        ones.
        """
        if clocks.first is None:
            clocks.first = now
            self.observed["time_to_first_token_seconds"].add(now - clocks.received)

    def finished(self, clocks: Clocks, now: float, prompt: int, output: int) -> None:
        """The last of `output` tokens leaves, after a prompt of `prompt` tokens."""
        assert clocks.admitted is not None
        assert clocks.first is not None
        # A step may begin less than a rounding error before the arrival that it admits; a sum never
        # falls.
        values = {
            "request_queue_time_seconds": max(0.0, clocks.admitted - clocks.arrived),
            "request_prefill_time_seconds": clocks.first - clocks.admitted,
            "request_decode_time_seconds": now - clocks.first,
            "request_inference_time_seconds": now - clocks.admitted,
            "e2e_request_latency_seconds": now - clocks.received,
            "request_prompt_tokens": prompt,
            "request_generation_tokens": output,
        }
        if output > 1:
            values["request_time_per_output_token_seconds"] = (now - clocks.first) / (output - 1)
        for name, value in values.items():
            self.observed[name].add(value)

    @property
    def counters(self) -> dict[str, float]:
        """The sums and counts, by vLLM's names."""
        return {
            f"{name}_{part}": float(value)
            for name, histogram in self.observed.items()
            if not name.endswith(("_tokens", "_token_seconds"))
            for part, value in (("sum", histogram.total), ("count", histogram.count))
        }
