"""`frontier init`: a config on standard output."""

import click

from frontier.cli.common import answer, say, subcommand


@subcommand("init")
@click.argument("url", default="http://localhost:8000/v1")
@click.option("--model", help="The model's name as the server lists it; default: the one that it has loaded.")
@click.option(
    "--api-key-env", metavar="NAME", help="The environment variable that holds the key; goes into the config."
)
@click.option(
    "--for",
    "use",
    type=click.Choice(["chat", "search", "agent", "summary", "voice", "batch", "rag"]),
    help="Shape, SLA and axes of this use; rag is search.",
)
@click.option("--all", "whole", is_flag=True, help="Also every other key, commented out.")
def command(url: str, model: str | None, api_key_env: str | None, use: str | None, *, whole: bool) -> None:
    """Print a config for the endpoint at URL, or with `simulator` for the embedded
    engine.

    The config names the model that the server reports, and a shape that its context has room for;
    the sweep finds its concurrencies. Where no server answers, it is a template that says so.

    \b
    Examples:
      frontier init http://localhost:8000/v1 > sweep.yaml
      frontier init http://localhost:8000/v1 --for chat > sweep.yaml
      frontier init https://gate.example/v1 --api-key-env GATE_KEY > sweep.yaml
      frontier init simulator > sim.yaml
    """
    from frontier.cli.dry_run import look_ahead, plan_lines
    from frontier.cli.given_server import read_key, read_url
    from frontier.cli.init_template import commented_config, needed
    from frontier.client.ask.found_servers import ask_server
    from frontier.client.http.http_client import run
    from frontier.config import load_config
    from frontier.planning.plan import NO_PROOFS, make_plan

    address = read_url(url)
    simulated = address == "simulator"
    server = None if simulated else run(ask_server(address, read_key(api_key_env), model))
    if server is None and not simulated:
        say(f"note: no LLM server answered at {address}; the config is a template")
    elif server is not None and server.refused:
        say(f"note: {address} wants a key: name its variable with  --api-key-env NAME")
    text = commented_config(
        address, model, server, None if simulated else api_key_env, "search" if use == "rag" else use
    )
    text = text if whole else needed(text)
    answer(text.rstrip("\n"))
    config = load_config(text, "sweep.yaml")  # and what a sweep of it would do
    say("\n".join(plan_lines(config, look_ahead(config, make_plan(config), None, NO_PROOFS), NO_PROOFS)))
