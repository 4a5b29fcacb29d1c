"""A deployment in the config: its endpoint, how it is reached, its hardware, and what its numbers are divided by."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, ValidationInfo, model_validator

from frontier.client.adapters import DIALECTS
from frontier.client.target import Target, Timeouts, read_address, usable_key
from frontier.config.uses import ASK, PLAIN, PROXY, READ, RUN, SEND_FILE, SEND_NAMED, SEND_VARIABLE, VARIABLE
from frontier.errors import UsageError
from frontier.fields import (
    ONE_OR_MANY,
    Name,
    Problem,
    Problems,
    Size,
    SmallSize,
    Strict,
    Text,
    Truth,
    duration_in,
    is_number,
    one_of,
    read,
    shown,
    whole,
    whole_in,
    words,
)
from frontier.hardware.gpus import GpuFields, hardware
from frontier.hardware.models import KV_BYTES, WEIGHT_BYTES, ModelCard, card
from frontier.hardware.roofline import GivenRoofline, ModelRoofline, Roofline
from frontier.model import Estimate
from frontier.simulator.spec import READ_SPEC, EngineSpec, Speculation, roofline_of
from frontier.text import did_you_mean, is_secret_name, looks_like_a_key, looks_random, secret_texts


@dataclass(frozen=True, slots=True)
class Watts:
    """A power: of the whole deployment, or of each of its GPUs."""

    value: float
    per_gpu: bool

    def whole(self, gpus: int) -> float:
        """Watts of the whole deployment."""
        return self.value * gpus if self.per_gpu else self.value


_POWER = re.compile(r"(\d{1,9}(?:\.\d*)?|\.\d+)\s*(k)?W\s*(/\s*gpu)?")


def _power(value: Any) -> Watts:
    """Watts of '5600W', '5.6kW' or '700W/gpu'."""
    match = _POWER.fullmatch(value) if isinstance(value, str) else None
    if match is None or float(match[1]) <= 0:
        what = "{key} needs a unit" if is_number(value) else f"{{key}}: {shown(value)} is not a power"
        raise Problem(what, "write 5600W for the whole deployment, or 700W/gpu")
    return Watts(float(match[1]) * (1e3 if match[2] else 1.0), match[3] is not None)


def named_hardware(value: Any) -> Any:
    """`hardware: h200` is short for `hardware: {name: h200}`, and then the name must be known."""
    return {"name": hardware(value).name} if isinstance(value, str) else value


class HardwareConfig(GpuFields):
    """What one GPU is, and what the model takes: bytes, bytes per second. Used to divide by and for the roofline.

    A known `name` brings the data sheet's figures; those given replace them. `model` (default: the deployment's model
    where its name is known) is a model card: the roofline is then a whole one, at `precision` (default: the model's
    own). Without a card, `weights` are the bytes of all weights read per step over all GPUs and `kv_per_token` the
    bytes of KV per token; where `weights` is given, these are used rather than the card. `speculation` says how the
    server speculates: the bounds then allow for drafts that are all accepted; a prediction assumes its acceptance.
    `power` is a flat figure for what it draws under load, for the energy per token where nothing measured it.
    """

    name: Annotated[Text, PLAIN] | None = None
    gpus: Annotated[int, whole_in(1, 100_000)] | None = None
    model: Annotated[ModelCard, PlainValidator(card), PLAIN] | None = None
    precision: Annotated[str, one_of(*WEIGHT_BYTES), PLAIN] | None = None
    kv_precision: Annotated[str, one_of(*KV_BYTES), PLAIN] | None = None
    max_num_seqs: Annotated[int, whole_in(1, 1_000_000)] | None = None
    weights: Size | None = None
    kv_per_token: SmallSize | None = None
    speculation: Annotated[Speculation, PlainValidator(lambda value: read(Speculation, value)), PLAIN] | None = None
    power: Annotated[Watts, PlainValidator(_power), PLAIN] | None = None

    def roofline(self, model: str | None, gpus: int | None) -> Roofline | None:
        """The roofline of `model` on `gpus` of these; None when too little is given."""
        gpu = self.gpu()
        drafts = self.speculation.tokens if self.speculation is not None else 0
        if self.weights is not None:
            bandwidth = self.memory_bandwidth or (gpu.bandwidth if gpu else None)
            memory = self.memory or (gpu.capacity if gpu else None)
            if bandwidth is None:
                return None
            return GivenRoofline(bandwidth, self.weights, self.kv_per_token or 0.0, gpus or 1, memory, drafts)
        sizes = self.model or _known(model)
        if gpu is None or sizes is None:
            return None
        return ModelRoofline.of(sizes, gpu, gpus or 1, self.precision, self.kv_precision, drafts, self.max_num_seqs)


def _known(model: str | None) -> ModelCard | None:
    try:
        return card(model) if model else None
    except ValueError:
        return None


SIMULATOR = "simulator"

# ---- the texts of a deployment: addresses, commands, names of variables


def _address_hint(text: str, wrong: str, example: str) -> str:
    if wrong == "holds credentials":
        return "remove them; name the key's variable with  api_key_env: OPENAI_API_KEY"
    if not wrong.startswith("does not start"):
        return example
    if "." not in text and ":" not in text and (hint := did_you_mean(text, (SIMULATOR,))):
        return hint
    plain = re.fullmatch(r"[\w.-]+(:\d+)?(/\S*)?", text)
    return f"write http://{text}" if plain and len(text) < 200 else example


def endpoint(value: Any, example: str = "write it as http://localhost:8000/v1") -> str:
    """'simulator', or an http(s) address without credentials, query or route, without its trailing slash."""
    if value == SIMULATOR:
        return SIMULATOR
    if not isinstance(value, str):
        raise Problem(f"{{key}} is an address; this is {shown(value)}", example)
    text = value.strip()
    try:
        parts = read_address(text)
    except ValueError as error:
        # What cannot be read may hold a password: it is not repeated.
        named = "{key}" if "credentials" in str(error) or "read" in str(error) else f"{{key}}: {shown(text)}"
        raise Problem(f"{named} {error}", _address_hint(text, str(error), example)) from None
    if parts.query or parts.fragment:
        raise Problem("{key} has a query or fragment", example)
    for route in ("/chat/completions", "/completions", "/models", "/responses"):
        if parts.path.rstrip("/").endswith(route):
            base = text.rstrip("/").removesuffix(route)
            raise Problem(f"{{key}} names a route ({route})", f"write the address before it: {base}")
    return text.rstrip("/")


def _metrics_address(value: Any) -> str:
    """The address of a server's Prometheus metrics."""
    example = "write it as http://localhost:8000/metrics"
    try:
        address = endpoint(value, example)
    except Problem as problem:
        raise Problem(problem.what, example) from None
    if address == SIMULATOR:
        raise Problem("{key} are addresses", "write [http://localhost:8000/metrics]")
    return address


