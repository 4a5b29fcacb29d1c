"""`frontier audit`: check a pack that someone else made."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from frontier.cli import common
from frontier.errors import ExitCode

if TYPE_CHECKING:
    from frontier.audit.check import Audit

CONSISTENT = (
    "Self-consistent, origin unknown: the numbers follow from the records. Whether these were measured, and on what, "
    "no file can prove."
)
SHOWN = 10
"""Contradictions that are printed; more are counted."""


@common.subcommand("audit")
@click.argument("pack", type=common.FILE_PATH)
@common.json_option
def command(pack: Path, as_json: bool) -> int:
    """Does every number and verdict of PACK follow from the records in it?

    All is derived again, offline, by the code of `show` and `solve`, and the records are compared
    with their hashes, their sums and the config. That they were measured, and on what, no file can
    prove: the origin stays unknown. Exit code 0: self-consistent; 3: not, or no sound pack.

    \b
    Examples:
      frontier audit claim.zip
      frontier audit claim.zip --json | jq .contradictions
    """
    from frontier.audit.check import audit

    result = audit(pack)
    common.answer(result.tree()) if as_json else common.answer_prose(_text(pack, result))
    return ExitCode.YES if result.consistent else ExitCode.NO


def _text(pack: Path, result: "Audit") -> str:
    again = f"{result.points:,} points and the answers, from {result.requests:,} requests of {result.trials:,} trials"
    lines = [f"{pack}  made by frontier {result.made_by}", f"derived again: {again}"]
    lines += result.answers if result.consistent else ()
    lines += [f"not checked: {line}" for line in result.unchecked]
    lines += [f"contradiction: {line}" for line in result.found[:SHOWN]]
    if (more := len(result.found) - SHOWN) > 0:
        lines.append(f"and {more:,} more")
    return "\n".join([*lines, CONSISTENT if result.consistent else "Not self-consistent: do not rely on it."])
