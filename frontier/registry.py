"""The table of the commands and of the extras: strings by which commands and rings find what an
extra adds, imported when it is used.

An extra is a folder of `frontier/extras`. Nothing else names what is in it, so that a folder that
is deleted takes exactly its commands, options, keys, notes, sections and figures with it.
"""

import importlib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from frontier.core.model.errors import UsageError

_EXTRAS = Path(__file__).parent / "extras"


class Command(NamedTuple):
    """A command: the section of the help it stands in, its line there, and the module of its extra;
    without one it is `frontier.cli`'s.
    """

    section: str
    line: str
    module: str = ""


COMMANDS = {
    "probe": Command("Measure", "check a server: does it stream, count tokens, force lengths", "probe.command"),
    "init": Command("Measure", "print a config for an endpoint", "init.command"),
    "workload": Command(
        "Measure", "a config of your own traffic: from a server's counters, Prometheus or a log", "workload.command"
    ),
    "sweep": Command("Measure", "run a sweep, or resume it: the same command again"),
    "status": Command("Measure", "how far a running sweep is", "status.command"),
    "verify": Command("Measure", "the operating point under open-loop (Poisson) load"),
    "quick": Command("Measure", "a plain answer in about a minute", "quick.command"),
    "show": Command("Decide", "the points of a run as a table"),
    "solve": Command("Decide", "the operating point: the concurrency proven inside the SLA"),
    "compare": Command("Decide", "compare two runs: is B's frontier better than A's?", "compare.command"),
    "trend": Command("Decide", "runs over time: a table and a figure", "compare.trend_command"),
    "tune": Command("Decide", "a race of server settings: which flags to run with", "tune.command"),
    "users": Command(
        "Decide", "people per replica, replicas for so many people, and where to set the limit", "users.command"
    ),
    "predict": Command(
        "Decide", "predicted frontier (before or beyond the measured points) and the roofline bound", "predict.command"
    ),
    "plot": Command("Present", "the frontier as a picture (png, svg, pdf)"),
    "report": Command("Present", "the run as one page (html, md, json)", "report.command"),
    "export": Command("Exchange", "a run for other tools: CSV, Parquet, Prometheus", "exporters.command"),
    "import": Command(
        "Exchange",
        "results of other tools as a run: vLLM, AIPerf, GuideLLM, genai-bench, InferenceX, CSV",
        "importers.command",
    ),
    "serve-sim": Command(
        "Also", "the embedded simulated engine behind an OpenAI-compatible address", "serve_sim.command"
    ),
    "ceilings": Command(
        "Also",
        "measured memory bandwidth, matmul rates, attention and links, beside the data sheet; hosts compared",
        "predict.ceilings_command",
    ),
}
"""Every command, in the order of the help."""


