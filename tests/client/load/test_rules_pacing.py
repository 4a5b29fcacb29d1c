"""Pacing of a closed loop: first requests of random length, and delays that never exceed a decode
step."""

import numpy as np
import pytest

from frontier.client.load.rules import Pacing, first_length


def test_first_lengths_are_uniform_decided_by_seed_and_stream_and_never_empty():
    drawn = [first_length(100, 7, stream) for stream in range(4000)]
    assert drawn == [first_length(100, 7, stream) for stream in range(4000)]
    assert drawn != [first_length(100, 8, stream) for stream in range(4000)]
    assert (1, 100) == (min(drawn), max(drawn))
    counts = np.bincount(drawn, minlength=101)[1:].reshape(10, 10).sum(axis=1)
    assert counts == pytest.approx(400, abs=5 * 20)
    assert {1} == {first_length(1, 7, stream) for stream in range(50)}


def test_a_send_close_behind_another_waits_until_half_a_mean_gap_has_passed():
    pacing = Pacing(10)
    assert 0.0 == pacing.delay(5.0, 0.02, 2.0)
    assert pacing.delay(5.09, 0.02, 2.0) == pytest.approx(0.01)  # a send at 5.10: half of 2.0 / 10 after the last
    assert 0.0 == pacing.delay(5.21, 0.02, 2.0)


def test_no_delay_is_longer_than_a_decode_step_or_a_small_share_of_a_request():
    for tpot, e2e, most in [(0.02, 2.0, 0.02), (0.5, 2.0, 0.03)]:
        pacing = Pacing(10)
        delays = [pacing.delay(5.0, tpot, e2e) for _ in range(20)]
        assert 0.0 == delays[0]
        assert most == pytest.approx(max(delays))


@pytest.mark.parametrize(("streams", "tpot", "e2e"), [(1, 0.02, 2.0), (8, None, 2.0), (8, None, None)])
def test_a_single_stream_and_answers_without_a_known_step_never_wait(streams, tpot, e2e):
    pacing = Pacing(streams)
    assert {0.0} == {pacing.delay(5.0, tpot, e2e) for _ in range(5)}
