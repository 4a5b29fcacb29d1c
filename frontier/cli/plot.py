"""`frontier plot`: the frontier as a picture, and its detail figures."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from frontier import registry
from frontier.cli import common, completion
from frontier.core.model.errors import DrawingError, ExitCode, UsageError
from frontier.core.model.series import Series
from frontier.core.model.shapes import file_label
from frontier.core.model.text import clean, suggestion
from frontier.store.run_dir import RunDirectory

if TYPE_CHECKING:
    from frontier.core.model.decisions import Limit
    from frontier.run import Objectives, Run
    from frontier.show.picture.data import Picture
    from frontier.show.view.series_view import SeriesView

FIGURES = ("frontier", *dict(registry.installed(registry.FIGURES)))

Theme = Literal["light", "dark"]


class _FigureName(click.Choice[str]):
    """The name of a figure. An unknown name is answered with the most similar one."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ARG002
        if value not in FIGURES:
            raise UsageError(
                f"no figure {clean(value, 80)!r}; {suggestion(value, FIGURES)}", "names: frontier plot --help"
            )
        return value


def _with_figures(command: Callable[..., int]) -> Callable[..., int]:
    """The command with a line of each figure in its help."""
    lines = (f"  {name:<12}{registry.FIGURE_LINES[name]}" for name in FIGURES[1:])
    command.__doc__ = "\n".join([command.__doc__ or "", "    \b", "    Figures:", *(f"    {line}" for line in lines)])
    return command


@common.subcommand("plot")
@click.argument("runs", nargs=-1, metavar="[RUN]...", type=common.RUN_PATH, shell_complete=completion.complete_run)
@click.option(
    "-o", "--output", "files", multiple=True, type=common.FILE_PATH, help="FILE.png, .svg or .pdf; repeatable."
)
@click.option(
    "--figure",
    type=_FigureName(FIGURES),
    default="frontier",
    metavar="NAME",
    help="A detail figure, by its name below.",
)
@click.option("--at", type=click.IntRange(1), metavar="C", help="The concurrency of a timeline.")
@click.option("--overlay", is_flag=True, help="The deployments of one run in one panel per shape, as up to eight are.")
@click.option(
    "--x",
    metavar="METRIC",
    shell_complete=completion.complete_metrics,
    help="Only the x axis, as p50_interactivity or p99_e2e.",
)
@click.option("--width", "pixels", type=click.IntRange(400, 8000), metavar="PIXELS", help="Width of a PNG, for slides.")
@click.option("--dark", is_flag=True, help="A dark background.")
@common.run_options("deployments", "shapes", "sla", "objectives", "settings")
@_with_figures
def command(  # noqa: PLR0913
    options: common.RunOptions,
    runs: tuple[Path, ...],
    files: tuple[Path, ...],
    figure: str,
    at: int | None,
    overlay: bool,
    x: str | None,
    pixels: int | None,
    dark: bool,
) -> int:
    """Draw the frontier of RUN with its SLA and operating point, or one of its detail figures.

    Several runs or deployments, up to eight, share a panel per shape. Without -o the picture goes
    into the directory of the (first) run, as png and svg. Detail figures of several shapes are
    named by them: latency-1024x256.png. The x axis is that of the tightest limit, unless the config
    or --objectives names the axes.

    RUN defaults to the newest run under runs/ that holds a finished trial.

    \b
    Examples:
      frontier plot runs/llama8b -o slide.png --width 1920 --dark
      frontier plot --objectives cost,p99_ttft --set 'price=$12/h' -o cost.png
      frontier plot runs/bf16 runs/fp8 -o both.svg
      frontier plot --figure timeline --at 64 -o timeline.svg

    Axes are any two metrics (of more the first two), as output_throughput, goodput, p99_ttft,
    p50_tpot, p99_e2e, cost, p50_interactivity, energy (J/tok), quality. Rates are
    per GPU where gpus is known; cost needs a price; energy needs a power, measured by nvidia-smi
    beside the server or set: --set hardware.power=700W.
    """
    from frontier.show.view.selection import check_panels, views_of

    loaded = [replace(options, run=path).read() for path in runs or [None]]
    limits = options.limits(loaded[0])
    if x is not None and options.objectives is not None:
        raise UsageError("--x and --objectives both name the axis across", "give one of them")
    named = options.all_axes if x is None else common.read_objectives(f"{loaded[0].config.objectives[0]},{x}")
    axes = (named[0], named[1]) if named else None
    together = overlay or len(loaded) > 1 or "quality" in (axes or ())
    if figure != "frontier" and together:
        raise UsageError("only the frontier itself is drawn for several at once", f"name one run for --figure {figure}")
    wanted = picture_files(loaded[0], "together" if together else figure, files)
    series: Sequence[Series] = ()
    if together:
        pictures = [registry.TOGETHER.require("one picture of several runs")(loaded, limits, axes)]
    else:
        check_panels(loaded[0])
        if figure == "frontier":
            pictures = [picture_of(loaded[0], limits, axes)]
        else:
            detail_figures = registry.FIGURES[figure].load()
            details = detail_figures(loaded[0], views_of(loaded[0], limits), figure, at)
            pictures, series = [picture for _, picture in details], [view.frontier.series for view, _ in details]
    save_pictures(pictures, wanted, series, pixels, "dark" if dark else "light")
    return ExitCode.YES


