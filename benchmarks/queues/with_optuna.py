"""Optuna in one process, in memory or with its journal on Redis: asks, reports and tells.

Runs as many trials as each line of the input says; with the journal, also what the list `go` says.
"""

import os
import sys

import optuna
from optuna.samplers import RandomSampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalRedisBackend
from redis import Redis

URL = os.environ.get("REDIS_URL", "")


def train(trial):
    trial.suggest_int("number", 0, 10**6)
    trial.report(0.0, 1)
    return 0.0


def fill(jobs):
    """Let the process of the journal run this many trials."""
    Redis.from_url(URL).rpush("go", jobs)


if __name__ == "__main__":
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if sys.argv[1] == "memory":
        study = optuna.create_study(sampler=RandomSampler())
        for line in sys.stdin:
            study.optimize(train, n_trials=int(line))
            print("done", flush=True)
    else:
        redis, storage = Redis.from_url(URL), JournalStorage(JournalRedisBackend(URL))
        study = optuna.create_study(storage=storage, sampler=RandomSampler())
        while True:
            jobs = int(redis.blpop("go")[1])
            study.optimize(train, n_trials=jobs)
            redis.incrby("ran", jobs)
