"""Quality check: a deployment's greedy answers, with as many requests in flight as at its operating
point.

The requests of the check are the load: the number in flight is constant, and each prompt is sent in
two passes. Answers are not streamed, so that the server can give log-probabilities. They are kept
as numbers under the run's `verify/`, with the scores of the user's command (`Scorer`); no text is
kept. `extras.verify.agreement` compares the answers of two deployments.
"""

import asyncio
import math
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import orjson

from frontier.client.ask.identify import object_of
from frontier.client.ask.prompts import Calibration, random_prompts
from frontier.client.ask.target import Target
from frontier.client.engines.request import Content, Prompt
from frontier.client.http.http_client import Client
from frontier.client.secrets import MOST, NO_SECRETS, Secrets
from frontier.config.deployment import QualityConfig
from frontier.config.schema import Config
from frontier.core.model.decisions import Decision, Limit
from frontier.core.model.errors import MeasurementError, UsageError
from frontier.core.model.series import Series
from frontier.core.model.shapes import Shape
from frontier.core.model.units import format_bytes, format_elapsed
from frontier.extras.verify.open_loop_check import Sender
from frontier.extras.verify.replies import GreedyReplies, GreedyReply
from frontier.run import Run
from frontier.sweep.backend import HttpBackend, new_salt
from frontier.sweep.given_files import read_prompts
from frontier.sweep.shell_line import run_line

PASSES = 2
"""Times that each prompt is asked: the reference is also compared with itself."""
ROUNDS = 4
"""Fewest requests for each one in flight, so that the beginning and the end weigh little."""
MOST_FAILED = 0.05
"""The share of failed requests above which answers are not compared."""
GivenPrompt = tuple[Content, Any]
"""A prompt and its reference answer, None without one."""
WITHIN = 3_600.0
"""Seconds that a scorer may take for the answers of one deployment; one that asks a model needs
time."""
_LONGEST_LINE = 64
_HINT = "it must print one score from 0 to 1 for each line that it reads, and nothing else"


@dataclass(frozen=True, slots=True)
class Scorer:
    """A user's command that gives each answer a score from 0 to 1, and its environment. Nothing in
    `secrets` is repeated from its output.

    It reads one JSON object a line on its standard input, {"id", "prompt", "answer", "reference"},
    and prints one score a line, in the same order. Answers are in memory only, and only the scores
    are kept.
    """

    command: str
    environ: Mapping[str, str] = field(repr=False)
    secrets: Secrets = NO_SECRETS
    within: float = WITHIN

    @property
    def mark(self) -> str:
        """A digest that tells it from other commands and does not hold its text."""
        return f"{zlib.crc32(self.command.encode()):08x}"

    async def scores(self, answers: Sequence[Mapping[str, Any]], stop: asyncio.Event) -> list[float] | None:
        """The scores of answers, each a line of the scorer's input; None when it was stopped.
        MeasurementError if it fails.
        """
        given = b"".join(orjson.dumps(answer, option=orjson.OPT_APPEND_NEWLINE) for answer in answers)
        most = max(2 * MOST, _LONGEST_LINE * len(answers))
        done = await asyncio.to_thread(
            run_line, self.command, given, self.environ, self.within, most=most, stopped=stop.is_set
        )
        if done.returncode is None:
            if stop.is_set():
                return None
            what = f"the scorer did not end within {format_elapsed(self.within)} for {len(answers):,} answers"
            raise MeasurementError(what, "score fewer prompts, or several at once")
        if done.returncode != 0:
            words = self.secrets.last_said(done.stderr.decode(errors="replace")) or "it said nothing"
            what = f"the scorer ended with status {done.returncode}: {words}"
            row = '{"id": "1.1", "prompt": "", "answer": "yes", "reference": null}'
            raise MeasurementError(what, f"try it by itself:  echo '{row}' | {self.command}")
        lines = done.stdout.decode(errors="replace").removesuffix("\n").split("\n") if done.stdout else []
        if len(done.stdout) >= most:  # of which the last are here
            what = f"the scorer printed {format_bytes(most)} or more for {len(answers):,} answers"
            raise MeasurementError(what, _HINT)
        if len(lines) != len(answers):
            raise MeasurementError(f"the scorer printed {len(lines):,} lines for {len(answers):,} answers", _HINT)
        return [self._score(line, number) for number, line in enumerate(lines, 1)]

    def _score(self, line: str, number: int) -> float:
        try:
            value = float(line)
        except ValueError:
            value = math.nan
        if not 0 <= value <= 1:
            said = self.secrets.said(line, 40)
            raise MeasurementError(f"line {number:,} of the scorer is {said!r}, not a score from 0 to 1", _HINT)
        return value


