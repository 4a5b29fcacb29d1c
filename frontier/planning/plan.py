"""The plan of a sweep: every trial of a config's grid in its order, with its cost.

Repeats are blocks, each with every setting once in an order of its own, so that a drift of the
machine during the sweep cannot look like an effect of concurrency. Deployments alternate inside a
block, setting by setting, for the same reason. Each shape is run once at its lowest concurrency
first: that is cheap, and shows how long a request takes.

With a budget, and where the sweep sizes its trials itself, the most valuable trials come first, as
the end may be cut off. These are the lowest concurrency of each shape, then each next one that
halves the widest gap. Where `requests` is given, every setting is measured once before the search
for the operating point, and again after it. Otherwise the grid completes the frontier once the
operating point is proven. All of it is pure; `--dry-run` ends here.
"""

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from frontier.config import Config, DeploymentConfig, digest
from frontier.config.schema import TURNS
from frontier.config.shape_keys import described
from frontier.core.model.decisions import Cause
from frontier.core.model.errors import UsageError
from frontier.core.model.loads import Load, doublings
from frontier.core.model.series import Series
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Phase, Trial
from frontier.core.window.from_records import BATCH
from frontier.search.auto import MOST
from frontier.search.scan import SearchPolicy

GRID_REQUESTS, GRID_SECONDS = 1_000, 60.0
"""A grid trial that the sweep sizes itself ends with this many requests sent, or after this many
seconds of its window."""
STATED_SECONDS = 300.0
"""The longest window of a trial of stated `requests` where `max_time` is left out."""
PROOFS, PROOF_TRIALS = 3, 5
"""The most settings that a search without a stated `refine` proves or gives up, and the most trials
of each."""
RECORD_BYTES = 420
"""Bytes of a record on disk, on average, for the room that a sweep needs."""
TOKEN_BYTES = 6
"""Bytes on disk per output token of a record, for its gap."""
PROGRAM_BYTES, CONNECTION_BYTES, PROMPT_BYTES, SAMPLE_BYTES, GAP_BYTES = 200e6, 64e3, 32, 250, 80
"""Bytes in memory: the program at work; a request in flight; an input token of it; a measured
request; a gap of the records that are read at one time."""


@dataclass(frozen=True, slots=True)
class ToProve:
    """The settings that a user asked to be proven; nothing else is measured. They are the same
    `everywhere`, or in each series those that a run proved there. `named` is what the user wrote.

    >>> chat, rag = Series("", Shape.of(512, 256)), Series("", Shape.of(8192, 128))
    >>> base = ToProve.of_run("runs/base", {chat: (48,), rag: ()})
    >>> base.of(chat), base.of(rag), base.of(Series("fp8", chat.shape)), bool(base)
    ((48,), (), (48,), True)
    """

    everywhere: tuple[Load, ...] = ()
    named: str = ""
    by_series: Mapping[Series, tuple[Load, ...]] = field(default_factory=dict)

    @classmethod
    def of_run(cls, named: str, proven: Mapping[Series, tuple[Load, ...]]) -> "ToProve":
        """The settings that a run proved, by series."""
        return cls(tuple(sorted({c for settings in proven.values() for c in settings})), named, proven)

    def __bool__(self) -> bool:
        return bool(self.everywhere)

    @property
    def facts(self) -> dict[str, str]:
        """What a journal keeps of it; nothing where nothing was asked."""
        return {"prove": self.named} if self else {}

    def of(self, series: Series) -> tuple[Load, ...]:
        """The settings to prove in a series: those that the run proved in it, else in the same
        shape under another name, else in any series.
        """
        if series in self.by_series:
            return self.by_series[series]
        alike = {c for other, settings in self.by_series.items() if other.shape == series.shape for c in settings}
        return tuple(sorted(alike)) or self.everywhere


NO_PROOFS = ToProve()


