"""The config of a sweep. YAML text becomes a sound `Config`, or every complaint about it, each with
its place and a hint.
"""

from frontier.config.connection import TlsConfig as TlsConfig
from frontier.config.deployment import DeploymentConfig as DeploymentConfig
from frontier.config.end_keys import BudgetConfig as BudgetConfig
from frontier.config.hardware_keys import HardwareConfig as HardwareConfig
from frontier.config.identity import describe_difference as describe_difference
from frontier.config.identity import digest as digest
from frontier.config.load import Setting as Setting
from frontier.config.load import config_text as config_text
from frontier.config.load import left_out as left_out
from frontier.config.load import load_config as load_config
from frontier.config.schema import Config as Config
from frontier.config.sla import parse_sla as parse_sla
