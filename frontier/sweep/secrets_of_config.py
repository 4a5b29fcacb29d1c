"""The secrets that a config names: keys, headers, parts of addresses, variables of the
environment.
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from frontier.client.ask.target import Proxies
from frontier.client.secrets import NO_SECRETS, Secrets, environment_secrets
from frontier.config import Config
from frontier.core.model.errors import UsageError
from frontier.sweep.given_files import read_key_file


def secrets_of(config: Config, environ: Mapping[str, str]) -> Secrets:
    """Every secret that the config names, and every variable of the environment whose name says
    that it is a secret.
    """
    named = config.on_finish.hidden(environ) if config.on_finish else ()
    secrets = Secrets.of([*named, *environment_secrets(environ)])
    for deployment in config.deployments:
        key = None
        if deployment.api_key_file is not None:
            with suppress(UsageError):  # the request that needs the key says why it cannot be read
                key = read_key_file(Path(deployment.api_key_file))
        secrets |= Secrets.of(deployment.hidden(environ, key))
        secrets |= Proxies.of_environment().secrets if deployment.proxy == "env" else NO_SECRETS
    return secrets
