"""What a pack states of a run, and its audit: hashes, contradictions, and all that is stated
derived again."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from frontier._version import __version__
from frontier.audit.archive import Unpacked, unpacked
from frontier.audit.contradictions import Journal, contradictions, is_fixed
from frontier.errors import FrontierError, UsageError
from frontier.model import in_words
from frontier.report.answer import answers_json
from frontier.report.json_out import points_json
from frontier.run import Run, load
from frontier.store.run_dir import RunDirectory
from frontier.text import clean, clean_name

SCHEMA = "frontier.claim/1"
DERIVED = ("servers", "unfinished", "points", "frontiers", "tiers")
"""The parts of a statement that follow from the run's files."""
_SAME = 1e-9
"""Relative difference of two numbers that are the same: other builds of numpy add up in another
order."""
_AGAIN = "frontier sweep CONFIG"
AUDIT_SCHEMA = "frontier.audit/1"
MOST = 1_000
"""Contradictions that are kept; one is enough."""
_VERSION = re.compile(r"[0-9][0-9A-Za-z.+]{0,30}")


@dataclass(frozen=True, slots=True)
class Audit:
    """The result: `found` is what does not agree, `unchecked` what this pack gives no means to
    check. `made_by` is the version that made it; `answers` are what its records give, `trials`,
    `requests` and `points` were read and derived.
    """

    found: tuple[str, ...]
    unchecked: tuple[str, ...]
    made_by: str
    answers: tuple[str, ...]
    trials: int = 0
    requests: int = 0
    points: int = 0

    @property
    def consistent(self) -> bool:
        return not self.found

    def tree(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "schema": AUDIT_SCHEMA,
            "self_consistent": self.consistent,
            "origin": "unknown",
            "answers": list(self.answers),
            "contradictions": list(self.found),
            "not_checked": list(self.unchecked),
            "made_by": self.made_by,
            "checked": {"trials": self.trials, "requests": self.requests, "points": self.points},
        }


def audit(pack: Path) -> Audit:
    """Audit a pack, in a directory of its own and without a network. UnsoundPackError for a file
    that is none, UsageError for one that only another version can read.
    """
    with unpacked(pack) as inside:
        claim, version = inside.claim, str(inside.claim.get("frontier"))
        made_by = version if _VERSION.fullmatch(version) else "?"  # it goes into a command
        if claim.get("schema") != SCHEMA:
            raise UsageError(
                f"{pack} has a claim of the form {clean_name(str(claim.get('schema')))!r}; this version reads {SCHEMA}",
                f"audit it with the version that made it:  pip install llm-frontier=={made_by}",
            )
        found, unchecked, answers, trials, points = _changed(inside), [], [], 0, 0
        if made_by != __version__:
            unchecked.append(f"it was made by frontier {made_by}, this is {__version__}: a number may be defined anew")
        try:
            run, derived = state(inside.run)
            found += [line for name in DERIVED for line in differences(claim.get(name), derived[name], name)]
            found += [error.what for _, error in run.altered]
            found += contradictions(run)
            unchecked += _unchecked(run)
            answers += _answers(run)
            trials, points = sum(map(len, run.histories.values())), len(derived["points"])
        except FrontierError as error:
            found.append(f"the run in it cannot be read: {error.what}")
        found = [clean(line.replace(str(inside.run), "run"), 300) for line in found[:MOST]]
        return Audit(tuple(found), tuple(unchecked), made_by, tuple(answers), trials, inside.records, points)


def _changed(inside: Unpacked) -> list[str]:
    """The files that are not those that the claim lists, and what a claim does not state."""
    stated = inside.claim.get("files")
    listed = stated if isinstance(stated, dict) else {}
    every = sorted(listed.keys() | inside.files.keys())
    changed = [
        f"{name} is not the file that was packed" for name in every if listed.get(name) != inside.files.get(name)
    ]
    more = sorted(inside.claim.keys() - {"schema", "frontier", "files", *DERIVED})
    return changed + [f"claim.json states {name}, which no pack does" for name in more]


