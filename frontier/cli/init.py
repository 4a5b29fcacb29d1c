"""`frontier init`: a commented config on standard output."""

import click

from frontier.cli.common import answer


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
    from frontier.errors import MisaskedError
    from frontier.template import commented_config

    if "@" in url.partition("://")[2].partition("/")[0]:
        raise MisaskedError("the address holds credentials", "remove them; the config names the key's variable")
    answer(commented_config(url, model).rstrip("\n"))
