"""The report of a run: everything a page or a picture of it is made of."""

import shlex
from collections.abc import Sequence
from dataclasses import replace

from frontier.cli.common import unfinished_json
from frontier.decide.wording import Provenance
from frontier.model import Limit
from frontier.plot.roofline_lines import rooflines
from frontier.plot.selection import check_axes, default_axes, samples_of
from frontier.report.report import (
    CHECKS,
    IMPORTED_CHECKS,
    IMPORTED_NOT_SAID,
    IMPORTED_REQUEST_CHECKS,
    NOT_SAID,
    Report,
)
from frontier.run import Run
from frontier.store.run_dir import RunDirectory


def page_report(
    found: Run, limits: Sequence[Limit], objectives: tuple[str, str] | None = None, options: Sequence[str] = ()
) -> Report:
    """Everything a page or a picture of the run is made of; `options` are those it was asked for with."""
    decisions = found.solve(limits) if limits else ()
    axes = objectives or default_axes(found.config, decisions)
    points = found.points(limits, names=axes)
    check_axes(points, objectives or (), str(found.path))
    doubts = found.doubts(axes)
    frontiers = tuple(
        replace(f, probability=doubts[at].probability) if (at := (f.deployment, f.shape)) in doubts else f
        for f in found.frontiers(points, axes)
    )
    bands = {at: list(zip(d.band.x, d.band.low, d.band.high, strict=True)) for at, d in doubts.items()}
    return Report(
        points=points,
        frontiers=frontiers,
        decisions=decisions,
        limits=limits,
        provenance=provenance(found),
        gpus=found.gpus,
        config_text=None if found.is_imported else RunDirectory.read(found.path).config_text(),
        commands=(_made_by(found), shlex.join(["frontier", "report", str(found.path), *options])),
        not_said=IMPORTED_NOT_SAID if found.is_imported else NOT_SAID,
        lights=rooflines(found.config, points, frontiers),
        bands=bands,
        skipped=found.skipped,
        samples=samples_of(found),
        checks=_checks(found),
        unfinished=found.unfinished,
        standing=unfinished_json(found),
    )


def _checks(found: Run) -> str:
    if not found.is_imported:
        return CHECKS
    return IMPORTED_REQUEST_CHECKS if found.histories else IMPORTED_CHECKS


def _made_by(found: Run) -> str:
    """The command that made the run."""
    if not found.is_imported:
        return f"frontier sweep {found.manifest.get('config_file', 'sweep.yaml')}"
    files = [shlex.quote(str(source["file"])) for source in found.manifest["imported"]["sources"]]
    more = f" ... ({len(files)} files)" if len(files) > 3 else ""
    return f"frontier import {' '.join(files[:3])}{more} -o {found.path}"


def provenance(found: Run) -> Provenance:
    """What the foot of a picture says of where its numbers come from."""
    if found.is_imported:
        return _imported_provenance(found)
    servers = [line for line in RunDirectory.read(found.path).journal_lines() if line["event"] == "server"]
    models = {d.model for d in found.config.deployments if d.model} | {str(s["model"]) for s in servers if "model" in s}
    return Provenance(
        run=found.path.name,
        model=", ".join(sorted(models)) or None,
        server=str(servers[-1]["identity"]) if servers else None,
        tool=f"frontier {found.manifest.get('frontier', '')}".strip(),
        remark=(found.standing.brief if found.standing else "") or None,
    )


def _imported_provenance(found: Run) -> Provenance:
    """Of an import: which tools wrote the files. Their loads are not known to have been closed loops."""
    imported = found.manifest["imported"]
    shown = {p.deployment for p in found.imported} | {deployment for deployment, _ in found.histories}
    formats = ", ".join(dict.fromkeys(str(source["format"]) for source in imported["sources"]))
    return Provenance(
        run=found.path.name,
        model=", ".join(dict.fromkeys(d.model for d in found.config.deployments if d.model and d.name in shown))
        or None,
        loop=None,
        tool=f"frontier {found.manifest.get('frontier', '')}".strip(),
        remark=f"imported from {formats}",
        notes=tuple(map(str, imported["notes"])),
    )
