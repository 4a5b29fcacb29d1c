"""The check of quality: what is asked, what answers are read as, and what ends it."""

import asyncio
import dataclasses
import json
import re
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

from frontier.client.ask.target import Target
from frontier.client.http.http_client import run
from frontier.config import load_config
from frontier.core.model.decisions import Decision, Verdict
from frontier.core.model.errors import MeasurementError, UsageError
from frontier.core.model.loads import Concurrency
from frontier.core.model.shapes import Shape
from frontier.extras.verify import answers
from frontier.extras.verify.answers import Scorer
from frontier.extras.verify.replies import GreedyReplies, GreedyReply
from frontier.read_run import load
from tests.kit.golden import assert_golden_row
from tests.kit.neutral import neutral
from tests.kit.servers import serving
from tests.kit.sweeps import sweep_in_virtual_time

SHAPE = Shape.of(16, 4)
DECISION = Decision(
    deployment="d",
    shape=SHAPE,
    limits=(),
    verdict=Verdict.MEETS,
    load=Concurrency(3),
    binding=None,
    metrics={},
    judgements=(),
)


def numbers(*tokens: str) -> str:
    return " ".join(f"{zlib.crc32(token.encode()):x}" for token in tokens)


COMPLETION = {"choices": [{"text": " a b", "logprobs": {"tokens": [" a", " b"], "token_logprobs": [-0.5, -1.23456]}}]}
CHAT = {
    "choices": [
        {
            "message": {"content": "x", "reasoning_content": "why "},
            "logprobs": {"content": [{"token": "x", "logprob": -2}]},
        }
    ]
}


@pytest.mark.parametrize(
    ("api", "tree", "expected"),
    [
        ("completions", COMPLETION, GreedyReply(numbers(" a", " b"), "-0.5 -1.235")),
        ("completions", {"choices": [{"text": " a b", "logprobs": None}]}, GreedyReply(numbers(" a", " b"))),
        ("chat", CHAT, GreedyReply(numbers("x"), "-2")),
        ("chat", {"choices": [{"message": {"content": "one two"}}]}, GreedyReply(numbers("one", " two"))),
        ("chat", {"choices": [{"message": {"content": None, "reasoning": "hm"}}]}, GreedyReply(numbers("hm"))),
        ("completions", {"choices": [{"text": ""}]}, None),
        ("completions", {"choices": []}, None),
        ("completions", {"error": "no"}, None),
        ("completions", None, None),
        ("completions", {"choices": [{"text": 5}]}, None),
    ],
)
def test_an_answer_becomes_numbers(api: str, tree: Any, expected: GreedyReply | None) -> None:
    assert expected == answers._answer(tree, api)


def asked_of(
    url: str, *, api: str = "completions", file: str = "random", prompts: int = 10, scorer: Scorer | None = None
) -> GreedyReplies | None:
    """What a server at this address answers."""
    target = Target(url, "m", api, dialect="vllm")  # type: ignore[arg-type]
    named = None if file == "random" else file
    sender = SimpleNamespace(
        run=SimpleNamespace(config=SimpleNamespace(prompts=file, prompts_file=named, seed=1)),
        backend=SimpleNamespace(target=lambda _: target),
        stop=asyncio.Event(),
    )
    return run(answers.ask(sender, DECISION.series, 3, prompts, scorer))  # type: ignore[arg-type]


class Asked:
    """A server that notes what it is asked, and how many requests it has at once."""

    def __init__(self, answer: Any, *, refuses: str = "", fails: int = 0) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.most = self.now = 0
        self._answer, self._refuses, self._fails = answer, refuses, fails

    async def answer(self, request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        self.bodies.append(body)
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.005)
        self.now -= 1
        if (self._refuses and self._refuses in body) or len(self.bodies) <= self._fails:
            return web.json_response({"error": "no"}, status=400)
        return web.json_response(self._answer)


@pytest.mark.process
def test_so_many_are_in_flight_and_every_prompt_is_sent_in_two_passes() -> None:
    server = Asked(COMPLETION)
    with serving({"POST /v1/completions": server.answer}) as url:
        answers = asked_of(url)
    assert answers is not None
    assert (2, 10, 3) == (len(answers.passes), len(answers.passes[0]), answers.concurrency)
    assert 3 == server.most
    first, *others = server.bodies  # one to see whether log-probabilities are known
    assert {"stream": False, "temperature": 0, "logprobs": 1, "max_tokens": 4}.items() <= first.items()
    assert not {"stream_options", "ignore_eos"} & first.keys()
    sent = [body["prompt"] for body in others]
    assert 10 == len(set(sent))
    assert sorted(sent[:10]) == sorted(sent[10:]) or sorted(sent) == sorted([*sent[:10], *sent[:10]])


@pytest.mark.process
def test_a_server_that_knows_no_log_probabilities_is_asked_without() -> None:
    server = Asked({"choices": [{"message": {"content": "one two"}}]}, refuses="logprobs")
    with serving({"POST /v1/chat/completions": server.answer}) as url:
        answers = asked_of(url, api="chat")
    assert answers is not None
    assert [GreedyReply(numbers("one", " two"))] * 10 == list(answers.passes[1])
    assert "logprobs" in server.bodies[0]
    assert "logprobs" not in server.bodies[-1]


