"""Each engine is one file: what is known of it stands nowhere else."""

import ast
from pathlib import Path

import frontier
from frontier.client.engines import ENGINES
from frontier.client.engines.base import COUNTERS, HISTOGRAMS

ROOT = Path(frontier.__file__).parent


def test_an_engine_is_named_in_its_own_file_only() -> None:
    marks = {*(ENGINES.keys() - {"openai", "openai_reasoning"}), *(e.prefix for e in ENGINES.values() if e.prefix)}
    assert {"vllm", "ollama", "vllm:", "tgi_"} <= marks
    files = [*(ROOT / "client").rglob("*.py"), *(ROOT / "decide").glob("*.py"), *(ROOT / "config").glob("*.py")]
    named = {
        (file.stem, node.value)
        for file in files
        if file.parent.name != "engines"
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and node.value in marks
    }
    assert not named


def test_the_facts_of_an_engine_are_known_by_their_common_names() -> None:
    known = {"num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", *COUNTERS}
    known |= {f"{name}_{part}" for name in HISTOGRAMS for part in ("sum", "count")}
    for engine in ENGINES.values():
        assert known >= {fact for facts in engine.facts.values() for fact in facts}
        assert all(name.startswith(engine.prefix or "?") for name in (*engine.facts, *engine.info))
        assert bool(engine.limit) == bool(engine.over) == bool(engine.title)
