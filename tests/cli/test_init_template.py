"""What `frontier init` prints loads as it is, and everything in its comments loads too."""

import json
import re
import socket
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from frontier.cli.init_template import USE_CASES, commented_config, needed
from frontier.client.ask.found_servers import ServerFacts
from frontier.config import load_config
from frontier.config.deployment import DeploymentConfig
from frontier.config.schema import Config
from frontier.config.sla import PRESETS
from frontier.simulator.http.process import SimulatorProcess
from frontier.simulator.spec import EngineSpec
from tests.kit import servers
from tests.kit.commands import Said, frontier
from tests.kit.golden import assert_golden_row


@pytest.mark.parametrize("model", [None, "meta-llama/Llama-3.1-8B-Instruct", "yes", "1.10", 'odd "name": #1'])
@pytest.mark.parametrize("endpoint", ["http://localhost:8000/v1", "https://h/openai/v1", "simulator"])
def test_it_loads_without_a_word(endpoint: str, model: str | None) -> None:
    config = load_config(commented_config(endpoint, model), "sweep.yaml")
    assert () == config.warnings
    (deployment,) = config.deployments
    assert endpoint == deployment.endpoint
    assert (None if endpoint == "simulator" else model) == deployment.model


@pytest.mark.parametrize("use", [None, *USE_CASES])
@pytest.mark.parametrize("endpoint", ["http://localhost:8000/v1", "simulator"])
def test_what_one_needs_of_it_is_the_same_config_on_one_screen(endpoint: str, use: str | None) -> None:
    text = commented_config(endpoint, None, use=use)
    short = needed(text)
    assert load_config(text, "sweep.yaml") == load_config(short, "sweep.yaml")
    keys = [line for line in short.splitlines() if line and not line.startswith("#")]
    assert len(keys) <= 8
    assert len(short.splitlines()) <= 24


@pytest.mark.slow
@given(st.text(min_size=1, max_size=40).filter(lambda t: t.isprintable() and t.strip()))
def test_any_models_name_survives(model: str) -> None:
    config = load_config(commented_config("http://h", model), "sweep.yaml")
    assert model.strip() == config.deployments[0].model


def test_every_key_is_explained() -> None:
    text = commented_config("http://localhost:8000/v1")
    keys = {field.alias or name for name, field in Config.model_fields.items()} | set(DeploymentConfig.model_fields)
    written = set(re.findall(r"^(?:#\s+)?([a-z_]+):", text, re.MULTILINE))
    assert set() == keys - written - {"name", "quality", "simulator"}


MODELS = [["meta/llama"], ["b", "a"], ["evil\u2028name: x", "e\nendpoint: simulator"], ["x" * 5000], []]


@pytest.mark.parametrize("models", MODELS, ids=lambda m: f"{len(m)} {m[:1]!r:.12}")
@pytest.mark.parametrize("longest", [None, 512, 2048, 40])
def test_what_a_server_says_goes_into_it_and_still_loads(models: list[str], longest: int | None) -> None:
    text = commented_config("http://h/v1", None, ServerFacts("vllm 1\n0: x", tuple(models), longest))
    config = load_config(text, "sweep.yaml")
    (deployment,) = config.deployments
    named = next((m for m in models if m.isprintable() and len(m) < 1000), None)
    assert ("http://h/v1", named) == (deployment.endpoint, deployment.model)
    (shape,) = config.shapes
    assert {None: 1280, 512: 320, 2048: 1280, 40: 80}[longest] == shape.isl.mean + shape.osl.mean
    assert max(map(len, text.splitlines())) < 800


@pytest.mark.parametrize("use", USE_CASES)
@pytest.mark.parametrize("longest", [None, 40, 1000, 131_072])
def test_a_use_case_brings_its_shape_and_its_sla_and_fits_the_context(use: str, longest: int | None) -> None:
    config = load_config(
        commented_config("http://h/v1", None, ServerFacts("vllm 1", ("m",), longest), use=use), "s.yaml"
    )
    (shape,) = config.shapes
    case = USE_CASES[use]
    assert (use, ()) == (shape.name, config.warnings)
    assert case.isl / case.osl == pytest.approx(shape.isl.mean / shape.osl.mean, rel=0.1)
    if longest is None or longest > 10_000:
        assert (case.isl, case.osl) == (shape.isl.mean, shape.osl.mean)
    elif longest == 1000:
        assert 400 < shape.isl.mean + shape.osl.mean <= 1000
    assert {limit.metric for limit in config.limits} == {part.split(":")[0].strip() for part in case.sla.split(",")}
    assert ("goodput" if use == "agent" else "output_throughput") == config.objectives[0]


def test_every_preset_is_a_use_and_rag_is_search(tmp_path: Path) -> None:
    assert PRESETS.keys() == USE_CASES.keys()
    said = {use: frontier("init", "simulator", "--for", use, cwd=tmp_path).out for use in ("rag", *PRESETS)}
    assert said["rag"] == said["search"]
    assert len(PRESETS) == len(set(said.values()))


@pytest.mark.parametrize(("kv_tokens", "slots"), [(None, None), (1280 * 52, None), (100, None), (None, 4)])
def test_the_sweep_finds_its_concurrencies_whatever_the_server_holds(kv_tokens: int | None, slots: int | None) -> None:
    text = commented_config("http://h/v1", None, ServerFacts("vllm 1", ("m",), kv_tokens=kv_tokens, slots=slots))
    assert load_config(text, "sweep.yaml").auto
    assert ("holds about" in text) == (kv_tokens is not None)


