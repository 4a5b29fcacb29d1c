"""The server that a command line names: its address, found where none is given, and its key."""

import os

from frontier.cli import common
from frontier.core.model.errors import UsageError


def find_server() -> str:
    """The address of the server on the first usual port of this machine. UsageError when there is
    none.
    """
    from frontier.client.ask.found_servers import USUAL_PORTS, find_servers
    from frontier.client.http.http_client import run

    servers = run(find_servers(USUAL_PORTS))
    if not servers:
        ports = ", ".join(map(str, USUAL_PORTS))
        what = f"no server was found on this machine's ports {ports}"
        raise UsageError(what, "name it:  frontier probe http://host:port/v1")
    first, *others = (f"{url} ({engine})" for url, engine in servers.items())
    common.say(f"server  {first}" + (f"; also {', '.join(others)}" if others else ""))
    return next(iter(servers))


def read_url(url: str) -> str:
    """The address of a server that an argument names. UsageError where it is none."""
    from frontier.config.connection import endpoint
    from frontier.fields import Problem

    try:
        return endpoint(url)
    except Problem as problem:
        raise UsageError(problem.named("URL").what, problem.hint) from None


def read_key(name: str | None) -> str | None:
    """The key in the environment variable `name`. UsageError when it is not set. The message does
    not repeat `name`: it may be a key that was pasted.
    """
    from frontier.config.connection import from_environment, variable

    if name is None:
        return None
    hint = "put the key into a variable and give that one's name:  --api-key-env OPENAI_API_KEY"
    try:
        named = variable(name)
    except ValueError:
        raise UsageError("--api-key-env wants the NAME of an environment variable, not a key", hint) from None
    if not os.environ.get(named, "").strip():
        raise UsageError("the environment variable that --api-key-env names is not set, or empty", hint)
    return from_environment(named, os.environ)
