"""The sweep as it was asked for: frozen, validated, in SI units. What load is sent, and what counts.

A `Config` is made by `frontier.config.load_config` and by nothing else, so a `Config` that exists is sound.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, PrivateAttr, model_validator

from frontier.config import settings, values
from frontier.config.deployment import DeploymentConfig
from frontier.config.faults import Fault, Faults, fault
from frontier.config.kinds import Command, Dollars, Name, SentFile, Strict, Truth, duration_in, whole_in
from frontier.config.quantities import MONTH, duration, long, moment
from frontier.config.slatext import NEEDS_LIMITS, Tiers, known_metric, read_tiers
from frontier.config.uses import PLAIN, POST, Effect, effects
from frontier.errors import Complaint
from frontier.metrics import ENERGY, metric
from frontier.model import Limit, Shape

WARMUP_AUTO = 2.0
"""Seconds of warm-up when it is 'auto': every stream has finished its first request, and at least this long."""


MAX_TRIALS = 20_000
TURNS = 5
"""A window holds at least this many requests of each stream: below, the edges of the window weigh too much."""


class BudgetConfig(Strict):
    """What the sweep as a whole may spend: seconds, requests sent, output tokens received, dollars.

    `until` is when it must be done, as '07:00' (the next time the clock shows it) or '2026-11-22 07:00'.
    """

    time: Annotated[float, duration_in(1.0, MONTH)] | None = None
    requests: Annotated[int, whole_in(1, 10**9)] | None = None
    tokens: Annotated[int, whole_in(1, 10**12)] | None = None
    cost: Dollars | None = None
    until: Annotated[str, PlainValidator(moment), PLAIN] | None = None

    @property
    def limited(self) -> bool:
        """There is any limit."""
        return any(value is not None for value in self.model_dump().values())


class FinishConfig(Strict):
    """Who is told when the sweep has ended: a command, or a webhook at `url`; `within` seconds."""

    command: Command | None = None
    url: Annotated[str, PlainValidator(values.webhook), POST] | None = None
    within: Annotated[float, duration_in(0.1, 600.0)] = 30.0

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise Faults(Fault("on_finish is a command or the url of a webhook", "write one of them"))
        return self

    def variables(self) -> set[str]:
        """The environment variable that holds the address, if one does."""
        return {self.url[2:-1]} if self.url is not None and self.url.startswith("${") else set()

    def hidden(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """The address, where it comes from the environment: most are secrets."""
        return tuple(value for name in self.variables() if (value := environ.get(name, "").strip()))

    def address(self, environ: Mapping[str, str]) -> str | None:
        """The webhook's address; None when its variable is not set."""
        for name in self.variables():
            return environ.get(name, "").strip() or None
        return self.url


