"""Flag on a point above its roofline: faster than any hardware of its description could be."""

import math
from collections.abc import Iterator, Mapping

from frontier.core.flags.load_flags import median
from frontier.core.model.points import Flag
from frontier.core.model.units import format_number, format_seconds
from frontier.core.window.window import WindowData

ABOVE_ROOFLINE = 0.05
"""Share by which a point may lie above the roofline before hardware or counts are wrong."""


def above_roofline(sample: WindowData, bounds: Mapping[str, float]) -> Iterator[Flag]:
    """The flags for figures that are faster than the roofline allows.

    `bounds` gives the least seconds of 'ttft', 'tpot', 'e2e', and the most tokens per second of
    'output_throughput'.
    """
    for quantity, bound in bounds.items():
        if quantity == "output_throughput":
            rate = float(sample.block_output_tokens.sum()) / sample.seconds if sample.seconds > 0 else 0.0
            if rate > bound * (1 + ABOVE_ROOFLINE):
                yield _impossible(sample, f"{format_number(rate)} tok/s", f"{format_number(bound)} tok/s")
        else:
            middle = median(getattr(sample, quantity))
            if middle is not None and middle < bound * (1 - ABOVE_ROOFLINE):
                yield _impossible(sample, f"{quantity.upper()} {format_seconds(middle)}", format_seconds(bound))


def _impossible(sample: WindowData, measured: str, limit: str) -> Flag:
    drafts, tokens = (
        sum(server.get(f"spec_decode_num_{kind}_total", 0.0) for server in sample.server)
        for kind in ("drafts", "draft_tokens")
    )
    advice = (
        "no hardware of this description does that: check its model, precision and GPUs; else tokens are miscounted, "
        "a cache answered, the server speculates (then write hardware: {speculation: {tokens: 4}}), or fewer requests "
        "ran than were sent"
    )
    if drafts:
        line = f"hardware: {{speculation: {{tokens: {math.ceil(tokens / drafts)}}}}}"
        advice = f"the server speculates by its own metrics: write  {line};  where that stands, check model and GPUs"
    return Flag("faster_than_light", measured, limit, advice)
