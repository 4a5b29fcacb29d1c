"""Complaints: the mistakes of a config, each with its place and a remedy. One error reports them
all.
"""

from dataclasses import dataclass

from frontier.core.model.errors import UsageError

MOST_COMPLAINTS = 50
"""Most complaints that are printed; the others are only counted."""


@dataclass(frozen=True, slots=True)
class Complaint:
    """One mistake in a config: what it is, where (1-based line and column, when known), and the
    remedy. `where` names a place outside the file, such as '--set requests=many'.
    """

    what: str
    hint: str | None = None
    line: int | None = None
    column: int | None = None
    source_line: str | None = None
    where: str | None = None


class ConfigError(UsageError):
    """All mistakes of one config file, reported together."""

    def __init__(self, file: str, complaints: tuple[Complaint, ...]) -> None:
        self.file = file
        self.complaints = complaints
        super().__init__("\n".join(self._lines()))

    def _lines(self) -> list[str]:
        lines: list[str] = []
        for c in self.complaints[:MOST_COMPLAINTS]:
            where = c.where or (self.file if c.line is None else f"{self.file}:{c.line}:{c.column}")
            lines.append(f"{where}: {c.what}")
            if c.source_line is not None:
                lines.append(f"  {c.line} | {c.source_line.strip()}")
            if c.hint is not None:
                lines.append(f"  {c.hint}")
        if (more := len(self.complaints) - MOST_COMPLAINTS) > 0:
            lines.append(f"and {more:,} more")
        return lines