def command(value: Any) -> str:
    """A line, or several, for the shell."""
    hint = "write the line as you would type it"
    if not isinstance(value, str):
        raise Problem(f"{{key}} is a command; this is {shown(value)}", hint)
    text = value.strip()
    if not text or len(text) > 4_000 or not all(ch.isprintable() or ch in "\n\t" for ch in text):
        raise Problem("{key} is no command that can be run", f"{hint}, at most 4,000 characters")
    return text


_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


def variable(value: Any) -> str:
    """The name of an environment variable. What does not look like one may be the key itself: it is not repeated."""
    what = "{key} is not the name of an environment variable"
    if isinstance(value, str) and _VARIABLE.fullmatch(value):
        if not looks_like_a_key(value) and not looks_random(value):
            return value
        what = "{key} looks like a key, not like the name of a variable"
    raise Problem(what, "put the key into the environment and its variable's name here:  {key}: OPENAI_API_KEY")


def _some(addresses: tuple[str, ...]) -> tuple[str, ...]:
    if not addresses:
        raise Problem("{key} are addresses", "write [http://localhost:8000/metrics]")
    return addresses


Command = Annotated[str, PlainValidator(command), RUN]
SentFile = Annotated[Text, SEND_FILE]
TlsFile = Annotated[Text, READ]
Variable = Annotated[str, PlainValidator(variable), SEND_VARIABLE]
Wait = Annotated[float, duration_in(0.001, 86_400.0)]

# ---- what a deployment is divided by