@pytest.mark.process
def test_init_reads_the_room_of_the_kv_cache_of_all_ranks_and_the_slots(tmp_path: Path) -> None:
    models = {"object": "list", "data": [{"id": "m", "owned_by": "vllm", "max_model_len": 4096}]}
    metrics = b"".join(
        b'vllm:cache_config_info{block_size="16",engine="%d",num_gpu_blocks="%d"} 1.0\n' % (rank, 1280 // 16 * 10)
        for rank in range(2)
    )
    with servers.serving(
        {
            "GET /v1/models": servers.saying(json.dumps(models).encode()),
            "GET /metrics": servers.saying(metrics, "text/plain"),
        }
    ) as url:
        said = asked(url, tmp_path)
    assert_golden_row("answers", line_of(said, "concurrency"), "KV cache")
    models["data"] = [{"id": "m", "owned_by": "llamacpp"}]
    with servers.serving(
        {
            "GET /v1/models": servers.saying(json.dumps(models).encode()),
            "GET /props": servers.saying(b'{"total_slots": 40}'),
        }
    ) as url:
        said = asked(url, tmp_path, "--for", "chat")
    assert_golden_row("answers", line_of(said, "concurrency"), "slots")
    assert_golden_row("answers", line_of(said, "# For chat"), "use")


def line_of(said: Said, start: str) -> str:
    """The line of a config that `init` printed that starts so."""
    (line,) = (line for line in said.out.splitlines() if line.startswith(start))
    return line


def asked(url: str, cwd: Path, *more: str, **environ: str) -> Said:
    return frontier("init", url, *more, cwd=cwd, **environ)


@pytest.mark.process
def test_init_asks_the_server_and_a_template_says_that_none_answered(tmp_path: Path) -> None:
    with SimulatorProcess(EngineSpec.from_mapping({"step_base": "2ms", "max_model_len": 710})) as simulator:
        said = asked(simulator.url, tmp_path)
        config = load_config(said.out, "sweep.yaml")
        assert simulator.spec.model_name == config.deployments[0].model
        assert ["512/128"] == [shape.label for shape in config.shapes]
        assert_golden_row("answers", line_of(said, "# Asked"))
        named = asked(simulator.url, tmp_path, "--model", "other")
        assert "other" == load_config(named.out, "sweep.yaml").deployments[0].model
    began = time.monotonic()
    gone = asked(simulator.url, tmp_path)
    assert time.monotonic() - began < 10
    assert (0, True) == (gone.code, "No server answered" in gone.out)
    assert_golden_row("messages", gone.err.splitlines()[0].replace(simulator.url, "URL"))
    assert load_config(gone.out, "sweep.yaml").deployments[0].model is None


@pytest.mark.process
def test_init_of_a_server_that_wants_a_key_says_so_and_takes_it(tmp_path: Path) -> None:
    refuse = servers.refusing(401, "no key")
    with servers.serving({"GET /v1/models": refuse}) as url:
        said = asked(url, tmp_path)
        keyed = asked(url, tmp_path, "--api-key-env", "MY_KEY", MY_KEY="sekret-9f3")
    assert "--api-key-env NAME" in said.err
    assert "MY_KEY" == load_config(keyed.out, "sweep.yaml").deployments[0].api_key_env
    assert "sekret" not in keyed.out + keyed.err


@pytest.mark.process
def test_init_of_something_that_never_answers_is_not_waited_for(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        began = time.monotonic()
        said = asked(f"http://127.0.0.1:{silent.getsockname()[1]}/v1", tmp_path)
    assert time.monotonic() - began < 15
    assert "No server answered" in said.out


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8000",
        "http://h/v1?key=s3cret",
        "http://me:s3cret@h/v1",
        "http://[::1",
        "ftp://h",
        "http://h/v1/chat/completions",
    ],
)
def test_init_refuses_an_address_that_no_config_takes(url: str, tmp_path: Path) -> None:
    said = asked(url, tmp_path)
    assert (2, "") == (said.code, said.out)
    assert "s3cret" not in said.err


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
    if key == "traffic":  # it is of named shapes
        named = "shapes: [{isl: 9, osl: 9, name: chat}, {isl: 99, osl: 9, name: agent}]"
        active = [line for line in active if not line.startswith("shapes:")] + [named]
    if key == "background":  # it is beside one concurrency
        active = [line for line in active if not line.startswith("concurrency:")] + ["concurrency: 32"]
    if key in ("rate", "arrivals"):
        active = [line for line in active if not line.startswith("concurrency:")]
        extra = "\nrate: [1]" if key == "arrivals" else ""
    config = load_config("\n".join([*active, lines]) + extra, "sweep.yaml")
    # A bare GPU bounds nothing until the model's sizes are known, and the config says so.
    warned = [str(warning.source_line).split()[:2] for warning in config.warnings]
    assert warned == [["hardware:", "h200"]] * lines.startswith("hardware: h200")


def test_an_api_key_is_named_and_never_written() -> None:
    assert "# api_key_env: OPENAI_API_KEY" in commented_config("http://h")
    assert "api_key" not in commented_config("simulator")
    assert isinstance(yaml.safe_load(commented_config("simulator")), dict)
