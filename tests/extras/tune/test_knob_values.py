"""Values of a knob: the deployments that `apply` and `vary` make, and mistakes in them."""

import pytest

from frontier.config import load_config
from tests.kit.complaints import assert_complaints, refused

HEAD = "endpoint: http://127.0.0.1:9\nshapes: [8/8]\nsla: {p99_ttft: 1s}\ndeployments:\n"
CHECK = "apply: 's {w}', check: c"


def test_each_value_is_a_deployment_on_the_same_server() -> None:
    text = HEAD + "- {name: g, vary: {w: [400, 0.5]}, apply: 'set {w} ${w} {v}', check: get, settle: 2s}\n"
    config = load_config(text.replace(" {v}", ""), "s.yaml")
    assert config.measured_by == "sweep"
    assert ["g-w400", "g-w0.5"] == [d.name for d in config.deployments]
    lines = [d.apply.line(d.apply.value) for d in config.deployments if d.apply]
    assert lines == ["set 400 ${w}", "set 0.5 ${w}"]
    assert {("get", 2.0)} == {(d.check, d.settle) for d in config.deployments}
    assert any("set {w} ${w}" in effect.text for effect in config.effects)
    assert any("run  get" in effect.text for effect in config.effects)


def test_another_value_is_another_measurement_and_another_check_is_not() -> None:
    text = HEAD + f"- {{name: g, vary: {{w: [400, 320]}}, {CHECK}}}\n"
    first, second = (load_config(text.replace("check: c", f"check: {c}"), "s.yaml") for c in ("c", "d"))
    assert first.identity() == second.identity()
    a, b = first.deployments
    assert a.canonical() != b.canonical()


MISTAKES = {
    "start": (f"- {{name: g, vary: {{w: [1, 2]}}, {CHECK}, start: x}}\n", (5, 39)),
    "no check": ("- {name: g, vary: {w: [1, 2]}, apply: 's {w}'}\n", (5, 39)),
    "no values": (f"- {{name: g, {CHECK}}}\n", (5, 20)),
    "no place": ("- {name: g, vary: {w: [1, 2]}, apply: s, check: c}\n", (5, 19)),
    "no number": (f"- {{name: g, vary: {{w: [1, high]}}, {CHECK}}}\n", (5, 27)),
    "one number twice": (f"- {{name: g, vary: {{w: [400, 320, 4e2]}}, {CHECK}}}\n", (5, 34)),
    "nothing": (f"- {{name: g, vary: {{w: [1, null]}}, {CHECK}}}\n", (5, 27)),
    "two knobs": ("- {name: g, vary: {w: [1, 2], v: [1, 2]}, apply: 's {w} {v}', check: c}\n", (5, 19)),
    "another deployment": (f"- {{name: g, vary: {{w: [1, 2]}}, {CHECK}}}\n- {{name: h}}\n", (6, 3)),
    "embedded engine": (f"- {{name: g, endpoint: simulator, vary: {{w: [1, 2]}}, {CHECK}}}\n", (5, 60)),
    "no command": ("- {name: g, vary: {w: [1, 2]}, apply: {a: b}, check: c}\n", (5, 39)),
    "check alone": ("- {name: g, check: c}\n", (5, 13)),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_is_one_line(mistake: str) -> None:
    text, place = MISTAKES[mistake]
    assert_complaints(refused(HEAD + text), place, part=mistake)


def test_apply_for_all_deployments_is_refused() -> None:
    assert refused(f"apply: 's {{w}}'\n{HEAD}- {{name: g}}\n")
