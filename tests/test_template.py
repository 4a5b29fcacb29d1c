"""What `frontier init` prints loads as it is, and everything in its comments loads too."""

import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from frontier.config import load_config
from frontier.config.deployment import DeploymentConfig
from frontier.config.models import Config
from frontier.template import commented_config


@pytest.mark.parametrize("model", [None, "meta-llama/Llama-3.1-8B-Instruct", "yes", "1.10", 'odd "name": #1'])
@pytest.mark.parametrize("endpoint", ["http://localhost:8000/v1", "https://h/openai/v1", "simulator"])
def test_it_loads_without_a_word(endpoint: str, model: str | None) -> None:
    config = load_config(commented_config(endpoint, model), "sweep.yaml")
    assert () == config.warnings
    (deployment,) = config.deployments
    assert endpoint == deployment.endpoint
    assert (None if endpoint == "simulator" else model) == deployment.model


@given(st.text(min_size=1, max_size=40).filter(lambda t: t.isprintable() and t.strip()))
def test_any_models_name_survives(model: str) -> None:
    config = load_config(commented_config("http://h", model), "sweep.yaml")
    assert model.strip() == config.deployments[0].model


def test_every_key_is_explained() -> None:
    text = commented_config("http://localhost:8000/v1")
    keys = {field.alias or name for name, field in Config.model_fields.items()} | set(DeploymentConfig.model_fields)
    written = set(re.findall(r"^(?:#\s+)?([a-z_]+):", text, re.MULTILINE))
    assert set() == keys - written - {"name", "quality", "simulator"}


def commented_keys() -> list[str]:
    """Each commented key with the lines that belong to it, uncommented."""
    found: list[str] = []
    for line in commented_config("https://localhost:8000/v1").splitlines():
        if re.match(r"# [a-z_]+:", line):
            found.append(line[2:])
        elif re.match(r"#   +\S", line) and found:
            found[-1] += "\n" + line[2:]
    return found


@pytest.mark.parametrize("lines", commented_keys(), ids=lambda lines: lines.split(":")[0])
def test_every_commented_key_loads_when_it_is_uncommented(lines: str) -> None:
    key = lines.split(":")[0]
    active = [
        line
        for line in commented_config("https://localhost:8000/v1").splitlines()
        if not line.startswith((f"{key}:", "#")) and not (key == "price" and line.startswith("gpus"))
    ]
    extra = "\ngpus: 8" if key == "price" else ""
    config = load_config("\n".join([*active, lines]) + extra, "sweep.yaml")
    # A bare GPU bounds nothing until the model's sizes are known, and the config says so.
    warned = ["the sizes of the model are not known" in w.what for w in config.warnings]
    assert [True] * lines.startswith("hardware: h200") == warned


def test_an_api_key_is_named_and_never_written() -> None:
    assert "# api_key_env: OPENAI_API_KEY" in commented_config("http://h")
    assert "api_key" not in commented_config("simulator")
    assert isinstance(yaml.safe_load(commented_config("simulator")), dict)
