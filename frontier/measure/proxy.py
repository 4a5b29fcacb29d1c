"""The proxies that the environment names (HTTP_PROXY, HTTPS_PROXY, NO_PROXY), with their credentials apart."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

from yarl import URL

from frontier.address import read_address
from frontier.errors import MisaskedError
from frontier.redaction import Secrets


@dataclass(frozen=True, slots=True)
class Proxies:
    """Addresses by the scheme they are for; `no` lists the hosts that are reached without. Without any: direct ways."""

    by_scheme: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of_environment(cls) -> "Proxies":
        """As every tool reads them. The credentials of ~/.netrc are not taken."""
        named = {k: v.strip() for k, v in getproxies_environment().items() if k in ("http", "https", "no")}
        return cls({k: v if k == "no" or "://" in v or not v else f"http://{v}" for k, v in named.items()})

    @property
    def secrets(self) -> Secrets:
        """The passwords in them, alone and as a proxy gets them."""
        found = [_credentials(value) for scheme, value in self.by_scheme.items() if scheme != "no"]
        return Secrets.of([text for one in found if one is not None for text in (one.partition(":")[2] or one, one)])

    def options(self, url: URL) -> dict[str, Any]:
        """What a request to `url` gives to aiohttp to go through its proxy. MisaskedError when that is no address."""
        proxy = self.by_scheme.get(url.scheme)
        if not proxy or proxy_bypass_environment(url.host or "", dict(self.by_scheme)):
            return {}
        try:
            parts = read_address(proxy, schemes=("http",), credentials=True)
        except ValueError as error:
            raise MisaskedError(
                f"the proxy in {url.scheme}_proxy {error}", "write it as http://host:port, or do without:  proxy: none"
            ) from None
        own = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        options: dict[str, Any] = {"proxy": f"http://{own}:{parts.port or 80}"}
        if (credentials := _credentials(proxy)) is not None:
            told = {"Proxy-Authorization": f"Basic {base64.b64encode(credentials.encode()).decode()}"}
            options["headers" if url.scheme == "http" else "proxy_headers"] = told
        return options


def _credentials(proxy: str) -> str | None:
    """'user:password' of an address, decoded."""
    try:
        userinfo, at, _ = urlsplit(proxy).netloc.rpartition("@")
    except ValueError:
        userinfo, at, _ = proxy.partition("://")[2].rpartition("@")
    user, _, password = userinfo.partition(":")
    return f"{unquote(user)}:{unquote(password)}" if at else None
