"""The `Config` of a sweep: frozen, validated, in SI units. What load is sent, and what counts.

A `Config` is made by `frontier.config.load_config` and by nothing else, so every `Config` is sound.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    PrivateAttr,
    model_validator,
)

from frontier.config.background_keys import BackgroundConfig, not_beside, read_background
from frontier.config.complaints import Complaint
from frontier.config.connection import SentFile
from frontier.config.deployment import DeploymentConfig
from frontier.config.end_keys import BudgetConfig
from frontier.config.finish_keys import FinishConfig, read_finish
from frontier.config.identity import digest
from frontier.config.load_keys import (
    AUTO,
    WARMUP_AUTO,
    Loads,
    Passes,
    arriving,
    read_arrivals,
    read_concurrency,
    read_rates,
    read_requests,
    read_warmup,
    read_workers,
)
from frontier.config.metric_needs import wrong_metrics
from frontier.config.shape_keys import described, distinct, file_of, read_shapes
from frontier.config.sla import DEFAULT_TIER, Tiers, read_objectives, read_tiers
from frontier.config.traffic_keys import Traffic, mixes, read_traffic
from frontier.config.uses import MADE_PROMPTS, PLAIN, READ_SESSIONS, READ_TIMES, Use, effects
from frontier.core.model.decisions import Limit
from frontier.core.model.loads import POISSON, Arrivals, Concurrency, Rate, Trace
from frontier.core.model.metrics import metric
from frontier.core.model.shapes import Shape
from frontier.fields import (
    ONE_OR_MANY,
    Name,
    Problem,
    Strict,
    Truth,
    duration_in,
    duration_text,
    refuse,
    repeated,
    whole_in,
)
from frontier.store.records import shape_tree

MAX_TRIALS = 20_000
LEFT_OUT: Mapping[str, Any] = dict.fromkeys(("requests", "repeats", "max_time", "refine", "concurrency"))
"""The meaning of these keys where they are left out: the sweep sizes its trials and finds its
settings itself."""
DOUBLINGS: Mapping[str, Any] = {"concurrency": "1..128"}
"""Their meaning in a run that was begun before 1.1, whose manifest does not state it."""
EARLIER: Mapping[str, Any] = {"requests": 300, "repeats": 3, "max_time": "300s", "refine": 3, **DOUBLINGS}
"""Their meaning before 0.2."""
LONGEST_TRIAL, LONGEST = 3_600.0, 86_400.0
"""Seconds that bound a trial where `max_time` is left out; and one of whole passes."""
MOST_NATURAL = 300_000
"""Tokens of the longest prompt of natural text: fewer than the corpus has, so that no part of it is
in a prompt twice."""
TURNS = 5
"""Requests of each stream that a window holds at least; with fewer, the edges of the window weigh
too much."""


def _deployments(value: tuple[DeploymentConfig, ...]) -> tuple[DeploymentConfig, ...]:
    if not value:
        raise Problem("{key} is an empty list", "list one with a name and an endpoint")
    refuse(repeated([d.name for d in value], "two deployments are called {}", "give each its own name"))
    return value


class Config(Strict):
    """One sweep. Times are in seconds; `warmup` is the least, and `max_time` bounds a trial with
    its warm-up.

    Where `requests`, `repeats`, `max_time` or `refine` is None, the sweep sizes its trials itself.
    Where `workers` is None, it takes as many client processes as a trial needs; results do not
    depend on their number.
    """

    name: Annotated[Name, PLAIN] | None = None
    # Before the shapes, which are distinct by their names alone where there is traffic.
    traffic: Annotated[Traffic, PlainValidator(read_traffic), PLAIN] = Field(default_factory=dict)
    given_shapes: Annotated[
        tuple[Annotated[Shape, PlainValidator(read_shapes)], ...],
        ONE_OR_MANY,
        AfterValidator(distinct),
        PLAIN,
    ] = Field(alias="shapes")
    given_concurrency: Annotated[Loads, PlainValidator(read_concurrency), PLAIN] = Field((), alias="concurrency")
    rate: Annotated[tuple[Rate, ...], PlainValidator(read_rates), PLAIN] | None = None
    arrivals: Annotated[Arrivals | str, PlainValidator(read_arrivals), READ_TIMES] = POISSON
    background: Annotated[BackgroundConfig, PlainValidator(read_background), PLAIN] | None = None
    given_tiers: Annotated[Tiers, PlainValidator(read_tiers), PLAIN] = Field(default=(), alias="sla")
    given_objectives: Annotated[tuple[str, str], PlainValidator(read_objectives), PLAIN] | None = Field(
        None, alias="objectives"
    )
    given_requests: Annotated[int | Passes, PlainValidator(read_requests), PLAIN] | None = Field(None, alias="requests")
    repeats: Annotated[int, whole_in(1, 100)] | None = None
    warmup: Annotated[float, PlainValidator(read_warmup)] = WARMUP_AUTO
    max_time: Annotated[float, duration_in(1.0, LONGEST)] | None = None
    min_time: Annotated[float, duration_in(0.0, 86_400.0)] = 0.0
    budget: BudgetConfig = BudgetConfig()
    refine: Annotated[int, whole_in(0, 100)] | None = None
    on_finish: Annotated[FinishConfig | None, BeforeValidator(read_finish), PLAIN] = None
    prompts: SentFile = "random"
    ignore_eos: Truth = True
    given_workers: Annotated[Any, PlainValidator(read_workers), PLAIN] = Field(None, alias="workers")
    seed: Annotated[int, whole_in(0, 2**53)] = 1
    marginal_gain: Truth = True
    deployments: Annotated[tuple[DeploymentConfig, ...], AfterValidator(_deployments)]
    _warnings: tuple[Complaint, ...] = PrivateAttr(default=())
    _measured_by: str = PrivateAttr(default="sweep")

    @model_validator(mode="after")
    def _in_open_loop(self) -> Self:
        """With a rate: loads are rates, and the shapes get the arrivals, so that no other code has
        to check.
        """
        if self.rate is not None and "given_concurrency" not in self.model_fields_set:
            shapes = arriving(self.given_shapes, self.arrivals)
            rates = tuple(shapes[0].load(int(rate)) for rate in self.rate or AUTO)
            # Pydantic has no hook to set fields of a frozen model once validated; this one is new.
            self.__dict__.update(given_concurrency=rates, given_shapes=shapes)
        return self

    @property
    def auto(self) -> bool:
        """Whether the sweep finds its concurrencies itself."""
        return not self.given_concurrency

    @property
    def loads(self) -> Loads:
        """The settings that the config lists; of `concurrency: auto` the one it begins with."""
        return self.given_concurrency or (Concurrency(1),)

    @property
    def passes(self) -> Passes | None:
        """The passes over the file of prompts that size a trial; None: `requests` is a number."""
        return self.given_requests if isinstance(self.given_requests, Passes) else None

    @property
    def requests(self) -> int | None:
        """The requests of a trial, at least; None for passes over a file that was not read yet."""
        return self.given_requests.requests if isinstance(self.given_requests, Passes) else self.given_requests

    @property
    def prompts_file(self) -> str | None:
        """The file of the prompts; None where they are made."""
        return None if self.prompts in MADE_PROMPTS else self.prompts

    @property
    def trace_file(self) -> str | None:
        """The file of the trace whose arrivals are replayed; None without one. Its times come by
        `with_arrivals`.
        """
        return self.arrivals if self.open_loop and isinstance(self.arrivals, str) else None

    @property
    def trace(self) -> Trace | None:
        """The trace whose arrivals are replayed; None without one."""
        arrivals = self.given_shapes[0].arrivals
        return None if arrivals is None else arrivals.trace

    def with_arrivals(self, arrivals: Arrivals) -> Self:
        """The config with the times of its trace, which other code reads."""
        return self.model_copy(update={"given_shapes": arriving(self.given_shapes, arrivals)})

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.traffic:
            mixes(self.traffic, self.given_shapes)  # a Problem where the two do not fit
        checks = (_wrong_times, wrong_metrics, _wrong_names, _wrong_size, _wrong_prompts, _wrong_load, not_beside)
        refuse(problem for check in checks for problem in check(self))
        return self

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """What is measured: the shapes, the mixes of them, or one beside a background."""
        if self.background is not None:
            return self.background.beside(self.given_shapes[0])
        return mixes(self.traffic, self.given_shapes) if self.traffic else self.given_shapes

    @property
    def tiers(self) -> Tiers:
        """The SLAs, each with the limits of the classes of `traffic`. The first is the default."""
        of_classes = [limit for name, each in self.traffic.items() for limit in each.limits(name)]
        tiers = self.given_tiers or (((DEFAULT_TIER, ()),) if of_classes else ())
        return tuple(
            (name, (*own, *(li for li in of_classes if li.metric not in {o.metric for o in own})))
            for name, own in tiers
        )

    @property
    def open_loop(self) -> bool:
        """Whether the load is a rate of arrivals."""
        return self.rate is not None

    def limit_path(self, tier: str, limit: Limit) -> tuple[str, ...]:
        """Where a limit of a tier stands in the text."""
        named = limit.of.group.split(".") if limit.of.group else []
        statistic = limit.metric.removeprefix(f"{limit.of.group}.")
        if named and named[0] in self.traffic and limit in self.traffic[named[0]].limits(named[0]):
            return "traffic", named[0], "sla", *named[1:], statistic
        where = (limit.metric,) if named and named[0] in self.traffic else (*named, statistic)
        return ("sla", *where) if len(self.tiers) == 1 else ("sla", tier, *where)

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The SLA: the first tier's limits, none when the config has no SLA."""
        return self.tiers[0][1] if self.tiers else ()

    @property
    def ray(self) -> Any:
        """The Ray cluster of the client processes; None when they run here, without Ray."""
        return None if isinstance(self.given_workers, int) else self.given_workers

    @property
    def workers(self) -> int | None:
        """The number of client processes; None when the sweep chooses, which is one per node on
        Ray.
        """
        count: int | None = self.given_workers if self.ray is None else self.ray.count
        return count

    @property
    def objectives(self) -> tuple[str, str]:
        """The frontier's axes: as given, otherwise output throughput (beside a background its own)
        against the SLA's first latency metric.
        """
        if self.given_objectives is not None:
            return self.given_objectives
        latencies = [limit.metric for limit in self.limits if metric(limit.metric).quantity is not None]
        rate = "output_throughput" if self.background is None else "background_throughput"
        return rate, latencies[0] if latencies else "p99_ttft"

    @property
    def warnings(self) -> tuple[Complaint, ...]:
        """Complaints about values that are allowed but probably not meant."""
        return self._warnings

    @property
    def measured_by(self) -> str:
        """The command that measures it: `sweep`, or that of the extra that made its deployments."""
        return self._measured_by

    @property
    def effects(self) -> tuple[Use, ...]:
        """Everything that the config makes a command run, read and send, beside the load itself."""
        reached = [d for d in self.deployments if not d.is_simulator]
        everywhere = ", ".join(dict.fromkeys(d.endpoint for d in reached))
        own = [effect for effect in effects(self, everywhere) if reached or effect.by == "sweep"]
        own += [
            replace(READ_SESSIONS, text=READ_SESSIONS.text.format(value=path))
            for shape in self.given_shapes
            if (path := file_of(shape)) is not None
        ]
        return tuple(dict.fromkeys([*(effect for d in self.deployments for effect in effects(d, d.endpoint)), *own]))

    @property
    def trial_time(self) -> float:
        """Seconds that bound a trial, warm-up included."""
        return self.max_time or (LONGEST_TRIAL if self.passes is None else LONGEST)

    @property
    def searches(self) -> bool:
        """Whether there is an operating point to find, and `refine: 0` does not forbid it."""
        return bool(self.limits) and self.refine != 0

    def deployment(self, name: str) -> DeploymentConfig:
        """The deployment of that name. KeyError when there is none."""
        return {deployment.name: deployment for deployment in self.deployments}[name]

    def load(self) -> dict[str, Any]:
        """What decides a trial's numbers beside its deployment and its setting, JSON-able."""
        own = {} if self.background is None else {"background": dict(self.background.extra_body)}
        return self.model_dump(include={"warmup", "max_time", "min_time", "prompts", "ignore_eos", "seed"}) | own

    def canonical(self) -> dict[str, Any]:
        """Everything that determines the measurements, JSON-able.

        SLA, objectives, price, budget, repeats and refine are not in it: changing them never needs
        a new sweep. For sessions of a file it holds their figures, so that a run can be read
        without the file.
        """
        files = {path: shape_tree(shape) for shape in self.given_shapes if (path := file_of(shape)) is not None}
        return ({"sessions": files} if files else {}) | {
            "shapes": [described(shape) for shape in self.shapes],
            "concurrency": [load.stored for load in self.loads],
            "requests": self.requests,
            **self.load(),
            "deployments": {d.name: d.canonical() for d in self.deployments},
        }

    def identity(self) -> str:
        """64 hex digits that are equal when two configs measure the same."""
        return digest(self.canonical())


