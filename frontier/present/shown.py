"""Decisions as a tuple that shows itself in a notebook. What draws is imported when something is shown."""

from collections.abc import Iterable, Mapping

from frontier.model import Decision

WIDE = 110
PRE = '<pre style="line-height:1.35;white-space:pre;overflow-x:auto">{}</pre>'


class Decisions(tuple[Decision, ...]):
    """Decisions, one per (deployment, shape): a tuple that a notebook shows as `frontier solve` prints it."""

    gpus: Mapping[str, int | None] | None = None

    @classmethod
    def of(cls, decisions: Iterable[Decision], gpus: Mapping[str, int | None] | None) -> "Decisions":
        """With the GPUs that rates are divided by, by deployment."""
        found = cls(decisions)
        found.gpus = gpus
        return found

    def _repr_html_(self) -> str:
        from markupsafe import escape

        from frontier.present.tables import decision_table

        return PRE.format(escape(decision_table(self, gpus=self.gpus, width=WIDE)))
