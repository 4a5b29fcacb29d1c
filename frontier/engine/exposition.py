"""What `/metrics` says: Prometheus text in vLLM's names."""

from frontier.engine.realtime import Engine


def metrics_text(engine: Engine, model: str) -> bytes:
    """The state of the engine. The counters of speculative decoding are there when it speculates."""
    s = engine.state
    label = model.replace("\\", "\\\\").replace('"', '\\"')
    labels = f'engine="0",model_name="{label}"'
    values = [
        ("num_requests_running", "gauge", "Requests in the batch.", s.running),
        ("num_requests_waiting", "gauge", "Requests waiting to be admitted.", engine.waiting),
        ("kv_cache_usage_perc", "gauge", "Share of KV blocks in use (1 = all).", s.kv_used),
        ("num_preemptions_total", "counter", "Preemptions.", s.preemptions),
        ("prompt_tokens_total", "counter", "Prompt tokens processed.", s.prompt_tokens),
        ("generation_tokens_total", "counter", "Tokens generated.", s.generated_tokens),
        ("prefix_cache_queries_total", "counter", "Prompt tokens looked up.", s.cache_queries),
        ("prefix_cache_hits_total", "counter", "Prompt tokens found cached.", s.cache_hits),
    ]
    if (drafted := s.drafted) is not None:
        values += [
            ("spec_decode_num_drafts_total", "counter", "Requests that brought drafts into a step.", drafted.drafts),
            ("spec_decode_num_draft_tokens_total", "counter", "Draft tokens verified.", drafted.tokens),
            ("spec_decode_num_accepted_tokens_total", "counter", "Draft tokens accepted.", sum(drafted.accepted)),
        ]
    lines: list[str] = []
    for name, kind, text, value in values:
        lines += [*_head(name, kind, text), f"vllm:{name}{{{labels}}} {float(value)}"]
    if drafted is not None:
        name = "spec_decode_num_accepted_tokens_per_pos_total"
        lines += _head(name, "counter", "Draft tokens accepted, by their position.")
        lines += [f'vllm:{name}{{{labels},position="{i}"}} {float(n)}' for i, n in enumerate(drafted.accepted)]
    return ("\n".join(lines) + "\n").encode()


def _head(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP vllm:{name} {text}", f"# TYPE vllm:{name} {kind}"]
