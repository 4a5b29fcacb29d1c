"""Shell completion: runs, metrics, limits, and the shapes, deployments and keys of a config."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from frontier.core.model.errors import FrontierError
from frontier.core.model.metrics import EXTREMES, names
from frontier.store.run_dir import RUNS, RunDirectory, runs_under

if TYPE_CHECKING:
    from frontier.config import Config

Complete = Callable[[click.Context, click.Parameter, str], list[str]]


def complete_run(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Run directories under runs/."""
    known = [str(p.parent) for p in RUNS.glob("*/manifest.json")]
    return sorted(name for name in known if name.startswith(incomplete))


def complete_metrics(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Metric names, also after a comma in a list of them."""
    return _in_list(names(), incomplete)


def complete_limits(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The tiers of the config, presets, and the metrics that a limit can be on."""
    from frontier.config.sla import DEFAULT_TIER, PRESETS

    config = _config_of(ctx)
    tiers = [name for name, _ in (config.tiers if config is not None else ()) if name != DEFAULT_TIER]
    limited = [name for name in names() if name not in EXTREMES]
    return _in_list([*dict.fromkeys((*tiers, *PRESETS)), *limited], incomplete)


def _in_list(known: list[str], incomplete: str) -> list[str]:
    """The known names that go on with the last part of a list."""
    head, comma, last = incomplete.rpartition(",")
    gap = last[: len(last) - len(last.lstrip())]
    return [f"{head}{comma}{gap}{name}" for name in known if name.startswith(last.lstrip())]


def _of_config(listed: "Callable[[Config], list[str]]") -> Complete:
    def complete(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
        config = _config_of(ctx)
        return [name for name in (listed(config) if config is not None else ()) if name.startswith(incomplete)]

    return complete


complete_shapes = _of_config(lambda config: [shape.label for shape in config.shapes])
complete_deployments = _of_config(lambda config: [deployment.name for deployment in config.deployments])
complete_parts = _of_config(lambda config: [*(s.label for s in config.shapes), *(d.name for d in config.deployments)])


def complete_keys(_ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The keys of --set, as 'budget.time': of the sweep, and of each deployment."""
    from frontier.config import Config, DeploymentConfig

    keys = dict.fromkeys((*_keys(Config, ""), *_keys(DeploymentConfig, "")))
    return [key for key in keys if key.startswith(incomplete)]


def _keys(model: Any, head: str) -> Iterator[str]:
    """The keys of a part of the config and of the parts in it; a key with parts also as a whole."""
    from typing import get_args

    from pydantic import BaseModel

    for name, field in model.model_fields.items():
        key = head + (field.alias or name)
        yield key
        for inner in (field.annotation, *get_args(field.annotation)):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                yield from _keys(inner, f"{key}.")


def _config_of(ctx: click.Context) -> "Config | None":
    """The config of what the command line names, a file or a run, else of the newest run; None
    where there is none, or it does not read.
    """
    from frontier.config.config_file import config_of, load_config_file

    named = ctx.params.get("source") or ctx.params.get("run") or ctx.params.get("a") or ctx.params.get("runs")
    first = named[0] if isinstance(named, tuple) and named else named
    with suppress(FrontierError, OSError, IndexError):
        path = Path(first) if first else runs_under(RUNS)[0]
        return load_config_file(path) if path.is_file() else config_of(RunDirectory.read(path))
    return None
