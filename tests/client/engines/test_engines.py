"""Each engine is one file: what is known of it stands nowhere else."""

import ast
from pathlib import Path

import frontier
from frontier.client.engines import ENGINES
from frontier.client.engines.base import COUNTERS, HISTOGRAMS
from frontier.extras.workload import server_metrics

ROOT = Path(frontier.__file__).parent


def test_an_engine_is_named_in_its_own_file_only() -> None:
    names = ENGINES.keys() - {"openai", "openai_reasoning"}
    prefixes = tuple(engine.prefix for engine in ENGINES.values() if engine.prefix)
    assert {"vllm", "ollama"} <= names
    assert {"vllm:", "tgi_"} <= set(prefixes)
    named = {
        (str(file.relative_to(ROOT)), node.value)
        for file in ROOT.rglob("*.py")
        if not file.is_relative_to(ROOT / "client" / "engines") and not file.is_relative_to(ROOT / "simulator")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if node.value in names or node.value.startswith(prefixes)
    }
    own = {("extras/capacity/emit.py", "vllm"), ("extras/exchange/formats.py", "vllm")}
    assert named == own, "whose metrics a rule assumes, and the results of its benchmark"


def test_the_facts_of_an_engine_are_known_by_their_common_names() -> None:
    known = {"num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", *COUNTERS}
    known |= {f"{name}_{part}" for name in HISTOGRAMS for part in ("sum", "count")}
    for engine in ENGINES.values():
        assert known >= {fact for facts in engine.facts.values() for fact in facts}
        assert all(name.startswith(engine.prefix or "?") for name in (*engine.facts, *engine.info))
        assert bool(engine.limit) == bool(engine.over) == bool(engine.title)


def test_the_requests_of_an_engine_are_counted_under_names_of_its_own() -> None:
    for engine in ENGINES.values():
        assert engine.histograms.keys() <= server_metrics.HISTOGRAMS.keys()
        assert engine.counters.keys() <= server_metrics.COUNTERS.keys()
        listed = (*engine.histograms.values(), *engine.counters.values(), engine.gauges)
        assert all(name.startswith(engine.prefix or "?") for names in listed for name in names)
        assert not engine.histograms or {"ttft", "input", "e2e"} & engine.histograms.keys()
        facts = [{"num_requests_running": 1.0}, {"num_requests_waiting": 1.0}] if engine.gauges else []
        assert facts == [engine.facts[name] for name in engine.gauges]
        assert engine.limit or not engine.gauges
