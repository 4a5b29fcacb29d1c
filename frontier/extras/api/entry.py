"""What programs and notebooks call: `load_config` and `run_sweep`."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from frontier.config import Config, Setting
from frontier.config import load_config as config_of_text
from frontier.config.config_file import open_run, require_sweep
from frontier.config.config_file import read_sessions as sessions_of_file
from frontier.config.kept_text import kept_text
from frontier.config.shape_keys import ReadSessions
from frontier.core.model.errors import MeasurementError, UsageError
from frontier.extras.api.notebook_run import NotebookRun, load
from frontier.extras.api.virtual_backend import VirtualBackend
from frontier.planning.plan import make_plan
from frontier.planning.standing import lost_server
from frontier.planning.sweep_progress import Progress
from frontier.store.files import read_config
from frontier.store.run_dir import read_manifest
from frontier.sweep import backend
from frontier.sweep.conductor import Conductor, SweepEnd
from frontier.sweep.given_files import begun_with, with_files
from frontier.sweep.secrets_of_config import secrets_of


def load_config(
    source: str | Path,
    file: str | None = None,
    settings: Sequence[Setting | str] = (),
    begun: Mapping[str, Any] | None = None,
    *,
    read_sessions: ReadSessions | None = None,
) -> Config:
    """The config in the file `source`, with the traces and sessions that it names. Where `file` is
    given, the config in the text `source`, which messages call `file`.

    `settings` replace or add single values, as "requests=600". `begun` is the manifest of the run
    that the config belongs to: a key that is left out means what it meant when the run was begun. A
    text is read alone: sessions of files come from `read_sessions`, or from `begun`.

    UsageError when the file cannot be read, ConfigError with every complaint about its content.
    """
    given = [Setting.of(each) if isinstance(each, str) else each for each in settings]
    if file is not None:
        return config_of_text(str(source), file, given, begun, read_sessions=read_sessions)
    if "\n" in str(source):
        raise UsageError("load_config takes a path", 'or a text and its name, as  load_config(text, "sweep.yaml")')
    text = read_config(Path(source))
    return with_files(config_of_text(text, str(source), given, begun, read_sessions=read_sessions or sessions_of_file))


def run_sweep(
    config_file: str | Path, run: str | Path, environ: Mapping[str, str] | None = None, *, virtual: bool = False
) -> NotebookRun:
    """Run the sweep of a config into a run directory, or resume it, and read the result back.

    `environ` holds the variables the config names for keys (default: none). With `virtual` the
    simulated deployments of the config are swept in virtual time: a night in seconds, the same on
    every machine. ConfigError, StoreError or MeasurementError when it cannot be run;
    MeasurementError also when the server was lost on the way.
    """
    text = read_config(Path(config_file))
    begun = read_manifest(Path(run)) if (Path(run) / "manifest.json").exists() else None
    config = with_files(config_of_text(text, str(config_file), begun=begun, read_sessions=sessions_of_file))
    require_sweep(config, str(config_file))
    if virtual and not all(deployment.is_simulator for deployment in config.deployments):
        raise UsageError("only the embedded engine runs in virtual time", "write  endpoint: simulator")
    if virtual and config.background is not None:
        raise UsageError("a background needs real time, as it is a load of its own", "leave out  virtual=True")
    text = kept_text(text, str(config_file), (), secrets_of(config, environ or {}))
    facts = begun_with(str(config_file), config.prompts_file)
    with open_run(Path(run), config, text, facts) as directory:

        async def conduct() -> SweepEnd:
            measures: backend.Backend
            if virtual:
                measures = VirtualBackend({d.name: d.engine_spec() for d in config.deployments})
            else:
                measures = backend.open_backend(config, environ or {}, backend.new_salt())
            plan = make_plan(config)
            return await Conductor(config, plan, directory, measures, Progress(), asyncio.Event()).conduct()

        if backend.run_to_end(conduct()) == "server_lost":
            raise MeasurementError(lost_server(directory.journal_lines()), "call it again to go on")
    return load(run)
