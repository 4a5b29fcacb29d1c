"""One deployment as the config describes it: where load is sent, how it is reached, what its numbers are divided by."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PlainValidator, ValidationInfo, model_validator

from frontier.client.adapters import DIALECTS
from frontier.client.target import Target, Timeouts, usable_key
from frontier.config import quantities, values
from frontier.config.faults import Fault, Faults, fault, shown
from frontier.config.hardware import HardwareConfig, named_hardware
from frontier.config.kinds import (
    Command,
    Name,
    SentFile,
    Strict,
    Text,
    TlsFile,
    Truth,
    Variable,
    Wait,
    duration_in,
    one_of,
)
from frontier.config.uses import ASK, PLAIN, PROXY, SEND_NAMED, VARIABLE
from frontier.config.values import SIMULATOR
from frontier.errors import UsageError
from frontier.hardware.roofline import Light
from frontier.simulator.spec import EngineSpec
from frontier.simulator.step_cost import light_of
from frontier.text import is_secret_name, secret_texts

_PATIENCE = Timeouts()


class TimeoutsConfig(Strict):
    """Seconds until a request counts as failed."""

    connect: Wait = _PATIENCE.connect
    first_byte: Wait = _PATIENCE.first_byte
    idle: Wait = _PATIENCE.idle
    total: Wait = _PATIENCE.total


class TlsConfig(Strict):
    """How an https endpoint is trusted, and the certificate shown to it (paths of PEM files)."""

    verify: Truth = True
    ca: TlsFile | None = None
    cert: TlsFile | None = None
    key: TlsFile | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.key is not None and self.cert is None:
            raise Faults(Fault("tls has a key without its certificate", "add  cert: client.pem", ("key",)))
        if not self.verify and self.ca is not None:
            raise Faults(Fault("tls names a ca and then does not verify", "remove  verify: false", ("verify",)))
        return self


class ReadyConfig(Strict):
    """When a started server is ready: `command` ends with 0 (without one: when it answers), `within` seconds."""

    command: Command | None = None
    within: Wait = 900.0


class StopConfig(Strict):
    """How a started server is ended: by `command` first, if any; `within` seconds before it is killed."""

    command: Command | None = None
    within: Annotated[float, duration_in(0.1, 600.0)] = 30.0


def _as_command(value: Any) -> Any:
    return {"command": value} if isinstance(value, str) else value


_OWN_HEADERS = {"host", "content-length", "content-type", "transfer-encoding", "accept-encoding", "connection"}
_OWN_BODY = {
    "model", "prompt", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens", "min_tokens",
    "ignore_eos", "n", "best_of", "echo",
}  # fmt: skip


def _headers(value: Any) -> dict[str, str]:
    """Header names and values; a secret one is '${VARIABLE}'."""
    if not isinstance(value, dict):
        raise fault("{key} are names with values", "write {X-Tenant: blue}")
    faults: list[Fault] = []
    for key, item in value.items():
        try:
            text = values.words(item, most=4_000)
        except Faults as wrong:
            faults += [Fault(f.what.replace("{key}", key), f.hint, (key,)) for f in wrong.faults]
            continue
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}", key):
            faults.append(Fault(f"{shown(key)} is not the name of a header", None, (key,), at_key=True))
        elif key.lower() in _OWN_HEADERS:
            faults.append(Fault(f"the header {key} is set by the measurement", "remove it", (key,), at_key=True))
        elif is_secret_name(key) and not VARIABLE.fullmatch(text):
            hint = f"write  {key}: ${{MY_VARIABLE}}  or use  api_key_env: MY_VARIABLE"
            faults.append(Fault(f"the header {key} holds a secret; secrets come from the environment", hint, (key,)))
    if faults:
        raise Faults(*faults)
    return {key: str(item).strip() for key, item in value.items()}


def _metrics(value: Any) -> tuple[str, ...]:
    """Addresses of Prometheus metrics, one per replica."""
    listed = value if isinstance(value, list) else [value]
    faults: list[Fault] = []
    found: list[str] = []
    for i, item in enumerate(listed):
        try:
            found.append(values.endpoint(item))
        except Faults as wrong:
            faults += [Fault(f.what, "write it as http://localhost:8000/metrics", (i,)) for f in wrong.faults]
    if (not found and not faults) or SIMULATOR in found:
        faults.append(Fault("{key} are addresses", "write [http://localhost:8000/metrics]"))
    if faults:
        raise Faults(*faults)
    return tuple(found)


def _extra_body(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise fault("{key} is a mapping sent with every request", "write {temperature: 0}")
    own = [key for key in value if key in _OWN_BODY]
    faults = [Fault(f"extra_body: {key} is set by the measurement", "remove it", (key,), at_key=True) for key in own]
    if secret_texts(value):
        what = "{key} holds a secret; secrets come from the environment"
        faults.append(Fault(what, "send it as a header:  headers: {X-Api-Key: ${MY_VARIABLE}}"))
    if faults:
        raise Faults(*faults)
    return value


def _simulator(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise fault("{key} is a mapping of the engine's parameters", "write {max_num_seqs: 64}")
    try:
        EngineSpec.from_mapping(value)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        path, _, rest = str(error).partition(": ")
        keys = tuple(path.split("."))
        said, at = (f"{keys[-1]}: {rest}", keys) if keys[0] in value else (str(error), ())
        what, _, hint = said.partition("; ")
        raise fault(f"simulator: {what}", hint or None, *at) from None
    return value


def _gpus(value: Any, info: ValidationInfo) -> int | None:
    """The key `gpus`, else the hardware's."""
    hardware = info.data.get("hardware")
    within = hardware.gpus if hardware is not None else None
    if value is None:
        return within
    count = values.whole(value, 1, 100_000)
    if within is not None and within != count:
        raise fault(f"gpus is {count} here and {within} under hardware", "keep one of the two")
    return count


