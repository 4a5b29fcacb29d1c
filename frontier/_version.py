"""The one place that names the version."""

__version__ = "1.1.0"
