"""What is wrong with a config is said in our words, at its place, with the way out: each complaint
word for word in tests/golden/complaints.txt."""

import gc
import time
from collections.abc import Callable

import pytest

from tests.kit.complaints import Place, assert_complaints, printed, refused

BASE = "endpoint: http://h:8000\nshapes: [1024/256]\n"


KEYS = [
    ("concurency: [1]", 1),
    ("concurrency: [1, 2, 2]", 21),
    ("concurrency: [0]", 15),
    ("concurrency: [1.5]", 15),
    ("concurrency: [70000]", 15),
    ("concurrency: []", 14),
    ("concurrency: many", 14),
    ("concurrency: atuo", 14),
    ("refine: 0", 9),
    ("concurrency: 128..1", 14),
    ("concurrency: {from: 1}", 14),
    ("concurrency: {from: 1, to: x}", 14),
    ("concurrency: true", 14),
    ("sla: {p99_ttft: 500}", 17),
    ("sla: ttft:500 tpot:30", 6),
    ("model: ${MODEL:-m-8b}", 8),
    ("concurrency:\u00a0[1]", 13),
    ("sla: {<<: {a: 1}, p99_ttft: 500ms}", 7),
    ("sla: {p99_ttft: 0ms}", 17),
    ("sla: {p99_ttft: soon}", 17),
    ("sla: {p99_ttft: [500ms, 200ms]}", 17),
    ("sla: {p99_ttft: [200ms]}", 17),
    ("sla: {p99_ttft: [200, 500ms]}", 17),
    ("sla: {p99_tfft: 500ms}", 7),
    ("sla: {99_ttft: 500ms}", 7),
    ('sla: {p99_ttft: ">= 500ms"}', 17),
    ("sla: {output_throughput: fast}", 26),
    ("sla: {output_throughput: -1}", 26),
    ("sla: {goodput: 5}", 6),
    ("sla: {error_rate: 1}", 19),
    ("sla: {error_rate: 200%}", 19),
    ("sla: {error_rate: 5}", 19),
    ("sla: {cost: 2}", 6),
    ("sla: {energy: 0.5}", 6),
    ("hardware: {power: 700}", 19),
    ("hardware: {power: much}", 19),
    ("hardware: {power: 700W/gpu}", 19),
    ("sla: {}", 6),
    ("sla: []", 6),
    ("sla: 500ms", 6),
    ('sla: "p99_ttft<=500ms, p99_ttft<=200ms"', 6),
    ('sla: "p99_ttft=500ms"', 6),
    ('sla: "p99_ttft<=500"', 6),
    ("sla: {gold: {p99_ttft: 200ms}, p99_tpot: 30ms}", 42),
    ("sla: {p99_ttft: {p99_ttft: 200ms}}", 17),
    ("sla: {gold: {}}", 13),
    ("sla: {go ld: {p99_ttft: 500ms}}", 14),
    ("sla: {mean_interactivity: 3}", 7),
    ("objectives: [output_throughput]", 13),
    ("objectives: [output_throughput, output_throughput]", 33),
    ("objectives: [output_throughput, p99]", 33),
    ("objectives: [throughput, p99_ttft]", 14),
    ("sla: {p99_ttft: 0.15}", 17),
    ("sla: {p99_ttft: 2}", 17),
    ("sla: {p101_ttft: 1s}", 7),
    ('sla: "p99_ttft<=1s p99_tpot<=20ms"', 6),
    ('sla: "p99_ttft<=1s; error_rate <= 1% and p99_tpot<=20ms"', 6),
    ("objectives: [goodput, p99_ttft]", 14),
    ("objectives: [cost, p99_ttft]", 14),
    ("requests: 0", 11),
    ('requests: "300"', 11),
    ("requests: 300.0", 11),
    ("requests: 30.5", 11),
    ("repeats: 101", 10),
    ("refine: -1", 9),
    ("seed: 1.5", 7),
    ("warmup: 20", 9),
    ("warmup: soon", 9),
    ("warmup: 10min\nmax_time: 5min", 9),
    ("max_time: 0s", 11),
    ("max_time: 40d", 11),
    ("min_time: 4min\nmax_time: 5min", 11),
    ("ignore_eos: y", 13),
    ("ignore_eos: yes", 13),
    ("marginal_gain: 10%", 16),
    ("budget: {time: 8}", 16),
    ("budget: {cost: $20}", 16),
    ("budget: {cost: 20}", 16),
    ("budget: {money: 20}", 10),
    ("budget: 8h", 9),
    ("prompts: 5", 10),
    ("requests: 5 pases\nprompts: p.jsonl", 11),
    ("requests: 0 passes\nprompts: p.jsonl", 11),
    ("requests: 5 passes", 11),
    ("prompts:", 1),
    ("name: my run", 7),
    ("model: 7", 8),
    ('model: ""', 8),
    ("api: chats", 6),
    ("api: v1", 6),
    ("dialect: vlm", 10),
    ("headers: {Host: a}", 11),
    ('headers: {"X A": a}', 11),
    ("headers: 5", 10),
    ("extra_body: {max_tokens: 5, temperature: 0}", 14),
    ("extra_body: 5", 13),
    ("timeouts: {total: 5}", 19),
    ("timeouts: {totl: 5s}", 12),
    ("tls: {verify: false}", 1),
    ("metrics: []", 10),
    ("metrics: [none, http://a/metrics]", 10),
    ("metrics: [simulator]", 11),
    ("metrics: http://a/v1/models", 10),
    ("requests: *b", 11),
    ("proxy: http://p:1", 8),
    ("gpus: 0", 7),
    ("gpus: 8.0", 7),
    ("hardware: {gpu: 8}", 12),
    ("hardware: {memory_bandwidth: 4.8}", 30),
    ("hardware: {memory_bandwidth: 4.8TB}", 30),
    ("hardware: {weights: 16}", 21),
    ("hardware: {weights: heavy}", 21),
    ("hardware: {kv_per_token: 131}", 26),
    ("hardware: {tflops: 989TF}", 20),
    ("hardware: {flops: 989}", 12),
    ("hardware: h2000", 11),
    ("hardware: 5", 11),
    ("hardware: {model: lama-3.1-8b}", 19),
    ("hardware: {model: {num_hidden_layers: 2, hidden_size: 8, num_attention_heads: 2, intermediate_size: 8}}", 19),
    ("hardware: {model: {hidden: 8, heads: 2, layers: many, kv_heads: 2, intermediate: 8, vocab: 8}}", 49),
    ("hardware: {precision: int8}", 23),
    ("price: 12", 8),
    ("price: 12 dollars", 8),
    ("price: $3/gpu/h", 8),
    ("quality: good", 10),
    ("simulator: {noise: 0.1}", 1),
    ("ready: 5", 8),
    ("stop: {within: 9}", 16),
    ("stop: ./down.sh", 1),
    ("start: [vllm, serve]", 8),
    ("on_finish: {within: 5s}", 12),
    ("on_finish: [./notify.sh]", 12),
    ("on_finish: https://hooks.slack.com/services/T0/B0/a1B2c3D4e5F6g7H8i9J0k1L2", 12),
    ("backend: sim", 1),
    ("isl: 5", 1),
    ("warnings: []", 1),
    ("tiers: {}", 1),
    ("deployments: []", 14),
    ("deployments: 5", 14),
    ("deployments: [{endpoint: http://a}]", 15),
    ("deployments: [{name: a}, {name: a}]", 26),
    ("deployments: [{name: a, repeats: 3}]", 25),
    ("deployments: [{name: a, modl: x}]", 25),
    ("deployments: [{name: a, endpoint: simulator, simulator: {nois: 3}}]", 58),
]

