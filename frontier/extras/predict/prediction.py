"""Prediction of a server's frontier: before measuring, and between and beyond measured points.

Before anything is measured, the engine model runs in virtual time at an assumed efficiency. The
assumption is plain: every step costs a fixed overhead, plus the roofline of its work at a share of
the peak. Its error was measured on aiconfigurator's silicon sample (239 points,
docs/validation/how-often-right.md), and gives the bands. Of TTFT it only predicts an idle prefill:
on real servers requests come in waves and wait for more than the engine.

A prediction says where to measure. It proves nothing, and no operating point is chosen from it.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from frontier.config import Config, DeploymentConfig
from frontier.core.model.decisions import Limit
from frontier.core.model.errors import UsageError
from frontier.core.model.loads import doublings
from frontier.core.model.points import Estimate, Point
from frontier.core.model.series import Series, by_series
from frontier.core.model.shapes import Shape
from frontier.core.model.text import suggestion
from frontier.core.model.units import whole_number
from frontier.extras.predict.fit import Calibrated, Forecast, Known, Prediction
from frontier.extras.predict.model_file import sizes_in
from frontier.extras.predict.sla_break import of_engine, of_points, sla_break
from frontier.hardware.gpus import HARDWARE
from frontier.hardware.known_names import GPU_BY_FIGURES, name_hint
from frontier.hardware.models import card
from frontier.hardware.roofline import Limits, ModelRoofline, Roofline, limits_if_any
from frontier.simulator.spec import EngineSpec, Speculation, kv_blocks
from frontier.simulator.spec import roofline_of as spec_roofline
from frontier.simulator.virtual import closed_loop_arrays

EFFICIENCY = 0.6
"""Share of the roofline that an engine reaches, where nothing was measured."""
OVERHEAD = 2e-3
"""Seconds of a step beside its work, where nothing was measured."""
LEAST = 3
"""Fewest measured points of a fit."""
BATCHED_TOKENS = 8192
"""Token budget of a step, where none is known."""
RUNNING = 1024
"""Requests that run at once, where no cap is known."""
WITHOUT_BACKGROUND = "predict a copy of its config without  background:"
WITHOUT_RATE = "predict a copy of its config that has  concurrency: 1..128  in place of the rate"
WHAT_IFS = ("hardware", "tp", "pp", "ep", "model", "precision", "kv_precision", "max_num_seqs", "isl", "osl")
DENSE_LESS = 0.15
"""The share of the throughput predicted beyond the points by which a model without experts falls
short, where no model is named. It is the median of 36 series of aiconfigurator's silicon sample,
each predicted from its four lowest points. With its model named the median is 3%."""
_TPOT_BAND, _THROUGHPUT_BAND = (-0.43, 0.56), (-0.62, 0.43)
"""Log of measured over predicted: where 95 of 100 measured points lay."""
_LEAST_REQUESTS = 32


# --- the engine model at an assumed efficiency


@dataclass(frozen=True, slots=True)
class Assumption:
    """The simulated engine. `known`: it is the very engine asked about, so nothing is assumed."""

    spec: EngineSpec
    known: bool = False

    @property
    def text(self) -> str:
        """The assumption in words, for the reader of a prediction."""
        spec = self.spec
        if self.known:
            return "the simulated engine itself, in virtual time"
        drafts = ""
        if spec.speculation is not None:
            drafts = f"; {spec.speculation.tokens} drafts a step, {spec.speculation.acceptance:.0%} accepted"
        return (
            f"every step at {spec.efficiency:.0%} of the roofline plus {spec.overhead * 1e3:g} ms, in all less than "
            f"{spec.efficiency:.0%}; "
            f"chunks of {spec.max_batched_tokens:,} tokens, at most {spec.max_num_seqs:,} running{drafts}"
        )


def assumption(deployment: DeploymentConfig, efficiency: float = EFFICIENCY) -> tuple[Assumption, Roofline | None]:
    """The engine that stands for a deployment, and its roofline. UsageError when too little is
    described.
    """
    roofline = deployment.roofline()
    if deployment.is_simulator:
        return Assumption(deployment.engine_spec(), known=True), roofline
    if not isinstance(roofline, ModelRoofline):
        unknown, hints = zip(*_unknown(deployment), strict=True)
        raise UsageError(f"{deployment.name}: {' and '.join(unknown)}", "\n  ".join(hints))
    speculation = deployment.hardware.speculation if deployment.hardware is not None else None
    return Assumption(assumed_engine(roofline, efficiency, speculation)), roofline


def _unknown(deployment: DeploymentConfig) -> Iterator[tuple[str, str]]:
    """What a prediction lacks of a deployment, each with what to write: the sizes of its model, the
    figures of its GPU.
    """
    stated, named = deployment.hardware, deployment.model
    if stated is not None and stated.weights is not None:
        yield "weights in bytes are no sizes of a model", "name its model, or predict from a run:  frontier predict RUN"
        return
    if stated is None or stated.model is None:
        try:
            card(named or "")
        except ValueError as problem:
            what = f"the sizes of the model {named!r} are not known" if named else "no model is named"
            yield what, f"model: {getattr(problem, 'hint', problem)}"
    if stated is None or stated.gpu() is None:
        name = stated.name if stated is not None else None
        what = f"the figures of the GPU {name!r} are not known" if name else "no GPU is named"
        yield what, f"hardware: {name_hint((name or '').lower(), HARDWARE, GPU_BY_FIGURES)}"


def assumed_engine(
    roofline: ModelRoofline,
    efficiency: float = EFFICIENCY,
    speculation: Speculation | None = None,
) -> EngineSpec:
    """An engine on this model and GPU at an efficiency. UsageError when the weights do not fit."""
    most = roofline.max_num_seqs or RUNNING
    spec = EngineSpec(
        model_name=roofline.model.name,
        model=roofline.model,
        hardware=roofline.gpu,
        tp=roofline.tp,
        pp=roofline.pp,
        ep=roofline.ep,
        precision=roofline.precision,
        kv_precision=roofline.kv_precision,
        efficiency=efficiency,
        overhead=OVERHEAD,
        max_num_seqs=most,
        max_batched_tokens=max(BATCHED_TOKENS, most * roofline.per_step),
        speculation=speculation,
    )
    try:
        spec.check()
    except ValueError as error:
        raise _usage_error(error, hint="look at hardware and model") from None
    return spec


def _usage_error(error: ValueError, hint: str, before: str = "") -> UsageError:
    """The error of a spec, 'what; hint', as a usage error; `hint` where it has none of its own."""
    what, _, own = str(error).partition("; ")
    return UsageError(before + what, own or hint)


def predict(assumed: Assumption, shape: Shape, concurrency: int) -> Prediction:
    """Mean TTFT and TPOT and the throughput to expect at a concurrency. ValueError when a request
    does not fit.
    """
    spec = dataclasses.replace(assumed.spec, prefix_cache=assumed.spec.prefix_cache or shape.cached > 0)
    run = closed_loop_arrays(spec, shape, concurrency, requests=max(_LEAST_REQUESTS, concurrency))
    ttft, rate = float(run.ttft.mean()), run.output_throughput
    tpot = 0.0 if np.isnan(run.tpot).all() else float(np.nanmean(run.tpot))
    n = len(run.ttft)
    running = _running(spec, shape, concurrency)
    if assumed.known:
        exact = [Estimate(value, value, value, n) for value in (ttft, tpot, rate)]
        return Prediction(concurrency, exact[0], exact[1], exact[2], running, "simulated")

    def banded(value: float, band: tuple[float, float]) -> Estimate:
        return Estimate(value, value * math.exp(band[0]), value * math.exp(band[1]), n)

    return Prediction(
        concurrency,
        Estimate(ttft, ttft, math.inf, n),
        banded(tpot, _TPOT_BAND),
        banded(rate, _THROUGHPUT_BAND),
        running,
        "unmeasured",
    )


def _running(spec: EngineSpec, shape: Shape, concurrency: int) -> float:
    """The number of requests, out of a concurrency, that fit at once."""
    context = shape.isl.mean + shape.osl.mean / 2
    room = kv_blocks(spec) * spec.block_size * (1 - spec.watermark) / context
    return min(concurrency, spec.max_num_seqs, room)


# --- from a config


PREDICTED = 128
"""The highest predicted concurrency where the config lists none."""


def require_closed_loop(config: Config) -> None:
    """UsageError for a config whose load is a rate, or has a background: the engine model predicts
    for requests of one shape in flight.
    """
    if config.open_loop:
        raise UsageError("a rate is not predicted, only a concurrency", WITHOUT_RATE)
    if config.background is not None:
        raise UsageError("a background is not predicted, only a shape alone", WITHOUT_BACKGROUND)


def predict_config(config: Config, changes: Sequence[str] = (), efficiency: float = EFFICIENCY) -> list[Forecast]:
    """The engine model's prediction for each deployment and shape without any measurement, and with
    each what-if. UsageError when a deployment's model or hardware is not known.
    """
    require_closed_loop(config)
    settings = doublings(1, PREDICTED) if config.auto else config.loads
    forecasts = []
    for deployment in config.deployments:
        assumed, roofline = assumption(deployment, efficiency)
        for shape in config.shapes:
            wanted = [(assumed, roofline, shape, ""), *((*what_if(assumed, shape, each), each) for each in changes)]
            for engine, its_roofline, its_shape, change in wanted:
                made = _unmeasured(deployment.name, its_shape, settings, engine, its_roofline, change)
                values = of_engine(engine.spec, its_shape, config.limits)
                breaks = sla_break(config.limits, its_shape, settings, values)
                forecasts.append(dataclasses.replace(made, sla=breaks))
    return forecasts


def _unmeasured(
    deployment: str,
    shape: Shape,
    concurrencies: Sequence[int],
    assumed: Assumption,
    roofline: Roofline | None,
    variant: str = "",
) -> Forecast:
    """A prediction for each concurrency. UsageError when a request does not fit."""
    try:
        predictions = tuple(predict(assumed, shape, c) for c in concurrencies)
    except ValueError as error:
        raise UsageError(f"{shape.label}: {error}", "use shorter shapes, more GPUs or another precision") from None
    limits = tuple(limits_if_any(roofline, shape, c) for c in concurrencies)
    basis = f"{roofline.assumption}: {assumed.text}" if roofline and not assumed.known else assumed.text
    return Forecast(deployment, shape, basis, predictions, (), limits, variant)


def what_if(assumed: Assumption, shape: Shape, change: str) -> tuple[Assumption, Roofline | None, Shape]:
    """The engine, its roofline and the shape with something changed: 'hardware=b200,tp=4,isl=8192'.

    UsageError names the part that cannot be.
    """
    spec = assumed.spec
    if spec.model is None:
        raise UsageError(
            "--what-if needs a model and a GPU; this simulator has prices of its own",
            "write  simulator: {model: llama-3.1-8b, hardware: h100}",
        )
    given: dict[str, str] = {}
    for item in change.split(","):
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not value or key not in WHAT_IFS:
            raise UsageError(f"--what-if {item.strip()!r} is not understood", suggestion(key, WHAT_IFS))
        given[key] = value
    lengths = {key: _tokens(key, given.pop(key)) for key in ("isl", "osl") if key in given}
    if "model" in given:
        given.setdefault("precision", "")
    changed: dict[str, Any] = {key: value or None for key, value in given.items()}
    if (model := given.get("model", "")).startswith("@"):
        changed["model"] = sizes_in(model[1:])
    try:
        spec = EngineSpec.from_mapping(spec.to_mapping() | changed)
    except ValueError as error:
        raise _usage_error(error, hint="see  frontier predict --help", before="--what-if: ") from None
    if lengths:
        isl, osl = lengths.get("isl", round(shape.isl.mean)), lengths.get("osl", round(shape.osl.mean))
        shape = dataclasses.replace(Shape.of(isl, osl), prefix=shape.prefix)
    return dataclasses.replace(assumed, spec=spec), spec_roofline(spec), shape


def _tokens(key: str, value: str) -> int:
    tokens = whole_number(value, 1, 10_000_000)
    if tokens is None:
        raise UsageError(f"--what-if {key}={value}: not a number of tokens", f"write {key}=8192")
    return tokens


# --- from what was measured


def predict_points(
    points: Iterable[Point],
    roofline_of: Callable[[str], Roofline | None],
    concurrencies: Sequence[int] = (),
    shapes: Sequence[Shape] = (),
    limits: Sequence[Limit] = (),
) -> list[Forecast]:
    """Fit every (deployment, shape) with enough points; `shapes` are predicted from the nearest of
    them.

    `limits` are the SLA. `roofline_of` gives a deployment's roofline; None where its hardware is
    not described. Concurrencies default to half octaves up to twice the highest measured.

    UsageError when nothing can be fitted. Sessions and mixes cannot: N sessions are not N requests
    in flight, and no model here predicts their number, or handles requests of several shapes.
    """
    every = tuple(points)
    points = tuple(point for point in every if point.shape.kind == "shape")
    if every and not points:
        shape = every[0].shape
        what = f"{shape.label} is a {shape.kind}, and the model that is fitted to points knows one shape alone"
        instead = {"shape beside a background": WITHOUT_BACKGROUND}
        raise UsageError(what, instead.get(shape.kind, "predict without the points:  frontier predict CONFIG"))
    if any(point.shape.arrivals is not None for point in points):
        raise UsageError("this run was measured at rates, and only a concurrency is predicted", WITHOUT_RATE)
    fits = _fits(points)
    if not fits:
        raise UsageError(
            f"no shape of this run has {LEAST} valid points of different concurrency to fit to",
            "measure more concurrencies, or predict without a measurement:  frontier predict CONFIG",
        )
    forecasts = []
    for series, known in fits.items():
        roofline = roofline_of(series.deployment)
        model = _calibrated(known, series.shape, roofline)
        basis = _basis(known, roofline)
        predictions = [model.at(c) for c in concurrencies or _between_and_beyond(known)]
        made = _held(series, basis, predictions, roofline, known)
        mine = [point for point in points if point.series == series and point.valid]
        settings = sorted({*(round(k.concurrency) for k in known), *(round(p.concurrency) for p in predictions)})
        values = of_points(mine, limits, series.shape, partial(_mean, model))
        forecasts.append(dataclasses.replace(made, sla=sla_break(limits, series.shape, settings, values)))
    for deployment in dict.fromkeys(series.deployment for series in fits):
        roofline = roofline_of(deployment)
        forecasts += [_other_shape(fits, roofline, Series(deployment, shape), concurrencies) for shape in shapes]
    return forecasts


def _basis(known: Sequence[Known], roofline: Roofline | None) -> str:
    """The points that a fit stands on, and the assumption about a model that is not named."""
    fitted = f"Fitted to c={', '.join(f'{p.concurrency:g}' for p in known)}"
    if isinstance(roofline, ModelRoofline):
        return fitted
    less = f"a dense one would give about {DENSE_LESS:.0%} less beyond these settings"
    name = "To name it:  hardware: {name: h100, model: llama-3.1-8b}"
    return f"{fitted}. The model is not known and taken as a mixture of experts: {less}. {name}"


def _mean(model: Calibrated, quantity: str, concurrency: int) -> float:
    """The predicted mean of a latency."""
    at = model.at(concurrency)
    ttft, tpot = at.ttft.value, at.tpot.value
    return {"ttft": ttft, "tpot": tpot, "e2e": ttft + (model.osl - 1) * tpot}[quantity]


def _fits(points: Iterable[Point]) -> dict[Series, tuple[Known, ...]]:
    """The series that can be fitted, with their points: valid ones without a failed request, means
    in seconds.
    """
    fits = {}
    for series, group in by_series(points).items():
        ordered = sorted(group, key=lambda p: p.concurrency)
        known = tuple(k for p in ordered if (k := _known(p)) is not None)
        if len({k.concurrency for k in known}) >= LEAST:
            fits[series] = known
    return fits


def _known(point: Point) -> Known | None:
    ttft, tpot = point.value("mean_ttft"), point.value("mean_tpot")
    usable = point.valid and 0 < ttft < math.inf and 0 < tpot < math.inf
    return Known(point.concurrency, ttft, tpot, point.value("output_throughput")) if usable else None


def _calibrated(known: Sequence[Known], shape: Shape, roofline: Roofline | None) -> Calibrated:
    known_model = roofline if isinstance(roofline, ModelRoofline) else None
    return Calibrated(known, shape.isl.mean, shape.osl.mean, known_model)


def _between_and_beyond(known: Sequence[Known]) -> list[int]:
    """Concurrencies that were not measured and are worth a prediction: half octaves, up to twice
    the highest.
    """
    low, high = known[0].concurrency, known[-1].concurrency
    steps = round(2 * math.log2(2 * high / low))
    half_octaves = {round(low * 2 ** (i / 2)) for i in range(steps + 1)}
    measured = {round(k.concurrency) for k in known}
    return sorted(c for c in half_octaves if all(abs(math.log2(c / m)) > 0.2 for m in measured))


def _other_shape(
    fits: dict[Series, tuple[Known, ...]], roofline: Roofline | None, series: Series, concurrencies: Sequence[int]
) -> Forecast:
    """A shape that was not measured, from the measured shape most like it."""
    isl, osl = series.shape.isl.mean, series.shape.osl.mean

    def distance(other: Series) -> float:
        return abs(math.log(other.shape.isl.mean / isl)) + abs(math.log(other.shape.osl.mean / osl))

    nearest = min((other for other in fits if other.deployment == series.deployment), key=distance)
    model = _calibrated(fits[nearest], nearest.shape, roofline)
    wanted = concurrencies or [round(k.concurrency) for k in fits[nearest]]
    basis = f"Carried over from {nearest.shape.label}" + (
        "" if isinstance(roofline, ModelRoofline) else ", without a roofline"
    )
    return _held(series, basis, [model.elsewhere(isl, osl, c) for c in wanted], roofline)


def _held(
    series: Series,
    basis: str,
    predictions: Sequence[Prediction],
    roofline: Roofline | None,
    measured: tuple[Known, ...] = (),
) -> Forecast:
    """A forecast capped by the roofline; `basis` names the concurrencies that had to be slowed."""
    limits = tuple(limits_if_any(roofline, series.shape, max(1, round(p.concurrency))) for p in predictions)
    held = tuple(not_faster(p, at, series.shape.osl.mean) for p, at in zip(predictions, limits, strict=True))
    slowed = [p.concurrency for p, q in zip(predictions, held, strict=True) if q.throughput.value < p.throughput.value]
    at_most = f"Held at the roofline: c={', '.join(f'{c:g}' for c in slowed)}. " if slowed else ""
    return Forecast(series.deployment, series.shape, at_most + basis, held, measured, limits)


def not_faster(prediction: Prediction, limits: Limits | None, osl: float) -> Prediction:
    """A prediction whose throughput, and the end of its band, is at most the roofline's. The time
    that this adds to a request goes to its TPOT, or to its TTFT where it has only one token.
    """
    if limits is None or prediction.throughput.high <= limits.throughput:
        return prediction
    rate, most = prediction.throughput, limits.throughput
    held = dataclasses.replace(rate, value=min(rate.value, most), low=min(rate.low, most), high=most)
    longer = prediction.concurrency * osl * (1 / held.value - 1 / rate.value) / max(osl - 1, 1)
    ttft, tpot = prediction.ttft, prediction.tpot
    if osl > 1:
        return dataclasses.replace(prediction, throughput=held, tpot=tpot.scaled(1 + longer / tpot.value))
    return dataclasses.replace(prediction, throughput=held, ttft=ttft.scaled(1 + longer / ttft.value))