def quality_checks(run: Run, limits: Sequence[Limit]) -> list[tuple[Decision, int]]:
    """The operating points of the deployments whose quality is measured, and of their references,
    each with its number of prompts. UsageError where nothing is to be measured, or one has no
    operating point.
    """
    wanted = [d.quality for d in run.config.deployments if isinstance(d.quality, QualityConfig)]
    if not wanted:
        what = "the config does not say what the answers are compared with"
        raise UsageError(what, "write  quality: {reference: NAME}  for the deployments, NAME being one of them")
    if others := [shape for shape in run.config.shapes if shape.kind != "shape"]:
        what = f"{others[0].label} is a {others[0].kind}; answers are compared of single requests"
        raise UsageError(what, "measure the quality with a config of single requests of one shape")
    if run.config.open_loop:
        raise UsageError("this run was measured at rates; answers are compared at a concurrency", "sweep concurrencies")
    asked = {d.name for d in run.config.deployments if d.quality in wanted} | {each.reference for each in wanted}
    points = [d for d in run.solve([limit for limit in limits if limit.metric != "quality"]) if d.deployment in asked]
    if missing := [d.series.label(keep_shape=True) for d in points if d.load is None]:
        raise UsageError(f"{missing[0]} has no operating point to check it at", "see why with  frontier solve")
    # The same number for all, also where they are asked one after another: of settings that no list
    # names, as the scan found them, the next power of two.
    found = (2 ** (d.load - 1).bit_length() for d in points if d.load is not None)
    most = max(found, default=1) if run.config.auto else max(run.config.loads)
    number = max(ROUNDS * most // PASSES, *(each.prompts for each in wanted))
    return [(decision, number) for decision in points]


async def check_quality(sender: Sender, wanted: Sequence[tuple[Decision, int]], scorer: Scorer | None = None) -> int:
    """Ask each deployment, have its answers scored, and keep both. Returns the number of
    deployments that were asked before it was stopped.
    """
    done = 0
    for decision, prompts in wanted:
        await sender.prepare(decision.deployment)
        assert decision.load is not None
        answers = await ask(sender, decision.series, decision.load, prompts, scorer)
        if answers is None:
            break
        sender.store.write_answers(answers.deployment, answers.shape, answers)
        done += 1
    return done


async def ask(
    sender: Sender,
    series: Series,
    concurrency: int,
    prompts: int,
    scorer: Scorer | None = None,
    *,
    alone: bool = True,
) -> GreedyReplies | None:
    """The answers of a prepared deployment with `concurrency` requests in flight; None when it was
    stopped. MeasurementError where too many fail.

    `alone`: the prompts are the load. Else there is other load, so that they are sent one after
    another, and each pass has a cache salt of its own, where the server takes one.
    """
    shape, config = series.shape, sender.run.config
    target = cast("HttpBackend", sender.backend).target(series.deployment)
    given, distinct = given_prompts(shape, config, prompts)
    length = round(shape.osl.mean)
    salt = f"quality-{concurrency}-{new_salt():x}"
    salts = [None if alone else f"{salt}-{turn}" for turn in range(PASSES)]
    async with Client(target) as client:
        probe = _body(target, given[0][0], length, None if alone else salt, logprobs=True)
        known = (await client.post(target.request_url, probe)).status != 400  # it may not know log-probabilities
        bodies = [_body(target, text, length, salt, logprobs=known) for salt in salts for text, _ in given]
        answers: list[GreedyReply | None] = [None] * len(bodies)
        texts = [""] * len(answers)
        numbers, cached = iter(range(len(bodies))), 0

        async def stream() -> None:
            nonlocal cached
            for number in numbers:
                if sender.stop.is_set():
                    return
                tree = object_of(await client.post(target.request_url, bodies[number]))
                answers[number] = _answer(tree, target.api)
                cached += _from_cache(tree)
                if scorer is not None and answers[number] is not None:
                    texts[number] = _visible(tree["choices"][0], target.api)

        await asyncio.gather(*(stream() for _ in range(concurrency if alone else 1)))
    if sender.stop.is_set():
        return None
    if (failed := sum(answer is None for answer in answers)) > MOST_FAILED * len(answers):
        what = f"{failed:,} of {len(answers):,} answers of {series.deployment} could not be compared"
        raise MeasurementError(what, "it must answer without a stream, in OpenAI's form")
    if scorer is not None and not await _score(answers, texts, given, scorer, sender.stop):
        return None
    passes = tuple(tuple(answers[i * prompts : (i + 1) * prompts]) for i in range(PASSES))
    asked = asked_mark(given, shape, scorer)
    return GreedyReplies(series.deployment, shape.label, concurrency, asked, passes, distinct, cached)


def asked_mark(given: Sequence[GivenPrompt], shape: Shape, scorer: Scorer | None) -> str:
    """A mark that answers share where the same was asked, and scored by the same command."""
    texts = repr([text for text, _ in given]).encode()
    mark = f"{zlib.crc32(texts):08x} {len(given)} {round(shape.osl.mean)}"
    return mark if scorer is None else f"{mark} {scorer.mark}"


async def _score(
    answers: list[GreedyReply | None],
    texts: Sequence[str],
    given: Sequence[GivenPrompt],
    scorer: Scorer,
    stop: asyncio.Event,
) -> bool:
    """Give each answer its score; False when it was stopped before."""
    rows, order = [], [number for number, answer in enumerate(answers) if answer is not None]
    for number in order:
        turn, place = divmod(number, len(given))
        prompt, reference = given[place]
        row = {"id": f"{place + 1}.{turn + 1}", "prompt": prompt, "answer": texts[number], "reference": reference}
        rows.append(row)
    scores = await scorer.scores(rows, stop)
    for number, score in zip(order, scores or (), strict=scores is not None):
        answer = answers[number]
        answers[number] = answer and replace(answer, score=score)
    return scores is not None


def given_prompts(shape: Shape, config: Config, number: int) -> tuple[list[GivenPrompt], int]:
    """So many prompts, the same for all deployments: those of the config's file, again from its
    start where it has fewer, or random words or natural text. Also after how many they come again.
    """
    known: list[GivenPrompt]
    if config.prompts_file is not None:
        known = [(prompt.text, prompt.reference) for prompt in read_prompts(Path(config.prompts_file))[:number]]
    else:
        source = random_prompts(shape, config.seed, Calibration(natural=config.prompts == "natural"))
        known = [(source(i).content, None) for i in range(number)]
    return [known[i % len(known)] for i in range(number)], len(known)


def _body(target: Target, text: Content, length: int, salt: str | None, *, logprobs: bool) -> bytes:
    """A request for one whole greedy answer of at most `length` tokens."""
    prompt = Prompt(text, 0, length, salt, shares=True)
    body = orjson.loads(replace(target, ignore_eos=False).request_body(prompt))
    body.pop("stream_options", None)
    asked = {"logprobs": True if target.api == "chat" else 1} if logprobs else {}
    return orjson.dumps({**body, "stream": False, "temperature": 0, **asked})


def _from_cache(tree: Any) -> bool:
    """Whether an answer began from a prefix in the server's cache."""
    try:
        return bool(tree["usage"]["prompt_tokens_details"]["cached_tokens"] > 0)
    except (KeyError, TypeError):
        return False


def _visible(choice: Any, api: str) -> str:
    """The text of an answer that a user sees, without its reasoning."""
    text = choice["message"].get("content") if api == "chat" else choice["text"]
    return text if isinstance(text, str) else ""


_WORD = re.compile(r"\s*\S+")


def _answer(tree: Any, api: str) -> GreedyReply | None:
    """The tokens of an answer, as numbers, with their log-probabilities; words where the server
    does not report tokens. None for any other answer.
    """
    try:
        (choice,) = tree["choices"]
        told = choice.get("logprobs") or {}
        if api == "chat":
            message, pairs = choice["message"], told.get("content") or []
            text = "".join(message.get(part) or "" for part in ("reasoning_content", "reasoning", "content"))
            tokens, logprobs = [pair["token"] for pair in pairs], [pair["logprob"] for pair in pairs]
        else:
            text, tokens, logprobs = choice["text"], told.get("tokens") or [], told.get("token_logprobs") or []
        tokens = tokens or _WORD.findall(text)
        numbers = " ".join(f"{zlib.crc32(token.encode()):x}" for token in tokens)
        return GreedyReply(numbers, " ".join(f"{float(value):.4g}" for value in logprobs)) if tokens else None
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
