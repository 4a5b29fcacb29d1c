"""Secrets in text: known ones, and text that looks like one, are masked before they are shown or
kept.
"""

import base64
import html
import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from frontier.core.model.text import MASK, one_line, shortened

MOST = 8192
"""Characters of a server's words that are looked at: far more than are ever repeated."""


_PART = 8
"""This many consecutive characters of a secret are never shown, whatever their case and white
space."""


_LEAST = 4
"""A shorter value is not a secret: masking it would make every text unreadable."""


_HOLD = 128
"""More than the beginning of an access token by which its kind is known."""


_TOKEN = re.compile(
    r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{12,}"  # OpenAI, Anthropic, OpenRouter and those who copied them
    r"|\b(?:hf|gsk|nvapi|r8|pplx|xai|ghp|gho|ghu|ghs|ghr|github_pat|glpat|xox[abprs]|tgp|dop_v1)[_-][A-Za-z0-9_-]{12,}"
    r"|\bAKIA[0-9A-Z]{16}\b"
    r"|\bAIza[0-9A-Za-z_-]{30,}"
    # A JSON web token. Only at the start of a word: from every `eyJ` within one the search would
    # run to its end again.
    r"|(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)


_SCHEME = re.compile(r"\b(?:Bearer|Basic)\s+([A-Za-z0-9+/._~=-]{8,})", re.IGNORECASE)


_USERINFO = re.compile(r"://([^/\s@]+)@")


_SECRET_KEY = re.compile(
    r"""(?ix) ( (?: api[_-]?key | authorization | password | passwd | secret | cookie | credential
    | (?: access | auth | bearer | session )[_-]token | \btoken(?!s\b|iz) )
    [\w-]{0,80} ["']? \s*:\s* ) (?!\$\{) \S.*$"""
)


_SECRET_NAME = re.compile(r"auth|api[-_]?key|token(?!iz)|secret|passw|cookie|credential", re.IGNORECASE)


_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def looks_like_a_key(text: str) -> bool:
    """A value in the form of a known kind of access token."""
    return _TOKEN.search(text) is not None or _SCHEME.search(text) is not None


def is_secret_name(name: str) -> bool:
    """A header or key whose value is probably a secret: Authorization, X-Api-Key, Cookie,
    session_token.

    >>> is_secret_name("X-Api-Key"), is_secret_name("X-Tenant")
    (True, False)
    """
    return _SECRET_NAME.search(name) is not None


def looks_random(text: str) -> bool:
    """A long run of letters and digits mixed as in generated tokens, not as in words or variable
    names.
    """
    runs = re.findall(r"[A-Za-z0-9]{20,}", text)
    return any(re.search("[0-9]", r) and re.search("[a-z]", r) for r in runs)


def masked_line(line: str | None) -> str | None:
    """A line of a config without the value of a key that is secret by its name.

    >>> masked_line("api_key_env: hunter2"), masked_line("budget: {tokens: 1e30}")
    ('api_key_env: ***', 'budget: {tokens: 1e30}')
    """
    return None if line is None else _SECRET_KEY.sub(rf"\1{MASK}", line)


def environment_secrets(environ: Mapping[str, str]) -> frozenset[str]:
    """Values of the environment that are secrets by their names, as HF_TOKEN or CLOUD_KEY.
    GIT_AUTHOR_NAME and SSH_AUTH_SOCK are not secrets.
    """
    return frozenset(
        value
        for name, value in environ.items()
        if len(value) >= _PART
        and value[0] != "/"
        and (is_secret_name(name) or name.upper().endswith("_KEY"))
        and "AUTHOR_" not in name
    )


@dataclass(frozen=True, slots=True)
class Secrets:
    """Secret values, which are never repeated.

    No value is repeated whole: as it is, in a URL, in base64 (also as a part of a longer text), in
    hexadecimal digits, in HTML or in JSON. Of `values`, no eight consecutive characters are
    repeated either, as they are or in base64. Case and white space make no difference.
    """

    values: frozenset[str] = field(default=frozenset(), repr=False)
    whole: frozenset[str] = field(default=frozenset(), repr=False)

    @classmethod
    def of(cls, values: Iterable[str | None], whole: Iterable[str] = ()) -> "Secrets":
        """The secrets in these values, less those that are missing or too short. For an address,
        the parts beside its host.
        """
        parts = [part for value in values if value for part in _secret_parts(value)]
        return cls(frozenset(v for v in parts if len(v) >= _LEAST), frozenset(v for v in whole if len(v) >= _LEAST))

    def __or__(self, other: "Secrets") -> "Secrets":
        return Secrets(self.values | other.values, self.whole | other.whole)

    def redact(self, text: str) -> str:
        """`text` with the secrets masked, and everything that looks like one by its form.

        >>> Secrets.of(["planted-key"]).redact("no such key: Planted- K")
        'no such key: ***'
        """
        return _masked(text, self._spans(text))

    def said(self, text: str, longest: int = 300) -> str:
        """A server's words, safe to repeat and to keep: redacted, then cleaned to one line, then
        cut.
        """
        # Of a secret at the very cut its first characters may be left: far behind what is said.
        return _said(self, text[:MOST], longest)

    def last_said(self, text: str, longest: int = 300) -> str:
        """As `said`, for the end of a text, which may begin in the middle of a secret."""
        text = one_line(self.redact(text[-2 * MOST :]))
        return text if len(text) <= longest else "…" + text[-longest + 1 :]

    def held(self, text: str) -> bool:
        """Whether a whole secret stands in a text, in one of its forms. A short one may do so by
        chance, as the key `ollama` in `dialect: ollama`.
        """
        dense = _dense(text)
        return any(form in dense for form in _forms(self)[0] if len(form) >= _PART)

    def split(self, text: str) -> tuple[str, str]:
        """A text that goes on, redacted up to where it can be cut: no secret lies across. And the
        rest, as it is.
        """
        cut = len(text) - max([_HOLD, *map(len, _forms(self)[0])])
        if cut <= 0:
            return "", text
        spans = self._spans(text)
        for start, end in spans:
            if start < cut < end:
                cut = start or len(text)
        return _masked(text[:cut], [(start, end) for start, end in spans if end <= cut]), text[cut:]

    def _spans(self, text: str) -> list[tuple[int, int]]:
        """Where the secrets are: beginnings and ends, in order, apart from each other."""
        found = [match.span() for match in _TOKEN.finditer(text)]
        found += [match.span(1) for pattern in (_SCHEME, _USERINFO) for match in pattern.finditer(text)]
        if self.values or self.whole:
            found += _known(text, *_forms(self))
        joined: list[tuple[int, int]] = []
        for start, end in sorted(found):
            if joined and start <= joined[-1][1]:
                joined[-1] = joined[-1][0], max(end, joined[-1][1])
            else:
                joined.append((start, end))
        return joined


NO_SECRETS = Secrets()


def _secret_parts(value: str) -> list[str]:
    scheme, mark, rest = value.partition("://")
    if not mark or not scheme.isalpha():
        return [value]
    place, _, path = rest.partition("/")
    return [place.rpartition("@")[0], path]


def redact(text: str) -> str:
    """`text` with everything that looks like a secret by its form masked.

    >>> redact("endpoint: http://me:pass@host/v1")
    'endpoint: http://***@host/v1'
    """
    return NO_SECRETS.redact(text)


_remembered = NO_SECRETS
"""The secrets that this process has read, so that code that shows or keeps foreign text need not be
given them."""


def remember(secrets: Secrets) -> None:
    """Let `masked` look for these secrets, too, until `forget`."""
    global _remembered  # noqa: PLW0603 - of the process, as the environment is
    _remembered |= secrets


def forget() -> None:
    """Let another command begin without the secrets of the one before."""
    global _remembered  # noqa: PLW0603
    _remembered = NO_SECRETS


def masked(text: str) -> str:
    """`text` as `redact` has it, without any secret that this process has read."""
    return _remembered.redact(text)


@lru_cache(maxsize=512)
def _said(secrets: Secrets, text: str, longest: int) -> str:
    """`said`, remembered: every answer of a server ends with the same few words."""
    return shortened(one_line(secrets.redact(text)), longest)


def _masked(text: str, spans: Iterable[tuple[int, int]]) -> str:
    parts, at = [], 0
    for start, end in spans:
        parts += [text[at:start], MASK]
        at = end
    return "".join((*parts, text[at:]))


@lru_cache(maxsize=64)
def _forms(secrets: Secrets) -> tuple[frozenset[str], frozenset[str]]:
    """The texts to search for, in lower case and without white space: whole values in their forms,
    and parts of eight characters.
    """
    whole: set[str] = set()
    parts: set[str] = set()
    for value in secrets.values | secrets.whole:
        data, escaped = value.encode(errors="surrogatepass"), json.dumps(value)[1:-1]
        coded = {_dense(form) for form in _base64_forms(data)}
        whole |= {_dense(form) for form in (value, escaped, escaped.replace("/", "\\/"), html.escape(value))}
        whole |= {_dense(form) for form in (quote(data, safe=""), "".join(f"%{byte:02x}" for byte in data), data.hex())}
        whole |= coded
        if value in secrets.values:
            for form in (_dense(value), *coded):
                parts |= {form[i : i + _PART] for i in range(len(form) - _PART + 1)}
    return frozenset(form for form in whole if len(form) >= _LEAST), frozenset(parts)


def _base64_forms(data: bytes) -> set[str]:
    """The characters of base64 that data alone decide, behind any number of bytes: those at either
    end hold bits of what stands beside them.
    """
    forms = set()
    for before in range(3):
        first, end = -(-before * 8 // 6), (before + len(data)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            forms.add(encode(bytes(before) + data).decode()[first:end])
    # At the end of a text its last character is known, too.
    return forms | {base64.b64encode(data).decode().rstrip("="), base64.urlsafe_b64encode(data).decode().rstrip("=")}


def _dense(text: str) -> str:
    return "".join(text.split()).translate(_LOWER)


def _known(text: str, whole: Iterable[str], parts: Collection[str]) -> list[tuple[int, int]]:
    """Where known secrets, in whole or in parts, stand in a text."""
    # Cleaning will take out what is not seen, and join what it stands between.
    seen = [i for i, ch in enumerate(text) if ch.isprintable() and not ch.isspace()]
    dense = "".join([text[i] for i in seen]).translate(_LOWER)
    starts = range(len(dense) - _PART + 1)
    found = [(seen[i], seen[i + _PART - 1] + 1) for i in starts if dense[i : i + _PART] in parts]
    for form in whole:
        at = dense.find(form)
        while at >= 0:
            found.append((seen[at], seen[at + len(form) - 1] + 1))
            at = dense.find(form, at + 1)
    return found


def secret_texts(tree: Any) -> list[str]:
    """Texts in a JSON-able tree under a key that names a secret beyond doubt (`max_tokens` and the
    like do not).
    """
    if isinstance(tree, Mapping):
        own = [v for k, v in tree.items() if isinstance(v, str) and _SECRET_FIELD.search(k)]
        return own + [text for value in tree.values() for text in secret_texts(value)]
    return [text for value in tree for text in secret_texts(value)] if isinstance(tree, list) else []


_SECRET_FIELD = re.compile(r"api[-_]?key|secret|passw|authorization|cookie|credential", re.IGNORECASE)
