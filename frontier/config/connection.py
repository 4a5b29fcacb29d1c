"""The connection to a deployment: its address, its key, headers and body, timeouts, TLS."""

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import PlainValidator, model_validator

from frontier.client.ask.target import Timeouts, read_address
from frontier.client.secrets import is_secret_name, looks_like_a_key, looks_random, secret_texts
from frontier.config.uses import READ, SEND_FILE, SEND_VARIABLE, VARIABLE
from frontier.core.model.errors import UsageError
from frontier.core.model.text import did_you_mean
from frontier.fields import Problem, Strict, Text, Truth, duration_in, read, refuse, shown, text_of, words

SIMULATOR = "simulator"

# ---- addresses


def _address_hint(text: str, wrong: str, example: str) -> str:
    if wrong == "holds credentials":
        return "remove them; name the key's variable with  api_key_env: OPENAI_API_KEY"
    if not wrong.startswith("does not start"):
        return example
    if text.startswith("$"):
        return NO_VARIABLES.format(key="endpoint", name=text.strip("${}").partition(":")[0])
    if "." not in text and ":" not in text and (hint := did_you_mean(text, (SIMULATOR,))):
        return hint
    plain = re.fullmatch(r"[\w.-]+(:\d+)?(/\S*)?", text)
    return f"write http://{text}" if plain and len(text) < 200 else example


NO_VARIABLES = "variables are not expanded here: give it as  --set {key}=${name}"
"""The hint for the name of a variable where a value must stand; only headers expand them."""


def model_name(value: Any) -> str:
    """The name of a model, which no variable stands for."""
    text = words(value)
    if text.startswith("${"):
        named = NO_VARIABLES.format(key="model", name=text.strip("${}").partition(":")[0])
        raise Problem(f"{{key}}: {shown(text)} is a variable", named)
    return text


def endpoint(value: Any, example: str = "write it as http://localhost:8000/v1") -> str:
    """'simulator', or an http(s) address without credentials, query or route, without its trailing
    slash.
    """
    if value == SIMULATOR:
        return SIMULATOR
    text = text_of(value, "an address", example)
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


def names_server(text: str) -> bool:
    """Whether a word that may be a file's name is a server's: an address with a scheme, and where
    there is no such file 'host:port' or 'simulator'.
    """
    named = text == SIMULATOR or re.fullmatch(r"[\w.-]+:\d+(/\S*)?", text)
    return "://" in text or (bool(named) and not Path(text).exists())


NO_METRICS = "none"
"""The value in place of an address for a server whose metrics are not to be read."""


def metrics_address(value: Any) -> str:
    """The address of a server's Prometheus metrics; NO_METRICS as it is."""
    example = "write it as http://localhost:8000/metrics, or  none  to read none"
    if value == NO_METRICS:
        return NO_METRICS
    try:
        address = endpoint(value, example)
    except Problem as problem:
        raise Problem(problem.what, example) from None
    if address == SIMULATOR:
        raise Problem("{key} are addresses", "write [http://localhost:8000/metrics], or  none  to read none")
    return address


def some_addresses(addresses: tuple[str, ...]) -> tuple[str, ...]:
    """The addresses of several metrics. A Problem for an empty list, and for an address beside
    NO_METRICS.
    """
    if not addresses or (NO_METRICS in addresses and len(addresses) > 1):
        raise Problem("{key} are addresses", "write [http://localhost:8000/metrics], or  none  to read none")
    return addresses


# ---- keys, headers and body

LONGEST_KEY = 8192
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


def variable(value: Any) -> str:
    """The name of an environment variable. A text that does not look like one may be the key
    itself, so it is not repeated.
    """
    what = "{key} is not the name of an environment variable"
    if isinstance(value, str) and _VARIABLE.fullmatch(value):
        if not looks_like_a_key(value) and not looks_random(value):
            return value
        what = "{key} looks like a key, not like the name of a variable"
    raise Problem(what, "put the key into the environment and its variable's name here:  {key}: OPENAI_API_KEY")


