"""The replay of sweeps that measures the time left."""

import pytest

from benchmarks import time_left
from benchmarks.calibration.servers import Process
from benchmarks.calibration.sweep import MOST, Sweep
from benchmarks.time_left import Reading
from frontier.planning.time_left import SPREAD, TimeLeft


def test_a_range_holds_within_the_spread_in_both_directions_and_a_least_time_upwards():
    ends = (90.0 / SPREAD, 90.0 * SPREAD)
    said = (ends[0] * 0.99, ends[0] * 1.01, 90.0, ends[1] * 0.99, ends[1] * 1.01)
    assert [False, True, True, True, False] == [Reading(0, TimeLeft(s), 90.0).holds for s in said]
    assert [True, True, True, True, False] == [Reading(0, TimeLeft(s, open=True), 90.0).holds for s in said]


def test_the_table_counts_readings_by_tenth_and_stage_and_the_sweeps_that_are_held():
    held = [Reading(t, TimeLeft(100.0), 100.0, "completion") for t in time_left.TENTHS]
    not_held = [Reading(t, TimeLeft(300.0, open=True), 100.0, "proofs") for t in time_left.TENTHS]
    lines = time_left.table([held, not_held, []]).splitlines()
    rows = {line.split()[0]: line.split() for line in lines}
    assert "50%" == rows["all"][-1]
    assert ("0%", "100%") == (rows["proofs"][-1], rows["completion"][-1])
    assert "scan" not in rows, "no reading was taken in it"
    assert ["1", "2"] == [lines[-1].split()[0], lines[-1].split()[2]]


@pytest.mark.slow
def test_a_replayed_sweep_ends_by_itself_and_is_the_same_again():
    server = Process.drawn("fixed_lengths", 0)
    sweep, again = Sweep(server, 1), Sweep(server, 1)
    steps = sweep.run()
    assert steps == again.run()
    assert steps[0].at == 0
    assert len(steps) == len(sweep.taken) < MOST
    assert sweep.time_left(steps[0]) is None
    assert sweep.time_left(steps[5]) == again.time_left(steps[5])
    assert sweep.time_left(steps[5]) is not None
    assert sum(amount.seconds for _, amount in sweep.taken) == sweep.clock
    readings = time_left.readings(sweep, steps)
    assert [r.tenth for r in readings] == list(time_left.TENTHS)[1:], "at its start nothing is known"
    stages = [time_left.STAGES.index(r.stage) for r in readings]
    # After the scan come a look for the corner of a full server, and better candidates.
    assert stages[stages.index(max(1, stages[0])) :].count(0) <= 1
    assert 2 == stages[-1]
    assert [r.true / sweep.clock for r in readings] == pytest.approx([1 - r.tenth / 10 for r in readings])
