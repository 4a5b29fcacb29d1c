"""One deployment as the config describes it: where load is sent, how it is reached, what its numbers are divided by."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, ValidationInfo, model_validator

from frontier.config import values
from frontier.config.values import SIMULATOR, Fault, Faults, fault
from frontier.engine.cards import KV_BYTES, WEIGHT_BYTES, ModelCard, card
from frontier.engine.hardware import Hardware, hardware
from frontier.engine.light import Carded, Light, Stated
from frontier.engine.price import roofline_of
from frontier.engine.roofline import Roofline
from frontier.engine.spec import EngineSpec, Speculation, speculation_value
from frontier.errors import MisaskedError
from frontier.measure.dialects import DIALECTS
from frontier.measure.keyfile import usable_key
from frontier.measure.target import Target, Timeouts
from frontier.model import Deployment
from frontier.redaction import is_secret_name

_PATIENCE = Timeouts()


class Strict(BaseModel):
    """Frozen; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def duration_in(least: float, most: float) -> PlainValidator:
    return PlainValidator(lambda value: values.duration(value, least=least, most=most))


def whole_in(least: int, most: int) -> PlainValidator:
    return PlainValidator(lambda value: values.whole(value, least, most))


def one_of(*allowed: str) -> PlainValidator:
    return PlainValidator(lambda value: values.choice(value, allowed))


Text = Annotated[str, PlainValidator(values.words)]
Name = Annotated[str, PlainValidator(values.name)]
Truth = Annotated[bool, PlainValidator(values.truth)]
Dollars = Annotated[float, PlainValidator(values.dollars)]
Wait = Annotated[float, duration_in(0.001, 86_400.0)]


class TimeoutsConfig(Strict):
    """Seconds until a request counts as failed."""

    connect: Wait = _PATIENCE.connect
    first_byte: Wait = _PATIENCE.first_byte
    idle: Wait = _PATIENCE.idle
    total: Wait = _PATIENCE.total


class TlsConfig(Strict):
    """How an https endpoint is trusted, and the certificate shown to it (paths of PEM files)."""

    verify: Truth = True
    ca: Text | None = None
    cert: Text | None = None
    key: Text | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.key is not None and self.cert is None:
            raise Faults(Fault("tls has a key without its certificate", "add  cert: client.pem", ("key",)))
        if not self.verify and self.ca is not None:
            raise Faults(Fault("tls names a ca and then does not verify", "remove  verify: false", ("verify",)))
        return self


def _card(value: Any) -> ModelCard:
    """A shipped model by name, or one described by a mapping (a Hugging Face config.json's keys, or a card's)."""
    if not isinstance(value, str | dict):
        raise fault("{key} is a model's name or its sizes", "write llama-3.1-8b")
    try:
        return card(value)
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError) as error:
        what, _, way_out = str(error).partition("; ")
        raise fault(what, way_out or "write the model's config.json here, or a name as llama-3.1-8b") from None


def _named(value: Any) -> Any:
    """`hardware: h200` is short for `hardware: {name: h200}`, and then the name must be known."""
    if not isinstance(value, str):
        return value
    try:
        return {"name": hardware(value).name}
    except ValueError as error:
        what, _, way_out = str(error).removeprefix("hardware: ").partition("; ")
        raise fault(what, way_out) from None


Tera = Annotated[float, PlainValidator(lambda v: values.number(v, 0.001, 1e7))]


class ReadyConfig(Strict):
    """When a started server is ready: `command` ends with 0 (without one: when it answers), `within` seconds."""

    command: Annotated[str, PlainValidator(values.command)] | None = None
    within: Wait = 900.0


class StopConfig(Strict):
    """How a started server is ended: by `command` first, if any; `within` seconds before it is killed."""

    command: Annotated[str, PlainValidator(values.command)] | None = None
    within: Annotated[float, duration_in(0.1, 600.0)] = 30.0


def _as_command(value: Any) -> Any:
    return {"command": value} if isinstance(value, str) else value


def _speculation(value: Any) -> Speculation:
    try:
        found: Speculation = speculation_value("speculation", value)
    except ValueError as error:
        what, _, way_out = str(error).partition("; ")
        raise fault(what, way_out or "write  speculation: {tokens: 4}") from None
    return found


