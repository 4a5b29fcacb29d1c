"""The replay of sweeps that measures the time left."""

import pytest

from benchmarks import time_left
from benchmarks.calibration.servers import Process
from benchmarks.calibration.sweep import MOST, Sweep
from benchmarks.time_left import Reading


def test_a_reading_is_right_within_the_factor_in_both_directions():
    right = [Reading(0, said, 1000.0, 90.0).right for said in (59.0, 60.0, 90.0, 135.0, 136.0)]
    assert right == [False, True, True, True, False]


def test_the_table_counts_readings_and_bounds():
    found = [Reading(t, said, bound, 100.0) for t in time_left.TENTHS for said, bound in ((100, 120), (30, 80))]
    lines = time_left.table(found).splitlines()
    assert lines[1].split() == ["0", "%", "2", "0.65", "50%", "50%"]
    assert lines[-2].split() == ["all", "20", "0.65", "50%", "50%"]


def test_the_table_tells_the_stages_apart():
    found = [Reading(0, 30.0, 80.0, 100.0), Reading(1, 100.0, 120.0, 100.0, "proofs")]
    lines = [line.split() for line in time_left.table(found).splitlines()]
    assert ["scan", "1", "0.30", "0%", "0%"] in lines
    assert ["proofs", "1", "1.00", "100%", "100%"] in lines
    assert "completion" not in {line[0] for line in lines}, "no reading was taken in it"


def test_in_hindsight_each_state_has_the_factor_that_makes_most_of_its_readings_right():
    said = {("scan",): (10.0, 12.0, 300.0), ("proofs", 1): (400.0, 500.0)}
    found = [Reading(0, s, 0.0, 100.0, state=state) for state, each in said.items() for s in each]
    best = time_left.in_hindsight(found)
    assert [False, True, True, True, True] == sorted(reading.right for reading in best)
    assert {reading.state for reading in best} == set(said)
    assert not any(reading.right for reading in found)


@pytest.mark.slow
def test_a_replayed_sweep_ends_by_itself_and_is_the_same_again():
    server = Process.drawn("fixed_lengths", 0)
    sweep, again = Sweep(server, 1), Sweep(server, 1)
    steps = sweep.run()
    assert steps == again.run()
    assert steps[0].at == 0
    assert len(steps) == len(sweep.taken) < MOST
    assert sweep.expected(steps[5]) == again.expected(steps[5])
    assert sum(amount.seconds for _, amount in sweep.taken) == sweep.clock
    readings = time_left.readings(server, 1)
    assert [r.tenth for r in readings] == list(time_left.TENTHS)
    stages = [time_left.STAGES.index(r.stage) for r in readings]
    assert stages == sorted(stages)
    assert (0, 2) == (stages[0], stages[-1])
    assert [r.true / readings[0].true for r in readings] == pytest.approx([1 - t / 10 for t in time_left.TENTHS])
