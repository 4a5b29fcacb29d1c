"""The table of the commands and of the extras. It holds strings by which commands and other
packages find what an extra adds, which is imported when it is used.

An extra is a folder of `frontier/extras`: what no sweep needs for its answer. Nothing else names
what is in it. Deleting a folder therefore removes exactly its commands, options, keys, notes,
sections and figures. Each row says by a `Protocol` what stands at its place.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from frontier.core.model.errors import UsageError

if TYPE_CHECKING:
    import yaml

    from frontier.client.ask.evidence import Source
    from frontier.client.ask.target import Target
    from frontier.client.secrets import Secrets
    from frontier.config import Config
    from frontier.core.model.decisions import Decision, Limit
    from frontier.core.model.loads import Arrivals, Load, Trace
    from frontier.core.model.points import Estimate, Frontier, Point
    from frontier.core.model.series import Series
    from frontier.core.model.shapes import Shape
    from frontier.core.window.window import WindowData
    from frontier.planning.sweep_progress import Progress
    from frontier.run import Objectives, Run
    from frontier.show.picture.data import Picture
    from frontier.show.table import Table
    from frontier.show.view.notes import Noted
    from frontier.show.view.series_view import DrawnRoofline, SeriesView
    from frontier.store.run_dir import RunDirectory
    from frontier.sweep.backend import Backend
    from frontier.sweep.conductor import Conductor, Course

_EXTRAS = Path(__file__).parent / "extras"
T = TypeVar("T")


# --- what stands at a place


@dataclass(frozen=True, slots=True)
class Row(Generic[T]):
    """The place of what an extra adds: 'EXTRA.module' or 'EXTRA.module:name'."""

    place: str

    @property
    def extra(self) -> str:
        """The name of the extra's folder."""
        return self.place.partition(".")[0]

    def load(self) -> T:
        """The object at the place, imported now."""
        module, _, name = self.place.partition(":")
        found: Any = importlib.import_module(f"frontier.extras.{module}")
        it: T = getattr(found, name) if name else found
        return it

    def find(self) -> T | None:
        """The object at the place; None where its extra is not installed."""
        return self.load() if is_installed(self.extra) else None

    def require(self, what: str) -> T:
        """The object at the place, for something that a user asked for. UsageError where its extra
        is not installed.
        """
        if not is_installed(self.extra):
            raise UsageError(
                f"{what} needs frontier/extras/{self.extra}, which is not there", "install llm-frontier whole"
            )
        return self.load()


class CommandModule(Protocol):
    """The module of a command."""

    command: Any


class NotesOf(Protocol):
    """Notes on the series of a run."""

    def __call__(self, run: "Run", points: "Sequence[Point]", decisions: "Sequence[Decision]") -> "Noted": ...


class DetailFigures(Protocol):
    """Detail figures of this name: pictures with their views. `at` is the setting to show."""

    def __call__(
        self, run: "Run", views: "Sequence[SeriesView]", name: str, at: int | None = None
    ) -> "list[tuple[SeriesView, Picture]]": ...


class PageFigures(Protocol):
    """Figures of a series on the page."""

    def __call__(self, view: "SeriesView", samples: "Mapping[Load, WindowData]") -> "list[Picture]": ...


class TogetherPicture(Protocol):
    """Several runs or deployments in one picture."""

    def __call__(self, runs: "Sequence[Run]", limits: "Sequence[Limit]", axes: "Objectives") -> "Picture": ...


class PooledOf(Protocol):
    """The frontier over several deployments or runs: tables with their trees."""

    def __call__(
        self, runs: "Sequence[Run]", objectives: "Objectives", limits: "Sequence[Limit]"
    ) -> "list[tuple[Table, dict[str, Any]]]": ...


class Recorded(Protocol):
    """The recorded files that a config names: arrivals (also as a run keeps them), sessions and
    requests; and the lines on them in the plan of a sweep.
    """

    def read_trace(self, path: str) -> "Arrivals": ...
    def of_column(self, name: str, column: bytes, grid: float | None = None) -> "Arrivals": ...
    def read_sessions(self, path: str) -> "Shape": ...
    def read_requests(self, path: str) -> "Shape": ...
    def recorded_lines(self, config: "Config") -> list[str]: ...
    def trace_facts(self, trace: "Trace") -> dict[str, Any]: ...


class ModelFile(Protocol):
    """The sizes of a model card that a model's config.json gives, by its file or its tree."""

    def sizes_in(self, file: str) -> dict[str, Any]: ...
    def sizes_of(self, config: "Mapping[str, Any]") -> dict[str, Any]: ...


class RooflinesOf(Protocol):
    """The rooflines of a picture by series."""

    def __call__(
        self, config: "Config", points: "Sequence[Point]", frontiers: "Sequence[Frontier]"
    ) -> "Mapping[tuple[str, Shape], DrawnRoofline]": ...


