"""`frontier pack`: a run as one file that anyone can audit."""

from pathlib import Path

import click

from frontier.cli import common
from frontier.errors import ExitCode, UsageError
from frontier.store.run_dir import RunDirectory


@common.subcommand("pack")
@click.option("-o", "--output", required=True, type=common.FILE_PATH, help="The pack, as claim.zip.")
@common.run_options("run")
def command(options: common.RunOptions, output: Path) -> int:
    """Pack RUN into one file that anyone can check with `frontier audit`: its records, evidence,
    config and journal, and the points and answers that follow from them.

    A run that is being swept or was changed is not packed. Prints the SHA-256 of the pack: publish
    it beside the claim. RUN defaults to the newest run under runs/ that holds a finished trial.

    \b
    Examples:
      frontier pack runs/llama8b -o claim.zip
    """
    from frontier.audit import archive
    from frontier.audit.check import state
    from frontier.audit.contradictions import contradictions

    path = common.find_run(options.run)
    common.read_run(path, say_unfinished=True)
    run, claim = state(path)
    if run.standing is not None and run.standing.end == "running":
        raise UsageError(f"a sweep is running on {path}", "pack it when it has ended")
    if run.altered:
        raise run.altered[0][1]
    for line in contradictions(run):
        common.say(f"warning: the audit will find that {line}")
    sha256 = archive.write(output, path, RunDirectory.read(path).finished(), claim)
    common.answer(f"{sha256}  {output}")
    common.say(f"anyone checks it with  frontier audit {output.name}")
    return ExitCode.YES
