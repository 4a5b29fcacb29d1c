"""Lines that set a limit: where each engine sets its limit on requests in flight."""

from frontier.client.engines import KNOWN


def knob_sentence(engine: str | None, concurrency: int) -> str:
    """'set vLLM --max-num-seqs 48; requests over it wait in the engine's queue, which has no
    limit'; where the engine is not known, what to set in words.
    """
    known = KNOWN.get(engine or "")
    if known is None:
        return f"limit the engine or your gateway to {concurrency} at a time"
    return f"set {known.title} {known.limit.format(c=concurrency)}; {known.over}"


def room_sentence(engine: str | None, sessions: int) -> str:
    """How high an engine's limit must be for so many sessions, which it does not count."""
    known = KNOWN.get(engine or "")
    limit = f"a limit of {sessions}" if known is None else f"{known.title} {known.limit.format(c=sessions)}"
    return f"An engine limits requests in flight: {limit} or more lets none of them wait."