_PRICE = re.compile(r"\$\s*(\d{1,9}(?:\.\d*)?|\.\d+)\s*(/\s*gpu)?\s*/\s*h")


def _price(value: Any, info: ValidationInfo) -> float | None:
    """Dollars per hour of the whole deployment, of '$12/h' or '$3/gpu/h'."""
    if value is None:
        return None
    match = _PRICE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        what = "{key} needs a unit" if is_number(value) else f"{{key}}: {shown(value)} is not a price"
        raise Problem(what, "write $12/h for the whole deployment, or $3/gpu/h")
    gpus: Any = info.data.get("gpus")
    if match[2] is not None and gpus is None:
        raise Problem("{key} is per GPU, and the number of GPUs is not given", "add  gpus: 8,  or write $12/h for all")
    return float(match[1]) * (1 if match[2] is None else gpus)


def _gpus(value: Any, info: ValidationInfo) -> int | None:
    """The key `gpus`, else the hardware's."""
    hardware = info.data.get("hardware")
    within = hardware.gpus if hardware is not None else None
    if value is None:
        return within
    count = whole(value, 1, 100_000)
    if within is not None and within != count:
        raise Problem(f"gpus is {count} here and {within} under hardware", "keep one of the two")
    return count


# ---- the mappings of a deployment

_DEFAULTS = Timeouts()


class TimeoutsConfig(Strict):
    """Seconds until a request counts as failed."""

    connect: Wait = _DEFAULTS.connect
    first_byte: Wait = _DEFAULTS.first_byte
    idle: Wait = _DEFAULTS.idle
    total: Wait = _DEFAULTS.total


class TlsConfig(Strict):
    """How an https endpoint is trusted, and the client certificate sent to it (paths of PEM files)."""

    verify: Truth = True
    ca: TlsFile | None = None
    cert: TlsFile | None = None
    key: TlsFile | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.key is not None and self.cert is None:
            raise Problem("tls has a key without its certificate", "add  cert: client.pem", "key")
        if not self.verify and self.ca is not None:
            raise Problem("tls names a ca and then does not verify", "remove  verify: false", "verify")
        return self


class ReadyConfig(Strict):
    """When a started server is ready: `command` exits with 0 (without one: when it answers), `within` seconds."""

    command: Command | None = None
    within: Wait = 900.0


class StopConfig(Strict):
    """How a started server is stopped: by `command` first, if any; `within` seconds before it is killed."""

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
        raise Problem("{key} are names with values", "write {X-Tenant: blue}")
    problems = Problems()
    for key, item in value.items():
        text = problems.read(lambda item: words(item, most=4_000), item, key)
        if text is None:
            continue
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}", key):
            problems.append(Problem(f"{shown(key)} is not the name of a header", None, key, at_key=True))
        elif key.lower() in _OWN_HEADERS:
            problems.append(Problem(f"the header {key} is set by the measurement", "remove it", key, at_key=True))
        elif is_secret_name(key) and not VARIABLE.fullmatch(text):
            hint = f"write  {key}: ${{MY_VARIABLE}}  or use  api_key_env: MY_VARIABLE"
            problems.append(Problem(f"the header {key} holds a secret; secrets come from the environment", hint, key))
    problems.check()
    return {key: str(item).strip() for key, item in value.items()}


