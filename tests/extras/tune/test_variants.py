"""Variants of a deployment: what `vary` makes of it, and mistakes in it."""

import shlex
import subprocess

import pytest

from frontier.config import load_config
from frontier.extras.tune.variants import variants_of
from tests.kit.complaints import assert_complaints, refused

HEAD = "endpoint: http://127.0.0.1:9\nshapes: [8/8]\nsla: {p99_ttft: 1s}\ndeployments:\n"


def made(deployment: str) -> dict[str, str | None]:
    """The commands of the variants of a deployment, by name: the same of the config and of the
    race.
    """
    text = HEAD + deployment
    config, variants = load_config(text, "s.yaml"), variants_of(text, "s.yaml")
    assert config.measured_by == "tune"
    assert [(d.name, d.start) for d in config.deployments] == [(v.name, v.start) for v in variants]
    return {v.name: v.start for v in variants}


def test_vary_makes_every_combination_the_first_of_each_first() -> None:
    commands = made("- {name: v, start: 'serve --s {s} --b {b}', vary: {s: [64, 128], b: [1, 2]}}\n")
    assert commands == {
        "v-s64-b1": "serve --s 64 --b 1",
        "v-s64-b2": "serve --s 64 --b 2",
        "v-s128-b1": "serve --s 128 --b 1",
        "v-s128-b2": "serve --s 128 --b 2",
    }


@pytest.mark.process
def test_a_value_is_one_word_a_list_several_and_null_none() -> None:
    values = "[plain, 'two words', '; rm -rf /', null, [--on, 'a b']]"
    commands = made(f"- {{name: v, start: 'printf %s. {{x}}', vary: {{x: {values}}}}}\n")
    said = [
        subprocess.run(["sh", "-c", str(c)], capture_output=True, text=True, check=True).stdout
        for c in commands.values()
    ]
    assert said == ["plain.", "two words.", "; rm -rf /.", ".", "--on.a b."]
    assert len(commands) == 5


def test_json_and_the_shells_own_variables_stay() -> None:
    start = """serve --json '{"a": {"b": 1}}' --key ${KEY} --n {n}"""
    commands = made(f"- name: v\n  start: >-\n    {start}\n  vary: {{n: [1, 2]}}\n")
    assert list(commands.values()) == [start.replace("{n}", n) for n in ("1", "2")]


def test_ready_and_stop_hold_values_too() -> None:
    text = HEAD + "- {name: v, start: 'a {p}', ready: {command: 'r {p}'}, stop: 's {p}', vary: {p: [1, 2]}}\n"
    first = load_config(text, "s.yaml").deployments[1]
    assert (first.start, first.ready.command, first.stop.command) == ("a 2", "r 2", "s 2")


def test_of_the_embedded_engine_the_names_are_its_parameters() -> None:
    text = (
        "shapes: [8/8]\nsla: {p99_ttft: 1s}\ndeployments:\n"
        "- {name: e, endpoint: simulator, simulator: {noise: 0.1, max_num_seqs: 4}, vary: {max_num_seqs: [8, null]}}\n"
    )
    specs = [d.engine_spec() for d in load_config(text, "s.yaml").deployments]
    assert [(s.max_num_seqs, s.noise) for s in specs] == [(8, 0.1), (256, 0.1)]


def test_variants_have_names_of_their_own() -> None:
    commands = made("- {name: v, start: 'serve {x}', variants: [{name: today, x: 1}, {name: new, x: [2, 3]}]}\n")
    assert commands == {"today": "serve 1", "new": "serve 2 3"}


def test_some_of_the_variants_race_alone_the_first_named_as_the_baseline() -> None:
    commands = made("- {name: v, start: 'serve {x}', vary: {x: [1, 2, 3]}, only: [v-x3, v-x1]}\n")
    assert list(commands.items()) == [("v-x3", "serve 3"), ("v-x1", "serve 1")]


def test_long_or_equal_names_are_numbers() -> None:
    commands = made(f"- {{name: v, start: 'serve {{x}}', vary: {{x: [{'a' * 70}, b]}}}}\n")
    assert list(commands) == ["v-1", "v-2"]
    assert len(made("- {name: v, start: 'serve {x}', vary: {x: ['a b', 'a+b']}}\n")) == 2


def test_a_config_without_variants_is_a_sweeps() -> None:
    config = load_config(HEAD + "- {name: v, start: serve}\n", "s.yaml")
    assert config.measured_by == "sweep"
    assert variants_of(HEAD + "- {name: v}\n", "s.yaml") == ()


