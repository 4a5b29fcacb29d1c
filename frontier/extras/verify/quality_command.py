"""`frontier verify --quality` and `--scorer`: answers beside those of a reference."""

import os
from collections.abc import Sequence

from frontier.cli.common import RunOptions, answer, note
from frontier.core.model.decisions import Limit
from frontier.core.model.errors import ExitCode, UsageError
from frontier.core.model.loads import setting
from frontier.extras.verify.command_send import Tick, consent, send, stopped
from frontier.run import Run


def run(options: RunOptions, scorer: str | None, *, asked: bool, sized: bool, others: Sequence[str]) -> int:
    """Run `--quality` (`asked`), with a scorer. Returns the exit code. UsageError for a scorer
    alone, where the load was given (`sized`), or where `others` of the questions are asked too.
    """
    if asked and sized:
        raise UsageError("--quality sends its own requests", "leave out --load and --requests")
    if asked and others:
        raise UsageError(f"{others[0]} and --quality are two questions", "ask one of them")
    if scorer is not None and not (asked and scorer.strip()):
        what = "--scorer is a command that scores the answers of --quality"
        raise UsageError(what, "write  --quality --scorer 'python3 score.py'")
    loaded = options.read()
    return _quality(loaded, options.limits(loaded), scorer, options.as_json)


def _quality(run: Run, limits: Sequence[Limit], scorer_command: str | None, as_json: bool) -> int:
    """Ask the deployments and their references at their operating points, and answer. Returns the
    exit code.
    """
    from frontier.extras.verify.agreement import of_run
    from frontier.extras.verify.answers import Scorer, check_quality, quality_checks
    from frontier.extras.verify.quality_tables import quality_json, quality_text
    from frontier.store.run_dir import RunDirectory
    from frontier.sweep.secrets_of_config import secrets_of

    wanted = quality_checks(run, limits)
    consent(run)
    for decision, prompts in wanted:
        where = decision.series.label(keep_shape=True)
        note(f"{where}  {prompts:,} prompts in two passes, greedily, at {setting(decision.concurrency or 1)}")
    scorer = None
    if scorer_command is not None:
        keys = {name for d in run.config.deployments for name in d.secret_variables()}
        environ = {name: value for name, value in os.environ.items() if name not in keys}
        scorer = Scorer(scorer_command, environ, secrets_of(run.config, os.environ))
    done = send(run, Tick(), lambda sender: check_quality(sender, wanted, scorer))
    compared = of_run(run.config, RunDirectory.read_checks(run.path))
    answer(quality_json(compared) if as_json else quality_text(compared))
    return stopped() if done < len(wanted) else ExitCode.YES
