"""Notes of the diagnosis: what binds in each series of a run."""

from collections.abc import Sequence
from dataclasses import replace

from frontier.core.model.decisions import Decision
from frontier.core.model.points import Point
from frontier.core.model.series import by_series
from frontier.extras.diagnose.diagnosis import DIAGNOSIS_LEGEND, Diagnosis, diagnose, diagnosis_lines
from frontier.extras.diagnose.server_settings import settings_of
from frontier.run import Run
from frontier.show.view.notes import Noted


def notes(run: Run, points: Sequence[Point], decisions: Sequence[Decision]) -> Noted:
    """What binds in each series that was measured here, at the settings that matter to the
    decisions; for tables, the report and JSON.
    """
    decided = {decision.series: decision for decision in decisions}
    settings = {d.name: settings_of(d, run.server_settings.get(d.name, {})) for d in run.config.deployments}
    known = (
        diagnose(mine, run.samples(key), decided.get(key), settings.get(key[0]))
        for key, mine in by_series(points).items()
    )
    unread = {d.name for d in run.config.deployments if not d.reads_metrics}
    found = tuple(d for each in known if each is not None and (d := _told(each, each.deployment in unread)).settings)
    lines = {diagnosis.series: diagnosis_lines(diagnosis) for diagnosis in found}
    return Noted("Bottleneck", DIAGNOSIS_LEGEND, lines, found)


def _told(diagnosis: Diagnosis, unread: bool) -> Diagnosis:
    """The diagnosis. Where the metrics are deliberately not read, it leaves out what they would
    show.
    """
    return replace(diagnosis, settings=tuple(s for s in diagnosis.settings if s.suspects)) if unread else diagnosis
