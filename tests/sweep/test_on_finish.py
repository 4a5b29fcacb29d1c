"""`on_finish`: somebody is told how the sweep ended; bounded, without secrets, and whatever happens
to it."""

import json
import re
import time
from pathlib import Path

import pytest
from aiohttp import web

from frontier.config import load_config
from frontier.config.finish_keys import FinishConfig
from frontier.sweep.on_finish import notify, tell
from tests.kit import servers
from tests.kit.commands import frontier
from tests.kit.golden import assert_golden_row
from tests.kit.sweeps import commands_in_virtual_time, open_run

FACTS = {"schema": "frontier.finish/1", "run": "runs/a", "end": "finished", "exit_code": 0, "text": "met at 36"}

TINY = """\
endpoint: simulator
simulator: {step_base: 2ms, per_decode: 5us, per_prefill_token: 5us}
shapes: [32/4]
concurrency: [1]
sla: {p90_ttft: 1s}
requests: 40
repeats: 1
refine: 0
warmup: 50ms
"""


@pytest.mark.process
def test_a_command_is_told_by_input_and_environment_and_gets_no_key(tmp_path: Path) -> None:
    command = f'cat > {tmp_path}/facts; echo "$FRONTIER_END $FRONTIER_RUN $FRONTIER_TEXT [$KEY]" > {tmp_path}/said'
    finish = FinishConfig(command=command)
    assert notify(finish, FACTS, {"PATH": "/bin:/usr/bin", "KEY": "hunter2"}, {"KEY"}) is None
    assert FACTS == json.loads((tmp_path / "facts").read_text())
    assert "finished runs/a met at 36 []\n" == (tmp_path / "said").read_text()


@pytest.mark.process
def test_a_command_that_fails_is_said_without_secrets() -> None:
    finish = FinishConfig(command="echo the key is hunter2 >&2; exit 4")
    wrong = notify(finish, FACTS, {"PATH": "/bin", "KEY": "hunter2"}, {"KEY"})
    assert_golden_row("messages", wrong or "")


@pytest.mark.process
def test_a_command_that_hangs_is_ended(tmp_path: Path) -> None:
    began = time.monotonic()
    wrong = notify(FinishConfig(command="sleep 60 & sleep 60", within="300ms"), FACTS, {"PATH": "/bin:/usr/bin"})
    assert_golden_row("messages", wrong or "")
    assert time.monotonic() - began < 30


@pytest.mark.process
def test_a_webhook_gets_the_facts_and_its_address_stays_secret() -> None:
    seen: list[object] = []

    async def take(request: web.Request) -> web.StreamResponse:
        seen.append(await request.json())
        return web.json_response({})

    async def elsewhere(_: web.Request) -> web.StreamResponse:
        raise web.HTTPFound("/s3cr3t")

    with servers.serving({"POST /s3cr3t": take, "POST /moved": elsewhere}) as url:
        root = url.removesuffix("/v1")
        finish = FinishConfig(url="${HOOK}")
        assert notify(finish, FACTS, {"HOOK": f"{root}/s3cr3t"}) is None
        assert [FACTS] == seen
        wrong = [notify(finish, FACTS, {"HOOK": f"{root}/{path}"}) for path in ("moved", "none")]
    wrong += [notify(finish, FACTS, {"HOOK": f"{root}/s3cr3t"}), notify(finish, FACTS, {})]
    assert_golden_row("messages", "\n".join(filter(None, wrong)))