def proofs_of(config: Config, asked: ToProve = NO_PROOFS) -> ToProve:
    """The settings to prove: those the user `asked` for. A background has one setting, which is
    always proven.
    """
    return ToProve(config.loads) if config.background is not None and not asked else asked


@dataclass(frozen=True, slots=True)
class Plan:
    """The grid in order; what the search for the operating point adds is estimated in `budget`.

    `expected_bytes` are on disk, `expected_memory` in memory. `refine` is the number of settings
    beyond the grid that the config allows the search; None: as many as it needs; 0: there is no
    search. `sized`: the config says how many requests a trial of the grid sends; otherwise the
    sizes are a guess.
    """

    trials: tuple[Trial, ...]
    deployments: tuple[str, ...]
    shapes: tuple[str, ...]
    refine: int | None
    expected_bytes: float
    expected_memory: float
    sized: bool

    def left(self, finished: Mapping[str, Trial]) -> tuple[Trial, ...]:
        """The trials that are not among the finished ones, by key. A trial that the sweep sizes
        itself may have had another size; any other counts only with the same fingerprint.
        """
        return tuple(
            t
            for t in self.trials
            if t.key not in finished or (self.sized and finished[t.key].fingerprint != t.fingerprint)
        )

    def summary(self, config: Config) -> dict[str, Any]:
        """JSON-able, for `--dry-run --json`."""
        return {
            "deployments": list(self.deployments),
            "shapes": list(self.shapes),
            "concurrency": None if config.open_loop else list(config.loads),
            "rate": [load.per_second for load in config.loads] if config.open_loop else None,
            "repeats": config.repeats or 1,
            "trials": [
                {
                    "key": t.key,
                    "deployment": t.deployment,
                    "shape": t.shape.label,
                    **t.load.facts,
                    "repeat": t.repeat,
                    "requests": t.requests,
                    "max_time": t.max_time,
                }
                for t in self.trials
            ],
            "requests_at_least": sum(trial.requests for trial in self.trials),
            "expected_bytes": round(self.expected_bytes),
            "expected_memory": round(self.expected_memory),
        }


def make_plan(config: Config, only: Sequence[str] = ()) -> Plan:
    """The plan of a config; the same config gives the same plan everywhere.

    `only` names the shapes and deployments that it is limited to; UsageError for a name without a
    shape or deployment.
    """
    shapes = _only([shape.label for shape in config.shapes], only)
    deployments = _only([d.name for d in config.deployments], only)
    if unknown := [name for name in only if name not in (*shapes, *deployments)]:
        names = [*(s.label for s in config.shapes), *(d.name for d in config.deployments if d.name != "default")]
        raise UsageError(f"there is no shape or deployment {unknown[0]!r}", f"there are: {', '.join(names)}")
    ordered = (trial for turn in in_turn(config.deployments) for trial in _turn_in_order(config, turn))
    trials = tuple(t for t in ordered if t.shape.label in shapes and t.deployment in deployments)
    sizes = [_bytes(trial) for trial in trials]
    pairs = len(deployments) * len(shapes)
    refine = config.refine if config.searches else 0
    proofs = pairs * (PROOFS if refine is None else refine) * PROOF_TRIALS
    return Plan(
        trials=trials,
        deployments=deployments,
        shapes=shapes,
        refine=refine,
        expected_bytes=sum(sizes) + proofs * max(sizes),
        expected_memory=_memory(trials),
        sized=config.requests is not None,
    )


def _bytes(trial: Trial) -> float:
    """The most bytes on disk for the records of a trial."""
    sent = trial.requests + 3 * trial.load
    if (rate := trial.load.per_second) is not None:
        sent = math.ceil(rate * trial.shape.requests * seconds_at(rate, trial))
    return sent * (RECORD_BYTES + TOKEN_BYTES * trial.shape.osl.mean)


