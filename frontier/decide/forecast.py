"""What to expect before anything was measured: the engine at an assumed efficiency, in virtual time.

The assumption is plain: every step costs a fixed overhead, and the roofline of its work at a share of the peak. How
far that is off was measured on aiconfigurator's silicon sample (239 points, docs/prediction.md); the bands are those
errors. An idle prefill is all it can say of TTFT: on real servers requests come in waves and wait for more than the
engine.

Predicted frontiers: of a config before anything was measured, and of a run between and beyond what was measured.

A forecast says where to measure; it proves nothing, and nothing chooses an operating point from it.

Whether a grid lies where its SLA is decided, as far as the engine model can say before anything is measured.

Advice for whoever wrote the config. It speaks only where the whole band of a prediction lies on one side of a limit,
and nothing is left out, added or decided by it.
"""

import dataclasses
import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from frontier.config import Config, DeploymentConfig
from frontier.decide.wording import limit_text
from frontier.errors import UsageError
from frontier.hardware.predict import Calibrated, Forecast, Known, Prediction, calibrate
from frontier.hardware.roofline import Limits, ModelRoofline, Roofline
from frontier.metrics import metric
from frontier.model import Estimate, Limit, Point, Shape
from frontier.run import Run, by_setting
from frontier.simulator.spec import EngineSpec, Speculation
from frontier.simulator.step_cost import kv_blocks, roofline_of
from frontier.simulator.virtual import closed_loop_arrays, expected_e2e
from frontier.units import whole_number

EFFICIENCY = 0.6
OVERHEAD = 2e-3
_TPOT = (-0.43, 0.56)
_THROUGHPUT = (-0.62, 0.43)
"""Log of measured over expected: where 95 of 100 measured points lay."""
_LEAST_REQUESTS = 32


@dataclass(frozen=True, slots=True)
class Assumption:
    """The engine that is simulated; `known` says that it is the very engine asked about, so nothing is assumed."""

    spec: EngineSpec
    known: bool = False

    @property
    def text(self) -> str:
        """In words, for the reader of a prediction."""
        spec = self.spec
        if self.known:
            return "the simulated engine itself, in virtual time"
        drafts = (
            ""
            if spec.speculation is None
            else (f"; {spec.speculation.tokens} drafts a step, {spec.speculation.acceptance:.0%} accepted")
        )
        return (
            f"every step at {spec.efficiency:.0%} of the roofline plus {spec.overhead * 1e3:g} ms; "
            f"chunks of {spec.max_batched_tokens:,} tokens, at most {spec.max_num_seqs:,} running{drafts}"
        )


def expect(assumed: Assumption, shape: Shape, concurrency: int) -> Prediction:
    """Mean TTFT and TPOT and the throughput to expect at a concurrency. ValueError when a request does not fit."""
    spec = dataclasses.replace(assumed.spec, prefix_cache=assumed.spec.prefix_cache or shape.prefix > 0)
    run = closed_loop_arrays(spec, shape, concurrency, requests=max(_LEAST_REQUESTS, concurrency))
    ttft, rate = float(run.ttft.mean()), run.output_throughput
    step = 0.0 if np.isnan(run.tpot).all() else float(np.nanmean(run.tpot))
    n = len(run.ttft)
    running = _running(spec, shape, concurrency)
    if assumed.known:
        exact = [Estimate(value, value, value, n) for value in (ttft, step, rate)]
        return Prediction(concurrency, exact[0], exact[1], exact[2], running, "simulated")
    return Prediction(
        concurrency, Estimate(ttft, ttft, math.inf, n), _banded(step, _TPOT, n), _banded(rate, _THROUGHPUT, n),
        running, "unmeasured",
    )  # fmt: skip


def guess_e2e(assumed: Assumption, shape: Shape, concurrency: int) -> float | None:
    """A request's end-to-end latency in seconds by the prices alone, without simulating; None when it does not fit.

    Where not all can run at once the others wait their turn (Little's law).
    """
    spec = assumed.spec
    running = _running(spec, shape, concurrency)
    if running < 1:
        return None
    return expected_e2e(spec, shape, round(running)) * concurrency / running


def _running(spec: EngineSpec, shape: Shape, concurrency: int) -> float:
    """Requests that fit at once, of so many."""
    context = shape.isl.mean + shape.osl.mean / 2
    room = kv_blocks(spec) * spec.block_size * (1 - spec.watermark) / context
    return min(concurrency, spec.max_num_seqs, room)


def _banded(value: float, band: tuple[float, float], n: int) -> Estimate:
    return Estimate(value, value * math.exp(band[0]), value * math.exp(band[1]), n)


