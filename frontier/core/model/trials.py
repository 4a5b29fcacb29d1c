"""Trials and their records: a Record for each request, and the Measurement beside them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from frontier.core.model.loads import Load
from frontier.core.model.series import HasLoad
from frontier.core.model.shapes import Shape, file_label


class Phase(StrEnum):
    """Why a trial is run.

    - `scan`: a cheap look at a setting, for its values
    - `prove`: a window of a candidate, for the claim
    - `visit`: the operating point again, later, so that its claim covers more time
    - `grid`: a setting of the config, to complete the frontier
    - `frontier`: a setting between those of the config, to complete the frontier

    Versions before 0.2 wrote `locate` for `scan` and `confirm` for `prove`. Scans, and settings
    between those of the config, support no claim.
    """

    GRID = "grid"
    SCAN = "scan"
    PROVE = "prove"
    VISIT = "visit"
    FRONTIER = "frontier"
    LOCATE = "locate"
    CONFIRM = "confirm"


@dataclass(frozen=True, slots=True)
class Trial(HasLoad):
    """One planned run of a setting. At least `requests` are sent in its window, unless `max_time`
    ends it earlier.

    `max_time` counts from the trial's start. `seconds` bounds the window alone, which lasts until a
    request was sent in it even so; None: only `max_time` bounds it.

    `seed` makes the prompts; it differs for every trial, so no two share a prompt. `fingerprint` is
    a hash of all that decides the trial's numbers; a stored trial with another fingerprint does not
    count.
    """

    deployment: str
    shape: Shape
    load: Load
    repeat: int
    phase: Phase
    requests: int
    seed: int
    warmup: float
    min_time: float
    max_time: float
    fingerprint: str
    seconds: float | None = None

    @property
    def key(self) -> str:
        """The trial's name: unique in a sweep and safe as a file name."""
        where = f"{file_label(self.deployment)}-{self.shape.file_label}"
        return f"{where}-{self.load.file_label}-{self.phase.value}-r{self.repeat}"

    @property
    def streams(self) -> int:
        """How many requests may be in flight at the client: always this number in closed loop.
        Arrivals beyond it wait.
        """
        return self.load.streams


class Outcome(StrEnum):
    """How a request ended. Every request sent has exactly one outcome."""

    OK = "ok"
    HTTP_ERROR = "http_error"
    CONNECT = "connect"
    TLS = "tls"
    TIMEOUT = "timeout"
    STREAM_ERROR = "stream_error"
    TRUNCATED = "truncated"
    EMPTY = "empty"
    PROTOCOL = "protocol"
    CLIENT = "client"
    CANCELLED = "cancelled"


FINISHED = frozenset(
    {
        "stop",
        "length",
        "tool_calls",
        "function_call",  # OpenAI, vLLM, SGLang, TensorRT-LLM, llama.cpp, Ollama
        "eos_token",
        "stop_sequence",  # TGI
        "eos",
        "limit",
        "word",  # llama.cpp's own route
        "end_turn",
        "max_tokens",
        "tool_use",
        "complete",
        "model_length",  # gateways to other makers' models
    }
)
"""Finish reasons, in lower case, of a complete answer: it ended by itself, or at the length asked
for."""


