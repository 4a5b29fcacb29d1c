"""Config files: a config read with the files that it names, as the user has it or as a run keeps
it, and its run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from frontier.config import Config, Setting, left_out, load_config
from frontier.extras.traces.arrivals import as_in_run, kept
from frontier.extras.traces.session_files import read_sessions
from frontier.store.files import read_config
from frontier.store.run_dir import RunDirectory


def load_config_file(file: Path, settings: Sequence[str] = ()) -> Config:
    """The config in a file of the user's, with settings as 'KEY=VALUE'. ConfigError or UsageError
    otherwise.
    """
    given = [Setting.of(setting) for setting in settings]
    return load_config(read_config(file), str(file), given, read_sessions=read_sessions)


def config_of(run: RunDirectory, settings: Sequence[str] = ()) -> Config:
    """The config that a run keeps, with settings as 'KEY=VALUE'. ConfigError or StoreError when it
    no longer reads.
    """
    given = [Setting.of(setting) for setting in settings]
    return as_in_run(load_config(run.config_text(), str(run.path / "config.yaml"), given, run.manifest), run)


def require_run(path: Path, config: Config, facts: Mapping[str, Any]) -> None:
    """Raise what `open_run` would of the same arguments, but for the lock; nothing is written."""
    RunDirectory.require_sweep(path, identity=config.identity(), canonical=config.canonical(), facts=facts, extend=True)


def open_run(path: Path, config: Config, text: str, facts: Mapping[str, Any]) -> RunDirectory:
    """The run of a config, new or to be resumed, also where its list of concurrencies has grown;
    `text` is what it keeps of the config. See `open_for_sweep`.
    """
    return RunDirectory.open_for_sweep(
        path,
        identity=config.identity(),
        canonical=config.canonical(),
        config_text=text,
        facts=facts,
        defaults=left_out(None),
        extend=True,
        arrivals=kept(config),
    )
