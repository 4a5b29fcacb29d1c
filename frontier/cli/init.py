"""`frontier init`: a commented config on standard output."""

import click

from frontier.cli.common import answer
from frontier.config.values import SIMULATOR


@click.command("init")
@click.argument("url", default="http://localhost:8000/v1")
@click.option("--model", help="The model's name as the server lists it; left for the server to say when not given.")
def command(url: str, model: str | None) -> None:
    """Print a commented config for the endpoint at URL; `simulator` gives one for the embedded engine.

    \b
    Examples:
      frontier init http://localhost:8000/v1 > sweep.yaml
      frontier init simulator > sim.yaml
    """
    from frontier.measure.target import require_address
    from frontier.template import commented_config

    if url != SIMULATOR:
        require_address(url)
    answer(commented_config(url, model).rstrip("\n"))
