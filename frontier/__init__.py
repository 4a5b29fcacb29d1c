"""frontier: the throughput-latency frontier of an LLM deployment, and the concurrency proven within
its SLA.

Everything the command line does is a call of these names; each is imported when first used.

    import frontier

    run = frontier.run_sweep("sweep.yaml", "runs/tonight")    # or frontier.load("runs/tonight")
    run.frame()                                               # the points as a DataFrame
    run.solve("p99_ttft<=500ms")                              # the operating point of each shape
    frontier.compare_runs(run, frontier.load("runs/after"))   # did the frontier move
    frontier.compare_runs(run, deployments=("bf16", "fp8"))   # fp8 against bf16, of one run
"""

import importlib
from typing import TYPE_CHECKING, Any

from frontier import registry
from frontier._version import __version__

if TYPE_CHECKING:
    from frontier.config import Config, parse_sla
    from frontier.config.complaints import ConfigError
    from frontier.core.claim.pareto import nondominated
    from frontier.core.model.decisions import Decision, Limit, Verdict
    from frontier.core.model.errors import FrontierError, MeasurementError, StoreError, UsageError
    from frontier.core.model.metrics import Metric, metric
    from frontier.core.model.points import Estimate, Frontier, Point
    from frontier.core.model.shapes import Shape, ShapeError
    from frontier.extras.api.entry import load_config, run_sweep
    from frontier.extras.api.notebook_run import load
    from frontier.extras.compare.comparison_tables import compare_runs
    from frontier.extras.exchange.formats import import_files
    from frontier.planning.plan import make_plan
    from frontier.run import Run
    from frontier.store.documents import ForeignFileError

__all__ = [
    "Config",
    "ConfigError",
    "Decision",
    "Estimate",
    "ForeignFileError",
    "Frontier",
    "FrontierError",
    "Limit",
    "MeasurementError",
    "Metric",
    "Point",
    "Run",
    "Shape",
    "ShapeError",
    "StoreError",
    "UsageError",
    "Verdict",
    "__version__",
    "compare_runs",
    "import_files",
    "load",
    "load_config",
    "make_plan",
    "metric",
    "nondominated",
    "parse_sla",
    "run_sweep",
]

_HOMES = {
    "frontier.core.claim.pareto": ("nondominated",),
    "frontier.config": ("Config", "parse_sla"),
    "frontier.config.complaints": ("ConfigError",),
    "frontier.core.model.errors": ("FrontierError", "MeasurementError", "StoreError", "UsageError"),
    "frontier.core.model.metrics": ("Metric", "metric"),
    "frontier.core.model.decisions": ("Decision", "Limit", "Verdict"),
    "frontier.core.model.points": ("Estimate", "Frontier", "Point"),
    "frontier.core.model.shapes": ("Shape", "ShapeError"),
    "frontier.planning.plan": ("make_plan",),
    "frontier.run": ("Run",),
    "frontier.store.documents": ("ForeignFileError",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in registry.API:
        return registry.API[name].load()
    if name not in _HOME:
        raise AttributeError(f"module 'frontier' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
