"""What is wrong with a config is said in our words, at its place, with the way out: each complaint
word for word."""

import time

import pytest

from frontier.config import load_config
from frontier.errors import ConfigError

BASE = "endpoint: http://h:8000\nshapes: [1024/256]\n"
Row = tuple[str, int, str, str | None]


def told(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(text, "s.yaml")
    return str(caught.value)


KEYS: list[Row] = [
    ("concurency: [1]", 1, "unknown key 'concurency'", "did you mean 'concurrency'?"),
    ("concurrency: [1, 2, 2]", 21, "concurrency: 2 is given twice", "remove one; repeats: 3  measures each again"),
    ("concurrency: [0]", 15, "concurrency: 0 is out of range", "write a whole number between 1 and 65,536"),
    (
        "concurrency: [1.5]",
        15,
        "concurrency is a whole number; this is 1.5",
        "write it in digits, between 1 and 65,536",
    ),
    ("concurrency: [70000]", 15, "concurrency: 70000 is out of range", "write a whole number between 1 and 65,536"),
    ("concurrency: []", 14, "concurrency is an empty list", "write [1, 2, 4, 8]"),
    ("concurrency: many", 14, "concurrency: 'many' is not a range", "write [1, 2, 4, 8], or 1..128 for every doubling"),
    ("concurrency: 128..1", 14, "concurrency: 128 is above 1", "write 1..128"),
    (
        "concurrency: {from: 1}",
        14,
        "concurrency: a range has the keys from and to",
        "write {from: 1, to: 128}, or 1..128",
    ),
    (
        "concurrency: {from: 1, to: x}",
        14,
        "concurrency is a whole number; this is 'x'",
        "write it in digits, between 1 and 65,536",
    ),
    (
        "concurrency: true",
        14,
        "concurrency is a whole number; this is true",
        "write it in digits, between 1 and 65,536",
    ),
    ("sla: {p99_ttft: 500}", 17, "p99_ttft needs a unit", "write 500ms or 0.5s"),
    ("sla: {p99_ttft: 0ms}", 17, "p99_ttft: '0ms' is not a limit", "write a time above zero and at most a day"),
    ("sla: {p99_ttft: soon}", 17, "p99_ttft: 'soon' is not a time", "write a number with a unit, as 500ms or 0.5s"),
    (
        "sla: {p99_ttft: [500ms, 200ms]}",
        17,
        "p99_ttft: the comfort mark comes first and is the stricter of the two",
        "write [200ms, 500ms]",
    ),
    ("sla: {p99_ttft: [200ms]}", 17, "p99_ttft: a range is two limits, comfort and promise", "write [200ms, 500ms]"),
    ("sla: {p99_ttft: [200, 500ms]}", 17, "p99_ttft needs a unit", "write 200ms or 0.2s"),
    ("sla: {p99_tfft: 500ms}", 7, "unknown metric 'p99_tfft'", "did you mean 'p99_ttft'?"),
    ("sla: {99_ttft: 500ms}", 7, "unknown metric '99_ttft'", "did you mean 'p99_ttft'?"),
    (
        'sla: {p99_ttft: ">= 500ms"}',
        17,
        "p99_ttft >= 500ms asks for the wrong side: of p99 TTFT lower is better",
        "write p99_ttft<=500ms",
    ),
    (
        "sla: {output_throughput: fast}",
        26,
        "output_throughput: 'fast' is not a limit",
        "write a number of tok/s, as 30",
    ),
    ("sla: {output_throughput: -1}", 26, "output_throughput: -1 is not a limit", "write a number of tok/s, as 30"),
    (
        "sla: {goodput: 5}",
        6,
        "goodput counts requests within the latency limits, and there are none",
        "add  p99_ttft: 500ms",
    ),
    ("sla: {error_rate: 1}", 19, "error_rate: 1 could mean 1% or 100%", "write 1% or 100%"),
    ("sla: {error_rate: 200%}", 19, "error_rate: '200%' is not a share", "write it as 1% or 0.01, between 0% and 100%"),
    ("sla: {error_rate: 5}", 19, "error_rate: 5 is not a share", "write 5%"),
    ("sla: {cost: 2}", 6, "a limit on cost needs a price", "write  price: $12/h  for the whole deployment"),
    (
        "sla: {energy: 0.5}",
        6,
        "a sweep cannot decide by energy: its power is known only when it is over",
        "decide afterwards:  frontier solve --sla 'p99_ttft<=500ms, energy<=0.5'",
    ),
    ("hardware: {power: 700}", 19, "power needs a unit", "write 5600W for the whole deployment, or 700W/gpu"),
    (
        "hardware: {power: much}",
        19,
        "power: 'much' is not a power",
        "write 5600W for the whole deployment, or 700W/gpu",
    ),
    (
        "hardware: {power: 700W/gpu}",
        19,
        "power is per GPU, and the number of GPUs is not given",
        "add  gpus: 8,  or write 5600W for all",
    ),
    ("sla: {}", 6, "sla is metrics with their limits", "write {p99_ttft: 500ms, p99_tpot: 30ms}"),
    ("sla: []", 6, "sla is metrics with their limits", "write {p99_ttft: 500ms, p99_tpot: 30ms}"),
    ("sla: 500ms", 6, "'500ms' is not a limit", "write it as  p99_ttft<=500ms, p99_tpot<=30ms"),
    (
        'sla: "p99_ttft<=500ms, p99_ttft<=200ms"',
        6,
        "p99_ttft is limited twice",
        "a range is written p99_ttft<=200ms..500ms",
    ),
    ('sla: "p99_ttft=500ms"', 6, "'p99_ttft=500ms' does not say which side is allowed", "write p99_ttft<=500ms"),
    ('sla: "p99_ttft<=500"', 6, "p99_ttft needs a unit", "write 500ms or 0.5s"),
    (
        "sla: {gold: {p99_ttft: 200ms}, p99_tpot: 30ms}",
        42,
        "'p99_tpot' stands beside named tiers",
        "put it into each tier, or name no tiers",
    ),
    ("sla: {p99_ttft: {p99_ttft: 200ms}}", 17, "p99_ttft: a limit is one value or [comfort, promise]", "write 500ms"),
    ("sla: {gold: {}}", 13, "gold has no limits", "write {p99_ttft: 500ms}"),
    (
        "sla: {go ld: {p99_ttft: 500ms}}",
        14,
        "go ld: 'go ld' cannot be a name",
        "use letters, digits, . - and _, at most 60, no space",
    ),
    ("sla: {mean_interactivity: 3}", 7, "mean_interactivity is not defined", "ask for p50_interactivity"),
    (
        "objectives: [output_throughput]",
        13,
        "objectives are the two axes of the frontier",
        "write [output_throughput, p99_ttft]",
    ),
    (
        "objectives: [output_throughput, output_throughput]",
        33,
        "the two objectives are the same",
        "write [output_throughput, p99_ttft]",
    ),
    (
        "objectives: [output_throughput, p99]",
        33,
        "unknown metric 'p99'",
        "of what? p99_ttft, p99_tpot, p99_itl or p99_e2e",
    ),
    ("objectives: [throughput, p99_ttft]", 14, "unknown metric 'throughput'", "did you mean 'output_throughput'?"),
    ("sla: {p99_ttft: 0.15}", 17, "p99_ttft needs a unit", "write 0.15s or 150ms"),
    ("sla: {p99_ttft: 2}", 17, "p99_ttft needs a unit", "write 2s, or 2ms if milliseconds are meant"),
    (
        "sla: {p101_ttft: 1s}",
        7,
        "unknown metric 'p101_ttft'",
        "a percentile is p1 to p99.99: p50_ttft, p90_ttft, p95_ttft, p99_ttft, p99.9_ttft, or mean_ttft",
    ),
    (
        'sla: "p99_ttft<=1s p99_tpot<=20ms"',
        6,
        "'p99_ttft<=1s p99_tpot<=20ms' is more than one limit",
        "put commas between them:  p99_ttft<=1s, p99_tpot<=20ms",
    ),
    (
        'sla: "p99_ttft<=1s; error_rate <= 1% and p99_tpot<=20ms"',
        6,
        "'p99_ttft<=1s; error_rate <= 1% and p99_tpot<=20ms' is more than one limit",
        "put commas between them:  p99_ttft<=1s, error_rate <= 1%, p99_tpot<=20ms",
    ),
    (
        "objectives: [goodput, p99_ttft]",
        14,
        "goodput counts requests within the limits, and there are none",
        "add  sla: {p99_ttft: 500ms}",
    ),
    (
        "objectives: [cost, p99_ttft]",
        14,
        "the objective cost needs a price",
        "write  price: $12/h  for the whole deployment",
    ),
    ("requests: 0", 11, "requests: 0 is out of range", "write a whole number between 1 and 1,000,000"),
    (
        'requests: "300"',
        11,
        "requests is a whole number; this is '300'",
        "write 300 without quotes, between 1 and 1,000,000",
    ),
    ("requests: 300.0", 11, "requests is a whole number; this is 300.0", "write 300, between 1 and 1,000,000"),
    ("requests: 30.5", 11, "requests is a whole number; this is 30.5", "write it in digits, between 1 and 1,000,000"),
    ("repeats: 101", 10, "repeats: 101 is out of range", "write a whole number between 1 and 100"),
    ("refine: -1", 9, "refine: -1 is out of range", "write a whole number between 0 and 100"),
    ("seed: 1.5", 7, "seed is a whole number; this is 1.5", "write it in digits, between 0 and 9,007,199,254,740,992"),
    ("warmup: 20", 9, "warmup needs a unit", "write 20s or 20min"),
    ("warmup: soon", 9, "warmup: 'soon' is not a duration", "write a number with a unit, as 30s or 5min"),
    (
        "warmup: 10min\nmax_time: 5min",
        9,
        "warmup is 10min, more than half of max_time (5min)",
        "raise max_time; warm-up counts toward it",
    ),
    ("max_time: 0s", 11, "max_time: '0s' is out of range", "write at least 1s and at most 24h"),
    ("max_time: 40d", 11, "max_time: '40d' is not a duration", "write a number with a unit, as 30s or 5min"),
    (
        "min_time: 4min\nmax_time: 5min",
        11,
        "min_time is 4min, more than half of max_time (5min)",
        "raise max_time; warm-up counts toward it too",
    ),
    ("ignore_eos: y", 13, "ignore_eos is true or false; this is 'y'", "write true or false"),
    (
        "ignore_eos: yes",
        13,
        "yes is a boolean to some YAML readers and text to others",
        'write true, or "yes" for text',
    ),
    ("marginal_gain: 10%", 16, "marginal_gain is true or false; this is '10%'", "write true or false"),
    ("budget: {time: 8}", 16, "time needs a unit", "write 8s or 8min"),
    ("budget: {cost: $20}", 16, "a budget in dollars needs a price", "write  price: $12/h  for the whole deployment"),
    ("budget: {cost: 20}", 16, "cost: 20 is not an amount", "write dollars above zero, as $20"),
    ("budget: {money: 20}", 10, "unknown key 'money'", "known: time, requests, tokens, cost, until"),
    (
        "budget: 8h",
        9,
        "budget is a mapping; this is '8h'",
        "write {time: ...}; known: time, requests, tokens, cost, until",
    ),
    ("prompts: 5", 10, "prompts is a text; 5 is a number", 'quote it, as prompts: "5"'),
    ("prompts:", 1, "prompts has no value", "write one, or remove the line"),
    ("name: my run", 7, "name: 'my run' cannot be a name", "use letters, digits, . - and _, at most 60, no space"),
    ("model: 7", 8, "model is a text; 7 is a number", 'quote it, as model: "7"'),
    ('model: ""', 8, "model: '' cannot be used", "write a text on one line of at most 400 characters"),
    ("api: chats", 6, "api: 'chats' is not known", "did you mean 'chat'?"),
    ("api: v1", 6, "api: 'v1' is not known", "known: auto, completions, chat"),
    ("dialect: vlm", 10, "dialect: 'vlm' is not known", "did you mean 'vllm'?"),
    ("headers: {Host: a}", 11, "the header Host is set by the measurement", "remove it"),
    ('headers: {"X A": a}', 11, "'X A' is not the name of a header", None),
    ("headers: 5", 10, "headers are names with values", "write {X-Tenant: blue}"),
    (
        "extra_body: {max_tokens: 5, temperature: 0}",
        14,
        "extra_body: max_tokens is set by the measurement",
        "remove it",
    ),
    ("extra_body: 5", 13, "extra_body is a mapping sent with every request", "write {temperature: 0}"),
    ("timeouts: {total: 5}", 19, "total needs a unit", "write 5s or 5min"),
    ("timeouts: {totl: 5s}", 12, "unknown key 'totl'", "did you mean 'total'?"),
    ("tls: {verify: false}", 1, "tls is set, and the endpoint is not https", "remove the key"),
    ("metrics: []", 10, "metrics are addresses", "write [http://localhost:8000/metrics]"),
    ("metrics: [simulator]", 11, "metrics are addresses", "write [http://localhost:8000/metrics]"),
    ("metrics: http://a/v1/models", 10, "metrics names a route (/models)", "write it as http://localhost:8000/metrics"),
    ("requests: *b", 11, "*b refers to nothing: no &b comes before it", "write the value out"),
    ("proxy: http://p:1", 8, "proxy: 'http://p:1' is not known", "known: none, env"),
    ("gpus: 0", 7, "gpus: 0 is out of range", "write a whole number between 1 and 100,000"),
    ("gpus: 8.0", 7, "gpus is a whole number; this is 8.0", "write 8, between 1 and 100,000"),
    ("hardware: {gpu: 8}", 12, "unknown key 'gpu'", "did you mean 'gpus'?"),
    (
        "hardware: {memory_bandwidth: 4.8}",
        30,
        "memory_bandwidth needs a unit",
        "write 4.8TB/s if that is meant, or as 900GB/s",
    ),
    (
        "hardware: {memory_bandwidth: 4.8TB}",
        30,
        "memory_bandwidth: '4.8TB' is not a bandwidth",
        "write a number above zero with a unit, as 900GB/s",
    ),
    ("hardware: {weights: 16}", 21, "weights needs a unit", "write 16GB if that is meant, or as 16GB or 80GiB"),
    (
        "hardware: {weights: heavy}",
        21,
        "weights: 'heavy' is not a size",
        "write a number above zero with a unit, as 16GB or 80GiB",
    ),
    (
        "hardware: {kv_per_token: 131}",
        26,
        "kv_per_token needs a unit",
        "write 131kB if that is meant, or as 131kB or 128KiB",
    ),
    (
        "hardware: {tflops: 989TF}",
        20,
        "tflops is a number; this is '989TF'",
        "write a number between 0.001 and 10,000,000",
    ),
    ("hardware: {flops: 989}", 12, "unknown key 'flops'", "write tflops: 989  (dense, of one GPU)"),
    ("hardware: h2000", 11, "unknown GPU 'h2000'", "did you mean 'h200'?"),
    (
        "hardware: 5",
        11,
        "hardware is a mapping; this is 5",
        (
            "write {name: ...}; known: name, memory_bandwidth, memory, tflops, tflops_fp8, tflops_fp4, link, gpus, "
            "model, precision, kv_precision, max_num_seqs, weights, kv_per_token, speculation, power"
        ),
    ),
    ("hardware: {model: lama-3.1-8b}", 19, "unknown model 'lama-3.1-8b'", "did you mean 'llama-3.1-8b'?"),
    (
        "hardware: {model: {num_hidden_layers: 2, hidden_size: 8, num_attention_heads: 2, intermediate_size: 8}}",
        19,
        "the key vocab_size is missing",
        "add  vocab_size: ...",
    ),
    (
        "hardware: {model: {hidden: 8, heads: 2, layers: many, kv_heads: 2, intermediate: 8, vocab: 8}}",
        49,
        "layers is a whole number; this is 'many'",
        "write it in digits, between 1 and 1,000,000,000,000",
    ),
    ("hardware: {precision: int8}", 23, "precision: 'int8' is not known", "known: bf16, fp8, fp4"),
    ("price: 12", 8, "price needs a unit", "write $12/h for the whole deployment, or $3/gpu/h"),
    ("price: 12 dollars", 8, "price: '12 dollars' is not a price", "write $12/h for the whole deployment, or $3/gpu/h"),
    (
        "price: $3/gpu/h",
        8,
        "price is per GPU, and the number of GPUs is not given",
        "add  gpus: 8,  or write $12/h for all",
    ),
    ("quality: good", 10, "quality is a number; this is 'good'", "write a score, as 0.953, or {reference: NAME}"),
    (
        "simulator: {noise: 0.1}",
        1,
        "simulator is set, and the endpoint is another",
        "write  endpoint: simulator,  or remove the key",
    ),
    ("ready: 5", 8, "ready is a mapping; this is 5", "write {command: ...}; known: command, within"),
    ("stop: {within: 9}", 16, "within needs a unit", "write 9s or 9min"),
    ("stop: ./down.sh", 1, "stop is for a server that the sweep starts", "add  start: COMMAND,  or remove the key"),
    ("start: [vllm, serve]", 8, "start is a command; this is a list", "write the line as you would type it"),
    ("on_finish: {within: 5s}", 12, "on_finish is a command or the url of a webhook", "write one of them"),
    (
        "on_finish: https://hooks.slack.com/services/T0/B0/a1B2c3D4e5F6g7H8i9J0k1L2",
        12,
        "url holds what looks like a secret",
        "put the address into a variable:  on_finish: ${FINISH_URL}",
    ),
    ("backend: sim", 1, "unknown key 'backend'", "write endpoint: simulator, or dialect: vllm"),
    ("isl: 5", 1, "unknown key 'isl'", "write shapes: [1024/256]"),
    ("warnings: []", 1, "unknown key 'warnings'", "frontier init URL  shows every key"),
    ("tiers: {}", 1, "unknown key 'tiers'", "write sla: {gold: {p99_ttft: 200ms}}"),
    ("deployments: []", 14, "deployments is an empty list", "list one with a name and an endpoint"),
    ("deployments: 5", 14, "deployments is a list", "write [..., ...]"),
    ("deployments: [{endpoint: http://a}]", 15, "the deployment has no name", "add  name: fp8"),
    ("deployments: [{name: a}, {name: a}]", 26, "two deployments are called a", "give each its own name"),
    (
        "deployments: [{name: a, repeats: 3}]",
        25,
        "repeats holds for the whole sweep, not for one deployment",
        "move it to the top",
    ),
    ("deployments: [{name: a, modl: x}]", 25, "unknown key 'modl'", "did you mean 'model'?"),
    (
        "deployments: [{name: a, endpoint: simulator, simulator: {nois: 3}}]",
        58,
        "unknown key 'nois'",
        "did you mean 'noise'?",
    ),
]

ENDPOINTS: list[Row] = [
    (
        "endpoint: localhost:8000",
        11,
        "endpoint: 'localhost:8000' does not start with http:// or https://",
        "write http://localhost:8000",
    ),
    (
        "endpoint: simulatr",
        11,
        "endpoint: 'simulatr' does not start with http:// or https://",
        "did you mean 'simulator'?",
    ),
    (
        "endpoint: ftp://x",
        11,
        "endpoint: 'ftp://x' does not start with http:// or https://",
        "write it as http://localhost:8000/v1",
    ),
    (
        "endpoint: http://h/v1/chat/completions",
        11,
        "endpoint names a route (/chat/completions)",
        "write the address before it: http://h/v1",
    ),
    ("endpoint: http://h/?a=1", 11, "endpoint has a query or fragment", "write it as http://localhost:8000/v1"),
    (
        "endpoint: http://",
        11,
        "endpoint: 'http://' is not an address: it has no host",
        "write it as http://localhost:8000/v1",
    ),
    (
        "endpoint: http://h:99999",
        11,
        "endpoint is not an address: its host or port cannot be read",
        "write it as http://localhost:8000/v1",
    ),
    ("endpoint: 5", 11, "endpoint is an address; this is 5", "write it as http://localhost:8000/v1"),
    ("endpoint: [a]", 11, "endpoint is an address; this is a list", "write it as http://localhost:8000/v1"),
    (
        "endpoint: http://a b",
        11,
        "endpoint: 'http://a b' is not an address: it holds a space or a character beyond ASCII",
        "write it as http://localhost:8000/v1",
    ),
    (
        "endpoint: 'http://[::1'",
        11,
        "endpoint is not an address: its host or port cannot be read",
        "write it as http://localhost:8000/v1",
    ),
    (
        "endpoint: http://a..b",
        11,
        "endpoint: 'http://a..b' is not an address: its host is not one",
        "write it as http://localhost:8000/v1",
    ),
]

SHAPES: list[Row] = [
    ("shapes: []", 9, "shapes is an empty list", "write [1024/256]"),
    ("shapes: 5", 9, "shapes is a list", "write [..., ...]"),
    (
        "shapes: [1024]",
        10,
        "a shape is two lengths; this is 1024",
        "write input/output tokens, as 1024/256, or {isl: 1024, osl: 256}",
    ),
    (
        "shapes: [1024x256]",
        10,
        "'1024x256' is not a shape",
        "write input/output tokens, as 1024/256, or {isl: 1024, osl: 256}",
    ),
    ("shapes: [8k/1k]", 10, "'8k/1k': k may mean 1,000 or 1,024", "write 8192/1024 or 8000/1000"),
    ("shapes: [8k1k]", 10, "'8k1k': k may mean 1,000 or 1,024", "write 8192/1024 or 8000/1000"),
    ("shapes: [0/5]", 10, "'0' is out of range", "lengths are from 1 to 4,194,304 tokens"),
    ("shapes: [1/2, 1/2]", 15, "1/2 is given twice", "remove one; repeats: 3  measures each again"),
    (
        "shapes: [{isl: 1, osl: 2, name: chat}, {isl: 3, osl: 2, name: chat}]",
        40,
        "two shapes are called chat",
        "give one a name, as {isl: 1024, osl: 256, name: chat}",
    ),
    ("shapes: [{isl: 5}]", 10, "the key osl is missing", "add  osl: 256"),
    ("shapes: [{isl: 5, osl: 5, prefx: 5%}]", 27, "unknown key 'prefx'", "did you mean 'prefix'?"),
    (
        "shapes: [{isl: {normal: [5]}, osl: 1}]",
        25,
        "normal takes two numbers",
        "write a whole number, {uniform: [512, 1024]} or {normal: [1024, 128]}",
    ),
    (
        "shapes: [{isl: 5, osl: 5, prefix: []}]",
        35,
        "prefix: a shape has 1 to 20 shares",
        "write [0%, 25%, 50%, 75%]: one series for each",
    ),
    (
        "shapes: [{isl: 5, osl: 5, prefix: [0%, 100%]}]",
        35,
        "prefix: the whole prompt cannot be common to all",
        "write at most 99%",
    ),
    (
        "shapes: [1/2, {isl: 5, osl: 5, prefix: [0%, 50%, 50%]}]",
        15,
        "5/5 prefix 50% is given twice",
        "remove one; repeats: 3  measures each again",
    ),
    (
        "shapes: [{isl: 5, osl: 5, prefix: 100%}]",
        35,
        "prefix: the whole prompt cannot be common to all",
        "write at most 99%",
    ),
    (
        "shapes: [[1,2]]",
        10,
        "a shape is two lengths; this is a list",
        "write input/output tokens, as 1024/256, or {isl: 1024, osl: 256}",
    ),
]


def whole(line: int, row: Row) -> str:
    """The message of one complaint about a line, as the command line prints it."""
    text, column, what, hint = row
    return f"s.yaml:{line}:{column}: {what}\n  {line} | {text.splitlines()[0]}" + (
        "" if hint is None else f"\n  {hint}"
    )


@pytest.mark.parametrize("row", KEYS, ids=lambda row: row[0])
def test_a_wrong_line_is_told_with_place_cause_and_way_out(row: Row) -> None:
    assert whole(3, row) == told(BASE + row[0] + "\n")


@pytest.mark.parametrize("row", ENDPOINTS, ids=lambda row: row[0])
def test_a_wrong_endpoint_is_told_with_the_address_to_write(row: Row) -> None:
    assert whole(1, row) == told(row[0] + "\nshapes: [1/1]\n")


@pytest.mark.parametrize("row", SHAPES, ids=lambda row: row[0])
def test_a_wrong_shape_is_told_where_it_stands(row: Row) -> None:
    assert whole(2, row) == told("endpoint: http://h\n" + row[0] + "\n")


SECRETS: list[Row] = [
    (
        "api_key_env: my-key",
        14,
        "api_key_env is not the name of an environment variable",
        "put the key into the environment and its variable's name here:  api_key_env: OPENAI_API_KEY",
    ),
    (
        "api_key_env: sk-abcdefghijklmnopqrst",
        14,
        "api_key_env is not the name of an environment variable",
        "put the key into the environment and its variable's name here:  api_key_env: OPENAI_API_KEY",
    ),
    (
        "api_key_env: abcDEF0123456789abcDEF01",
        14,
        "api_key_env looks like a key, not like the name of a variable",
        "put the key into the environment and its variable's name here:  api_key_env: OPENAI_API_KEY",
    ),
    (
        "api_key: hunter2hunter2",
        1,
        "unknown key 'api_key'; keys are not written into a config",
        "name its variable: api_key_env: OPENAI_API_KEY",
    ),
    (
        "headers: {X-Api-Key: hunter2}",
        22,
        "the header X-Api-Key holds a secret; secrets come from the environment",
        "write  X-Api-Key: ${MY_VARIABLE}  or use  api_key_env: MY_VARIABLE",
    ),
    (
        "headers: {Authorization: Bearer abcdefgh}",
        26,
        "the header Authorization holds a secret; secrets come from the environment",
        "write  Authorization: ${MY_VARIABLE}  or use  api_key_env: MY_VARIABLE",
    ),
    (
        "headers: {X-A: sk-abcdefghijklmnopqrst}",
        16,
        "X-A holds what looks like a key; keys come from the environment",
        "put it into a variable and name that: api_key_env: OPENAI_API_KEY",
    ),
    (
        "model: hf_abcdefghijklmnopqrst",
        8,
        "model holds what looks like a key; keys come from the environment",
        "put it into a variable and name that: api_key_env: OPENAI_API_KEY",
    ),
]


@pytest.mark.parametrize("row", SECRETS, ids=lambda row: row[0])
def test_a_secret_is_refused_and_never_repeated(row: Row) -> None:
    text, column, what, hint = row
    message = told(BASE + text + "\n")
    assert [f"s.yaml:3:{column}: {what}", f"  {hint}"] == message.splitlines()[::2]
    secret = text.rstrip("}").split()[-1]
    assert secret not in message
    assert message.splitlines()[1].endswith(("***", "***}"))


def test_a_secret_is_not_repeated_by_another_complaint_on_its_line_or_by_a_syntax_error() -> None:
    assert "hunter2" not in told("endpoint: http://me:hunter2hunter2@h/v1\nshapes: 1/1\n")
    assert "sk-abcdef" not in told("endpoint: http://h\nmodel: [sk-abcdefghijklmnopqrst\nshapes: 1/1\n")
    assert "sk-abcdef" not in told("endpoint: sk-abcdefghijklmnopqrst\nshapes: [sk-abcdefghijklmnopqrst]\n")
    assert "swordfish" not in told('api_key: "swordfish: x\n')


def test_everything_wrong_is_told_at_once_in_the_order_of_the_text() -> None:
    message = told(
        "endpoint: localhost:8000\nconcurency: [1]\nshapes: [1024/256, 8k/1k]\nsla:\n  p99_ttft: 500\n  p99_tfft: 1s\n"
    )
    assert (
        """\
s.yaml:1:11: endpoint: 'localhost:8000' does not start with http:// or https://
  1 | endpoint: localhost:8000
  write http://localhost:8000
s.yaml:2:1: unknown key 'concurency'
  2 | concurency: [1]
  did you mean 'concurrency'?
s.yaml:3:20: '8k/1k': k may mean 1,000 or 1,024
  3 | shapes: [1024/256, 8k/1k]
  write 8192/1024 or 8000/1000
s.yaml:5:13: p99_ttft needs a unit
  5 | p99_ttft: 500
  write 500ms or 0.5s
s.yaml:6:3: unknown metric 'p99_tfft'
  6 | p99_tfft: 1s
  did you mean 'p99_ttft'?"""
        == message
    )


def test_what_is_missing_is_told() -> None:
    assert """\
s.yaml:1:1: the key shapes is missing
  1 | model: m
  add  shapes: [1024/256]
s.yaml:1:1: the key endpoint is missing
  1 | model: m
  add  endpoint: http://localhost:8000/v1""" == told("model: m\n")


def test_what_deployments_inherit_is_told_once_and_where_it_stands() -> None:
    text = "endpoint: http://h\nshapes: 1/1\nprice: 12\ndeployments:\n  - {name: a}\n  - {name: b, gpus: 0}\n"
    assert """\
s.yaml:3:8: price needs a unit
  3 | price: 12
  write $12/h for the whole deployment, or $3/gpu/h
s.yaml:6:21: gpus: 0 is out of range
  6 | - {name: b, gpus: 0}
  write a whole number between 1 and 100,000""" == told(text)


def test_a_deployment_without_an_endpoint_is_told_at_the_deployment() -> None:
    text = "shapes: 1/1\ndeployments:\n  - {name: a, endpoint: http://h}\n  - name: b\n"
    assert """\
s.yaml:4:5: the key endpoint is missing
  4 | - name: b
  add  endpoint: http://localhost:8000/v1""" == told(text)


@pytest.mark.parametrize(
    ("engine", "column", "what", "hint"),
    [
        ("{noise: loud}", 20, "noise is a number; this is 'loud'", "write a number between 0 and 10"),
        ("{model: llama-3.1-8b}", 12, "the key hardware is missing", "model is given, and the roofline needs both"),
        (
            "{model: lama-3.1-8b, hardware: h100}",
            20,
            "unknown model 'lama-3.1-8b'",
            "did you mean 'llama-3.1-8b'?",
        ),
        ("{faults: {cut_rat: 1%}}", 22, "unknown key 'cut_rat'", "did you mean 'cut_rate'?"),
        ("{stalls: {every: 10s}}", 21, "the key duration is missing", "add  duration: ..."),
    ],
)
def test_the_engines_own_complaints_stand_at_their_key(engine: str, column: int, what: str, hint: str | None) -> None:
    row = (f"simulator: {engine}", column, what, hint)
    assert whole(3, row) == told(f"endpoint: simulator\nshapes: 1/1\n{row[0]}\n")


def test_deployment_and_shape_may_not_share_a_file_name() -> None:
    text = "endpoint: http://h\nshapes: [{isl: 1, osl: 1, name: b-c}, {isl: 2, osl: 2, name: c}]\n"
    message = told(text + "deployments: [{name: a}, {name: a-b}]\n")
    assert "s.yaml:3:14: a with b-c and a-b with c would share a file name" == message.splitlines()[0]


def test_a_sweep_too_large_to_finish_is_refused() -> None:
    message = told(f"endpoint: http://h\nshapes: 1/1\nconcurrency: {list(range(1, 500))}\nrepeats: 100\n")
    assert "s.yaml:2:9: 49,900 trials; the maximum is 20,000" == message.splitlines()[0]


def test_traps_of_the_text_and_mistakes_of_meaning_are_said_together_each_once() -> None:
    text = "endpoint: simulator\nconcurency: [1]\nshapes: [256/32]\nsla: {p99_ttft: yes}\nrequests: 1e3\nseed: 010\n"
    with pytest.raises(ConfigError) as caught:
        load_config(text, "sweep.yaml")
    assert [(2, 1), (4, 17), (5, 11), (6, 7)] == [(c.line, c.column) for c in caught.value.complaints]


@pytest.mark.parametrize(
    "text",
    [
        BASE + "".join(f"k{i}: 1\n" for i in range(9_000)),
        BASE + "x: [" + ",".join(["yes"] * 9_000) + "]\n",
        BASE + "a: 1\n" * 9_000,
        f"shapes: [{', '.join(f'{i + 1}/8' for i in range(100))}]\ndeployments:\n"
        + "".join(f"- {{name: d{i}, endpoint: 'http://h'}}\n" for i in range(2_800)),
    ],
    ids=["unknown keys", "ambiguous values", "the same key", "deployments"],
)
def test_thousands_of_mistakes_are_found_in_no_time_and_said_in_part(text: str) -> None:
    began = time.process_time()
    message = told(text)
    assert time.process_time() - began < 10
    assert len(message) < 12_000
    assert message.count("\n") < 200


@pytest.mark.parametrize("key", ["request_rate", "rates", "qps", "rps", "arrival_rate"])
def test_another_name_of_the_rate_is_told(key: str) -> None:
    assert "write rate: [1, 2, 4], requests per second" in told(BASE + f"{key}: 5\n")


@pytest.mark.parametrize(
    ("keys", "hint"),
    [
        ("users max_concurrency concurrencies streams", "write concurrency: "),
        ("input_len output_len random_input_len max_tokens input_tokens", "write shapes: "),
        ("num_prompts num_requests", "write requests"),
        ("slo goodput", "write sla"),
        ("duration max_seconds", "write max_time"),
        ("timeout", "write timeouts: "),
        ("dataset", "write prompts: "),
    ],
)
def test_the_keys_of_other_tools_lead_to_ours(keys: str, hint: str) -> None:
    for key in keys.split():
        assert f"\n  {hint}" in told(BASE + f"{key}: 5\n"), key
