"""Target: where the load goes and how: address, model, key, headers, TLS, time limits, proxies of
the environment.

Addresses of servers, proxies and webhooks are read here alike: a malformed one is a usage error.
Credentials of proxies are kept apart from their addresses.
"""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from urllib.parse import SplitResult, unquote, urlsplit

from multidict import CIMultiDict
from yarl import URL

from frontier.client.engines import ENGINES
from frontier.client.engines.base import Engine
from frontier.client.engines.request import Prompt
from frontier.client.secrets import Secrets, is_secret_name
from frontier.core.model.errors import UsageError

LONGEST = 500
"""Characters of an address."""
_HOST = re.compile(r"[A-Za-z0-9_.-]+|[0-9a-f:.]+(%[A-Za-z0-9._~-]+)?")
"""A name, or an IP address with its zone."""


def read_address(text: str, *, schemes: tuple[str, ...] = ("http", "https"), credentials: bool = False) -> SplitResult:
    """The parts of an absolute address. ValueError where a request could not be sent there, or
    where it holds `credentials`, unless these are allowed. The message says what is wrong, and
    repeats nothing of the address.
    """
    if len(text) > LONGEST:
        raise ValueError(f"is {len(text):,} characters long; an address has at most {LONGEST}")
    if not re.fullmatch(r"[\x21-\x7e]+", text):
        raise ValueError("is not an address: it holds a space or a character beyond ASCII")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError("is not an address: its host or port cannot be read") from None
    if "@" in parts.netloc and not credentials:
        raise ValueError("holds credentials")
    if parts.scheme not in schemes:
        raise ValueError(f"does not start with {' or '.join(f'{scheme}://' for scheme in schemes)}")
    if not host:
        raise ValueError("is not an address: it has no host")
    if port == 0:
        raise ValueError("is not an address: there is no port 0")
    try:
        (URL(text).host or "").encode("idna")  # which no name passes that cannot even be asked for
    except ValueError:
        raise ValueError("is not an address: its host is not one") from None
    if not _HOST.fullmatch(host):
        raise ValueError("is not an address: its host is not one")
    return parts


@dataclass(frozen=True, slots=True)
class Proxies:
    """Proxies by the scheme they are for; `no` lists the hosts that are reached directly. Empty:
    all are.
    """

    by_scheme: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of_environment(cls) -> "Proxies":
        """As every tool reads them. The credentials of ~/.netrc are not taken."""
        # Slow to import (http.client, ssl), and only who sends needs it.
        from urllib.request import getproxies_environment

        named = {k: v.strip() for k, v in getproxies_environment().items() if k in ("http", "https", "no")}
        return cls({k: v if k == "no" or "://" in v or not v else f"http://{v}" for k, v in named.items()})

    @property
    def secrets(self) -> Secrets:
        """The passwords in them, alone and as a proxy gets them."""
        pairs = [_credentials(value) for scheme, value in self.by_scheme.items() if scheme != "no"]
        return Secrets.of([text for pair in pairs if pair for text in (pair.partition(":")[2] or pair, pair)])

    def options(self, url: URL) -> dict[str, Any]:
        """aiohttp's arguments that send a request for `url` through its proxy; {} without one.
        UsageError when the proxy is no address."""
        from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

        proxy = self.by_scheme.get(url.scheme)
        if not proxy or proxy_bypass_environment(url.host or "", dict(self.by_scheme)):
            return {}
        try:
            parts = read_address(proxy, schemes=("http",), credentials=True)
        except ValueError as error:
            raise UsageError(
                f"the proxy in {url.scheme}_proxy {error}", "write it as http://host:port, or do without:  proxy: none"
            ) from None
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        options: dict[str, Any] = {"proxy": f"http://{host}:{parts.port or 80}"}
        if (credentials := _credentials(proxy)) is not None:
            header = {"Proxy-Authorization": f"Basic {base64.b64encode(credentials.encode()).decode()}"}
            options["headers" if url.scheme == "http" else "proxy_headers"] = header
        return options


def _credentials(proxy: str) -> str | None:
    """'user:password' of an address, decoded."""
    try:
        userinfo, mark, _ = urlsplit(proxy).netloc.rpartition("@")
    except ValueError:
        userinfo, mark, _ = proxy.partition("://")[2].rpartition("@")
    user, _, password = userinfo.partition(":")
    return f"{unquote(user)}:{unquote(password)}" if mark else None