NOTES = {"diagnosis": "diagnose.diagnosis_notes:notes", "jitter": "diagnose.jitter_notes:notes"}
"""What is said of the series of a run, by its name in JSON: (run, points, decisions) ->
`show.notes.Noted`."""
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
FIGURES = dict.fromkeys(FIGURE_LINES, "figures.detail:detail_figures") | {"hours": "hold.hours:detail_figures"}
"""Detail figures by name: (run, views, name, at) -> pictures with their views."""
PAGE_FIGURES = {"figures": "figures.detail:page_figures"}
"""Figures of a series on the page: (view, samples) -> pictures."""
SEVERAL = "compare.multi_run:together_picture"
"""Several runs or deployments in one picture: (runs, limits, axes) -> picture."""
POOLED = "compare.pooled:pooled_of"
"""The frontier over several deployments or runs: (runs, objectives, limits) -> tables with their
trees."""
TRACE = "workload.arrival_files:read_trace"
KEPT_TRACE = "workload.arrival_files:of_column"
SESSIONS = "workload.session_files:read_sessions"
REQUESTS = "workload.trace_files:read_requests"
"""Arrivals (also as a run keeps them), sessions and requests of files that a config names."""
SHAPE_KINDS = {
    "sessions": "workload.shape_kinds:SessionsOfFile",
    "trace": "workload.shape_kinds:RequestsOfTrace",
    "pairs": "workload.shape_kinds:PairsOfLengths",
}
"""Shapes of another kind, by the key that only these have: models with a `shape`."""
RECORDED = "workload.recorded"
"""What the plan of a sweep says of them: `recorded_lines` and, for JSON, `trace_facts`."""
MODEL_FILE = "predict.model_file"
"""The sizes of a model card in a model's config.json: `sizes_in` a file, `sizes_of` its tree."""
ROOFLINES = "predict.drawn_roofline:rooflines"
"""The rooflines of a picture: (config, points, frontiers) -> `picture.data.Roofline` by series."""
EXECUTOR = "ray.workers"
"""Client processes on other machines."""
ON_RAY = "ray.ray_keys:read_ray"
"""What is made of the config's `workers`, where it says that they are there."""
NATURAL = "natural.passages"
"""Natural prompts: `Passages` of a seed, and what of them is `counted`."""
STARTED_SERVER = "launcher.started_server:StartedServer"
"""A server that the sweep starts."""
LEFT_ALIVE = "launcher.started_server:left_alive"
"""What lives of the servers that earlier sweeps of a run started: (lines of its journal) -> each,
with its `text`."""
FINISH = "notify.finish_keys:read_finish"
"""What is made of the config's `on_finish`."""
NOTIFY = "notify.on_finish:tell"
"""Who is told how a sweep ended, by `on_finish`: (config, run, end, exit code, decisions, reason,
environment) -> what went wrong with it."""
SIMULATOR = "serve_sim.process:SimulatorProcess"
"""The embedded engine behind HTTP, in a process of its own."""
ADVICE = "advice.config_advice:advice"
"""What is probably not meant in a sound config: (config) -> problems."""
EXPANSIONS = {"tune": "tune.variants:expand"}
"""What makes several deployments of one in a config, by the command that measures them: (root node,
complain) -> whether there was any."""
SOURCES = {"devices": "devices.gpu_readers:sources"}
"""What is read beside a trial: (target) -> sources, each with `watch` and `readings`."""
TABLES = {"devices": "devices.device_names"}
"""Names of what sources and exporters say, and what facts are made of it: modules with FACTS,
EXPORTED, READ and MADE."""
POWER = "devices.power"
"""Power by such readings: a module with `measured` and `power_flag`."""
FOUND_RATES = "find.found_rates:rates_found"
"""What finished searches for the highest rate of a run have found: (run, limits) -> answers, each
with its `decision`, `done` and `point`."""
ARRIVAL_RATE = "users.arrivals:arrival_rate"
"""The rate of independent arrivals of an operating point: (decision, its points, its samples) ->
`planning.sla_result.ArrivalRate`."""
COMPARED_ANSWERS = "quality.agreement:of_run"
"""Answers beside those of a reference: (config, directory of the checks) -> what has their
`quality`, by series."""
OPTIONS = {
    "sweep": ("telemetry.command",),
    "dry-run": ("minute.command",),
    "verify": ("quality.command", "hold.command", "find.command"),
}
"""Options that extras add to commands of the ring: modules with `option`, which decorates, and
`run` or `around`, as the command says."""
API = {
    "load": "notebook.notebook_run:load",
    "load_config": "notebook.api:load_config",
    "run_sweep": "notebook.api:run_sweep",
    "compare_runs": "compare.comparison_tables:compare_runs",
    "import_files": "importers.importing:import_files",
}
"""Names of the public API."""


@cache
def is_there(extra: str) -> bool:
    """Whether the folder of an extra is there."""
    return (_EXTRAS / extra / "__init__.py").exists()


def there(table: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The rows of a table whose extras are there."""
    return ((name, place) for name, place in table.items() if is_there(place.partition(".")[0]))


def needed(place: str, what: str) -> Any:
    """What stands at a place, for something that a user asked for. UsageError where the extra is
    not there.
    """
    extra = place.partition(".")[0]
    if not is_there(extra):
        raise UsageError(f"{what} needs frontier/extras/{extra}, which is not there", "install llm-frontier whole")
    return load(place)


def optional(place: str) -> Any | None:
    """What stands at a place; None where its extra is not there."""
    return load(place) if is_there(place.partition(".")[0]) else None


def options_of(command: str) -> list[Any]:
    """The modules of the options that extras add to a command."""
    return [found for place in OPTIONS.get(command, ()) if (found := optional(place)) is not None]


def commands() -> dict[str, Command]:
    """The commands, without those of extras that are not there."""
    return {
        name: found for name, found in COMMANDS.items() if not found.module or is_there(found.module.partition(".")[0])
    }


def load(place: str) -> Any:
    """What stands at 'EXTRA.module' or 'EXTRA.module:name'."""
    module, _, name = place.partition(":")
    found = importlib.import_module(f"frontier.extras.{module}")
    return getattr(found, name) if name else found
