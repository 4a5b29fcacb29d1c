"""The config: YAML text to a sound `Config`, or every complaint about it with its line and the way out."""

from frontier.config.deployment import DeploymentConfig, HardwareConfig, TimeoutsConfig, TlsConfig
from frontier.config.load import load_config
from frontier.config.models import BudgetConfig, Config, describe_difference, digest
from frontier.config.slatext import parse_sla

__all__ = [
    "BudgetConfig",
    "Config",
    "DeploymentConfig",
    "HardwareConfig",
    "TimeoutsConfig",
    "TlsConfig",
    "describe_difference",
    "digest",
    "load_config",
    "parse_sla",
]
