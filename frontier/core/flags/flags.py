"""Flags: what makes a point's numbers meaningless or uncertain, found in its window data.

Every flag says what was measured, the limit, and what to do. Fatal ones make the point invalid: it
is drawn hollow and never chosen. Failing requests count as infinite latency, so that an overloaded
server is a "no" and not a failed measurement; they make a point invalid only where no limit would
notice them.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from frontier.core.flags.cache_flags import cache
from frontier.core.flags.failures import errors
from frontier.core.flags.load_flags import of_load, resent
from frontier.core.flags.stream_flags import chunks, hollow_first, share_above, stream
from frontier.core.model.decisions import Limit
from frontier.core.model.metrics import claim_floor
from frontier.core.model.points import Flag
from frontier.core.model.trials import UNCOUNTED_PROMPTS
from frontier.core.model.units import format_share
from frontier.core.stats import connections
from frontier.core.window.held import held_alone
from frontier.core.window.window import Bools, Floats, WindowData

SHORT_OUTPUT = 0.01
"""Where more than this share of answers are shorter than asked, another output length was
measured."""
INPUT_OFF = 0.02
"""Share by which the prompts' mean may miss the length asked, as the server counts it."""
INPUT_SPREAD = 4.0
"""Standard deviations of the prompts' own lengths: words make uneven numbers of tokens."""
INPUT_CHANCE = 4.0
"""Standard errors by which the mean and the median of uneven prompts may be further off by chance.
Natural text is uneven by 7%: 60 prompts may be off by 3.5%, 2,000 by 0.6%."""
WRONG_INPUT = 0.01
"""Where more than this share of prompts have another length, another input length was measured."""
UNCOUNTED = 0.01
"""Where more than this share of successes lack the server's token count, no throughput in tokens is
given."""
ODD_FINISH = 0.01
"""Where the server gave up more than this share of answers, they do not count as answers."""
GAVE_UP = frozenset(
    {
        "abort",
        "aborted",
        "blocklist",
        "cancelled",
        "canceled",
        "content_filter",
        "content_filtered",
        "error",
        "insufficient_system_resource",
        "malformed_function_call",
        "network_error",
        "overloaded",
        "prohibited_content",
        "recitation",
        "refusal",
        "safety",
        "sensitive",
        "spii",
        "timeout",
    }
)
"""Finish reasons, in lower case, that say that the server did not finish the answer, or held it
back."""
CLOCKS_HELD = 0.10
"""Share of readings with clocks held down that is worth a warning."""

LIFE = re.compile(r"(?:, |^)started (\d+)$")
"""When the server's process began: the last part of its identity."""

FlagCheck = Callable[[WindowData], Iterable[Flag]]


@held_alone
def flags(sample: WindowData, limits: tuple[Limit, ...] = ()) -> tuple[Flag, ...]:
    """Everything that is wrong with this sample, the fatal first; `limits` are the percentiles to
    be claimed.
    """
    if not sample.n:
        raised = [*_server(sample), *_cut_off(sample), _nothing(sample)]
    else:
        raised = [flag for check in _CHECKS for flag in check(sample)]
        raised += [*stream(sample, limits), *errors(sample, limits), *hollow_first(sample, limits)]
        raised += _too_few(sample, limits)
        raised += _few_connections(sample, limits)
    return tuple(sorted(raised, key=lambda flag: not flag.fatal))


def _nothing(sample: WindowData) -> Flag:
    sent = sum(sample.outcomes.values())
    return Flag(
        "no_requests", f"0 of {sent:,} requests count", "1", "give the trial more time, or look at the client's errors"
    )


# --- what the server answered


def _cut_off(sample: WindowData) -> Iterator[Flag]:
    """Windows that the budget's end cut off: how long the requests in flight would have taken is
    not known.
    """
    cut, windows = sum(ended == "budget" for ended in sample.ended), len(sample.ended)
    if cut:
        what = "its window was not full" if windows == 1 else f"{cut:,} of {windows:,} windows were not full"
        yield Flag("cut_off", what, "", "a larger budget measures it again")


def _finishes(sample: WindowData) -> Iterator[Flag]:
    """Answers that ended oddly, which count as failures. Fatal where the reason is unknown: they
    may have been good.
    """
    odd = sample.odd_finishes
    sent = sum(sample.outcomes.values())
    if share_above(sum(odd.values()), sent, ODD_FINISH):
        unknown = [name for name in odd if name.lower() not in GAVE_UP]
        yield Flag(
            "odd_finish",
            "; ".join(f"{format_share(count / sent)} ended with {name!r}" for name, count in odd.items()),
            format_share(ODD_FINISH),
            "not known to be a good end of an answer, so these count as failures: see what the server means by it"
            if unknown
            else "the server gave these answers up or held them back, so they count as failures: see its log",
            fatal=share_above(sum(odd[name] for name in unknown), sent, ODD_FINISH),
        )