ENDPOINTS = [
    ("endpoint: localhost:8000", 11),
    ("endpoint: simulatr", 11),
    ("endpoint: ftp://x", 11),
    ("endpoint: http://h/v1/chat/completions", 11),
    ("endpoint: http://h/?a=1", 11),
    ("endpoint: http://", 11),
    ("endpoint: http://h:99999", 11),
    ("endpoint: 5", 11),
    ("endpoint: [a]", 11),
    ("endpoint: http://a b", 11),
    ("endpoint: 'http://[::1'", 11),
    ("endpoint: http://a..b", 11),
]

SHAPES = [
    ("shapes: []", 9),
    ("shapes: 5", 9),
    ("shapes: [1024]", 10),
    ("shapes: [1024x256]", 10),
    ("shapes: [8k/1k]", 10),
    ("shapes: [8k1k]", 10),
    ("shapes: [0/5]", 10),
    ("shapes: [1/2, 1/2]", 15),
    ("shapes: [{isl: 1, osl: 2, name: chat}, {isl: 3, osl: 2, name: chat}]", 40),
    ("shapes: [{isl: 5}]", 10),
    ("shapes: [{isl: 5, osl: 5, prefx: 5%}]", 27),
    ("shapes: [{isl: {normal: [5]}, osl: 1}]", 25),
    ("shapes: [{isl: 5, osl: 5, prefix: []}]", 35),
    ("shapes: [{isl: 5, osl: 5, prefix: [0%, 100%]}]", 35),
    ("shapes: [1/2, {isl: 5, osl: 5, prefix: [0%, 50%, 50%]}]", 15),
    ("shapes: [{isl: 5, osl: 5, prefix: 100%}]", 35),
    ("shapes: [[1,2]]", 10),
]