_OWN_HEADERS = {"host", "content-length", "content-type", "transfer-encoding", "accept-encoding", "connection"}
_OWN_BODY = {
    "model",
    "prompt",
    "messages",
    "stream",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "min_tokens",
    "ignore_eos",
    "n",
    "best_of",
    "echo",
}


def read_headers(value: Any) -> dict[str, str]:
    """Header names and values; a secret one is '${VARIABLE}'."""
    if not isinstance(value, dict):
        raise Problem("{key} are names with values", "write {X-Tenant: blue}")
    headers: dict[str, str] = read(dict[str, Annotated[str, PlainValidator(partial(words, most=4_000))]], value)
    problems = []
    for key, text in headers.items():
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}", key):
            problems.append(Problem(f"{shown(key)} is not the name of a header", None, key, at_key=True))
        elif key.lower() in _OWN_HEADERS:
            problems.append(Problem(f"the header {key} is set by the measurement", "remove it", key, at_key=True))
        elif is_secret_name(key) and not VARIABLE.fullmatch(text):
            hint = f"write  {key}: ${{MY_VARIABLE}}  or use  api_key_env: MY_VARIABLE"
            problems.append(Problem(f"the header {key} holds a secret; secrets come from the environment", hint, key))
    refuse(problems)
    return headers


def read_extra_body(value: Any) -> dict[str, Any]:
    """The body keys that are sent beside the measurement's own; never a secret."""
    if not isinstance(value, dict):
        raise Problem("{key} is a mapping sent with every request", "write {temperature: 0}")
    own = [key for key in value if key in _OWN_BODY and (key, value[key]) != ("stream_options", None)]
    problems = [Problem(f"extra_body: {key} is set by the measurement", "remove it", key, at_key=True) for key in own]
    if secret_texts(value):
        hint = "send it as a header:  headers: {X-Api-Key: ${MY_VARIABLE}}"
        problems.append(Problem("{key} holds a secret; secrets come from the environment", hint))
    refuse(problems)
    return value


def usable_key(text: str, where: str) -> str:
    """The key in a text, without surrounding space. UsageError, which does not repeat it, when it
    cannot be sent.
    """
    key = text.strip()
    if not key:
        raise UsageError(f"{where} is empty", "put the key into it")
    if len(key) > LONGEST_KEY or not key.isascii() or not key.isprintable():
        raise UsageError(f"{where} does not hold a key: a key is one line of plain characters")
    return key


def from_environment(variable: str, environ: Mapping[str, str]) -> str:
    """The secret in a variable. UsageError when it is not set, or could not be sent."""
    value = environ.get(variable, "").strip()
    if not value:
        raise UsageError(f"the environment variable {variable} is not set", f"export {variable}=...")
    return usable_key(value, f"the environment variable {variable}")


def header_value(value: str, environ: Mapping[str, str]) -> str:
    """The value of a header, with the secret in place of its '${VARIABLE}'."""
    match = VARIABLE.fullmatch(value)
    return value if match is None else from_environment(match[1], environ)


# ---- time limits, files, TLS

Wait = Annotated[float, duration_in(0.001, 86_400.0)]
_LIMITS = Timeouts()


class TimeoutsConfig(Strict):
    """Seconds until a request is given up, as in the client's `Timeouts`."""

    connect: Wait = _LIMITS.connect
    first_byte: Wait = _LIMITS.first_byte
    idle: Wait = _LIMITS.idle
    total: Wait = _LIMITS.total


SentFile = Annotated[Text, SEND_FILE]
TlsFile = Annotated[Text, READ]
Variable = Annotated[str, PlainValidator(variable), SEND_VARIABLE]


class TlsConfig(Strict):
    """How an https endpoint is trusted, and the client certificate sent to it (paths of PEM
    files).
    """

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
