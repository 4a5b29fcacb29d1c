"""What `frontier sweep` prints at its end: table, answer, what is left, and what comes next."""

import functools
import shlex
from collections.abc import Sequence
from pathlib import Path

from frontier.cli import common
from frontier.cli.knob_answer import knob_json, print_knob
from frontier.core.model.decisions import Decision
from frontier.core.model.errors import UsageError
from frontier.planning.next_step import needs_an_idle_machine
from frontier.run import Run
from frontier.show.verbosity import Detail


def print_answer(run: Run, shown: common.RunOptions, *, ended: bool, cut: Sequence[str] = ()) -> Sequence[Decision]:
    """Print the table and the decisions under the first tier of the SLA, and draw the picture.
    Where the sweep `ended`, also print what is left and what comes next. `cut` are settings that
    were to be proven and are not. Returns the decisions that say how the sweep ended.
    """
    from frontier.show.answer import answers_text
    from frontier.show.tables import points_table
    from frontier.show.view.answer_view import tier_views
    from frontier.show.view.json_out import answers_json
    from frontier.show.view.series_view import series_views

    answers = run.answers(run.config.tiers[:1])
    decisions = answers[0].decisions if answers else ()
    ending = answers[0].deciding if answers else ()
    if shown.as_json:
        left = {"unfinished": common.unfinished_json(run), "not_proven": list(cut)}
        common.answer({**answers_json(answers), **left, **knob_json(run)})
        draw(run)
        return ending
    layout, points = common.layout(), run.points()
    frontiers = run.frontiers(points)
    views = series_views(points, frontiers, run.limits(), decisions, run.gpus)
    table = functools.partial(points_table, views, **layout)
    if shown.detail >= Detail.USUAL or not decisions:
        common.answer(table(whole=False) + "\n" * bool(decisions))
    if shown.detail is Detail.ALL:
        common.answer(table(below=True, repeats=False) + "\n" * bool(decisions))
    if decisions:
        common.answer(answers_text(tier_views(answers, run.gpus), detail=shown.detail, **layout))
    print_knob(run, shown.detail)
    picture = draw(run)
    if shown.detail >= Detail.USUAL:
        for line in next_lines(run, decisions) if ended else ():
            common.say(line)
        common.say(f"{'Picture':<21}{picture}" if picture else f"{'Saved in':<21}{run.path}")
    return ending


def next_lines(run: Run, decisions: Sequence[Decision]) -> list[str]:
    """What is left of a sweep, and the commands that its reader most likely needs next."""
    lines = [] if any(map(needs_an_idle_machine, decisions)) else run.not_measured.splitlines()
    commands = [["frontier", "report", str(run.path), "-o", "page.html"]]
    alone = decisions[0] if len(decisions) == 1 else None
    shape = None if alone is None or alone.load is None else alone.shape
    if shape is not None and shape.kind == "shape" and shape.arrivals is None:
        commands.insert(0, ["frontier", "verify", str(run.path)])
    names = list(dict.fromkeys(deployment for deployment, _ in run.histories))
    if len(names) > 1:
        pair = [part for name in names[:2] for part in ("--deployment", name)]
        commands.insert(0, ["frontier", "compare", str(run.path), *pair])
    return [*lines, *(f"{'Next' if i == 0 else '':<21}{shlex.join(words)}" for i, words in enumerate(commands))]


def draw(run: Run) -> Path | None:
    """Draw the picture where that is possible; without it the sweep has still ended well. Returns
    its file.
    """
    from frontier.cli.plot import beside_an_answer, picture_files, picture_of, save_pictures
    from frontier.show.view.selection import check_panels

    try:
        with beside_an_answer():
            check_panels(run)
            files = picture_files(run, "frontier")
            save_pictures([picture_of(run, run.limits())], files, quiet=True)
            return files[0]
    except UsageError as error:  # too many frontiers for a picture
        common.say(f"no picture was drawn: {error}")
    except OSError as error:  # a full or read-only disk
        where = f"draw it elsewhere with  frontier plot {run.path} -o FILE"
        common.say(f"the picture could not be written: {error.strerror}; {where}")
    return None