@pytest.mark.parametrize(("line", "column"), KEYS, ids=[line for line, _ in KEYS])
def test_a_wrong_line_is_told_with_place_cause_and_way_out(line: str, column: int) -> None:
    assert_complaints(refused(BASE + line + "\n"), (3, column))


@pytest.mark.parametrize(("line", "column"), ENDPOINTS, ids=[line for line, _ in ENDPOINTS])
def test_a_wrong_endpoint_is_told_with_the_address_to_write(line: str, column: int) -> None:
    assert_complaints(refused(line + "\nshapes: [1/1]\n"), (1, column))


@pytest.mark.parametrize(("line", "column"), SHAPES, ids=[line for line, _ in SHAPES])
def test_a_wrong_shape_is_told_where_it_stands(line: str, column: int) -> None:
    assert_complaints(refused("endpoint: http://h\n" + line + "\n"), (2, column))


SECRETS = [
    ("api_key_env: my-key", 14),
    ("api_key_env: sk-abcdefghijklmnopqrst", 14),
    ("api_key_env: abcDEF0123456789abcDEF01", 14),
    ("api_key: hunter2hunter2", 1),
    ("headers: {X-Api-Key: hunter2}", 22),
    ("headers: {Authorization: Bearer abcdefgh}", 26),
    ("headers: {X-A: sk-abcdefghijklmnopqrst}", 16),
    ("model: hf_abcdefghijklmnopqrst", 8),
]


@pytest.mark.parametrize(("line", "column"), SECRETS, ids=[line for line, _ in SECRETS])
def test_a_secret_is_refused_and_never_repeated(line: str, column: int) -> None:
    complaints = refused(BASE + line + "\n")
    assert_complaints(complaints, (3, column))
    assert line.rstrip("}").split()[-1] not in printed(complaints)
    (complaint,) = complaints
    assert complaint.source_line is not None
    assert complaint.source_line.endswith(("***", "***}"))


BESIDE = {
    "in an address": ("endpoint: http://me:hunter2hunter2@h/v1\nshapes: 1/1\n", "hunter2", [(1, 11)]),
    "in an open list": ("endpoint: http://h\nmodel: [sk-abcdefghijklmnopqrst\nshapes: 1/1\n", "sk-abcdef", [(2, 8)]),
    "in two places": (
        "endpoint: sk-abcdefghijklmnopqrst\nshapes: [sk-abcdefghijklmnopqrst]\n",
        "sk-abcdef",
        [(1, 11), (2, 10)],
    ),
    "in an open quote": ('api_key: "swordfish: x\n', "swordfish", [(1, 10)]),
}


@pytest.mark.parametrize("where", BESIDE)
def test_a_secret_is_not_repeated_by_another_complaint_on_its_line_or_by_a_syntax_error(where: str) -> None:
    text, secret, places = BESIDE[where]
    complaints = refused(text)
    assert_complaints(complaints, *places)
    assert secret not in printed(complaints)


