"""The frontier pooled over several deployments: which of them owns which part of it."""

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from frontier.core.loads import setting
from frontier.core.metrics import metric
from frontier.core.pareto import Pooled
from frontier.core.text import clean_name
from frontier.show.json_out import Tree, tree_of
from frontier.show.table import Table, to_text
from frontier.show.wording import limits_text, value_text


def pooled_table(pool: Pooled) -> Table:
    """The settings on the pooled frontier with their owners, and the owners without one."""
    heads = ("deployment", "concurrency", *(metric(name).label for name in pool.objectives))
    rows = [
        (
            clean_name(p.deployment),
            setting(p.concurrency),
            *(value_text(name, p.metrics[name].value) for name in pool.objectives),
        )
        for p in pool.members
    ]
    rows += [
        (clean_name(owner), f"no part: {why}", *("" for _ in pool.objectives)) for owner, why in pool.without.items()
    ]
    keep = f", settings proven to keep {limits_text(pool.hidden)}" if pool.hidden else ""
    caption = f"Frontier over all deployments, {clean_name(pool.shape.label)}{keep}"
    return Table.of(heads, rows, caption, right=range(2, len(heads)))


def pooled_text(pools: Sequence[Pooled], *, width: int = 80, colour: bool = False) -> str:
    """The pooled frontiers for a terminal."""
    blocks: list[RenderableType] = []
    for table in map(pooled_table, pools):
        blocks += [Text(table.caption, style="bold"), table.drawn(width)]
    return to_text(*blocks, width=width, colour=colour)


def pooled_json(pools: Sequence[Pooled]) -> list[Tree]:
    """For `show --json` and the report: which deployment owns which part of the frontier over
    all.
    """
    return [
        {
            "shape": pool.shape.label,
            "objectives": list(pool.objectives),
            "members": [
                {
                    "deployment": p.deployment,
                    "concurrency": p.concurrency,
                    "metrics": {name: tree_of(p.metrics[name]) for name in pool.objectives},
                }
                for p in pool.members
            ],
            "without": dict(pool.without),
        }
        for pool in pools
    ]
