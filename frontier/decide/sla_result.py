"""One SLA asked of a whole run: each shape's operating point, and what only all of them together can say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from frontier.decide import capacity, operating_point
from frontier.errors import ExitCode
from frontier.model import Decision, Limit, Point, Shape, Verdict
from frontier.stats import cost_energy
from frontier.units import format_number

Setting = tuple[str, Shape]


@dataclass(frozen=True, slots=True)
class Cheapest:
    """The deployment of least cost per token for one shape, each at its own operating point. `sure`: beyond doubt."""

    decision: Decision
    sure: bool


@dataclass(frozen=True, slots=True)
class Best:
    """The deployment whose operating point gives the most output throughput for one shape, as far as it is proven.

    `rate` is per GPU where `per_gpu`. `sure`: its interval lies above that of every other operating point. `open` are
    the deployments without one that may yet have one: nothing of theirs is proven, or measured validly.
    """

    decision: Decision
    rate: float
    per_gpu: bool
    sure: bool
    others: tuple[str, ...]
    open: tuple[str, ...]

    @property
    def note(self) -> str:
        """In a sentence."""
        d, unit = self.decision, "tok/s/GPU" if self.per_gpu else "tok/s"
        point = f"{format_number(self.rate)} {unit} at c={d.concurrency}"
        if self.open:
            rest = f"of {_listed(self.open)} no setting is proven, so which gives the most is open"
            if not self.others:
                return f"For {d.shape.label} only {d.deployment} is proven inside the SLA, {point}; {rest}."
            return f"Most throughput proven for {d.shape.label}: {d.deployment}, {point}; {rest}."
        if not self.others:
            return f"For {d.shape.label} only {d.deployment} keeps the SLA: {point}."
        apart = "more than" if self.sure else "within the interval of"
        return f"Most throughput proven for {d.shape.label}: {d.deployment}, {point}, {apart} {_listed(self.others)}."


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What one SLA (a tier of a config, or one that was asked) gives.

    `common` holds, per deployment that was measured in several shapes, the one concurrency that keeps the SLA in all of
    them, None where none does. `best` has an entry per shape that several deployments were measured in and one keeps
    it; `cheapest` one per shape in which several priced deployments do.
    `arrivals` is what each operating point takes of requests that come at random: a plan, not a claim.
    """

    tier: str
    limits: tuple[Limit, ...]
    decisions: tuple[Decision, ...]
    common: Mapping[str, int | None] = field(default_factory=dict)
    cheapest: tuple[Cheapest, ...] = ()
    arrivals: Mapping[Setting, capacity.ArrivalRate] = field(default_factory=dict)
    best: tuple[Best, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about what is common to several shapes or deployments."""
        return (*self._common_notes(), *(best.note for best in self.best), *self._cheapest_notes())

    def _common_notes(self) -> list[str]:
        notes = []
        for deployment, c in self.common.items():
            mine = [d for d in self.decisions if d.deployment == deployment]
            of = f" on {deployment}" if len(self.common) > 1 else ""
            alone = ", ".join(f"{d.shape.label} {d.concurrency if d.concurrency is not None else 'none'}" for d in mine)
            if c is not None:
                notes.append(f"One concurrency for all shapes{of}: {c} (each alone: {alone}).")
            else:
                notes.append(f"No concurrency measured is proven in every shape{of} (each alone: {alone}).")
        return notes

    def _cheapest_notes(self) -> list[str]:
        notes = []
        for found in self.cheapest:
            d = found.decision
            price = f"${d.metrics['cost'].value:.3g}/Mtok"
            sure = "" if found.sure else ", though within the doubt another may be"
            notes.append(f"Cheapest for {d.shape.label}: {d.deployment} at c={d.concurrency}, {price}{sure}.")
        return notes


def answer(
    tier: str, limits: Sequence[Limit], points: Sequence[Point], decisions: Sequence[Decision],
    gpus: Mapping[str, int | None] | None = None,
) -> Answer:  # fmt: skip
    """The decisions of `sla.solve_all` with what belongs to all of them; `points` are those decided on.

    Where the number of GPUs of every deployment is known, they are compared per GPU.
    """
    shapes: dict[str, set[Shape]] = {}
    for d in decisions:
        shapes.setdefault(d.deployment, set()).add(d.shape)
    several = [d for d in decisions if len(shapes[d.deployment]) > 1]
    groups: dict[Setting, list[Point]] = {}
    for point in points:
        groups.setdefault((point.deployment, point.shape), []).append(point)
    arrivals = {
        at: rate
        for d in decisions
        if d.concurrency is not None
        and (rate := capacity.arrival_rate(groups.get(at := (d.deployment, d.shape), ()), d.concurrency)) is not None
    }
    return Answer(
        tier, tuple(limits), tuple(decisions), operating_point.common(several), _cheapest(decisions), arrivals,
        _best(decisions, gpus or {}),
    )  # fmt: skip


def _best(decisions: Sequence[Decision], gpus: Mapping[str, int | None]) -> tuple[Best, ...]:
    found = []
    for shape in dict.fromkeys(d.shape for d in decisions):
        mine = [d for d in decisions if d.shape == shape]
        each = [gpus.get(d.deployment) for d in mine]
        share = {d.deployment: 1.0 / n if n and None not in each else 1.0 for d, n in zip(mine, each, strict=True)}
        met = [d for d in mine if d.concurrency is not None and "output_throughput" in d.metrics]
        met.sort(key=lambda d: -d.metrics["output_throughput"].value * share[d.deployment])
        if len(mine) < 2 or not met:
            continue
        first, rest = met[0], met[1:]
        low = first.metrics["output_throughput"].low * share[first.deployment]
        sure = all(low > d.metrics["output_throughput"].high * share[d.deployment] for d in rest)
        rate = first.metrics["output_throughput"].value * share[first.deployment]
        lost = (Verdict.MEETS, Verdict.VIOLATES)
        unproven = tuple(d.deployment for d in mine if d.verdict not in lost)
        others = tuple(d.deployment for d in rest)
        found.append(Best(first, rate, None not in each, sure, others, unproven))
    return tuple(found)


def _cheapest(decisions: Sequence[Decision]) -> tuple[Cheapest, ...]:
    found = []
    for shape in dict.fromkeys(d.shape for d in decisions):
        mine = [d for d in decisions if d.shape == shape and d.concurrency is not None and "cost" in d.metrics]
        best, sure = cost_energy.cheapest(mine)
        if best is not None and len(mine) > 1:
            found.append(Cheapest(best, sure))
    return tuple(found)


def exit_code(answers: Sequence[Answer]) -> ExitCode:
    """The worst of all decisions of all tiers, as `sla.exit_code`."""
    return operating_point.exit_code([d for a in answers for d in a.decisions])