SEVERAL: dict[str, tuple[str, list[Place]]] = {
    "all in the order of the text": (
        "endpoint: localhost:8000\nconcurency: [1]\nshapes: [1024/256, 8k/1k]\nsla:\n  p99_ttft: 500\n  p99_tfft: 1s\n",
        [(1, 11), (2, 1), (3, 20), (5, 13), (6, 3)],
    ),
    "missing keys": ("model: m\n", [(1, 1), (1, 1)]),
    "what deployments inherit, once and where it stands": (
        "endpoint: http://h\nshapes: 1/1\nprice: 12\ndeployments:\n  - {name: a}\n  - {name: b, gpus: 0}\n",
        [(3, 8), (6, 21)],
    ),
    "a deployment without an endpoint": (
        "shapes: 1/1\ndeployments:\n  - {name: a, endpoint: http://h}\n  - name: b\n",
        [(4, 5)],
    ),
    "a deployment and a shape of one file name": (
        (
            "endpoint: http://h\nshapes: [{isl: 1, osl: 1, name: b-c}, {isl: 2, osl: 2, name: c}]\n"
            "deployments: [{name: a}, {name: a-b}]\n"
        ),
        [(3, 14)],
    ),
    "a sweep too large to finish": (
        f"endpoint: http://h\nshapes: 1/1\nconcurrency: {list(range(1, 500))}\nrepeats: 100\n",
        [(2, 9)],
    ),
    "traps of the text and mistakes of meaning, each once": (
        "endpoint: simulator\nconcurency: [1]\nshapes: [256/32]\nsla: {p99_ttft: yes}\nrequests: 1e3\nseed: 010\n",
        [(2, 1), (4, 17), (5, 11), (6, 7)],
    ),
}


@pytest.mark.parametrize("what", SEVERAL)
def test_what_a_text_as_a_whole_lacks_or_mistakes_is_told_at_once(what: str) -> None:
    text, places = SEVERAL[what]
    assert_complaints(refused(text), *places)


ENGINES = [
    ("{noise: loud}", 20),
    ("{model: llama-3.1-8b}", 12),
    ("{model: lama-3.1-8b, hardware: h100}", 20),
    ("{faults: {cut_rat: 1%}}", 22),
    ("{stalls: {every: 10s}}", 21),
]


@pytest.mark.parametrize(("engine", "column"), ENGINES, ids=[engine for engine, _ in ENGINES])
def test_the_engines_own_complaints_stand_at_their_key(engine: str, column: int) -> None:
    assert_complaints(refused(f"endpoint: simulator\nshapes: 1/1\nsimulator: {engine}\n"), (3, column))


MANY: dict[str, Callable[[int], str]] = {
    "unknown keys": lambda n: BASE + "".join(f"k{i}: 1\n" for i in range(n)),
    "ambiguous values": lambda n: BASE + "x: [" + ",".join(["yes"] * n) + "]\n",
    "the same key": lambda n: BASE + "a: 1\n" * n,
    "deployments": lambda n: (
        f"shapes: [{', '.join(f'{i + 1}/8' for i in range(100))}]\ndeployments:\n"
        + "".join(f"- {{name: d{i}, endpoint: 'http://h'}}\n" for i in range(n // 3))
    ),
}


@pytest.mark.parametrize("mistakes", MANY.values(), ids=MANY)
def test_thousands_of_mistakes_are_said_in_part_and_cost_no_more_each(mistakes: Callable[[int], str]) -> None:
    def seconds(count: int) -> tuple[float, str]:
        began = time.process_time()
        message = printed(refused(mistakes(count)))
        return time.process_time() - began, message

    gc.freeze()  # the objects of the tests before are not looked through in the time of these
    try:
        few, _ = min(seconds(900) for _ in range(2))
        many, message = seconds(9_000)
        again, _ = (many, message) if many < 30 * few else seconds(9_000)
    finally:
        gc.unfreeze()
    assert again < 30 * few, "ten times the mistakes, ten times the work: a hundred times is a square"
    assert len(message) < 12_000
    assert message.count("\n") < 200


OURS = {
    "rate": "request_rate rates qps rps arrival_rate",
    "concurrency": "users max_concurrency concurrencies streams",
    "shapes": "input_len output_len random_input_len max_tokens input_tokens",
    "requests": "num_prompts num_requests",
    "sla": "slo goodput",
    "max_time": "duration max_seconds",
    "timeouts": "timeout",
    "prompts": "dataset",
}


@pytest.mark.parametrize(("key", "ours"), [(key, ours) for ours, keys in OURS.items() for key in keys.split()])
def test_the_keys_of_other_tools_lead_to_ours(key: str, ours: str) -> None:
    complaints = refused(BASE + f"{key}: 5\n")
    assert_complaints(complaints, (3, 1))
    assert complaints[0].hint is not None
    assert complaints[0].hint.replace(":", " ").split()[:2] == ["write", ours]
