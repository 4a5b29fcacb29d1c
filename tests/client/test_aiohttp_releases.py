"""The oldest and the newest aiohttp that pyproject.toml allows: both ways to read a body work, and
agree."""

import asyncio
import json
import subprocess
import sysconfig
import tomllib
import venv
from pathlib import Path
from typing import Any
from unittest import mock

import aiohttp
import pytest

from frontier.client.ask.target import Target
from frontier.client.http import capture as body_capture
from frontier.client.http.http_client import Client
from tests.client.hostile import Hostile

ROOT = Path(__file__).parents[2]
SCRIPT = """
import asyncio, json, sys, warnings
import aiohttp
from frontier.client.http.http_client import Client
from frontier.client.ask.target import Target

warnings.simplefilter("error")

async def ask(fast, name):
    async with Client(Target(sys.argv[1] + name, "m", "chat"), fast=fast) as client:
        url = client.target.url("/v1/chat/completions")
        exchanges = [await client.post(url, b"{}") for _ in range(3)]
        return {
            "captured": [e.capture is not None for e in exchanges], "opened": client.opened,
            "failures": [e.failure for e in exchanges], "bodies": [b"".join(e.reads).decode() for e in exchanges],
            "ordered": all(
                e.sent < e.stamps[0] and e.stamps == sorted(e.stamps) and e.stamps[-1] <= e.end for e in exchanges
            ),
            "paced": [e.stamps[-1] - e.stamps[0] for e in exchanges],
        }

names = ["good", "torn_chunks", "with_length", "lying_keep_alive"]
answers = {name: [asyncio.run(ask(fast, name)) for fast in (True, False)] for name in names}
print(json.dumps({"version": aiohttp.__version__, "answers": answers}))
"""


def allowed() -> tuple[str, str]:
    """What pip installs as the oldest and as the newest."""
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    (bounds,) = (d.removeprefix("aiohttp") for d in dependencies if d.startswith("aiohttp>"))
    oldest = next(bound.removeprefix(">=") for bound in bounds.split(",") if bound.startswith(">="))
    return f"aiohttp=={oldest}.0", f"aiohttp{bounds}"


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("release", allowed())
def test_both_ways_to_read_a_body_work_with_every_allowed_aiohttp(release: str, tmp_path: Path) -> None:
    venv.create(tmp_path, with_pip=True)
    python = tmp_path / "bin" / "python"
    install = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", release],
        capture_output=True,
        text=True,
        timeout=500,
    )
    if install.returncode:
        pytest.skip(f"{release} cannot be installed here: {install.stderr.strip().splitlines()[-1]}")
    # All else comes from this environment, behind what was just installed.
    (site,) = tmp_path.glob("lib/python*/site-packages")
    (site / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n{ROOT}\n")
    with Hostile() as server:
        ran = subprocess.run(
            [python, "-c", SCRIPT, server.url("")], capture_output=True, text=True, timeout=60, cwd=tmp_path
        )
    assert ran.returncode == 0, ran.stderr
    report: dict[str, Any] = json.loads(ran.stdout)
    if "==" in release:
        assert report["version"] == release.partition("==")[2]
    for name, (fast, fallback) in report["answers"].items():
        assert [name != "with_length"] * 3 == fast["captured"]
        assert not any(fallback["captured"])
        assert [None] * 3 == fast["failures"] == fallback["failures"]
        assert fast["bodies"] == fallback["bodies"]
        assert fast["opened"] == fallback["opened"]
        assert fast["ordered"]
        assert fallback["ordered"]
        if name == "good":  # five events, 2 ms apart: neither way may stamp them all at the end
            assert min(*fast["paced"], *fallback["paced"]) > 0.004


async def ask_once(url: str) -> tuple[bool, int | None]:
    async with Client(Target(url, "m", "chat")) as client:
        exchange = await client.post(client.target.url("/v1/chat/completions"), b"{}")
        return exchange.capture is not None, exchange.status


@pytest.mark.process
def test_a_private_name_that_aiohttp_lacks_is_a_warning_and_the_fallback() -> None:
    names = (*body_capture._PROTOCOL_NAMES, "renamed")
    with (
        Hostile() as server,
        mock.patch.object(body_capture, "_PROTOCOL_NAMES", names),
        pytest.warns(RuntimeWarning, match=rf"aiohttp {aiohttp.__version__} lacks ResponseHandler.renamed"),
    ):
        assert (False, 200) == asyncio.run(ask_once(server.url("good")))


def test_an_argument_that_aiohttp_lacks_is_found() -> None:
    async def missing() -> list[str]:
        async with aiohttp.TCPConnector() as connector:
            return body_capture.missing_names(connector, asyncio.get_running_loop())

    def another(method: str, url: str) -> None:
        """Takes none of the arguments."""

    with mock.patch.object(aiohttp, "ClientRequest", another):
        assert ["arguments of ClientRequest"] == asyncio.run(missing())
    assert [] == asyncio.run(missing())
