"""The simulator's tokenizer: deterministic, with no vocabulary. A word costs one token per eight characters begun.

It is not any model's tokenizer, and is not meant to be: a client has to find out from the server's `usage` how many
tokens its words are, as with a real server.
"""

import re
import zlib
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

_PIECE = re.compile(r"\S{1,8}")
_PER_MESSAGE, _PER_CHAT, _PER_TEXT = 4, 5, 1
VOCABULARY = 131_072
WORDS = (" river", " stone", " light", " under", " cloud", " field", " north", " water")
"""What it answers: one word is one token."""

Pieces = Sequence[Hashable]


def pieces_of_text(text: str) -> list[Hashable]:
    """The tokens of a plain prompt, a beginning-of-text mark included."""
    return ["<s>", *_PIECE.findall(text)]


def pieces_of_chat(messages: Sequence[Mapping[str, Any]]) -> list[Hashable]:
    """The tokens of a conversation with its template. ValueError for a message without readable content."""
    pieces: list[Hashable] = [("chat", i) for i in range(_PER_CHAT)]
    for message in messages:
        content = message.get("content")
        if isinstance(content, list):
            content = "".join(part.get("text", "") for part in content if isinstance(part, Mapping))
        if not isinstance(content, str | None):
            raise ValueError("messages: content must be text")
        pieces.extend(("message", message.get("role"), i) for i in range(_PER_MESSAGE))
        pieces.extend(_PIECE.findall(content or ""))
    return pieces


def block_hashes(pieces: Pieces, block: int) -> list[int]:
    """One hash per full block of tokens, each covering everything before it."""
    hashes, chain = [], 0
    for end in range(block, len(pieces) + 1, block):
        chain = hash((chain, *pieces[end - block : end]))
        hashes.append(chain)
    return hashes


def token_ids(pieces: Pieces) -> list[int]:
    """A number for each token, the same in every run."""
    return [p if isinstance(p, int) else zlib.crc32(repr(p).encode()) % VOCABULARY for p in pieces]