def _uncounted(sample: WindowData) -> Iterator[Flag]:
    """Answers without the server's token count while others have it: they may be the slow ones, or
    the short ones.
    """
    answers, missing = int(sample.ok.sum()), int(sample.uncounted.sum())
    if missing < answers and share_above(missing, answers, UNCOUNTED):
        yield Flag(
            "uncounted",
            f"no usable token count for {format_share(missing / answers)} of answers",
            format_share(UNCOUNTED),
            "TPOT and throughput cannot be known without: see which answers lack  usage  and what is between here and "
            "the server",
        )


def _short_output(sample: WindowData) -> Iterator[Flag]:
    known = sample.ok & ~np.isnan(sample.completion_tokens) & (sample.asked_osl > 0)
    got, asked = sample.completion_tokens[known], sample.asked_osl[known]
    off = np.abs(got - asked)
    wrong = int(((off > 1) & (off > SHORT_OUTPUT * asked)).sum())
    if share_above(wrong, len(got), SHORT_OUTPUT):
        yield Flag(
            "short_output",
            f"{format_share(wrong / len(got))} of answers are not of the asked length "
            f"(median {np.median(got):g} of {np.median(asked):g} tokens)",
            format_share(SHORT_OUTPUT),
            "let the server ignore the end of text (ignore_eos), or raise its max_model_len",
        )


def _wrong_input(sample: WindowData) -> Iterator[Flag]:
    asked = sample.ok & (sample.asked_isl > 0)
    known = asked & ~np.isnan(sample.prompt_tokens)
    if not known.any():
        return
    off = sample.prompt_tokens[known] - sample.asked_isl[known]
    shares = off / sample.asked_isl[known]
    spreads = _spreads(sample, known, shares)
    far = (np.abs(off) > 2) & (np.abs(shares) > np.maximum(INPUT_OFF, INPUT_SPREAD * spreads))
    by_chance = INPUT_CHANCE * float(np.sqrt(np.mean(spreads**2) / len(shares)))
    wrong, prompts = int(far.sum() + (asked & ~known).sum()), int(asked.sum())
    measured = ""
    for middle, share, where in (
        (float(np.median(off)), float(np.median(shares)), "at the median"),
        (float(off.mean()), float(off.sum() / sample.asked_isl[known].sum()), "on average"),
    ):
        if not measured and abs(middle) > 2 and abs(share) > INPUT_OFF + by_chance:
            measured = f"{middle:+.4g} tokens ({share:+.1%}) {where}"
    if not measured and share_above(wrong, prompts, WRONG_INPUT):
        measured = f"{format_share(wrong / prompts)} of prompts are not of the asked length, or not counted"
        if far.any():
            measured += f" ({np.median(off[far]):+.4g} tokens at their median)"
    if measured:
        yield Flag(
            "wrong_input_length",
            measured,
            f"±{format_share(INPUT_OFF)}, {format_share(WRONG_INPUT)} of prompts",
            _wrong_count(sample, off),
        )


def _wrong_count(sample: WindowData, off: Floats) -> str:
    """Why prompts have another length than asked for; `off` is by how many tokens."""
    if any(UNCOUNTED_PROMPTS in server for server in sample.server):
        return (
            "prompt_tokens are no count of the prompt: the same for short and long ones; name the server behind the "
            "gateway that makes them up  (endpoint:),  or have its count passed on"
        )
    if np.median(off) > 0:
        return (
            f"the server counts tokens of its own with each prompt, as a system prompt or a template: at least "
            f"{np.nanmin(sample.prompt_tokens):.4g} were counted, so ask for longer inputs"
        )
    return (
        "the server cuts prompts to its context; or its tokenizer makes uneven numbers of tokens of words, which "
        "average out in longer inputs"
    )


def _spreads(sample: WindowData, known: Bools, shares: Floats) -> Floats:
    """For each prompt the spread of most prompts of its class; cut prompts do not widen it.

    Long prompts spread less than short ones, so classes of a mix are not pooled. The later turns of
    a session contain its first one, made of words: where they spread less among themselves, the
    first turns' spread holds for them too.
    """
    classes = sample.class_index[known] if len(sample.class_index) else np.zeros(len(shares), np.int64)
    later = sample.turn[known] > 0 if len(sample.turn) else np.zeros(len(shares), np.bool_)
    spreads = np.zeros(len(shares))
    for index in np.unique(classes):
        mine = classes == index
        parts = [shares[mine & part] for part in (later, ~later) if (mine & part).any()]
        spreads[mine] = max(1.4826 * float(np.median(np.abs(part - np.median(part)))) for part in parts)
    return spreads


