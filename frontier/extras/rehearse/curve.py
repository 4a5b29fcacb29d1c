"""The picture of a rehearsal: the result curve of MLPerf Endpoints on its axes, with its line and
its regions.
"""

from frontier.extras.rehearse import endpoints_rules as rules
from frontier.extras.rehearse.rehearsal import Rehearsal
from frontier.extras.rehearse.rehearsal_text import curve_line
from frontier.show.picture.axes import metric_axis, rising_axis
from frontier.show.picture.data import Axis, Line, Mark, Panel, Picture, Role, Rule

ROLES = (Role.FIFTH, Role.OTHER, Role.THIRD, Role.FRONTIER)
"""The tints of the regions."""


def curve_picture(made: Rehearsal) -> Picture:
    """The curve: system throughput over the P90 speed of a user, every point a step. A point that a
    lower concurrency beats on both axes stays on the line.
    """
    x = metric_axis("p90_interactivity", [p.tps_per_user for p in made.points], (), (), None)
    y = rising_axis("output_throughput", [p.system_tps for p in made.points], None, 0.12)
    places = [(p.tps_per_user * x.scale, p.system_tps * y.scale) for p in made.points]
    corners = places[:1]
    for across, up in places[1:]:
        corners += [(across, corners[-1][1]), (across, up)]
    marks = [
        Mark(p.concurrency, *place, Role.DOMINATED if p.worse_than else Role.FRONTIER, text=str(p.concurrency))
        for p, place in zip(made.points, places, strict=True)
    ]
    shades, edges, names = _regions(made, x, y)
    worse = [str(p.concurrency) for p in made.points if p.worse_than]
    stays = f"Worse than a smaller concurrency on both axes, and still on the line: {', '.join(worse)}."
    notes = [curve_line(made), f"{rules.BASIS}, read {rules.READ}. Every point is a step, in order of concurrency."]
    title = f"{made.benchmark or made.model or made.series.label()}: {rules.NOTICE}"
    stair = Line("", tuple(corners), Role.FRONTIER, "stair")
    return Picture(
        "rehearsal",
        title,
        (Panel("", x, y, (*shades, stair), tuple(marks), tuple(edges)),),
        legend=f"Regions of concurrency, from the right: {' · '.join(names)}." if names else "",
        notes=(*notes, stays) if worse else tuple(notes),
        description=f"{title}. {curve_line(made)}",
    )


def _regions(made: Rehearsal, x: Axis, y: Axis) -> tuple[list[Line], list[Rule], list[str]]:
    """Each region as a shade up to its last point, the edges between, and the names of regions with
    their concurrencies.
    """
    shades, edges, names = list[Line](), list[Rule](), list[str]()
    last, right = {p.region: p.tps_per_user * x.scale for p in made.points}, x.high
    last[made.points[-1].region] = x.low
    for role, (name, (low, high)) in zip(ROLES, made.regions.spans.items() if made.regions else (), strict=False):
        left = last.get(name, right)
        if left < right:
            shades.append(Line("", (), role, "fit", band=((left, y.low, y.high), (right, y.low, y.high))))
            edges += [Rule("x", left, role=Role.QUIET, dashed=True)] if left > x.low else []
            names.append(f"{rules.REGIONS[name]} {f'{low}–{high}' if low < high else high}")
            right = left
    return shades, edges, names
