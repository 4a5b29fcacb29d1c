"""What is looked at beside the points of a run: its windows by setting, its companion charts, one trial's timeline."""

import difflib
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from frontier.decide.wording import clean, clean_name, count, told_apart
from frontier.errors import UsageError
from frontier.metrics import names
from frontier.model import Point, Series, Shape
from frontier.plot.chart import Sheet
from frontier.plot.companions import FROM_POINTS
from frontier.plot.data import View, panel_name
from frontier.plot.distributions import FROM_SAMPLES, timeline_sheet
from frontier.plot.multi_run import ROLES
from frontier.plot.winner import Group
from frontier.run import NEEDS, Run
from frontier.stats.window_data import Sample
from frontier.store.run_dir import RunDirectory

FIGURES = (*FROM_POINTS, *FROM_SAMPLES, "timeline")
"""The companion figures by name; `frontier plot --figure` draws them."""


MOST_PANELS = 24
"""More panels than this in one picture are read by nobody."""


def narrowed(run: Run, deployments: Sequence[str] = (), shapes: Sequence[str] = ()) -> Run:
    """The run with only those deployments and shapes: named in full, by a pattern (`*fp8*`) or, without one, a part.

    UsageError when a name matches none.
    """
    if not deployments and not shapes:
        return run
    settings = _settings(run)
    kept_deployments = _matching("deployment", deployments, [deployment for deployment, _ in settings])
    kept_shapes = _matching("shape", shapes, [shape.label for _, shape in settings])
    kept = [at for at in settings if at[0] in kept_deployments and at[1].label in kept_shapes]
    if not kept:
        raise UsageError("no deployment of those has a shape of those", "frontier show  lists what there is")
    return replace(
        run,
        histories={at: history for at, history in run.histories.items() if at in kept},
        imported=tuple(p for p in run.imported if (p.deployment, p.shape) in kept),
    )


def _settings(run: Run) -> list[Series]:
    return list(dict.fromkeys([*run.histories, *(p.series for p in run.imported)]))


def _matching(what: str, wanted: Sequence[str], known: Sequence[str]) -> set[str]:
    """The known names that one of the wanted means; all where none is wanted."""
    if not wanted:
        return set(known)
    found: set[str] = set()
    for want in wanted:
        low = want.lower()
        exact = {name for name in known if name == want}
        pattern = low if any(ch in low for ch in "*?[") else f"*{low}*"
        mine = exact or {name for name in known if fnmatchcase(name.lower(), pattern)}
        if not mine:
            names = list(dict.fromkeys(known))
            near = difflib.get_close_matches(want, names, n=3, cutoff=0.4) or names[:5]
            more = f" and {len(names) - len(near)} more" if len(names) > len(near) else ""
            raise UsageError(
                f"no {what} is called {clean(want, 80)!r}", f"there are {', '.join(map(clean_name, near))}{more}"
            )
        found |= mine
    return found


def check_panels(run: Run, panels: Collection[object] | None = None) -> None:
    """UsageError where the run has more frontiers than a picture or a page can show, with the way to fewer.

    `panels`: what has a panel of its own, every frontier by default.
    """
    settings = _settings(run)
    if len(settings if panels is None else panels) <= MOST_PANELS:
        return
    deployments, shapes = {d for d, _ in settings}, {s for _, s in settings}
    each = [count(len(deployments), "deployment")] if len(deployments) > 1 else []
    each += [count(len(shapes), "shape")] if len(shapes) > 1 else []
    first, shape = settings[0]
    hint = [f"--deployment '{clean(first, 60)}'"] if len(deployments) > 1 else []
    hint += [f"--shape {clean(shape.label, 40)}"] if len(shapes) > 1 else []
    raise UsageError(
        f"{run.path} has {len(settings)} frontiers ({', '.join(each)}); more than {MOST_PANELS} on one sheet cannot be "
        "read",
        f"name some, in full, in part or as a pattern:  {'  '.join(hint)}",
    )


def check_together(runs: Sequence[Run]) -> None:
    """UsageError where runs have more frontiers of a shape than one panel can tell apart, or more shapes than a
    picture can show: before anything is computed.
    """
    for run in runs:
        check_panels(run, panels={shape for _, shape in _settings(run)})
    shapes = Counter(shape for run in runs for _, shape in _settings(run))
    for shape, number in shapes.items():
        if number > len(ROLES):
            raise UsageError(
                f"{number} frontiers of {clean(shape.label, 40)} in one panel cannot be told apart; at most "
                f"{len(ROLES)} can",
                "name fewer runs, or  --deployment NAME  once for each to be drawn",
            )


