"""New prompts: what a server calls cached of prompts that it never saw.

The decode server of a prefill/decode fleet says that it found a whole prompt but its last token. A
chat server says that it found its template. In neither case was the prompt known before.
"""

import secrets
from dataclasses import dataclass, replace

from frontier.client.ask.preflight import PROBE_ISL, Preflight, ask_patiently
from frontier.client.ask.prompts import Calibration, random_prompts
from frontier.client.http.http_client import Client
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import CACHED_ANEW, SHARE_ANEW, UNCOUNTED_PROMPTS, Outcome, Record
from frontier.core.model.units import format_share

SHORTEST, LONGEST = 32, 2048
"""Tokens of the longer of two new prompts: the length of those of the trials, and no long prefill.
"""
_GROWS, _FEW = 0.05, 2.0
"""Share of the difference of two prompts, and tokens, by which a template's count may differ."""


@dataclass(frozen=True, slots=True)
class NewPrompts:
    """What the server counted of two new prompts, the second twice as long. `warm`: it called none
    of the very first prompt cached, and some of a later one as long.
    """

    short: Record
    long: Record
    warm: bool = False

    @property
    def cached(self) -> tuple[float, float] | None:
        """The tokens that the server called cached in the short and the long prompt; None where
        there were none in either.
        """
        counts = float(self.short.cached_tokens or 0), float(self.long.cached_tokens or 0)
        return counts if any(counts) else None

    def facts(self, template: float = 0.0) -> dict[str, float]:
        """The part of the count that is not a cache of prompts, as facts of a window. `template` is
        the tokens of a prompt beside its text, for a server that does not tell cached tokens with
        an answer.
        """
        known = None not in (self.short.cached_tokens, self.long.cached_tokens)
        if self.cached is None:
            return {CACHED_ANEW: template} if template and not known else {}
        (few, many), prompts = self.cached, (self.short.prompt_tokens or 0, self.long.prompt_tokens or 0)
        if many - few <= max(_FEW, _GROWS * (prompts[1] - prompts[0])):
            return {CACHED_ANEW: max(few, many)}
        if self.warm:
            return {}
        return {SHARE_ANEW: min(1.0, many / max(1, prompts[1]))}

    def words(self) -> str:
        """Both readings with their meaning: '47 of 48 tokens of a new prompt ...'."""
        told = ", ".join(f"{record.cached_tokens or 0} of {record.prompt_tokens}" for record in (self.short, self.long))
        said = f"of new prompts it calls {told} tokens cached"
        if (share := self.facts().get(SHARE_ANEW)) is None:
            return f"{said}: {'they were known before' if self.warm else 'the template, which is taken off'}"
        return (
            f"{said}, about {format_share(share)} (as the decode server of a prefill/decode fleet does): its count is "
            "not used, and a warm cache cannot be seen"
        )


async def send_new_prompts(
    client: Client, found: Preflight, longest: int = 512, calibration: Calibration | None = None
) -> NewPrompts | None:
    """What the server counts of two new prompts of `longest` tokens or so; None where it does not
    answer or count one.
    """
    most = min(max(longest, SHORTEST), LONGEST, (found.max_model_len or LONGEST) // 2)
    records = []
    for tokens in (PROBE_ISL, most // 2, most):
        source = random_prompts(Shape.of(max(1, tokens), 1), secrets.randbits(64), calibration)
        record, _ = await ask_patiently(client, found.target, source(0).content, 1)
        if record.outcome not in (Outcome.OK, Outcome.EMPTY) or record.prompt_tokens is None:
            return None
        records.append(record)
    again, short, long = records
    return NewPrompts(short, long, warm=bool(again.cached_tokens) and not found.probe.cached_tokens)


async def settle_cached(
    found: Preflight, longest: int, calibration: Calibration | None
) -> tuple[Preflight, str | None]:
    """The preflight with the meaning of the server's prompt counts in its target: what it calls
    cached in new prompts, and whether its count grows with prompts. Also a warning where the cached
    count cannot be used.
    """
    async with Client(found.target) as client:
        new = await send_new_prompts(client, found, longest, calibration)
    facts = new.facts(calibration.offset if calibration is not None else 0.0) if new is not None else {}
    warning = f"prefix cache: {new.words()}" if new is not None and SHARE_ANEW in facts else None
    if calibration is not None and not calibration.counted:
        facts |= {UNCOUNTED_PROMPTS: 1.0}
    return replace(found, target=replace(found.target, learned=facts)), warning
