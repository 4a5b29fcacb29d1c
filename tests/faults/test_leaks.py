"""A key whose variable has no telling name, planted where a text comes from outside or is copied:
no byte of a run, a page, a webhook or a terminal holds it or its encodings."""

import base64
import itertools
import json
import random
import re
import string
from pathlib import Path

import pytest
from aiohttp import web

from frontier.client.secrets import Secrets, forget, masked, remember
from frontier.config import Setting, load_config
from frontier.config.complaints import ConfigError
from frontier.config.config_file import config_of
from frontier.config.kept_text import kept_text
from frontier.store.run_dir import RunDirectory
from tests.faults.encodings import ENCODINGS, leaked
from tests.faults.test_security import CONFIG, Mimic, everything, look_from_all_sides
from tests.kit import servers
from tests.kit.commands import Said, frontier

KEY = "Nq7/planted-Key+5f1e0c77"
SECRETS = Secrets.of([KEY])
TEXT = """\
# {key} is the key
endpoint: http://h:1/v1   # {key}
api_key_env: KEY1
shapes: [8/8]
concurrency:   # [{key}]
  - 1
  # - {key}
on_finish:
  command: |  # {key}
    echo done # not a comment of YAML
    #{hash}
"""


@pytest.mark.fault("a key said back")
def test_base64_hides_no_key_whatever_stands_beside_it() -> None:
    rng, letters = random.Random(3), string.ascii_letters + string.digits + "-_.~/+="
    for size, before, after in itertools.product((6, 7, 8, 20, 41), ("", "u", "u:", "usr:", "user:"), ("", "x", "xyz")):
        key = "".join(rng.choices(letters, k=size))
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            coded = encode(f"{before}{key}{after}".encode()).decode()
            for text in (coded, coded.rstrip("="), coded.lower(), f"Zm9v{coded}", " ".join(coded)):
                said = Secrets.of([key]).redact(text)
                assert "***" in said
                assert text != coded or leaked(said, key) is None


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_comment_is_masked_and_the_config_stays_the_same(encoding: str) -> None:
    coded = ENCODINGS[encoding](KEY)
    text = TEXT.format(key=coded, hash="")
    kept = kept_text(text, "sweep.yaml", (), SECRETS)
    assert kept.count("***") >= 5
    assert leaked(kept, KEY) is None
    before, after = (load_config(one, "sweep.yaml") for one in (text, kept))
    assert (before.identity(), before.canonical()) == (after.identity(), after.canonical())
    assert before.on_finish == after.on_finish


def test_without_a_secret_the_text_is_kept_as_it_is() -> None:
    text = TEXT.format(key="none", hash="")
    assert kept_text(text, "sweep.yaml", (), SECRETS) == text


VALUES = {
    "extra_body": "extra_body: {{user: '{key}'}}",
    "a list in it": "extra_body: {{user: [1, {{of: 'x{key}x'}}]}}",
    "a key in it": "extra_body: {{'{key}': 1}}",
    "a header": "headers: {{X-Who: '{key}'}}",
    "start": "start: vllm serve m --api-key '{key}'",
    "name": "name: '{key}'",
    "on_finish": "on_finish: {{command: 'curl -d {key} h'}}",
    "several lines": "on_finish:\n  command: |\n    #{key}\n",
}


@pytest.mark.parametrize("place", VALUES)
@pytest.mark.parametrize("encoding", ["plain", "url", "base64", "base64 behind two bytes", "hexadecimal"])
def test_a_value_that_holds_a_key_is_refused_with_its_line(place: str, encoding: str) -> None:
    line = VALUES[place].format(key=ENCODINGS[encoding](KEY))
    with pytest.raises(ConfigError) as refused:
        kept_text(f"endpoint: http://h:1/v1\n{line}\nshapes: [8/8]\n", "sweep.yaml", (), SECRETS)
    (complaint,) = refused.value.complaints
    assert complaint.line in (2, 3)
    assert complaint.hint is not None
    assert leaked(f"{refused.value} {complaint.source_line}", KEY) is None


def test_an_escape_hides_no_key_and_a_setting_is_named() -> None:
    escaped = '"' + "".join(f"\\x{ord(ch):02x}" for ch in KEY) + '"'
    for text, settings in (
        (f"endpoint: http://h:1/v1\nextra_body: {{user: {escaped}}}\n", ()),
        ("endpoint: http://h:1/v1\n", (Setting.of(f"extra_body.user={KEY}"),)),
    ):
        with pytest.raises(ConfigError) as refused:
            kept_text(text, "sweep.yaml", settings, SECRETS)
        assert leaked(str(refused.value), KEY) is None


def test_a_short_key_or_a_part_of_a_long_one_blocks_no_config() -> None:
    text = "endpoint: http://h:1/v1\ndialect: ollama\nmodel: llama-3.1-8b\n# ollama\n"
    kept = kept_text(text, "sweep.yaml", (), Secrets.of(["ollama", "llama-3.1-8b-key"]))
    assert kept == text.replace("# ollama", "# ***")