def _finish(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return {"url" if value.strip().startswith(("http://", "https://", "${")) else "command": value}


def _one_or_many(value: Any) -> Any:
    return [value] if isinstance(value, str | dict) else value


def _objectives(value: Any) -> tuple[str, str]:
    if not isinstance(value, list) or len(value) != 2:
        raise fault("{key} are the two axes of the frontier", "write [output_throughput, p99_ttft]")
    faults: list[Fault] = []
    for i, item in enumerate(value):
        try:
            known_metric(item)
        except Faults as wrong:
            faults += [Fault(f.what, f.hint, (i,)) for f in wrong.faults]
    if not faults and value[0] == value[1]:
        faults.append(Fault("the two objectives are the same", "write [output_throughput, p99_ttft]", (1,)))
    if faults:
        raise Faults(*faults)
    return value[0], value[1]


def _warmup(value: Any) -> float:
    return WARMUP_AUTO if value == "auto" else duration(value, most=3_600.0)


def _distinct(labels: list[str], what: str, hint: str) -> list[Fault]:
    """A fault at each label that was there before."""
    first = {label: i for i, label in reversed(list(enumerate(labels)))}
    return [Fault(f"two {what} are called {label}", hint, (i,)) for i, label in enumerate(labels) if first[label] < i]


def _shapes(value: tuple[Shape, ...]) -> tuple[Shape, ...]:
    if not value or len(value) > 100:
        raise fault("{key} is an empty list" if not value else "{key} has more than 100 shapes", "write [1024/256]")
    faults = []
    for i, shape in enumerate(value):
        same = [s for s in value[:i] if (s.isl, s.osl, s.prefix) == (shape.isl, shape.osl, shape.prefix)]
        if same:
            faults.append(Fault(f"{shape.label} is given twice", "remove one; repeats: 3  measures each again", (i,)))
    labels = [shape.label for shape in value]
    faults = faults or _distinct(labels, "shapes", "give one a name, as {isl: 1024, osl: 256, name: chat}")
    if faults:
        raise Faults(*faults)
    return value


def _deployments(value: tuple[DeploymentConfig, ...]) -> tuple[DeploymentConfig, ...]:
    faults = _distinct([d.name for d in value], "deployments", "give each its own name")
    if faults or not value:
        raise Faults(*(faults or [Fault("{key} is an empty list", "list one with a name and an endpoint")]))
    return value


class Config(Strict):
    """One sweep. Times in seconds; `warmup` is the least, `max_time` bounds a trial with its warm-up."""

    name: Name | None = None
    shapes: Annotated[
        tuple[Annotated[Shape, PlainValidator(settings.shape)], ...],
        BeforeValidator(_one_or_many),
        AfterValidator(_shapes),
        PLAIN,
    ]
    concurrency: Annotated[tuple[int, ...], PlainValidator(settings.concurrency)] = (1, 2, 4, 8, 16, 32, 64, 128)
    tiers: Annotated[Tiers, PlainValidator(read_tiers), PLAIN] = Field(default=(), alias="sla")
    given_objectives: Annotated[tuple[str, str], PlainValidator(_objectives), PLAIN] | None = Field(
        None, alias="objectives"
    )
    requests: Annotated[int, whole_in(1, 1_000_000)] = 300
    repeats: Annotated[int, whole_in(1, 100)] = 3
    warmup: Annotated[float, PlainValidator(_warmup)] = WARMUP_AUTO
    max_time: Annotated[float, duration_in(1.0, 86_400.0)] = 300.0
    min_time: Annotated[float, duration_in(0.0, 86_400.0)] = 0.0
    budget: BudgetConfig = BudgetConfig()
    refine: Annotated[int, whole_in(0, 100)] = 3
    on_finish: Annotated[FinishConfig, BeforeValidator(_finish)] | None = None
    prompts: SentFile = "random"
    ignore_eos: Truth = True
    seed: Annotated[int, whole_in(0, 2**53)] = 1
    marginal_gain: Truth = True
    deployments: Annotated[tuple[DeploymentConfig, ...], AfterValidator(_deployments)]
    _warnings: tuple[Complaint, ...] = PrivateAttr(default=())

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        faults = [*_time_faults(self), *_metric_faults(self), *_name_faults(self), *_size_faults(self)]
        if faults:
            raise Faults(*faults)
        return self

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The SLA: the first tier's limits, none when the config has no SLA."""
        return self.tiers[0][1] if self.tiers else ()

    @property
    def objectives(self) -> tuple[str, str]:
        """The frontier's axes: as given, else output throughput against the SLA's first latency metric."""
        if self.given_objectives is not None:
            return self.given_objectives
        latencies = [limit.metric for limit in self.limits if metric(limit.metric).quantity is not None]
        return "output_throughput", latencies[0] if latencies else "p99_ttft"

    @property
    def warnings(self) -> tuple[Complaint, ...]:
        """What is allowed and probably not meant."""
        return self._warnings

    @property
    def effects(self) -> tuple[Effect, ...]:
        """All that it makes a command run, read and send, beside the load itself."""
        reached = [d for d in self.deployments if not d.is_simulator]
        everywhere = ", ".join(dict.fromkeys(d.endpoint for d in reached))
        own = [one for one in effects(self, everywhere) if reached or one.by == "sweep"]
        return tuple(dict.fromkeys([*(one for d in self.deployments for one in effects(d, d.endpoint)), *own]))

    def window_requests(self, concurrency: int) -> int:
        """Requests a trial's window holds: as many as asked, and TURNS of every stream at least."""
        return max(self.requests, TURNS * concurrency)

    def deployment(self, name: str) -> DeploymentConfig:
        """The deployment of that name. KeyError when there is none."""
        for found in self.deployments:
            if found.name == name:
                return found
        raise KeyError(name)

    def load(self) -> dict[str, Any]:
        """JSON-able: what decides a trial's numbers beside its deployment and its setting."""
        return self.model_dump(include={"warmup", "max_time", "min_time", "prompts", "ignore_eos", "seed"})

    def canonical(self) -> dict[str, Any]:
        """JSON-able: everything that determines the measurements. SLA, objectives, price, budget, repeats and refine
        do not: changing them never needs a new sweep.
        """
        return {
            "shapes": [described(shape) for shape in self.shapes],
            "concurrency": list(self.concurrency),
            "requests": self.requests,
            **self.load(),
            "deployments": {d.name: d.canonical() for d in self.deployments},
        }

    def identity(self) -> str:
        """64 hex digits that are equal when two configs measure the same."""
        return digest(self.canonical())


def digest(value: Any) -> str:
    """SHA-256, in hex, of a JSON-able value; the same on every machine and Python."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def described(shape: Shape) -> str:
    """A shape in one unambiguous text: 'chat: 1024-2048/256 prefix 50%'."""
    text = f"{shape.isl}/{shape.osl}"
    text = f"{shape.name}: {text}" if shape.name else text
    return f"{text} prefix {shape.prefix * 100:.6g}%" if shape.prefix else text


def _time_faults(config: Config) -> list[Fault]:
    faults = []
    if config.min_time > config.max_time / 2:
        what = f"min_time is {long(config.min_time)}, more than half of max_time ({long(config.max_time)})"
        faults.append(Fault(what, "raise max_time; warm-up counts toward it too", ("min_time",)))
    if config.warmup > config.max_time / 2 and "warmup" in config.model_fields_set:
        what = f"warmup is {long(config.warmup)}, more than half of max_time ({long(config.max_time)})"
        faults.append(Fault(what, "raise max_time; warm-up counts toward it", ("warmup",)))
    return faults


def _metric_faults(config: Config) -> list[Fault]:
    """Metrics that nothing would give a value to."""
    faults = []
    priced = all(d.price is not None for d in config.deployments)
    price = "write  price: $12/h  for the whole deployment"
    if config.budget.cost is not None and not priced:
        faults.append(Fault("a budget in dollars needs a price", price, ("budget", "cost")))
    if not priced and any(limit.metric == "cost" for _, limits in config.tiers for limit in limits):
        faults.append(Fault("a limit on cost needs a price", price, ("sla",)))
    if any(limit.metric in ENERGY for _, limits in config.tiers for limit in limits):
        what = "a sweep cannot decide by energy: its power is known only when it is over"
        faults.append(Fault(what, "decide afterwards:  frontier solve --sla 'p99_ttft<=500ms, energy<=0.5'", ("sla",)))
    for i, name in enumerate(config.given_objectives or ()):
        if name == "cost" and not priced:
            faults.append(Fault("the objective cost needs a price", price, ("objectives", i)))
        if name in NEEDS_LIMITS and not config.limits:
            what = f"{name} counts requests within the limits, and there are none"
            faults.append(Fault(what, "add  sla: {p99_ttft: 500ms}", ("objectives", i)))
    return faults


def _size_faults(config: Config) -> list[Fault]:
    count = len(config.deployments) * len(config.shapes) * len(config.concurrency) * config.repeats
    if count <= MAX_TRIALS:
        return []
    return [Fault(f"the sweep has {count:,} trials; {MAX_TRIALS:,} are the most", "sweep fewer settings", ("shapes",))]


def _name_faults(config: Config) -> list[Fault]:
    """Deployment and shape together name a trial's file: 'a-b' with 'c' and 'a' with 'b-c' would share one."""
    seen: dict[str, tuple[str, str]] = {}
    for pair in ((d.name, shape.label) for d in config.deployments for shape in config.shapes):
        first = seen.setdefault("-".join(pair).replace("/", "x").lower(), pair)
        if first is not pair:
            what = f"{first[0]} with {first[1]} and {pair[0]} with {pair[1]} would share a file name"
            return [Fault(what, "rename one of the deployments or shapes", ("deployments",))]
    return []


def describe_difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """What differs between two canonical configs: 'shapes 1024/256 there, 2048/256 here'. Empty when nothing does."""
    parts: list[str] = []
    _differ("", there, here, parts)
    return "; ".join(parts)


def _differ(name: str, there: Any, here: Any, parts: list[str]) -> None:
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        for key in dict.fromkeys((*there, *here)):
            # The word 'deployments' says nothing, and neither does the name of the only one.
            lone = name == "deployments" and len({*there, *here}) == 1
            inner = [part for part in (name, key) if part not in ("", "deployments")]
            _differ("" if lone else " ".join(inner) or key, there.get(key), here.get(key), parts)
    elif there != here:
        parts.append(f"{name} {_said(there)} there, {_said(here)} here")


def _said(value: Any) -> str:
    if value is None:
        return "not given"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ", ".join(_said(item) for item in value)
    if isinstance(value, Mapping):
        return "given"
    return f"{value:g}" if isinstance(value, float) else str(value)
