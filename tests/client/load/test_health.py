"""The health of the load client."""

import asyncio
import time

from frontier.client.load.health import Heartbeat


def test_a_heartbeat_knows_how_long_the_loop_stood_still_also_where_that_was_the_end() -> None:
    async def longest(seconds: float) -> float:
        async with Heartbeat() as heart:
            await asyncio.sleep(0.02)
            time.sleep(seconds)  # noqa: ASYNC251
        return heart.longest

    assert asyncio.run(longest(0.2)) >= 0.18
