"""python -m benchmarks.calibration.mixes [--deployments N] [--family NAME] [--results FILE]

Sessions and mixes of the embedded engine in virtual time, with a truth by class: how often an
answer breaks the limits of a class. Each deployment is a line of the results file; started again
with the same file, the study goes on. The table goes to standard output.
"""

import argparse
import functools
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.calibration.__main__ import known
from frontier.config import Config, load_config
from frontier.core.claim import solver
from frontier.core.claim.changes import History
from frontier.core.claim.claimed import claim_points
from frontier.core.claim.proof import pilot_point
from frontier.core.model.decisions import Decision
from frontier.core.model.shapes import Shape
from frontier.core.window.from_records import window_data
from frontier.planning.plan import make_trial, search_policy
from frontier.search import auto, scan
from frontier.search.next_trial import Done
from frontier.simulator import virtual
from frontier.simulator.virtual import virtual_trial
from tests.kit.virtual_truth import truth

FAMILIES = ("sessions", "mix", "mix with sessions", "shares")
TOP, MOST, LONG = 32, 60, 4_000
"""The highest concurrency; trials of a sweep at most; requests that a truth is computed from."""
LONGER = 20_000
"""Requests of a truth over shares, whose ends are compared with the limit itself."""
SHARES = (10, 25, 40, 55, 70)
"""Percent of long prompts in a sweep over shares. Its limit breaks at a share drawn between the
first and the last."""
RISES = 1.15
"""How much more the limited latency of the other class is at the last share than at the first, at
least."""
Result = dict[str, Any]
virtual.simulate = functools.lru_cache(maxsize=8)(virtual.simulate)  # every limit looks at the same long run


def deployment(family: str, seed: int) -> Result:
    """Of one drawn deployment: each answer, the worst of its limits in truth there over what is
    allowed; JSON-able.
    """
    if family == "shares":
        return _over_shares(seed)
    rng = np.random.default_rng([seed, 15, FAMILIES.index(family)])
    text = _engine(rng, family in ("sessions", "mix with sessions")) + _traffic(rng, family)
    bare = load_config(text + f"concurrency: {[1, TOP]}\n", "mixes")
    first = bare.shapes[0]
    at = round(float(np.exp(rng.uniform(np.log(3), np.log(12)))))
    names = [f"{group}.p90_{rng.choice(['ttft', 'e2e'])}" for group in first.finest(None)]
    spec = bare.deployments[0].engine_spec()
    reached = {name: truth(spec, first, at, name, LONG) for name in names}
    loosest = rng.choice(names)  # one limit has room, so that another binds
    limits = {n: v * (rng.uniform(1.2, 2) if n == loosest and len(names) > 1 else 1.02) for n, v in reached.items()}
    sla = ", ".join(f"{name}: {1e3 * limit:.3f}ms" for name, limit in limits.items())
    config = load_config(f"{text}concurrency: {[2**k for k in range(6)]}\nsla: {{{sla}}}\n", "mixes")
    decisions = [_decided(config, shape) for shape in config.shapes]
    return {"family": family, "seed": seed, "at": at, "answers": [_answered(config, d, LONG) for d in decisions]}


def _answered(config: Config, decision: Decision, requests: int) -> Result:
    c = decision.load
    return {"c": c, "excess": None if c is None else _excess(config, decision.shape, c, requests)}


def _over_shares(seed: int) -> Result:
    """Of a sweep over shares with `--prove` of one concurrency, whose limit breaks at a drawn share
    (`edge`).
    """
    for attempt in range(100):
        rng = np.random.default_rng([seed, 15, FAMILIES.index("shares"), attempt])
        text, edge = _engine(rng, caches=False), round(float(rng.uniform(SHARES[0] + 3, SHARES[-1] - 3)), 1)
        at = round(float(np.exp(rng.uniform(np.log(3), np.log(12)))))
        name = f"chat.{rng.choice(['p50_ttft', 'p50_e2e', 'p90_e2e', 'p90_ttft'])}"
        traffic = _traffic(rng, "shares")
        low, there, high = (_at_share(text + traffic, share, at, name) for share in (SHARES[0], edge, SHARES[-1]))
        if high >= RISES * low and low < there < high:
            break
    listed = ", ".join(f"{share}%" for share in SHARES)
    sla = f"concurrency: [{at}]\nsla: {{{name}: {1e3 * there:.4f}ms}}\n"
    config = load_config(text + traffic.replace("SHARE", f"[{listed}]") + sla, "mixes")
    decisions = [_decided(config, shape, (at,)) for shape in config.shapes]
    return {
        "family": "shares",
        "seed": seed,
        "at": at,
        "metric": name,
        "edge": edge / 100,
        "rise": high / low,
        "answers": [_answered(config, d, LONGER) for d in decisions],
    }