class WorkersElsewhere(Protocol):
    """Client processes on other machines, of one sweep."""

    @property
    def nodes(self) -> int: ...
    async def connect(self) -> None: ...
    async def get(self, count: int) -> "Sequence[Any]": ...
    def close(self) -> None: ...


class Executor(Protocol):
    """Client processes of a sweep on other machines."""

    def RayWorkers(self, address: str | None, secrets: "Secrets") -> WorkersElsewhere: ...  # noqa: N802
    def require_ray(self) -> None: ...


class OnRay(Protocol):
    """The settings of `workers` for a Ray cluster."""

    @property
    def ray(self) -> str: ...
    @property
    def count(self) -> int | None: ...
    @property
    def address(self) -> str | None: ...


class Expand(Protocol):
    """Makes several deployments out of one in a config. True where there was one to expand."""

    def __call__(self, root: "yaml.MappingNode", complain: Callable[[Any, str, str], None]) -> bool: ...


class KnobOfSweep(Protocol):
    """A knob of a running server. `turned`: what runs the trials of a sweep, setting the knob
    before them, and the order in which it measures. `result`: what the values give, by shape: a
    table, sentences, and both for JSON; nothing for a run without a knob.
    """

    def turned(self, conductor: "Conductor") -> "tuple[Backend, Course]": ...
    def result(self, run: "Run") -> "Sequence[tuple[Table, str, Mapping[str, Any]]]": ...


class SourcesOf(Protocol):
    """The sources of readings beside a trial of this target."""

    def __call__(self, target: "Target") -> "Sequence[Source]": ...


class HighestRate(Protocol):
    """A highest rate that was searched for at an operating point."""

    @property
    def decision(self) -> "Decision": ...
    @property
    def done(self) -> Any: ...
    @property
    def point(self) -> "Point | None": ...


class PeopleWords(Protocol):
    """The people that an operating point serves where each thinks so many seconds between an answer
    and the next question, and how that was counted; None where they cannot be.
    """

    def __call__(self, run: "Run", decision: "Decision", think: float) -> tuple[str, str] | None: ...


class RatesFound(Protocol):
    """The highest rates that finished searches of a run have found."""

    def __call__(self, run: "Run", limits: "Sequence[Limit]") -> "Sequence[HighestRate]": ...


class ComparedAnswer(Protocol):
    """Answers of a deployment beside those of its reference."""

    @property
    def quality(self) -> "Estimate": ...


class AnswersOf(Protocol):
    """The answers of a run's deployments compared with those of their references, by series;
    `checks` is the directory in which `verify` kept them.
    """

    def __call__(self, config: "Config", checks: "RunDirectory") -> "Mapping[Series, ComparedAnswer]": ...


class AgreementsOf(Protocol):
    """How alike the answers of a run's deployments among the load of a setting are to those that
    they gave alone, by series and concurrency.
    """

    def __call__(self, checks: "RunDirectory") -> "Mapping[tuple[str, str, int], Estimate]": ...


class SweepOption(Protocol):
    """An option of `frontier sweep`: `option` decorates the command, `around` wraps its
    progress.
    """

    def option(self, command: Callable[..., Any]) -> Callable[..., Any]: ...
    def around(
        self, progress: "Progress", given: "Mapping[str, Any]", limits: "Sequence[Limit]"
    ) -> "AbstractAsyncContextManager[Progress]": ...


# --- the table


class Command(NamedTuple):
    """A command: its section of the help, its line there, and the module of its extra; '' for a
    command of `frontier.cli`.
    """

    section: str
    line: str
    module: str = ""

    @property
    def row(self) -> "Row[CommandModule] | None":
        """The place of its module; None for a command of `frontier.cli`."""
        return Row(self.module) if self.module else None


COMMANDS = {
    "probe": Command("Measure", "check a server: does it stream, count tokens, force lengths"),
    "init": Command("Measure", "print a config for an endpoint"),
    "workload": Command(
        "Measure", "a config of your own traffic: from a server's counters, Prometheus or a log", "workload.command"
    ),
    "sweep": Command("Measure", "run a sweep, or resume it: the same command again"),
    "status": Command("Measure", "how far a running sweep is"),
    "verify": Command("Measure", "the operating point under open-loop (Poisson) load", "verify.command"),
    "quick": Command("Measure", "a plain answer in about a minute"),
    "show": Command("Decide", "the points of a run as a table"),
    "solve": Command("Decide", "the operating point: the concurrency proven within the SLA"),
    "compare": Command("Decide", "compare two runs: is B's frontier better than A's?", "compare.command"),
    "trend": Command("Decide", "runs over time: a table and a figure", "compare.trend_command"),
    "tune": Command("Decide", "a race of server settings: which flags to run with", "tune.command"),
    "users": Command(
        "Decide", "people per replica, replicas for so many people, and where to set the limit", "capacity.command"
    ),
    "predict": Command(
        "Decide", "predicted frontier (before or beyond the measured points) and the roofline bound", "predict.command"
    ),
    "plot": Command("Present", "the frontier as a picture (png, svg, pdf)"),
    "report": Command("Present", "the run as one page (html, md, json)", "present.command"),
    "export": Command("Exchange", "a run for other tools: CSV, Parquet, Prometheus", "exchange.export_command"),
    "import": Command(
        "Exchange",
        "results of other tools as a run: vLLM, AIPerf, GuideLLM, genai-bench, InferenceX, CSV",
        "exchange.import_command",
    ),
    "rehearse": Command("Exchange", "a run under the rules of MLPerf Endpoints: a rehearsal", "rehearse.command"),
    "serve-sim": Command("Also", "the embedded simulated engine behind an OpenAI-compatible address"),
    "ceilings": Command(
        "Also",
        "measured memory bandwidth, matmul rates, attention and links, beside the data sheet; hosts compared",
        "predict.ceilings_command",
    ),
}
"""Every command, in the order of the help."""


