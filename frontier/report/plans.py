"""What a sweep would do, as a table for a terminal."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from frontier.decide.wording import clean, count, limits_text
from frontier.model import Limit, Trial
from frontier.report.tables import to_text
from frontier.units import format_bytes, format_elapsed


class PlanLike(Protocol):
    """What the table needs to know of a plan."""

    @property
    def trials(self) -> Sequence[Trial]: ...
    @property
    def longest(self) -> float: ...
    @property
    def refine(self) -> int: ...
    @property
    def refine_longest(self) -> float: ...
    @property
    def expected_bytes(self) -> float: ...


class ConfigLike(Protocol):
    """What the table needs to know of a config."""

    @property
    def tiers(self) -> Sequence[tuple[str, Sequence[Limit]]]: ...


def plan_table(config: ConfigLike, plan: PlanLike, *, width: int = 80, colour: bool = False) -> str:
    """What a sweep would run and the longest it can take; nothing has been sent."""
    groups: dict[tuple[str, str], list[Trial]] = {}
    for trial in plan.trials:
        groups.setdefault((trial.deployment, trial.shape.label), []).append(trial)
    several = len({deployment for deployment, _ in groups}) > 1
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for head in (*(["deployment"] if several else []), "shape", "concurrency"):
        table.add_column(head)
    for head in ("repeats", "trials", "requests", "at most"):
        table.add_column(head, justify="right", no_wrap=True)
    for (deployment, shape), trials in groups.items():
        settings = sorted({t.concurrency for t in trials})
        table.add_row(
            *([Text(clean(deployment, 30))] if several else []), Text(clean(shape, 30)),
            Text(" ".join(map(str, settings))), str(max(t.repeat for t in trials)), f"{len(trials):,}",
            f"{sum(t.requests for t in trials):,}", format_elapsed(sum(t.max_time for t in trials)),
        )  # fmt: skip
    lines: list[RenderableType] = [table, Text(""), Text(_plan_sentence(plan, groups), style="bold")]
    if plan.refine:
        more = f"then up to {count(plan.refine, 'setting')} more per shape where"
        if len(config.tiers) > 1:
            named = ", ".join(f"{clean(name, 30)} ({limits_text(limits)})" for name, limits in config.tiers)
            more += f" each of {count(len(config.tiers), 'tier')}, {named},"
        else:
            more += f" {limits_text(config.tiers[0][1])}"
        lines.append(Text(f"{more} is decided, at most {format_elapsed(plan.refine_longest)}"))
    return to_text(Group(*lines), width=width, colour=colour)


def _plan_sentence(plan: PlanLike, groups: Mapping[tuple[str, str], Sequence[Trial]]) -> str:
    trials = plan.trials
    shapes, settings = {t.shape.label for t in trials}, {t.concurrency for t in trials}
    repeats, deployments = max((t.repeat for t in trials), default=0), {d for d, _ in groups}
    factors = [(len(deployments), "deployment")] if len(deployments) > 1 else []
    factors += [(len(shapes), "shape")]
    said = " × ".join(count(n, noun) for n, noun in factors)
    concurrencies = "concurrency" if len(settings) == 1 else "concurrencies"
    said += f" × {len(settings)} {concurrencies} × {count(repeats, 'repeat')}"
    product = len(deployments) * len(shapes) * len(settings) * repeats
    equals = f"{said} = " if product == len(trials) else ""
    longest = format_elapsed(plan.longest)
    disk = f", about {format_bytes(plan.expected_bytes)} on disk" if plan.expected_bytes else ""
    return f"{equals}{count(len(trials), 'trial')}, at most {longest}{disk}; nothing sent"
