"""What looks like a secret, and how it is kept out of messages and files.

A key in a config would end in the run directory, in a bug report and in a terminal's history. So a config that holds
one is refused, and no message repeats it.
"""

import re

MASK = "***"

_TOKEN = re.compile(
    r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{12,}"  # OpenAI, Anthropic, OpenRouter and those who copied them
    r"|\b(?:hf|gsk|nvapi|r8|pplx|xai|ghp|gho|ghu|ghs|ghr|github_pat|glpat|xox[abprs]|tgp|dop_v1)[_-][A-Za-z0-9_-]{12,}"
    r"|\bAKIA[0-9A-Z]{16}\b"
    r"|\bAIza[0-9A-Za-z_-]{30,}"
    r"|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"  # a JSON web token
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
_SCHEME = re.compile(r"\b(Bearer|Basic)\s+[A-Za-z0-9+/._~=-]{8,}", re.IGNORECASE)
_USERINFO = re.compile(r"(://)[^/\s@]+@")
_SECRET_KEY = re.compile(
    r"""(?ix) ( (?: api[_-]?key | authorization | password | passwd | secret | cookie | credential
    | (?: \b | access[_-] | auth[_-] | bearer[_-] | session[_-] ) token ) [\w-]* ["']? \s*:\s* ) (?!\$\{) \S.*$"""
)
_SECRET_NAME = re.compile(r"auth|api[-_]?key|token|secret|passw|cookie|credential", re.IGNORECASE)


def looks_like_a_key(text: str) -> bool:
    """A value in the form of a known kind of access token."""
    return _TOKEN.search(text) is not None or _SCHEME.search(text) is not None


def is_secret_name(name: str) -> bool:
    """A header or key whose value is probably a secret: Authorization, X-Api-Key, Cookie, session_token.

    >>> is_secret_name("X-Api-Key"), is_secret_name("X-Tenant")
    (True, False)
    """
    return _SECRET_NAME.search(name) is not None


def looks_random(text: str) -> bool:
    """A long run of letters and digits mixed as in generated tokens, not as in words or variable names."""
    runs = re.findall(r"[A-Za-z0-9]{20,}", text)
    return any(re.search("[0-9]", r) and re.search("[a-z]", r) for r in runs)


def redact(text: str) -> str:
    """`text` with everything that looks like a secret by its form masked.

    >>> redact("endpoint: http://me:pass@host/v1")
    'endpoint: http://***@host/v1'
    """
    text = _TOKEN.sub(MASK, text)
    text = _SCHEME.sub(rf"\1 {MASK}", text)
    return _USERINFO.sub(rf"\1{MASK}@", text)


def masked_line(line: str | None) -> str | None:
    """A line of a config without what stands behind a key whose name says that it is a secret.

    >>> masked_line("api_key_env: hunter2")
    'api_key_env: ***'
    """
    return None if line is None else _SECRET_KEY.sub(rf"\1{MASK}", line)
