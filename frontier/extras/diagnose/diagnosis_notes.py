"""Notes of the diagnosis: what binds in each series of a run."""

from collections.abc import Sequence

from frontier.core.decisions import Decision
from frontier.core.points import Point
from frontier.core.series import by_series
from frontier.extras.diagnose.diagnosis import DIAGNOSIS_LEGEND, diagnose, diagnosis_lines
from frontier.extras.diagnose.server_settings import settings_of
from frontier.run import Run
from frontier.show.notes import Noted


def notes(run: Run, points: Sequence[Point], decisions: Sequence[Decision]) -> Noted:
    """What binds in each series that was measured here, at the settings that matter to the
    decisions, for tables, the report and JSON.
    """
    decided = {decision.series: decision for decision in decisions}
    settings = {d.name: settings_of(d, run.server_settings.get(d.name, {})) for d in run.config.deployments}
    known = (
        diagnose(mine, run.samples(key), decided.get(key), settings.get(key[0]))
        for key, mine in by_series(points).items()
    )
    found = tuple(diagnosis for diagnosis in known if diagnosis is not None)
    lines = {diagnosis.series: diagnosis_lines(diagnosis) for diagnosis in found}
    return Noted("What binds", DIAGNOSIS_LEGEND, lines, found)
