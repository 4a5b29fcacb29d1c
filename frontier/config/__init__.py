"""The config of a sweep: YAML text to a sound `Config`, or every complaint about it with its place and a hint."""

from frontier.config.deployment import DeploymentConfig as DeploymentConfig
from frontier.config.deployment import HardwareConfig as HardwareConfig
from frontier.config.deployment import TimeoutsConfig as TimeoutsConfig
from frontier.config.deployment import TlsConfig as TlsConfig
from frontier.config.difference import describe_difference as describe_difference
from frontier.config.load import Setting as Setting
from frontier.config.load import config_text as config_text
from frontier.config.load import left_out as left_out
from frontier.config.load import load_config as load_config
from frontier.config.schema import BudgetConfig as BudgetConfig
from frontier.config.schema import Config as Config
from frontier.config.schema import FinishConfig as FinishConfig
from frontier.config.schema import digest as digest
from frontier.config.sla import parse_sla as parse_sla
