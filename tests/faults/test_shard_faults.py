"""Shards as on several hosts: network namespaces joined by veth pairs, a full disk under one shard.

Each test runs a shell script in namespaces of its own, which end with it: processes, networks and
mounts leave nothing behind, however the test ends.
"""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from frontier.store.run_dir import RunDirectory
from tests.commands import frontier
from tests.neutral import line_of

pytestmark = pytest.mark.timeout(300)
NAMESPACE = [
    "unshare",
    "--user",
    "--map-root-user",
    "--mount",
    "--net",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
]
GRID = """\
endpoint: http://10.77.0.1:8000/v1
proxy: none
shapes: [32/16]
concurrency: [5]
repeats: 1
warmup: 700ms
max_time: 2s
"""
HOSTS = """\
ip link set lo up || exit 99
ip addr add 10.77.0.1/32 dev lo || exit 99
host() {  # a network namespace that reaches this one's 10.77.0.1 over a veth pair; $host1 is the process that holds it
    unshare --net sleep 290 & eval "host$1=$!"
    until [ "$(readlink /proc/$!/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
    ip link add out$1 type veth peer name in$1 || exit 99
    ip link set in$1 netns $! || exit 99
    ip addr add 10.77.$1.1/24 dev out$1; ip link set out$1 up
    nsenter -t $! -n sh -c "ip addr add 10.77.$1.2/24 dev in$1; ip link set in$1 up
        ip route add 10.77.0.1 via 10.77.$1.1"
}
host 1; host 2
{before}
began=$(date +%s)
$PY -m frontier serve-sim --host 10.77.0.1 --port 8000 --set step_base=4ms 2> server.err &
until $PY -c "import socket; socket.create_connection(('10.77.0.1', 8000))" 2> /dev/null; do sleep 0.2; done
start=$((4 * $(date +%s) - 3 * began + 6))  # after some starts of a process: the busier this machine, the later
shard() {  # one of two shards, on the host of that process
    nsenter -t $2 -n $PY -m frontier shard grid.yaml --index $1 --of 2 --start-at $start -o night 2> shard$1.err
}
shard 0 $host1 & first=$!
shard 1 $host2 & second=$!
"""


def on_hosts(script: str, folder: Path, before: str = "") -> str:
    """What the script prints after two hosts have begun a shard each, in the background; `before`
    runs before that.
    """
    missing = [tool for tool in ("unshare", "nsenter", "ip") if shutil.which(tool) is None]
    if missing or subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode:
        pytest.skip(f"network namespaces are not available here ({', '.join(missing) or 'not allowed'})")
    (folder / "grid.yaml").write_text(GRID)
    whole = HOSTS.replace("{before}", before) + textwrap.dedent(script)
    said = subprocess.run(
        [*NAMESPACE, "sh", "-c", whole],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "PY": sys.executable, "NO_COLOR": "1"},
    )
    if said.returncode == 99:
        pytest.skip(f"network namespaces are not available here: {said.stderr}")
    return said.stdout + said.stderr + "".join(path.read_text() for path in sorted(folder.glob("*.err")))


@pytest.mark.process
@pytest.mark.slow
def test_shards_on_two_hosts_measure_a_server_on_a_third(tmp_path: Path) -> None:
    said = on_hosts(
        """\
        for host in $host1 $host2; do
            nsenter -t $host -n $PY -c "import socket; socket.create_connection(('127.0.0.1', 8000))" 2> /dev/null \\
                && echo "reached $host"
        done
        wait $first; echo "first $?"; wait $second; echo "second $?"
        """,
        tmp_path,
    )
    assert "first 0\nsecond 0\n" in said
    assert "reached" not in said, "each is a host of its own"
    merged = frontier("merge", "night", "-o", "runs/night", cwd=tmp_path)
    assert (0, True) == (merged.code, "1 trial merged" in merged.err), merged.err
    run = RunDirectory.read(tmp_path / "runs" / "night")
    (measurement,) = run.finished().values()
    assert [3, 2] == [worker.streams for worker in measurement.workers]
    assert set(range(5)) == {record.stream for record in run.records(measurement.trial.key)}
    shown = frontier("show", "runs/night", cwd=tmp_path)
    assert "2 client processes" in line_of(shown.out, "c=5 of 32/16")


@pytest.mark.process
@pytest.mark.fault("a full disk under one shard", times=1)
@pytest.mark.slow
def test_a_full_disk_under_one_shard_ends_it_and_the_merge_names_it(tmp_path: Path) -> None:
    disk = tmp_path / "night" / "shard-0001-of-0002"
    disk.mkdir(parents=True)
    said = on_hosts(
        f"""\
        while ! ls {disk}/trials/*.part > /dev/null 2>&1; do sleep 0.1; done
        dd if=/dev/zero of={disk}/ballast bs=4k 2> /dev/null
        wait $first; echo "first $?"; wait $second; echo "second $?"
        rm {disk}/ballast
        $PY -m frontier merge night -o runs/night; echo "merge $?"
        """,
        tmp_path,
        before=f"mount -t tmpfs -o size=8m tmpfs {disk} || exit 99",
    )
    assert "first 0\nsecond 5\nmerge 2\n" in said
    assert "shard-0001-of-0002" in line_of(said, "no space")
    assert "Traceback" not in said
    assert "shard-0001-of-0002 was not finished" in said
    assert not (tmp_path / "runs").exists()
