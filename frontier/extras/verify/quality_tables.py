"""Quality of answers in words and as JSON (`frontier verify --quality`)."""

from collections.abc import Mapping

from rich.text import Text

from frontier.core.model.loads import Concurrency
from frontier.core.model.points import Estimate
from frontier.core.model.series import Series, unnamed
from frontier.core.model.text import clean_name
from frontier.core.model.units import format_number, format_share
from frontier.extras.verify.agreement import Agreement
from frontier.show.table import Table, to_text
from frontier.show.view.json_out import Tree, estimate_tree

QUALITY_SCHEMA, UNDER_LOAD_SCHEMA = "frontier.quality/1", "frontier.quality-under-load/1"


def quality_text(compared: Mapping[Series, Agreement]) -> str:
    """The comparisons: a block for each deployment beside its reference, each with the reference
    beside itself.
    """
    blocks = []
    for series, each in compared.items():
        if each.of is each.reference:
            continue
        other = clean_name(each.reference.deployment)
        rows = [
            [f"same next token as {other}", format_share(each.agreement.value), _share_ci(each.agreement)],
            [f"{other} with itself", format_share(each.itself.value), _share_ci(each.itself)],
            ["loss", *_loss(each.loss)],
        ]
        if each.distance is not None and each.own_distance is not None:
            apart = f"{other} with itself {format_number(each.own_distance.value)}"
            rows.append(["log-probabilities apart", f"{format_number(each.distance.value)} nat", apart])
        if (scores := each.scores) is not None:
            own = f"95% CI {_points(scores.itself.low)} to {_points(scores.itself.high)} points"
            rows += [
                ["score", format_share(scores.mine.value), _share_ci(scores.mine)],
                [f"score of {other}", format_share(scores.reference.value), _share_ci(scores.reference)],
                ["loss of score", *_loss(scores.loss)],
                [f"{other} from pass to pass", f"{_points(scores.itself.value)} points", own],
            ]
        head = f"{series.label(keep_shape=True)} beside {other}: {each.prompts:,} prompts, greedily, at "
        at = " and ".join(dict.fromkeys(Concurrency(a.concurrency).label for a in (each.of, each.reference)))
        table = Table.of((), [["", *row] for row in rows], right=(2,))
        blocks.append(to_text(Text(head + at, style="bold"), table.drawn(100), width=100))
    return "\n\n".join(blocks) or "nothing to compare yet: the reference or the others were not asked"


def under_load_text(compared: Mapping[tuple[str, str], Mapping[int, Agreement]]) -> str:
    """How alike a deployment's answers among the load of each setting are to those it gives alone:
    a table of each deployment and shape.
    """
    blocks = []
    for (deployment, shape), found in compared.items():
        prompts = max(each.prompts for each in found.values())
        named = "" if unnamed(deployment) else f"{clean_name(deployment)} · "
        head = f"{named}{clean_name(shape)}: {prompts:,} prompts, greedily, among the load of each setting"
        rows = [_under_load_row(c, each) for c, each in found.items()]
        scored = any(each.scores is not None for each in found.values())
        names = ("c", "agreement with c=1", "95% CI", "loss", "", *(("score", "loss of score", "") if scored else ()))
        table = Table.of(names, [row + [""] * (len(names) - len(row)) for row in rows], right=(0, 1, 3))
        notes = [
            f"c={c}: {each.of.cached:,} of {2 * len(each.of.passes[0]):,} answers began from a cached prefix"
            for c, each in found.items()
            if each.of.cached
        ]
        several = len(found) - 1
        if several > 1:
            notes.append(f"losses: 95% over {several} settings together")
        blocks.append(to_text(Text(head, style="bold"), table.drawn(100), *notes, width=100))
    return "\n\n".join(blocks) or "nothing to compare yet: the prompts were not asked at c=1 and another setting"


def _under_load_row(concurrency: int, each: Agreement) -> list[str]:
    """The agreement at a setting, its loss, and the scores where there are some."""
    ci = f"{format_share(each.agreement.low)} to {format_share(each.agreement.high)}"
    loss = ("", "(with itself)") if each.of is each.reference else _loss(each.loss)
    row = [str(concurrency), format_share(each.agreement.value), ci, *loss]
    if each.scores is not None:
        lost = ("", "") if each.of is each.reference else _loss(each.scores.loss)
        row += [format_share(each.scores.mine.value), *lost]
    return row


def under_load_json(compared: Mapping[tuple[str, str], Mapping[int, Agreement]]) -> Tree:
    """The answer of `frontier verify --quality --under-load --json`."""
    return {
        "schema": UNDER_LOAD_SCHEMA,
        "compared": [
            {
                "deployment": deployment,
                "shape": shape,
                "settings": [
                    {"concurrency": c, "prompts": each.prompts, "cached": each.of.cached, **_estimates(each)}
                    for c, each in found.items()
                ],
            }
            for (deployment, shape), found in compared.items()
        ],
    }


def _estimates(each: Agreement) -> Tree:
    """The estimates of a comparison, None for one that is not known."""
    names = ("agreement", "itself", "loss", "distance", "own_distance")
    scores = each.scores
    return {
        **{name: estimate_tree(e) if (e := getattr(each, name)) is not None else None for name in names},
        "scores": None
        if scores is None
        else {name: estimate_tree(getattr(scores, name)) for name in ("mine", "reference", "loss", "itself")},
    }


def _share_ci(share: Estimate) -> str:
    return f"95% CI {format_share(share.low)} to {format_share(share.high)}"


def _loss(loss: Estimate) -> tuple[str, str]:
    """The loss in points, with the bound that decides whether there is one."""
    points = f"{_points(loss.value)} points"
    if loss.lower > 0:
        return points, f"at least {_points(loss.lower)} points (95%)"
    return points, f"none is seen: at most {_points(loss.upper)} points (95%)"


def _points(share: float) -> str:
    return f"{100 * share:.1f}"


def quality_json(compared: Mapping[Series, Agreement]) -> Tree:
    """The answer of `frontier verify --quality --json`."""
    return {
        "schema": QUALITY_SCHEMA,
        "compared": [
            {
                "deployment": each.of.deployment,
                "shape": series.shape.label,
                "concurrency": each.of.concurrency,
                "reference": each.reference.deployment,
                "prompts": each.prompts,
                **_estimates(each),
            }
            for series, each in compared.items()
        ],
    }