# ---- what fits together only when several keys are seen at once


def _wrong_load(config: Config) -> Iterator[Problem]:
    """Problems of keys that do not go with a rate, or only with one, and of a forbidden search
    without listed settings.
    """
    if config.auto and config.refine == 0:
        what = "refine: 0 measures the listed settings alone, and concurrency: auto lists none"
        yield Problem(what, "list them, as  concurrency: 1..128", "refine")
    if config.rate is None:
        if "arrivals" in config.model_fields_set:
            what = "arrivals are those of a rate, and there is none"
            yield Problem(what, "write  rate: [1, 2, 4]  in place of concurrency", "arrivals", at_key=True)
        return
    if "given_concurrency" in config.model_fields_set:
        what = "rate and concurrency are two loads: requests per second, and requests in flight"
        yield Problem(what, "write one of them", "rate", at_key=True)
    if not config.rate and config.refine == 0:
        what = "refine: 0 measures the listed settings alone, and rate: auto lists none"
        yield Problem(what, "list them, as  rate: [1, 2, 4]", "refine")
    elif not config.rate and not config.searches:
        what = "rate: auto looks for the highest rate that keeps an SLA, and nothing is looked for"
        yield Problem(what, "name limits, as  sla: {p99_ttft: 500ms},  or list rates:  rate: [1, 2, 4]", "rate")
    if config.traffic:
        what = f"{config.shapes[0].label} is a mix, and requests or sessions of one shape arrive at a rate"
        yield Problem(what, "write concurrency: [1, 2, 4] in place of rate", "traffic")
    kinds = {shape.kind: i for i, shape in reversed(list(enumerate(config.shapes)))}
    if len(kinds) > 1 and not config.traffic:
        what = "a rate counts the sessions that begin, or the requests of a shape without turns, and both are here"
        yield Problem(what, "write a config for the sessions, and one for the others", "shapes", max(kinds.values()))
    if config.given_workers is not None and (config.ray is not None or config.workers != 1):
        yield Problem("a rate is sent by one client process", "leave workers out", "workers")