def picture_of(
    run: "Run", limits: "Sequence[Limit]", axes: "Objectives" = None, views: "Sequence[SeriesView]" = ()
) -> "Picture":
    """The frontiers of a run, a panel each; deployments that one panel can tell apart share it, and
    all amounts of a background do. `views` are those on these axes where they are known.
    """
    from frontier.planning.most_background import most_background
    from frontier.show.picture.frontier_picture import small_multiples
    from frontier.show.view.selection import provenance_of, together_of, views_of

    if axes is None and limits and (beside := most_background(run.solve(limits), run.config.shapes)):
        from frontier.show.picture.background_picture import background_picture

        return background_picture(views or views_of(run, limits), beside, provenance_of(run))
    if (together := together_of(run)) is not None:
        return together([run], limits, axes)
    return small_multiples(views or views_of(run, limits, axes), footer=provenance_of(run))


def check_formats(files: Sequence[Path]) -> None:
    """UsageError for a file no picture can be written to."""
    from frontier.show.picture.data import FORMATS

    for file in files:
        if file.suffix.removeprefix(".").lower() not in FORMATS:
            raise UsageError(f"a picture cannot be written as {file.name!r}", "name a FILE.png, .svg or .pdf")


def picture_files(run: "Run", name: str, files: Sequence[Path] = ()) -> list[Path]:
    """The files asked for, or NAME.png and NAME.svg in the run's derived directory."""
    check_formats(files)
    directory = RunDirectory.read(run.path)
    return list(files) or [directory.derived().path / f"{name}.{form}" for form in ("png", "svg")]


@contextmanager
def beside_an_answer() -> Iterator[None]:
    """Draw a picture beside an answer. A picture that cannot be drawn is a warning: the answer and
    its exit code stand without it. A wrong file or request is raised.
    """
    try:
        yield
    except (UsageError, OSError):
        raise
    except Exception as error:  # noqa: BLE001  # whatever matplotlib fails with
        common.say(f"warning: {undrawn('no picture was', error)}")


def undrawn(what: str, error: Exception) -> str:
    """'no picture was drawn: WHY', and what to do."""
    if isinstance(error, DrawingError):
        return f"{what} drawn: {error}"
    return f"{what} drawn: {type(error).__name__}: {error}\n  frontier plot RUN  says more"


def save_pictures(
    pictures: "Sequence[Picture]",
    files: Sequence[Path],
    series: "Sequence[Series]" = (),
    pixels: int | None = None,
    theme: Theme = "light",
    *,
    quiet: bool = False,
) -> None:
    """Write each picture to each file, and say so unless `quiet`. Several are named by what tells
    their series apart.
    """
    from frontier.show.picture.frontier_picture import save

    for file in files:
        for picture, path in zip(pictures, file_names(file, series) if series else [file], strict=True):
            save(picture, path, width=pixels, theme=theme)
            if not quiet:
                common.say(f"wrote {path}")


def file_names(file: Path, series: Sequence[Series]) -> list[Path]:
    """One file per series, named by what they differ in before the suffix: fig-1024x256.png,
    fig-fp8.png.

    >>> from frontier.core.model.shapes import Shape
    >>> series = [Series("", Shape.of(1024, 256)), Series("", Shape.of(64, 8))]
    >>> [str(f) for f in file_names(Path("fig.png"), series)]
    ['fig-1024x256.png', 'fig-64x8.png']
    """
    if len(series) == 1:
        return [file]
    one_deployment, one_shape = len({s.deployment for s in series}) == 1, len({s.shape for s in series}) == 1
    stems = []
    for deployment, shape in series:
        parts = [] if one_deployment else [file_label(deployment)]
        parts += [] if one_shape and parts else [shape.file_label]
        stems.append("-".join((file.stem, *parts)))
    seen: Counter[str] = Counter()
    names = []
    for stem in stems:
        seen[stem] += 1
        names.append(file.with_stem(stem if seen[stem] == 1 else f"{stem}-{seen[stem]}"))
    return names