def _memory(trials: Sequence[Trial]) -> float:
    """Bytes: the program, the prompts in flight, the samples of all trials, and the batch of
    records last read.
    """
    in_flight = max(t.streams * (CONNECTION_BYTES + PROMPT_BYTES * t.shape.isl.high) for t in trials)
    batch = max(min(BATCH, t.requests) * t.shape.osl.high * GAP_BYTES for t in trials)
    return PROGRAM_BYTES + in_flight + batch + SAMPLE_BYTES * sum(t.requests for t in trials)


def _only(names: list[str], wanted: Sequence[str]) -> tuple[str, ...]:
    """The wanted names; all names when none of them is wanted."""
    return tuple(name for name in names if name in wanted) or tuple(names)


def runs_grid(config: Config) -> bool:
    """Whether the trials of the grid are run because the config says so; otherwise the completion
    asks for settings.
    """
    return config.requests is not None or config.repeats is not None or config.refine == 0


def search_policy(
    config: Config, connections: int, prove: Sequence[Load] = (), deployment: str | None = None
) -> SearchPolicy:
    """The policy of the search on a deployment, by default the first.

    The client can hold `connections` at once; `prove` are the settings that the user asked to be
    proven.
    """
    of = config.deployments[0] if deployment is None else config.deployment(deployment)
    grid, repeats = config.loads, 1  # a listed setting is repeated by the plan
    if config.auto:
        grid, repeats = doublings(1, highest_tried(of, connections)[0]), config.repeats or 1
    return SearchPolicy(
        grid,
        config.requests,
        config.refine,
        tuple(prove),
        warmup=config.warmup,
        auto=config.auto,
        repeats=repeats,
        marginal_gain=config.marginal_gain,
    )


def highest_tried(deployment: DeploymentConfig, connections: int) -> tuple[int, Cause]:
    """The highest setting that `concurrency: auto` tries on a deployment, and why no higher one.
    The client can hold `connections` at once.
    """
    most, why = MOST, Cause.MOST_TRIED
    if (slots := deployment.slots) is not None and slots <= most:
        most, why = slots, Cause.STATED_SLOTS
    return (connections, Cause.CLIENT_CAPACITY) if connections < most else (most, why)


def in_turn(deployments: Iterable[DeploymentConfig]) -> list[list[DeploymentConfig]]:
    """The deployments that are up at one time: all that the user runs, together; then each that a
    sweep starts, alone.

    A turn is measured whole before the next begins.
    """
    listed = list(deployments)
    together = [d for d in listed if d.start is None]
    return [*([together] if together else []), *([d] for d in listed if d.start is not None)]


def make_trial(  # noqa: PLR0913
    config: Config,
    deployment: DeploymentConfig,
    shape: Shape,
    number: int,
    phase: Phase,
    repeat: int,
    requests: int,
    seconds: float | None = None,
    warmup: float = 0.0,
) -> Trial:
    """One trial, planned or proposed by the search. Its seed and fingerprint follow from the
    arguments alone.

    `seconds` bounds its window, which lasts `min_time` at least. A scan has no least warm-up,
    unless the config states one. At a rate the warm-up is at least `warmup` seconds, which the
    queue needs; sessions that think need the time until their last turn. At a rate without
    `max_time`, a trial may last twice the time of its warm-up and its arrivals. For a trace, a
    proof and a trial at a listed rate play enough of it that its parts do not differ much.

    Two trials differ in their seed as soon as they differ in anything, so no two share a prompt.
    """
    load = shape.load(number)
    identity = [config.seed, deployment.name, described(shape), load.stored, phase.value, repeat]
    seed = int(digest(identity)[:15], 16)
    if shape.arrivals is not None and (phase is Phase.PROVE or (phase is Phase.GRID and config.rate)):
        requests = max(requests, math.ceil(shape.arrivals.long_enough * shape.requests))
        seconds = seconds and max(seconds, 1000 * shape.arrivals.long_enough / load)
    print_of = [config.load(), deployment.canonical(), identity, requests]
    if seconds is not None:
        seconds = max(seconds, config.min_time)
        print_of.append(seconds)
    scan = phase is Phase.SCAN and "warmup" not in config.model_fields_set
    warmup = max(warmup, 0.0 if scan else config.warmup)
    max_time = max(config.trial_time, 2 * config.min_time)
    rate = load.per_second
    if rate is not None:
        warmup = max(warmup, shape.session_seconds(0.0))
        print_of.append(warmup)
        if config.max_time is None:
            max_time = max(max_time, 2 * (warmup + requests / (rate * shape.requests)))
    return Trial(
        deployment=deployment.name,
        shape=shape,
        load=load,
        repeat=repeat,
        phase=phase,
        requests=requests,
        seed=seed,
        warmup=warmup,
        min_time=config.min_time,
        max_time=max_time,
        fingerprint=digest(print_of)[:16],
        seconds=seconds,
    )


