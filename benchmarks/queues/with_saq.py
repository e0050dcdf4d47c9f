"""saq, one job at a time."""

import os

from saq import Queue

queue = Queue.from_url(os.environ["REDIS_URL"])


async def train(ctx, *, number):
    return {"loss": 0.0}


settings = {"queue": queue, "functions": [train], "concurrency": 1}


async def fill(jobs):
    await queue.connect()
    for number in range(jobs):
        await queue.enqueue("train", number=number)
    await queue.disconnect()
