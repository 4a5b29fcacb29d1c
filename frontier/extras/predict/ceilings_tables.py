"""Tables, YAML and JSON of measured ceilings, beside the data sheet and across hosts."""

from collections.abc import Sequence

import yaml
from rich.console import RenderableType
from rich.text import Text

from frontier.core.model.text import clean
from frontier.core.model.units import format_bytes, format_number, format_seconds, format_share
from frontier.extras.predict.ceilings import ROUNDS, Ceiling, Ceilings
from frontier.extras.predict.fleet import Slower
from frontier.show.table import Table, to_text
from frontier.show.verbosity import Detail
from frontier.show.view.json_out import Tree, number

CEILINGS_SCHEMA = "frontier.ceilings/1"


def sheet_figure(ceilings: Ceilings, line: Ceiling) -> float | None:
    """The data sheet's figure for a line; None where it has none."""
    return getattr(ceilings.sheet, line.sheet) if ceilings.sheet and line.sheet else None


def ceilings_table(ceilings: Ceilings, *, detail: Detail = Detail.USUAL, width: int = 100, colour: bool = False) -> str:
    """Measured ceilings beside the data sheet; where all is asked for with every round."""
    several = f"{ceilings.devices} x " if ceilings.devices > 1 else ""
    head = f"{several}{clean(ceilings.name, 80)}   {format_bytes(ceilings.memory)}   {clean(ceilings.backend, 40)}"
    own = [line for line in ceilings.lines if line.seconds is None]
    links = [line for line in ceilings.lines if line.seconds is not None]
    parts: list[RenderableType] = [Text(head, style="bold"), _own(own, ceilings).drawn(width)]
    if links:
        hosts = len(dict.fromkeys(ceilings.hosts))
        ranks = f"{len(ceilings.hosts)} ranks on {hosts} host{'s' if hosts > 1 else ''}"
        note = (
            "bus bandwidth as nccl-tests defines it; the time and the algorithm's bandwidth are those of the best round"
        )
        parts += [Text(f"links between {ranks}", style="bold"), _links(links, ceilings).drawn(width)]
        parts += detail.of((), [Text(note, style="dim")])
    rounds = [Text(f"{ln.what}: {', '.join(per_second(r, ln.unit) for r in ln.rounds)}") for ln in ceilings.lines]
    legend = Text(f"measured: the best of {ROUNDS} rounds; from: the lowest of them", style="dim")
    parts += detail.of((), [legend], rounds)
    return to_text(*parts, width=width, colour=colour)


def _own(lines: Sequence[Ceiling], ceilings: Ceilings) -> Table:
    rows = [(line.what, *_rates(line), *_of_sheet(ceilings, line)) for line in lines]
    return Table.of(("", "measured", "from", "data sheet", "of it"), rows, right=(1, 2, 3, 4))


def _links(lines: Sequence[Ceiling], ceilings: Ceilings) -> Table:
    rows = [
        (
            line.what,
            format_seconds(line.seconds or 0.0),
            "" if line.algorithm is None else per_second(line.algorithm, "B/s"),
            *(("", "", "", "") if line.algorithm is None else (*_rates(line), *_of_sheet(ceilings, line))),
        )
        for line in lines
    ]
    heads = ("", "time", "algorithm", "bus", "from", "data sheet", "of it")
    return Table.of(heads, rows, right=(1, 2, 3, 4, 5, 6))


def _rates(line: Ceiling) -> tuple[str, str]:
    return per_second(line.value, line.unit), per_second(min(line.rounds), line.unit)


def _of_sheet(ceilings: Ceilings, line: Ceiling) -> tuple[str, str]:
    stated = sheet_figure(ceilings, line)
    return ("–", "–") if not stated else (per_second(stated, line.unit), format_share(line.value / stated))


def per_second(value: float, unit: str) -> str:
    """'3.35 TB/s'."""
    for prefix, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if value >= scale:
            return f"{format_number(value / scale)} {prefix}{unit}"
    return f"{format_number(value)} {unit}"


def ceilings_yaml(ceilings: Ceilings) -> str:
    """A `hardware:` block to append to a config."""
    about = f"# measured by frontier ceilings on {clean(ceilings.name, 80)} with {clean(ceilings.backend, 40)}\n"
    return about + yaml.safe_dump({"hardware": ceilings.hardware()}, sort_keys=False, default_flow_style=False)


def ceilings_json(ceilings: Ceilings) -> Tree:
    """The answer of `frontier ceilings --json`; rates in bytes and FLOPs per second."""
    return {
        "schema": CEILINGS_SCHEMA,
        "host": ceilings.host,
        "name": ceilings.name,
        "backend": ceilings.backend,
        "devices": ceilings.devices,
        "memory": number(ceilings.memory),
        "hosts": list(ceilings.hosts),
        "ceilings": [
            {
                "name": line.key,
                "what": line.what,
                "measured": number(line.value),
                "rounds": [number(rate) for rate in line.rounds],
                "unit": line.unit,
                "data_sheet": sheet_figure(ceilings, line),
                "seconds": line.seconds,
                "algorithm": line.algorithm,
            }
            for line in ceilings.lines
        ],
        "hardware": ceilings.hardware(),
    }


# --- a fleet


def fleet_table(hosts: Sequence[Ceilings], slower: Sequence[Slower], *, width: int = 100, colour: bool = False) -> str:
    """The hosts that are slower than the middle one, or a line that none is."""
    shared = len({line.key for host in hosts for line in host.lines})
    devices = ", ".join(dict.fromkeys(host.name for host in hosts))
    parts: list[RenderableType] = [Text(f"{len(hosts)} hosts: {devices}", style="bold")]
    rows = [
        (slow.host, slow.what, *(per_second(v, slow.unit) for v in (slow.value, slow.middle)), format_share(slow.share))
        for slow in slower
    ]
    if rows:
        heads = ("slower", "in", "median round", "middle host", "of it")
        parts.append(Table.of(heads, rows, right=(2, 3, 4)).drawn(width))
    else:
        parts.append(Text(f"none is slower than the middle one beyond its noise, in {shared} measurements"))
    return to_text(*parts, width=width, colour=colour)


def fleet_json(hosts: Sequence[Ceilings], slower: Sequence[Slower]) -> Tree:
    """The same for machines."""
    named = [
        {
            "host": slow.host,
            "what": slow.what,
            "unit": slow.unit,
            "median": number(slow.value),
            "middle": number(slow.middle),
            "share": number(slow.share),
        }
        for slow in slower
    ]
    return {"schema": CEILINGS_SCHEMA, "hosts": [host.host for host in hosts], "slower": named}
