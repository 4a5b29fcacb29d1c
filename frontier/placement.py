"""Whether a grid lies where its SLA is decided, as far as the engine model can say before anything is measured.

Advice for whoever wrote the config. It speaks only where the whole band of a prediction lies on one side of a limit,
and nothing is left out, added or decided by it.
"""

from frontier.config import Config
from frontier.engine.expect import Assumption, expect
from frontier.engine.predict import Prediction
from frontier.errors import MisaskedError
from frontier.forecast import assumption
from frontier.metrics import metric
from frontier.model import Limit, Shape
from frontier.present.wording import limit_text

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
        except MisaskedError:
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
