"""What the values of a knob give, below the answer of `frontier sweep` and `frontier show`."""

from typing import TYPE_CHECKING, Any

from frontier import registry
from frontier.cli import common

if TYPE_CHECKING:
    from frontier.run import Run
    from frontier.show.verbosity import Detail


def knob_json(run: "Run") -> dict[str, Any]:
    """`knob` for JSON; nothing for a run without one."""
    found = registry.KNOB.load().result(run) if _has_knob(run) else ()
    return {"knob": [tree for _, _, tree in found]} if found else {}


def print_knob(run: "Run", detail: "Detail") -> None:
    """Print the table of values and what they show; only the latter as an answer alone."""
    from frontier.show.table import captioned
    from frontier.show.verbosity import Detail

    for table, sentences, _ in registry.KNOB.load().result(run) if _has_knob(run) else ():
        if detail >= Detail.USUAL:
            common.answer("\n" + captioned([table], **common.layout()))
        common.answer_prose(sentences)


def _has_knob(run: "Run") -> bool:
    return any(d.apply is not None for d in run.config.deployments) and registry.KNOB.find() is not None
