"""What vLLM's histograms observe of requests, as sums and counts: TTFT, E2E, queue, prefill,
decode, tokens a step.

As vLLM does it: TTFT when the first token leaves, all else when the last one does, and only of
requests that end well. Queue is from reaching the engine to the first admission, prefill from there
to the first token; a preemption falls into whichever it interrupts. TTFT and E2E count from when
the server received the request.
"""

from dataclasses import dataclass


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
    """The histograms of one engine: `observed` has the sum and the count of each."""

    def __init__(self) -> None:
        names = (
            "request_queue_time",
            "request_prefill_time",
            "request_decode_time",
            "request_inference_time",
            "time_to_first_token",
            "e2e_request_latency",
        )
        self.observed = {f"{name}_seconds": [0.0, 0] for name in names} | {"iteration_tokens_total": [0.0, 0]}

    def _observe(self, name: str, value: float) -> None:
        histogram = self.observed[name]
        histogram[0] += value
        histogram[1] += 1

    def step(self, tokens: int) -> None:
        """A step that read or made so many tokens."""
        self._observe("iteration_tokens_total", tokens)

    def first_token(self, clocks: Clocks, now: float) -> None:
        """The first token of a request leaves; later ones, after a preemption, are no first
        ones.
        """
        if clocks.first is None:
            clocks.first = now
            self._observe("time_to_first_token_seconds", now - clocks.received)

    def finished(self, clocks: Clocks, now: float) -> None:
        """The last token of a request leaves."""
        assert clocks.admitted is not None
        assert clocks.first is not None
        # A step may begin less than a rounding error before the arrival that it admits; a sum never
        # falls.
        self._observe("request_queue_time_seconds", max(0.0, clocks.admitted - clocks.arrived))
        self._observe("request_prefill_time_seconds", clocks.first - clocks.admitted)
        self._observe("request_decode_time_seconds", now - clocks.first)
        self._observe("request_inference_time_seconds", now - clocks.admitted)
        self._observe("e2e_request_latency_seconds", now - clocks.received)

    @property
    def counters(self) -> dict[str, float]:
        """The sums and counts, by vLLM's names."""
        return {
            f"{name}_{part}": float(value)
            for name, histogram in self.observed.items()
            for part, value in zip(("sum", "count"), histogram, strict=True)
        }
