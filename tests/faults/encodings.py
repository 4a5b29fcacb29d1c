"""Encodings in which a server may return a key and it is found, and a search for parts of a key in
a text."""

import base64
import html
import json
import random
import re
import string
from collections.abc import Callable
from urllib.parse import quote, unquote

LONG_KEY = "tok." + "".join(random.Random(11).choices(string.ascii_letters + string.digits + "-_.~+/=&<", k=820))
"""As long as an identity provider's token, with characters that encodings change."""
SHORT_KEY = "Zq7/x"


ENCODINGS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "prefix": lambda key: key[: max(9, len(key) // 3)],
    "middle": lambda key: key[1:-1] if len(key) > 9 else key,
    "url": lambda key: quote(key, safe=""),
    "url in lower case": lambda key: quote(key, safe="").lower() if len(key) > 9 else key,
    "json": lambda key: json.dumps(key).replace("/", "\\/"),
    "json in json": lambda key: json.dumps(json.dumps({"key": key})),
    "python": lambda key: repr(f"Bearer {key}".encode()),
    "unseen between": "\u200b".join,
    "unassigned between": "\ue000".join,
    "basic": lambda key: f"Basic {base64.b64encode(f'user:{key}'.encode()).decode()}",
    "base64 behind one byte": lambda key: base64.b64encode(f":{key}".encode()).decode(),
    "base64 behind two bytes": lambda key: base64.b64encode(f"u:{key}".encode()).decode().rstrip("="),
    "base64 inside": lambda key: base64.urlsafe_b64encode(f"user:{key}@host".encode()).decode(),
    "base64, its first half": lambda key: base64.b64encode(f"u:{key}".encode()).decode()[: max(20, len(key) // 2)],
    "every byte in percent": lambda key: "".join(f"%{byte:02X}" for byte in key.encode()),
    "hexadecimal": lambda key: key.encode().hex(),
    "html": lambda key: html.escape(key),
    "base64": lambda key: base64.b64encode(key.encode()).decode().rstrip("="),
    "base64 for URLs": lambda key: base64.urlsafe_b64encode(key.encode()).decode(),
}


def leaked(text: str, key: str) -> str | None:
    """The part of a key that a text holds, or None: eight characters (or all of it), in any of the
    encodings.
    """
    size = min(8, len(key))
    plain = text
    for _ in range(4):  # undone one after another, and apart from the code that is tested
        plain = html.unescape(unquote(plain))
        plain = re.sub(r"\\u([0-9a-fA-F]{4})", lambda found: chr(int(found[1], 16)), plain)
        plain = re.sub(r'\\([/"\\])', r"\1", plain)
    dense = "".join(ch for ch in plain if ch.isprintable() and ch != " ")
    coded = [text, plain, dense]
    for run in re.findall(r"[A-Za-z0-9+/]{5,}", dense.replace("-", "+").replace("_", "/")):
        coded += [base64.b64decode(run[at:] + "A" * (-len(run[at:]) % 4)).decode("latin-1") for at in range(4)]
    for run in re.findall(r"[0-9a-f]{8,}", dense.lower()):
        coded += [bytes.fromhex(run[at : at + (len(run) - at) // 2 * 2]).decode("latin-1") for at in range(2)]
    parts = {key[i : i + size] for i in range(len(key) - size + 1)}
    return next((one[i : i + size] for one in coded for i in range(len(one)) if one[i : i + size] in parts), None)
