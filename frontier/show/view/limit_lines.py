"""Lines that set a limit: where each engine sets its limit on requests in flight."""

from frontier.client.engines import KNOWN


def knob_sentence(engine: str | None, concurrency: int, ranks: int = 1) -> str:
    """'set vLLM --max-num-seqs 48; requests over it wait in the engine's queue, which has no
    limit'. Where the engine is not known, what to set in words.

    An engine whose limit holds for each data-parallel rank gets a share for each of its `ranks`;
    the sentence gives the sum too.
    """
    known = KNOWN.get(engine or "")
    if known is None:
        return f"limit the engine or your gateway to {concurrency:,} at a time"
    each = concurrency // ranks if known.limit_per_rank else concurrency
    if not each:
        least = known.limit.format(c=1)
        return f"limit your gateway to {concurrency:,} at a time; {known.title} {least} on {ranks} ranks admits {ranks}"
    in_all = f" on each of {ranks} ranks, {each * ranks} in all" if known.limit_per_rank and ranks > 1 else ""
    return f"set {known.title} {known.limit.format(c=each)}{in_all}; requests over it {known.over}"


def room_sentence(engine: str | None, sessions: int) -> str:
    """How high an engine's limit must be for a number of sessions, as the engine counts only
    requests.
    """
    known = KNOWN.get(engine or "")
    limit = f"a limit of {sessions}" if known is None else f"{known.title} {known.limit.format(c=sessions)}"
    return f"An engine limits requests in flight: {limit} or more lets none of them wait."
