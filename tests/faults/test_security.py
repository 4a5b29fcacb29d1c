"""Secrets and hostile text: every byte that a sweep writes or prints is searched for keys, escapes
and markup."""

import base64
import html
import itertools
import json
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote

import psutil
import pytest
from aiohttp import web

from frontier.client.secrets import MOST, Secrets, environment_secrets
from frontier.config import load_config
from frontier.config.complaints import ConfigError
from frontier.core.model.errors import UsageError
from frontier.sweep.given_files import read_key_file
from frontier.sweep.secrets_of_config import secrets_of
from tests.faults.encodings import ENCODINGS, LONG_KEY, SHORT_KEY, leaked
from tests.kit import servers
from tests.kit.commands import Said, frontier, start
from tests.kit.golden import assert_golden_row
from tests.kit.neutral import neutral

pytestmark = pytest.mark.process

KEY = "planted-KEY-5f1e0c77"
HEADER = "planted-HEADER-91b2"
HOSTILE = "\x1b[31mred\x1b]0;title\x07\x9b2J<script>alert(1)</script>=HYPERLINK(1)\u202e|`"

CONFIG = """\
endpoint: {url}
{more}
shapes: [16/4]
concurrency: [1, 2]
sla: {{p90_ttft: 500ms}}
requests: 5
repeats: 1
refine: 0
warmup: 50ms
max_time: 2s
timeouts: {{first_byte: 2s, total: 5s}}
"""


class Parrot:
    """Says everything it was sent back, wherever a server may put words, as terminal escapes,
    markup and formulas.
    """

    def __init__(self, fail: int | None = None, text: str = "w ") -> None:
        self.fail, self.text = fail, text
        self.seen: list[str] = []
        self.answers = 0

    def words(self, request: web.Request) -> str:
        self.seen.append(request.headers.get("Authorization", ""))
        return f"{HOSTILE} {request.headers.get('Authorization', '')} {request.headers.get('X-Session-Token', '')}"

    async def models(self, request: web.Request) -> web.StreamResponse:
        rows = [{"id": self.words(request), "object": "model", "owned_by": "vllm", "max_model_len": 8192}]
        # A header cannot carry control characters; the rest it can.
        server = re.sub(r"[^ -~]", "", self.words(request))
        return web.json_response({"object": "list", "data": rows}, headers={"Server": server})

    async def version(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"version": self.words(request)})

    async def complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if self.fail is not None and body["max_tokens"] == 4:
            return web.json_response({"error": {"message": self.words(request)}}, status=self.fail)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        n = body["max_tokens"]
        size = len(body["prompt"]) if isinstance(body["prompt"], list) else len(body["prompt"].split())
        # Of a trial's answers every other one: a reason that is not known makes the answer a
        # failure.
        self.answers += n == 4
        last = self.words(request) if n == 4 and self.answers % 2 else "length"
        for i in range(n):
            reason = last if i == n - 1 else None
            event = {"choices": [{"index": 0, "text": self.text, "finish_reason": reason}]}
            await response.write(f"data: {json.dumps(event)}\n\n".encode())
        usage = {"prompt_tokens": size, "completion_tokens": n}
        await response.write(f"data: {json.dumps({'choices': [], 'usage': usage})}\n\ndata: [DONE]\n\n".encode())
        return response

    def routes(self) -> dict[str, Any]:
        return {"GET /v1/models": self.models, "GET /version": self.version, "POST /v1/completions": self.complete}


def everything(tmp_path: Path, said: list[Said]) -> bytes:
    """Every byte that was written or said."""
    found = [
        f.read_bytes() for f in tmp_path.rglob("*") if f.is_file() and f.name not in ("sweep.yaml", "key", "k.pem")
    ]
    return b"\n".join([*found, *((s.out + s.err).encode() for s in said)])


@pytest.mark.fault("a key said back")
@pytest.mark.parametrize("key", [LONG_KEY, SHORT_KEY, KEY], ids=["long", "short", "usual"])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_secret_is_found_in_any_encoding_wherever_a_cut_falls(encoding: str, key: str) -> None:
    secrets = Secrets.of([key])
    encoded = ENCODINGS[encoding](key)
    assert leaked(encoded, key), "the search of this test finds what is not masked"
    for before, longest in ((0, 300), (53, 60), (292, 300), (MOST - 130, 300), (MOST - 5, 300)):
        said = secrets.said("." * before + encoded + " behind it", longest)
        assert len(said) <= longest
        assert leaked(said, key) is None
    assert secrets.redact(f"see {encoded}").startswith("see ")


