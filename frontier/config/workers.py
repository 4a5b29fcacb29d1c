"""The `workers` key: how many client processes send the load, and whether on this machine or as actors on Ray."""

from typing import Annotated, Any, cast

from pydantic import PlainValidator

from frontier.client.target import read_address
from frontier.config.uses import SEND_FROM
from frontier.fields import Problem, Strict, read, shown, whole, whole_in

MAX_WORKERS = 256
_LOCAL = "local"


def _ray_address(value: Any) -> str:
    """'local', or the address of a cluster as Ray itself takes it."""
    hint = "write local, or a cluster's address: ray://HOST:10001, or on one of its own nodes HOST:6379"
    if not isinstance(value, str):
        raise Problem(f"{{key}} is the address of a Ray cluster; this is {shown(value)}", hint)
    if value == _LOCAL:
        return value
    try:
        parts = read_address(value if "://" in value else f"ray://{value}", schemes=("ray",))
    except ValueError as error:
        raise Problem(f"{{key}} {error}", hint) from None
    if parts.port is None or parts.path or parts.query or parts.fragment:
        raise Problem(f"{{key}}: {shown(value)} is no HOST:PORT", hint)
    return value


class RayConfig(Strict):
    """Client processes as actors on a Ray cluster: `count` of them, or one on each of its nodes."""

    ray: Annotated[str, PlainValidator(_ray_address), SEND_FROM]
    count: Annotated[int, whole_in(1, MAX_WORKERS)] | None = None

    @property
    def address(self) -> str | None:
        """Where the cluster is; None when the sweep starts and stops a Ray of its own on this machine."""
        return None if self.ray == _LOCAL else self.ray


def read_workers(value: Any) -> int | RayConfig | None:
    """The number of client processes on this machine, or where on Ray they are; None: as many as a trial needs."""
    if isinstance(value, dict):
        return cast("RayConfig", read(RayConfig, value))
    if value == "ray":
        return RayConfig(ray=_LOCAL)
    if isinstance(value, str) and "://" in value:
        return cast("RayConfig", read(RayConfig, {"ray": value}))
    if isinstance(value, str) and value != "auto" and not value.isdecimal():
        hint = f"write auto, 1 to {MAX_WORKERS}, ray, or {{ray: ray://HOST:10001, count: 4}}"
        raise Problem(f"{{key}} is auto, a whole number, or on Ray; this is {shown(value)}", hint)
    return None if value == "auto" else whole(value, 1, MAX_WORKERS)
