"""frontier: the throughput-latency frontier of an LLM deployment, and the concurrency proven inside its SLA."""

from frontier._version import __version__

__all__ = ["__version__"]