FORMS: dict[str, Callable[[str], str]] = {
    "whole": str,
    "its first 12 characters": lambda key: key[:12],
    "spaced": " ".join,
    "upper case": str.upper,
    "in base64": lambda key: base64.b64encode(key.encode()).decode().rstrip("="),
}
NAMES = {
    "the environment": "",
    "api_key_env": "api_key_env: {name}\n",
    "a header": "headers: {{X-Api-Key: '${{{name}}}'}}\n",
    "another header": "headers: {{X-Who: '${{{name}}}'}}\n",
    "on_finish": "on_finish: {{url: '${{{name}}}'}}\n",
}
"""Who names a secret's variable."""


@pytest.mark.fault("a key said back")
@pytest.mark.parametrize("variable", ["CLOUD_KEY", "OPENAI_API_KEY", "HF_TOKEN"])
@pytest.mark.parametrize("named", NAMES)
def test_whatever_names_a_secret_it_is_found_in_all_forms(named: str, variable: str) -> None:
    text = "endpoint: http://h:1/v1\nshapes: [8/8]\nconcurrency: [1]\n" + NAMES[named].format(name=variable)
    config, environ = load_config(text, "sweep.yaml"), {variable: KEY}
    found = {"sweep": secrets_of(config, environ)}
    if named not in ("the environment", "on_finish"):
        found["target"] = config.deployments[0].target(environ, ignore_eos=True).secrets
    log = [Secrets(frozenset(one.values), frozenset(one.whole)) for one in found.values()]  # as a supervisor gets them
    for secrets in (*found.values(), *log):
        for form in FORMS.values():
            assert "see ***" == secrets.redact(f"see {form(KEY)}")


def test_names_that_hold_no_secret() -> None:
    environ = {"TOKENIZER": "meta-llama/Llama-3.1-8B", "GIT_AUTHOR_NAME": "Ada Lovelace", "KEYBOARD": "de-latin1"}
    assert frozenset() == environment_secrets(environ)


def test_a_long_line_is_not_cut_inside_a_secret() -> None:
    rng, secrets = random.Random(7), Secrets.of([LONG_KEY, "twelve-chars"])
    for _ in range(40):
        text = "." * rng.randrange(300) + "".join(
            rng.choice([LONG_KEY, "twelve-chars", " hf_" + "a" * 30, "word "]) for _ in range(20)
        )
        rest, said = text[: rng.randrange(1, len(text))], ""
        more = text[len(rest) :]
        done, rest = secrets.split(rest)
        said = done + secrets.redact(rest + more)
        assert leaked(said, LONG_KEY) is None
        assert "twelve" not in said.replace("twelve-chars", "")
        assert "aaaaaaaaaaaa" not in said


QUICK = (
    ("show",),
    ("solve", "--json"),
    ("status",),
    ("report", "-o", "page.html"),
    ("report", "-o", "page.md"),
    ("plot", "-o", "picture.svg"),
    ("export", "--csv"),
    ("rehearse", "-o", "curve.svg"),
)
OTHERS = (
    ("show", "--json"),
    ("status", "--json"),
    ("report", "-o", "page.json"),
    ("export", "--prometheus"),
    ("compare", "runs/latest", "runs/latest"),
    ("predict", "runs/latest"),
)


def look_from_all_sides(tmp_path: Path, commands: Iterable[Sequence[str]], **environ: str) -> list[Said]:
    run = str(next((tmp_path / "runs").iterdir()))
    named = [[run if word == "runs/latest" else word for word in command] for command in commands]
    return [frontier(*command, cwd=tmp_path, **environ) for command in named]


