"""The config of a sweep: YAML text to a sound `Config`, or every complaint about it with its place and a hint."""

from frontier.config.deployment import DeploymentConfig, HardwareConfig, TimeoutsConfig, TlsConfig
from frontier.config.load import Setting, config_text, left_out, load_config
from frontier.config.schema import BudgetConfig, Config, FinishConfig, describe_difference, digest
from frontier.config.sla import parse_sla

__all__ = [
    "BudgetConfig",
    "Config",
    "DeploymentConfig",
    "FinishConfig",
    "HardwareConfig",
    "Setting",
    "TimeoutsConfig",
    "TlsConfig",
    "config_text",
    "describe_difference",
    "digest",
    "left_out",
    "load_config",
    "parse_sla",
]
