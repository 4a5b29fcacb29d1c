"""The parts of an engine's description that have several figures of their own."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stalls:
    """Pauses at random moments: on average one `every` seconds (a Poisson process), each `duration` long."""

    every: float
    duration: float


@dataclass(frozen=True, slots=True)
class Faults:
    """Shares of requests that fail over HTTP: refused with status 500, or cut off in the middle of the stream.

    Virtual time knows no faults, and there every request runs to the length asked.
    """

    error_rate: float = 0.0
    cut_rate: float = 0.0


NO_FAULTS = Faults()


@dataclass(frozen=True, slots=True)
class Speculation:
    """Speculative decoding: `tokens` drafts per request and step, each of which is accepted with probability
    `acceptance` when those before it were. One draft token costs the share `draft` of a step that decodes one token per
    request; 0 for drafts looked up in the prompt."""

    tokens: int
    acceptance: float = 0.7
    draft: float = 0.05

    @property
    def expected(self) -> float:
        """Tokens a step yields on average for a request: (1 - a^(k + 1)) / (1 - a)."""
        return math.fsum(self.acceptance**j for j in range(self.tokens + 1))


@dataclass(frozen=True, slots=True)
class Disaggregation:
    """So many instances that read prompts and so many that decode, each as the rest of the spec describes one. KV moves
    between them at `link` bytes per second and GPU, and `latency` seconds more for each request; `kv_per_token` bytes
    on each GPU (None: what the model's card says)."""

    prefill: int = 1
    decode: int = 1
    link: float = 50e9
    latency: float = 2e-3
    kv_per_token: float | None = None