class HardwareConfig(Strict):
    """What one GPU is, and what the model takes: bytes, bytes per second. Used to divide by and for the speed of light.

    A known `name` brings the data sheet's figures; those given replace them. `model` (default: the deployment's model
    where its name is known) is a model card: the speed of light is then a whole roofline, at `precision` (default: the
    model's own). Without a card, `weights` are the bytes of all weights read per step over all GPUs and `kv_per_token`
    the bytes of KV per token; where `weights` is given these are believed rather than the card. `speculation` says how
    the server speculates: the bounds then allow for drafts that are all accepted; a prediction assumes its acceptance.
    """

    name: Text | None = None
    gpus: Annotated[int, whole_in(1, 100_000)] | None = None
    memory_bandwidth: Annotated[float, PlainValidator(values.bandwidth)] | None = None
    memory: Annotated[float, PlainValidator(values.size)] | None = None
    tflops: Tera | None = None
    tflops_fp8: Tera | None = None
    tflops_fp4: Tera | None = None
    link: Annotated[float, PlainValidator(values.bandwidth)] | None = None
    model: Annotated[ModelCard, PlainValidator(_card)] | None = None
    precision: Annotated[str, one_of(*WEIGHT_BYTES)] | None = None
    kv_precision: Annotated[str, one_of(*KV_BYTES)] | None = None
    max_num_seqs: Annotated[int, whole_in(1, 1_000_000)] | None = None
    weights: Annotated[float, PlainValidator(values.size)] | None = None
    kv_per_token: Annotated[float, PlainValidator(values.small_size)] | None = None
    speculation: Annotated[Speculation, PlainValidator(_speculation)] | None = None

    def gpu(self) -> Hardware | None:
        """One GPU: a known name's data sheet with the given figures in its place; None when too little is known."""
        given = {
            "bandwidth": self.memory_bandwidth,
            "capacity": self.memory,
            "bf16": _tera(self.tflops),
            "fp8": _tera(self.tflops_fp8),
            "fp4": _tera(self.tflops_fp4),
            "link": self.link,
        }
        found: dict[str, Any] = {key: figure for key, figure in given.items() if figure is not None}
        try:
            return replace(hardware(self.name or ""), **found)
        except ValueError:
            if {"bandwidth", "capacity", "bf16"} - found.keys():
                return None
            return Hardware(self.name or "custom", **found)

    def light(self, model: str | None, gpus: int | None) -> Light | None:
        """The speed of light of `model` on `gpus` of these; None when too little is said."""
        gpu = self.gpu()
        drafts = self.speculation.tokens if self.speculation is not None else 0
        if self.weights is not None:
            bandwidth = self.memory_bandwidth or (gpu.bandwidth if gpu else None)
            memory = self.memory or (gpu.capacity if gpu else None)
            if bandwidth is None:
                return None
            return Stated(bandwidth, self.weights, self.kv_per_token or 0.0, gpus or 1, memory, drafts)
        sizes = self.model or _known(model)
        if gpu is None or sizes is None:
            return None
        of = Roofline.of(sizes, gpu, gpus or 1, self.precision, self.kv_precision, drafts)
        return Carded(of, self.max_num_seqs)


def _tera(figure: float | None) -> float | None:
    return None if figure is None else figure * 1e12


def _known(model: str | None) -> ModelCard | None:
    try:
        return card(model) if model else None
    except ValueError:
        return None


_VARIABLE_VALUE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
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
            faults += [Fault(f.what.replace("{key}", key), f.way_out, (key,)) for f in wrong.faults]
            continue
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}", key):
            faults.append(Fault(f"{values.shown(key)} is not the name of a header", None, (key,), at_key=True))
        elif key.lower() in _OWN_HEADERS:
            faults.append(Fault(f"the header {key} is set by the measurement", "remove it", (key,), at_key=True))
        elif is_secret_name(key) and not _VARIABLE_VALUE.fullmatch(text):
            way_out = f"write  {key}: ${{MY_VARIABLE}}  or use  api_key_env: MY_VARIABLE"
            faults.append(Fault(f"the header {key} holds a secret; secrets come from the environment", way_out, (key,)))
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
    if own:
        raise Faults(
            *(Fault(f"extra_body: {key} is set by the measurement", "remove it", (key,), at_key=True) for key in own)
        )
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
        what, _, way_out = said.partition("; ")
        raise fault(f"simulator: {what}", way_out or None, *at) from None
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
    return None if value is None else values.price(value, info.data.get("gpus"))


_MEASURED = {"endpoint", "model", "api", "dialect", "headers", "extra_body", "timeouts", "proxy", "simulator", "start"}
Api = Literal["auto", "completions", "chat"]


