"""The one place that names the version."""

__version__ = "1.0.0"
