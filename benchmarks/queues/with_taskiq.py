"""taskiq on a stream, whose tasks are acknowledged, with its results backend."""

import os

from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

URL = os.environ["REDIS_URL"]
broker = RedisStreamBroker(URL).with_result_backend(RedisAsyncResultBackend(URL))


@broker.task
async def train(number: int) -> dict[str, float]:
    return {"loss": 0.0}


async def fill(jobs):
    await broker.startup()
    for number in range(jobs):
        await train.kiq(number=number)
    await broker.shutdown()
