"""The config key `workers` for client processes on Ray: in which cluster, and how many."""

from typing import Annotated, Any, cast

from pydantic import PlainValidator

from frontier.client.ask.target import read_address
from frontier.config.load_keys import MAX_WORKERS
from frontier.config.uses import SEND_FROM
from frontier.fields import Problem, Strict, read, shown, text_of, whole_in

LOCAL = "local"
"""The value in place of an address for a Ray that the sweep starts and stops."""


def _ray_address(value: Any) -> str:
    """'local', or the address of a cluster as Ray itself takes it."""
    hint = "write local, or a cluster's address: ray://HOST:10001, or on one of its own nodes HOST:6379"
    text = text_of(value, "the address of a Ray cluster", hint)
    if text == LOCAL:
        return text
    try:
        parts = read_address(text if "://" in text else f"ray://{text}", schemes=("ray",))
    except ValueError as error:
        raise Problem(f"{{key}} {error}", hint) from None
    if parts.port is None or parts.path or parts.query or parts.fragment:
        raise Problem(f"{{key}}: {shown(value)} is no HOST:PORT", hint)
    return text


class RayConfig(Strict):
    """Client processes as actors on a Ray cluster: `count` of them, or one per node."""

    ray: Annotated[str, PlainValidator(_ray_address), SEND_FROM]
    count: Annotated[int, whole_in(1, MAX_WORKERS)] | None = None

    @property
    def address(self) -> str | None:
        """Where the cluster is; None when the sweep starts and stops a Ray of its own on this
        machine.
        """
        return None if self.ray == LOCAL else self.ray


def read_ray(value: Any) -> RayConfig:
    """What `workers` says: ray, the address of a cluster, or a mapping."""
    if not isinstance(value, dict):
        value = {"ray": LOCAL if value == "ray" else value}
    return cast("RayConfig", read(RayConfig, value))
