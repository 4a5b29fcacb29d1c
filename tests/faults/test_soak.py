"""The soak's short form: one sweep under random faults and one after them, and every request
accounted for."""

import subprocess
import sys
import time

import pytest

from benchmarks import soak
from benchmarks.soak import Account, tell
from tests.kit.golden import assert_golden_row
from tests.kit.places import ROOT


@pytest.mark.nightly
@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_sweep_of_faults_is_accounted_for_to_the_last_request() -> None:
    command = [sys.executable, "-m", "benchmarks.soak", "0.25", "--seed", str(time.time_ns() % 10**6)]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert said.returncode == 0, said.stdout + said.stderr
    assert said.stdout.rstrip().endswith("exact")


def counted(sent: int = 10, arrived: int = 10, resident: tuple[float, ...] = (100.0,)) -> Account:
    account = Account(sent=sent, arrived=arrived, resident=list(resident))
    account.classes["ok"] = 10
    return account


@pytest.mark.parametrize(
    ("account", "faults"),
    [
        (counted(), 0),
        (counted(arrived=9), 1),
        (counted(arrived=11), 1),
        (counted(sent=11, arrived=11), 1),
        (counted(resident=(100, 100, 104, 104, 109, 109)), 0),
        (counted(resident=(100, 100, 104, 104, 111, 111)), 1),
    ],
)
def test_a_wrong_request_count_or_growing_memory_fails_the_soak(
    account: Account, faults: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def whole(*_: object) -> Account:
        tell(account)
        return account

    monkeypatch.setattr(soak, "soak", whole)
    monkeypatch.setattr(sys, "argv", ["soak", "30"])
    with pytest.raises(SystemExit) as end:
        soak.main()
    assert (end.value.code, len(account.faults)) == (faults, faults)
    assert_golden_row("pages", capsys.readouterr().out)