class DeploymentConfig(Strict):
    """Where load is sent, and what the numbers are divided by. `price` is dollars per hour for the whole deployment."""

    name: Name = "default"
    endpoint: Annotated[str, PlainValidator(values.endpoint)]
    model: Text | None = None
    api: Annotated[Api, one_of("auto", "completions", "chat")] = "auto"
    dialect: Annotated[str, one_of("auto", *DIALECTS)] = "auto"
    api_key_env: Annotated[str, PlainValidator(values.variable)] | None = None
    api_key_file: Text | None = None
    headers: Annotated[Mapping[str, str], PlainValidator(_headers)] = Field(default_factory=dict)
    extra_body: Annotated[Mapping[str, Any], PlainValidator(_extra_body)] = Field(default_factory=dict)
    metrics: Annotated[tuple[str, ...], PlainValidator(_metrics)] = ()
    timeouts: TimeoutsConfig = TimeoutsConfig()
    tls: TlsConfig | None = None
    proxy: Annotated[Literal["none", "env"], one_of("none", "env")] = "none"
    hardware: Annotated[HardwareConfig, BeforeValidator(_named)] | None = None
    gpus: Annotated[int | None, PlainValidator(_gpus)] = Field(default=None, validate_default=True)
    price: Annotated[float | None, PlainValidator(_price)] = None
    quality: Annotated[float, PlainValidator(lambda v: values.number(v, -1e9, 1e9))] | None = None
    simulator: Annotated[Mapping[str, Any], PlainValidator(_simulator)] | None = None
    start: Annotated[str, PlainValidator(values.command)] | None = None
    ready: Annotated[ReadyConfig, BeforeValidator(_as_command)] = ReadyConfig()
    stop: Annotated[StopConfig, BeforeValidator(_as_command)] = StopConfig()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        faults = []
        if self.simulator is not None and not self.is_simulator:
            way_out = "write  endpoint: simulator,  or remove the key"
            faults.append(Fault("simulator is set, and the endpoint is another", way_out, ("simulator",), at_key=True))
        if self.tls is not None and not self.endpoint.startswith("https://"):
            faults.append(Fault("tls is set, and the endpoint is not https", "remove the key", ("tls",), at_key=True))
        named = [key for key in ("api_key_env", "api_key_file") if getattr(self, key) is not None]
        if self.is_simulator and named:
            faults.append(Fault("the simulator takes no key", "remove the key", (named[0],), at_key=True))
        elif len(named) == 2:
            faults.append(Fault("the key is named twice", "keep one of the two", ("api_key_file",), at_key=True))
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

    @property
    def commands(self) -> tuple[str, ...]:
        """The commands that a sweep of it would run on this machine."""
        return tuple(c for c in (self.start, self.ready.command, self.stop.command) if c is not None)

    def secret_variables(self) -> list[str]:
        """The environment variables it names, whose values are secrets."""
        named = [found[1] for value in self.headers.values() if (found := _VARIABLE_VALUE.fullmatch(value))]
        return [*([self.api_key_env] if self.api_key_env else []), *named]

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
        if spec.model is None or spec.time_scale != 1.0 or spec.disaggregation is not None:
            return None
        return Carded(roofline_of(spec), spec.max_num_seqs)

    def as_deployment(self) -> Deployment:
        """The same in the analysis' words."""
        return Deployment(self.name, self.endpoint, self.model, self.gpus, self.price, self.quality)

    def target(
        self, environ: Mapping[str, str], *, ignore_eos: bool = True, url: str | None = None, key: str | None = None
    ) -> Target:
        """Where requests go, with the secrets taken from `environ`. `url` replaces the simulator's address; `key` is
        what `api_key_file` holds, read by whoever may read files.

        MisaskedError when a variable the config names is not set.
        """
        tls = self.tls or TlsConfig()
        return Target(
            url or self.base_url,
            model=self.model,
            api=self.api,
            api_key=key if self.api_key_env is None else _from_environment(self.api_key_env, environ),
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
        )

    def canonical(self) -> dict[str, Any]:
        """JSON-able: everything of it that decides what is measured; no price, no key, no certificate."""
        found = self.model_dump(include=_MEASURED)
        found["endpoint"] = self.endpoint if self.is_simulator else self.base_url
        return {key: item for key, item in found.items() if item not in (None, {})}


def _from_environment(variable: str, environ: Mapping[str, str]) -> str:
    value = environ.get(variable, "").strip()
    if not value:
        raise MisaskedError(f"the environment variable {variable} is not set", f"export {variable}=...")
    return usable_key(value, f"the environment variable {variable}")


def _header(value: str, environ: Mapping[str, str]) -> str:
    found = _VARIABLE_VALUE.fullmatch(value)
    return value if found is None else _from_environment(found[1], environ)
