"""Addresses of servers, proxies and webhooks, read in one place: a malformed one is the user's mistake, and no bug."""

import ipaddress
import re
from urllib.parse import SplitResult, urlsplit

from yarl import URL

LONGEST = 500
_ZONE = re.compile(r"[A-Za-z0-9._~-]{1,50}")
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")


def read_address(text: str, *, schemes: tuple[str, ...] = ("http", "https"), credentials: bool = False) -> SplitResult:
    """The parts of an absolute address. ValueError, saying what is wrong and repeating nothing, where a request could
    not be sent there; also where it holds `credentials`, unless these are allowed.
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
    if not _is_host(host):
        raise ValueError("is not an address: its host is not one")
    try:
        URL(text)
    except ValueError:
        raise ValueError("is not an address: its host or port cannot be read") from None
    return parts


def _is_host(host: str) -> bool:
    """A name, or an IP address with its zone, that can be looked up."""
    if ":" in host:
        plain, percent, zone = host.partition("%")
        try:
            ipaddress.IPv6Address(plain)
        except ValueError:
            return False
        return not percent or _ZONE.fullmatch(zone) is not None
    labels = host.removesuffix(".").split(".")
    return len(host) <= 253 and all(_HOST.fullmatch(label) and label.lower() != "xn--" for label in labels)
