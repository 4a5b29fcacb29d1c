"""Prompts: fresh text of an asked input length as the server counts it, without a tokenizer;
prompts from files.

Random prompts are common English words (nearly always one token each) or, where the server takes
them, token ids. No two prompts of a sweep share their first block, so a prefix cache finds nothing.
The first words are drawn anew per request; the rest is a slice of a text that is made once per
trial. How many words make how many tokens is learned from the server's own count by
`calibrate_words`.

The server's prefix cache is never emptied: most servers cannot, and on one in use it is rude.
Prompts of a file come again with every trial, so each pass through the file has a cache salt of its
own.
"""

import dataclasses
import hashlib
import itertools
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from frontier.client.ask.passages import Passages, counted
from frontier.client.ask.prompt_text import PIECE, SLIDE, WORDS, PromptText
from frontier.client.engines.request import Content, Prompt, Turn, TurnReply
from frontier.client.load.session_plans import SessionPlan, class_of, left_out, plan_session
from frontier.core.model.shapes import Shape

_SHORT = 16
"""Words of a prompt that every context takes."""
_LEAST = 0.25
"""The fewest tokens of a word: a count that grows by less does not count the prompt."""
USUAL = 0.8
"""The fewest tokens of a common word with any tokenizer; punctuation and single letters are not
words here."""


PromptSource = Callable[[int], Prompt]
"""The first request of the session of this number, which for most shapes is its only one. Called
ahead of the send, each number once."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """How many words make how many tokens on one target: `offset` (its template) and `per_word`, on
    average.

    With `ids` set (lowest and highest token id that may be sent) prompts are token ids and lengths
    are exact. With `natural` the words are those of the corpus, its punctuation marks counted too.
    `told` are counts that do not grow with the prompt. `cut`: they grow only while the prompt is
    short.
    """

    offset: float = 0.0
    per_word: float = 1.0
    ids: tuple[int, int] | None = None
    natural: bool = False
    told: str = ""
    cut: bool = False

    def words(self, isl: int) -> int:
        """Words to send for `isl` tokens, at least one."""
        return max(1, round((isl - self.offset) / self.per_word))

    @property
    def counted(self) -> bool:
        """The server's count is one of the prompt, as far as it takes it."""
        return not self.told or self.cut

    @property
    def doubt(self) -> str | None:
        """Why the server's count of prompts is wrong, or may be; None: it is as usual."""
        if not self.counted:
            return (
                f"prompts: prompt_tokens are no count of the prompt: {self.told} (a gateway that makes them up?): name "
                "the server behind it  (endpoint:),  or have its count passed on"
            )
        if self.told:
            return f"prompts: the server cuts prompts to its context: prompt_tokens are {self.told}"
        if self.per_word >= USUAL or self.natural:
            return None
        return (
            f"prompts: the server counts {self.per_word:.2g} tokens a word, fewer than tokenizers make of common words"
        )

    def text(self, seed: str, count: int) -> "PromptText":
        """A text of `count` words (or ids) for prompts."""
        if self.natural:
            return Passages(seed)
        return PromptText(random.Random(seed), count, self.ids)


def prompt_seed(salt: int, seed: int, attempt: int) -> int:
    """The seed of a trial's random prompts, in the session of this salt. `attempt` is the number of
    trials that the session has sent, this one included.
    """
    return int.from_bytes(hashlib.sha256(f"{salt} {seed} {attempt}".encode()).digest()[:8])


