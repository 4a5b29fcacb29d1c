"""`frontier pack`: a run as one file that anyone can audit."""

import os
from pathlib import Path

import click

from frontier.cli import common
from frontier.errors import ExitCode, UsageError
from frontier.store.files import Folder
from frontier.store.journal import MOST_BYTES
from frontier.store.run_dir import RunDirectory
from frontier.text import Secrets, environment_secrets


@common.subcommand("pack")
@click.option("-o", "--output", required=True, type=common.FILE_PATH, help="The pack, as claim.zip.")
@click.option(
    "--sla",
    multiple=True,
    shell_complete=common.complete_metrics,
    metavar="LIMITS",
    help="Claim the answer under these limits; repeatable. Default: every tier of the config.",
)
@common.run_options("run")
def command(options: common.RunOptions, output: Path, sla: tuple[str, ...]) -> int:
    """Pack RUN into one file that anyone can check with `frontier audit`: its records, evidence, config and journal,
    and the points and answers that follow from them.

    A run that is being swept or was changed is not packed. Prints the SHA-256 of the pack: publish it beside the claim.
    RUN defaults to the newest run under runs/ that holds a finished trial.

    \b
    Examples:
      frontier pack runs/llama8b -o claim.zip
      frontier pack runs/llama8b -o claim.zip --sla 'p99_ttft<=300ms'
    """
    from frontier.audit import archive
    from frontier.audit.contradictions import contradictions
    from frontier.audit.statement import state

    path = common.find_run(options.run)
    common.read_run(path, say_unfinished=True)
    run, claim = state(path, sla)
    if run.standing is not None and run.standing.end == "running":
        raise UsageError(f"a sweep is running on {path}", "pack it when it has ended")
    if run.altered:
        raise run.altered[0][1]
    _require_no_secret(path)
    for line in contradictions(run):
        common.say(f"warning: the audit will find that {line}")
    sha256 = archive.write(output, path, RunDirectory.read(path).finished(), claim)
    common.answer(f"{sha256}  {output}")
    common.say(f"anyone checks it with  frontier audit {output.name}")
    return ExitCode.YES


def _require_no_secret(path: Path) -> None:
    """UsageError where a text of the run holds a key, which `sweep` writes into none: it may have been edited since."""
    secrets, folder = Secrets.of((), environment_secrets(os.environ)), Folder(path)
    for name in ("config.yaml", "manifest.json", "journal.jsonl"):
        text = folder.read(name, MOST_BYTES).decode(errors="replace") if folder.exists(name) else ""
        for number, line in enumerate(text.splitlines(), 1):
            if secrets.redact(line) != line:
                what = f"{folder.path / name}:{number} holds what looks like a key"
                raise UsageError(what, "take it out: a pack is for others to read")
