"""What a user is told when something is wrong: the message, the way out, the exit code, and no
traceback."""

import contextlib
import fcntl
import json
import os
import pty
import shlex
import socket
import ssl
import struct
import sys
import termios
import threading
from pathlib import Path

import pytest
import trustme

from frontier.cli.common import wrapped
from frontier.cli.main import run
from frontier.cli.sweep import command as sweep_command
from frontier.cli.sweep_request import read_request
from frontier.config import load_config
from frontier.core.model.decisions import Cause
from frontier.core.model.metrics import metric
from frontier.core.model.trials import Outcome
from frontier.planning.plan import NO_PROOFS
from frontier.read_run import load
from frontier.store.run_dir import RunDirectory
from tests.kit import servers
from tests.kit.commands import Said, frontier
from tests.kit.golden import assert_golden_row
from tests.kit.sweeps import ENGINES, config_text, open_run, sweep_in_virtual_time

CONFIG = """\
endpoint: {endpoint}
shapes: [16/4]
concurrency: [1]
sla: {{p99_ttft: 500ms}}
requests: 5
repeats: 1
refine: 0
max_time: 2s
"""


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The parent of one finished run, `run`, to be read only."""
    here = tmp_path_factory.mktemp("night")
    sweep_in_virtual_time(here / "run", config_text(ENGINES["smooth"]))
    return here


def sweep(tmp_path: Path, endpoint: str, extra: str = "", **environ: str) -> Said:
    (tmp_path / "sweep.yaml").write_text(CONFIG.format(endpoint=endpoint) + extra)
    said = frontier("sweep", "sweep.yaml", cwd=tmp_path, here=True, **environ)
    assert "Traceback" not in said.err
    return said


@pytest.mark.process
def test_an_endpoint_that_is_down_is_named_with_a_way_out(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        said = sweep(tmp_path, url)
    assert said.code == 5
    assert url.removesuffix("/v1") in said.err
    assert "frontier probe" in said.err


@pytest.mark.process
def test_a_wrong_model_is_answered_with_the_right_ones(tmp_path: Path) -> None:
    with servers.serving(servers.completing(servers.streaming(usage=True))) as url:
        said = sweep(tmp_path, url, "model: simm\n")
    assert said.code == 5
    assert_golden_row("messages", said.error.replace(url.removesuffix("/v1"), "SERVER"))


@pytest.mark.process
def test_a_server_that_does_not_stream_is_refused(tmp_path: Path) -> None:
    with servers.serving(servers.completing(servers.whole_answer)) as url:
        said = sweep(tmp_path, url)
    assert said.code == 5
    assert_golden_row("messages", said.error.replace(url.removesuffix("/v1"), "SERVER"))


@pytest.mark.process
def test_a_server_without_usage_is_refused(tmp_path: Path) -> None:
    with servers.serving(servers.completing(servers.streaming(usage=False))) as url:
        said = sweep(tmp_path, url)
    assert said.code == 5
    assert_golden_row("messages", said.error.replace(url.removesuffix("/v1"), "SERVER"))


@pytest.mark.process
@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_is_said_with_the_key_to_set(tmp_path: Path, status: int) -> None:
    refuse = servers.refusing(status, "bad key")
    routes = {**servers.completing(refuse), "GET /v1/models": refuse}
    with servers.serving(routes) as url:
        said = sweep(tmp_path, url)
    assert said.code == 5
    assert str(status) in said.err
    assert "api_key_env" in said.err


@pytest.mark.smoke
def test_a_key_is_in_no_file_and_no_message(tmp_path: Path) -> None:
    refuse = servers.refusing(401, "the key sekret-9f3 is not valid")
    routes = {**servers.completing(refuse), "GET /v1/models": refuse}
    with servers.serving(routes) as url:
        said = sweep(tmp_path, url, "api_key_env: MY_KEY\n", MY_KEY="sekret-9f3")
    assert said.code == 5
    assert "sekret-9f3" not in said.out + said.err
    for file in tmp_path.rglob("*"):
        assert file.is_dir() or b"sekret-9f3" not in file.read_bytes(), file


def test_a_variable_that_is_not_set_is_named(tmp_path: Path) -> None:
    said = sweep(tmp_path, "http://127.0.0.1:9/v1", "api_key_env: NO_SUCH_KEY_HERE\n")
    assert said.code == 2
    assert "NO_SUCH_KEY_HERE" in said.err
    assert_golden_row("messages", said.error)


@pytest.mark.process
def test_a_certificate_nobody_trusts_is_said_so(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    with servers.serving(servers.completing(servers.streaming(usage=True)), context) as url:
        said = sweep(tmp_path, url)
    assert said.code == 5
    assert "certificate" in said.err
    assert "tls" in said.err


@pytest.mark.process
def test_a_certificate_of_an_own_authority_is_accepted_when_named(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with servers.serving(servers.completing(servers.streaming(usage=True)), context) as url:
        said = sweep(tmp_path, url, f"tls: {{ca: {tmp_path / 'ca.pem'}}}\n")
    (run,) = (tmp_path / "runs").iterdir()
    outcomes = [record.outcome for record in RunDirectory.read(run).records("default-16x4-c0001-grid-r1")]
    assert outcomes.count(Outcome.OK) >= 5, said.err
    assert {Outcome.OK} == set(outcomes) - {Outcome.CANCELLED}, "those in flight at the end are cancelled"


def test_every_config_mistake_is_said_at_once_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(
        "endpoint: simulator\nconcurency: [1, 2]\nshapes: [256/32]\nsla: {p99_ttft: 500}\nrequests: 1e3\n"
    )
    said = frontier("sweep", "sweep.yaml", cwd=tmp_path, here=True)
    assert said.code == 2
    assert "Traceback" not in said.err
    for place in ("sweep.yaml:2:1", "sweep.yaml:4:17", "sweep.yaml:5:11"):
        assert place in said.err
    assert_golden_row("complaints", said.err)
    assert not (tmp_path / "runs").exists()


def test_a_config_that_is_not_there_is_said_with_how_to_make_one(tmp_path: Path) -> None:
    said = frontier("sweep", "nothing.yaml", cwd=tmp_path, here=True)
    assert (said.code, said.out) == (2, "")
    assert "frontier init" in said.err
    assert_golden_row("messages", said.err)


@pytest.mark.process
@pytest.mark.slow
def test_a_run_directory_of_another_sweep_is_refused_with_the_difference(tmp_path: Path) -> None:
    with servers.serving(servers.completing(servers.streaming(usage=True))) as url:
        text = CONFIG.format(endpoint=url)
        (tmp_path / "a.yaml").write_text(text)
        (tmp_path / "b.yaml").write_text(text.replace("16/4", "32/4"))
        frontier("sweep", "a.yaml", "-o", "run", cwd=tmp_path)
        said = frontier("sweep", "b.yaml", "-o", "run", "--set", "seed=7", cwd=tmp_path)
    assert said.code == 2
    assert "frontier sweep b.yaml -o run-2 --set seed=7" in said.err
    assert_golden_row("messages", said.error)


def test_the_command_for_a_run_elsewhere_asks_for_the_same(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(CONFIG.format(endpoint="simulator"))
    run, other = tmp_path / "run", tmp_path / "run-2"
    options = "--set requests=9 --set 'sla.p50_ttft=1 s' --only 16/4 --until 07:00 --prometheus 0"
    with sweep_command.make_context("sweep", [str(file), "--json", "-o", str(run), *shlex.split(options)]):
        asked = read_request(str(file), run, ["requests=9", "sla.p50_ttft=1 s"], "07:00", NO_PROOFS)
    assert asked.again == f"frontier sweep {file} -o {run} {options}"
    assert asked.command(other) == f"frontier sweep {file} -o {other} {options}"
    assert asked.command(None) == f"frontier sweep {file} {options}"


def test_no_permission_to_write_is_said_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(CONFIG.format(endpoint="simulator"))
    locked = Path("/proc/frontier") if os.geteuid() == 0 else tmp_path / "locked" / "run"
    if os.geteuid() != 0:
        (tmp_path / "locked").mkdir(mode=0o500)
    said = frontier("sweep", "sweep.yaml", "-o", locked, cwd=tmp_path, here=True)
    assert said.code == 2
    assert "-o DIR" in said.err
    assert "Traceback" not in said.err


def test_without_any_run_show_says_how_to_make_one(tmp_path: Path) -> None:
    for command in ("show", "solve", "plot"):
        said = frontier(command, cwd=tmp_path)
        assert (said.code, said.out) == (2, "")
        assert "frontier sweep CONFIG" in said.err


@pytest.mark.parametrize(("asked", "offered"), [("latencies", "latency"), ("zzz", "timeline")])
def test_a_figure_that_there_is_not_is_answered_with_those_there_are(asked: str, offered: str, tmp_path: Path) -> None:
    said = frontier("plot", "--figure", asked, cwd=tmp_path, here=True)
    assert (2, "") == (said.code, said.out)
    assert offered in said.error
    assert_golden_row("messages", said.err)


def test_a_run_that_ended_before_its_first_trial_says_why(tmp_path: Path) -> None:
    text = CONFIG.format(endpoint="http://127.0.0.1:9/v1")
    with open_run(tmp_path / "run", load_config(text, "sweep.yaml"), text) as opened:
        opened.journal("failed", reason="cannot reach http://127.0.0.1:9: connection refused")
    for command in ("show", "solve", "plot", "plot --figure tails", "report -o r.html", "export --csv", "verify"):
        first, *more = command.split()
        said = frontier(first, "run", *more, cwd=tmp_path, here=True)
        assert (5, "") == (said.code, said.out), command
        assert_golden_row("messages", said.err)
    assert said == frontier("compare", "run", "run", cwd=tmp_path)
    shown = frontier("show", "run", "--json", cwd=tmp_path)
    assert (5, []) == (shown.code, json.loads(shown.out)["points"])


def test_a_mistyped_command_is_answered_with_the_right_one(tmp_path: Path) -> None:
    said = frontier("sovle", cwd=tmp_path)
    assert said.code == 2
    assert "solve" in said.err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("sweep", "--model", "m"), "--set model="),
        (("sweep", "--max-time", "5s"), "--set max_time="),
        (("serve-sim", "--model", "m"), "serve-sim --help"),
        (("sweep", "--modle", "m"), "sweep --help"),
    ],
)
def test_a_key_of_the_config_given_as_an_option_is_answered_with_how_to_give_it(
    words: tuple[str, ...], hint: str, tmp_path: Path
) -> None:
    said = frontier(*words, cwd=tmp_path, here=True)
    assert said.code == 2
    assert hint in said.err.splitlines()[-1]


NO_ADDRESSES = (
    "http://[::1",
    "http://[]",
    "http://[::1]x",
    "http://::1:8000/v1",
    "http://host:99999",
    "http://host:0",
    "http://host:abc",
    "http://host:80:80",
    "http://",
    "http:///v1",
    "http://:80",
    "http://a\x01b",
    "http://a b",
    "http://xn--",
    "http://\ud800",
    "http://a..b",
    f"http://{'a' * 64}.com",
    f"http://{'a' * 100_000}",
    "http://h\\x",
    "http://%zz/",
    "http://b\u00fccher.example",
)
"""What splits into no address, splits and cannot be connected to, or cannot even be encoded."""


@pytest.mark.parametrize("where", ["probe", "quick", "init", "set", "proxy"])
def test_an_address_that_is_none_is_a_mistake_wherever_it_is_given(where: str, tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(CONFIG.format(endpoint="http://127.0.0.1:9") + "proxy: env\n")
    for url in NO_ADDRESSES:
        environ: dict[str, str] = {}
        arguments: tuple[str, ...] = (where, url)
        if where == "set":
            arguments = ("sweep", "sweep.yaml", "--dry-run", "--set", f"endpoint={url}")
        if where == "proxy":
            if "\ud800" in url:
                continue  # no environment holds it
            arguments, environ = ("probe", "sweep.yaml"), {"http_proxy": url, "no_proxy": ""}
        said = frontier(*arguments, cwd=tmp_path, here=True, **environ)
        assert said.code == 2, (url[:60], said)
        assert said.err.startswith("error: ")
        assert len(said.err.splitlines()) <= 3
        assert len(said.err) < 400


def test_every_address_of_a_config_that_is_none_is_told_where_it_stands(tmp_path: Path) -> None:
    for url in NO_ADDRESSES:
        (tmp_path / "sweep.yaml").write_text(
            f"shapes: [8/8]\nendpoint: {json.dumps(url)}\nmetrics: [{json.dumps(url)}]\non_finish: {json.dumps(url)}\n"
        )
        said = frontier("sweep", "sweep.yaml", "--dry-run", cwd=tmp_path, here=True)
        assert said.code == 2, (url[:60], said)
        if len(url) < 1000:
            assert [] == [line for line in (2, 3, 4) if f"sweep.yaml:{line}:" not in said.err], said.err


@pytest.mark.parametrize("url", ["http://user:hunter2@h", "http://user@h", "http://u:hunter2@[::1", "http://u:hunter2"])
@pytest.mark.parametrize("command", ["probe", "quick", "init"])
def test_a_password_in_an_address_is_not_repeated(command: str, url: str, tmp_path: Path) -> None:
    said = frontier(command, url, cwd=tmp_path, here=True)
    assert said.code == 2
    assert "hunter2" not in said.out + said.err


NUMBERS = ["", " ", "nan", "inf", "-inf", "1e300", "1e-300", "1e999", "0x10", "²", "9" * 400, "9" * 5000, "-1"]
OPTIONS = {
    "--until": ("sweep", "sweep.yaml", "--dry-run", "--until"),
    "--prometheus": ("sweep", "sweep.yaml", "--dry-run", "--prometheus"),
    "--requests": ("verify", "run", "--requests"),
    "--load": ("verify", "run", "--load"),
    "--efficiency": ("predict", "sweep.yaml", "--efficiency"),
    "--concurrency": ("predict", "run", "--concurrency"),
    "--what-if": ("predict", "sweep.yaml", "--what-if"),
    "--at": ("plot", "run", "--figure", "timeline", "--at"),
    "--width": ("plot", "run", "--width"),
    "--within": ("compare", "run", "run", "--within"),
    "--wait": ("probe", "http://127.0.0.1:9/v1", "--wait"),
    "--seconds": ("ceilings", "--device", "cpu", "--seconds"),
    "--port": ("serve-sim", "--port"),
}


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("option", OPTIONS)
def test_a_number_that_cannot_be_is_refused_in_a_few_short_lines(
    option: str, number: str, night: Path, tmp_path: Path
) -> None:
    (tmp_path / "sweep.yaml").write_text(CONFIG.format(endpoint="simulator"))
    if option == "--what-if":
        number = f"isl={number}"
    cwd = night if "run" in OPTIONS[option] else tmp_path
    said = frontier(*OPTIONS[option], number, cwd=cwd, here=True)
    assert (2, "") == (said.code, said.out)
    assert option.strip("-") in said.err
    assert max(len(line) for line in said.err.splitlines()) < 250


def test_a_load_that_takes_for_ever_is_refused_with_what_may_be_asked(night: Path) -> None:
    for share in ("1e-300", "0.9%", "0", "-80%", "nan%", "1001%", "1e300"):
        said = frontier("verify", "run", "--load", share, cwd=night, here=True)
        assert (2, "") == (said.code, said.out), share
        assert_golden_row("messages", said.err.replace(repr(share), "SHARE"))


def test_a_time_that_is_past_is_refused_while_something_is_left_to_do(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(CONFIG.format(endpoint="simulator"))
    for dry in (("--dry-run",), ()):
        said = frontier("sweep", "sweep.yaml", *dry, "--until", "2000-01-01 00:00", cwd=tmp_path, here=True)
        assert (2, "") == (said.code, said.out)
        assert_golden_row("messages", said.error, "--until")
    with (tmp_path / "sweep.yaml").open("a") as file:
        file.write('budget: {until: "2000-01-01 00:00"}\n')
    said = frontier("sweep", "sweep.yaml", cwd=tmp_path, here=True)
    assert said.code == 2
    assert_golden_row("messages", said.error, "budget.until")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("name", ["p99_tpot", "p99_itl", "p50_interactivity"])
def test_a_limit_on_what_one_token_cannot_have_is_said_before_and_after(name: str, tmp_path: Path) -> None:
    limit = "{p50_interactivity: 20}" if name == "p50_interactivity" else f"{{{name}: 30ms}}"
    text = config_text(ENGINES["smooth"], sla=limit, requests=40).replace("256/32", "16/1")
    text = text.replace("[1, 2, 4, 8, 16, 32, 64]", "[1]").replace("repeats: 3", "repeats: 1")
    (tmp_path / "sweep.yaml").write_text(text)
    said = frontier("sweep", "sweep.yaml", "--dry-run", cwd=tmp_path)
    assert f"sweep.yaml:5: {name}" in said.err
    assert_golden_row("messages", said.err)
    sweep_in_virtual_time(tmp_path / "run", text)
    said = frontier("solve", "run", "--json", cwd=tmp_path)
    (shape,) = json.loads(said.out)["shapes"]
    assert said.code == 4
    (decision,) = load(tmp_path / "run").solve()
    undefined = decision.explanation.reasons[0]
    assert (Cause.UNDEFINED, name) == (undefined.cause, undefined.metric)
    assert metric(name).label in shape["notes"][0]


def test_a_config_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_bytes(b"endpoint: simulator\nname: \xff\n")
    for command, *more in (("sweep",), ("sweep", "--dry-run"), ("predict",), ("probe",), ("serve-sim",)):
        said = frontier(command, "sweep.yaml", *more, cwd=tmp_path, here=True)
        assert (2, "") == (said.code, said.out), command
        assert_golden_row("messages", said.err)


@pytest.mark.parametrize("host", ["", " ", "\x00", "a" * 70 + ".b"])
def test_a_host_that_cannot_be_is_refused(host: str, tmp_path: Path) -> None:
    said = frontier("serve-sim", "--host", host, "--port", "0", cwd=tmp_path, here=True)
    assert (2, "") == (said.code, said.out)
    assert "error: " in said.err


KEYS = ("sk-abcdefghijklmnopqrstuvwxyz0123", "hunter2", "Zx81kLmP0qRsT77uVwX9yz", "a key with spaces")


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("command", ["probe", "quick", "init"])
def test_a_key_given_for_a_variables_name_is_not_repeated(command: str, key: str, tmp_path: Path) -> None:
    said = frontier(command, "http://127.0.0.1:9/v1", "--api-key-env", key, cwd=tmp_path, here=True)
    assert (2, "") == (said.code, said.out)
    assert key not in said.err
    assert "--api-key-env" in said.err


@pytest.mark.parametrize("command", ["probe", "quick", "init"])
def test_a_variable_without_a_name_is_refused(command: str, tmp_path: Path) -> None:
    said = frontier(command, "http://127.0.0.1:9/v1", "--api-key-env", "", cwd=tmp_path, here=True)
    assert (2, "") == (said.code, said.out)
    assert "--api-key-env" in said.err


def test_a_key_given_for_its_files_name_is_not_repeated(tmp_path: Path) -> None:
    said = sweep(tmp_path, "http://127.0.0.1:9/v1", "api_key_file: Zx81kLmP0qRsT77uVwX9yz\n")
    assert (2, False) == (said.code, "Zx81k" in said.err)
    assert "api_key_file" in said.err


@pytest.mark.process
def test_a_refusal_names_the_commands_own_option(tmp_path: Path) -> None:
    refuse = servers.refusing(401, "no key")
    routes = {**servers.completing(refuse), "GET /v1/models": refuse}
    with servers.serving(routes) as url:
        bare = [frontier(command, url, cwd=tmp_path, here=True) for command in ("probe", "quick")]
        keyed = [
            frontier(command, url, "--api-key-env", "A_KEY", cwd=tmp_path, here=True, A_KEY="sekret-9f3")
            for command in ("probe", "quick")
        ]
    assert [5] * 4 == [said.code for said in (*bare, *keyed)]
    assert [1, 1] == [(said.out + said.err).count("--api-key-env") for said in bare]
    assert [] == [said for said in keyed if "sekret" in said.out + said.err]
    _, quick = keyed
    what, hint = quick.error.removeprefix("error: ").splitlines()
    assert what in keyed[0].out
    assert hint.strip() in keyed[0].out
    assert_golden_row("messages", quick.error.replace(url.removesuffix("/v1"), "SERVER"))


@pytest.mark.parametrize(("limit", "hint"), [("cost<=1", "--set 'price=$12/h'"), ("energy<=1", "hardware.power=")])
@pytest.mark.parametrize("command", ["solve", "report", "verify"])
def test_a_limit_on_what_is_not_known_says_how_to_make_it_known(
    command: str, limit: str, hint: str, night: Path
) -> None:
    said = frontier(command, "run", "--sla", f"p99_ttft<=1s, {limit}", cwd=night, here=True)
    assert (2, "") == (said.code, said.out)
    assert hint in said.err
    if command == "solve":
        known = frontier("solve", "run", "--sla", "cost<=1", "--set", "price=$12/h", cwd=night)
        assert known.code == 3


PROSE = "A sentence of the answer that is longer than any terminal is wide, and goes on for quite a while after that."


def test_prose_is_broken_between_words_and_a_command_is_not() -> None:
    command = "  frontier sweep a/very/long/path/to/a/config.yaml --set budget.time=90min -o runs/2026-11-22-night"
    text = wrapped(f"{PROSE}\n    {PROSE}\n{command}\nshort", 40)
    lines = text.split("\n")
    assert [command, "short"] == lines[-2:]
    assert max(map(len, lines[:-2])) <= 40
    assert f"{PROSE} {PROSE}" == " ".join(" ".join(lines[:-2]).split())
    indented = lines[len(wrapped(PROSE, 40).split("\n")) : -2]
    assert len(indented) >= 3
    assert [] == [line for line in indented if not line.startswith("    ")]


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_what_is_said_on_a_terminal_is_not_broken_inside_a_word(columns: int, tmp_path: Path) -> None:
    sweep_in_virtual_time(tmp_path / "run", config_text(ENGINES["smooth"]))
    journal = tmp_path / "run" / "journal.jsonl"
    last = json.dumps({"time": 1.0, "event": "failed", "reason": PROSE})
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:-1]) + last + "\n")
    for arguments in (["show", "run"], ["status", "run"], ["solve", "run"]):
        shown = on_a_terminal(columns, *arguments, cwd=tmp_path)
        assert PROSE[-30:] in " ".join(shown.split()), arguments
        prose = [line for line in shown.splitlines() if not line.strip().startswith("frontier ")]
        assert max(map(len, prose)) <= columns, arguments


def on_a_terminal(columns: int, *arguments: str, cwd: Path) -> str:
    """What `frontier ARGUMENTS` writes on a terminal of so many columns, without colour."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    shown: list[bytes] = []

    def read() -> None:
        with contextlib.suppress(OSError):  # how a terminal ends
            while part := os.read(ours, 65536):
                shown.append(part)

    reader = threading.Thread(target=read)
    reader.start()
    with os.fdopen(theirs, "w") as terminal, pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_COLOR", "1")
        patch.setattr(sys, "stdout", terminal)
        patch.setattr(sys, "stderr", terminal)
        patch.chdir(cwd)
        assert run(list(arguments)) == 0
    reader.join(30)
    os.close(ours)
    return b"".join(shown).decode().replace("\r\n", "\n")
