"""A night from a seed: a config, its servers, what goes wrong, and the commands of a user."""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from benchmarks.nights.server import Course, Law

METRICS = {"ttft": ("ttft", 1), "tpot": ("tpot", 1), "e2e": ("e2e", 1)}
CONFIG, RUN = "sweep.yaml", "runs/night"


@dataclass(frozen=True, slots=True)
class Command:
    """A command line, and what happens to it: Ctrl-C at its tick of this number, or the disk fails
    at its step of this number ('kill': the process ends there; 'full': no space from there on).
    """

    words: tuple[str, ...]
    stop_at: int | None = None
    disk: tuple[str, int] | None = None

    @property
    def interrupted(self) -> bool:
        return self.stop_at is not None or self.disk is not None


@dataclass(frozen=True, slots=True)
class Edit:
    """The user changes keys of the config."""

    keys: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SetClock:
    """The wall clock is set, by so many seconds."""

    by: float


@dataclass(frozen=True, slots=True)
class Damage:
    """A file of the run is removed or changed: the one at this place of its trials' files."""

    kind: str
    place: int


Step = Command | Edit | SetClock | Damage


@dataclass(frozen=True, slots=True)
class Night:
    """One night. `limits` are the SLA of its first tier; without an SLA there are none. `families`
    are the kinds of trouble that it has, for the tables.
    """

    seed: int
    config: Mapping[str, Any]
    laws: Mapping[str, Law]
    course: Course
    steps: tuple[Step, ...]
    limits: Mapping[str, float] = field(default_factory=dict)
    families: tuple[str, ...] = ()
    pictures: bool = False

    @property
    def text(self) -> str:
        """The config as the user wrote it."""
        return yaml.safe_dump(dict(self.config), sort_keys=False)

    @property
    def kind(self) -> str:
        """Of its load: 'closed', 'rate', 'sessions' or 'mix'."""
        if "rate" in self.config:
            return "rate"
        if "traffic" in self.config:
            return "mix"
        return "sessions" if "turns" in str(self.config["shapes"]) else "closed"


def draw(seed: int) -> Night:
    """The night of a seed."""
    rng = random.Random(seed)
    families: list[str] = []
    law = _law(rng, families)
    course = _course(rng, families)
    config, limits, top = _config(rng, law, families)
    names = [d["name"] for d in config.get("deployments", ())] or ["default"]
    pace = rng.uniform(0.7, 1.3)
    laws = {
        name: law if k == 0 else replace(law, tpot=law.tpot * pace, ttft=law.ttft * pace)
        for k, name in enumerate(names)
    }
    steps = _steps(rng, limits, top, families)
    return Night(seed, config, laws, course, tuple(steps), limits, tuple(families), pictures=rng.random() < 0.05)


def _between(rng: random.Random, low: float, high: float) -> float:
    """Evenly in the logarithm."""
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def _law(rng: random.Random, families: list[str]) -> Law:
    law: dict[str, Any] = {
        "tpot": _between(rng, 0.004, 0.03),
        "ttft": _between(rng, 0.02, 0.4),
        "half": _between(rng, 5, 30),
        "power": rng.uniform(0.8, 1.6),
    }
    noise = rng.choice(["none", "little", "usual", "usual", "much"])
    factor = {"none": 0.0, "little": 0.1, "usual": 1.0, "much": 3.0}[noise]
    law |= {"noise": 0.03 * factor, "first_noise": 0.15 * factor, "shared": 0.03 * factor}
    if noise == "none":
        families.append("no noise")
    kind = rng.choice(["smooth", "smooth", "cliff", "queue", "stalls", "failures", "breaks", "silent", "class"])
    if kind == "cliff":
        law |= {"edge": rng.randint(2, 24), "cliff": rng.uniform(1.5, 6)}
    elif kind == "queue":
        law |= {"seats": rng.randint(2, 24)}
    elif kind == "stalls":
        law |= {"rare": _between(rng, 0.002, 0.05), "rare_by": rng.uniform(0.3, 3)}
    elif kind == "failures":
        law |= {"fails": _between(rng, 0.001, 0.3)}
    elif kind == "breaks":
        law |= {"breaks": rng.randint(2, 24)}
    elif kind == "silent":
        law |= {"silent": _between(rng, 0.001, 0.02)}
    elif kind == "class":
        law |= {"failing_class": 1}
    families.append(kind)
    return Law(**law)


