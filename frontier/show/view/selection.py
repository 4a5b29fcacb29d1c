"""The selection of a figure: deployments, shapes and axes of a run, with rooflines, detail figures
and timelines.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from frontier import registry
from frontier.core.model.decisions import Limit
from frontier.core.model.errors import UsageError
from frontier.core.model.loads import Load
from frontier.core.model.metrics import metric, names
from frontier.core.model.points import Point
from frontier.core.model.series import Series
from frontier.core.model.shapes import Shape
from frontier.core.model.text import clean, clean_name, closest, some_of
from frontier.core.window.window import WindowData
from frontier.run import HOW_TO_GIVE, Objectives, Run, metrics_of
from frontier.show.view.rough import date_text
from frontier.show.view.series_view import SeriesView, series_view
from frontier.show.view.wording import CLOSED_LOOP, Provenance, count
from frontier.store.run_dir import RunDirectory
from frontier.uncertainty import band


def views_of(run: Run, limits: Sequence[Limit], objectives: Objectives = None) -> list[SeriesView]:
    """Each frontier of a run as it is drawn, on the first two of its axes, with its points,
    decision, roofline and attainment band.
    """
    decisions = run.solve(limits) if limits else ()
    drawn: Objectives = objectives[:2] if isinstance(objectives, tuple) else None
    if isinstance(objectives, Mapping):
        drawn = {shape: own[:2] for shape, own in objectives.items()}
    axes = run.axes(drawn, limits, decisions)
    points = run.points(limits, names=metrics_of(axes))
    check_axes(points, metrics_of(axes) if objectives else (), str(run.path))
    known = run.uncertainties(axes, limits)
    frontiers = run.frontiers(points, axes, known, limits)
    drawn_rooflines = registry.ROOFLINES.find()
    lines = drawn_rooflines(run.config, points, frontiers) if drawn_rooflines is not None else {}
    decided, gpus = {d.series: d for d in decisions}, run.gpus
    return [
        series_view(
            points,
            f,
            decided.get(f.series),
            limits,
            lines.get(f.series),
            gpus.get(f.deployment),
            band(known[f.series]) if f.series in known else (),
        )
        for f in frontiers
    ]


def provenance_of(run: Run) -> Provenance:
    """The provenance of the numbers. An import's loads are not known to have been closed loops."""
    tool = f"frontier {run.manifest.get('frontier', '')}".strip()
    deployments = run.config.deployments
    if run.is_imported:
        imported = run.manifest["imported"]
        shown = {p.deployment for p in run.imported} | {deployment for deployment, _ in run.histories}
        formats = ", ".join(dict.fromkeys(str(source["format"]) for source in imported["sources"]))
        models = dict.fromkeys(d.model for d in deployments if d.model and d.name in shown)
        return Provenance(
            run=run.path.name,
            model=", ".join(models) or None,
            loop=None,
            tool=tool,
            remark=f"imported from {formats}",
            notes=tuple(map(str, imported["notes"])),
        )
    servers = [line for line in RunDirectory.read(run.path).journal_lines() if line["event"] == "server"]
    measured = {d.model for d in deployments if d.model} | {str(s["model"]) for s in servers if "model" in s}
    devices, begun = dict.fromkeys(d.devices for d in deployments if d.devices), run.manifest.get("created")
    return Provenance(
        run=run.path.name,
        model=", ".join(sorted(measured)) or None,
        hardware=", ".join(devices) or None,
        loop=_loop(run.config.shapes),
        created=None if begun is None else f"{date_text(begun)} UTC",
        server=str(servers[-1]["identity"]) if servers else None,
        tool=tool,
    )


def _loop(shapes: Sequence[Shape]) -> str:
    """The kind of load: closed or open loop."""
    if (arrivals := shapes[0].arrivals) is not None:
        of_sessions = " of sessions" if any(shape.has_sessions for shape in shapes) else ""
        return f"open loop, {arrivals} arrivals{of_sessions}"
    return "closed loop of sessions" if any(shape.has_sessions for shape in shapes) else CLOSED_LOOP


MOST_PANELS = 24
"""The most panels of one picture; more cannot be read."""