LEAST = 3
"""Measured points a fit needs."""
BATCHED_TOKENS = 8192
RUNNING = 1024


def of_config(
    config: Config, changes: Sequence[str] = (), efficiency: float = EFFICIENCY, overhead: float = OVERHEAD
) -> list[Forecast]:
    """What the engine model expects of each deployment and shape without any measurement, and with each what-if.

    UsageError when a deployment's model or hardware is not known.
    """
    found = []
    for deployment in config.deployments:
        assumed, light = assumption(deployment, efficiency, overhead)
        for shape in config.shapes:
            found.append(unmeasured(deployment.name, shape, config.concurrency, assumed, light))
            for change in changes:
                other, its_light, at = what_if(assumed, shape, change)
                found.append(unmeasured(deployment.name, at, config.concurrency, other, its_light, change))
    return found


def assumption(
    deployment: DeploymentConfig, efficiency: float = EFFICIENCY, overhead: float = OVERHEAD
) -> tuple[Assumption, Roofline | None]:
    """The engine that stands for a deployment, and its speed of light. UsageError when too little is described."""
    light = deployment.roofline()
    if deployment.is_simulator:
        return Assumption(deployment.engine_spec(), known=True), light
    if not isinstance(light, ModelRoofline):
        raise UsageError(
            f"{deployment.name}: a prediction without a measurement needs the model's sizes and the GPU",
            "write  hardware: {name: h100, model: llama-3.1-8b}  or predict from a run:  frontier predict RUN",
        )
    speculation = deployment.hardware.speculation if deployment.hardware is not None else None
    return Assumption(assumed_engine(light, efficiency, overhead, speculation)), light


def assumed_engine(
    roofline: ModelRoofline,
    efficiency: float = EFFICIENCY,
    overhead: float = OVERHEAD,
    speculation: Speculation | None = None,
) -> EngineSpec:
    """An engine on this model and GPU at an efficiency. UsageError when the weights do not fit."""
    of, most = roofline, roofline.max_num_seqs or RUNNING
    spec = EngineSpec(
        model_name=of.model.name, model=of.model, hardware=of.gpu, tp=of.tp, precision=of.precision,
        kv_precision=of.kv_precision, efficiency=efficiency, overhead=overhead, max_num_seqs=most,
        max_batched_tokens=max(BATCHED_TOKENS, most * of.per_step), speculation=speculation,
    )  # fmt: skip
    try:
        spec.check()
    except ValueError as error:
        what, _, hint = str(error).partition("; ")
        raise UsageError(what, hint or "look at hardware and model") from None
    return spec


def unmeasured(
    deployment: str,
    shape: Shape,
    concurrencies: Sequence[int],
    assumed: Assumption,
    light: Roofline | None,
    variant: str = "",
) -> Forecast:
    """Expectation by expectation. UsageError when a request does not fit."""
    try:
        found = tuple(expect(assumed, shape, c) for c in concurrencies)
    except ValueError as error:
        raise UsageError(f"{shape.label}: {error}", "use shorter shapes, more GPUs or another precision") from None
    lights = tuple(_limits(light, shape, c) for c in concurrencies)
    basis = f"{light.assumption}: {assumed.text}" if light and not assumed.known else assumed.text
    return Forecast(deployment, shape, basis, found, (), lights, variant)


def _limits(light: Roofline | None, shape: Shape, concurrency: float) -> Limits | None:
    try:
        return None if light is None else light.limits(shape, max(1, round(concurrency)))
    except ValueError:
        return None


# --- from what was measured


def of_run(run: Run, concurrencies: Sequence[int] = (), shapes: Sequence[Shape] = ()) -> list[Forecast]:
    """Every (deployment, shape) of a run with enough points, fitted; `shapes` are predicted from the nearest of them.

    Concurrencies default to a ladder to twice the highest measured. UsageError when nothing can be fitted.
    """
    fits = _fits(run)
    if not fits:
        raise UsageError(
            f"no shape of this run has {LEAST} valid points of different concurrency to fit to",
            "measure more concurrencies, or predict without a measurement:  frontier predict CONFIG",
        )
    found = []
    for (deployment, shape), known in fits.items():
        light = run.light(deployment)
        model = _calibrated(known, shape, light)
        asked = concurrencies or _ladder(known)
        basis = f"fitted to c = {', '.join(f'{p.concurrency:g}' for p in known)}"
        found.append(_lit(deployment, shape, basis, [model.at(c) for c in asked], light, known))
    for deployment in dict.fromkeys(deployment for deployment, _ in fits):
        found += [_elsewhere(run, fits, deployment, shape, concurrencies) for shape in shapes]
    return found


