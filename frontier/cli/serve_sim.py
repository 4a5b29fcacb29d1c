"""`frontier serve-sim`: the embedded engine behind HTTP, in the foreground."""

from pathlib import Path

import click

from frontier.cli.common import say, subcommand
from frontier.core.model.errors import UsageError

_DEFAULT = "endpoint: simulator\nshapes: [1024/256]\n"


@subcommand("serve-sim")
@click.argument("config", required=False, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="Port to listen on; 0: a free one."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; loopback unless asked.")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="An engine setting, as max_num_seqs=64; repeatable."
)
def command(config: Path | None, port: int, host: str, settings: tuple[str, ...]) -> None:
    """Serve the embedded simulated engine at an OpenAI-compatible address, until Ctrl-C.

    CONFIG is a sweep config whose `simulator:` part describes the engine; without it the default
    engine is served.

    \b
    Examples:
      frontier serve-sim --port 8000
      frontier serve-sim configs/quickstart.yaml --set max_num_seqs=16
      frontier serve-sim --set speculation.tokens=4 --set max_num_seqs=16
    """
    import asyncio

    from frontier.config import Setting, load_config
    from frontier.config.config_file import load_config_file
    from frontier.simulator.http.server import run_server

    of_engine = [f"simulator.{setting}" for setting in settings]
    if config is None:
        loaded = load_config(_DEFAULT, "the default engine", [Setting.of(setting) for setting in of_engine])
    else:
        loaded = load_config_file(config, of_engine)
    spec = loaded.deployments[0].engine_spec()

    if not host.strip():  # which would be every address of this machine
        raise UsageError("--host is empty", "write 127.0.0.1, or 0.0.0.0 for every address")

    def ready(url: str) -> None:
        say(f"simulated endpoint on {url}  ·  model {spec.model_name}  ·  Ctrl-C to stop")

    try:
        asyncio.run(run_server(spec, host, port, ready))
    except (OSError, ValueError) as error:  # a ValueError: a host that cannot be a name
        why = str(error.strerror).rpartition(": ")[2] if isinstance(error, OSError) else error
        raise UsageError(
            f"cannot listen on {host}:{port}: {why}", "choose another with  --port,  or 0 for a free one"
        ) from error
    except KeyboardInterrupt:
        say("stopped")
