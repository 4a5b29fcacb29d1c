"""`--set key=value`: in its place, through the same validation, kept as a config that says the
same."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from frontier.config import Setting, config_text, load_config
from frontier.config.complaints import ConfigError
from frontier.config.load import rendered
from frontier.config.yaml_source import compose, fill
from tests.kit.complaints import assert_complaints, refused
from tests.kit.places import ROOT

TEXT = """\
# a sweep
endpoint: http://localhost:8000/v1
shapes: [1024/256]   # tokens
sla: {p99_ttft: 500ms}
deployments:
  - {name: bf16, quality: 0.5}
  - {name: fp8, endpoint: "http://localhost:8001/v1", price: $3/h}
"""


def settings(*texts: str) -> list[Setting]:
    return [Setting.of(text) for text in texts]


def test_settings_are_put_in_their_place() -> None:
    config = load_config(
        TEXT,
        "s.yaml",
        settings(
            "requests=600",
            "sla.p99_ttft=400ms",
            "sla.error_rate=1%",
            "budget.time=8h",
            "budget.until=07:00",
            "deployments.fp8.price=$4/h",
            "deployments.0.quality=0.9",
            "shapes=[64/16, 128/16]",
        ),
    )
    assert 600 == config.requests
    assert {"p99_ttft": 0.4, "error_rate": 0.01} == {limit.metric: limit.promise for limit in config.limits}
    assert (8 * 3600.0, "07:00") == (config.budget.time, config.budget.until)
    assert ([0.9, None], [None, 4.0]) == (
        [d.quality for d in config.deployments],
        [d.price for d in config.deployments],
    )
    assert ["64/16", "128/16"] == [shape.label for shape in config.shapes]


def test_a_later_setting_replaces_an_earlier_one() -> None:
    assert 7 == load_config(TEXT, "s.yaml", settings("requests=600", "requests=7")).requests


WRONG = [
    "requests=many",
    "reqests=5",
    "sla.p99_ttft=400",
    "sla.p99_tfft=400ms",
    "deployments.int4.price=$1/h",
    "endpoint.port=8",
    "requests=",
    "budget={until: 07:00}",
    "ignore_eos=no",
    "shapes=[64/16",
    "seed=1\nendpoint: http://evil",
]


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_setting_is_told_by_its_name_with_the_way_out(text: str) -> None:
    """No line of the file is to blame."""
    assert_complaints(refused(TEXT, text), f"--set {text}")


def test_a_key_in_a_setting_is_not_repeated() -> None:
    assert_complaints(refused(TEXT, "model=sk-abcdefghijklmnop1234"), "--set model=***")


def test_a_setting_without_a_value_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        Setting.of("requests")
    assert_complaints(caught.value.complaints, "--set requests")


def test_a_mistake_in_the_file_is_still_told_with_its_line() -> None:
    assert_complaints(refused(TEXT + "requests: many\n", "repeats=x"), (8, 11), "--set repeats=x")


def test_the_text_that_is_kept_says_the_same_and_how_it_came_about() -> None:
    given = settings("sla.p99_ttft=400ms", "budget.until=07:00")
    text = config_text(TEXT, "s.yaml", given)
    assert text.startswith("# s.yaml with  --set sla.p99_ttft=400ms\n")
    assert load_config(TEXT, "s.yaml", given) == load_config(text, "kept.yaml")
    assert TEXT == config_text(TEXT, "s.yaml"), "without settings it is the user's own"


@pytest.mark.parametrize("file", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda p: p.stem)
def test_every_ready_made_config_is_the_same_when_kept_with_a_setting(file: Path) -> None:
    text = file.read_text()
    given = settings("seed=7")
    assert load_config(text, file.name, given) == load_config(config_text(text, file.name, given), "kept.yaml")


@given(st.text(max_size=30))
def test_any_text_survives_being_kept(text: str) -> None:
    quoted = yaml.safe_dump(text, default_style='"', width=10**9).strip()
    root, doc = compose(f"model: {{a: [{quoted}]}}\n", "s.yaml")
    fill(doc, root)
    again, kept = compose(rendered(root), "kept.yaml")
    fill(kept, again)
    assert {"model": {"a": [text]}} == doc.tree == kept.tree
