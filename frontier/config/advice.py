"""Advice on a config: too few requests, limits on means, hardware that gives no bound."""

import math
from collections.abc import Iterator

from frontier.config.schema import TURNS, Config
from frontier.core.model.decisions import Limit
from frontier.core.model.metrics import claim_floor, fewest_to_bound
from frontier.fields import Problem

_EASIER = (0.99, 0.95, 0.9, 0.5)


def advice(config: Config) -> list[Problem]:
    """The warnings; each path leads to the key."""
    return [*_too_few(config), *_means(config), *_undefined(config), *_roofline(config)]


def _too_few(config: Config) -> Iterator[Problem]:
    """Advice where requests are too few for the percentiles of the SLA. A setting's repeats are
    pooled.

    The search sizes its own proofs; with it, only a grid that is too small to show where to look
    gets advice.
    """
    p = max((p for limit, _ in _limits(config) if (p := limit.of.p) is not None), default=None)
    if p is None or config.requests is None or config.open_loop:
        return
    repeats = config.repeats or 1
    if config.searches:
        lacking = [] if config.requests * repeats >= fewest_to_bound(p) else [min(config.loads)]
    else:
        lacking = [c for c in config.loads if _pooled(config, c) < claim_floor(p, c)]
    if not lacking:
        return
    c = max(lacking)
    pooled, enough = _pooled(config, c), claim_floor(p, c)
    product = f"{pooled // repeats:,} x {repeats} = " if repeats > 1 else ""
    where = "" if enough == claim_floor(p) else f" at concurrency {c}"
    what = f"{product}{pooled:,} requests are too few to claim a p{p * 100:g}{where} ({enough:,} are needed)"
    what += "" if config.searches else ", and refine: 0 measures no more"
    easier = next((q for q in _EASIER if q < p and claim_floor(q, c) <= pooled), None)
    other = f",  or ask for p{easier * 100:g} ({claim_floor(easier, c):,} are enough)" if easier else ""
    yield Problem(what, f"set  requests: {math.ceil(enough / repeats)}{other}", "requests")


def _pooled(config: Config, concurrency: int) -> int:
    """Requests of a setting's grid trials together."""
    return max(config.requests or 0, TURNS * concurrency) * (config.repeats or 1)


def _limits(config: Config) -> Iterator[tuple[Limit, tuple[str, ...]]]:
    """Every limit of every tier, with its path in the text."""
    for tier, limits in config.tiers:
        for limit in limits:
            yield limit, config.limit_path(tier, limit)


def _means(config: Config) -> Iterator[Problem]:
    for limit, path in _limits(config):
        if limit.of.is_mean:
            what = f"{limit.metric} limits a mean, which says nothing about the slowest requests"
            yield Problem(what, f"write {limit.metric.replace('mean', 'p99')} to bound the tail", *path)


def _undefined(config: Config) -> Iterator[Problem]:
    """Limits on a metric that no request of a shape has: nothing can ever meet them there."""
    for limit, path in _limits(config):
        labels = [shape.label for shape in config.shapes if limit.undefined(shape)]
        if labels:
            what = f"{limit.metric} is not defined at {', '.join(labels)}: an answer of one token has no second"
            yield Problem(what, "limit TTFT or E2E there, or ask for longer outputs", *path)


def _roofline(config: Config) -> Iterator[Problem]:
    """Hardware that is described but gives no bound: the model's sizes are not known, or nothing
    fits.
    """
    for i, deployment in enumerate(config.deployments):
        path = ("deployments", i, "hardware")
        described, roofline = deployment.hardware, deployment.roofline()
        if described is None or described.gpu() is None:
            continue
        if roofline is None:
            what = f"the sizes of {deployment.model or 'the model'} are not known, so its roofline is not either"
            yield Problem(what, "add under hardware  model: llama-3.1-8b  (or its config.json)", *path)
            continue
        for shape in config.shapes:
            try:
                roofline.limits(shape, 1)
            except ValueError as error:
                yield Problem(f"{shape.label}: {error}", "look at gpus, precision and model", *path)
                break
