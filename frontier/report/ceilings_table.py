"""Measured ceilings as a table, as JSON, and as the block of a config they can stand in."""

from rich.console import Group
from rich.table import Table
from rich.text import Text

from frontier.decide.wording import clean
from frontier.hardware.ceilings import Ceilings
from frontier.report.json_out import Tree, number
from frontier.report.tables import to_text
from frontier.units import format_bytes, format_number, format_share

SCHEMA = "frontier.ceilings/1"

Line = tuple[str, str, float, str, float | None]
"""What it is, its key, the measured figure, its unit, the data sheet's figure."""


def _lines(found: Ceilings) -> list[Line]:
    sheet = found.sheet
    peaks = {"bf16": sheet.bf16, "fp8": sheet.fp8} if sheet else {}
    lines: list[Line] = [
        ("memory, copying", "memory_bandwidth", found.bandwidth, "B/s", sheet.bandwidth if sheet else None)
    ]
    lines += [
        (f"matmul, {form}", f"matmul_{form}", rate, "FLOP/s", peaks.get(form)) for form, rate in found.matmul.items()
    ]
    lines.append(("attention decode, KV read", "attention", found.attention, "B/s", sheet.bandwidth if sheet else None))
    link = sheet.link if sheet else None
    lines += [(f"all-reduce of {format_bytes(size)}", f"all_reduce_{size}", rate, "B/s", link)
              for size, rate in found.all_reduce.items()]  # fmt: skip
    if found.send is not None:
        lines.append(("point to point", "send", found.send, "B/s", link))
    return lines


def ceilings_table(found: Ceilings, *, width: int = 100, colour: bool = False) -> str:
    """Measured beside the data sheet."""
    several = f"{found.devices} x " if found.devices > 1 else ""
    head = f"{several}{clean(found.name, 80)}   {format_bytes(found.memory)}   {clean(found.backend, 40)}"
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_edge=False, header_style="dim")
    table.add_column("")
    for name in ("measured", "data sheet", "of it"):
        table.add_column(name, justify="right", no_wrap=True)
    for what, _, value, unit, sheet in _lines(found):
        table.add_row(
            Text(what), Text(_figure(value, unit)), Text("–" if sheet is None else _figure(sheet, unit)),
            Text("–" if sheet is None else format_share(value / sheet)),
        )  # fmt: skip
    return to_text(Group(Text(head, style="bold"), table), width=width, colour=colour)


def _figure(value: float, unit: str) -> str:
    for prefix, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if value >= scale:
            return f"{format_number(value / scale)} {prefix}{unit}"
    return f"{format_number(value)} {unit}"


def ceilings_json(found: Ceilings) -> Tree:
    """The answer of `frontier ceilings --json`; rates in bytes and FLOPs per second."""
    return {
        "schema": SCHEMA,
        "name": found.name,
        "backend": found.backend,
        "devices": found.devices,
        "memory": number(found.memory),
        "ceilings": [
            {"name": key, "what": what, "measured": number(value), "unit": unit, "data_sheet": sheet}
            for what, key, value, unit, sheet in _lines(found)
        ],
        "hardware": found.hardware(),
    }


def ceilings_yaml(found: Ceilings) -> str:
    """A `hardware:` block to append to a config."""
    import yaml

    about = f"# measured by frontier ceilings on {clean(found.name, 80)} with {clean(found.backend, 40)}\n"
    return about + yaml.safe_dump({"hardware": found.hardware()}, sort_keys=False, default_flow_style=False)
