"""The commented config that `frontier init` prints: required keys are active, all others are listed
as comments.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from string import Template

from frontier.client.ask.found_servers import ServerFacts
from frontier.client.engines import KNOWN
from frontier.config.sla import PRESETS
from frontier.core.model.text import some_of


class _AtTemplate(Template):
    """A text with places as @name: YAML has braces and dollars of its own."""

    delimiter = "@"


_TEMPLATE = _AtTemplate("""\
# A sweep: which load is sent where, and what counts. Run it with   frontier sweep sweep.yaml
# See what it would do, without sending anything, with              frontier sweep sweep.yaml --dry-run
@about
# Where@asked
endpoint: @endpoint
@model
# api: auto                          # auto | completions | chat
# dialect: auto                      # @dialects
@key
# What load
@shapes
# shapes:                            # the same, in full
#   - {isl: 1024, osl: 256, name: chat}
#   - {isl: {uniform: [512, 2048]}, osl: {normal: [256, 64]}, name: mixed}
#   - {isl: 4096, osl: 256, name: agent, prefix: 50%}     # half of the prompt is common to all requests
#   - {isl: 8192, osl: 256, name: rag, prefix: [0%, 25%, 50%, 75%]}     # one series for each share
#   - {name: dialog, turns: 8, first: 2048, per_turn: 200/300, think: 10s, system: 512}     # a session of 8 turns
#                                    # {name: trace, sessions: trace.jsonl} are the sessions of a file
# traffic: {chat: {share: 80%, sla: {p99_ttft: 500ms}}, agent: {}}     # a mix of all the shapes, by their names
@concurrency
# background: {shape: 8192/512, concurrency: [0, 8, 16]}    # batch beside one concurrency of one shape: how much fits?
# rate: [1, 2, 4, 8]                 # in place of concurrency: requests (sessions) per second that arrive; or auto
# arrivals: poisson                  # how they come at a rate; in bursts {gamma: {cv: 2}}, or {trace: azure.csv}
# warmup: auto                       # every stream has finished a request; a duration sets the least, as 20s
# min_time: 0s                       # of the counted window
# The sweep finds and proves the operating point first, then completes the frontier, and sizes its trials itself.
# These four fix their sizes; leave them out unless you have to:
# requests: 300                      # sent per trial of a concurrency listed above, at least
# repeats: 3                         # in shuffled blocks, so drift cannot look like concurrency
# max_time: 5min                     # per trial, warm-up included; too short a time proves nothing
# refine: 3                          # extra settings measured where the SLA is crossed; 0 = never
# prompts: random                    # random words | natural text | path.jsonl; the first two defeat prefix caching
# workers: auto                      # client processes that send the load; auto = one, more where it needs them
# ignore_eos: true                   # force the output length; false = natural lengths
# seed: 1
# budget: {time: 8h, until: "07:00"} # also requests, tokens, cost: $20; the least valuable work is dropped

# on_finish: ./tell-me.sh            # run when the sweep has ended; or a webhook: ${MY_WEBHOOK_URL}

# What counts. These limits are an example: write what you promise your users.
# The search for the operating point looks at them while measuring. Changing them never needs a new sweep.
sla: {@sla}
# sla: chat                          # a preset: chat, search, agent, summary, voice, batch
# sla: {p99_ttft: [300ms, 500ms]}    # a range: comfort, promise
# sla:                               # tiers; the first is the default
#   gold: {p99_ttft: 200ms, p99_tpot: 20ms}
#   silver: {p99_ttft: 1s, p99_tpot: 50ms}
@objectives          # the axes of the frontier
# marginal_gain: true                # do not take a step that costs much tail for little throughput

# What to divide by, and the roofline (without hardware none is drawn)
# gpus: 1
# price: $3/gpu/h                    # or $12/h for the whole deployment
# hardware: h200                     # a known GPU; or a whole description:
# hardware: {name: H200, memory_bandwidth: 4.8TB/s, memory: 141GiB, tflops: 989, model: llama-3.1-8b, precision: fp8}
# hardware: {memory_bandwidth: 4.8TB/s, memory: 141GiB, weights: 16GB, kv_per_token: 131kB}      # without a model card
# hardware: {power: 700W}            # what it draws: for energy per token where nvidia-smi is not beside the server

