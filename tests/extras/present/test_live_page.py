"""`frontier report RUN --serve`: the page of a run under way, on loopback, drawn when asked."""

import json
import os
import signal
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from frontier.core.model.errors import UsageError
from frontier.extras.present import live_page
from frontier.extras.present.live_page import LivePage, serve
from tests.kit.commands import frontier, start, until_said
from tests.kit.sweeps import sweep_in_virtual_time

CONFIG = "endpoint: simulator\nshapes: [32/4]\nconcurrency: [1, 2]\nrequests: 40\nsla: {p50_ttft: 1s}\n"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    sweep_in_virtual_time(tmp_path / "run", CONFIG)
    return tmp_path / "run"


class Drawing:
    """A page that counts how often it was drawn."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> bytes:
        self.count += 1
        return f"drawn {self.count}".encode()


def test_it_is_drawn_when_asked_and_anew_only_after_a_trial_or_the_end(run: Path) -> None:
    drawing = Drawing()
    page = LivePage(run, drawing)
    assert 0 == drawing.count
    journal = run / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    done = [i for i, line in enumerate(lines) if json.loads(line)["event"] == "trial_done"]
    seen = []
    for upto in (done[0] + 1, done[0] + 1, done[1], done[1] + 1, len(lines), len(lines)):
        journal.write_text("".join(lines[:upto]))
        page.html()
        seen.append(drawing.count)
    assert [1, 1, 1, 2] == seen[:4]
    assert seen[4] == seen[5] > 2


def test_before_the_first_trial_it_says_so_in_words(run: Path, tmp_path: Path) -> None:
    def nothing() -> bytes:
        raise UsageError("no finished <trial>")

    assert b"no finished &lt;trial&gt;" in LivePage(run, nothing).html()
    assert b"gone" in LivePage(tmp_path / "gone", Drawing()).html()


@pytest.fixture
def address(run: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(live_page.os, "nice", lambda _: 0)
    told: list[str] = []
    there = threading.Event()
    servers: list[live_page.HTTPServer] = []

    class Kept(live_page.HTTPServer):
        def serve_forever(self, poll_interval: float = 0.05) -> None:
            servers.append(self)
            there.set()
            super().serve_forever(poll_interval)

    monkeypatch.setattr(live_page, "HTTPServer", Kept)
    thread = threading.Thread(target=serve, args=(LivePage(run, Drawing()), 0, told.append))
    thread.start()
    assert there.wait(10)
    yield told[0]
    servers[0].shutdown()
    thread.join()


@pytest.mark.process
def test_it_is_served_on_loopback_and_to_no_other_name(address: str) -> None:
    assert address.startswith("http://127.0.0.1:")
    with urllib.request.urlopen(address, timeout=10) as answer:
        assert (200, b"drawn 1") == (answer.status, answer.read())
    for url, host, status in ((address, "evil.example:80", 403), (f"{address}etc/passwd", "localhost:1", 404)):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(urllib.request.Request(url, headers={"Host": host}), timeout=10)
        with refused.value as answer:
            assert status == answer.code


@pytest.mark.process
def test_a_taken_port_and_two_outputs_are_refused_in_a_line(run: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        said = frontier("report", str(run), "--serve", port, cwd=run.parent)
    assert 2 == said.code
    assert f"127.0.0.1:{port}" in said.error
    assert 2 == frontier("report", str(run), "--serve", "0", "-o", "page.html", cwd=run.parent).code


@pytest.mark.process
def test_the_command_serves_the_page_until_it_is_stopped_and_touches_nothing(run: Path) -> None:
    def stamps() -> dict[Path, int]:
        """When each file was written, but for what can be derived again."""
        return {p: p.stat().st_mtime_ns for p in run.rglob("*") if p.is_file() and "derived" not in p.parts}

    before = stamps()
    process = start("report", str(run), "--serve", cwd=run.parent)
    try:
        url = until_said(process, r"http://127\.0\.0\.1:\d+/")[0]
        assert 19 == os.getpriority(os.PRIO_PROCESS, process.pid)
        with urllib.request.urlopen(url, timeout=60) as answer:
            assert b"What would make this false" in answer.read()
        assert before == stamps()
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert process.returncode in (0, 130)
