"""Where the load goes: one endpoint, how to reach it, and what may be asked of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from frontier.address import read_address
from frontier.errors import MisaskedError
from frontier.redaction import Secrets, is_secret_name

Api = Literal["auto", "completions", "chat"]


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds until a request is given up; the failure names which one it was.

    `connect` covers name lookup, TCP and TLS; `first_byte` runs from the send to the first byte of the body; `idle` is
    the longest silence after it (a keep-alive comment ends the silence); `total` runs from the send to the end.
    """

    connect: float = 10.0
    first_byte: float = 300.0
    idle: float = 120.0
    total: float = 1800.0


def require_address(url: str) -> None:
    """MisaskedError, with the way out and no secret in it, when `url` is not the address of a server."""
    example = "write it as http://host:port/v1 or https://host/v1"
    try:
        parts = read_address(url)
    except ValueError as error:
        credentials = "remove them; name the key's variable with  --api-key-env NAME"
        way_out = credentials if str(error) == "holds credentials" else example
        raise MisaskedError(f"the URL {error}", way_out) from None
    if parts.query or parts.fragment:
        raise MisaskedError("the URL has a query or fragment", example)


@dataclass(frozen=True, slots=True)
class Target:
    """One endpoint. `dialect` None and `api` 'auto' are settled by preflight; a trial needs both settled.

    `extra_body` is merged into every request body, last. Key and headers are kept out of the repr.
    `metrics_urls` are where the server's metrics are, one per replica; beside the endpoint when empty. `salted` lets
    prompts that bring a cache salt send it, where the dialect knows one. `hidden` are secrets beside the key and the
    headers that tell by their name, as those of other headers.
    """

    base_url: str
    model: str | None = None
    api: Api = "auto"
    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    timeouts: Timeouts = Timeouts()
    verify_tls: bool = True
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    trust_env: bool = False
    dialect: str | None = None
    ignore_eos: bool = True
    metrics_urls: tuple[str, ...] = ()
    salted: bool = True
    hidden: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        require_address(self.base_url)

    @property
    def root(self) -> str:
        """The address without a trailing /v1: where /version, /metrics and the native routes are."""
        return self.base_url.rstrip("/").removesuffix("/v1")

    def url(self, path: str) -> str:
        """The full address of a path such as '/v1/completions'."""
        return self.root + path

    def request_headers(self) -> dict[str, str]:
        """What every request carries: no compression, and the key when there is one."""
        headers = {"Accept": "*/*", "Accept-Encoding": "identity", "Content-Type": "application/json"}
        if self.api_key is not None:
            headers["Authorization"] = f"Bearer {self.api_key}"
        return headers | dict(self.headers)

    @property
    def secrets(self) -> Secrets:
        """What it is sent, or sent with, that a server may say back and nobody may read."""
        named = [value for name, value in self.headers.items() if is_secret_name(name)]
        return Secrets.of([self.api_key, *named, *self.hidden], self.headers.values())

    def said(self, text: str, longest: int = 300) -> str:
        """Its words, safe to repeat and to keep."""
        return self.secrets.said(text, longest)
