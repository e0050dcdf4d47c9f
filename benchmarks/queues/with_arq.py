"""arq with its defaults, ten jobs at once: one at a time, it would run two a second."""

import os

from arq import create_pool
from arq.connections import RedisSettings

SETTINGS = RedisSettings.from_dsn(os.environ["REDIS_URL"])


async def train(ctx, number):
    return {"loss": 0.0}


class Worker:
    functions = (train,)
    redis_settings = SETTINGS


async def fill(jobs):
    pool = await create_pool(SETTINGS)
    for number in range(jobs):
        await pool.enqueue_job("train", number=number)
    await pool.aclose()