def _unchecked(run: Run) -> list[str]:
    """What the files of the run give no means to check."""
    if run.is_imported:
        return ["its points are aggregates of another tool: there are no requests to derive them from"]
    journal = Journal.of(RunDirectory.read(run.path).journal_lines())
    trials = [trial for history in run.histories.values() for trial, _ in history]
    no_sums = sum(trial.key not in journal.sums for trial in trials)
    no_seed = sum(trial.key not in journal.salts and not is_fixed(trial.shape) for trial in trials)
    each = (
        (run.unhashed, "trials have no hash: an earlier version measured them"),
        (no_sums, "trials have no sums in the journal"),
        (no_seed, "trials have lengths whose seed the journal does not keep"),
    )
    return [f"{count} of {len(trials)} {what}" for count, what in each if count]


def _answers(run: Run) -> list[str]:
    """Each answer in one line: '256/32: concurrency 4 meets p50 TTFT ≤ 50 ms'."""
    lines = []
    for answer in run.answers():
        sla = ", ".join(map(str, answer.limits))
        for d in answer.decisions:
            meets = (
                f"{in_words(d.concurrency)} meets"
                if d.concurrency
                else f"no concurrency is proven ({d.verdict}) to meet"
            )
            lines.append(f"{d.series.label()}: {meets} {sla}")
    return lines


def state(path: Path) -> tuple[Run, dict[str, Any]]:
    """The run in a directory, and what its pack states: every number and verdict that its records
    give.
    """
    run = load(path)
    if run.standing is not None:  # the command that goes on names directories of the machine
        run = replace(run, standing=replace(run.standing, again=_AGAIN))
    axes = run.config.objectives
    points = run.points(names=axes)
    summaries = run.summaries(points, axes)
    shown = points_json(points, [summary.frontier for summary in summaries], summaries)
    begun = [line for line in RunDirectory.read(path).journal_lines() if line["event"] == "server"]
    return run, orjson.loads(
        orjson.dumps(
            {
                "schema": SCHEMA,
                "frontier": __version__,
                "servers": [{name: line[name] for name in ("deployment", "model", "identity")} for line in begun],
                "unfinished": None if run.standing is None else run.standing.tree(),
                "points": shown["points"],
                "frontiers": shown["frontiers"],
                "tiers": answers_json(run.answers())["tiers"],
            },
            option=orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY,
        )
    )


def differences(stated: Any, derived: Any, where: str = "") -> Iterator[str]:
    """Where two statements differ: 'points c=88 metrics p99_ttft value: stated 0.212, the records
    give 0.241'.
    """
    if isinstance(stated, dict) and isinstance(derived, dict):
        for name in sorted(stated.keys() | derived.keys()):
            yield from differences(stated.get(name), derived.get(name), f"{where} {name}".strip())
    elif isinstance(stated, list) and isinstance(derived, list) and len(stated) == len(derived):
        for i, (one, other) in enumerate(zip(stated, derived, strict=True)):
            yield from differences(one, other, f"{where} {_label(other, i)}")
    elif not _same(stated, derived):
        yield f"{clean(where)}: stated {_text(stated)}, the records give {_text(derived)}"


def _label(item: Any, index: int) -> str:
    """An entry of a list, by what a reader knows it by."""
    tree = item if isinstance(item, dict) else {}
    known = [str(tree[name]) for name in ("tier", "deployment", "shape") if tree.get(name)]
    if known and tree.get("concurrency") is not None:
        known.append(f"c={tree['concurrency']}")
    return " ".join(known) or str(index + 1)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, int | float) and isinstance(other, int | float) and not isinstance(one, bool):
        return math.isclose(one, other, rel_tol=_SAME, abs_tol=1e-12)
    return type(one) is type(other) and bool(one == other)


def _text(value: Any) -> str:
    if isinstance(value, dict | list):
        return f"{len(value)} entries"
    if isinstance(value, float):
        return f"{value:.10g}"
    return "nothing" if value is None else clean(str(value), 60)
