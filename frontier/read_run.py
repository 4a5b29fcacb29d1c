"""A run directory read into a `Run`: its config, the samples of its trials, and how far its sweep
came.

Samples are cached under `derived/samples`: a second look reads the records again only if their file
was touched since. Deleting `derived/` is always safe. A trial whose files were changed after it was
measured never counts: its setting is flagged instead.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from frontier import registry
from frontier.client.ask.same_server import Identity, journalled
from frontier.config import Config
from frontier.config.config_file import config_of
from frontier.config.deployment import QualityConfig
from frontier.core.model.errors import UsageError
from frontier.core.model.points import Estimate
from frontier.core.model.series import Series
from frontier.core.model.trials import Trial
from frontier.core.window.from_records import window_data
from frontier.planning.budget import TrialTimes
from frontier.planning.standing import skipped, standing
from frontier.run import GrowingHistory, Run, power_of
from frontier.store.journal import Amount
from frontier.store.run_dir import RunDirectory
from frontier.store.trial_files import AlteredError
from frontier.store.window_cache import load_window_data


def load(path: str | Path, settings: Sequence[str] = ()) -> Run:
    """The run in a directory. `settings` ('gpus=8', 'price=$12/h', 'hardware.power=700W/gpu')
    replace values of its config; the files stay as they are.

    StoreError when there is no run, ConfigError when its config no longer reads, UsageError for a
    setting that decides what is measured.
    """
    run = RunDirectory.read(Path(path))
    config = _read_config(run, settings)
    finished = run.evidences()
    compared, alike = _compared(config, run), _agreements(run)
    histories: dict[Series, GrowingHistory] = {}
    altered: list[tuple[Trial, AlteredError]] = []
    empty: GrowingHistory = []
    lines = run.journal_lines()
    first = journalled(lines)
    for evidence in finished.values():
        measurement = evidence.measurement
        trial = measurement.trial
        try:
            sample = load_window_data(run, measurement, evidence)
        except AlteredError as error:
            altered.append((trial, error))
            empty.append((trial, window_data(measurement, ())))
            continue
        known = _quality(config, trial, compared)
        first[trial.deployment], sample = first.get(trial.deployment, Identity()).with_window(sample)
        agreement = alike.get((trial.deployment, trial.shape.label, trial.load))
        power = functools.partial(power_of, config, trial.deployment)
        sample = replace(sample, power_rule=power, quality=known, agreement=agreement)
        histories.setdefault(trial.series, []).append((trial, sample))
    for trial, sample in empty:  # a setting of which nothing else is left still has its place, and its flag
        history = histories.setdefault(trial.series, [])
        if all(other.load != trial.load for other, _ in history):
            history.append((trial, sample))
    trials, damaged = {key: evidence.measurement.trial for key, evidence in finished.items()}, [e for _, e in altered]
    return Run(
        path=run.path,
        config=config,
        manifest=run.manifest,
        histories={series: histories[series] for series in sorted(histories, key=functools.partial(_place, config))},
        skipped=skipped(lines, finished.keys()),
        imported=run.imported(),
        altered=tuple(altered),
        unhashed=sum(evidence.sha256 is None for evidence in finished.values()) + run.imported_unhashed(),
        standing=None if "imported" in run.manifest else standing(run, lines, config, trials, damaged),
        times=TrialTimes.of(lines, trials),
        spent=Amount.of(lines),
        identities=first,
        server_settings={e.measurement.trial.deployment: e.measurement.server_settings for e in finished.values()},
    )


def _read_config(run: RunDirectory, settings: Sequence[str]) -> Config:
    config = config_of(run)
    if not settings:
        return config
    changed = config_of(run, settings)
    if changed.identity() != config.identity():
        raise UsageError(
            f"--set {' --set '.join(settings)} would be another measurement",
            "of a finished run only what it is looked at with can be set: gpus, price, hardware, sla, objectives",
        )
    return changed


def _compared(config: Config, run: RunDirectory) -> Mapping[Series, registry.ComparedAnswer]:
    """The answers of deployments compared with those of their references, and those of the
    references with themselves.
    """
    if not any(isinstance(d.quality, QualityConfig) for d in config.deployments):
        return {}
    compared = registry.COMPARED_ANSWERS.require("quality: {reference: NAME}")
    return compared(config, RunDirectory.read_checks(run.path))


def _agreements(run: RunDirectory) -> Mapping[tuple[str, str, int], Estimate]:
    """How alike answers under load are to those given alone, by deployment, shape and concurrency;
    empty where none are kept.
    """
    checks = RunDirectory.read_checks(run.path)
    of = registry.AGREEMENTS.find() if checks.has_answers_under_load else None
    return {} if of is None else of(checks)


def _quality(config: Config, trial: Trial, compared: Mapping[Series, registry.ComparedAnswer]) -> Estimate | None:
    """The quality of a deployment: as stated, or by its answers compared with its reference's."""
    stated = next((d.stated_quality for d in config.deployments if d.name == trial.deployment), None)
    return stated or (compared[trial.series].quality if trial.series in compared else None)


def _place(config: Config, series: Series) -> tuple[int, int]:
    """Where the config lists a series."""
    names, shapes = [d.name for d in config.deployments], config.shapes
    return (
        names.index(series.deployment) if series.deployment in names else len(names),
        shapes.index(series.shape) if series.shape in shapes else len(shapes),
    )