# How it is reached
# timeouts: {connect: 10s, first_byte: 5min, idle: 2min, total: 30min}
# tls: {ca: ca.pem}                  # for https: verify, ca, cert, key
# proxy: none                        # none | env (HTTP_PROXY and the like; a proxy that buffers spoils TTFT)
# headers: {X-Tenant: blue}          # a secret one comes from the environment: {X-Token: "${MY_TOKEN}"}
# metrics: http://localhost:8000/metrics             # the server's own, or a list with one per replica; none: not read
# extra_body: {temperature: 0}       # added to every request

# Several deployments, compared; each takes what it does not say from the keys above
# deployments:
#   - {name: bf16, endpoint: http://localhost:8000/v1}
#   - {name: fp8, endpoint: http://localhost:8001/v1}
#   - name: int4                       # started, waited for and stopped by the sweep, one after another
#     endpoint: http://localhost:8002/v1
#     start: vllm serve my/model --quantization awq --port 8002
#     ready: {within: 20min}           # or a command that ends with 0
#     stop: {within: 30s}              # or a command, before the process group is ended
# deployments:
#   - name: capped                     # alone: a knob of the running server, put back at the end
#     vary: {watts: [400, 320]}
#     apply: sudo -n nvidia-smi -pl {watts}
#     check: nvidia-smi --query-gpu=power.limit --format=csv,noheader,nounits
#     settle: 5s                       # from apply until the value has its effect
""")

_KEY = """\
# api_key_env: OPENAI_API_KEY        # the variable's name; the key is never stored
# api_key_file: secrets/key          # or a file only you may read (chmod 600)
"""

_SIMULATOR = """\
simulator: {max_num_seqs: 64}        # the embedded engine's parameters; none is needed"""


@dataclass(frozen=True, slots=True)
class UseCase:
    """What one use of a model asks of its deployment.

    - `about`: the use in a comment.
    - `isl`, `osl`: its request; `prefix`: the share of a prompt that all requests have in common.
    - `preset`: the preset of its SLA; '' takes the limits of the example.
    """

    about: str
    isl: int
    osl: int
    preset: str = ""
    prefix: str = ""
    objectives: str = ""

    @property
    def sla(self) -> str:
        """The limits of its SLA, as YAML."""
        limits = PRESETS[self.preset].replace("<=", ": ") if self.preset else "p99_ttft: 500ms, p99_tpot: 30ms"
        return f"{limits}, error_rate: 1%"


USE_CASES: Mapping[str, UseCase] = {
    "chat": UseCase(
        "a person waits for the first word, then reads along: TTFT decides, the pace has to keep up with reading",
        2048,
        256,
        "chat",
        prefix="25%",
    ),
    "search": UseCase(
        "long prompts of retrieved passages, different each time, and short answers: TTFT is mostly reading the prompt",
        6144,
        384,
        "search",
    ),
    "agent": UseCase(
        "many calls in a row, half of each prompt common to all; a call counts when its whole answer is in time",
        8192,
        256,
        "agent",
        prefix="50%",
        objectives="[goodput, p99_e2e]",
    ),
    "summary": UseCase(
        "a long text is read once and told in short: the first word may take a moment, the rest is read as it comes",
        8192,
        512,
        "summary",
    ),
    "voice": UseCase(
        "the answer is spoken: a late start is noticed at once, and speech needs only a few tokens a second",
        512,
        128,
        "voice",
        prefix="50%",
    ),
    "batch": UseCase(
        "no person waits: tokens per second are paid for, and each request has to end some time",
        2048,
        512,
        "batch",
        objectives="[output_throughput, p95_e2e]",
    ),
}
_ANY = UseCase("", 1024, 256)
_SHORTEST = 16
"""Tokens of an answer that are left where a context is very short."""
_OBJECTIVES = "# objectives: [output_throughput, p99_ttft]"
_LONGEST_NAME = 300
_ROOM = 64
"""Tokens of a context that are left free for a chat template and for differences between
tokenizers."""


def commented_config(
    endpoint: str,
    model: str | None = None,
    said: ServerFacts | None = None,
    api_key_env: str | None = None,
    use: str | None = None,
) -> str:
    """YAML for `endpoint` ('simulator' or an address) that loads as it is; optional keys are
    commented out. `said` is what the server there reports of itself, None where none answered;
    `use` names one of USE_CASES.
    """
    case = _ANY if use is None else USE_CASES[use]
    isl, osl = _fitting(case, said)
    simulator = endpoint == "simulator"
    key = "" if simulator else _KEY
    if api_key_env is not None:
        key = f"api_key_env: {_scalar(api_key_env)}\n" + _KEY.split("\n", 1)[1]
    return _TEMPLATE.substitute(
        endpoint=_scalar(endpoint),
        model=_SIMULATOR if simulator else _model_line(model, said),
        dialects=" | ".join(("auto", "openai", *KNOWN)),
        key=key,
        asked="" if simulator else f"\n# {_asked(said)}",
        shapes=_shapes(isl, osl, case, use),
        about=f"# For {use}: {case.about}.\n" if use else "",
        concurrency=_concurrency(isl + osl, said),
        sla=case.sla,
        objectives=f"objectives: {case.objectives}" if case.objectives else _OBJECTIVES,
    )


