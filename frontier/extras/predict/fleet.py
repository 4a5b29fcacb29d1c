"""Hosts of a fleet compared by their measured ceilings: which hosts are slower beyond their
noise.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from frontier.core.model.errors import UsageError
from frontier.core.model.groups import by_key
from frontier.core.model.text import clean_name
from frontier.extras.predict.ceilings import Ceiling, Ceilings
from frontier.store.files import CONFIG_BYTES, read_given

LEAST_SLOWER = 0.02
"""The share by which a host must be slower to be named: clocks and temperature make a smaller
difference between two runs."""


@dataclass(frozen=True, slots=True)
class Slower:
    """A host that is slower than the middle one of the fleet, with the difference."""

    host: str
    what: str
    unit: str
    value: float
    middle: float

    @property
    def share(self) -> float:
        """Its rate as a share of the middle host's."""
        return self.value / self.middle


def read_hosts(files: Sequence[Path]) -> list[Ceilings]:
    """The ceilings in files of `frontier ceilings --json`, each host named once. UsageError for any
    other file.
    """
    hosts: list[Ceilings] = []
    for file in files:
        made = _host(file, _tree(file))
        taken = made.host in {host.host for host in hosts}
        hosts.append(replace(made, host=f"{made.host} ({clean_name(file.stem)})") if taken else made)
    return hosts


def _tree(file: Path) -> dict[str, Any]:
    hint = "make one with  frontier ceilings --json > HOST.json"
    try:
        tree = orjson.loads(read_given(file, CONFIG_BYTES))
    except OSError as error:
        raise UsageError(f"cannot read {clean_name(str(file))}: {error.strerror or error}", hint) from None
    except orjson.JSONDecodeError:
        tree = None
    if not isinstance(tree, dict) or tree.get("schema") != "frontier.ceilings/1":
        raise UsageError(f"{clean_name(str(file))} has no measured ceilings", hint)
    return tree


def _host(file: Path, tree: Mapping[str, Any]) -> Ceilings:
    try:
        lines = [
            Ceiling(
                str(line["name"]),
                clean_name(str(line["what"])),
                clean_name(str(line["unit"])),
                rounds=tuple(float(rate) for rate in line["rounds"]),
            )
            for line in tree["ceilings"]
        ]
    except (KeyError, TypeError, ValueError):
        raise UsageError(
            f"{clean_name(str(file))} lacks the rounds of a measurement", "measure that host anew"
        ) from None
    device, host = clean_name(str(tree.get("name", ""))), clean_name(str(tree.get("host") or file.stem))
    return Ceilings(device, "", 1, 0.0, tuple(line for line in lines if line.rounds), host=host)


def slower_hosts(hosts: Sequence[Ceilings]) -> list[Slower]:
    """The hosts that are slower than the middle one, line by line.

    Every round of such a host is below every round of the middle one, and its median is lower by
    LEAST_SLOWER or more. Of two equal hosts with six rounds each, a given one is that slow once in
    924 times.
    """
    measured = by_key((line.key, (host.host, line)) for host in hosts for line in host.lines)
    return [slow for known in measured.values() for slow in _slower(known)]


def _slower(known: Sequence[tuple[str, Ceiling]]) -> Iterator[Slower]:
    ranked = sorted(known, key=lambda pair: statistics.median(pair[1].rounds))
    middle = ranked[len(ranked) // 2][1].rounds
    for host, line in ranked[: len(ranked) // 2]:
        value, usual = statistics.median(line.rounds), statistics.median(middle)
        if max(line.rounds) < min(middle) and value < (1 - LEAST_SLOWER) * usual:
            yield Slower(host, line.what, line.unit, value, usual)
