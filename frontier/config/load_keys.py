"""The keys of the load (`concurrency`, `rate`, `arrivals`), of a trial's size (`requests`,
`warmup`), and of the client processes (`workers`).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Annotated, Any

from frontier import registry
from frontier.core.model.loads import POISSON, Arrivals, Concurrency, Load, Rate, Trace, doublings
from frontier.core.model.shapes import Shape
from frontier.core.model.text import clean_name, did_you_mean
from frontier.fields import Problem, Strict, duration, number_in, read, refuse, repeated, shown, whole, whole_in, words

Loads = tuple[Load, ...]
MAX_CONCURRENCY = 65_536
MAX_SETTINGS = 1_000
LEAST_RATE, MOST_RATE = 0.01, 10_000.0
MAX_RATES = 1_000
AUTO = (Rate.of(1.0),)
"""The rate that `rate: auto` begins with. The search doubles it until more requests arrive than are
served."""
MAX_WORKERS = 256
MOST_PASSES = 1_000
WARMUP_AUTO = 2.0
"""Seconds of warm-up when it is 'auto': at least this long, and until every stream has finished its
first request."""


def read_concurrency(value: Any) -> tuple[Load, ...]:
    """Concurrencies of [1, 2, 4], 8, or 1..128 (every doubling from 1, and 128 itself); auto lists
    none. Sorted; duplicates are refused.
    """
    if value == "auto":
        return ()
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d{1,9})\s*\.\.\s*(\d{1,9})\s*", value)
        if match is None:
            hint = "write auto, [1, 2, 4, 8], or 1..128 for every doubling"
            raise Problem(f"{{key}}: {shown(value)} is not a range", did_you_mean(value, ["auto"]) or hint)
        value = {"from": int(match[1]), "to": int(match[2])}
    if isinstance(value, dict):
        return _doublings(value)
    if not isinstance(value, list):
        return (Concurrency(whole(value, 1, MAX_CONCURRENCY)),)
    if not value or len(value) > MAX_SETTINGS:
        raise Problem("{key} is an empty list" if not value else "{key} is a very long list", "write [1, 2, 4, 8]")
    levels = read(tuple[Annotated[int, whole_in(1, MAX_CONCURRENCY)], ...], value)
    hint = "remove one; repeats: 3  measures each again"
    refuse(repeated([str(level) for level in levels], "{{key}}: {} is given twice", hint))
    return tuple(map(Concurrency, sorted(levels)))


def _doublings(value: dict[str, Any]) -> tuple[Load, ...]:
    if set(value) != {"from", "to"}:
        raise Problem("{key}: a range has the keys from and to", "write {from: 1, to: 128}, or 1..128")
    low, high = whole(value["from"], 1, MAX_CONCURRENCY), whole(value["to"], 1, MAX_CONCURRENCY)
    if low > high:
        raise Problem(f"{{key}}: {low} is above {high}", f"write {high}..{low}")
    return doublings(low, high)


def read_rates(value: Any) -> tuple[Rate, ...]:
    """Rates of [0.5, 1, 2], 4, or auto, which lists none. Sorted; duplicates are refused."""
    if value == "auto":
        return ()
    if isinstance(value, str):
        raise Problem(f"{{key}}: {shown(value)} is not a rate", "write requests per second, as [1, 2, 4], or auto")
    listed = value if isinstance(value, list) else [value]
    if not 1 <= len(listed) <= MAX_RATES:
        raise Problem(f"{{key}} is {'a very long' if listed else 'an empty'} list", "write [1, 2, 4], or auto")
    numbers = read(tuple[Annotated[float, number_in(LEAST_RATE, MOST_RATE)], ...], listed)
    rates = [Rate.of(per_second) for per_second in numbers]
    if len(set(rates)) < len(rates):
        raise Problem("{key}: a rate is given twice", "remove one; repeats: 3  measures each again")
    return tuple(sorted(rates))


class _Gamma(Strict):
    """Gaps of a gamma distribution, by their coefficient of variation."""

    cv: Annotated[float, number_in(0.1, 10.0)]


def read_arrivals(value: Any) -> Arrivals | str:
    """The arrivals of poisson, {gamma: {cv: 2}}, or the file of {trace: FILE}, which is not read
    here.
    """
    hint = "write poisson, {gamma: {cv: 2}} for bursts (cv 1 is Poisson), or {trace: FILE}"
    if value == "poisson":
        return POISSON
    if isinstance(value, dict) and set(value) == {"trace"}:
        return words(value["trace"])
    if not isinstance(value, dict) or set(value) != {"gamma"} or not isinstance(value["gamma"], dict):
        raise Problem(f"{{key}} are poisson, gamma or a trace; this is {shown(value)}", hint)
    gamma: _Gamma = read(_Gamma, value["gamma"])
    return Arrivals(gamma.cv)


def arriving(shapes: Iterable[Shape], arrivals: Arrivals | str) -> tuple[Shape, ...]:
    """The shapes with these arrivals. The times of a file are missing until it is read."""
    if isinstance(arrivals, str):
        arrivals = Arrivals(trace=Trace(clean_name(PurePath(arrivals).name), ""))
    return tuple(replace(shape, arrivals=arrivals) for shape in shapes)


# ---- size of a trial


@dataclass(frozen=True, slots=True)
class Passes:
    """Whole passes over a file of prompts. `size` is how many prompts it holds; None: it was not
    read yet.
    """

    count: int
    size: int | None = None

    @property
    def requests(self) -> int | None:
        """The requests of all passes; None where the file was not read yet."""
        return None if self.size is None else self.count * self.size


def read_requests(value: Any) -> int | Passes:
    """The requests of a trial: a number, or '5 passes' over the file of prompts."""
    if not isinstance(value, str) or not re.match(r"\s*\d+\s+[a-z]|.*pass", value):
        return whole(value, 1, 1_000_000)
    match = re.fullmatch(r"\s*(\d{1,9})\s+pass(es)?\s*", value)
    if match is None or not 1 <= int(match[1]) <= MOST_PASSES:
        hint = f"write a number of requests, or  5 passes  over a file of prompts, 1 to {MOST_PASSES:,}"
        raise Problem(f"{{key}}: {shown(value)} is no number of passes", hint)
    return Passes(int(match[1]))


def read_warmup(value: Any) -> float:
    """The least seconds of warm-up."""
    return WARMUP_AUTO if value == "auto" else duration(value, most=3_600.0)


# ---- client processes


def read_workers(value: Any) -> Any:
    """The number of client processes on this machine, or an object that says where else they run;
    None: as many as a trial needs.
    """
    if isinstance(value, dict) or value == "ray" or (isinstance(value, str) and "://" in value):
        return registry.ON_RAY.require("workers: ray")(value)
    if isinstance(value, str) and value != "auto" and not value.isdecimal():
        hint = f"write auto, 1 to {MAX_WORKERS}, ray, or {{ray: ray://HOST:10001, count: 4}}"
        raise Problem(f"{{key}} is auto, a whole number, or on Ray; this is {shown(value)}", hint)
    return None if value == "auto" else whole(value, 1, MAX_WORKERS)
