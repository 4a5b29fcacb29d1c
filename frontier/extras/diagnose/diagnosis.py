"""Diagnosis: which resource binds at a setting, the evidence for it, and what would move it.

A request in flight is on the network, in the server's front end, in its queue, in prefill or in
decode. The time breakdown gives the seconds in each part. The part with most of the latency at
issue is where to look, and the server's gauges say why requests wait there. Causes outside of the
server are checked first: a client that is too slow, refused requests, a clock that fell.

A probability is the share of simulated cases in which evidence as complete and as clear as this
named the right resource (docs/validation/how-often-right.md), and nothing more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from frontier.client.engines import engine_of
from frontier.core.claim.pareto import knee
from frontier.core.flags.load_flags import ERRORS
from frontier.core.model.decisions import Decision
from frontier.core.model.loads import NO_LOAD, Load
from frontier.core.model.metrics import metric
from frontier.core.model.points import Point
from frontier.core.model.series import HasSeries
from frontier.core.model.shapes import Shape
from frontier.core.model.units import format_number, format_seconds, format_share
from frontier.core.window.window import WindowData
from frontier.extras.diagnose.remedies import Resource, remedy
from frontier.extras.diagnose.server_settings import ServerSettings
from frontier.extras.diagnose.signs import Signs, signs_of

KV_FULL = 0.95
"""The highest KV cache usage above which a request may not get the memory that it asks for."""
PREEMPTED = 0.02
"""Preemptions per finished request that show a shortage of KV memory."""
QUEUED = 0.02
"""The share of waiting requests below which they are just about to be admitted."""
WANDERS = 0.75
"""Mean over maximum of the running requests, below which requests wait in bursts."""
SLOWER_CLOCK = 0.10
"""Fall of the SM clock against the fastest setting that counts as throttling."""
CLEAR = 0.60
"""Share of the explained time from which one resource clearly leads."""
MATTERS = 0.15
"""Share of the explained time below which a second resource is not named."""
MOST_WORK = 0.50
"""The share of the engine's time spent on prompts from which prefill binds and not the token
budget."""
ALL_WORK = 0.85
"""The share of the engine's time spent on prompts from which prefill binds whatever else shows: a
higher cap could only bring the rest."""
TOO_MUCH = 1.25
"""A share of the engine's time that prompts cannot take. Above it, the measured time of a prompt
that is alone is not its own."""
SEVERAL_STEPS = 1.5
"""The number of steps to read a prompt above which the token budget splits it."""
FULL = 0.8
"""Prompts that end in a step, as a share of those that one step surely has room for, from which
steps may be full of prompts."""
SOME = 0.5
"""The mean number of waiting requests below which none is said to wait."""
FEW = 4
"""Requests in flight at the lowest setting above which no setting shows a request alone."""

PROBABILITY = {"outside": 0.95, "clear": 0.95, "shared": 0.85, "partial": 0.85}
"""How often the first resource was right, at the least, by how clear and complete the evidence is.
It was found in one draw of cases and tested on another (`benchmarks/diagnosis.py`)."""
SECOND = 0.40
"""How often the second resource was among those that bind."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A resource that may bind.

    - `probability`: the share of simulated cases in which such evidence was right.
    - `evidence`: with its numbers.
    - `change`: what to change, with the flag's name on this engine.
    - `effect`: what to expect of the change.
    """

    resource: Resource
    probability: float
    evidence: str
    change: str
    effect: str


@dataclass(frozen=True, slots=True)
class SettingDiagnosis:
    """What binds at one setting, the likeliest resource first, at most two.

    - `roles`: which setting this is.
    - `metric`: the metric that it violates, or comes nearest to violating.
    - `basis`: what the evidence rests on, a key of PROBABILITY.
    - `unknown`: why there are no suspects.
    """

    load: Load
    roles: tuple[str, ...]
    metric: str | None
    suspects: tuple[Suspect, ...] = ()
    unknown: str = ""
    basis: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis(HasSeries):
    """What binds at the knee, at the operating point and at the first violation of one series."""

    deployment: str
    shape: Shape
    settings: tuple[SettingDiagnosis, ...]


def _knee(points: Sequence[Point]) -> Load | None:
    """The knee of the throughput; None at rates, where throughput follows from what is sent."""
    return None if points[0].load.is_open else knee(points)


def diagnose(
    points: Sequence[Point],
    samples: Mapping[Load, WindowData],
    decision: Decision | None,
    settings: ServerSettings | None = None,
) -> Diagnosis | None:
    """What binds in one series of a server with these settings. None for points without windows, as
    imported ones, and where there is nothing to say.
    """
    mine = [p for p in sorted(points, key=lambda p: p.load) if p.load in samples]
    if not mine:
        return None
    signs = [signs_of(point, samples[point.load], settings) for point in mine]
    spoilt = (s.load for s, p in zip(signs, mine, strict=True) if not p.valid and _outside(s, signs))
    roles: dict[str, tuple[Load | None, str | None]] = {"knee": (_knee(mine), None)}
    if decision is not None:
        failed = decision.judgement(decision.first_fail)
        roles["operating point"] = decision.load, decision.binding
        roles["first violation"] = decision.first_fail, failed.violated if failed is not None else None
    roles["first excluded"] = next(spoilt, None), None
    engine = engine_of(name for sample in samples.values() for name in sample.server_identities if name)
    diagnosed = []
    for c in (point.load for point in mine):
        here = {role: limited for role, (at, limited) in roles.items() if at == c}
        if here:
            limited = next(filter(None, reversed(here.values())), None)
            diagnosed.append(diagnose_setting(c, signs, limited=limited, roles=tuple(here), engine=engine))
    return Diagnosis(mine[0].deployment, mine[0].shape, tuple(diagnosed)) if diagnosed else None


# --- rules: from signs to suspects

_UNKNOWN = "the server's metrics do not tell where requests wait; the client's own stamps are not enough"
NamedResource = Resource | None
"""The resource that binds; None: something binds, and it is not known what."""


def diagnose_setting(
    concurrency: Load,
    signs: Sequence[Signs],
    *,
    limited: str | None,
    roles: tuple[str, ...] = (),
    engine: str | None = None,
) -> SettingDiagnosis:
    """What binds at a setting, by the signs of all settings of its series, ascending. `limited` is
    the metric at issue; None for throughput.
    """
    here = next(s for s in signs if s.load == concurrency)
    alone = next((s for s in signs if not s.client), signs[0])
    certain = _outside(here, signs)
    weights = _weights(here, alone, metric(limited).quantity if limited else None)
    total = sum(weights.values()) or 1.0
    ranked = [r for r in sorted(weights, key=lambda r: -weights[r]) if r not in certain]
    if not certain and (here.refused or not ranked or ranked[0] is None):
        return SettingDiagnosis(concurrency, roles, limited, unknown=here.refused or _UNKNOWN)
    lead = next(iter(certain), None) or ranked[0]
    kind = "outside" if certain else _basis(weights[lead], total, unsure=_unsure(lead, here, alone))
    # Where the client or a refusal spoils the load, the server's own signs are those of another
    # load.
    inside = [] if certain and lead is not Resource.CLOCKS else ranked
    order = [*certain, *(r for r in inside if r is not None and weights[r] >= MATTERS * total)]
    first, *others = (
        Suspect(r, PROBABILITY[kind], certain.get(r) or _evidence(r, here, alone), *remedy(r, engine, here, alone))
        for r in order[:2]
    )
    second = tuple(replace(suspect, probability=SECOND) for suspect in others)
    return SettingDiagnosis(concurrency, roles, limited, (first, *second), basis=kind)


def _basis(lead: float, total: float, *, unsure: bool) -> str:
    """How clear the evidence for a resource is that has `lead` of `total` seconds."""
    if unsure:
        return "partial"
    return "clear" if lead >= CLEAR * total else "shared"


def _unsure(lead: NamedResource, here: Signs, alone: Signs) -> bool:
    """Whether the evidence would look the same if another resource than the first one bound."""
    if not here.complete or alone.load > FEW:
        return True
    # Without its clock an engine that has much to do cannot be told from one that runs slowly.
    if lead in (Resource.PREFILL, Resource.DECODE) and here.clock is None:
        return True
    if (here.waiting or 0.0) < QUEUED * here.present:
        return False
    # Requests that wait while fewer run than can come in bursts, which something else may make; and
    # a cap that is not known looks like steps that are full.
    either = here.cap is None and capped(here, alone) and full_steps(here, alone)
    return not _keeps_running(here) or (either and _prompt_share(here, alone) < ALL_WORK)


def _outside(here: Signs, signs: Sequence[Signs]) -> dict[Resource, str]:
    """Causes outside of the server, with their evidence. They make all other signs unreliable."""
    shown: dict[Resource, str] = {}
    if here.client:
        shown[Resource.CLIENT] = here.client
    if here.limited > ERRORS:
        shown[Resource.RATE_LIMIT] = f"{format_share(here.limited)} of requests were refused with status 429"
    if here.failed > ERRORS and (here is signs[0] or here.failed > 2 * signs[0].failed):
        kinds = " and ".join(name.replace("_", " ") for name in sorted(here.outcomes))
        shown[Resource.OVERLOAD] = (
            f"{format_share(here.failed)} of requests failed ({kinds}), {format_share(signs[0].failed)} at "
            f"{signs[0].load.label}"
        )
    clock, c = max(((s.clock, s.load) for s in signs if s.clock), default=(0.0, NO_LOAD))
    # A clock that the driver did not hold down fell for want of work.
    if here.clock and here.held != 0 and here.clock < (1 - SLOWER_CLOCK) * clock:
        shown[Resource.CLOCKS] = f"the SM clock fell to {_mhz(here.clock)}, from {_mhz(clock)} at {c.label}"
    return shown


def _weights(here: Signs, alone: Signs, quantity: str | None) -> dict[NamedResource, float]:
    """Seconds of the latency at issue by resource: spent on it, or waiting for it.

    For a TTFT everything before the first token counts, for a TPOT everything after it. For a
    throughput or an E2E latency, each part counts by its growth since the lowest setting.
    """
    grown = quantity not in ("ttft", "tpot", "itl") and alone is not here
    weights: dict[NamedResource, float] = {}
    for place, seconds in here.parts.items():
        if (place == "decode" and quantity == "ttft") or (place != "decode" and quantity in ("tpot", "itl")):
            continue
        more = seconds - (alone.parts.get(place, 0.0) if grown else 0.0)
        if more > 0:
            resource = _holder(place, here, alone)
            weights[resource] = weights.get(resource, 0.0) + more
    return weights


def _holder(place: str, here: Signs, alone: Signs) -> NamedResource:
    """The resource that serves requests in this place, or that they wait for there."""
    if place in ("connect", "network"):
        return Resource.NETWORK
    if place == "front_end":
        return Resource.FRONT_END
    share = _prompt_share(here, alone)
    if share > TOO_MUCH:
        return None
    if place == "decode":
        if short_of_kv(here) and (here.preempted or 0.0) > PREEMPTED:
            return Resource.KV
        return Resource.PREFILL if share >= MOST_WORK else Resource.DECODE
    if place == "outside":
        return None
    if place == "queue":
        wait = here.rate * here.parts["queue"] if here.waiting is None else here.waiting
        if wait >= QUEUED * here.present:
            return _waited_for(here, alone)
    if here.waiting is None and "queue" not in here.parts:
        return None
    # In prefill, or waiting for the step that is under way.
    if share >= MOST_WORK or 2 * _prompt_work(alone) >= here.parts[place]:
        return Resource.PREFILL
    return Resource.BUDGET if split(here, alone) else Resource.DECODE


def _waited_for(here: Signs, alone: Signs) -> NamedResource:
    """The resource that requests in the queue wait for."""
    if short_of_kv(here):
        return Resource.KV
    if here.waiting is None or here.kv_max is None:  # it may be the memory
        return None
    share = _prompt_share(here, alone)
    if capped(here, alone) and (not full_steps(here, alone) or (share < MOST_WORK and not split(here, alone))):
        return Resource.BATCH
    return Resource.PREFILL if share >= MOST_WORK else Resource.BUDGET


def short_of_kv(s: Signs) -> bool:
    """Whether requests are preempted for memory, or the free memory would not hold another
    prompt.
    """
    if (s.kv_max or 0.0) >= KV_FULL or (s.preempted or 0.0) > PREEMPTED:
        return True
    if not s.running or not s.kv or s.kv_max is None:
        return False
    tokens = s.running * (s.prompt + s.answer / 2) / s.kv
    return (1 - s.kv_max) * tokens < s.prompt


def capped(here: Signs, alone: Signs) -> bool:
    """Whether the number of running requests stays at a maximum below the concurrency.

    At a cap, a place is empty only from the end of one request to the next step. The mean then lies
    below the maximum by the requests that end in a step, plus one at most. That alone does not
    prove a cap: the number is just as steady where prompts fill each step, and where memory is
    full. Where steps have room, requests can only wait for a place. The number may then wander
    more, because requests of equal length end together.
    """
    if here.running is None or here.running_max is None or here.running_max >= here.present:
        return False
    below = (here.cap or here.running_max) - here.running
    return below <= 1 + here.ended or (below <= (1 - WANDERS) * here.running and not full_steps(here, alone))


def _keeps_running(s: Signs) -> bool:
    """Whether the number of running requests stays near its maximum; True where it is not known."""
    return s.running is None or s.running_max is None or s.running >= WANDERS * s.running_max


def full_steps(here: Signs, alone: Signs) -> bool:
    """Whether each step may be full of prompts, so that requests wait for their turn to be read.

    A prompt that is alone is read in `chunks` steps, so that many steps have room for the end of
    one prompt, and perhaps for more. Where steps are not counted, the prefill time of a prompt that
    is alone over its TPOT is the most that they can be.
    """
    chunks = alone.chunks or alone.parts.get("prefill", 0.0) / alone.tpot
    return here.ended * max(1.0, chunks) >= FULL


def split(here: Signs, alone: Signs) -> bool:
    """Whether prompts that have begun to be read wait longer than for the step under way: the token
    budget splits them.
    """
    step = here.step or here.tpot
    return here.parts.get("prefill", 0.0) - _prompt_work(alone) > SEVERAL_STEPS * step


def _prompt_work(alone: Signs) -> float:
    """Seconds of the engine that one prompt takes by itself: its prefill alone, without the time
    that a step takes anyway.
    """
    return max(0.0, alone.parts.get("prefill", 0.0) - max(1.0, alone.chunks or 1.0) * alone.tpot)


def _prompt_share(here: Signs, alone: Signs) -> float:
    """The share of the engine's time spent on prompts, by the utilisation law: rate times work."""
    return here.rate * _prompt_work(alone)