def check_axes(points: Sequence[Point], axes: Sequence[str], of: str = "") -> None:
    """UsageError for an axis that no point (of the run `of`) has a value on, with what it needs."""
    for name in axes:
        if points and not any(name in p.metrics for p in points):
            known = [n for n in names() if any(n in p.metrics for p in points)]
            hint = NEEDS.get(name, f"these are: {', '.join(known)}")
            raise UsageError(f"{name} is not known of any point{f' of {of}' if of else ''}", hint)


def samples_of(run: Run) -> dict[tuple[str, Shape], dict[int, Sample]]:
    """The windows behind each point: those a claim stands on, else all of the setting's."""
    return {series: run.samples(series) for series in run.histories}


def sheets(run: Run, views: Sequence[View], name: str, at: int | None = None) -> list[Sheet]:
    """The companion `name` of each view that has one; `at` names the concurrency of a timeline. UsageError when
    there is nothing to draw.
    """
    found: list[Sheet | None] = []
    samples = samples_of(run) if name in FROM_SAMPLES else {}
    for view in views:
        setting = (view.frontier.deployment, view.frontier.shape)
        if name in FROM_POINTS:
            found.append(FROM_POINTS[name](view))
        elif name in FROM_SAMPLES:
            found.append(FROM_SAMPLES[name](view, samples[setting]) if samples.get(setting) else None)
        else:
            found.append(_timeline(run, view, at))
    drawn = [sheet for sheet in found if sheet is not None]
    if not drawn:
        raise UsageError(f"there is nothing to draw: {WHY_NOT.get(name, 'no valid measurement')}")
    return drawn


def grouped(runs: Sequence[tuple[str, Sequence[View]]]) -> list[Group]:
    """The views of several (run's name, its views) by shape, each called by its run, its deployment, or both."""
    several = len(runs) > 1
    whole: list[str] = []
    panels: list[tuple[str, str]] = []
    run_names = told_apart([run for run, _ in runs], 200)
    for run, (_, views) in zip(run_names, runs, strict=True):
        deployments = list(dict.fromkeys(view.frontier.deployment for view in views))
        for deployment in deployments:
            panels.append((run, deployment))
            alone = run if len(deployments) == 1 else f"{run} · {deployment}"
            whole.append(alone if several else deployment)
    called = dict(zip(panels, told_apart(whole), strict=True))
    found: dict[Shape, list[tuple[str, View]]] = {}
    for run, (_, views) in zip(run_names, runs, strict=True):
        for view in views:
            found.setdefault(view.frontier.shape, []).append((called[run, view.frontier.deployment], view))
    return [Group(tuple(n for n, _ in group), tuple(v for _, v in group)) for group in found.values()]


WHY_NOT = {
    "goodput": "goodput needs limits on latency (name them with  --sla) and two settings that are valid",
    "latency": "a chart against concurrency needs two settings that were measured and are valid",
    "throughput": "a chart against concurrency needs two settings that were measured and are valid",
    "inflation": "inflation needs two settings that were measured and are valid",
    "lengths": "the lengths of the requests hardly varied; sweep a shape with  isl: {uniform: [512, 4096]}",
    "timeline": "no trial of that setting was finished",
}


def _timeline(run: Run, view: View, at: int | None) -> Sheet | None:
    """The last trial of the setting asked for, else of the operating point, else of the highest concurrency."""
    history = run.histories.get(view.frontier.series, [])
    measured = sorted({trial.concurrency for trial, _ in history})
    if at is not None and at not in measured:
        raise UsageError(
            f"{panel_name(view)} was not measured at concurrency {at}", f"it was at {', '.join(map(str, measured))}"
        )
    if not measured:
        return None
    chosen = view.decision.concurrency if view.decision else None
    wanted = at or chosen or measured[-1]
    key = next(trial.key for trial, _ in reversed(history) if trial.concurrency == wanted)
    directory = RunDirectory.read(run.path)
    return timeline_sheet(directory.finished()[key], directory.records(key))
