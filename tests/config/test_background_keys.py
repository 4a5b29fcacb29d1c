"""The key `background`: what it makes of one shape, and each mistake in one line."""

import pytest

from frontier.config import load_config
from frontier.core.model.errors import FrontierError

TEXT = """\
endpoint: http://localhost:8000/v1
shapes: [{name: chat, isl: 512, osl: 256}]
concurrency: 32
background: {shape: 8192/512, concurrency: [8, 0, 64], extra_body: {priority: 10}}
sla: {p99_ttft: 500ms}
"""


def test_each_amount_is_a_series_of_the_shape_beside_it() -> None:
    config = load_config(TEXT, "sweep.yaml")
    assert ["chat background 0", "chat background 8", "chat background 64"] == [s.label for s in config.shapes]
    assert [("8192/512", 0), ("8192/512", 8), ("8192/512", 64)] == [
        (s.background.shape.label, s.background.streams) for s in config.shapes if s.background
    ]
    assert "background_throughput" == config.objectives[0]
    assert {(512, 256)} == {(s.isl.low, s.osl.low) for s in config.shapes}


def test_what_is_sent_with_it_makes_another_sweep() -> None:
    identities = {
        load_config(TEXT.replace(old, new), "sweep.yaml").identity()
        for old, new in (("", ""), ("priority: 10", "priority: 5"), ("8192/512", "4096/512"), ("64]", "32]"))
    }
    assert 4 == len(identities)


MISTAKES = (
    ("concurrency: 32", "concurrency: [16, 32]", "2 numbers"),
    ("concurrency: 32", "concurrency: auto", "auto"),
    ("concurrency: 32", "rate: [1, 2]", "rate"),
    ("sla: {p99_ttft: 500ms}", "", "sla"),
    ("[{name: chat, isl: 512, osl: 256}]", "[512/256, 1024/256]", "there are 2"),
    ("{name: chat, isl: 512, osl: 256}", "{name: a, turns: 4, first: 64, per_turn: 8/8}", "session"),
    ("shape: 8192/512", "shape: {name: a, turns: 4, first: 64, per_turn: 8/8}", "single requests"),
    ("[8, 0, 64]", "[8, 8]", "twice"),
    ("[8, 0, 64]", "[-1]", "-1"),
    ("[8, 0, 64]", "auto", "auto"),
    ("[8, 0, 64]", "[]", "no list"),
    ("priority: 10", "max_tokens: 10", "max_tokens"),
    ("shape: 8192/512, ", "", "shape"),
    ("background: {", "background: {share: 10%, ", "share"),
    ("background: {shape: 8192/512, concurrency: [8, 0, 64], extra_body: {priority: 10}}", "background: 8", "8"),
    ("sla:", "workers: ray\nsla:", "ray"),
    ("sla:", "traffic: {chat: {share: 50%}, b: {}}\nsla:", "traffic"),
    ("{p99_ttft: 500ms}", "{p99_ttft: 500ms, background_throughput: 100}", "is looked for"),
)


@pytest.mark.parametrize(("old", "new", "said"), MISTAKES)
def test_a_mistake_is_named(old: str, new: str, said: str) -> None:
    assert old in TEXT
    with pytest.raises(FrontierError) as refused:
        load_config(TEXT.replace(old, new), "sweep.yaml")
    assert said in str(refused.value)
