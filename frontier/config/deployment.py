"""A deployment in the config: all its keys, checked together, and the server that a sweep starts
for it."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, model_validator

from frontier import registry
from frontier.client.ask.target import Target, Timeouts
from frontier.client.engines import ENGINES
from frontier.config.connection import (
    NO_METRICS,
    SIMULATOR,
    SentFile,
    TimeoutsConfig,
    TlsConfig,
    Variable,
    Wait,
    endpoint,
    from_environment,
    header_value,
    metrics_address,
    model_name,
    read_extra_body,
    read_headers,
    some_addresses,
)
from frontier.config.hardware_keys import HardwareConfig, named_hardware, read_gpus, read_price
from frontier.config.uses import ASK, PLAIN, PROXY, RUN, SEND_NAMED, VARIABLE
from frontier.core.model.points import Estimate
from frontier.fields import (
    ONE_OR_MANY,
    Name,
    Problem,
    Strict,
    duration_in,
    is_number,
    one_of,
    read,
    refuse,
    shown,
    text_of,
    whole_in,
)
from frontier.hardware.roofline import Roofline
from frontier.simulator.spec import READ_SPEC, EngineSpec, roofline_of


def command(value: Any) -> str:
    """A shell command of one line or several."""
    hint = "write the line as you would type it"
    text = text_of(value, "a command", hint)
    if not text or len(text) > 4_000 or not all(ch.isprintable() or ch in "\n\t" for ch in text):
        raise Problem("{key} is no command that can be run", f"{hint}, at most 4,000 characters")
    return text


ShellCommand = Annotated[str, PlainValidator(command), RUN]


class ReadyConfig(Strict):
    """When a started server is ready: once `command` exits with 0, or once it answers where there
    is no command; at most `within` seconds.
    """

    command: ShellCommand | None = None
    within: Wait = 900.0


class StopConfig(Strict):
    """How a started server is stopped: by `command` first, if any; `within` seconds before it is
    killed.
    """

    command: ShellCommand | None = None
    within: Annotated[float, duration_in(0.1, 600.0)] = 30.0


class ApplyConfig(Strict):
    """A knob of a running server: `command` sets it, with the value in the place of {`name`}. A
    config has the command alone; `vary` makes a deployment of each value.
    """

    command: ShellCommand
    name: Annotated[str, PLAIN]
    value: float

    def line(self, value: float) -> str:
        """The command that sets a value."""
        text = str(int(value)) if value.is_integer() else repr(value)
        return re.sub(rf"(?<!\$)\{{{re.escape(self.name)}\}}", text, self.command)


def _of_values(value: Any) -> Any:
    if not isinstance(value, dict):
        raise Problem("{key} has no values to set", "write  vary: {watts: [400, 320]}  into the deployment itself")
    return value


def _as_command(value: Any) -> Any:
    return {"command": value} if isinstance(value, str) else value


def _simulator(value: Any) -> dict[str, Any]:
    """The mapping as it was written, once it is known that an engine can be built from it."""
    if not isinstance(value, dict):
        raise Problem("{key} is a mapping of the engine's parameters", "write {max_num_seqs: 64}")
    read(READ_SPEC, value)
    return value


class QualityConfig(Strict):
    """Quality measured by `frontier verify --quality`: how often the deployment `reference` chooses
    the same token.
    """

    reference: Annotated[Name, PLAIN]
    prompts: Annotated[int, whole_in(20, 100_000)] = 200


def _quality(value: Any) -> float | QualityConfig:
    if isinstance(value, dict):
        registry.COMPARED_ANSWERS.require("quality: {reference: NAME}")
        config: QualityConfig = read(QualityConfig, value)
        return config
    if not is_number(value) or abs(value) > 1e9:
        raise Problem(f"{{key}} is a number; this is {shown(value)}", "write a score, as 0.953, or {reference: NAME}")
    return float(value)


_MEASURED = {"endpoint", "model", "api", "dialect", "headers", "extra_body", "timeouts", "proxy", "simulator"}
_MEASURED |= {"start", "apply"}
_STARTED = ("start", "a server that the sweep starts", "COMMAND")
_TURNED = ("apply", "a knob", "COMMAND {watts}")
_BESIDE = {"ready": _STARTED, "stop": _STARTED, "check": _TURNED, "settle": _TURNED}
"""Keys that stand beside another alone: that one, what both are for, and what to write."""
Api = Literal["auto", "completions", "chat"]


class DeploymentConfig(Strict):
    """One deployment. `price` is dollars per hour for all of it."""

    name: Annotated[Name, PLAIN] = "default"
    endpoint: Annotated[str, PlainValidator(endpoint), PLAIN]
    model: Annotated[str, PlainValidator(model_name), PLAIN] | None = None
    api: Annotated[Api, one_of("auto", "completions", "chat"), PLAIN] = "auto"
    dialect: Annotated[str, one_of("auto", *ENGINES), PLAIN] = "auto"
    api_key_env: Variable | None = None
    api_key_file: SentFile | None = None
    headers: Annotated[Mapping[str, str], PlainValidator(read_headers), SEND_NAMED] = Field(default_factory=dict)
    extra_body: Annotated[Mapping[str, Any], PlainValidator(read_extra_body), PLAIN] = Field(default_factory=dict)
    metrics: Annotated[
        tuple[Annotated[str, PlainValidator(metrics_address)], ...], ONE_OR_MANY, AfterValidator(some_addresses), ASK
    ] = ()
    timeouts: Annotated[TimeoutsConfig, PLAIN] = TimeoutsConfig()
    tls: TlsConfig | None = None
    proxy: Annotated[Literal["none", "env"], one_of("none", "env"), PROXY] = "none"
    hardware: Annotated[HardwareConfig, BeforeValidator(named_hardware)] | None = None
    gpus: Annotated[int | None, PlainValidator(read_gpus)] = Field(default=None, validate_default=True)
    price: Annotated[float | None, PlainValidator(read_price)] = None
    quality: Annotated[float | QualityConfig, PlainValidator(_quality)] | None = None
    simulator: Annotated[Mapping[str, Any], PlainValidator(_simulator), PLAIN] | None = None
    start: ShellCommand | None = None
    ready: Annotated[ReadyConfig, BeforeValidator(_as_command)] = ReadyConfig()
    stop: Annotated[StopConfig, BeforeValidator(_as_command)] = StopConfig()
    apply: Annotated[ApplyConfig | None, BeforeValidator(_of_values)] = None
    check: ShellCommand | None = None
    settle: Annotated[float, duration_in(0.0, 600.0)] = 5.0

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        """Check what needs several keys at once."""
        problems: list[Problem] = []

        def wrong(key: str, what: str, hint: str = "remove the key") -> None:
            problems.append(Problem(what, hint, key, at_key=True))

        if self.simulator is not None and not self.is_simulator:
            hint = "write  endpoint: simulator,  or remove the key"
            wrong("simulator", "simulator is set, and the endpoint is another", hint)
        if self.tls is not None and not self.endpoint.startswith("https://"):
            wrong("tls", "tls is set, and the endpoint is not https")
        named = [key for key in ("api_key_env", "api_key_file") if getattr(self, key) is not None]
        if self.is_simulator and named:
            wrong(named[0], "the simulator takes no key")
        elif len(named) == 2:
            wrong("api_key_file", "the key is named twice", "keep one of the two")
        for key, (other, what, command) in _BESIDE.items():
            if key in self.model_fields_set and getattr(self, other) is None:
                wrong(key, f"{key} is for {what}", f"add  {other}: {command},  or remove the key")
        if self.is_simulator and self.start is not None:
            wrong("start", "the simulator starts by itself")
        if self.hardware is not None and (parts := self.hardware.uneven(self.gpus or 1)):
            problems.append(parts)
        power = self.hardware.power if self.hardware is not None else None
        if power is not None and power.per_gpu and self.gpus is None:
            what = "power is per GPU, and the number of GPUs is not given"
            problems.append(Problem(what, "add  gpus: 8,  or write 5600W for all", "hardware", "power"))
        refuse(problems)
        return self

    def secret_variables(self) -> list[str]:
        """The environment variables it names, whose values are secrets."""
        named = [match[1] for value in self.headers.values() if (match := VARIABLE.fullmatch(value))]
        return [*([self.api_key_env] if self.api_key_env else []), *named]

    def hidden(self, environ: Mapping[str, str], key: str | None = None) -> tuple[str, ...]:
        """The secrets that the deployment names and that are set; `key` is the content of
        `api_key_file`.
        """
        named = [environ.get(name, "").strip() for name in self.secret_variables()]
        return tuple(value for value in (*named, key) if value)

    @property
    def is_simulator(self) -> bool:
        """Whether the embedded engine is to be started; `base_url` is then known only later."""
        return self.endpoint == SIMULATOR

    @property
    def devices(self) -> str | None:
        """The number and name of the devices, as `2 × h200`; None when no name is given."""
        return f"{self.gpus or 1} × {self.hardware.name}" if self.hardware and self.hardware.name else None

    @property
    def base_url(self) -> str:
        """The address without a trailing /v1, to which '/v1/completions' or '/metrics' is appended.

        ValueError for the simulator, whose address is known once it runs (see `target`).
        """
        if self.is_simulator:
            raise ValueError("the simulator has no address before it is started")
        return self.endpoint.removesuffix("/v1").rstrip("/")

    @property
    def reads_metrics(self) -> bool:
        """Whether the server's metrics are read."""
        return self.metrics != (NO_METRICS,)

    def engine_spec(self) -> EngineSpec:
        """The embedded engine's parameters; its defaults where the config gives none."""
        return EngineSpec.from_mapping(self.simulator or {})

    @property
    def slots(self) -> int | None:
        """The most requests that run at once, by the embedded engine or by `start`; None: not
        known.
        """
        if self.is_simulator:
            return self.engine_spec().max_num_seqs
        flags = [re.escape(e.limit).replace(r"\{c\}", r"(\d+)").replace(r"\ ", r"[\s=]+") for e in ENGINES.values()]
        matches = (re.search(flag, str(self.start or "")) for flag in flags if flag)
        return next((int(match[1]) for match in matches if match), None)

    def roofline(self) -> Roofline | None:
        """The roofline of what is measured; None when the hardware is not described.

        The simulator has one from its own model and hardware.
        """
        if self.hardware is not None:
            return self.hardware.roofline(self.model, self.gpus)
        if not self.is_simulator:
            return None
        spec = self.engine_spec()
        return None if spec.model is None or spec.time_scale != 1.0 else roofline_of(spec)

    @property
    def power(self) -> float | None:
        """Watts of the whole deployment as the config states them."""
        stated = self.hardware.power if self.hardware is not None else None
        return None if stated is None else stated.whole(self.gpus or 1)

    @property
    def stated_quality(self) -> Estimate | None:
        """The quality that the config states, taken as exact; None where it is measured or not
        known.
        """
        q = self.quality
        return Estimate(q, q, q, 0, q, q) if isinstance(q, float) else None

    def target(
        self, environ: Mapping[str, str], *, ignore_eos: bool = True, url: str | None = None, key: str | None = None
    ) -> Target:
        """Where requests go, with the secrets taken from `environ`.

        `url` replaces the simulator's address. `key` is the content of `api_key_file`, which only
        code that may read files passes on. UsageError when a variable that the config names is not
        set.
        """
        tls = self.tls or TlsConfig()
        return Target(
            url or self.base_url,
            model=self.model,
            api=self.api,
            api_key=key if self.api_key_env is None else from_environment(self.api_key_env, environ),
            headers={key: header_value(value, environ) for key, value in self.headers.items()},
            extra_body=self.extra_body,
            timeouts=Timeouts(**self.timeouts.model_dump()),
            verify_tls=tls.verify,
            ca_file=tls.ca,
            cert_file=tls.cert,
            key_file=tls.key,
            trust_env=self.proxy == "env",
            dialect=None if self.dialect == "auto" else self.dialect,
            ignore_eos=ignore_eos,
            metrics_urls=self.metrics if self.reads_metrics else None,
            hidden=self.hidden(environ, key),
        )

    def canonical(self) -> dict[str, Any]:
        """The keys that decide what is measured, JSON-able; no price, no key, no certificate."""
        measured = self.model_dump(include=_MEASURED)
        measured["endpoint"] = self.endpoint if self.is_simulator else self.base_url
        return {key: item for key, item in measured.items() if item not in (None, {})}
