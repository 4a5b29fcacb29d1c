"""Config files: reading a config with the files that it names, and opening its run."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from frontier import registry
from frontier.config import Config, Setting, left_out, load_config
from frontier.core.model.errors import StoreError, UsageError
from frontier.core.model.shapes import Shape
from frontier.store.files import read_config
from frontier.store.run_dir import RunDirectory


def load_config_file(file: Path, settings: Sequence[str] = ()) -> Config:
    """The config in a user's file, with settings as 'KEY=VALUE'. ConfigError or UsageError
    otherwise.
    """
    given = read_settings(settings)
    return load_config(read_config(file), str(file), given, read_sessions=read_sessions)


def config_of(run: RunDirectory, settings: Sequence[str] = ()) -> Config:
    """The config that a run keeps, with settings as 'KEY=VALUE'. ConfigError or StoreError when it
    no longer reads.
    """
    given = read_settings(settings)
    return as_in_run(load_config(run.config_text(), str(run.path / "config.yaml"), given, run.manifest), run)


def read_settings(settings: Sequence[str]) -> list[Setting]:
    """The settings of 'KEY=VALUE'. 'hardware.model=@FILE' gets the sizes in this config.json as its
    value, so that a run keeps them.
    """
    given = [Setting.of(text) for text in settings]
    of_file = [each.key.endswith("hardware.model") and each.value.startswith("@") for each in given]
    return [_with_sizes(each) if is_file else each for each, is_file in zip(given, of_file, strict=True)]


def _with_sizes(setting: Setting) -> Setting:
    """The setting with the sizes in a model's config.json in place of the file's name."""
    model_file = registry.MODEL_FILE.require("the config.json of a model")
    return replace(setting, value=json.dumps(model_file.sizes_in(setting.value[1:])))


def open_run(path: Path, config: Config, text: str, facts: Mapping[str, Any]) -> RunDirectory:
    """The run of a config: a new one, or one to be resumed, even if its list of concurrencies has
    grown. `text` is the config as the run keeps it. See `open_for_sweep`.
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


def require_sweep(config: Config, file: str) -> None:
    """UsageError where another command than `frontier sweep` measures a config."""
    if config.measured_by != "sweep":
        raise UsageError(f"{file} has variants of a deployment", f"race them:  frontier {config.measured_by} {file}")


# --- traces of arrivals, sessions of files, and passes over prompts

_TRACE = "arrivals: {trace: FILE}"


def read_sessions(path: str, kind: str = "sessions") -> Shape:
    """The sessions of a file; of kind 'trace' its requests."""
    recorded = registry.RECORDED.require(f"{kind}: FILE")
    return recorded.read_sessions(path) if kind == "sessions" else recorded.read_requests(path)


def with_trace(config: Config) -> Config:
    """The config with the times of its trace, if it has one. ForeignFileError where they cannot be
    read.
    """
    if config.trace_file is None:
        return config
    return config.with_arrivals(registry.RECORDED.require(_TRACE).read_trace(config.trace_file))


def with_prompts(config: Config, number: int) -> Config:
    """The config with the number of prompts in its file, where its trials are passes over that."""
    passes = config.passes
    return config if passes is None else config.model_copy(update={"given_requests": replace(passes, size=number)})


def as_in_run(config: Config, run: RunDirectory) -> Config:
    """The config of a run with the size of a pass and the times of the trace that the run keeps.
    StoreError where these are not readable.
    """
    sent = run.manifest.get("canonical", {}).get("requests")
    if config.passes is not None and isinstance(sent, int):
        config = with_prompts(config, sent // config.passes.count)
    if config.trace_file is None:
        return config
    try:
        recorded = registry.RECORDED.require(_TRACE)
        return config.with_arrivals(recorded.of_column(Path(config.trace_file).name, run.arrivals()))
    except ValueError as error:
        raise StoreError(f"cannot read {run.path / 'arrivals.txt'}: {error}", "put it back as it was") from error


def kept(config: Config) -> bytes | None:
    """The trace as a run keeps it: a column of seconds; None without a trace."""
    trace = config.trace
    return None if trace is None else "".join(f"{time:.6f}\n" for time in trace.times).encode()