Fits = dict[tuple[str, Shape], tuple[Known, ...]]


def _fits(run: Run) -> Fits:
    """The settings that can be fitted, with their points: valid ones without a failed request, means in seconds."""
    found = {}
    for setting, points in by_setting(run.points()).items():
        known = tuple(k for p in sorted(points, key=lambda p: p.concurrency) if (k := _known(p)) is not None)
        if len({k.concurrency for k in known}) >= LEAST:
            found[setting] = known
    return found


def _known(point: Point) -> Known | None:
    ttft, tpot = point.metrics.get("mean_ttft"), point.metrics.get("mean_tpot")
    if not point.valid or ttft is None or tpot is None:
        return None
    if not (0 < ttft.value < math.inf and 0 < tpot.value < math.inf):
        return None
    return Known(point.concurrency, ttft.value, tpot.value)


def _calibrated(known: Sequence[Known], shape: Shape, light: Roofline | None) -> Calibrated:
    roofline = light if isinstance(light, ModelRoofline) else None
    return calibrate(known, shape.isl.mean, shape.osl.mean, roofline=roofline)


def _ladder(known: Sequence[Known]) -> list[int]:
    """Concurrencies worth saying something about that were not measured: half octaves, to twice the highest."""
    low, high = known[0].concurrency, known[-1].concurrency
    steps = round(2 * math.log2(2 * high / low))
    asked = {round(low * 2 ** (i / 2)) for i in range(steps + 1)}
    near = {round(k.concurrency) for k in known}
    return sorted(c for c in asked if all(abs(math.log2(c / k)) > 0.2 for k in near))


def _elsewhere(run: Run, fits: Fits, deployment: str, shape: Shape, concurrencies: Sequence[int]) -> Forecast:
    """Another shape, from the measured shape most like it."""

    def far(other: Shape) -> float:
        return abs(math.log(other.isl.mean / shape.isl.mean)) + abs(math.log(other.osl.mean / shape.osl.mean))

    here = min((of for name, of in fits if name == deployment), key=far)
    known, light = fits[deployment, here], run.light(deployment)
    model = _calibrated(known, here, light)
    asked = concurrencies or [round(k.concurrency) for k in known]
    said = [model.elsewhere(shape.isl.mean, shape.osl.mean, c) for c in asked]
    basis = f"carried over from {here.label}" + ("" if isinstance(light, ModelRoofline) else ", without a roofline")
    return _lit(deployment, shape, basis, said, light)


def _lit(
    deployment: str, shape: Shape, basis: str, said: Sequence[Prediction], light: Roofline | None,
    measured: tuple[Known, ...] = (),
) -> Forecast:  # fmt: skip
    """A forecast beside the speed of light, none of it faster; `basis` says from where on it had to be slowed."""
    lights = tuple(_limits(light, shape, p.concurrency) for p in said)
    held = tuple(not_faster(p, at, shape.osl.mean) for p, at in zip(said, lights, strict=True))
    slowed = [p.concurrency for p, q in zip(said, held, strict=True) if q.throughput.value < p.throughput.value]
    basis += f"; held at the speed of light at c = {', '.join(f'{c:g}' for c in slowed)}" if slowed else ""
    return Forecast(deployment, shape, basis, held, measured, lights)


def not_faster(said: Prediction, light: Limits | None, osl: float) -> Prediction:
    """A prediction with its throughput, and the end of its band, at most the ceiling.

    What a request takes longer for it goes to its TPOT, or to its TTFT where it has one token.
    """
    if light is None or said.throughput.high <= light.throughput:
        return said
    rate, most = said.throughput, light.throughput
    held = dataclasses.replace(rate, value=min(rate.value, most), low=min(rate.low, most), high=most)
    longer = said.concurrency * osl * (1 / held.value - 1 / rate.value) / max(osl - 1, 1)
    if osl > 1:
        return dataclasses.replace(said, throughput=held, tpot=_slower(said.tpot, longer))
    return dataclasses.replace(said, throughput=held, ttft=_slower(said.ttft, longer))


def _slower(latency: Estimate, seconds: float) -> Estimate:
    by = 1 + seconds / latency.value
    return dataclasses.replace(latency, value=latency.value * by, low=latency.low * by, high=latency.high * by)


# --- what if

WHAT_IFS = ("hardware", "tp", "model", "precision", "kv_precision", "max_num_seqs", "isl", "osl")