@dataclass(frozen=True, slots=True)
class Record:
    """The measured facts of one request. Times are seconds on the trial's clock (0 = the trial's
    start).

    `first` and `last` are the times of receipt of the first and last token-bearing event on any
    channel. `visible` is the time of the first character a user sees (not reasoning, not a space).
    `first_text` is the time of the first character on any channel: `last` when no character came,
    None when it came with `first`. `gaps` are the microseconds between successive token-bearing
    events. `prompt_tokens`, `completion_tokens` and `cached_tokens` are the server's own counts,
    without reasoning tokens that it counted and did not stream. `most_tokens` is the higher count
    where its usage can be read in two ways. `first_chars` are the characters of text in the first
    token-bearing event and in events of the same read. `first_tokens` are the tokens that had come
    by then, by a running count of the server. `asked_isl` and `asked_osl` are 0 when no length was
    asked for. CANCELLED (by the client, at the end) is neither success nor failure; CLIENT is a
    failure of the client itself (no file descriptors) and is never counted against the server.
    `connect` is how long opening a connection took, from `sent` on; 0 on a kept one. `connection`
    is the number of its TCP connection in the trial, None where it is not known. For a request of a
    session, `session` is the number of the session in its trial and `turn` the number of the
    request in the session, from 0. `reusable` is how many of its prompt tokens were sent or
    answered before, by the server's counts. For a request of a mix, `class_index` is the place of
    its class in the mix; it then has a session too, if only of one request. `background`: it is of
    the load beside the shape, and counts in none of the shape's metrics.
    """

    index: int
    stream: int
    sent: float
    outcome: Outcome
    end: float
    asked_isl: int
    asked_osl: int
    first: float | None = None
    visible: float | None = None
    last: float | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    events: int = 0
    reads: int = 0
    text_bytes: int = 0
    text_chars: int = 0
    finish_reason: str | None = None
    status: int | None = None
    error: str | None = None
    scheduled: float | None = None
    resent: bool = False
    gaps: tuple[int, ...] = ()
    first_text: float | None = None
    session: int | None = None
    turn: int | None = None
    reusable: int | None = None
    connect: float = 0.0
    class_index: int | None = None
    connection: int | None = None
    first_chars: int | None = None
    first_tokens: int | None = None
    most_tokens: int | None = None
    background: bool = False


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a trial that counts, in seconds on the trial's clock."""

    start: float
    end: float

    @property
    def length(self) -> float:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class ClientHealth:
    """How well the load client itself ran during the window; None = not measured.

    `suspended` is how many seconds this machine slept during the trial: its clocks stopped, the
    server's did not. `stood_still` is the longest pause of this process in seconds, as by Ctrl-Z or
    by the host of a virtual machine. `restart_delay_mean` is the mean wait in seconds before
    streams sent again, so that requests do not run in step. `processes` is how many client
    processes sent the load where there were several, and `clock_bound` the largest error of their
    clocks in seconds. `connections_renewed` were replaced by one opened ahead, `renewals_failed` of
    these could not be opened.
    """

    loop_lag_p99: float | None = None
    send_late_p99: float | None = None
    cpu_share: float | None = None
    gc_pause_max: float | None = None
    resent: int = 0
    connections_opened: int | None = None
    suspended: float | None = None
    stood_still: float | None = None
    restart_delay_mean: float | None = None
    processes: int | None = None
    clock_bound: float | None = None
    connections_renewed: int | None = None
    renewals_failed: int | None = None


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """One of several client processes that sent a trial's load: its host, how many streams it had,
    and its health.

    Its clock was `clock_offset` seconds ahead of the trial's, known within `clock_bound`, drift
    included; latencies are of its own clock and do not depend on it. `late` is by how many seconds
    it began after the trial's start.
    """

    host: str
    streams: int
    clock_offset: float
    clock_bound: float
    late: float
    health: ClientHealth


TOGETHER = " + "
"""Stands between the names that one answer gives its model, as an alias and the name behind it."""


CACHED_ANEW, SHARE_ANEW = "cached_of_new_prompts", "cached_share_of_new_prompts"
"""Facts: what a server calls cached in prompts that it never saw. The first is a number of tokens
that is the same for prompts of any length: its template. The second is a share of the tokens: the
server means something else by the word."""
UNCOUNTED_PROMPTS, REPEATED_PROMPTS = "prompts_not_counted", "prompts_come_again"
"""The facts that the server's count of prompts does not grow with them, and that those of a file
are sent more than once.
"""


@dataclass(frozen=True, slots=True)
class MetricSeries:
    """One series of a source as it came: its name and labels, and a value for each of the source's
    times.

    The values are one text: numbers with a space between them, and '-' for a missing one. A file of
    a trial holds thousands of values, which are seldom looked at.
    """

    name: str
    labels: Mapping[str, str]
    values: str


@dataclass(frozen=True, slots=True)
class SourceReadings:
    """The readings of one source beside a trial: 'metrics' (Prometheus text over HTTP),
    'nvidia-smi' or 'nvml'. `times` are seconds on the trial's clock, as one text.
    """

    source: str
    times: str
    series: tuple[MetricSeries, ...]


@dataclass(frozen=True, slots=True)
class Measurement:
    """The facts of a finished trial beside its records: its window, its start as unix time, and the
    evidence gathered.

    `ended` says why the window closed: 'requests', 'time', 'failing' (every request was answered
    with a failure for too long), 'budget' (cut off as its time was over), 'interrupted' or
    'server_lost'. `server` holds the server's own metrics over the window, under vLLM's names
    without the prefix: counters as differences, gauges as means. `client.ask` made these facts of
    the `readings`, which are kept as they came. `server_settings` are the server's own flags, as it
    told them. `health` is the worst of all client processes; `workers` are these, where there were
    several.

    `named` holds what the answers named, by field ('model', 'system_fingerprint'), with the number
    of answers, and under 'asked' the model that was asked for. `changed` says what the server
    listed or called itself after the last request and not before the first; None: nothing differed,
    or it does not say.
    """

    trial: Trial
    epoch: float
    window: Window
    ended: Literal["requests", "time", "failing", "budget", "interrupted", "server_lost"]
    health: ClientHealth = ClientHealth()
    server: Mapping[str, float] = field(default_factory=dict)
    server_identity: str | None = None
    workers: tuple[WorkerFacts, ...] = ()
    readings: tuple[SourceReadings, ...] = ()
    server_settings: Mapping[str, str] = field(default_factory=dict)
    named: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    changed: str | None = None