def narrowed(run: Run, deployments: Sequence[str] = (), shapes: Sequence[str] = ()) -> Run:
    """The run with only these deployments and shapes. A name is given in full, as a pattern
    (`*fp8*`), or as a part of it. UsageError when one matches nothing.
    """
    if not deployments and not shapes:
        return run
    series = series_of(run)
    kept_deployments = _matching("deployment", deployments, [deployment for deployment, _ in series])
    kept_shapes = _matching("shape", shapes, [shape.label for _, shape in series])
    kept = {key for key in series if key.deployment in kept_deployments and key.shape.label in kept_shapes}
    if not kept:
        raise UsageError("no deployment of those has a shape of those", "frontier show  lists what there is")
    return replace(
        run,
        histories={key: history for key, history in run.histories.items() if key in kept},
        imported=tuple(p for p in run.imported if p.series in kept),
    )


def series_of(run: Run) -> list[Series]:
    """Every deployment and shape that the run has points of."""
    return list(dict.fromkeys([*run.histories, *(p.series for p in run.imported)]))


def _matching(what: str, wanted: Sequence[str], known: Sequence[str]) -> set[str]:
    """The known names that the wanted ones match; all where none is wanted."""
    if not wanted:
        return set(known)
    matching: set[str] = set()
    for want in wanted:
        exact = {name for name in known if name == want}
        pattern = want.lower() if any(ch in want for ch in "*?[") else f"*{want.lower()}*"
        match = exact or {name for name in known if fnmatchcase(name.lower(), pattern)}
        if not match:
            every = list(dict.fromkeys(known))
            near = closest(want, every, most=3, cutoff=0.4) or every[:5]
            known_names = some_of([*map(clean_name, dict.fromkeys((*near, *every)))], len(near))
            raise UsageError(f"no {what} is called {clean(want, 80)!r}", f"there are {known_names}")
        matching |= match
    return matching


def check_panels(run: Run, panels: Collection[object] | None = None) -> None:
    """Check that the run has no more frontiers than a picture or a page can show. UsageError
    otherwise, with the options that leave fewer. `panels`: what has a panel of its own, by default
    every frontier.
    """
    series = series_of(run)
    if len(series if panels is None else panels) <= MOST_PANELS:
        return
    deployments, shapes = {d for d, _ in series}, {s for _, s in series}
    each = [count(len(deployments), "deployment")] if len(deployments) > 1 else []
    each += [count(len(shapes), "shape")] if len(shapes) > 1 else []
    first, shape = series[0]
    hint = [f"--deployment '{clean(first, 60)}'"] if len(deployments) > 1 else []
    hint += [f"--shape {clean(shape.label, 40)}"] if len(shapes) > 1 else []
    raise UsageError(
        f"{run.path} has {len(series)} frontiers ({', '.join(each)}); more than {MOST_PANELS} on one sheet cannot be "
        "read",
        f"name some, in full, in part or as a pattern:  {'  '.join(hint)}",
    )


def check_axes(points: Sequence[Point], axes: Sequence[str], of: str = "") -> None:
    """Check that some point (of the run `of`) has a value on each axis. UsageError otherwise, with
    what the axis needs.
    """
    for name in axes:
        if points and not any(name in p.metrics for p in points):
            known = [n for n in names() if any(n in p.metrics for p in points)]
            hint = HOW_TO_GIVE.get(metric(name).needs, f"these are: {', '.join(known)}")
            raise UsageError(f"{name} is not known of any point{f' of {of}' if of else ''}", hint)


IN_ONE_PANEL = 8
"""The most deployments that one panel can tell apart."""


def together_of(run: Run) -> "registry.TogetherPicture | None":
    """What draws the deployments of a run in one panel per shape; None where there is one alone, or
    more than a panel can tell apart.
    """
    most = max(Counter(shape for _, shape in series_of(run)).values(), default=0)
    if not 1 < most <= IN_ONE_PANEL:
        return None
    return registry.TOGETHER.find()


def samples_of(run: Run) -> dict[Series, dict[Load, WindowData]]:
    """The windows behind each point: those that support a claim, otherwise all of the setting's."""
    return {series: run.samples(series) for series in run.histories}
