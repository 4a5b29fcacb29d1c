"""An answer as every output shows it: its headline, figures and lines, and what would decide a
better one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from frontier.core.model.decisions import Decision, Verdict
from frontier.core.model.loads import Load
from frontier.core.model.series import Series
from frontier.core.model.text import clean
from frontier.planning.next_step import spoilt_settings
from frontier.planning.sla_result import ArrivalRate, SlaResult
from frontier.show.view.background_view import background_note
from frontier.show.view.explain import other_reasons, why_not_more
from frontier.show.view.figures import Figure, figure_row, figures
from frontier.show.view.sentences import (
    answer_cells,
    claim_sentence,
    half_undecided,
    headline,
    next_step_lines,
    production_lines,
)
from frontier.show.view.sla_notes import best_note, sla_notes
from frontier.show.view.wording import limits_text

Tone = Literal["yes", "open", "no"]
_TONES: dict[Verdict, Tone] = {Verdict.MEETS: "yes", Verdict.VIOLATES: "no", Verdict.INVALID: "no"}
LONGEST = 400
"""The most characters of a sentence that holds words of servers and files."""


@dataclass(frozen=True, slots=True)
class AnswerView:
    """An answer as every output shows it.

    - `chosen`: the load of the operating point; `shown`: of the setting that the figures are of.
    - `headline`: the decision in a sentence, and its `tone`: what may be far from the best is open.
    - `rows`: a row per figure: name, value, bound, limit and margin.
    - `step`: what would decide a better setting, and the command; '' for a missing one.
    - `lines`: each with its label; `whole`: the same with what only a reader of all there is wants.
    - `cells`: the answer in columns, to stand beside others.
    """

    decision: Decision
    gpus: int | None
    headline: str
    tone: Tone
    figures: tuple[Figure, ...]
    rows: tuple[tuple[str, ...], ...]
    step: tuple[str, str]
    lines: tuple[tuple[str, str], ...]
    whole: tuple[tuple[str, str], ...]
    cells: tuple[str, ...]

    @property
    def series(self) -> Series:
        """The deployment and the shape."""
        return self.decision.series

    @property
    def proven(self) -> bool:
        """Whether the operating point is proven to meet the SLA."""
        return self.decision.verdict is Verdict.MEETS

    @property
    def star(self) -> str:
        """What the setting that is shown is, in a picture; '' where nothing valid was measured."""
        if self.decision.verdict is Verdict.INVALID:
            return ""
        nearest = "nearest" if self.decision.verdict is Verdict.VIOLATES else "not proven"
        return nearest if self.chosen is None else "run here"

    @property
    def chosen(self) -> Load | None:
        """The load of the operating point; None without one."""
        return self.decision.load

    @property
    def shown(self) -> Load | None:
        """The load of the setting whose numbers are shown."""
        return self.decision.shown


def answer_view(decision: Decision, arrivals: ArrivalRate | None = None, gpus: int | None = None) -> AnswerView:
    """The answer of a decision; `arrivals` is the rate that its operating point takes."""
    known = () if spoilt_settings(decision) else tuple(figures(decision))
    return AnswerView(
        decision,
        gpus,
        clean(headline(decision, gpus), LONGEST),
        "open" if half_undecided(decision) else _TONES.get(decision.verdict, "open"),
        known,
        tuple(figure_row(figure, gpus) for figure in known),
        next_step_lines(decision),
        tuple(_lines(decision, arrivals, whole=False)),
        tuple(_lines(decision, arrivals, whole=True)),
        tuple(part.partition(" (")[0] for part in answer_cells(decision, gpus=gpus)),
    )


def _lines(decision: Decision, arrivals: ArrivalRate | None, *, whole: bool) -> list[tuple[str, str]]:
    """The lines of a decision, each with its label: the next higher setting, how to enforce it,
    its confidence, and the other reasons. With `whole`, also asides in lines of their own.
    """
    if spoilt_settings(decision) and not whole:
        return []
    production = production_lines(decision, arrivals)
    lines = [("Next higher setting", " ".join(why_not_more(decision, whole=whole)))]
    # What is estimated of independent users is `frontier verify`'s to say.
    told = len(production) if decision.shape.arrivals is not None or decision.shape.has_sessions else 1
    lines += [("How to enforce it", " ".join(production[:told]))]
    lines += [("", aside) for aside in production[told:] if whole]
    lines += [("Confidence", claim_sentence(decision))]
    reasons = other_reasons(decision, whole=False)
    reasons += [reason for reason in other_reasons(decision) if whole and reason not in reasons]
    label = "Also" if decision.load is not None else "Why"
    lines += [(label if i == 0 else "", reason) for i, reason in enumerate(reasons)]
    return [(name, text) for name, text in lines if text]


@dataclass(frozen=True, slots=True)
class TierView:
    """The answers of one SLA: its name and limits in words, what stands above the answers (the best
    deployment) and below them (what shapes have in common).
    """

    name: str
    promise: str
    answers: tuple[AnswerView, ...]
    above: tuple[str, ...]
    below: tuple[str, ...]


def tier_views(results: Sequence[SlaResult], gpus: Mapping[str, int | None] | None = None) -> list[TierView]:
    """The answers of each SLA; `gpus` are the numbers that rates are divided by, by deployment."""
    return [_tier(result, gpus or {}) for result in results]


def _tier(result: SlaResult, gpus: Mapping[str, int | None]) -> TierView:
    above = (*map(background_note, result.backgrounds), *map(best_note, result.best))
    answers = (answer_view(d, result.arrivals.get(d.series), gpus.get(d.deployment)) for d in result.decisions)
    below = tuple(note for note in sla_notes(result) if note not in above)
    return TierView(clean(result.tier, 60), limits_text(result.limits), tuple(answers), above, below)