_ROUTE = re.compile(r"/(chat/)?completions$")
_VERSION = re.compile(r"://[^/]+/(.*/)?v\d+[a-z]*\d*(/|$)")
"""An address given with its route, and one with a version in it."""
Api = Literal["auto", "completions", "chat"]


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds until a request is given up; the failure names which one it was.

    `connect` covers name lookup, TCP and TLS. `first_byte` runs from the send to the first byte of
    the body. `idle` is the longest silence after it (a keep-alive comment ends the silence).
    `total` runs from the send to the end.
    """

    connect: float = 10.0
    first_byte: float = 300.0
    idle: float = 120.0
    total: float = 1800.0


def require_address(url: str) -> None:
    """UsageError, with a hint and no secret in it, when `url` is not the address of a server."""
    example = "write it as http://host:port/v1 or https://host/v1"
    try:
        parts = read_address(url)
    except ValueError as error:
        credentials = "remove them; name the key's variable with  --api-key-env NAME"
        hint = credentials if str(error) == "holds credentials" else example
        raise UsageError(f"the URL {error}", hint) from None
    if parts.query or parts.fragment:
        raise UsageError("the URL has a query or fragment", example)


@dataclass(frozen=True, slots=True)
class Target:
    """One endpoint. `dialect` None (taken as plain OpenAI) and `api` 'auto' are settled by
    preflight, which also finds the `identity` of the server in its own words.

    `extra_body` is merged into every request body, last. Key and headers are kept out of the repr.
    `metrics_urls` are where the server's metrics are, one per replica; beside the endpoint when
    empty; None: they are not read. `salted` lets prompts that bring a cache salt send it, where the
    dialect knows one. `hidden` are further secrets, beside the key and the headers that are secret
    by their name. `connections` is the fewest connections over which the requests of a window are
    spread, and which are renewed for that; 0: each connection is kept as long as it lives.
    `omitted` are fields that the server refuses and that requests leave out. `learned` are facts
    from before the trials: what the server's counts mean.
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
    metrics_urls: tuple[str, ...] | None = ()
    salted: bool = True
    hidden: tuple[str, ...] = field(default=(), repr=False)
    connections: int = 0
    identity: str | None = None
    omitted: frozenset[str] = frozenset()
    learned: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_address(self.base_url)

    @property
    def root(self) -> str:
        """The address without a trailing /v1: where /version, /metrics and the native routes
        are.
        """
        return _ROUTE.sub("", self.base_url.rstrip("/")).removesuffix("/v1")

    def url(self, path: str) -> str:
        """The full address of a path such as '/v1/completions'. Below an address with a version of
        its own, as '/api/v3', or that was given with its route, it has no /v1.
        """
        whole = _ROUTE.search(self.base_url.rstrip("/"))
        own = _VERSION.search(self.root) or (whole and not self.base_url[: whole.start()].endswith("/v1"))
        return self.root + (path.removeprefix("/v1") if own else path)

    @property
    def engine(self) -> Engine:
        """The record of its engine."""
        return ENGINES[self.dialect or "openai"]

    @property
    def request_url(self) -> str:
        """The full address that requests are sent to, once the api is settled."""
        return self.url(self.engine.paths[self.api])

    def request_body(self, prompt: Prompt) -> bytes:
        """The body of a request."""
        if not self.salted:
            prompt = replace(prompt, salt=None)
        model, forced = self.model or "", self.ignore_eos
        extra, omitted = self.extra_body, self.omitted
        return self.engine.body(self.api, model, prompt, force_length=forced, extra=extra, omitted=omitted)

    @property
    def forces_length(self) -> bool:
        """Whether answers have the output length asked for: it is asked for, and the server has a
        field for it that it takes.
        """
        fields = self.engine.length_fields(1).keys() if self.ignore_eos else set()
        return bool(fields - self.omitted - {"n_predict"})  # which is a limit

    def request_headers(self) -> Mapping[str, str]:
        """What every request carries: no compression, and the key when there is one. A header of
        the target's own takes the place of one that differs from it in case alone.
        """
        headers = CIMultiDict({"Accept": "*/*", "Accept-Encoding": "identity", "Content-Type": "application/json"})
        if self.api_key is not None:
            headers["Authorization"] = f"Bearer {self.api_key}"
        headers.update(self.headers)
        return headers

    @property
    def secrets(self) -> Secrets:
        """All that it is sent, or sent with, that a server may repeat and that must not be read."""
        named = [value for name, value in self.headers.items() if is_secret_name(name)]
        return Secrets.of([self.api_key, *named, *self.hidden], self.headers.values())

    def cleaned(self, text: str, longest: int = 300) -> str:
        """The server's words without secrets and control characters, cut."""
        return self.secrets.said(text, longest)
