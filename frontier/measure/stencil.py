"""Reading the many events that differ only in their text without parsing each as JSON.

A server's token events are the same bytes around another text. From one event that was parsed properly a stencil is
cut: what stands before its text and after it. It is used only if it proved itself: with another text put into the same
place, the proper reading must find exactly that text and nothing else. An event that begins and
ends as the stencil and holds a plain JSON string between (no quote, backslash or control character) then says the same
as the parser would. Anything else goes to the parser.
"""

import re

from frontier.measure.dialects import NOTHING, Fold, Tally

_TEXT = re.compile(rb'"(?:content|text|reasoning_content|reasoning|thinking|response)": ?"((?:[^"\\]|\\.)+)"')
PLAIN = re.compile(rb'[^"\\\x00-\x1f]+').fullmatch
"""Called with a read and the bounds of its text."""
_PROOF = b"frontier-proof"


Stencil = tuple[bytes, bytes]
"""What a read with one token event begins and ends with."""


def cut_stencil(read: bytes, prefix: bytes, suffix: bytes, fold: Fold) -> Stencil | None:
    """A stencil from a read that is `prefix`, one event, `suffix`; None when the event does not lend itself to one."""
    if not (read.startswith(prefix) and read.endswith(suffix)):
        return None
    for found in _TEXT.finditer(read):
        before, after = read[: found.start(1)], read[found.end(1) :]
        proof = Tally()
        event = (before + _PROOF + after)[len(prefix) : -len(suffix)]
        channel = NOTHING if b"\n" in event else fold(proof, b"", event)
        if channel != NOTHING and proof == Tally(text_bytes=len(_PROOF), text_chars=len(_PROOF), showed=True):
            return before, after
    return None