@pytest.mark.parametrize("fail", [None, pytest.param(500, marks=pytest.mark.slow)])
def test_no_byte_that_is_produced_holds_a_key_or_harms_a_reader(fail: int | None, tmp_path: Path) -> None:
    environ = {"MY_KEY": KEY, "MY_HEADER": HEADER}
    parrot = Parrot(fail)
    more = 'api_key_env: MY_KEY\napi: completions\nheaders: {X-Session-Token: "${MY_HEADER}"}'
    with servers.serving(parrot.routes()) as url:
        (tmp_path / "sweep.yaml").write_text(CONFIG.format(url=url, more=more))
        said = [frontier("sweep", "sweep.yaml", cwd=tmp_path, here=True, **environ)]
        said.append(frontier("probe", url, "--api-key-env", "MY_KEY", cwd=tmp_path, **environ))
    assert f"Bearer {KEY}" in parrot.seen, said[0].err
    said += look_from_all_sides(tmp_path, QUICK if fail is None else (*QUICK, *OTHERS), **environ)
    assert [] == [s.err for s in said if s.code == 1]
    produced = everything(tmp_path, said)
    for secret in (KEY, HEADER):
        assert secret.encode() not in produced
    for one in said:
        assert "Traceback" not in one.err
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", one.out + one.err), repr(one.out + one.err)
    for name in ("page.html", "picture.svg"):
        assert "<script>alert" not in (tmp_path / name).read_text()
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", (tmp_path / name).read_text())
    prose = re.sub(r"```.*?```", "", (tmp_path / "page.md").read_text(), flags=re.DOTALL)
    assert "<script>alert" not in prose