def test_what_a_process_has_read_is_masked_until_another_command() -> None:
    remember(SECRETS)
    try:
        assert masked(f"see {KEY}") == "see ***"
    finally:
        forget()
    assert masked(f"see {KEY}") == f"see {KEY}"


class Hook:
    """A webhook that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[bytes] = []

    async def hear(self, request: web.Request) -> web.StreamResponse:
        self.told.append(await request.read())
        return web.Response()


LOOKS = (
    ("show", "-v"),
    ("solve", "--json"),
    ("show", "--json"),
    ("status",),
    ("report", "-o", "page.html"),
    ("plot", "-o", "picture.svg"),
    ("export", "--csv"),
)


@pytest.mark.process
@pytest.mark.fault("a key said back")
@pytest.mark.parametrize("given", ["api_key_env: KEY1", "api_key_file: key"])
def test_no_byte_of_a_run_its_page_or_its_webhook_holds_a_planted_key(given: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY + "\n")
    (tmp_path / "key").chmod(0o600)
    mimic, hook = Mimic(), Hook()
    planted = " ".join(encode(KEY) for name, encode in ENCODINGS.items() if "first half" not in name)
    with servers.serving({**mimic.routes(), "POST /hook": hook.hear}) as url:
        environ = {"KEY1": KEY, "HOOK": url.removesuffix("/v1") + "/hook"}
        more = f"{given}  # {planted}\nmodel: sim\napi: completions\ndialect: vllm\non_finish: {{url: '${{HOOK}}'}}"
        text = CONFIG.format(url=url, more=more).replace("requests: 5", "requests: 40").replace("[1, 2]", "[2]")
        (tmp_path / "sweep.yaml").write_text(text + f"# {planted}\n")
        said = [frontier("sweep", "sweep.yaml", cwd=tmp_path, here=True, **environ) for _ in range(2)]
    assert f"Bearer {KEY}" in mimic.seen
    run = RunDirectory.read(next((tmp_path / "runs").iterdir()))
    assert config_of(run).identity() == run.manifest["identity"]
    events = [line["event"] for line in run.journal_lines()]
    assert "resumed" in events, "the same command goes on in the run whose config was masked"
    said += look_from_all_sides(tmp_path, LOOKS, **environ)
    page = (tmp_path / "page.html").read_text()
    assert "frontier sweep sweep.yaml" in page, "what goes on is the user's own config"
    assert len(hook.told) == 2
    for line in _lines(everything(tmp_path, [*said, Said(0, b"\n".join(hook.told).decode(), "")])):
        assert leaked(line, KEY) is None, line


def _lines(data: bytes) -> set[str]:
    return set(re.split(r"\\n|[\n>]", data.decode(errors="replace")))


@pytest.mark.process
def test_a_sweep_whose_config_holds_the_key_ends_with_the_line_and_leaves_nothing(tmp_path: Path) -> None:
    more = f"api_key_env: KEY1\nextra_body: {{user: '{KEY}'}}"
    (tmp_path / "sweep.yaml").write_text(CONFIG.format(url="http://127.0.0.1:9/v1", more=more))
    said = [
        frontier("sweep", "sweep.yaml", *options, cwd=tmp_path, here=True, KEY1=KEY) for options in ((), ("--dry-run",))
    ]
    assert [one.code for one in said] == [2, 2]
    for one in said:
        assert "sweep.yaml:3" in one.err
        assert leaked(one.out + one.err, KEY) is None
    assert not (tmp_path / "runs").exists()


@pytest.mark.process
def test_the_page_of_an_earlier_run_masks_what_its_config_holds(tmp_path: Path) -> None:
    text = "endpoint: simulator\nshapes: [16/4]\nconcurrency: [1]\nrequests: 5\nrepeats: 1\nrefine: 0\nmax_time: 2s\n"
    (tmp_path / "sweep.yaml").write_text(text)
    frontier("sweep", "sweep.yaml", "-o", "run", cwd=tmp_path, here=True)
    kept = tmp_path / "run" / "config.yaml"
    kept.write_text(kept.read_text() + f"# {KEY}\non_finish: {{url: '${{KEY1}}'}}\n")
    said = frontier("report", "run", "-o", "page.html", cwd=tmp_path, KEY1=KEY)
    assert said.code == 0, said.err
    assert leaked((tmp_path / "page.html").read_text(), KEY) is None


def test_a_reason_in_a_journal_is_masked(tmp_path: Path) -> None:
    from frontier.store.files import Folder
    from frontier.store.journal import Journal

    remember(SECRETS)
    try:
        Journal(Folder(tmp_path)).append("failed", reason=f"it said {base64.b64encode(f'me:{KEY}'.encode()).decode()}")
    finally:
        forget()
    (line,) = (tmp_path / "journal.jsonl").read_text().splitlines()
    assert leaked(json.loads(line)["reason"], KEY) is None
