"""`frontier probe`: a few small requests, and a checked list of what the server does."""

import dataclasses
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from frontier.cli import common
from frontier.cli.consent import consent_to_reach
from frontier.cli.given_server import find_server, read_key, read_url
from frontier.core.model.errors import ExitCode, UsageError
from frontier.core.model.units import parse_duration
from frontier.show.verbosity import Detail

if TYPE_CHECKING:
    from frontier.client.ask.preflight import Check
    from frontier.client.ask.target import Target

_INDENT = 27
COLOURS = {"ok": "green", "note": "cyan", "warn": "yellow", "fail": "red"}


@common.subcommand("probe")
@click.argument("url", required=False, metavar="[URL|CONFIG]")
@click.option("--model", help="The model to ask for; default: the one that is loaded.")
@click.option("--api-key-env", metavar="NAME", help="The environment variable that holds the key.")
@click.option("--wait", metavar="TIME", help="Wait this long for a server that is still loading, as 10min.")
@common.run_options("detail", "as_json", more="Also the checks that passed.")
def command(
    options: common.RunOptions, url: str | None, model: str | None, api_key_env: str | None, wait: str | None
) -> int:
    """Is the server ready to be measured: does it answer, stream, count tokens, honour a forced
    length?

    Also checked are its cache, its metrics, and this client. With a CONFIG, its servers are asked;
    without URL, the usual ports of the known engines on this machine are tried.

    \b
    Examples:
      frontier probe http://localhost:8000/v1
      frontier probe http://localhost:8000/v1 --wait 10min
      frontier probe sweep.yaml
    """
    from frontier.cli.probe_checklist import probe
    from frontier.client.http.http_client import run
    from frontier.client.load.processes import auto_facts

    patience = 0.0 if wait is None else common.parsed("--wait", wait, parse_duration)
    trees = []
    for name, target in _targets(url, model, api_key_env).items():
        checks = [
            dataclasses.replace(check, detail=target.secrets.redact(check.detail))
            for check in run(probe(target, wait=patience))
        ]
        usable = all(check.state != "fail" for check in checks)
        trees.append({"url": target.base_url, "usable": usable, "checks": [dataclasses.asdict(c) for c in checks]})
        if not options.as_json:
            _print(name, checks, options.detail)
    if options.as_json:  # the one server's fields on the top level; several servers, of a config, in a list
        servers = trees[0] if len(trees) == 1 else {"deployments": trees}
        common.answer({"schema": "frontier.probe/1", **servers, "client": auto_facts()})
    return ExitCode.YES if all(tree["usable"] for tree in trees) else ExitCode.FAILED


def _targets(where: str | None, model: str | None, api_key_env: str | None) -> "Mapping[str, Target]":
    """The targets to probe, by the name that heads each list ('' for a single one)."""
    from frontier.client.ask.target import Target, Timeouts
    from frontier.config.config_file import load_config_file
    from frontier.sweep.given_files import read_key_file

    if where is None or "://" in where:
        timeouts = Timeouts(connect=5.0, first_byte=60.0, idle=30.0, total=120.0)
        url = find_server() if where is None else read_url(where)
        return {"": Target(url, model=model, api_key=read_key(api_key_env), timeouts=timeouts)}
    file = Path(where)
    if file.is_dir() or not file.exists():
        raise UsageError(f"{where!r} is neither an address nor a config file", "write it as http://host:port/v1")
    config = load_config_file(file)
    consent_to_reach(file, config)
    servers = [d for d in config.deployments if not d.is_simulator]
    if not servers:
        raise UsageError(f"{where} measures the embedded engine, which needs no probe", f"frontier sweep {where}")
    keys = {d.name: read_key_file(Path(d.api_key_file)) for d in servers if d.api_key_file is not None}
    targets = {d.name: d.target(os.environ, ignore_eos=config.ignore_eos, key=keys.get(d.name)) for d in servers}
    return targets if len(targets) > 1 else {"": next(iter(targets.values()))}


def _verdict(checks: "list[Check]") -> str:
    """'Ready to be measured: vllm 0.32.0; tiny, context of 2,048 tokens.'"""
    if any(check.state == "fail" for check in checks):
        return "Not ready to be measured:"
    said = {check.name: check.detail for check in checks}
    about = "; ".join(common.harmless(said[name].partition("\n")[0]) for name in ("engine", "model") if name in said)
    return f"Ready to be measured{': ' if about else ''}{about}."


def _print(name: str, checks: "list[Check]", detail: Detail) -> None:
    """Print the verdict, then a line for each check that is not ok, or for every check: state,
    name, words. On a terminal, details are wrapped beside their column.
    """
    if name:
        common.answer(f"{name}:")
    common.answer(_verdict(checks))
    room = os.get_terminal_size(sys.stdout.fileno()).columns - _INDENT if sys.stdout.isatty() else sys.maxsize
    for check in checks:
        if detail < (Detail.ALL if check.state == "ok" else Detail.USUAL):
            continue
        state = f"{check.state:<5}"
        state = click.style(state, fg=COLOURS[check.state]) if common.layout()["colour"] else state
        words = [line.strip() for line in check.detail.splitlines() or [""]]
        first, *more = common.wrapped(common.harmless("\n".join(words)), max(20, room)).split("\n")
        common.answer(f"{state}{check.name:<22}{first}")
        for line in more:
            common.answer(f"{'':<{_INDENT}}{line}")