class Mimic(Parrot):
    """Says the keys back in every encoding, one after another, across every cut, wherever a server
    can put words.
    """

    def __init__(self) -> None:
        super().__init__()
        self.turn = itertools.count()

    def words(self, request: web.Request) -> str:
        self.seen.append(request.headers.get("Authorization", ""))
        key, other = request.headers.get("Authorization", "").removeprefix("Bearer "), request.headers.get("X-Who", "")
        turn = next(self.turn)
        encoding = list(ENCODINGS.values())[turn % len(ENCODINGS)]
        return (
            "." * (0, 290, 40, 57, 296)[turn % 5]
            + (encoding(key) if key else "")
            + " "
            + (encoding(other) if other else "")
        )

    def line(self, request: web.Request) -> str:
        return re.sub(r"[^ -~]", "", self.words(request))

    async def models(self, request: web.Request) -> web.StreamResponse:
        rows = [{"id": "sim", "object": "model", "max_model_len": 8192, "owned_by": self.words(request)}]
        rows += [{"id": self.words(request)} for _ in ENCODINGS]
        return web.json_response({"object": "list", "data": rows}, headers={"Server": self.line(request)})

    async def complete(self, request: web.Request) -> web.StreamResponse:
        body, turn = await request.json(), next(self.turn)
        if body["max_tokens"] == 4 and turn % 3 and len(self.seen) > 8:
            return await self.fail_somehow(request, turn // 3 % 8)
        return await super().complete(request)

    async def version(self, request: web.Request) -> web.StreamResponse:
        self.turn, turn = itertools.count(), self.turn  # always the same, or it would be taken for another server
        said = await super().version(request)
        self.turn = turn
        return said

    async def fail_somehow(self, request: web.Request, how: int) -> web.StreamResponse:
        said, line = self.words(request), self.line(request)
        if how == 0:
            return web.json_response({"error": {"message": said}}, status=500, headers={"Retry-After": line})
        if how == 1:
            return web.Response(text=f"<html><title>{said}</title>", status=502)
        if how == 2:
            cut = 200 if LONG_KEY in said else len(said)  # of an encoded key only the whole is found
            return web.json_response({"detail": [{"msg": said[:cut]}, {"msg": said[cut:]}]}, status=422)
        if how == 3:
            return web.Response(status=307, headers={"Location": f"http://127.0.0.1:1/{line}"})
        if how == 4:
            return web.Response(text="x", headers={"Content-Type": "text/event-stream", "Content-Encoding": line})
        if how == 5:
            return web.Response(text="x", headers={"Content-Type": line})
        event = json.dumps({"error": said}) if how == 6 else said
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        data = f"event: error\ndata: {event}\n\n".encode()
        for i in range(0, len(data), 97):  # the key lies across reads
            await response.write(data[i : i + 97])
        return response


@pytest.mark.fault("a key said back")
def test_no_part_of_a_long_key_is_stored_or_printed_in_any_encoding(tmp_path: Path) -> None:
    environ = {"MY_KEY": LONG_KEY, "MY_HEADER": SHORT_KEY}
    mimic = Mimic()
    more = 'model: sim\napi_key_env: MY_KEY\napi: completions\ndialect: vllm\nheaders: {X-Who: "${MY_HEADER}"}'
    with servers.serving(mimic.routes()) as url:
        text = CONFIG.format(url=url, more=more).replace("requests: 5", "requests: 60").replace("[1, 2]", "[2]")
        (tmp_path / "sweep.yaml").write_text(text)
        said = [frontier("sweep", "sweep.yaml", cwd=tmp_path, here=True, **environ)]
        said += [frontier("probe", "sweep.yaml", cwd=tmp_path, **environ)]
        said += [
            frontier("probe", url, "--model", "x", "--api-key-env", "MY_KEY", cwd=tmp_path, **environ) for _ in range(4)
        ]
    assert f"Bearer {LONG_KEY}" in mimic.seen, said[0].err
    assert {2, 5} & {s.code for s in said[2:]}
    said += look_from_all_sides(tmp_path, [one for one in QUICK if one != ("status",)], **environ)
    produced = everything(tmp_path, said).decode(errors="replace")
    assert '"outcome":"http_error"' in produced, "the server failed as it should"
    assert produced.count("***") > 20
    for line in set(re.split(r"\\n|[\n>]", produced)):
        assert leaked(line, LONG_KEY) is None, line
        assert SHORT_KEY not in html.unescape(unquote(line)), line
    assert [] == [s.err for s in said if "Traceback" in s.err]


@pytest.mark.slow
def test_the_key_is_on_no_command_line(tmp_path: Path) -> None:
    parrot = Parrot()
    with servers.serving(parrot.routes()) as url:
        text = CONFIG.format(url=url, more="api_key_env: MY_KEY\napi: completions").replace(
            "requests: 5", "requests: 900"
        )
        (tmp_path / "sweep.yaml").write_text(text)
        process = start("sweep", "sweep.yaml", cwd=tmp_path, MY_KEY=KEY)
        deadline = time.monotonic() + 90
        while not parrot.seen and time.monotonic() < deadline:
            time.sleep(0.05)
        me = psutil.Process(process.pid)
        lines = [" ".join(p.cmdline()) for p in [me, *me.children(recursive=True)]]
        process.terminate()
        process.communicate(timeout=30)
    assert parrot.seen
    assert lines
    assert [] == [line for line in lines if KEY in line]


def key_file(tmp_path: Path, text: str = KEY + "\n", mode: int = 0o600) -> Path:
    file = tmp_path / "key"
    file.write_text(text)
    file.chmod(mode)
    return file


def test_a_key_file_is_read_when_only_its_owner_may(tmp_path: Path) -> None:
    assert KEY == read_key_file(key_file(tmp_path))
    for mode in (0o644, 0o640, 0o606, 0o620):
        with pytest.raises(UsageError) as caught:
            read_key_file(key_file(tmp_path, mode=mode))
        assert caught.value.hint == f"chmod 600 {tmp_path / 'key'}"
        assert_golden_row("messages", neutral(str(caught.value), tmp_path), f"{mode:04o}")


@pytest.mark.parametrize("text", ["two\nlines", "esc\x1b[0m", "ключ", "x" * 9000])
def test_what_is_no_key_is_refused_and_not_repeated(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_key_file(key_file(tmp_path, text))
    assert text not in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize("text", ["", "  \n"])
def test_an_empty_key_file_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        read_key_file(key_file(tmp_path, text))


def test_a_key_file_that_is_missing_or_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as missing:
        read_key_file(tmp_path / "none")
    assert_golden_row("messages", neutral(str(missing.value), tmp_path))
    with pytest.raises(UsageError):
        read_key_file(tmp_path)


@pytest.mark.slow
def test_a_key_file_serves_a_sweep_and_is_copied_nowhere(tmp_path: Path) -> None:
    key_file(tmp_path)
    parrot = Parrot()
    with servers.serving(parrot.routes()) as url:
        (tmp_path / "sweep.yaml").write_text(CONFIG.format(url=url, more="api_key_file: key\napi: completions"))
        said = frontier("sweep", "sweep.yaml", cwd=tmp_path)
        assert f"Bearer {KEY}" in parrot.seen, said.err
        assert KEY.encode() not in everything(tmp_path, [said])
        (tmp_path / "key").chmod(0o644)
        said = frontier("sweep", "sweep.yaml", "-o", "another", cwd=tmp_path)
    assert said.code == 2
    assert "chmod 600 key" in said.err


def test_a_key_named_twice_is_refused() -> None:
    text = CONFIG.format(url="http://h:1/v1", more="api_key_env: A_KEY\napi_key_file: key")
    with pytest.raises(ConfigError) as refused:
        load_config(text, "sweep.yaml")
    assert_golden_row("complaints", str(refused.value))


@pytest.mark.parametrize(
    "address",
    [
        "http://me:planted-KEY-5f1e0c77@127.0.0.1:9/v1",
        pytest.param("http://planted-KEY-5f1e0c77@h/v1", marks=pytest.mark.slow),
    ],
)
def test_credentials_in_an_address_are_printed_nowhere(address: str, tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(CONFIG.format(url=address, more=""))
    commands = (("sweep", "sweep.yaml"), ("probe", address), ("init", address))
    said = [frontier(*command, cwd=tmp_path, here=True) for command in commands]
    assert [2, 2] == [s.code for s in (said[0], said[1])]
    assert KEY not in "".join(s.out + s.err for s in said)


class Elsewhere(BaseHTTPRequestHandler):
    seen: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.seen.append(self.headers.get("Authorization", ""))
        self.send_response(200)
        self.end_headers()

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.fault("redirect to another host")
@pytest.mark.parametrize("status", [307, *(pytest.param(n, marks=pytest.mark.slow) for n in (301, 302, 308))])
def test_a_redirect_does_not_take_the_key_to_another_host(status: int, tmp_path: Path) -> None:
    Elsewhere.seen.clear()
    other = ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
    threading.Thread(target=other.serve_forever, daemon=True).start()

    async def away(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, headers={"Location": f"http://localhost:{other.server_port}{request.path}"})

    try:
        with servers.serving(
            {"GET /v1/models": servers.models, "POST /v1/completions": away, "POST /v1/chat/completions": away}
        ) as url:
            said = frontier("probe", url, "--api-key-env", "MY_KEY", cwd=tmp_path, MY_KEY=KEY)
    finally:
        other.shutdown()
        other.server_close()
    assert said.code == 5
    assert "redirect" in said.out + said.err
    assert Elsewhere.seen == []


@pytest.mark.parametrize(
    "text",
    [
        "endpoint: !!python/object/apply:os.system ['touch pwned']\n",
        "endpoint: !!python/name:os.system\n",
        "a: &a [x, x]\nb: &b [*a, *a, *a]\nc: &c [*b, *b, *b]\nendpoint: [*c, *c]\n",
        "endpoint: " + "[" * 5000,
        "? {a: b}\n: c\n",
    ],
)
def test_yaml_is_data_and_never_code(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError):
        load_config(text, "sweep.yaml")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.fault("an answer without end")
def test_an_error_body_without_end_is_cut(tmp_path: Path) -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=500)
        await response.prepare(request)
        for _ in range(4000):
            await response.write(b"x" * 65536)
        return response

    routes = {"GET /v1/models": servers.models, "POST /v1/completions": endless, "POST /v1/chat/completions": endless}
    with servers.serving(routes) as url:
        said = frontier("probe", url, cwd=tmp_path)
    assert said.code == 5
    assert len(said.out) < 5000


@pytest.mark.slow
def test_nothing_listens_beyond_this_machine(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "frontier", "serve-sim", "--port", "0"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        me = psutil.Process(process.pid)
        listening = [c for p in [me, *me.children(recursive=True)] for c in p.net_connections() if c.status == "LISTEN"]
        assert listening
        assert {c.laddr.ip for c in listening} <= {"127.0.0.1", "::1"}
    finally:
        process.terminate()
        process.communicate(timeout=20)
