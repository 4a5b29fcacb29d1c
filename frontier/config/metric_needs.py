"""Metrics that a config limits or names as objectives, and what they need that it does not have."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from frontier.config.deployment import DeploymentConfig, QualityConfig
from frontier.config.end_keys import BudgetConfig
from frontier.config.sla import Tiers
from frontier.core.model.decisions import Limit
from frontier.core.model.metrics import metric
from frontier.core.model.shapes import Shape
from frontier.fields import Problem, shown


class _Keys(Protocol):
    """The keys of a config that give metrics what they need, and those that name metrics."""

    @property
    def background(self) -> Any: ...
    @property
    def budget(self) -> BudgetConfig: ...
    @property
    def deployments(self) -> Sequence[DeploymentConfig]: ...
    @property
    def given_objectives(self) -> Sequence[str] | None: ...
    @property
    def limits(self) -> tuple[Limit, ...]: ...
    @property
    def shapes(self) -> tuple[Shape, ...]: ...
    @property
    def tiers(self) -> Tiers: ...
    def limit_path(self, tier: str, limit: Limit) -> tuple[str, ...]: ...


_TO_GIVE: Mapping[str, tuple[str, str]] = {
    "price": ("needs a price", "write  price: $12/h  for the whole deployment"),
    "limits": ("counts requests within the limits, and there are none", "add  sla: {p99_ttft: 500ms}"),
    "background": ("needs a background", "add  background: {shape: 8192/512, concurrency: [0, 8, 16]}"),
}
"""What is missing for a metric with a need, and how to give it."""
_AFTERWARDS: Mapping[str, tuple[str, str]] = {
    "power": (
        "by energy: its power is known only when it is over",
        "decide afterwards:  frontier solve --sla 'p99_ttft<=500ms, energy<=0.5'",
    ),
    "quality": (
        "by a quality that is not known",
        "state it as  quality: 0.95,  or decide afterwards:  frontier solve --sla 'quality>=0.95'",
    ),
    "agreement": (
        "by an agreement that is measured after it",
        "decide by it afterwards:  frontier solve --sla 'agreement>=98%'",
    ),
}
"""By what a sweep cannot decide, though the metric may be known when it is over."""


def wrong_metrics(config: _Keys) -> Iterator[Problem]:
    """Problems of metrics that nothing gives a value, or whose class no shape has."""
    lacking = _lacking(config)
    if config.budget.cost is not None and "price" in lacking:
        yield Problem("a budget in dollars needs a price", _TO_GIVE["price"][1], "budget", "cost")
    yield from _wrong_limits(config, lacking)
    yield from _unknown_references(config)
    yield from _unknown_classes(config)
    for i, of in enumerate(map(metric, config.given_objectives or ())):
        if of.needs in lacking and of.needs in _TO_GIVE:
            what, how = _TO_GIVE[of.needs]
            whose = of.name if of.needs == "limits" else f"the objective {of.name}"
            yield Problem(f"{whose} {what}", how, "objectives", i)


def _lacking(config: _Keys) -> set[str]:
    """The needs (`metrics.NEEDS`) that the config does not meet."""
    met = {
        "price": all(d.price is not None for d in config.deployments),
        "limits": bool(config.limits),
        "quality": all(d.stated_quality is not None for d in config.deployments),
        "background": config.background is not None,
    }
    return {need for need in (*_TO_GIVE, *_AFTERWARDS) if not met.get(need)}


def _wrong_limits(config: _Keys, lacking: set[str]) -> Iterator[Problem]:
    """Limits on metrics that have no value while a sweep decides."""
    said = set[str]()
    for tier, limit in ((tier, limit) for tier, limits in config.tiers for limit in limits):
        of = limit.of
        if of.needs == "background" and "background" not in lacking:
            what = "the most background is what is looked for, and needs no limit"
            yield Problem(what, f"remove it; {of.name} is among the results", *config.limit_path(tier, limit))
        elif of.needs in lacking and of.needs not in said and of.needs != "limits":
            said.add(of.needs)
            what, how = _TO_GIVE.get(of.needs) or _AFTERWARDS[of.needs]
            whose = "a sweep cannot decide" if of.needs in _AFTERWARDS else f"a limit on {of.name}"
            yield Problem(f"{whose} {what}", how, "sla")


def _unknown_classes(config: _Keys) -> Iterator[Problem]:
    """Limits and objectives on a class of requests that no shape has."""
    classes = list(dict.fromkeys(name for shape in config.shapes for name in shape.classes))
    asked = {limit.of.group: config.limit_path(tier, limit) for tier, limits in config.tiers for limit in limits}
    asked |= {metric(name).group: ("objectives",) for name in config.given_objectives or ()}
    for group, path in asked.items():
        if group is not None and group not in classes:
            hint = "sessions have the classes first and later:  shapes: [{turns: 8, ...}]"
            hint = f"there are {', '.join(classes)}" if classes else hint
            yield Problem(f"no shape has requests of the class {group}", hint, *path)


def _unknown_references(config: _Keys) -> Iterator[Problem]:
    """References of a quality that are no deployment."""
    names = [d.name for d in config.deployments]
    for reference in (d.quality.reference for d in config.deployments if isinstance(d.quality, QualityConfig)):
        if reference not in names:
            yield Problem(
                f"quality: no deployment is called {shown(reference)}", f"there are {', '.join(names)}", "deployments"
            )
