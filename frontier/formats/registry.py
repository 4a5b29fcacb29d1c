"""The formats we read, and which of them a file is: by its content, never by its name."""

from collections.abc import Callable
from dataclasses import dataclass

from frontier.formats import aiperf, genai_bench, guidellm, inference_perf, inferencex, llmd, llmperf, plain, vllm
from frontier.formats.documents import Document, ForeignFileError, read_document
from frontier.formats.found import Found


@dataclass(frozen=True, slots=True)
class Format:
    """One foreign format: `claims` tells whether a document looks like it, `read` says what it holds."""

    name: str
    claims: Callable[[Document], bool]
    read: Callable[[Document], Found]


FORMATS: tuple[Format, ...] = (
    Format("aiperf", aiperf.claims, aiperf.read),
    Format("guidellm", guidellm.claims, guidellm.read),
    Format("genai-bench", genai_bench.claims, genai_bench.read),
    Format("inference-perf", inference_perf.claims, inference_perf.read),
    Format("inferencex", inferencex.claims, inferencex.read),
    Format("vllm", vllm.claims, vllm.read),
    Format("llm-d", llmd.claims, llmd.read),
    Format("llmperf", llmperf.claims, llmperf.read),
    Format("silicon", inferencex.claims_silicon, inferencex.read_silicon),
    Format("csv", plain.claims, plain.read),
)
NAMES = tuple(f.name for f in FORMATS)


def read(file: str, data: bytes, name: str | None = None) -> Found | None:
    """What a file says; `name` overrides the detection. None for a file that only accompanies results.

    ForeignFileError when it is of no known format, or not what it claims to be.
    """
    document = read_document(file, data)
    if name is None and genai_bench.is_companion(document):
        return None
    chosen = [f for f in FORMATS if f.name == name] if name else [f for f in FORMATS if f.claims(document)]
    if not chosen:
        raise ForeignFileError(
            file, f"no result of a tool we know{_looks(document)}",
            "known: " + ", ".join(NAMES) + "; or a CSV with concurrency, isl, osl and metrics (docs/exchange.md)",
        )  # fmt: skip
    return chosen[0].read(document)


def _looks(document: Document) -> str:
    """What it has instead, in a few words."""
    if document.kind == "json" and isinstance(document.tree, dict):
        keys = ", ".join(str(key)[:30] for key in list(document.tree)[:6])
        return f" (a JSON object with {keys or 'nothing in it'})"
    if document.rows:
        keys = ", ".join(str(key)[:30] for key in list(document.rows[0])[:6])
        return f" ({'a table' if document.kind == 'table' else 'lines'} with {keys})"
    return ""
