"""Remedies: what to change where a resource binds, by an engine's own flags."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from frontier.client.engines import KNOWN, vllm
from frontier.client.engines.base import EngineSetting
from frontier.core.model.units import format_number, format_seconds
from frontier.extras.diagnose.signs import Signs


class Resource(StrEnum):
    """Resources that can bind."""

    PREFILL = "prefill"
    DECODE = "decode"
    KV = "kv_cache"
    BATCH = "batch_cap"
    BUDGET = "token_budget"
    FRONT_END = "front_end"
    NETWORK = "network"
    CLIENT = "client"
    CLOCKS = "clocks"
    RATE_LIMIT = "rate_limit"
    OVERLOAD = "overload"

    @property
    def words(self) -> str:
        """Its name in a sentence."""
        return _REMEDIES[self].words


@dataclass(frozen=True, slots=True)
class _Option:
    """One change and its expected effect. It is proposed where it `fits` a setting, compared with
    the lowest one, and is not on already.

    - `flag`: what is changed on an engine; its name there fills the `{flag}` of `change`.
    - `places`: the parts of the time breakdown that may become shorter. Their seconds and the mean
      TTFT fill the two `{}` of `effect`.
    """

    change: str
    effect: str
    flag: EngineSetting | None = None
    places: tuple[str, ...] = ()
    fits: Callable[[Signs, Signs], bool] = lambda _here, _alone: True


@dataclass(frozen=True, slots=True)
class _Remedy:
    """The changes for a resource, which is called `words`: all `options` that fit, otherwise the
    `last` resort.
    """

    words: str
    options: tuple[_Option, ...]
    last: _Option | None = None


DRAFTS_PAY = 2.0
"""Speculative decoding is proposed up to this multiple of a lone request's time per token. Beyond
it steps are full of work, and drafts would add more."""


KV_READ = 1.25
"""A smaller KV cache entry is proposed for decode from this multiple of a lone request's time per
token: the KV cache reads of a step grow with the running requests."""


MEMORY_IDLE = 0.25
"""Share of the memory's bandwidth that decoding must reach for fewer bytes to make it faster; below
it the engine's software binds. For an 8B model on an H200, a bare loop of CUDA graphs reads at 41
to 71%, a server without fast attention kernels at 2 to 9%."""


def _idle_memory(here: Signs, _: Signs) -> bool:
    return here.memory is not None and here.memory < MEMORY_IDLE


def _wide(bits: float | None) -> bool:
    """Whether a number has 16 bits, or an unknown size."""
    return bits is None or bits > 8


def _drafts_pay(here: Signs, alone: Signs) -> bool:
    return not here.settings.drafts and here.tpot < DRAFTS_PAY * alone.tpot


def _kv_is_read(here: Signs, alone: Signs) -> bool:
    read = here.tpot >= KV_READ * alone.tpot and not _idle_memory(here, alone)
    return read and _wide(here.settings.kv_bits)


def _weights_are_read(here: Signs, alone: Signs) -> bool:
    return _wide(here.settings.weight_bits) and not _idle_memory(here, alone)


def _only(words: str, change: str, effect: str, **more: Any) -> _Remedy:
    return _Remedy(words, (_Option(change, effect, **more),))


_REMEDIES: Mapping[Resource, _Remedy] = {
    Resource.PREFILL: _Remedy(
        "prefill",
        (
            _Option(
                "more GPUs for each replica ({flag})",
                "half the work for a prompt takes at least half of {} off a mean TTFT of {}",
                EngineSetting.GPUS,
                ("queue", "prefill"),
            ),
            _Option(
                "a prefix cache where prompts repeat",
                "the repeated part of a prompt is not read again",
                fits=lambda here, _: not here.settings.prefix_cache,
            ),
        ),
    ),
    Resource.DECODE: _Remedy(
        "decode",
        (
            _Option(
                "CUDA graphs, faster attention kernels, or another engine",
                "the memory is idle most of the time, so what a step loses it loses in software",
                fits=_idle_memory,
            ),
            _Option(
                "lighter weights ({flag})",
                "each step reads half the bytes, so a token takes up to half the time (check quality)",
                EngineSetting.LIGHTER_WEIGHTS,
                fits=_weights_are_read,
            ),
            _Option(
                "speculative decoding ({flag})",
                "several tokens a step where drafts are accepted",
                EngineSetting.DRAFTS,
                fits=_drafts_pay,
            ),
            _Option(
                "a smaller KV cache entry ({flag})",
                "each step reads half as much of the KV cache",
                EngineSetting.SMALLER_KV,
                fits=_kv_is_read,
            ),
        ),
        _Option(
            "more GPUs for each replica ({flag})",
            "each GPU reads a smaller part of the weights and KV",
            EngineSetting.GPUS,
        ),
    ),
    Resource.KV: _Remedy(
        "KV cache",
        (
            _Option(
                "a smaller KV cache entry ({flag})",
                "about twice as many requests fit; check quality",
                EngineSetting.SMALLER_KV,
                fits=lambda here, _: _wide(here.settings.kv_bits),
            ),
        ),
        _Option(
            "more GPUs for each replica ({flag})", "their memory beyond the weights is KV cache", EngineSetting.GPUS
        ),
    ),
    Resource.BATCH: _only(
        "batch cap",
        "a higher cap ({flag})",
        "fewer requests wait, each token takes a little longer",
        flag=EngineSetting.BATCH_CAP,
    ),
    Resource.BUDGET: _only(
        "token budget of a step",
        "twice the token budget ({flag})",
        "up to {} of a mean TTFT of {} can go; gaps between tokens grow where prompts are read",
        flag=EngineSetting.STEP_BUDGET,
        places=("queue", "prefill"),
    ),
    Resource.FRONT_END: _only(
        "server front end",
        "more front-end processes ({flag})",
        "up to {} of a mean TTFT of {} can go",
        flag=EngineSetting.FRONT_END,
        places=("front_end",),
    ),
    Resource.NETWORK: _only(
        "network or proxy",
        "measuring beside the server, then the proxy's connection limit and buffering",
        "up to {} of a mean TTFT of {} can go",
        places=("connect", "network"),
    ),
    Resource.CLIENT: _only(
        "load client",
        "more client processes (workers: in the config) or an idle machine",
        "latencies without the client's own delay; as measured they are not the server's",
    ),
    Resource.CLOCKS: _only(
        "GPU clocks",
        "cooling or a higher power limit (nvidia-smi -q -d PERFORMANCE says which)",
        "steps become shorter by up to the share that the clock fell",
    ),
    Resource.RATE_LIMIT: _only(
        "rate limit",
        "a higher limit for this key, at the gateway or the server ({flag})",
        "requests reach the server; only then its own limit shows",
        flag=EngineSetting.RATE_LIMIT,
    ),
    Resource.OVERLOAD: _only(
        "overload",
        "another replica, or a limit on requests in flight before the server",
        "fewer requests at a replica, none refused or timed out",
    ),
}


def remedy(resource: Resource, engine: str | None, here: Signs, alone: Signs) -> tuple[str, str]:
    """What to change on an engine (with vLLM's names where it is not known), and the expected
    effect; nothing that is on already. `alone` is the lowest setting.
    """
    of = _REMEDIES[resource]
    options = [option for option in of.options if option.fits(here, alone)] or [of.last or of.options[0]]
    cap = cap_to_try(here) if resource is Resource.BATCH else None
    changes = [on_engine(option.change, option.flag, engine, cap, here.ranks) for option in options]
    effects = []
    for option in options:
        spent = sum(here.parts.get(place, 0.0) for place in option.places)
        effect = option.effect.format(format_seconds(spent), format_seconds(here.ttft))
        effects.append(f"with {option.change.partition(' ({')[0]} {effect}" if len(options) > 1 else effect)
    if resource is Resource.BATCH and here.room is not None:
        effects.append(f"the KV cache has room for about {format_number(here.room)}")
    return ", or ".join(changes), "; ".join(effects)


def on_engine(
    change: str, flag: EngineSetting | None, engine: str | None, cap: int | None = None, ranks: int = 1
) -> str:
    """A change with its flag's name on an engine in place of ` ({flag})`. The limit on requests in
    flight gets a `cap` as its value where one is given: a share where each of the `ranks` has its
    own.
    """
    known = KNOWN.get(engine or "")
    label = f"on {vllm.ENGINE.title}" if known is None else known.title
    known = known or vllm.ENGINE
    name = known.flags.get(flag, "") if flag else ""
    if cap is not None:
        share = -(-cap // ranks) if known.limit_per_rank else cap
        name = (name or known.limit).format(c=share) + (f" on each of {ranks} ranks" if share != cap else "")
    return change.replace(" ({flag})", f" ({label} {name})" if name else "")


def cap_to_try(here: Signs) -> int:
    """Twice the present batch cap, within the KV cache and not above the concurrency."""
    present = here.cap or round(here.running_max or 0) or round(here.present)
    return max(present + 1, round(min(2 * present, here.present, 0.9 * (here.room or 3 * present))))
