"""How plain values are read from a config: numbers, words, names, commands, addresses.

Every reader takes what YAML made of the text, or raises `Faults` with what is wrong and the way out. `{key}` in a
message stands for the key it is found under, which only the caller knows.
"""

import re
from typing import Any

from frontier.client.target import read_address
from frontier.config.faults import fault, is_number, nearest, shown
from frontier.text import looks_like_a_key, looks_random

SIMULATOR = "simulator"


def whole(value: Any, least: int, most: int) -> int:
    """A whole number in least..most."""
    if isinstance(value, bool) or not isinstance(value, int):
        same = isinstance(value, float) and value == round(value)
        hint = f"write {value:.0f}" if same else "write it in digits"
        if isinstance(value, str) and value.isdecimal() and len(value) < 18:
            hint = f"write {value} without quotes"
        raise fault(f"{{key}} is a whole number; this is {shown(value)}", f"{hint}, between {least} and {most:,}")
    if not least <= value <= most:
        raise fault(f"{{key}}: {value} is out of range", f"write a whole number between {least} and {most:,}")
    return value


def number(value: Any, least: float, most: float) -> float:
    """A plain number in least..most."""
    hint = f"write a number between {least:,.9g} and {most:,.9g}"
    if not is_number(value):
        raise fault(f"{{key}} is a number; this is {shown(value)}", hint)
    if not least <= value <= most:
        raise fault(f"{{key}}: {value:g} is out of range", hint)
    return float(value)


def truth(value: Any) -> bool:
    """true or false."""
    if not isinstance(value, bool):
        raise fault(f"{{key}} is true or false; this is {shown(value)}", "write true or false")
    return value


def words(value: Any, most: int = 400) -> str:
    """A text on one line. A number must be quoted to be a text, so that 1.10 is not 1.1."""
    if is_number(value) or isinstance(value, bool):
        kind = "true or false" if isinstance(value, bool) else "a number"
        raise fault(f"{{key}} is a text; {shown(value)} is {kind}", 'quote it, as {key}: "{text}"')
    if not isinstance(value, str):
        raise fault(f"{{key}} is a text; this is {shown(value)}", "write one text")
    if not value.strip() or len(value) > most or not value.isprintable():
        raise fault(f"{{key}}: {shown(value)} cannot be used", f"write a text on one line of at most {most} characters")
    return value.strip()


def webhook(value: Any) -> str:
    """An http(s) address, or '${VARIABLE}' that holds it: most are secrets."""
    hint = "put the address into a variable:  on_finish: ${FINISH_URL}"
    if not isinstance(value, str):
        raise fault(f"{{key}} is an address; this is {shown(value)}", hint)
    text = value.strip()
    if re.fullmatch(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}", text):
        return text
    try:
        parts = read_address(text, credentials=True)
    except ValueError as error:
        raise fault(f"{{key}} {error}", hint) from None
    if "@" in parts.netloc or parts.query or looks_like_a_key(text) or looks_random(parts.path):
        raise fault("{key} holds what looks like a secret", hint)
    return text


def command(value: Any) -> str:
    """A line, or several, for the shell."""
    if not isinstance(value, str):
        raise fault(f"{{key}} is a command; this is {shown(value)}", "write the line as you would type it")
    text = value.strip()
    if not text or len(text) > 4_000 or not all(ch.isprintable() or ch in "\n\t" for ch in text):
        raise fault(
            "{key} is no command that can be run", "write the line as you would type it, at most 4,000 characters"
        )
    return text


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")


def name(value: Any) -> str:
    """A name that is safe in a file name: letters, digits, dot, dash and underscore."""
    text = words(value)
    if not _NAME.fullmatch(text):
        raise fault(f"{{key}}: {shown(text)} cannot be a name", "use letters, digits, . - and _, at most 60, no space")
    return text


def choice(value: Any, allowed: tuple[str, ...]) -> str:
    """One of a few words."""
    if isinstance(value, str) and value in allowed:
        return value
    raise fault(f"{{key}}: {shown(value)} is not known", nearest(value, allowed))


_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


def variable(value: Any) -> str:
    """The name of an environment variable. What does not look like one may be the key itself: it is not repeated."""
    if isinstance(value, str) and _VARIABLE.fullmatch(value):
        if not looks_like_a_key(value) and not looks_random(value):
            return value
        what = "{key} looks like a key, not like the name of a variable"
    else:
        what = "{key} is not the name of an environment variable"
    raise fault(what, "put the key into the environment and its variable's name here:  {key}: OPENAI_API_KEY")


def _address_hint(text: str, wrong: str, example: str) -> str:
    if wrong == "holds credentials":
        return "remove them; name the key's variable with  api_key_env: OPENAI_API_KEY"
    if not wrong.startswith("does not start"):
        return example
    plain = re.fullmatch(r"[\w.-]+(:\d+)?(/\S*)?", text)
    hint = nearest(text, (SIMULATOR,)) if "." not in text and ":" not in text else ""
    return hint if hint.startswith("did") else f"write http://{text}" if plain and len(text) < 200 else example


def endpoint(value: Any) -> str:
    """'simulator', or an http(s) address without credentials, query or route, without its trailing slash."""
    example = "write it as http://localhost:8000/v1"
    if value == SIMULATOR:
        return SIMULATOR
    if not isinstance(value, str):
        raise fault(f"{{key}} is an address; this is {shown(value)}", example)
    text = value.strip()
    try:
        parts = read_address(text)
    except ValueError as error:
        # What cannot be read may hold a password: it is not repeated.
        named = "{key}" if "credentials" in str(error) or "read" in str(error) else f"{{key}}: {shown(text)}"
        raise fault(f"{named} {error}", _address_hint(text, str(error), example)) from None
    if parts.query or parts.fragment:
        raise fault("{key} has a query or fragment", example)
    for route in ("/chat/completions", "/completions", "/models", "/responses"):
        if parts.path.rstrip("/").endswith(route):
            base = text.rstrip("/").removesuffix(route)
            raise fault(f"{{key}} names a route ({route})", f"write the address before it: {base}")
    return text.rstrip("/")
