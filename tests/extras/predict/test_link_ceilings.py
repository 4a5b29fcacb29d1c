"""Links between two real processes, by gloo; skipped without torch (the lane `engines` has one)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from frontier.extras.predict.ceilings import ROUNDS
from frontier.extras.predict.link_ceilings import bus_factor

RANK = """
import sys, time, torch
from frontier.core.model.errors import MeasurementError
from frontier.extras.predict.link_ceilings import Links, Place, joined
rank, port, hangs = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
place = Place(rank, 2, "127.0.0.1", port, "cpu", 2**22, f"node-{rank}")
try:
    links = joined(torch, place, rank == 0, patience=4)
    if hangs == "later" and rank == 1:
        links._sizes = lambda *_: time.sleep(60) or []
    links.measure(0.01)
except MeasurementError as error:
    print(f"{error}")
    sys.exit(5)
print("measured")
"""


def free_port() -> int:
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@pytest.mark.process
def test_two_processes_measure_their_links_and_the_figures_agree(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    words = (sys.executable, "-m", "frontier", "ceilings", "--device", "cpu", "--links", "--seconds", "0.01", "--json")
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    tree = json.loads(done.stdout)
    assert len(tree["hosts"]) == 2
    links = {line["name"]: line for line in tree["ceilings"] if line["seconds"] is not None}
    for operation in ("all_reduce", "all_to_all", "send"):
        assert 0 < links[f"{operation}_latency"]["seconds"] < 1
        line = links[f"{operation}_32768"]
        assert len(line["rounds"]) == ROUNDS
        assert line["algorithm"] == pytest.approx(32_768 / line["seconds"])
        assert line["measured"] == pytest.approx(bus_factor(operation, 2) * line["algorithm"])
    assert "link" in tree["hardware"]


@pytest.mark.process
@pytest.mark.parametrize("hangs", ["never", "later"])
def test_a_host_that_hangs_in_an_operation_is_named_within_its_time(tmp_path: Path, hangs: str) -> None:
    pytest.importorskip("torch")
    port = str(free_port())
    ranks = [
        subprocess.Popen(
            (sys.executable, "-c", RANK, str(rank), port, hangs),
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=dict(os.environ),
        )
        for rank in range(2)
    ]
    try:
        out, err = ranks[0].communicate(timeout=90)
    finally:
        for rank in ranks:
            rank.kill()
        for rank in ranks:
            rank.communicate()
    if hangs == "never":
        assert "measured" in out, err
    else:
        assert ranks[0].returncode == 5, err
        assert "rank 1 on node-1" in out


@pytest.mark.process
def test_a_rank_that_never_comes_is_named(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    words = (sys.executable, "-c", RANK, "0", str(free_port()), "never")
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=90)
    assert done.returncode == 5, done.stderr
    assert "rank 1" in done.stdout