def _server(sample: WindowData) -> Iterator[Flag]:
    lost = sum(ended == "server_lost" for ended in sample.ended)
    if lost:
        yield Flag(
            "server_lost",
            f"in {lost:,} of {len(sample.ended):,} windows",
            "0",
            "see why the server went away (out of memory?); run the sweep again to measure the rest",
        )
    lives = list(dict.fromkeys(identity for identity in sample.server_identities if identity is not None))
    known = list(dict.fromkeys(LIFE.sub("", identity) for identity in lives))
    within = any(server.get("restarts") for server in sample.server)
    changed = list(dict.fromkeys(filter(None, sample.changed)))
    several = sample.names("model") if not changed else {}
    if len(known) > 1 or within or changed or len(several) > 1:
        lifes = [" then ".join(known)] if len(known) > 1 else ["another process within a window"] * within
        yield Flag(
            "server_changed",
            "; ".join([*(lifes if within or not changed else []), *_several(several), *changed]),
            "one server",
            "measure it again; behind a gateway switch fallbacks off, name one deployment  (model:)  or the server "
            "behind it  (endpoint:);  behind a balancer name every replica's metrics  (metrics: [URL, URL]),  or  "
            "metrics: none",
        )
    elif len(lives) > 1:
        yield Flag(
            "server_restarted",
            f"{len(lives)} lives of one server",
            "1",
            "the server was restarted between the windows; the same version answered before and after",
            fatal=False,
        )


def _several(models: Mapping[str, int]) -> list[str]:
    """The models that answers named, with the number of answers, where there are several."""
    named = ", ".join(f"{name} ({count:,})" for name, count in sorted(models.items(), key=lambda each: -each[1]))
    return [f"answers named {named}"] if len(models) > 1 else []


def _fingerprints(sample: WindowData) -> Iterator[Flag]:
    """The flag that answers came from several configurations of the backend, by the server's own
    names.
    """
    prints = sample.names("system_fingerprint")
    if len(prints) > 1:
        yield Flag(
            "fingerprint_changed",
            f"{len(prints):,} fingerprints in {sum(prints.values()):,} answers",
            "1",
            "the server says that its configuration differed between answers: see what was deployed meanwhile",
            fatal=False,
        )


def _clocks(sample: WindowData) -> Iterator[Flag]:
    """The flag that clocks of devices were held down in the windows, by the driver's counts."""
    held, heat = (
        max((server.get(f"gpu_clocks_{why}", 0.0) for server in sample.server), default=0.0) for why in ("held", "heat")
    )
    if held > CLOCKS_HELD:
        yield Flag(
            "clocks_held_down",
            f"in {format_share(held)} of readings a GPU's clocks were held down"
            + (f", in {format_share(heat)} by heat" if heat else ", by its power cap or a slowdown, not by heat"),
            format_share(CLOCKS_HELD),
            "the GPU reached its power limit or its temperature: compare runs at the same limit and cooling",
            fatal=False,
        )


# --- how the tokens came


# --- what the sample can carry


def _too_few(sample: WindowData, limits: tuple[Limit, ...]) -> Iterator[Flag]:
    hardest = max((p for limit in limits if (p := limit.of.p) is not None), default=0.5)
    least = claim_floor(hardest, sample.streams)
    if sample.n < least:
        label = f"p{hardest * 100:g}"
        yield Flag(
            "too_few_samples",
            f"{sample.n:,} requests",
            f"{least:,} for a {label}",
            f"no {label} can be proven to keep a limit: ask for more requests, more repeats or a longer max_time",
            fatal=False,
        )


def _few_connections(sample: WindowData, limits: tuple[Limit, ...]) -> Iterator[Flag]:
    """The flag of too few connections: a connection meets one replica behind a balancer, so few
    connections may have met few replicas. It is not raised where requests are too few: more
    requests bring more connections.
    """
    hardest = max((p for limit in limits if (p := limit.of.p) is not None), default=None)
    seen = connections.count(sample)
    if hardest is None or seen is None or sample.n < claim_floor(hardest, sample.streams):
        return
    if seen >= (least := connections.needed(sample, hardest)):
        return
    label = f"p{hardest * 100:g}"
    yield Flag(
        "too_few_connections",
        f"{seen:,} connections",
        f"{least:,} for a {label}",
        f"no {label} can be proven to keep a limit, as {format_share(connections.unseen(seen))} of replicas may be "
        "slow and not seen: ask for more requests or more repeats, whose connections are new",
        fatal=False,
    )


_CHECKS: tuple[FlagCheck, ...] = (
    _server,
    _cut_off,
    _fingerprints,
    _clocks,
    of_load,
    _finishes,
    _uncounted,
    _short_output,
    _wrong_input,
    cache,
    chunks,
    resent,
)