def _asked(said: ServerFacts | None) -> str:
    """The result of asking the server, as a comment of one line, whatever the server says."""
    if said is None:
        return "No server answered here when this was written: nothing below comes from it."
    if said.refused:
        return "The server wants a key: nothing below comes from it."
    context = f", context of {said.max_model_len:,} tokens" if said.max_model_len else ""
    models = some_of([*map(_quoted, said.models)], 5) or "no model listed"
    return f"Asked when this was written: {_quoted(said.engine)} with {models}{context}."


def _quoted(text: str) -> str:
    """A server's word inside a comment: bounded, and with nothing in it that could end the line."""
    return json.dumps(text[:100])[1:-1]


def _model_line(model: str | None, said: ServerFacts | None) -> str:
    if model is not None:
        return f"model: {_scalar(model)}"
    usable = [m for m in (said.models if said else ()) if m.isprintable() and m.strip() and len(m) <= _LONGEST_NAME]
    if not usable:
        return "# model: meta-llama/Llama-3.1-8B-Instruct    # left out: the one that the server lists"
    several = "" if said is not None and len(said.models) == 1 else "    # one of several: see above"
    return f"model: {_scalar(usable[0])}{several}"


def _fitting(case: UseCase, said: ServerFacts | None) -> tuple[int, int]:
    """Its lengths, halved until the server's context has room for them."""
    room = said.max_model_len if said is not None else None
    isl, osl = case.isl, case.osl
    while room is not None and isl + osl + _ROOM > room and osl > _SHORTEST:
        isl, osl = isl // 2, osl // 2
    return isl, osl


def _shapes(isl: int, osl: int, case: UseCase, use: str | None) -> str:
    shape = f"{isl}/{osl}"
    if use is not None:
        prefix = f", prefix: {case.prefix}" if case.prefix else ""
        shape = f"{{isl: {isl}, osl: {osl}, name: {use}{prefix}}}"
    line = f"shapes: [{shape}]"
    return f"{line:<36} # input tokens / output tokens; several are swept one by one"


def _concurrency(tokens: int, said: ServerFacts | None) -> str:
    """The lines on concurrency: the sweep finds the settings; the number that the server says it
    can hold is a comment.
    """
    slots = said.slots if said is not None else None
    why = "or a list, as [1, 2, 4, 8, 16, 32, 48, 64, 96, 128]"
    if slots is not None:
        why = f"the server has {slots} slots"
    elif said is not None and said.kv_tokens is not None:
        why = f"the server's KV cache holds about {said.kv_tokens // tokens:,} such requests"
    return f"{'concurrency: auto':<36} # as high as the SLA allows; {why}"


def _scalar(text: str) -> str:
    """A text as YAML: plain where every reader agrees on it, else in double quotes (JSON's are
    YAML's).
    """
    plain = text[:1].isalpha() and all(ch.isalnum() or ch in "-_./:" for ch in text) and text.isascii()
    words = {"yes", "no", "on", "off", "true", "false", "null", "y", "n"}
    if plain and not text.endswith(":") and text.lower() not in words:
        return text
    return json.dumps(text, ensure_ascii=False)


def needed(text: str) -> str:
    """The required lines of a commented config: its head, and each section that has an active key,
    with the line above its keys. Keys that are commented out are dropped.
    """
    head, *sections = text.split("\n\n")
    kept = [head]
    for section in sections:
        lines = section.splitlines()
        keys = [line for line in lines if line and not line.startswith("#")]
        if keys:
            first = lines.index(keys[0])
            kept.append("\n".join([*(line for line in lines[:first] if not _KEY_OUT.match(line)), *keys]))
    return "\n\n".join([*kept, "# All other keys:  frontier init --all"])


_KEY_OUT = re.compile(r"# +(#|- |\w+:)")
"""A key that is commented out, or a line of one."""
