"""`frontier probe`: a few small requests, and a checked list of what the server does."""

import asyncio
import dataclasses
import os

import click

from frontier.cli.common import answer, answer_json, in_colour, json_option, say
from frontier.errors import ExitCode, MisaskedError

USUAL_PORTS = (8000, 30000, 3000, 8080, 9931, 11434)
"""vLLM and TensorRT-LLM, SGLang, TGI, llama.cpp (old and new), Ollama."""


@click.command("probe")
@click.argument("url", required=False)
@click.option("--model", help="The model to ask for; default: the one the server lists.")
@click.option("--api-key-env", metavar="NAME", help="The environment variable that holds the key.")
@click.option("--wait", metavar="TIME", help="Wait this long for a server still loading, as 10min.")
@json_option
def command(url: str | None, model: str | None, api_key_env: str | None, wait: str | None, as_json: bool) -> int:
    """Ask the server at URL a few small things: does it answer, stream, count tokens, honour a forced length?

    Without URL the usual ports of the known engines on this machine are tried.

    \b
    Examples:
      frontier probe http://localhost:8000/v1
      frontier probe http://localhost:8000/v1 --wait 10min
    """
    from frontier.measure.preflight import probe
    from frontier.measure.target import Target

    address = url or find_server()
    target = Target(address, model=model, api_key=read_key(api_key_env))
    found = asyncio.run(probe(target, wait=seconds(wait)))
    checks = [dataclasses.replace(check, detail=target.redact(check.detail)) for check in found]
    worst = "fail" if any(c.state == "fail" for c in checks) else "ok"
    if as_json:
        tree = {"schema": "frontier.probe/1", "url": address, "usable": worst == "ok"}
        answer_json(tree | {"checks": [dataclasses.asdict(c) for c in checks]})
    else:
        for check in checks:
            colour = {"ok": "green", "warn": "yellow", "fail": "red"}[check.state]
            state = click.style(f"{check.state:<5}", fg=colour) if in_colour() else f"{check.state:<5}"
            answer(f"{state}{check.name:<22}{check.detail}")
    return ExitCode.YES if worst == "ok" else ExitCode.FAILED


def find_server() -> str:
    """The first usual port of this machine that something listens on. MisaskedError when none does."""
    import socket

    for port in USUAL_PORTS:
        with socket.socket() as sock:
            sock.settimeout(0.2)
            if sock.connect_ex(("127.0.0.1", port)) == 0:
                say(f"server  http://127.0.0.1:{port}/v1")
                return f"http://127.0.0.1:{port}/v1"
    ports = ", ".join(map(str, USUAL_PORTS))
    raise MisaskedError(f"nothing listens on this machine's ports {ports}", "name the server:  frontier probe URL")


def read_key(name: str | None) -> str | None:
    """The key in the environment variable `name`. MisaskedError when it is not set."""
    if name is None:
        return None
    if not os.environ.get(name):
        raise MisaskedError(f"the environment variable {name} is not set", f"export {name}=...")
    return os.environ[name]


def seconds(text: str | None) -> float:
    """A duration option, 0 when not given."""
    from frontier.units import parse_duration

    try:
        return 0.0 if text is None else parse_duration(text)
    except ValueError as error:
        raise MisaskedError(f"--wait {error}") from error