def _turn_in_order(config: Config, deployments: Sequence[DeploymentConfig]) -> list[Trial]:
    """The first cheap trials, then block after block."""

    def grid(deployment: DeploymentConfig, shape: Shape, load: Load, repeat: int) -> Trial:
        requests, seconds = grid_size(config, load)
        return make_trial(config, deployment, shape, load, Phase.GRID, repeat, requests, seconds)

    rng = random.Random(int(digest(["order", config.seed])[:15], 16))
    lowest = config.loads[0]
    trials = [grid(d, shape, lowest, 1) for shape in config.shapes for d in deployments]
    first = {trial.key for trial in trials}
    for repeat in range(1, (config.repeats or 1) + 1):
        settings = [(shape, load) for shape in config.shapes for load in config.loads]
        rng.shuffle(settings)
        if repeat == 1 and (config.budget.limited or config.requests is None):
            settings = [(shape, c) for c in halving(config.loads) for shape in config.shapes]
        for shape, load in settings:
            turn = list(deployments)
            rng.shuffle(turn)
            trials += [t for d in turn if (t := grid(d, shape, load, repeat)).key not in first]
    return trials


def grid_size(config: Config, load: Load) -> tuple[int, float | None]:
    """Requests of a grid trial, TURNS of every stream at least, and the seconds that bound its
    window. Passes over a file of prompts stay whole, and only `max_time` bounds them.
    """
    turns = load.turns(TURNS)
    if config.requests is None:
        return max(GRID_REQUESTS, turns), GRID_SECONDS
    requests, passes = max(config.requests, turns), config.passes
    if passes is not None and passes.size:
        return math.ceil(requests / passes.size) * passes.size, None
    return requests, None if config.max_time is not None else STATED_SECONDS


def halving(ladder: tuple[Load, ...]) -> list[Load]:
    """The lowest concurrency, then each next one in the middle of the widest gap: cut anywhere, the
    rest is even.

    >>> halving((1, 2, 4, 8, 16, 32, 64, 128))
    [1, 16, 4, 64, 2, 8, 32, 128]
    """
    order, gaps = [0], [(0, len(ladder))]
    while gaps:
        below, above = gaps.pop(0)
        if above - below > 1:
            middle = (below + above) // 2
            order.append(middle)
            gaps += [(below, middle), (middle, above)]
    return [ladder[i] for i in order]


def seconds_at(rate: float, trial: Trial) -> float:
    """Seconds that a trial takes at a rate: until its requests, which come by the clock, are sent;
    with its warm-up `max_time` at most.
    """
    bound = math.inf if trial.seconds is None else trial.seconds
    return min(trial.warmup + min(trial.requests / (rate * trial.shape.requests), bound), trial.max_time)


def longest_of(trial: Trial) -> float:
    """Seconds a trial takes at most, until its window is over.

    Where only the window is bounded, the warm-up is taken to last as long as the window: it follows
    from the time of a request, and where that is not known there is no better estimate.
    """
    return trial.max_time if trial.seconds is None else min(trial.max_time, 2 * max(trial.seconds, trial.warmup))
