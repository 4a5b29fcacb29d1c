"""What is asked first: a config in a run directory may be anybody's, and so may what it would run and send."""

import sys
from collections.abc import Iterable
from pathlib import Path

import click

from frontier.cli.common import say
from frontier.config import Config, load_config
from frontier.errors import MisaskedError


def consent(config_file: Path, config: Config) -> None:
    """Before a sweep. MisaskedError where the config is not evidently the user's own and nobody says yes."""
    if not (config_file.absolute().parent / "manifest.json").exists():
        return
    if config.commands:
        _ask(config_file, "these commands run on this machine", config.commands, "run")
    consent_to_secrets(config_file, config)


def consent_to_secrets(config_file: Path, config: Config, begun_with: Path | None = None) -> None:
    """Before anything is sent as a run's own config says. Where the file that the run says it was begun with is here,
    outside the run, and sends the same to the same servers, the user has agreed already.
    """
    if config.secrets and not (begun_with is not None and set(config.secrets) <= _sent_by(begun_with, config_file)):
        lines = [f"{secret} to {endpoint}" for secret, endpoint in config.secrets]
        _ask(config_file, "these secrets sent", lines, "send", begun_with)


def _sent_by(own: Path, foreign: Path) -> set[tuple[str, str]]:
    """What a file of the user's sends; nothing when it lies in a run itself or cannot be read."""
    if (own.absolute().parent / "manifest.json").exists() or own.absolute().is_relative_to(foreign.absolute().parent):
        return set()
    try:
        return set(load_config(own.read_text(encoding="utf-8"), str(own)).secrets)
    except (OSError, UnicodeDecodeError, MisaskedError):
        return set()


def _ask(file: Path, what: str, lines: Iterable[str], act: str, begun_with: Path | None = None) -> None:
    say(f"{file} lies in a run directory, and would have {what}:\n" + "\n".join(f"  {line}" for line in lines))
    if sys.stdin.isatty() and click.confirm(f"{act} them?", err=True):
        return
    way_out = "read it, then copy it to a file of your own and name that"
    if begun_with is not None:
        way_out = f"if the run is yours, go where its config {begun_with} is, or answer at a terminal"
    raise MisaskedError(f"nobody agreed that {file} may {act} them", way_out)
