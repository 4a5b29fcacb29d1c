"""The detail figures of a run by their names."""

from collections.abc import Sequence

from frontier.core.model.errors import UsageError
from frontier.core.model.loads import listed
from frontier.extras.present.contexts_figure import contexts_figure
from frontier.extras.present.request_figures import FROM_SAMPLES, Samples, detail_figure, timeline_figure
from frontier.extras.present.series_figures import FROM_POINTS
from frontier.run import Run
from frontier.show.picture.data import Picture
from frontier.show.picture.labels import view_name
from frontier.show.view.selection import samples_of
from frontier.show.view.series_view import SeriesView, changed
from frontier.show.view.wording import load_words
from frontier.store.run_dir import RunDirectory

WHY_NOT = {
    "goodput": "goodput needs limits on latency (name them with  --sla) and two settings that are valid",
    "latency": "a chart against concurrency needs two settings that were measured and are valid",
    "throughput": "a chart against concurrency needs two settings that were measured and are valid",
    "inflation": "inflation needs two settings that were measured and are valid",
    "time": "no server metrics tell where the time went (frontier probe says which are known), or they were refused",
    "timeline": "no trial of that setting was finished",
    "contexts": "it needs an SLA (name one with  --sla) and shapes of several input lengths, or of several prefixes",
}


def detail_figures(
    run: Run, views: Sequence[SeriesView], name: str, at: int | None = None
) -> list[tuple[SeriesView, Picture]]:
    """The detail figure `name` of each view that has one, or of all of them; `at` names the
    concurrency of a timeline. UsageError when there is nothing to draw.
    """
    samples = samples_of(run) if name in FROM_SAMPLES else {}
    every = [(views[0], _contexts(run, views))] if name == "contexts" and views else []
    pairs = every or [
        (
            view,
            _timeline(run, view, at)
            if name == "timeline"
            else detail_figure(name, view, samples.get(view.frontier.series, {})),
        )
        for view in views
    ]
    drawn = [(view, figure) for view, figure in pairs if figure is not None]
    if not drawn:
        raise UsageError(f"there is nothing to draw: {WHY_NOT.get(name, 'no valid measurement')}")
    return drawn


def _contexts(run: Run, views: Sequence[SeriesView]) -> Picture | None:
    """The contexts figure of all series; of aggregates, by their values."""
    if run.imported and (limits := views[0].sla):
        decided = {d.series: d for d in run.solve(limits, point_estimates=True)}
        views = [changed(view, decision=decided.get(view.series)) for view in views]
    return contexts_figure(views, {d.name: d.roofline() for d in run.config.deployments})


def _timeline(run: Run, view: SeriesView, at: int | None) -> Picture | None:
    """The last trial of the setting asked for, else of the operating point, else of the highest
    concurrency.
    """
    history = run.histories.get(view.frontier.series, [])
    measured = sorted({trial.load for trial, _ in history})
    if not measured:
        return None
    wanted = view.chosen or measured[-1] if at is None else type(measured[-1]).of(at)
    if wanted not in measured:
        raise UsageError(
            f"{view_name(view)} was not measured at {load_words(wanted, view.series.shape)}",
            f"it was at {listed(measured)}",
        )
    key = next(trial.key for trial, _ in reversed(history) if trial.load == wanted)
    directory = RunDirectory.read(run.path)
    return timeline_figure(directory.finished()[key], directory.records(key))


def page_figures(view: SeriesView, samples: Samples) -> list[Picture]:
    """The figures of a series that stand on a page."""
    drawn = (detail_figure(name, view, samples) for name in (*FROM_POINTS, *FROM_SAMPLES))
    return [figure for figure in drawn if figure is not None]
