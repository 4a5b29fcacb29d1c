"""InferenceX's agg_*.json (seconds, rates per GPU), and the silicon tables made from such results (CSV)."""

import re

from frontier.formats.documents import Document, Node
from frontier.formats.figures import Stated, agreed, statements, statistics
from frontier.formats.found import Found, Result

_LATENCIES = {"ttft": ("ttft",), "tpot": ("tpot",), "itl": ("itl",), "e2e": ("e2el", "ttlt")}
_FACTS = ("model", "hw", "framework", "precision", "spec_decoding", "tp", "pp", "ep", "dp_attention", "disagg",
          "offload_mode", "prefill_tp", "prefill_ep", "prefill_num_workers", "decode_tp", "decode_ep",
          "decode_num_workers", "scenario_type", "image")  # fmt: skip
DIFFERENT = (
    "rates are given per GPU and multiplied by the GPUs the file names (disaggregated: decode and prefill apart)",
    "throughput is over the whole run with ramp and drain; failed requests count as no tokens and leave no latency",
    "stored interactivity is not taken over: it is the inverse of TPOT's percentile, and computed from that",
)
SILICON_DIFFERENT = (
    "the table does not say whether its TTFT and TPOT are means or medians; they are shown as means",
    "throughput is not in the table: it is concurrency x OSL / (TTFT + TPOT x (OSL - 1)), as if no slot were ever idle",
)


# --- agg_*.json


def claims(document: Document) -> bool:
    """Looks like agg_*.json, or a list of such objects."""
    return document.kind in ("json", "lines") and any(_is_agg(node) for node in _points(document)[:3])


def _points(document: Document) -> list[Node]:
    return [document.top] if isinstance(document.tree, dict) else list(document.nodes())


def _is_agg(node: Node) -> bool:
    keys = node.tree.keys()
    return {"hw", "framework", "tput_per_gpu"} <= keys and bool({"conc", "users"} & keys)


def read(document: Document) -> Found:
    """Every point of the file."""
    results = []
    for node in _points(document):
        if not _is_agg(node):
            raise node.wrong(f"{node.where or 'the file'} is no aggregate of InferenceX", "leave it out")
        results.append(_result(node))
    return Found(document.file, "InferenceX", tuple(results), notes=DIFFERENT)


def _result(node: Node) -> Result:
    loads = [one for key in ("conc", "users") if node.count(key) for one in statements(node, key, "concurrency")]
    concurrency = round(agreed(node, loads).get("concurrency", 0))
    if not concurrency:
        raise node.wrong("conc is missing", "see whether the file is whole")
    said = []
    for quantity, names in _LATENCIES.items():
        for name in names:
            said += statistics(node, quantity, 1.0, f"{{}}_{name}")
    gpus, rates = _rates(node)
    figures = agreed(node, [*said, *rates])
    ok, sent = node.count("num_requests_successful"), node.count("num_requests_total")
    failed = sent - ok if ok is not None and sent is not None and sent >= ok else None
    isl, osl = node.number("isl"), node.number("osl")
    stated = bool(isl and osl)
    return Result(
        concurrency, figures, ok or 0, failed,
        isl if stated else node.number("mean_input_tokens"),
        osl if stated else node.number("mean_output_tokens_actual"),
        stated, facts={key: value for key in _FACTS if (value := node.fact(key)) is not None},
        model=node.fact("model"), gpus=gpus,
        notes=() if ok is not None else ("the number of requests is not in the file",),
        place=node.where,
    )  # fmt: skip


def _rates(node: Node) -> tuple[int | None, list[Stated]]:
    """GPUs, and the throughput of the whole deployment. Disaggregated, output is per decode GPU, input per prefill."""
    prefill, decode = node.count("num_prefill_gpu"), node.count("num_decode_gpu")
    if prefill and decode and (node.tree.get("is_multinode") is True or node.tree.get("disagg") is True):
        gpus: int | None = prefill + decode
        split = {"output": decode, "input": prefill, "total": prefill + decode}
    else:
        tp = node.count("tp")
        gpus = tp * (node.count("pp") or 1) if tp and node.tree.get("is_multinode") is not True else None
        split = dict.fromkeys(("output", "input", "total"), gpus or 0)
    rates = []
    for side, total, each in (
        ("output", "output_tput_tps", "output_tput_per_gpu"),
        ("input", "input_tput_tps", "input_tput_per_gpu"),
        ("total", "total_tput_tps", "tput_per_gpu"),
    ):
        name = f"{side}_throughput"
        rates += statements(node, total, name) or (statements(node, each, name, split[side]) if split[side] else [])
    return gpus, rates


# --- silicon tables

_CONCURRENCY = re.compile(r"(?:^|;)\s*silicon_concurrency=(\d{1,6})\s*(?:;|$)")
_SILICON_FACTS = ("model_path", "system", "backend", "backend_version", "precision", "mode", "tp_size", "pp_size",
                  "attention_dp_size", "moe_tp_size", "moe_ep_size", "prefill_num_workers", "prefill_tp_size",
                  "prefill_pp_size", "prefill_attention_dp_size", "prefill_moe_tp_size", "prefill_moe_ep_size",
                  "decode_num_workers", "decode_tp_size", "decode_pp_size", "decode_attention_dp_size",
                  "decode_moe_tp_size", "decode_moe_ep_size")  # fmt: skip


def claims_silicon(document: Document) -> bool:
    """Looks like a silicon table."""
    first = next(document.nodes(), None)
    return document.kind == "table" and first is not None and {"silicon_ttft_ms", "silicon_tpot_ms", "isl", "osl"} <= (
        first.tree.keys()
    )  # fmt: skip


def read_silicon(document: Document) -> Found:
    """Every row that says its concurrency; the others are counted in a note."""
    results = []
    silent = 0
    for node in document.nodes():
        found = _CONCURRENCY.search(str(node.tree.get("silicon_data_source") or "")[:2000])
        ttft, tpot = node.number("silicon_ttft_ms"), node.number("silicon_tpot_ms")
        isl, osl = node.number("isl"), node.number("osl")
        if found is None or not ttft or not tpot or not isl or not osl or int(found[1]) < 1:
            silent += 1
            continue
        results.append(_silicon(node, int(found[1]), ttft / 1e3, tpot / 1e3, isl, osl))
    if not results:
        raise document.top.wrong(
            "no row says concurrency, lengths, TTFT and TPOT", "see whether this is the right table"
        )
    left_out = (f"{silent} rows say no concurrency, length or latency and are left out",) if silent else ()
    return Found(document.file, "silicon table", tuple(results), notes=(*SILICON_DIFFERENT, *left_out))


def _silicon(node: Node, concurrency: int, ttft: float, tpot: float, isl: float, osl: float) -> Result:
    e2e = ttft + tpot * (osl - 1)
    figures = {
        "mean_ttft": ttft,
        "mean_tpot": tpot,
        "mean_e2e": e2e,
        "output_throughput": concurrency * osl / e2e,
        "request_throughput": concurrency / e2e,
    }
    tp, pp, dp = (node.count(f"{key}_size") for key in ("tp", "pp", "attention_dp"))
    return Result(
        concurrency, figures, 0, None, isl, osl, stated=True,
        facts={key: value for key in _SILICON_FACTS if (value := node.fact(key)) is not None},
        model=node.fact("model_path"), gpus=tp * (pp or 1) * (dp or 1) if tp else None,
        notes=("E2E and throughput are computed from TTFT and TPOT",),
        place=node.where,
    )  # fmt: skip