def random_prompts(
    shape: Shape,
    seed: int,
    calibration: Calibration | None = None,
    *,
    class_index: int | None = None,
    trial_seed: int = 0,
) -> PromptSource:
    """Prompts of the shape's lengths, all different. The shared prefix is the same for all. For a
    class of a mix, each prompt is a session of one turn, and the prefix is that of the class.
    `trial_seed` decides which of the listed lengths a request has. In a trace that names blocks of
    prompts, it also decides the blocks that a request begins with.
    """
    calibration = calibration or Calibration()
    ids = calibration.ids
    units = (lambda tokens: tokens) if ids else calibration.words
    text = calibration.text(f"{seed}/text", units(shape.isl.high) + SLIDE)
    block = 0 if shape.pairs is None else shape.pairs.block
    longest = 0 if block or not shape.prefix else shape.isl.high
    beginning = _prefix(class_index, units(longest), calibration) if longest else None

    def prompt(index: int) -> Prompt:
        rng = random.Random(f"{seed}/{index}")
        isl, osl, stated, blocks = shape.request(index, trial_seed, rng)
        shared = shape.shared_of(isl) if stated is None else stated
        full = blocks[: isl // block] if block else ()
        begins, used = _of_blocks(text, seed, full, [units((i + 1) * block) for i in range(len(full))])
        if beginning is not None and shared:
            begins, used = [beginning.slice(0, units(shared))], units(shared)
        pieces = [*begins, *text.fresh(rng, max(1, units(isl) - used))]
        content: Content = " ".join(pieces) if ids is None else list(itertools.chain.from_iterable(pieces))
        turn = None if class_index is None else Turn(0, shared, 0.0, None, class_index)
        return Prompt(content, isl, osl, shares=bool(begins), turn=turn)

    return prompt


def _of_blocks(text: "PromptText", seed: int, names: Sequence[int], ends: Sequence[int]) -> tuple[list[Any], int]:
    """The pieces of blocks with these names, each up to its end in words (or ids), and the last of
    these: the same in each prompt that begins with them.
    """
    pieces, used = list[Any](), 0
    for name, end in zip(names, ends, strict=True):
        pieces += text.fresh(random.Random(f"{seed}/block/{name}"), end - used)
        used = end
    return pieces, used


def _prefix(class_index: int | None, count: int, calibration: Calibration) -> "PromptText":
    """The text that all prompts begin with: those of the classes of a mix are not alike."""
    return calibration.text("prefix" if class_index is None else f"prefix/{class_index}", count)


def session_prompts(
    shape: Shape, seed: int, calibration: Calibration, streams: int, *, class_index: int | None = None
) -> PromptSource:
    """Sessions of fresh text: each turn sends its whole history, with the model's own answers, and
    new words.

    The first sessions of the `streams` begin part of the way in, with a made-up history. Texts, not
    token ids: an answer comes back as a text.
    """
    assert shape.session is not None, "a shape without turns has no sessions"
    calibration = dataclasses.replace(calibration, ids=None)
    words = calibration.words
    text = calibration.text(f"{seed}/text", words(shape.isl.high) + SLIDE)
    prefix_words = words(shape.shared) if shape.shared else 0
    prefix = [_prefix(class_index, prefix_words, calibration).slice(0, prefix_words)] if prefix_words else []

    def user(plan: SessionPlan, turn: int, rng: random.Random, more: int = 0) -> str:
        """The user's text in a turn."""
        new, begins = words(plan.turns[turn].new + more), prefix if not turn else []
        return " ".join([*begins, *text.fresh(rng, max(1, new - prefix_words) if begins else new)])

    def session(number: int) -> Prompt:
        plan = plan_session(shape, seed, number, streams)
        rng = random.Random(f"{seed}/{number}")

        def prompt(turn: int, history: tuple[str, ...], known: int | None, isl: int, more: int = 0) -> Prompt:
            def then(answer: TurnReply) -> Prompt:
                following, left = turn + 1, left_out(planned, answer.asked_osl)
                so_far = None
                if answer.prompt_tokens is not None and answer.completion_tokens is not None:
                    so_far = answer.prompt_tokens + answer.completion_tokens
                whole = 0 if so_far is None else so_far + plan.turns[following].new + left
                return prompt(following, (*history, content, answer.text), so_far, whole, left)

            planned, content = plan.turns[turn], user(plan, turn, rng, more)
            place = Turn(turn, known, planned.pause, then if turn + 1 < len(plan.turns) else None, class_index)
            return Prompt(content, isl, planned.out, shares=True, history=history, turn=place)

        made_up: list[str] = []
        for turn in range(plan.start):
            answer = " ".join(text.fresh(rng, max(1, round(plan.turns[turn].out / calibration.per_word))))
            made_up += [user(plan, turn, rng), f" {answer}"]
        return prompt(plan.start, tuple(made_up), shape.shared, plan.prompt(plan.start))

    return session


def mixed_prompts(
    shape: Shape, seed: int, calibration: Calibration, streams: int, *, trial_seed: int = 0
) -> PromptSource:
    """The sessions of a mix, each of the class that the seed draws for its number."""
    sources = [
        random_prompts(each.shape, seed, calibration, class_index=i, trial_seed=trial_seed)
        if each.shape.session is None
        else session_prompts(each.shape, seed, calibration, streams, class_index=i)
        for i, each in enumerate(shape.mix)
    ]
    return lambda number: sources[class_of(shape, seed, number)](number)


class FilePrompt(NamedTuple):
    """A prompt of a file, with the output length that it asks for and its reference answer (any
    JSON), if any.
    """

    text: str
    output_tokens: int | None = None
    reference: Any = None


def file_prompts(prompts: Sequence[FilePrompt], shape: Shape, seed: int, salt: str = "") -> PromptSource:
    """The prompts of a file, in an order shuffled by the seed; the output length is the shape's,
    where they ask for none.

    Input lengths are those of the file: the asked input length is 0 (unknown). Text that the
    prompts have in common may be cached. Each pass through the file has a cache salt of its own,
    made from `salt`, so that no prompt meets itself.
    """
    order = random.Random(seed).sample(range(len(prompts)), len(prompts))

    def prompt(index: int) -> Prompt:
        turn, position = divmod(index, len(order))
        text, own_osl, _ = prompts[order[position]]
        osl = own_osl or shape.osl.draw(random.Random(f"{seed}/{index}"))
        return Prompt(text, 0, osl, f"frontier-{seed:x}-{salt}-{turn}", shares=True)

    return prompt


@dataclass(frozen=True, slots=True)
class PromptPlan:
    """How the prompts of a trial are made: the same wherever it is carried out. `given` reads the
    prompts of a file; None: random or natural prompts, as the calibration says. The first `streams`
    sessions begin part of the way in. `seed` is that of the texts; the seed of the trial gives the
    order of listed lengths.
    """

    shape: Shape
    seed: int
    calibration: Calibration = Calibration()
    given: Callable[[], Sequence[FilePrompt]] | None = None
    salt: str = ""
    streams: int = 0
    trial_seed: int = 0

    def source(self) -> PromptSource:
        """The prompts. UsageError when those of a file cannot be read."""
        if self.shape.mix:
            return mixed_prompts(self.shape, self.seed, self.calibration, self.streams, trial_seed=self.trial_seed)
        if self.shape.session is not None:
            return session_prompts(self.shape, self.seed, self.calibration, self.streams)
        if self.given is None:
            return random_prompts(self.shape, self.seed, self.calibration, trial_seed=self.trial_seed)
        return file_prompts(self.given(), self.shape, self.seed, self.salt)


Count = Callable[[Content], Awaitable[int]]
"""Asks the server how many tokens it counts in a prompt (one request with one output token)."""


async def calibrate_words(count: Count, longest: int, *, natural: bool = False) -> Calibration:
    """Learn from the server's count how many tokens all the words make, so that prompts drawn from
    them have the asked length on average. A prompt or two would only show the tokens of their own
    words. Of the natural text as much is counted, in evenly spaced passages: authors differ.

    The words are counted in pieces that fit a server whose prompts may have `longest` tokens. The
    first piece is counted once more in two halves, which shows the tokens of a prompt beside its
    words. Where the count does not grow with the words, each word is taken for a token.
    """
    if natural:
        pieces, halves, words = counted(longest)
    else:
        size = min(len(WORDS), max(PIECE, longest // 2))
        shuffled = random.Random("calibrate").sample(WORDS, len(WORDS))
        pieces = [" ".join(shuffled[at : at + size]) for at in range(0, len(shuffled), size)]
        halves = [" ".join(half) for half in (shuffled[: size // 2], shuffled[size // 2 : size])]
        words = len(WORDS)
    counts = [await count(piece) for piece in pieces]
    of_halves = [await count(half) for half in halves]
    offset = max(0, sum(of_halves) - counts[0])
    per_word = (sum(counts) - len(pieces) * offset) / words
    if per_word < _LEAST:
        short = " ".join(halves[0].split()[:_SHORT])
        texts = {short: await count(short), halves[0]: of_halves[0], pieces[0]: counts[0]}
        least = _LEAST * _SHORT
        cut = texts[short] >= least and of_halves[0] - texts[short] > least
        told = ", ".join(f"{tokens:,} for {len(text.split()):,} words" for text, tokens in texts.items())
        return Calibration(natural=natural, told=told, cut=cut)
    return Calibration(offset, per_word, natural=natural)
