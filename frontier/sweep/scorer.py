"""Scorer: a user's command that gives each answer of a quality check a score from 0 to 1.

It reads one JSON object a line on its standard input, {"id", "prompt", "answer", "reference"}, and prints one score a
line, in the same order. Answers are in memory only: what is kept of them are the scores.
"""

import asyncio
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from frontier.errors import MeasurementError
from frontier.sweep.shell_line import run_line
from frontier.text import MOST, NO_SECRETS, Secrets
from frontier.units import format_elapsed

WITHIN = 3_600.0
"""Seconds that a scorer may take for the answers of one deployment: one that asks a model takes its time."""
_LONGEST_LINE = 64
_HINT = "it must print one score from 0 to 1 for each line that it reads, and nothing else"


@dataclass(frozen=True, slots=True)
class Scorer:
    """A command and the environment that it gets; of `secrets` nothing is repeated from what it says."""

    command: str
    environ: Mapping[str, str] = field(repr=False)
    secrets: Secrets = NO_SECRETS
    within: float = WITHIN

    @property
    def mark(self) -> str:
        """What tells it from another command, without its text."""
        return f"{zlib.crc32(self.command.encode()):08x}"

    async def scores(self, answers: Sequence[Mapping[str, Any]], stop: asyncio.Event) -> list[float] | None:
        """The scores of answers, each a line that it reads; None when it was stopped. MeasurementError if it fails."""
        given = b"".join(orjson.dumps(answer, option=orjson.OPT_APPEND_NEWLINE) for answer in answers)
        most = max(2 * MOST, _LONGEST_LINE * len(answers))
        done = await asyncio.to_thread(
            run_line, self.command, given, self.environ, self.within, most=most, stopped=stop.is_set
        )
        if done.status is None:
            if stop.is_set():
                return None
            what = f"the scorer did not end within {format_elapsed(self.within)} for {len(answers):,} answers"
            raise MeasurementError(what, "score fewer prompts, or several at once")
        if done.status != 0:
            words = self.secrets.last_said(done.errors.decode(errors="replace")) or "it said nothing"
            what = f"the scorer ended with status {done.status}: {words}"
            raise MeasurementError(what, f'try it by itself:  echo \'{{"answer": "yes"}}\' | {self.command}')
        lines = done.output.decode(errors="replace").removesuffix("\n").split("\n") if done.output else []
        if len(lines) != len(answers) or len(done.output) >= most:
            raise MeasurementError(f"the scorer printed {len(lines):,} lines for {len(answers):,} answers", _HINT)
        return [self._score(line, number) for number, line in enumerate(lines, 1)]

    def _score(self, line: str, number: int) -> float:
        try:
            value = float(line)
        except ValueError:
            value = math.nan
        if not 0 <= value <= 1:
            said = self.secrets.said(line, 40)
            raise MeasurementError(f"line {number:,} of the scorer is {said!r}, not a score from 0 to 1", _HINT)
        return value