def _extra_body(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Problem("{key} is a mapping sent with every request", "write {temperature: 0}")
    own = [key for key in value if key in _OWN_BODY]
    problems = Problems(
        Problem(f"extra_body: {key} is set by the measurement", "remove it", key, at_key=True) for key in own
    )
    if secret_texts(value):
        hint = "send it as a header:  headers: {X-Api-Key: ${MY_VARIABLE}}"
        problems.append(Problem("{key} holds a secret; secrets come from the environment", hint))
    problems.check()
    return value


def _simulator(value: Any) -> dict[str, Any]:
    """The mapping as it was written, once it is known that an engine can be built of it."""
    if not isinstance(value, dict):
        raise Problem("{key} is a mapping of the engine's parameters", "write {max_num_seqs: 64}")
    read(READ_SPEC, value)
    return value


class QualityConfig(Strict):
    """Quality measured by `frontier verify --quality`: how often the deployment `reference` chooses the same token."""

    reference: Annotated[Name, PLAIN]
    prompts: Annotated[int, whole_in(20, 100_000)] = 200


def _quality(value: Any) -> float | QualityConfig:
    if isinstance(value, dict):
        config: QualityConfig = read(QualityConfig, value)
        return config
    if not is_number(value) or abs(value) > 1e9:
        raise Problem(f"{{key}} is a number; this is {shown(value)}", "write a score, as 0.953, or {reference: NAME}")
    return float(value)


_MEASURED = {"endpoint", "model", "api", "dialect", "headers", "extra_body", "timeouts", "proxy", "simulator", "start"}
Api = Literal["auto", "completions", "chat"]


class DeploymentConfig(Strict):
    """One deployment. `price` is dollars per hour for all of it."""

    name: Annotated[Name, PLAIN] = "default"
    endpoint: Annotated[str, PlainValidator(endpoint), PLAIN]
    model: Annotated[Text, PLAIN] | None = None
    api: Annotated[Api, one_of("auto", "completions", "chat"), PLAIN] = "auto"
    dialect: Annotated[str, one_of("auto", *DIALECTS), PLAIN] = "auto"
    api_key_env: Variable | None = None
    api_key_file: SentFile | None = None
    headers: Annotated[Mapping[str, str], PlainValidator(_headers), SEND_NAMED] = Field(default_factory=dict)
    extra_body: Annotated[Mapping[str, Any], PlainValidator(_extra_body), PLAIN] = Field(default_factory=dict)
    metrics: Annotated[
        tuple[Annotated[str, PlainValidator(_metrics_address)], ...], ONE_OR_MANY, AfterValidator(_some), ASK
    ] = ()
    timeouts: TimeoutsConfig = TimeoutsConfig()
    tls: TlsConfig | None = None
    proxy: Annotated[Literal["none", "env"], one_of("none", "env"), PROXY] = "none"
    hardware: Annotated[HardwareConfig, BeforeValidator(named_hardware)] | None = None
    gpus: Annotated[int | None, PlainValidator(_gpus)] = Field(default=None, validate_default=True)
    price: Annotated[float | None, PlainValidator(_price)] = None
    quality: Annotated[float | QualityConfig, PlainValidator(_quality)] | None = None
    simulator: Annotated[Mapping[str, Any], PlainValidator(_simulator), PLAIN] | None = None
    start: Command | None = None
    ready: Annotated[ReadyConfig, BeforeValidator(_as_command)] = ReadyConfig()
    stop: Annotated[StopConfig, BeforeValidator(_as_command)] = StopConfig()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        """What fits together only when several keys are seen at once."""
        problems = Problems()

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
        for key in ("ready", "stop"):
            if key in self.model_fields_set and self.start is None:
                wrong(key, f"{key} is for a server that the sweep starts", "add  start: COMMAND,  or remove the key")
        if self.is_simulator and self.start is not None:
            wrong("start", "the simulator starts by itself")
        power = self.hardware.power if self.hardware is not None else None
        if power is not None and power.per_gpu and self.gpus is None:
            what = "power is per GPU, and the number of GPUs is not given"
            problems.append(Problem(what, "add  gpus: 8,  or write 5600W for all", "hardware", "power"))
        problems.check()
        return self

    def secret_variables(self) -> list[str]:
        """The environment variables it names, whose values are secrets."""
        named = [match[1] for value in self.headers.values() if (match := VARIABLE.fullmatch(value))]
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
        """Its quality as the config states it, taken as exact; None where it is measured or not known."""
        q = self.quality
        return Estimate(q, q, q, 0, q, q) if isinstance(q, float) else None

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
        measured = self.model_dump(include=_MEASURED)
        measured["endpoint"] = self.endpoint if self.is_simulator else self.base_url
        return {key: item for key, item in measured.items() if item not in (None, {})}


def from_environment(variable: str, environ: Mapping[str, str]) -> str:
    """The secret in a variable. UsageError when it is not set, or could not be sent."""
    value = environ.get(variable, "").strip()
    if not value:
        raise UsageError(f"the environment variable {variable} is not set", f"export {variable}=...")
    return usable_key(value, f"the environment variable {variable}")


def _header(value: str, environ: Mapping[str, str]) -> str:
    match = VARIABLE.fullmatch(value)
    return value if match is None else from_environment(match[1], environ)