def _at_share(text: str, share: float, at: int, name: str) -> float:
    """The truth of a metric with this share of long prompts."""
    config = load_config(text.replace("SHARE", f"{share}%"), "mixes")
    return truth(config.deployments[0].engine_spec(), config.shapes[0], at, name, LONGER)


def _engine(rng: np.random.Generator, caches: bool) -> str:
    return (
        "endpoint: simulator\n"
        f"simulator: {{step_base: {rng.uniform(4, 12):.2f}ms, per_decode: {rng.uniform(20, 120):.0f}us, "
        f"per_prefill_token: {rng.uniform(10, 50):.0f}us, prefix_cache: {str(caches).lower()}, "
        f"noise: {rng.uniform(0, 0.1):.3f}, "
        f"seed: {rng.integers(1_000_000)}}}\n"
    )


def _traffic(rng: np.random.Generator, family: str) -> str:
    """The shapes and their shares, with short outputs so that a study of many stays affordable."""
    osl, long, turns = rng.integers(6, 16), rng.integers(800, 1600), rng.integers(3, 6)
    agent = (
        f"{{name: agent, turns: {turns}, first: {rng.integers(200, 500)}, per_turn: {rng.integers(30, 80)}/{osl}, "
        f"think: {rng.uniform(0.1, 1):.2f}s}}"
    )
    if family == "sessions":
        return f"shapes: [{agent}]\n"
    chat = f"{{name: chat, isl: {{uniform: [64, 512]}}, osl: {osl}}}"
    other = agent if family == "mix with sessions" else f"{{name: rag, isl: {long}, osl: {rng.integers(8, 20)}}}"
    share = "SHARE" if family == "shares" else f"{rng.uniform(30, 60):.1f}%"
    name = "agent" if family == "mix with sessions" else "rag"
    return f"shapes: [{chat}, {other}]\ntraffic: {{chat: {{}}, {name}: {{share: {share}}}}}\n"


def _decided(config: Config, shape: Shape, prove: tuple[int, ...] = ()) -> Decision:
    """What the search of a sweep ends with, or the proof of the settings that it is asked for."""
    history: History = []
    policy, limits, served = search_policy(config, auto.MOST, prove), config.limits, config.deployments[0]
    while len(history) < MOST:
        ask = scan.next_ask(policy, shape, config.tiers, history)
        if isinstance(ask, Done):
            break
        repeat = 1 + sum((t.load, t.phase) == (ask.load, ask.phase) for t, _ in history)
        trial = make_trial(config, served, shape, ask.load, ask.phase, repeat, ask.requests, ask.seconds)
        records, measurement = virtual_trial(trial, served.engine_spec())
        history = [*history, (trial, window_data(measurement, records))]
    names = ("output_throughput", *(limit.metric for limit in limits))
    points = claim_points(history, limits, names=names)
    return solver.solve(points or [pilot_point(sample, limits) for _, sample in history[:1]], limits)


def _excess(config: Config, shape: Shape, c: int, requests: int) -> float:
    """The worst limit in the long run, over what it allows: above 1 it is broken."""
    spec = config.deployments[0].engine_spec()
    return max(truth(spec, shape, c, limit.metric, requests) / limit.promise for limit in config.limits)


def table(results: Sequence[Result]) -> str:
    """The counts by family, as Markdown."""
    heads = ("", "deployments", "answers", "break a limit", "by over 5%")
    lines = [f"| {' | '.join(heads)} |", "|---|--:|--:|--:|--:|"]
    for family in (*FAMILIES, "together"):
        mine = [r for r in results if family in (r["family"], "together")]
        answers = [a["excess"] for r in mine for a in r["answers"] if a["c"] is not None]
        broken, beyond = (sum(x > most for x in answers) for most in (1, 1.05))
        lines.append(f"| {family} | {len(mine)} | {len(answers)} | {broken} | {beyond} |")
    return "\n".join(lines)


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calibration.mixes", description=__doc__)
    parser.add_argument("--deployments", type=int, default=48)
    parser.add_argument("--family", choices=FAMILIES, help="only this one")
    parser.add_argument("--results", type=Path)
    asked = parser.parse_args()
    results = known(asked.results)
    done = {(r["family"], r["seed"]) for r in results}
    for i in range(asked.deployments):
        which = (FAMILIES[i % len(FAMILIES)], i // len(FAMILIES)) if asked.family is None else (asked.family, i)
        if which in done:
            continue
        results.append(deployment(*which))
        if asked.results is not None:
            with asked.results.open("a") as sink:
                sink.write(json.dumps(results[-1]) + "\n")
        print(f"\r{len(results)}/{asked.deployments}", end="", file=sys.stderr, flush=True)
    print(table(results))


if __name__ == "__main__":
    main()