MISTAKES = {
    "a name without a value": ("- {name: v, start: 'serve {x} {y}', vary: {x: [1, 2]}}\n", (5, 20)),
    "a value without a place": ("- {name: v, start: 'serve {x}', vary: {x: [1, 2], y: [3]}}\n", (5, 39)),
    "a name with a hyphen": ("- {name: v, start: 'serve {max-seqs}', vary: {max-seqs: [1, 2]}}\n", (5, 46)),
    "one combination": ("- {name: v, start: 'serve {x}', vary: {x: [1]}}\n", (5, 39)),
    "ten thousand": (
        f"- {{name: v, start: 's {{x}} {{y}}', vary: {{x: {list(range(100))}, y: {list(range(100))}}}}}\n",
        (5, 39),
    ),
    "no list": ("- {name: v, start: 'serve {x}', vary: {x: 1}}\n", (5, 43)),
    "nothing": ("- {name: v, start: 'serve', vary: }\n", (5, 34)),
    "nothing to start": ("- {name: v, vary: {x: [1, 2]}}\n", (5, 19)),
    "vary and variants": ("- {name: v, start: 's {x}', vary: {x: [1, 2]}, variants: [{name: a, x: 1}]}\n", (5, 58)),
    "a variant without a name": ("- {name: v, start: 's {x}', variants: [{x: 1}, {name: b, x: 2}]}\n", (5, 40)),
    "unlike variants": ("- {name: v, start: 's {x}', variants: [{name: a, x: 1}, {name: b, y: 2}]}\n", (5, 57)),
    "another deployment": ("- {name: v, start: 's {x}', vary: {x: [1, 2]}}\n- {name: w}\n", (6, 3)),
    "only one of them": ("- {name: v, start: 's {x}', vary: {x: [1, 2]}, only: [v-x1]}\n", (5, 54)),
    "only one that is none": ("- {name: v, start: 's {x}', vary: {x: [1, 2]}, only: [v-x1, v-x3]}\n", (5, 54)),
    "only one that is no name": ("- {name: v, start: 's {x}', vary: {x: [1, 2]}, only: [{v-x1: 1}]}\n", (5, 54)),
    "a name that is a list": ("- {name: v, start: 's {x}', variants: [{name: [a], x: 1}, {name: b, x: 2}]}\n", (5, 40)),
    "two of one name": ("- {name: v, start: 's {x}', variants: [{name: a, x: 1}, {name: a, x: 2}]}\n", (5, 64)),
    "a value twice": ("- {name: v, start: 's {x}', vary: {x: [1, 2, '1']}}\n", (5, 35)),
    "one that equals the baseline": (
        "- {name: v, start: 's {x}', variants: [{name: a, x: 1}, {name: b, x: 2}, {name: c, x: [1]}]}\n",
        (5, 39),
    ),
    "a name that is nothing": (
        "- {name: v, start: 's {x}', variants: [{name: null, x: 1}, {name: b, x: 2}]}\n",
        (5, 40),
    ),
    "a name twice in vary": ("- {name: v, start: 's {x}', vary: {x: [1, 2], x: [3, 4]}}\n", (5, 47)),
    "a name twice in a variant": (
        "- {name: v, start: 's {x}', variants: [{name: a, x: 1, x: 2}, {name: b, x: 2}]}\n",
        (5, 56),
    ),
    "vary twice": ("- {name: v, start: 's {x}', vary: {x: [1, 2]}, vary: {x: [3, 4]}}\n", (5, 48)),
    "start twice": ("- {name: v, start: 's {x}', vary: {x: [1, 2]}, start: 'r {x}'}\n", (5, 48)),
    "control characters": ('- {name: v, start: "s {x}", vary: {x: [1, "\\a"]}}\n', (5, 43)),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_is_one_line(mistake: str) -> None:
    text, place = MISTAKES[mistake]
    assert_complaints(refused(HEAD + text), place, part=mistake)


def test_a_parameter_that_the_engine_lacks_is_refused_at_its_value() -> None:
    text = "shapes: [8/8]\ndeployments:\n- {name: e, endpoint: simulator, vary: {seqs: [1, 2]}}\n"
    (complaint,) = refused(text)
    assert complaint.line == 3


def test_quoting_is_the_shells() -> None:
    commands = made("- {name: v, start: 'serve {x}', vary: {x: ['$(id)', '*']}}\n")
    assert [shlex.split(str(c)) for c in commands.values()] == [["serve", "$(id)"], ["serve", "*"]]
