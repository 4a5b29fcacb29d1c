"""The oldest and the newest aiohttp that pyproject.toml allows: bodies are captured with both."""

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
from frontier.core.model.errors import MeasurementError
from tests.kit.hostile import Hostile
from tests.kit.places import ROOT

SCRIPT = """
import asyncio, json, sys, warnings
import aiohttp
from frontier.client.http.http_client import Client
from frontier.client.ask.target import Target

warnings.simplefilter("error")

async def ask(name):
    async with Client(Target(sys.argv[1] + name, "m", "chat")) as client:
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
answers = {name: asyncio.run(ask(name)) for name in names}
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
def test_bodies_are_captured_with_every_allowed_aiohttp(release: str, tmp_path: Path) -> None:
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
    for name, answer in report["answers"].items():
        assert [name != "with_length"] * 3 == answer["captured"]
        assert [None] * 3 == answer["failures"]
        assert answer["ordered"]
        if name == "good":  # five events, 2 ms apart: they are not all stamped at the end
            assert min(answer["paced"]) > 0.004


def test_with_an_aiohttp_that_lacks_a_private_name_nothing_is_measured() -> None:
    async def begin() -> None:
        async with Client(Target("http://127.0.0.1:1/v1", "m", "chat")):
            pass

    names = (*body_capture._PROTOCOL_NAMES, "renamed")
    with (
        mock.patch.object(body_capture, "_PROTOCOL_NAMES", names),
        pytest.raises(MeasurementError, match=rf"aiohttp {aiohttp.__version__} .*ResponseHandler.renamed"),
    ):
        asyncio.run(begin())
