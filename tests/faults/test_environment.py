"""Closed or full standard streams, narrow encodings, odd environments: an answer or one plain line,
never a crash."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from frontier.cli.common import layout
from frontier.cli.main import _mend_environment
from frontier.cli.streams import SafeStream
from frontier.read_run import load
from tests.kit import servers
from tests.kit.commands import frontier
from tests.kit.golden import assert_golden_row
from tests.kit.sweeps import own_exit_code, sweep_in_virtual_time

pytestmark = pytest.mark.process

STREAMS = "standard output or error closed, full or unread"
ODD = "an environment variable, a locale or an argument that nothing can be done with"


def closing(*descriptors: int) -> Callable[[], None]:
    """What a shell does for `2>&-`."""

    def before() -> None:
        for descriptor in descriptors:
            os.close(descriptor)

    return before


def filling(*descriptors: int) -> Callable[[], None]:
    """What a shell does for `> /dev/full`."""

    def before() -> None:
        for descriptor in descriptors:
            os.dup2(os.open("/dev/full", os.O_WRONLY), descriptor)

    return before


def run(*arguments: str, cwd: Path, before: Callable[[], None] | None = None, **environ: str) -> tuple[int, str, str]:
    """The real command in a process of its own: its exit code, and what reached its two streams."""
    done = subprocess.run(
        [sys.executable, "-m", "frontier", *arguments],
        cwd=cwd,
        env={**os.environ, **environ},
        preexec_fn=before,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


ANSWER = ("show", "--help")
"""The cheapest command that has an answer."""


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The answer as it is when nothing is wrong."""
    return run(*ANSWER, cwd=tmp_path_factory.mktemp("right"))[1]


@pytest.mark.fault(STREAMS)
@pytest.mark.parametrize(
    "closed", [(2,), pytest.param((0,), marks=pytest.mark.slow), pytest.param((0, 2), marks=pytest.mark.slow)]
)
def test_closed_standard_input_or_error_changes_no_answer(closed: tuple[int, ...], tmp_path: Path, shown: str) -> None:
    assert (0, shown, "") == run(*ANSWER, cwd=tmp_path, before=closing(*closed))


@pytest.mark.fault(STREAMS)
def test_with_closed_standard_output_the_answer_goes_to_standard_error(tmp_path: Path, shown: str) -> None:
    assert (0, "", shown) == run(*ANSWER, cwd=tmp_path, before=closing(1))