def _wrong_times(config: Config) -> Iterator[Problem]:
    if config.max_time is None:
        return
    most = f"more than half of max_time ({duration_text(config.max_time)})"
    if config.min_time > config.max_time / 2:
        what = f"min_time is {duration_text(config.min_time)}, {most}"
        yield Problem(what, "raise max_time; warm-up counts toward it too", "min_time")
    if config.warmup > config.max_time / 2 and "warmup" in config.model_fields_set:
        what = f"warmup is {duration_text(config.warmup)}, {most}"
        yield Problem(what, "raise max_time; warm-up counts toward it", "warmup")
    for shape in config.shapes if config.open_loop else ():
        if (lasting := shape.session_seconds(0.0)) > config.max_time / 2:
            what = f"sessions of {shape.label} think for up to {math.ceil(lasting):,} s, {most}"
            yield Problem(what, "raise max_time: a trial warms up until they come to their last turn", "max_time")


def _wrong_prompts(config: Config) -> Iterator[Problem]:
    if config.passes is not None and config.prompts_file is None:
        yield Problem("passes are over a file of prompts, and none is named", "add  prompts: FILE.jsonl", "requests")
    others = [shape for shape in config.shapes if shape.kind != "shape"]
    if config.prompts == "natural":
        longest = max(config.shapes, key=lambda shape: shape.isl.high)
        if longest.isl.high > MOST_NATURAL:
            what = f"{longest.label} asks for {longest.isl.high:,} tokens; natural text has {MOST_NATURAL:,}"
            yield Problem(what, "shorten the prompts, or write  prompts: random  or a file of your own", "prompts")
    elif others and config.prompts_file is not None:
        what = f"{others[0].label} is a {others[0].kind}, which makes its own prompts"
        yield Problem(what, "remove  prompts:  or measure it in a config of its own", "prompts")


def _wrong_size(config: Config) -> Iterator[Problem]:
    count = len(config.deployments) * len(config.shapes) * len(config.loads) * (config.repeats or 1)
    if count > MAX_TRIALS:
        yield Problem(f"{count:,} trials; the maximum is {MAX_TRIALS:,}", "sweep fewer settings", "shapes")


def _wrong_names(config: Config) -> Iterator[Problem]:
    """Problems of names. Deployment and shape together name a trial's file: 'a-b' with 'c' and 'a'
    with 'b-c' would share one.
    """
    seen: dict[str, tuple[str, str]] = {}
    for pair in ((d.name, shape.label) for d in config.deployments for shape in config.shapes):
        first = seen.setdefault("-".join(pair).replace("/", "x").lower(), pair)
        if first is not pair:
            what = f"{first[0]} with {first[1]} and {pair[0]} with {pair[1]} would share a file name"
            yield Problem(what, "rename one of the deployments or shapes", "deployments")
            return
