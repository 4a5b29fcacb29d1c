"""Results of one setting: repeats, or several deployments that only their files' names tell
apart."""

import pytest

from frontier.extras.exchange.assemble import Assembled, assemble
from tests.kit.peer_files import said, vllm


def runs(*throughputs: float) -> Assembled:
    return assemble([said(vllm(output_throughput=each, total_token_throughput=None)) for each in throughputs])


@pytest.mark.parametrize(("throughputs", "noted"), [((640.0, 660.0), False), ((640.0, 850.0), True)])
def test_runs_that_differ_more_than_repeats_do_are_noted(throughputs: tuple[float, ...], noted: bool) -> None:
    made = runs(*throughputs)
    assert [2] == [point.repeats for point in made.points]
    assert noted is any("33%" in note and "--deployment" in note for note in made.notes)
