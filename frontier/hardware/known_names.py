"""Hints for a model or a GPU whose name is not known."""

import re
from collections.abc import Iterable

from frontier.core.model.text import closest

MODEL_BY_SIZES = "another by its sizes:  --set hardware.model=@config.json"
GPU_BY_FIGURES = "another by its figures:  hardware: {memory_bandwidth: 4.8TB/s, memory: 141GiB, tflops: 989}"


def name_hint(name: str, known: Iterable[str], other: str) -> str:
    """What to write in place of an unknown name: the one that is meant, else all that are known,
    and how to give another. A name with other numbers is another product, not a slip of the pen.

    >>> name_hint("lama-3.1-8b", ["llama-3.1-8b", "h100"], "")
    "did you mean 'llama-3.1-8b'?"
    >>> name_hint("llama-3.1-4b", ["llama-3.1-8b", "h100"], "another: @config.json")
    'known: llama-3.1-8b, h100\\n  another: @config.json'
    """
    words = list(known)
    meant = [word for word in closest(name, words, most=3) if _numbers(word) == _numbers(name)]
    return f"did you mean {meant[0]!r}?" if meant else f"known: {', '.join(words)}\n  {other}"


def _numbers(name: str) -> list[str]:
    return re.findall(r"\d+", name)
