"""A metric that a config names has what it needs, or is refused in one line with its place."""

import pytest

from frontier.config import load_config
from frontier.core.model.errors import FrontierError
from frontier.core.model.metrics import NEEDS
from frontier.run import HOW_TO_GIVE

TEXT = """\
endpoint: http://localhost:8000/v1
shapes: [512/256]
concurrency: [1, 8]
"""
MISTAKES = {
    "sla: {p99_ttft: 500ms, background_throughput: 100}": "sweep.yaml:4:",
    "sla: {chat: {p99_ttft: 500ms}, batch: {background_throughput: 100}}": "needs a background",
    "objectives: [background_throughput, p99_ttft]": "sweep.yaml:4:14",
    "objectives: [cost, p99_ttft]": "needs a price",
    "objectives: [goodput, p99_ttft]": "there are none",
    "sla: {cost: 2}": "needs a price",
    "sla: {quality: 0.9}": "a quality that is not known",
    "sla: {agreement: 0.9}": "measured after it",
    "sla: {energy: 0.5}": "only when it is over",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_what_the_config_cannot_give_is_said_with_its_line(line: str) -> None:
    with pytest.raises(FrontierError) as refused:
        load_config(f"{TEXT}{line}\n", "sweep.yaml")
    assert MISTAKES[line] in str(refused.value)


def test_a_need_is_said_once() -> None:
    with pytest.raises(FrontierError) as refused:
        load_config(f"{TEXT}sla: {{a: {{cost: 2}}, b: {{cost: 3}}}}\n", "sweep.yaml")
    assert 1 == str(refused.value).count("needs a price")


def test_each_need_can_be_given_to_a_finished_run() -> None:
    assert set(NEEDS.values()) == set(HOW_TO_GIVE)