# --- evidence and expected effects in words


def _evidence(resource: Resource, here: Signs, alone: Signs) -> str:
    """The evidence for a resource, with numbers."""
    parts, wait = here.parts, here.waiting
    waiting = ""
    if wait is not None:
        waiting = "; no queue builds up" if wait < SOME else f"; {format_number(wait)} requests wait"
    kv = "" if here.kv_max is None else f"the KV cache is {format_share(here.kv_max)} full at most"
    work = f"prompts themselves take {format_share(min(1.0, _prompt_share(here, alone)))} of the engine's time"
    match resource:
        case Resource.NETWORK:
            spent = format_seconds(parts.get("network", 0.0) + parts.get("connect", 0.0))
            return f"{spent} of a mean TTFT of {format_seconds(here.ttft)} pass outside of the server"
        case Resource.FRONT_END:
            spent = format_seconds(parts.get("front_end", 0.0))
            return f"{spent} of a mean TTFT of {format_seconds(here.ttft)} pass in the server before its queue"
        case Resource.KV:
            lost = f", {here.preempted:.2g} preemptions a request" if here.preempted else ""
            return f"{kv}{lost}{waiting}"
        case Resource.BATCH:
            full = f"; {kv}" if kv else ""
            return f"{format_number(here.running_max)} run at most while {format_number(wait)} wait{full}"
        case Resource.PREFILL:
            return f"{work}{waiting}"
        case Resource.BUDGET:
            steps = f"a prompt is read in {parts['prefill'] / here.step:.1f} steps" if here.step else "steps are full"
            return f"{steps}, and {work}{waiting}"
    grown = "" if here is alone else f", {format_seconds(alone.tpot)} at {alone.load.label}"
    return f"a token takes {format_seconds(here.tpot)}{grown}{waiting}"


def _mhz(hertz: float) -> str:
    return f"{hertz / 1e6:,.0f} MHz"


# --- the block that is shown


def diagnosis_lines(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    """A line per setting with its role and what binds there: ('c=64, first violation', 'batch cap
    (95%): 32 run ...'). A change is named once.
    """
    lines, said = [], set()
    for found in diagnosis.settings:
        head = f"{found.load.label}, {' and '.join(found.roles)}"
        if not found.suspects:
            lines.append((head, f"not known: {found.unknown}."))
            continue
        first, *others = found.suspects
        also = "".join(f" Perhaps also {o.resource.words}: {o.evidence}." for o in others)
        binds = f"{first.resource.words} ({first.probability:.0%}): {first.evidence}.{also}"
        advice = "" if first.change in said else f" Try {first.change}. Expected: {first.effect}."
        lines.append((head, f"{binds}{advice}"))
        said.add(first.change)
    return lines


DIAGNOSIS_LEGEND = "in brackets: the share of simulated cases with such evidence that were diagnosed correctly"