def _price(value: Any, info: ValidationInfo) -> float | None:
    return None if value is None else quantities.price(value, info.data.get("gpus"))


_MEASURED = {"endpoint", "model", "api", "dialect", "headers", "extra_body", "timeouts", "proxy", "simulator", "start"}
Api = Literal["auto", "completions", "chat"]


class DeploymentConfig(Strict):
    """Where load is sent, and what the numbers are divided by. `price` is dollars per hour for the whole deployment."""

    name: Name = "default"
    endpoint: Annotated[str, PlainValidator(values.endpoint), PLAIN]
    model: Text | None = None
    api: Annotated[Api, one_of("auto", "completions", "chat"), PLAIN] = "auto"
    dialect: Annotated[str, one_of("auto", *DIALECTS), PLAIN] = "auto"
    api_key_env: Variable | None = None
    api_key_file: SentFile | None = None
    headers: Annotated[Mapping[str, str], PlainValidator(_headers), SEND_NAMED] = Field(default_factory=dict)
    extra_body: Annotated[Mapping[str, Any], PlainValidator(_extra_body), PLAIN] = Field(default_factory=dict)
    metrics: Annotated[tuple[str, ...], PlainValidator(_metrics), ASK] = ()
    timeouts: TimeoutsConfig = TimeoutsConfig()
    tls: TlsConfig | None = None
    proxy: Annotated[Literal["none", "env"], one_of("none", "env"), PROXY] = "none"
    hardware: Annotated[HardwareConfig, BeforeValidator(named_hardware)] | None = None
    gpus: Annotated[int | None, PlainValidator(_gpus)] = Field(default=None, validate_default=True)
    price: Annotated[float | None, PlainValidator(_price)] = None
    quality: Annotated[float, PlainValidator(lambda v: values.number(v, -1e9, 1e9))] | None = None
    simulator: Annotated[Mapping[str, Any], PlainValidator(_simulator), PLAIN] | None = None
    start: Command | None = None
    ready: Annotated[ReadyConfig, BeforeValidator(_as_command)] = ReadyConfig()
    stop: Annotated[StopConfig, BeforeValidator(_as_command)] = StopConfig()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        faults = []
        if self.simulator is not None and not self.is_simulator:
            hint = "write  endpoint: simulator,  or remove the key"
            faults.append(Fault("simulator is set, and the endpoint is another", hint, ("simulator",), at_key=True))
        if self.tls is not None and not self.endpoint.startswith("https://"):
            faults.append(Fault("tls is set, and the endpoint is not https", "remove the key", ("tls",), at_key=True))
        named = [key for key in ("api_key_env", "api_key_file") if getattr(self, key) is not None]
        if self.is_simulator and named:
            faults.append(Fault("the simulator takes no key", "remove the key", (named[0],), at_key=True))
        elif len(named) == 2:
            faults.append(Fault("the key is named twice", "keep one of the two", ("api_key_file",), at_key=True))
        power = self.hardware.power if self.hardware is not None else None
        if power is not None and power.per_gpu and self.gpus is None:
            what = "power is per GPU, and the number of GPUs is not given"
            faults.append(Fault(what, "add  gpus: 8,  or write 5600W for all", ("hardware", "power")))
        faults += [
            Fault(
                f"{key} is for a server that the sweep starts", "add  start: COMMAND,  or remove the key", (key,), True
            )
            for key in ("ready", "stop")
            if key in self.model_fields_set and self.start is None
        ]
        if self.is_simulator and self.start is not None:
            faults.append(Fault("the simulator starts by itself", "remove the key", ("start",), at_key=True))
        if faults:
            raise Faults(*faults)
        return self

    def secret_variables(self) -> list[str]:
        """The environment variables it names, whose values are secrets."""
        named = [found[1] for value in self.headers.values() if (found := VARIABLE.fullmatch(value))]
        return [*([self.api_key_env] if self.api_key_env else []), *named]

    def hidden(self, environ: Mapping[str, str], key: str | None = None) -> tuple[str, ...]:
        """The secrets it names, as far as they are set; `key` is what `api_key_file` holds."""
        named = [environ.get(name, "").strip() for name in self.secret_variables()]
        return tuple(value for value in (*named, key) if value)

    @property
    def is_simulator(self) -> bool:
        """The embedded engine is to be started; `base_url` is known only then."""
        return self.endpoint == SIMULATOR

    @property
    def base_url(self) -> str:
        """The address without a trailing /v1, to which '/v1/completions' or '/metrics' is appended.

        ValueError for the simulator, whose address is known once it runs (see `target`).
        """
        if self.is_simulator:
            raise ValueError("the simulator has no address before it is started")
        return self.endpoint.removesuffix("/v1").rstrip("/")

    def engine_spec(self) -> EngineSpec:
        """The embedded engine's parameters (its defaults where the config has none)."""
        return EngineSpec.from_mapping(self.simulator or {})

    def light(self) -> Light | None:
        """The speed of light of what is measured; None when the hardware is not described.

        The simulator has it from its own model and hardware.
        """
        if self.hardware is not None:
            return self.hardware.light(self.model, self.gpus)
        if not self.is_simulator:
            return None
        spec = self.engine_spec()
        return None if spec.model is None or spec.time_scale != 1.0 else light_of(spec)

    @property
    def power(self) -> float | None:
        """Watts of the whole deployment as the config states them."""
        stated = self.hardware.power if self.hardware is not None else None
        return None if stated is None else stated.whole(self.gpus or 1)

    def target(
        self, environ: Mapping[str, str], *, ignore_eos: bool = True, url: str | None = None, key: str | None = None
    ) -> Target:
        """Where requests go, with the secrets taken from `environ`. `url` replaces the simulator's address; `key` is
        what `api_key_file` holds, read by whoever may read files.

        UsageError when a variable the config names is not set.
        """
        tls = self.tls or TlsConfig()
        return Target(
            url or self.base_url,
            model=self.model,
            api=self.api,
            api_key=key if self.api_key_env is None else from_environment(self.api_key_env, environ),
            headers={key: _header(value, environ) for key, value in self.headers.items()},
            extra_body=self.extra_body,
            timeouts=Timeouts(**self.timeouts.model_dump()),
            verify_tls=tls.verify,
            ca_file=tls.ca,
            cert_file=tls.cert,
            key_file=tls.key,
            trust_env=self.proxy == "env",
            dialect=None if self.dialect == "auto" else self.dialect,
            ignore_eos=ignore_eos,
            metrics_urls=self.metrics,
            hidden=self.hidden(environ, key),
        )

    def canonical(self) -> dict[str, Any]:
        """JSON-able: everything of it that decides what is measured; no price, no key, no certificate."""
        found = self.model_dump(include=_MEASURED)
        found["endpoint"] = self.endpoint if self.is_simulator else self.base_url
        return {key: item for key, item in found.items() if item not in (None, {})}


def from_environment(variable: str, environ: Mapping[str, str]) -> str:
    """The secret in a variable. UsageError when it is not set, or could not be sent."""
    value = environ.get(variable, "").strip()
    if not value:
        raise UsageError(f"the environment variable {variable} is not set", f"export {variable}=...")
    return usable_key(value, f"the environment variable {variable}")


def _header(value: str, environ: Mapping[str, str]) -> str:
    found = VARIABLE.fullmatch(value)
    return value if found is None else from_environment(found[1], environ)