@pytest.mark.process
def test_too_many_failures_end_it() -> None:
    with (
        serving({"POST /v1/completions": Asked(COMPLETION, fails=8).answer}) as url,
        pytest.raises(MeasurementError) as error,
    ):
        asked_of(url)
    # How many of those in flight still fail before it ends depends on the machine.
    assert_golden_row("messages", re.sub(r"^[5-8] of 20", "N of 20", neutral(str(error.value))))


@pytest.mark.process
def test_a_few_failures_are_kept_as_such() -> None:
    with serving({"POST /v1/completions": Asked({"choices": []}).answer}) as url, pytest.raises(MeasurementError):
        asked_of(url)


@pytest.mark.process
def test_the_prompts_of_the_users_file_come_again(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"prompt": "first"}\n{"prompt": "second"}\n')
    server = Asked(COMPLETION)
    with serving({"POST /v1/completions": server.answer}) as url:
        answers = asked_of(url, file=str(tmp_path / "p.jsonl"), prompts=3)
    assert answers is not None
    assert 2 == answers.distinct
    assert ["first"] * 4 + ["second"] * 2 == sorted(body["prompt"] for body in server.bodies[1:])


@pytest.mark.process
def test_a_scorer_reads_what_was_asked_and_answered_and_its_scores_are_kept(tmp_path: Path) -> None:
    lines = [{"prompt": "first", "reference": "a"}, {"prompt": "second"}]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    one = Scorer(
        f"cat > {tmp_path}/read; for score in 1 0 0.5 1 0 0.5; do echo $score; done", {"PATH": "/bin:/usr/bin"}
    )
    server = Asked({"choices": [{"message": {"content": " four", "reasoning": "two and two"}}]})
    with serving({"POST /v1/chat/completions": server.answer}) as url:
        plain = asked_of(url, api="chat", file=str(tmp_path / "p.jsonl"), prompts=3)
        answers = asked_of(url, api="chat", file=str(tmp_path / "p.jsonl"), prompts=3, scorer=one)
    assert plain is not None
    assert answers is not None
    assert [[1.0, 0.0, 0.5]] * 2 == [[each and each.score for each in one_pass] for one_pass in answers.passes]
    assert answers.asked == f"{plain.asked} {one.mark}"  # scored answers are compared with scored ones only
    read = [json.loads(line) for line in (tmp_path / "read").read_text().splitlines()]
    assert {"id": "1.1", "prompt": "first", "answer": " four", "reference": "a"} == read[0]
    assert {"id": "2.2", "prompt": "second", "answer": " four", "reference": None} == read[4]
    assert ["1.1", "2.1", "3.1", "1.2", "2.2", "3.2"] == [row["id"] for row in read]


@pytest.mark.process
def test_an_answer_that_failed_is_not_scored() -> None:
    one = Scorer("sed 's/.*/1/'", {"PATH": "/bin:/usr/bin"})
    asked = 0

    async def answer(_: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.Response(status=500) if asked == 5 else web.json_response(COMPLETION)

    with serving({"POST /v1/completions": answer}) as url:
        answers = asked_of(url, prompts=20, scorer=one)
    assert answers is not None
    scores = [each and each.score for one_pass in answers.passes for each in one_pass]
    assert (39, 1) == (scores.count(1.0), scores.count(None))


CONFIG = """\
endpoint: simulator
shapes: [64/16]
concurrency: [1, 4]
sla: {p95_ttft: 1s}
requests: 60
repeats: 1
refine: 0
deployments:
- {name: a, simulator: {step_base: 4ms}}
- {name: b, quality: {reference: a}, simulator: {step_base: 4ms}}
"""


@pytest.mark.parametrize(("listed", "prompts"), [("auto", 2 * 256), ("[1, 300]", 2 * 300)])
def test_each_request_in_flight_has_four_rounds(listed: str, prompts: int) -> None:
    text = CONFIG.replace("[1, 4]", listed).replace("refine: 0\n", "")
    points = [dataclasses.replace(DECISION, deployment=name, load=c) for name, c in (("a", 130), ("b", 200))]
    run: Any = SimpleNamespace(config=load_config(text, "s.yaml"), solve=lambda _: points)
    assert {prompts} == {number for _, number in answers.quality_checks(run, ())}


def test_what_is_not_ready_for_it_is_refused(tmp_path: Path) -> None:
    sweep_in_virtual_time(tmp_path / "run", CONFIG)
    measured = load(tmp_path / "run")
    with pytest.raises(UsageError) as undecided:
        answers.quality_checks(measured, measured.limits())  # too few requests for a p95
    assert_golden_row("messages", neutral(str(undecided.value), tmp_path), "undecided")
    bare = dataclasses.replace(
        measured, config=measured.config.model_copy(update={"deployments": measured.config.deployments[:1]})
    )
    with pytest.raises(UsageError) as unreferenced:
        answers.quality_checks(bare, measured.limits())
    assert_golden_row("messages", neutral(str(unreferenced.value), tmp_path), "unreferenced")
    session = Shape.of(64, 16)
    talk = measured.config.model_copy(
        update={"given_shapes": (dataclasses.replace(session, session=SimpleNamespace()),)}
    )
    with pytest.raises(UsageError) as sessions:
        answers.quality_checks(dataclasses.replace(measured, config=talk), measured.limits())
    assert_golden_row("messages", neutral(str(sessions.value), tmp_path), "sessions")