@pytest.mark.fault(STREAMS)
@pytest.mark.parametrize(
    "arguments",
    [("--help",), *(pytest.param(answer, marks=pytest.mark.slow) for answer in (ANSWER, ("init", "simulator")))],
)
def test_with_full_standard_output_the_answer_goes_to_standard_error_and_exits_5(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    _, wanted, conversation = run(*arguments, cwd=tmp_path)
    code, out, err = run(*arguments, cwd=tmp_path, before=filling(1))
    assert (5, "") == (code, out)
    failed = "error: cannot write to standard output: No space left on device\n  its text stands above\n"
    assert err == wanted + conversation + failed


@pytest.mark.fault(STREAMS)
@pytest.mark.parametrize("before", [closing(0, 1, 2), filling(1, 2)])
def test_the_exit_code_holds_where_nothing_can_be_written(before: Callable[[], None], tmp_path: Path) -> None:
    assert (2, "", "") == run("show", "--nope", cwd=tmp_path, before=before)


@pytest.mark.fault(STREAMS)
@pytest.mark.parametrize("before", [pytest.param(closing(2), marks=pytest.mark.slow), closing(0, 1, 2)])
def test_no_socket_gets_the_descriptor_of_a_standard_stream(before: Callable[[], None], tmp_path: Path) -> None:
    """uvloop aborts the process that has one there."""
    with servers.serving(servers.completing(servers.streaming(usage=True))) as url:
        assert 0 == run("probe", url, cwd=tmp_path, before=before)[0]


@pytest.mark.fault(STREAMS)
@pytest.mark.slow
@pytest.mark.parametrize("before", [closing(1, 2), filling(1, 2)])
def test_a_sweep_that_cannot_write_to_its_streams_keeps_its_trial(before: Callable[[], None], tmp_path: Path) -> None:
    with servers.serving(servers.completing(servers.streaming(usage=True))) as url:
        text = f"endpoint: {url}\nshapes: [16/4]\nconcurrency: [1]\nrequests: 5\nrepeats: 1\nrefine: 0\n"
        (tmp_path / "sweep.yaml").write_text(f"{text}warmup: 0\nmax_time: 1s\n")
        code, _, _ = run("sweep", "sweep.yaml", "-o", "run", cwd=tmp_path, before=before)
    assert code == own_exit_code(tmp_path / "run")  # five requests of four tokens may be flagged; they are kept
    assert len(load(tmp_path / "run").histories) == 1


@pytest.mark.fault(STREAMS)
@pytest.mark.parametrize(
    ("command", "code"),
    [
        (ANSWER, 0),
        pytest.param(("probe", "http://127.0.0.1:9/v1", "--json"), 5, marks=pytest.mark.slow),
    ],
)
def test_a_reader_that_closes_the_pipe_does_not_change_the_exit_code(
    command: tuple[str, ...], code: int, tmp_path: Path
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.run(
        [sys.executable, "-m", "frontier", *command],
        cwd=tmp_path,
        stdout=writing,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    os.close(writing)
    assert (code, b"") == (process.returncode, process.stderr)


def test_an_output_that_does_not_block_gets_every_byte() -> None:
    """Another process may have made a shared pipe non-blocking: the writer waits while it is
    full.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    text = "x" * 300_000
    reader = subprocess.Popen(["wc", "-c"], stdin=reading, stdout=subprocess.PIPE)
    os.close(reading)
    SafeStream(writing, "utf-8").write(text)
    os.close(writing)
    assert reader.communicate(timeout=10)[0].strip() == b"300000"


@pytest.mark.fault(ODD)
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-16", "ascii:strict"])
def test_characters_that_an_encoding_lacks_are_written_in_ascii(encoding: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "frontier", "--help"],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        timeout=60,
        check=False,
    )
    text = done.stdout.decode(encoding.partition(":")[0])
    assert (0, b"") == (done.returncode, done.stderr)
    assert "Exit codes: 0 yes " in text
    assert "?" not in text.replace("than A's?", "")


def test_signs_keep_their_meaning_in_ascii() -> None:
    reading, writing = os.pipe()
    SafeStream(writing, "ascii").write("p99 ≤ 5 µs, ≥ 1, [2, ∞], –, ü, ★, 漢\udcff")
    os.close(writing)
    assert os.read(reading, 100) == b"p99 <= 5 us, >= 1, [2, inf], -, u, *, ??"
    os.close(reading)


def test_a_mark_before_a_limit_is_a_word_in_ascii_and_the_columns_stay() -> None:
    reading, writing = os.pipe()
    SafeStream(writing, "ascii").write("✓  p95 TTFT\n✗  p95 TPOT\n?  errors\n✓✗\n")
    assert os.read(reading, 100) == b"ok p95 TTFT\nNO p95 TPOT\n?  errors\nokNO\n"
    os.close(reading)
    os.close(writing)


SIZES = ["", "abc", "0", "-5", "1", "1e3", "²", "9" * 5000, " 80 ", "100000"]


@pytest.mark.fault(ODD)
@pytest.mark.parametrize("size", SIZES)
def test_an_invalid_terminal_size_is_replaced(size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", size)
    assert 40 <= layout()["width"] <= 1_000
    environ = {"COLUMNS": size, "LINES": size, "TERM": "xterm"}
    _mend_environment(environ)
    assert ("COLUMNS" in environ) == ("LINES" in environ) == (size == "1")


@pytest.mark.fault(ODD)
@pytest.mark.parametrize("moment", ["abc", "", "-1", "1e9", "1" + "0" * 30])
def test_an_invalid_source_date_epoch_is_removed(moment: str) -> None:
    """numpy and matplotlib read it, and fail."""
    environ = {"SOURCE_DATE_EPOCH": moment}
    _mend_environment(environ)
    assert {} == environ
    _mend_environment(right := {"SOURCE_DATE_EPOCH": "1700000000"})
    assert {"SOURCE_DATE_EPOCH": "1700000000"} == right


@pytest.mark.fault(ODD)
@pytest.mark.parametrize(
    "environ",
    [
        {"COLUMNS": "²", "LINES": "abc", "SOURCE_DATE_EPOCH": "abc", "HOME": "/proc/none"},
        *(
            pytest.param(environ, marks=pytest.mark.slow)
            for environ in (
                {"TERM": "garbage", "FORCE_COLOR": "x", "TZ": "garbage"},
                {"PYTHONOPTIMIZE": "2"},
                {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
                {"XDG_CACHE_HOME": "/proc/none", "MPLCONFIGDIR": "/proc/none", "MPLBACKEND": "garbage"},
                {"TMPDIR": "/none", "HTTP_PROXY": "::", "NO_PROXY": "[", "SSL_CERT_FILE": "/none"},
            )
        ),
    ],
    ids=lambda environ: next(iter(environ)),
)
def test_an_odd_environment_changes_no_answer(environ: dict[str, str], tmp_path: Path) -> None:
    code, out, err = run("init", "simulator", cwd=tmp_path, **environ)
    wanted = frontier("init", "simulator", cwd=tmp_path)
    assert (0, wanted.err.split()) == (code, err.split()), "the plan and no warning"
    assert out.encode("ascii", "ignore") == wanted.out.encode("ascii", "ignore")


UNDRAWABLE = "matplotlib settings with which nothing can be drawn"
NIGHT = """\
endpoint: simulator
simulator: {step_base: 5ms, per_decode: 60us, per_prefill_token: 20us}
shapes: [64/8]
concurrency: [1, 8]
sla: {p50_ttft: 1s}
requests: 40
repeats: 1
refine: 0
"""


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a run and its config lie, and a matplotlibrc that matplotlib cannot read."""
    here = tmp_path_factory.mktemp("undrawable")
    sweep_in_virtual_time(here / "runs" / "night", NIGHT)
    (here / "sweep.yaml").write_text(NIGHT)
    (here / "matplotlibrc").write_bytes(b"\xff\xfe\x00font.size: 10")
    return here


def code_and_warnings(*arguments: str, cwd: Path, **environ: str) -> tuple[int, str, str]:
    code, out, err = run(*arguments, cwd=cwd, **environ)
    warnings = [line.removeprefix("warning: ") for line in err.splitlines() if "matplotlib" in line]
    return code, out, "\n".join(warnings)


@pytest.mark.fault(UNDRAWABLE)
def test_a_sweep_that_cannot_be_drawn_keeps_its_answer_and_exit_code(night: Path, tmp_path: Path) -> None:
    wanted = run("sweep", str(night / "sweep.yaml"), "-o", str(night / "runs" / "night"), cwd=tmp_path)
    assert 0 == wanted[0]
    code, out, warned = code_and_warnings("sweep", "sweep.yaml", "-o", "runs/night", cwd=night)
    assert (wanted[0], wanted[1]) == (code, out)
    assert_golden_row("messages", warned)


@pytest.mark.fault(UNDRAWABLE)
def test_plot_says_what_to_do_where_nothing_can_be_drawn(night: Path, tmp_path: Path) -> None:
    code, out, err = run("plot", str(night / "runs" / "night"), "-o", "x.png", cwd=tmp_path, MPLBACKEND="nonsense")
    assert (2, "") == (code, out)
    assert_golden_row("messages", re.sub("supported values are .*", "supported values are ...", err))


@pytest.mark.fault(UNDRAWABLE)
def test_a_report_that_cannot_be_drawn_is_written_without_pictures(night: Path) -> None:
    code, _, warned = code_and_warnings("report", "runs/night", "-o", "page.html", cwd=night)
    page = (night / "page.html").read_text()
    assert (0, 1, 0) == (code, page.count("matplotlib cannot be"), page.count("<svg"))
    assert "cannot be loaded" in warned


@pytest.mark.fault(UNDRAWABLE)
def test_a_notebook_shows_a_title_where_nothing_can_be_drawn(night: Path) -> None:
    code = "import frontier; print(frontier.load('runs/night').picture()._repr_svg_())"
    done = subprocess.run([sys.executable, "-c", code], cwd=night, capture_output=True, text=True, check=True)
    assert "None\n" == done.stdout
    assert "matplotlib cannot" in done.stderr


@pytest.mark.fault(ODD)
def test_an_argument_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    code, out, err = run("show", os.fsdecode(b"runs/\xff\xfe"), cwd=tmp_path)
    assert (2, "") == (code, out)
    assert_golden_row("messages", err)