def _course(rng: random.Random, families: list[str]) -> Course:
    at, kind = _between(rng, 10, 400), rng.choice(["steady"] * 5 + ["slower", "faster", "tail", "lost", "busy", "busy"])
    families.append(kind)
    if kind == "slower":
        return Course(at, rng.uniform(1.05, 2))
    if kind == "faster":
        return Course(at, rng.uniform(0.5, 0.95))
    if kind == "tail":
        return Course(at, rng.uniform(1.5, 4), tail=rng.uniform(0.02, 0.2))
    if kind == "lost":
        return Course(lost=(at, at + _between(rng, 5, 2_000)))
    if kind == "busy":
        spans = [(t, t + _between(rng, 5, 2_000)) for t in (_between(rng, 2, 300) for _ in range(rng.randint(1, 3)))]
        return Course(busy=tuple(sorted(spans)), lag=_between(rng, 0.006, 0.08))
    return Course()


def _config(rng: random.Random, law: Law, families: list[str]) -> tuple[dict[str, Any], dict[str, float], int]:
    """The config, the limits of its first tier in seconds, and the highest setting that is likely
    inside.
    """
    osl = rng.choice([1, 8, 16, 24])
    config: dict[str, Any] = {"endpoint": "http://127.0.0.1:9/v1", "model": "m"}
    load = rng.choice(["closed"] * 8 + ["two", "mix", "sessions", "rate"])
    families.append(load)
    if load == "two":
        config["shapes"] = [f"64/{osl}", "256/8"]
    elif load == "mix":
        config["shapes"] = [{"isl": 64, "osl": osl, "name": "chat"}, {"isl": 256, "osl": 8, "name": "rag"}]
        config["traffic"] = {"chat": {"share": "70%"}, "rag": {"share": "30%"}}
    elif load == "sessions":
        config["shapes"] = [{"name": "agent", "turns": 3, "first": 64, "per_turn": f"32/{osl}", "think": "300ms"}]
    else:
        config["shapes"] = [rng.choice([f"64/{osl}", f"64/{osl}", f"64/{max(1, osl // 2)}-{osl + 1}"])]
    if load == "rate":
        top = 12
        per_second = 8 / (law.ttft + law.tpot * osl)
        config["rate"] = rng.choice(["auto", [round(per_second * k, 3) for k in (0.25, 0.5, 1.0)]])
    else:
        listed = sorted(rng.sample([1, 2, 3, 4, 6, 8, 12, 16], rng.randint(2, 4)))
        config["concurrency"] = rng.choice([listed, listed, f"1..{rng.choice([8, 16])}", "auto"])
        top = rng.choice(listed)
    limits = _limits(rng, law, osl, top, far=config.get("concurrency") != "auto")
    _sla(rng, config, limits, load, families)
    _sizes(rng, config, families)
    if load == "closed" and rng.random() < 0.07:
        families.append("deployments")
        config["deployments"] = [
            {"name": "a", "endpoint": config.pop("endpoint")},
            {"name": "b", "endpoint": "http://127.0.0.1:8/v1"},
        ]
    return config, limits, top


def _limits(rng: random.Random, law: Law, osl: int, top: int, *, far: bool) -> dict[str, float]:
    """Limits near what is met at the setting `top`, or now and then `far` above it."""
    seated = min(top, law.seats)
    grown = (1 + (seated - 1) / law.half) ** law.power
    tail = math.exp(1.3 * math.hypot(law.first_noise, law.shared))
    wait = (top - seated) / seated * (law.ttft + law.tpot * osl) * grown
    values = {"ttft": law.ttft * grown * tail + wait, "tpot": law.tpot * grown * math.exp(1.3 * law.noise)}
    values["e2e"] = values["ttft"] + values["tpot"] * (osl - 1)
    names = rng.choice([["ttft"], ["tpot"], ["e2e"], ["ttft", "tpot"]])
    if osl == 1:
        names = ["ttft"]
    p = rng.choice([90, 90, 90, 95])
    loose = rng.choice([1.02, 1.1, 1.3, 0.9, 0.4, 5.0 if far else 1.2])
    found = {f"p{p}_{name}": float(f"{values[name] * loose * rng.uniform(0.95, 1.1):.3g}") for name in names}
    if rng.random() < 0.25:
        found["error_rate"] = rng.choice([0.01, 0.05])
    return found


