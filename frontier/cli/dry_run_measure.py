"""`frontier sweep --dry-run --measure`: a scan of a minute, and the time of the sweep that follows
from it.

Nothing of it stays: the trials are made in a folder that is removed. Where the run has finished
trials, the time follows from them and nothing is sent.
"""

import shlex
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frontier.cli.common import RunOptions, answer, layout, note
from frontier.cli.consent import consent_to_sweep
from frontier.core.model.errors import MeasurementError, UsageError
from frontier.core.model.units import format_elapsed
from frontier.show.verbosity import Detail
from frontier.store.journal import Amount
from frontier.store.run_dir import RunDirectory

if TYPE_CHECKING:
    from frontier.cli.measured_plan import MeasuredPlan
    from frontier.cli.sweep_request import SweepRequest
    from frontier.planning.plan import Plan
    from frontier.sweep.ledger import Ledger

MINUTE = 60.0
"""Seconds of the scan, beside the starts of servers."""


def print_measured(
    options: RunOptions, request: "SweepRequest", plan: "Plan", facts: Mapping[str, Any], *, whole: bool
) -> int:
    """Print the plan with what a scan of a minute says of it. Returns the exit code. UsageError
    unless this is a dry run of the `whole` sweep.
    """
    if not whole:
        raise UsageError("--measure is for the time of a whole sweep", "add  --dry-run,  and leave out  --prove")
    from frontier.cli.dry_run import Outlook, print_plan, remaining
    from frontier.planning.plan import NO_PROOFS

    ledger, todo = remaining(request.config, plan, request.run)
    measured = _measured(options.detail, request, plan, facts, ledger)
    outlook = Outlook(ledger, len(plan.trials) - len(todo), measured.coming, measured.in_all)
    also = {"measured": measured.tree()}
    code = print_plan(request.config, plan, request.run, options, NO_PROOFS, outlook, also)
    if not options.as_json:
        answer(f"\n{measured.text(**layout())}")
    return code


def _measured(
    detail: Detail, request: "SweepRequest", plan: "Plan", facts: Mapping[str, Any], ledger: "Ledger"
) -> "MeasuredPlan":
    """The plan after a scan of a minute, or after the finished trials of the run. The ledger then
    has the times of these trials.
    """
    from frontier.cli.dry_run import remaining
    from frontier.cli.measured_plan import measured_plan
    from frontier.read_run import load

    if request.run is not None and (histories := load(request.run).histories):
        return measured_plan(request.config, plan, ledger, histories, request.again, None)
    with tempfile.TemporaryDirectory(prefix="frontier-minute-") as here:
        path = Path(here) / "run"
        seconds = _scan(detail, request, plan, facts, path)
        if not (histories := load(path).histories):
            hint = f"look closer with  frontier probe {shlex.quote(request.source)}"
            reasons = [line["reason"] for line in RunDirectory.read(path).journal_lines() if "reason" in line]
            why = f": {reasons[-1]}" if reasons else ""
            raise MeasurementError(f"no trial was finished in this minute{why}", hint)
        ledger.times = remaining(request.config, plan, path)[0].times
        return measured_plan(request.config, plan, ledger, histories, request.again, seconds)


def _scan(detail: Detail, request: "SweepRequest", plan: "Plan", facts: Mapping[str, Any], path: Path) -> float:
    """Measure for a minute into `path`. Returns the seconds that it took."""
    from frontier.cli.measuring import measure
    from frontier.config import BudgetConfig
    from frontier.config.config_file import open_run
    from frontier.sweep.scan_course import ScanCourse

    consent_to_sweep(Path(request.source), request.config)
    note(f"about {format_elapsed(MINUTE)} of quick looks, to know how long the sweep takes; nothing of them is kept")
    config = request.config.model_copy(update={"budget": BudgetConfig()})
    with open_run(path, request.config, request.text, facts) as run:
        quiet, course = detail is Detail.ANSWER, ScanCourse(MINUTE)
        if measure(config, plan, run, {}, request.facts, quiet=quiet, course=course) == "interrupted":
            raise KeyboardInterrupt
        return Amount.of(run.journal_lines()).seconds
