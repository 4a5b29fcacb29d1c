"""Greedy replies of a deployment to the prompts of a quality check, as a run keeps them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GreedyReply:
    """A greedy answer: a number for each token (no text is kept), its log-probability where the
    server gives it, and its score where there is a scorer.
    """

    tokens: str
    logprobs: str = ""
    score: float | None = None


@dataclass(frozen=True, slots=True)
class GreedyReplies:
    """The answers of one deployment under load to the prompts that `asked` names (with their
    scorer), in passes over all of them; None for a failed request. The first `distinct` prompts
    differ and then come again; 0: all differ. `cached` answers began from a prefix that the server
    had in its cache.
    """

    deployment: str
    shape: str
    concurrency: int
    asked: str
    passes: tuple[tuple[GreedyReply | None, ...], ...]
    distinct: int = 0
    cached: int = 0
