"""The request pipeline: each exchange handed in is on record once, whenever the trial ends."""

import asyncio

import pytest

from frontier.client.ask.prompts import random_prompts
from frontier.client.ask.target import Target
from frontier.client.http.exchange import Exchange
from frontier.client.load.pipeline import RequestPipeline
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Outcome, Phase, Record, Trial

READS = 100


def answered() -> Exchange:
    """A good answer of a token a read."""
    exchange = Exchange(0.0, task=None)
    exchange.status, exchange.headers, exchange.end = 200, {"content-type": "text/event-stream"}, 2.0
    for i in range(READS):
        exchange.reads.append(b'data: {"choices":[{"index":0,"text":"a","finish_reason":null}]}\n\n')
        exchange.stamps.append(1.0 + i / READS)
    exchange.reads += [b'data: {"choices":[{"index":0,"text":"","finish_reason":"length"}]}\n\n', b"data: [DONE]\n\n"]
    exchange.stamps += [2.0, 2.0]
    return exchange


@pytest.mark.parametrize("steps", range(16))
def test_a_trial_that_ends_while_an_answer_is_read_loses_none(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frontier.client.load.pipeline._COURTESY", 0)
    records: list[Record] = []

    async def go() -> None:
        target = Target("http://127.0.0.1:1/v1", "m", "completions", dialect="openai")
        shape = Shape.of(8, READS)
        trial = Trial("d", shape, 2, 1, Phase.GRID, 3, 1, 0.0, 0.0, 9.0, "f")
        pipeline = RequestPipeline(trial, target, random_prompts(shape, 1), records.append)
        running = asyncio.create_task(pipeline.run())
        await asyncio.sleep(0.01)
        for _ in range(3):
            pipeline.put(answered(), pipeline.next_request(), 0)
        for _ in range(steps):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        pipeline.finish()

    asyncio.run(go())
    assert [0, 1, 2] == sorted(r.index for r in records)
    assert {(Outcome.OK, READS)} == {(r.outcome, r.events) for r in records}
