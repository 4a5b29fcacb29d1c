"""A key in a file: read only where nobody else could have read or written it."""

import stat
from pathlib import Path

from frontier.errors import MisaskedError
from frontier.files import read_regular
from frontier.redaction import looks_like_a_key, looks_random

_LONGEST = 8192


def read_key_file(path: Path) -> str:
    """The key a file holds: one line. MisaskedError when it is not there, others may read it, or it is no key."""
    try:
        data, about = read_regular(path, _LONGEST + 1)
        if about.st_mode & 0o077:
            loose = f"others may read or write it (mode {stat.S_IMODE(about.st_mode):04o})"
            raise MisaskedError(f"the key file {path} is not used: {loose}", f"chmod 600 {path}")
        text = data.decode()
    except FileNotFoundError as error:
        # A name that is no file's may be the key itself.
        named = "that api_key_file names" if looks_random(path.name) or looks_like_a_key(path.name) else str(path)
        raise MisaskedError(f"there is no key file {named}", "write the key into it, and  chmod 600  it") from error
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise MisaskedError(f"the key file {path} cannot be read: {reason}") from error
    return usable_key(text, f"the key file {path}")


def usable_key(text: str, where: str) -> str:
    """The key in a text, without the space around it. MisaskedError, not repeating it, when it cannot be sent."""
    key = text.strip()
    if not key:
        raise MisaskedError(f"{where} is empty", "put the key into it")
    if len(key) > _LONGEST or not key.isascii() or not key.isprintable():
        raise MisaskedError(f"{where} does not hold a key: a key is one line of plain characters")
    return key
