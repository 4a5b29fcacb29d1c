"""`frontier predict`: the predicted frontier, before or beyond the measured points, and the
roofline bound."""

import functools
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from frontier.cli import common, completion
from frontier.core.model.errors import ExitCode, UsageError
from frontier.core.model.metrics import metric
from frontier.core.model.points import Estimate
from frontier.core.model.series import Series
from frontier.core.model.shapes import Shape
from frontier.core.model.units import parse_share, whole_numbers

if TYPE_CHECKING:
    from collections.abc import Callable

    from frontier.extras.predict.fit import Forecast, Prediction
    from frontier.run import Run


@common.subcommand("predict")
@click.argument("source", metavar="[CONFIG|RUN]", required=False, type=click.Path(path_type=Path))
@click.option(
    "--what-if",
    "changes",
    multiple=True,
    metavar="KEY=VALUE[,..]",
    help="The same with another hardware, tp, pp, ep, model, precision, kv_precision, max_num_seqs, isl or osl; "
    "repeatable. Needs a CONFIG.",
)
@click.option(
    "--efficiency",
    metavar="SHARE",
    default="60%",
    show_default=True,
    help="Share of the roofline assumed, with a CONFIG.",
)
@click.option("--concurrency", metavar="LIST", help="Concurrencies to predict, as 1,2,4,256.")
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="SHAPE",
    shell_complete=completion.complete_shapes,
    help="Only this shape of a RUN, by its name; or another one to predict, as 4096/256.",
)
@click.option(
    "-o",
    "--output",
    type=common.FILE_PATH,
    help="FILE.png, .svg or .pdf: a RUN's frontier with the predictions dashed.",
)
@common.run_options("settings", "detail", "as_json", more="Also the columns that find no room beside each other.")
def command(
    options: common.RunOptions,
    source: Path | None,
    changes: tuple[str, ...],
    efficiency: str,
    concurrency: str | None,
    shapes: tuple[str, ...],
    output: Path | None,
) -> int:
    """Predicted frontier (before or beyond the measured points) and the roofline bound.

    With a CONFIG nothing is measured: the prediction rests on the model's sizes, the GPU and an
    assumed efficiency. With a RUN (default: the newest under runs/ that holds a finished trial) the
    engine model is fitted to the measured points and predicts between and beyond them, or another
    shape. A prediction tells where to measure; no operating point is ever chosen from one.

    \b
    Examples:
      frontier predict sweep.yaml --what-if hardware=b200 --what-if tp=2
      frontier predict runs/llama8b --concurrency 96,192,256 -o expected.png
      frontier predict runs/llama8b --shape 4096/256
    """
    from frontier.extras.predict.prediction_tables import forecast_json, forecast_table

    concurrencies = _concurrencies(concurrency)
    if source is not None and source.exists() and not source.is_dir():
        if output or shapes:
            raise UsageError("--shape and -o are for a run", "with a config, write  --what-if isl=4096,osl=256")
        forecasts = _of_config(source, changes, efficiency, concurrencies, options.settings)
    else:
        if changes:
            raise UsageError("--what-if needs a CONFIG", "a run's points hold for its own hardware")
        forecasts = _of_run(source, concurrencies, shapes, output, options.settings)
    table = functools.partial(forecast_table, detail=options.detail, **common.layout())
    common.answer(forecast_json(forecasts) if options.as_json else table(forecasts))
    return ExitCode.YES


def _of_config(
    source: Path, changes: tuple[str, ...], efficiency: str, concurrencies: tuple[int, ...], settings: tuple[str, ...]
) -> "list[Forecast]":
    from frontier.config.config_file import load_config_file
    from frontier.extras.predict.prediction import predict_config

    share = common.parsed("--efficiency", efficiency, parse_share)
    if share == 0:
        raise UsageError(f"--efficiency {efficiency!r} is not above 0", "write a share, as 60%")
    config = load_config_file(source, settings)
    if concurrencies:
        config = config.model_copy(update={"given_concurrency": concurrencies})
    return predict_config(config, changes, share)


def _of_run(
    source: Path | None,
    concurrencies: tuple[int, ...],
    shapes: tuple[str, ...],
    output: Path | None,
    settings: tuple[str, ...],
) -> "list[Forecast]":
    from frontier.cli.plot import check_formats
    from frontier.extras.predict.prediction import predict_points
    from frontier.show.view.selection import narrowed, series_of

    if source is not None and not source.is_dir():
        raise UsageError(f"there is no {source}", "name a config file or a run's directory")
    check_formats((output,) if output else ())
    run = common.read_run(common.find_run(source), settings)
    own = [name for name in shapes if "/" not in name or name in {each.shape.label for each in series_of(run)}]
    other = tuple(common.parsed("--shape", text, Shape.parse) for text in shapes if text not in own)
    kept = series_of(narrowed(run, (), own)) if own else ()
    every = predict_points(run.points(), run.roofline, concurrencies, other, run.limits())
    forecasts = [f for f in every if not f.measured or not own or Series(f.deployment, f.shape) in kept]
    if output is not None:
        _draw(run, forecasts, output)
    return forecasts


def _draw(run: "Run", forecasts: "list[Forecast]", file: Path) -> None:
    """Write the frontier over a mean latency, with its SLA and operating point; the predicted means
    are dashed.
    """
    from frontier.cli.plot import beside_an_answer, save_pictures
    from frontier.show.picture.frontier_picture import small_multiples
    from frontier.show.view.selection import provenance_of, views_of

    own = next(iter(run.axes().values()), run.config.objectives)
    across = metric(own[1]).quantity or "ttft"
    name = f"mean_{across}" if across in ("ttft", "e2e") else "mean_tpot"
    axes = ("request_throughput" if own[0] in ("request_throughput", "goodput") else "output_throughput", name)
    expected = {Series(f.deployment, f.shape): _expected(f, *axes) for f in forecasts if f.measured}
    views = [replace(v, expected=expected.get(v.frontier.series, ())) for v in views_of(run, run.limits(), axes)]
    if axes != own:
        named = " and ".join(metric(objective).label for objective in own)
        common.note(
            f"note: drawn over {metric(name).label}, as predictions are of means; the run's own axes are {named}"
        )
    if elsewhere := [f.shape.label for f in forecasts if not f.measured]:
        common.note(f"note: not drawn, as nothing was measured there: {', '.join(dict.fromkeys(elsewhere))}")
    with beside_an_answer():
        save_pictures([small_multiples(views, footer=provenance_of(run))], [file])


def _expected(forecast: "Forecast", rate: str, across: str) -> "tuple[tuple[float, Estimate, Estimate], ...]":
    """The predictions as (concurrency, latency, throughput), each with its band. E2E follows by
    Little's law, and requests per second from the answers' length.
    """
    osl = forecast.shape.osl.mean
    tokens = osl if rate == "request_throughput" else 1.0

    def e2e(p: "Prediction") -> Estimate:
        made, value = p.throughput, p.ttft.value + (osl - 1) * p.tpot.value
        return Estimate(value, value * made.value / made.high, value * made.value / made.low, made.n)

    latency: dict[str, Callable[[Prediction], Estimate]] = {
        "mean_ttft": lambda p: p.ttft,
        "mean_tpot": lambda p: p.tpot,
        "mean_e2e": e2e,
    }
    return tuple((p.concurrency, latency[across](p), p.throughput.scaled(1 / tokens)) for p in forecast.predictions)


def _concurrencies(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    if (numbers := whole_numbers(text, 1, 100_000)) is None:
        raise UsageError(f"--concurrency {text!r} is not a list of whole numbers", "write 1,2,4,256")
    return numbers