@pytest.mark.process
@pytest.mark.parametrize(("hook", "warned"), [("'cat > told.json'", False), ("'exit 9'", True)])
def test_a_sweep_tells_how_it_ended_and_ends_the_same_when_that_fails(hook: str, warned: bool, tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(f"{TINY}on_finish: {hook}\n")
    with commands_in_virtual_time():
        said = frontier("sweep", "sweep.yaml", cwd=tmp_path, here=True)
    assert said.code == 4, "too few requests for a claim"
    assert ("on_finish" in said.err) == warned
    if not warned:
        told = json.loads((tmp_path / "told.json").read_text())
        assert ("frontier.finish/1", "finished", said.code) == (told["schema"], told["end"], told["exit_code"])
        assert "32/4" == told["shapes"][0]["shape"]
        assert told["settings"] == told["measured"] == 1
        assert told["trials_finished"] == len(list(next((tmp_path / "runs").iterdir()).glob("trials/*.jsonl")))


@pytest.mark.process
def test_the_line_of_a_webhook_has_setting_throughput_and_the_tightest_limit(tmp_path: Path) -> None:
    text = TINY.replace("requests: 40", "requests: 400")
    (tmp_path / "sweep.yaml").write_text(f"{text}on_finish: 'cat > told.json'\n")
    with commands_in_virtual_time():
        assert 0 == frontier("sweep", "sweep.yaml", cwd=tmp_path, here=True).code
    _, _, told = json.loads((tmp_path / "told.json").read_text())["text"].partition(" finished; ")
    assert_golden_row("messages", re.sub(r"[0-9.,]+(?= (tok|ms))", "N", told))


@pytest.mark.process
def test_the_line_of_a_webhook_names_a_busy_machine(tmp_path: Path) -> None:
    config = load_config(f"{TINY}on_finish: 'cat > {tmp_path}/told.json'\n", "sweep.yaml")
    with open_run(tmp_path / "run", config, TINY) as run:
        run.journal("flagged", trial="default-32x4-c0001-grid-r1", flags=["client_bound"])
    assert tell(config, tmp_path / "run", "finished", 4, (), "", {"PATH": "/bin:/usr/bin"}) is None
    assert "this machine was busy: 1 of " in json.loads((tmp_path / "told.json").read_text())["text"]


@pytest.mark.process
def test_a_sweep_that_fails_tells_that(tmp_path: Path) -> None:
    text = TINY.replace("endpoint: simulator", "endpoint: http://127.0.0.1:9").replace("simulator:", "# simulator:")
    (tmp_path / "sweep.yaml").write_text(text + "on_finish: 'cat > told.json'\n")
    assert 5 == frontier("sweep", "sweep.yaml", cwd=tmp_path, here=True).code
    told = json.loads((tmp_path / "told.json").read_text())
    assert ("failed", 5) == (told["end"], told["exit_code"])
    assert "cannot reach" in told["text"]


@pytest.mark.process
def test_ctrl_c_while_the_answer_is_drawn_is_told_as_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sweep itself is over: its trials are kept, and who is told must not take it for a bug."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("frontier.cli.sweep.measure", lambda *_, **__: "finished")
    monkeypatch.setattr("frontier.cli.sweep._conclude", interrupted)
    (tmp_path / "sweep.yaml").write_text(f"{TINY}on_finish: 'cat > told.json'\n")
    assert 130 == frontier("sweep", "sweep.yaml", cwd=tmp_path, here=True).code
    told = json.loads((tmp_path / "told.json").read_text())
    assert ("finished", 130) == (told["end"], told["exit_code"])


def test_who_is_told_decides_nothing_that_is_measured() -> None:
    plain, telling = (load_config(TINY + more, "s") for more in ("", "on_finish: ./tell.sh\n"))
    assert plain.identity() == telling.identity()
    assert FinishConfig(command="./tell.sh") == telling.on_finish
    assert load_config(TINY + "on_finish: ${HOOK}\n", "s").on_finish == FinishConfig(url="${HOOK}")


@pytest.mark.parametrize(
    "url", ["http://[::1", "http://a..b/s3cr3t", "http://h:99999/s3cr3t", "s3cr3t", "http://\udcff"]
)
def test_a_webhook_that_is_no_address_is_said_and_not_repeated(url: str) -> None:
    wrong = notify(FinishConfig(url="${HOOK}"), FACTS, {"HOOK": url})
    assert wrong is not None
    assert wrong.startswith("on_finish: ")
    assert "s3cr3t" not in wrong


@pytest.mark.process
@pytest.mark.parametrize("before", [0, 3, 170])
def test_what_a_command_says_last_is_redacted_before_it_is_cut(before: int, tmp_path: Path) -> None:
    key = "k" + "0123456789abcdef" * 40
    (tmp_path / "said").write_text("." * 16_000 + key + "." * before)
    wrong = notify(
        FinishConfig(command=f"cat {tmp_path}/said >&2; exit 4"), FACTS, {"PATH": "/bin", "KEY": key}, {"KEY"}
    )
    assert wrong is not None
    assert "89abcdef" not in wrong
    assert wrong.endswith("***" + "." * before)


@pytest.mark.process
def test_a_sweep_without_a_list_has_no_count_of_listed_settings(tmp_path: Path) -> None:
    listed = "concurrency: [1]", "repeats: 1", "refine: 0"
    text = "\n".join(line for line in TINY.splitlines() if line not in listed)
    text += f"\non_finish: 'cat > {tmp_path}/told.json'\n"
    config = load_config(text, "sweep.yaml")
    with open_run(tmp_path / "run", config, text):
        assert tell(config, tmp_path / "run", "budget", 4, (), "", {"PATH": "/bin:/usr/bin"}) is None
    told = json.loads((tmp_path / "told.json").read_text())
    assert (told["settings"], told["measured"], told["trials_finished"]) == (None, None, 0)
