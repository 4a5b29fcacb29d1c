"""What a stranger's config would run, read and send is shown first, all of it, whatever key it
hides behind."""

import os
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from pydantic import BaseModel

from frontier.cli.consent import consent_to_reach, consent_to_sweep
from frontier.config import Config, load_config
from frontier.config.finish_keys import FinishConfig
from frontier.config.uses import PLAIN, Use, marks
from frontier.core.model.errors import UsageError
from frontier.extras.cluster.ray_keys import RayConfig
from tests.kit import servers
from tests.kit.commands import frontier
from tests.kit.golden import assert_golden_row
from tests.kit.sweeps import ENGINES, config_text, sweep_in_virtual_time

HARMLESS = {int, float, bool, type(None)}
"""A value of these types names no file, command, variable or address."""

EVERYTHING = """\
shapes: [8/8]
concurrency: [1]
prompts: /home/me/letters.jsonl
on_finish: {on_finish}
deployments:
  - name: a
    endpoint: https://a.invalid/v1
    api_key_env: CLOUD_KEY
    headers: {{X-Other: "${{OTHER_KEY}}", X-Plain: blue}}
    metrics: [http://169.254.169.254/metrics]
    tls: {{ca: /home/me/ca.pem, cert: /home/me/me.pem, key: /home/me/key.pem}}
    proxy: env
    start: ./up
    ready: ./ready
    stop: {{command: ./down}}
  - name: b
    endpoint: http://b.invalid/v1
    api_key_file: /home/me/key
"""


def leaves(annotation: Any) -> Iterator[Any]:
    """The types a field may have, taken apart."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return
    if typing.get_origin(annotation) is typing.Annotated:
        yield from leaves(typing.get_args(annotation)[0])
    elif typing.get_origin(annotation) in (typing.Union, types.UnionType, tuple):
        for inner in typing.get_args(annotation):
            yield from leaves(inner) if inner is not Ellipsis else ()
    else:
        yield annotation


def models(top: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """A model with all that its fields hold."""
    yield top
    for field in top.model_fields.values():
        todo = [field.annotation]
        while todo:
            one = todo.pop()
            if isinstance(one, type) and issubclass(one, BaseModel):
                yield from models(one)
            todo += typing.get_args(one)


def test_every_key_that_may_hold_a_text_is_marked_with_its_use() -> None:
    seen = list(dict.fromkeys([*models(Config), *models(FinishConfig), *models(RayConfig)]))
    assert {"DeploymentConfig", "TlsConfig", "StopConfig", "FinishConfig", "RayConfig"} <= {
        model.__name__ for model in seen
    }
    for model in seen:
        for name, field in model.model_fields.items():
            found = marks(field.annotation, field.metadata)
            kinds = set(leaves(field.annotation))
            nested = any(isinstance(one, type) and issubclass(one, BaseModel) for one in models_in(field.annotation))
            if kinds - HARMLESS and not nested:
                assert len(found) == 1, f"{model.__name__}.{name} has no mark: see frontier/config/uses.py"


def models_in(annotation: Any) -> Iterator[Any]:
    yield annotation
    for inner in typing.get_args(annotation):
        yield from models_in(inner)


@pytest.mark.parametrize("finish", ["./tell", "http://c.invalid/hook", "${HOOK}"])
def test_all_that_a_config_does_is_shown(
    finish: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    monkeypatch.setattr("sys.stdin", None)
    config = load_config(EVERYTHING.format(on_finish=finish), "config.yaml")
    a, b = "https://a.invalid/v1", "http://b.invalid/v1"
    reached = {
        f"send  $CLOUD_KEY to {a}",
        f"send  $OTHER_KEY to {a}",
        f"send  what /home/me/key holds to {b}",
        f"send  what /home/me/letters.jsonl holds to {a}, {b}",
        f"ask  http://169.254.169.254/metrics, with the keys and headers for {a}",
        *(f"read  /home/me/{name}.pem, for TLS with {a}" for name in ("ca", "me", "key")),
        f"use  the proxies of the environment, with their passwords, for {a}",
    }
    told = {"./tell": "run  ./tell"}.get(finish) or (
        f"post  how it ended, the run's path and this machine's name to {finish.replace('${HOOK}', '$HOOK')}"
    )
    for ask, wanted in (
        (consent_to_reach, reached),
        (consent_to_sweep, reached | {"run  ./up", "run  ./ready", "run  ./down", told}),
    ):
        with pytest.raises(UsageError, match=r"config\.yaml"):
            ask(tmp_path / "config.yaml", config)
        assert wanted == {line.strip() for line in capsys.readouterr().err.splitlines()[1:]}


def test_a_mark_is_needed_where_a_value_is_used() -> None:
    assert [] == marks(int | None)
    assert [PLAIN] == marks(typing.Annotated[str, PLAIN] | None)
    prompts = Config.model_fields["prompts"]
    assert [Use] == [type(one) for one in marks(prompts.annotation, prompts.metadata)]


def test_what_only_sends_load_needs_no_consent(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    plain = load_config("endpoint: http://h/v1\nshapes: [8/8]\nheaders: {X-Plain: blue}\n", "config.yaml")
    consent_to_sweep(tmp_path / "config.yaml", plain)
    consent_to_reach(tmp_path / "config.yaml", plain)


def test_a_link_into_a_run_and_a_begun_with_that_is_no_file_do_not_help(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "manifest.json").write_text("{}")
    text = "endpoint: http://h/v1\nshapes: [8/8]\napi_key_env: CLOUD_KEY\n"
    (run / "config.yaml").write_text(text)
    (tmp_path / "sweep.yaml").symlink_to(run / "config.yaml")
    os.mkfifo(tmp_path / "fifo")
    config = load_config(text, "config.yaml")
    with pytest.raises(UsageError, match=r"sweep\.yaml"):
        consent_to_sweep(tmp_path / "sweep.yaml", config)
    for begun_with in (tmp_path / "sweep.yaml", tmp_path / "fifo", Path("/dev/zero"), Path("a\0b"), tmp_path):
        with pytest.raises(UsageError, match=r"config\.yaml"):
            consent_to_reach(run / "config.yaml", config, begun_with)


@pytest.mark.process
@pytest.mark.fault("a foreign config")
@pytest.mark.parametrize("command", ["verify", "probe"])
def test_a_foreign_run_gets_no_file_and_no_key_out_of_this_machine(command: str, tmp_path: Path) -> None:
    seen: list[str] = []

    async def listen(request: web.Request) -> web.StreamResponse:
        seen.append(f"{request.headers} {await request.text()}")
        return web.json_response(servers.MODELS)

    (tmp_path / "letters.jsonl").write_text('{"prompt": "dear diary"}\n')
    run = tmp_path / "runs" / "theirs"
    sweep_in_virtual_time(run, config_text(ENGINES["smooth"], sla="{p90_ttft: 200ms}", requests=200))
    config = run / "config.yaml"
    with servers.serving({"GET /v1/models": listen, "POST /v1/completions": listen}) as url:
        kept = "\n".join(
            line for line in config.read_text().splitlines() if not line.startswith(("endpoint", "simulator", " "))
        )
        config.write_text(f"{kept}\nendpoint: {url}\nprompts: letters.jsonl\napi_key_env: CLOUD_KEY\n")
        named = (run,) if command == "verify" else (config,)
        said = frontier(command, *named, cwd=tmp_path, here=True, CLOUD_KEY="k" * 20)
    assert (2, []) == (said.code, seen), said.err
    assert_golden_row("messages", said.err.replace(url, "URL").replace(str(tmp_path), "HERE"))
