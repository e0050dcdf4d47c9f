"""Dramatiq with its results backend."""

import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

URL = os.environ["REDIS_URL"]
broker = RedisBroker(url=URL)
broker.add_middleware(Results(backend=RedisBackend(url=URL), store_results=True))
dramatiq.set_broker(broker)


@dramatiq.actor
def train(number):
    return {"loss": 0.0}


def fill(jobs):
    for number in range(jobs):
        train.send(number=number)
