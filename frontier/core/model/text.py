"""Sanitising of untrusted text, and did-you-mean suggestions.

Untrusted is every text that a server, a file or another tool wrote. Which function a caller needs:

- shown in one line (table, picture, page, message): `clean`, or `clean_name` for a name of which
  both ends matter;
- shown in several lines (a whole message on a terminal): `without_controls`, which keeps line ends
  and tabs;
- written into a run: `store.records.stored`.

None of them removes secrets: `client.secrets` does, on the text as it came.
"""

import unicodedata
from collections.abc import Iterable, Sequence

from frontier.core.model.groups import by_key

MASK = "***"
"""What stands in the place of a secret."""
LONGEST = 160
"""Characters of a line that is cleaned where no length is asked."""


def clean(text: str, longest: int = LONGEST) -> str:
    """Untrusted text for one line of a terminal, XML or a layout: no control or format characters,
    cut at its end.

    Escape sequences, bidirectional overrides, surrogates and unassigned code points are all of
    category C and go.
    """
    return shortened(one_line(text), longest)


def clean_name(text: str, longest: int = 40) -> str:
    """An untrusted name for one line; a long one is cut in its middle, as variants differ at either
    end.
    """
    return middle_cut(clean(text), longest)


def one_line(text: str) -> str:
    """`text` without control and format characters, all white space joined to single spaces."""
    if not (text.isascii() and text.isprintable()):
        text = "".join(" " if ch.isspace() else ch for ch in text if ch.isspace() or unicodedata.category(ch)[0] != "C")
    return " ".join(text.split())


def without_controls(text: str) -> str:
    """`text` without control and format characters, but with its line ends and tabs: for messages
    of several lines.

    >>> without_controls("two\\nlines\\x1b[31m")
    'two\\nlines[31m'
    """
    if text.isprintable():
        return text
    return "".join(ch for ch in text if ch in "\n\t" or unicodedata.category(ch)[0] != "C")


def capital(text: str) -> str:
    """`text` with a capital at its beginning; a name with a digit (c=45, p95, fp8) stays."""
    return text if any(map(str.isdigit, text.partition(" ")[0])) else text[:1].upper() + text[1:]


def some_of(names: Sequence[str], most: int, join: str = ", ") -> str:
    """The first names of a list, and how many more there are.

    >>> some_of(["a", "b", "c", "d"], 2), some_of(["a", "b"], 2)
    ('a, b and 2 more', 'a, b')
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return join.join(names[:most]) + more


def shortened(text: str, longest: int) -> str:
    """At most `longest` characters of `text`; a cut at its end is marked by an ellipsis."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def middle_cut(text: str, longest: int) -> str:
    """At most `longest` characters of `text`, the middle left out.

    >>> middle_cut("llama-3.1-70b-instruct-fp8", 13)
    'llama-…ct-fp8'
    """
    if len(text) <= longest:
        return text
    tail = (longest - 1) // 2
    return f"{text[: longest - 1 - tail].rstrip()}…{text[len(text) - tail :].lstrip()}"


def short_hash(text: str, digits: int = 8) -> str:
    """Digits of a hash that distinguish texts which are alike where they are cut."""
    import hashlib  # with OpenSSL: a help needs neither this nor `difflib`

    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:digits]


def closest(word: str, known: Iterable[str], *, most: int = 1, cutoff: float = 0.6) -> list[str]:
    """Up to `most` known words that are spelled most like `word`, whatever the case; never `word`
    itself.

    >>> closest("Concurency", ["shapes", "concurrency"])
    ['concurrency']
    """
    import difflib

    by_lower = by_key((name.lower(), name) for name in known if name != word)
    matches = difflib.get_close_matches(word[:80].lower(), by_lower, n=most, cutoff=cutoff)
    return [by_lower[match][0] for match in matches]


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """The question "did you mean 'x'?" for a mistyped word, or None when no known word is close.

    >>> did_you_mean("shpes", ["shapes", "sla"])
    "did you mean 'shapes'?"
    """
    matches = closest(word, known)
    return f"did you mean {matches[0]!r}?" if matches else None


def suggestion(word: object, known: Iterable[str]) -> str:
    """The hint of an error about an unknown word: `did_you_mean`, or when nothing is close all
    known words.

    >>> suggestion("zzz", ["shapes", "sla"])
    'known: shapes, sla'
    """
    words = list(known)
    return did_you_mean(str(word), words) or "known: " + ", ".join(words)
