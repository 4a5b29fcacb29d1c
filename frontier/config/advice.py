"""What a sound config probably does not mean: said before the night, not after it."""

import math

from frontier.config.schema import Config
from frontier.fields import Problem
from frontier.metrics import claim_floor, fewest_to_bound, metric, undefined

_EASIER = (0.99, 0.95, 0.9, 0.5)


def advice(config: Config) -> list[Problem]:
    """What to warn of; each path leads to the key."""
    return [*_too_few(config), *_means(config), *_undefined(config), *_roofline(config)]


def _too_few(config: Config) -> list[Problem]:
    """Too few requests for the percentiles the SLA names. A setting's repeats are pooled.

    What `refine` proves it sizes itself; then only a grid too small to tell where to look is worth a word.
    """
    asked = {metric(limit.metric).p: limit.metric for _, limits in config.tiers for limit in limits}
    named = [p for p in asked if p is not None]
    if not named:
        return []
    p = max(named)
    if config.refine:
        lacking = [] if config.requests * config.repeats >= fewest_to_bound(p) else [min(config.concurrency)]
    else:
        lacking = [c for c in config.concurrency if _pooled(config, c) < claim_floor(p, c)]
    if not lacking:
        return []
    c = max(lacking)
    pooled, enough = _pooled(config, c), claim_floor(p, c)
    each = pooled // config.repeats
    said = f"{each:,} x {config.repeats} = {pooled:,} requests" if config.repeats > 1 else f"{pooled:,} requests"
    at = "" if enough == claim_floor(p) else f" at concurrency {c}"
    what = f"{said} are too few to claim a p{p * 100:g}{at} ({enough:,} are needed)"
    what += "" if config.refine else ", and refine: 0 measures no more"
    easier = next((q for q in _EASIER if q < p and claim_floor(q, c) <= pooled), None)
    other = f",  or ask for p{easier * 100:g} ({claim_floor(easier, c):,} are enough)" if easier else ""
    return [Problem(what, f"set  requests: {math.ceil(enough / config.repeats)}{other}", "requests")]


def _pooled(config: Config, concurrency: int) -> int:
    return config.window_requests(concurrency) * config.repeats


def _means(config: Config) -> list[Problem]:
    found = []
    for tier, limits in config.tiers:
        for limit in limits:
            if metric(limit.metric).is_mean:
                path = ("sla", limit.metric) if len(config.tiers) == 1 else ("sla", tier, limit.metric)
                what = f"{limit.metric} limits a mean, which says nothing about the slowest requests"
                found.append(Problem(what, f"write {limit.metric.replace('mean', 'p99')} to bound the tail", *path))
    return found


def _undefined(config: Config) -> list[Problem]:
    """Limits on what no request of a shape has: nothing can ever keep them there."""
    found = []
    for tier, limits in config.tiers:
        for limit in limits:
            labels = [shape.label for shape in config.shapes if undefined(limit.metric, shape)]
            if labels:
                path = ("sla", limit.metric) if len(config.tiers) == 1 else ("sla", tier, limit.metric)
                what = f"{limit.metric} is not defined at {', '.join(labels)}: an answer of one token has no second"
                found.append(Problem(what, "limit TTFT or E2E there, or ask for longer outputs", *path))
    return found


def _roofline(config: Config) -> list[Problem]:
    """Hardware that is described and yet bounds nothing: the model's sizes are not known, or nothing fits."""
    problems = []
    for i, deployment in enumerate(config.deployments):
        path = ("deployments", i, "hardware")
        described, roofline = deployment.hardware, deployment.roofline()
        if described is None or described.gpu() is None:
            continue
        if roofline is None:
            what = f"the sizes of {deployment.model or 'the model'} are not known, so its roofline is not either"
            problems.append(Problem(what, "add under hardware  model: llama-3.1-8b  (or its config.json)", *path))
            continue
        for shape in config.shapes:
            try:
                roofline.limits(shape, 1)
            except ValueError as error:
                problems.append(Problem(f"{shape.label}: {error}", "look at gpus, precision and model", *path))
                break
    return problems