def what_if(assumed: Assumption, shape: Shape, change: str) -> tuple[Assumption, Roofline | None, Shape]:
    """The engine, its speed of light and the shape with something changed: 'hardware=b200,tp=4,isl=8192'.

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
            close = difflib.get_close_matches(key, WHAT_IFS, n=1)
            hint = f"did you mean {close[0]}?" if close and key != close[0] else "known: " + ", ".join(WHAT_IFS)
            raise UsageError(f"--what-if {item.strip()!r} is not understood", hint)
        given[key] = value
    lengths = {key: _tokens(key, given.pop(key)) for key in ("isl", "osl") if key in given}
    if "model" in given:
        given.setdefault("precision", "")
    try:
        spec = EngineSpec.from_mapping(spec.to_mapping() | {key: value or None for key, value in given.items()})
    except ValueError as error:
        what, _, hint = str(error).partition("; ")
        raise UsageError(f"--what-if: {what}", hint or "see  frontier predict --help") from None
    if lengths:
        isl, osl = lengths.get("isl", round(shape.isl.mean)), lengths.get("osl", round(shape.osl.mean))
        shape = dataclasses.replace(Shape.of(isl, osl), prefix=shape.prefix)
    return dataclasses.replace(assumed, spec=spec), roofline_of(spec), shape


def _tokens(key: str, value: str) -> int:
    tokens = whole_number(value, 1, 10_000_000)
    if tokens is None:
        raise UsageError(f"--what-if {key}={value}: not a number of tokens", f"write {key}=8192")
    return tokens


SPARE = 2.0
"""The edge is beyond the grid when even this many times the mean is inside every limit: a p99 is above its mean."""
_MOST_TOKENS = 3_000_000
"""More than this is not simulated for an advice: about a second."""


def misplaced(config: Config) -> list[str]:
    """A sentence for each (deployment, shape) whose concurrencies are expected to lie all outside the SLA, or all far
    inside. Only deployments whose hardware is described are spoken of, and only limits on TTFT, TPOT and E2E."""
    said = []
    for deployment in config.deployments:
        try:
            assumed, _ = assumption(deployment)
        except UsageError:
            continue
        name = "" if deployment.name == "default" else f"{deployment.name} "
        for shape in config.shapes:
            found = _grid(assumed, shape, config)
            said += [f"{name}{shape.label}: {found}"] if found else []
    return said


def _grid(assumed: Assumption, shape: Shape, config: Config) -> str | None:
    limits = config.limits
    if not limits or any(_quantity(limit) is None for limit in limits if not _is_share(limit)):
        return None
    latencies = [limit for limit in limits if not _is_share(limit)]
    low, high = min(config.concurrency), max(config.concurrency)
    try:
        at = expect(assumed, shape, low)
        for limit in latencies:
            if (least := _latency(at, shape, limit)[0]) > limit.promise:
                return (
                    f"the engine model expects even c={low} to break {limit_text(limit)}: its mean is at least "
                    f"{metric(limit.metric).format(least)}"
                )
        if not latencies or 3 * high * shape.osl.mean > _MOST_TOKENS:
            return None
        at = expect(assumed, shape, high)
    except ValueError:  # a request does not fit: the speed of light says so in its place
        return None
    if all(SPARE * _latency(at, shape, limit)[1] < limit.promise for limit in latencies):
        tight = max(latencies, key=lambda limit: _latency(at, shape, limit)[1] / limit.promise)
        return (
            f"the engine model expects c={high} to be far inside the SLA, its edge beyond the grid: at most "
            f"{metric(tight.metric).format(_latency(at, shape, tight)[1])} in the mean for {limit_text(tight)}; "
            f"--add-concurrency {2 * high} extends the sweep"
        )
    return None


def _is_share(limit: Limit) -> bool:
    """A limit on errors, of which a model knows none."""
    return limit.metric == "error_rate"


def _quantity(limit: Limit) -> str | None:
    of = metric(limit.metric)
    return of.quantity if of.quantity in ("ttft", "tpot", "e2e") and not of.inverted else None


def _latency(at: Prediction, shape: Shape, limit: Limit) -> tuple[float, float]:
    """The band of the mean of the limit's latency, in seconds."""
    quantity = _quantity(limit)
    if quantity == "ttft":
        return at.ttft.low, at.ttft.high
    if quantity == "tpot":
        return at.tpot.low, at.tpot.high
    steps = shape.osl.mean - 1
    return at.ttft.low + steps * at.tpot.low, at.ttft.high + steps * at.tpot.high