def _sla(rng: random.Random, config: dict[str, Any], limits: dict[str, float], load: str, families: list[str]) -> None:
    if rng.random() < 0.06:
        families.append("no sla")
        limits.clear()
        return
    written: dict[str, Any] = {name: _written(name, value) for name, value in limits.items()}
    first = next(iter(written))
    kind = rng.random()
    if kind < 0.1:
        families.append("range")
        written[first] = [_written(first, limits[first] * 0.8), _written(first, limits[first])]
    if 0.1 < kind < 0.2 and load != "mix":
        families.append("tiers")
        loose = {name: _written(name, value * 1.5) for name, value in limits.items()}
        config["sla"] = {"gold": written, "silver": loose}
    else:
        config["sla"] = written
    if rng.random() < 0.3:
        config["marginal_gain"] = False


def _written(name: str, value: float) -> str:
    return f"{value * 100:.4g}%" if name == "error_rate" else f"{float(f'{value * 1e3:.4g}'):.9g}ms"


def _sizes(rng: random.Random, config: dict[str, Any], families: list[str]) -> None:
    if rng.random() < 0.35:
        families.append("budget")
        config["budget"] = rng.choice(
            [{"time": f"{round(_between(rng, 8, 300))}s"}, {"requests": rng.randint(200, 6000)}]
        )
    if rng.random() < 0.15 and isinstance(config.get("concurrency"), list):
        config["requests"] = rng.choice([30, 100, 300])
    if rng.random() < 0.15:
        config["repeats"] = rng.choice([1, 2, 3])
    if rng.random() < 0.6:
        config["refine"] = rng.choice(
            [0, 1, 1, 2] if config.get("concurrency") != "auto" and "rate" not in config else [1]
        )
    if rng.random() < 0.1:
        config["max_time"] = rng.choice(["20s", "60s"])


# --- what the user does


SWEEP = ("sweep", CONFIG, "-o", RUN)


def _steps(rng: random.Random, limits: dict[str, float], top: int, families: list[str]) -> list[Step]:
    steps: list[Step] = []
    for _ in range(rng.choice([0, 0, 0, 0, 1, 1, 2])):
        trouble = rng.choice(["stop", "stop", "kill", "full"])
        families.append(trouble)
        if trouble == "stop":
            steps.append(Command(SWEEP, stop_at=rng.randint(1, 120)))
        else:
            steps.append(Command(SWEEP, disk=(trouble, rng.randint(1, 250))))
    steps.append(Command(SWEEP))
    for _ in range(rng.choice([0, 1, 1, 1, 2])):
        steps += _more(rng, limits, top, families)
    return steps


def _more(rng: random.Random, limits: dict[str, float], top: int, families: list[str]) -> list[Step]:
    """One more thing that a user does."""
    kind = rng.choice(["again", "edit", "budget", "prove", "verify", "find", "soak", "damage", "clock", "until"])
    families.append(kind)
    again = Command(SWEEP)
    if kind == "edit" and limits:
        factor = rng.choice([0.6, 0.9, 1.05, 1.5])
        new = {name: _written(name, value * factor) for name, value in limits.items()}
        if rng.random() < 0.3:
            new = {name.replace("p90", "p95"): value for name, value in new.items()}
        return [Edit({"sla": new}), *rng.choice([[again], []])]
    if kind == "budget":
        return [Edit({"budget": {"time": rng.choice(["5min", "30s", "20min"])}}), again]
    if kind == "prove" and limits:
        named = rng.choice([str(top), str(rng.randint(1, 30)), f"{top},{top + 1}"])
        return [Command((*SWEEP, "--prove", named))]
    if kind == "verify" and limits:
        return [Command(("verify", RUN, *rng.choice([(), ("--load", "0.5"), ("--json",)])))]
    if kind == "find" and limits:
        return [Command(("verify", RUN, "--find"))]
    if kind == "soak" and limits:
        return [Command(("verify", RUN, "--for", "3min"), stop_at=rng.choice([None, None, 30]))]
    if kind == "damage":
        return [Damage(rng.choice(["remove", "change"]), rng.randint(0, 50)), *rng.choice([[again], []])]
    if kind == "clock":
        return [SetClock(rng.choice([-7200.0, -600.0, 86_400.0])), again]
    if kind == "until":
        return [Command((*SWEEP, "--until", "23:30"))]
    return [again]
