"""One SLA asked of a whole run: each shape's operating point, and what only all of them together can say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from frontier.analyze import capacity, cost, sla
from frontier.errors import ExitCode
from frontier.model import Decision, Limit, Point, Shape

Setting = tuple[str, Shape]


@dataclass(frozen=True, slots=True)
class Cheapest:
    """The deployment of least cost per token for one shape, each at its own operating point. `sure`: beyond doubt."""

    decision: Decision
    sure: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """What one SLA (a tier of a config, or one that was asked) gives.

    `common` holds, per deployment that was measured in several shapes, the one concurrency that keeps the SLA in all of
    them, None where none does. `cheapest` has an entry per shape in which several priced deployments keep it.
    `arrivals` is what each operating point takes of requests that come at random: a plan, not a claim.
    """

    tier: str
    limits: tuple[Limit, ...]
    decisions: tuple[Decision, ...]
    common: Mapping[str, int | None] = field(default_factory=dict)
    cheapest: tuple[Cheapest, ...] = ()
    arrivals: Mapping[Setting, capacity.ArrivalRate] = field(default_factory=dict)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about what is common to several shapes or deployments."""
        return (*self._common_notes(), *self._cheapest_notes())

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


def answer(tier: str, limits: Sequence[Limit], points: Sequence[Point], decisions: Sequence[Decision]) -> Answer:
    """The decisions of `sla.solve_all` with what belongs to all of them; `points` are those decided on."""
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
    return Answer(tier, tuple(limits), tuple(decisions), sla.common(several), _cheapest(decisions), arrivals)


def _cheapest(decisions: Sequence[Decision]) -> tuple[Cheapest, ...]:
    found = []
    for shape in dict.fromkeys(d.shape for d in decisions):
        mine = [d for d in decisions if d.shape == shape and d.concurrency is not None and "cost" in d.metrics]
        best, sure = cost.cheapest(mine)
        if best is not None and len(mine) > 1:
            found.append(Cheapest(best, sure))
    return tuple(found)


def exit_code(answers: Sequence[Answer]) -> ExitCode:
    """The worst of all decisions of all tiers, as `sla.exit_code`."""
    return sla.exit_code([d for a in answers for d in a.decisions])