NOTES: "Mapping[str, Row[NotesOf]]" = {
    "diagnosis": Row("diagnose.diagnosis_notes:notes"),
    "jitter": Row("diagnose.jitter_notes:notes"),
}
"""Notes on the series of a run, by their name in JSON."""
FIGURE_LINES = {
    "latency": "latency percentiles over concurrency, with their limits",
    "throughput": "throughput, and the share of its speed that each stream keeps",
    "goodput": "requests per second that keep every limit",
    "inflation": "how much slower each request gets than alone",
    "time": "where the time of a request goes",
    "tails": "how many requests take longer than so long",
    "jitter": "gaps between the tokens of an answer",
    "timeline": "every request of a trial, from sending to the last token",
    "contexts": "what the SLA allows over the input length, or the shared prefix",
    "hours": "the limited latencies over the hours of verify --for",
}
"""What each detail figure shows, for the help."""
FIGURES: "Mapping[str, Row[DetailFigures]]" = {
    name: Row("verify.soak_hours:detail_figures" if name == "hours" else "present.detail:detail_figures")
    for name in FIGURE_LINES
}
"""Detail figures by name."""
PAGE_FIGURES: "Row[PageFigures]" = Row("present.detail:page_figures")
TOGETHER: "Row[TogetherPicture]" = Row("compare.multi_run:together_picture")
POOLED: "Row[PooledOf]" = Row("compare.pooled:pooled_of")
RECORDED: "Row[Recorded]" = Row("workload.recorded")
SHAPE_KINDS: "Mapping[str, Row[Any]]" = {
    "sessions": Row("workload.shape_kinds:SessionsOfFile"),
    "trace": Row("workload.shape_kinds:RequestsOfTrace"),
    "pairs": Row("workload.shape_kinds:PairsOfLengths"),
}
"""Shapes of further kinds, by the key that only these have: pydantic models with a `shape`."""
MODEL_FILE: "Row[ModelFile]" = Row("predict.model_file")
ROOFLINES: "Row[RooflinesOf]" = Row("predict.drawn_roofline:rooflines")
EXECUTOR: "Row[Executor]" = Row("cluster.ray_workers")
ON_RAY: "Row[Callable[[Any], OnRay]]" = Row("cluster.ray_keys:read_ray")
EXPANSIONS: "Mapping[str, Row[Expand]]" = {
    "sweep": Row("tune.knob_values:expand"),
    "tune": Row("tune.variants:expand"),
}
"""Functions that make several deployments out of one in a config, by the command that measures
them."""
KNOB: "Row[KnobOfSweep]" = Row("tune.knob")
SOURCES: "Row[SourcesOf]" = Row("cluster.gpu_readers:sources")
PEOPLE: "Row[PeopleWords]" = Row("capacity.served:people_words")
FOUND_RATES: "Row[RatesFound]" = Row("verify.found_rates:rates_found")
COMPARED_ANSWERS: "Row[AnswersOf]" = Row("verify.agreement:of_run")
AGREEMENTS: "Row[AgreementsOf]" = Row("verify.under_load:agreements")
SWEEP_OPTION: "Row[SweepOption]" = Row("cluster.prometheus_option")
API: "Mapping[str, Row[Any]]" = {
    "load": Row("api.notebook_run:load"),
    "load_config": Row("api.entry:load_config"),
    "run_sweep": Row("api.entry:run_sweep"),
    "compare_runs": Row("compare.comparison_tables:compare_runs"),
    "import_files": Row("exchange.formats:import_files"),
}
"""Names of the public API."""


@cache
def is_installed(extra: str) -> bool:
    """Whether the folder of an extra is there."""
    return (_EXTRAS / extra / "__init__.py").exists()


def installed(rows: "Mapping[str, Row[T]]") -> "Iterator[tuple[str, Row[T]]]":
    """The rows whose extra is installed."""
    return ((name, row) for name, row in rows.items() if is_installed(row.extra))


def commands() -> dict[str, Command]:
    """The commands, without those of extras that are not installed."""
    return {name: found for name, found in COMMANDS.items() if found.row is None or is_installed(found.row.extra)}
