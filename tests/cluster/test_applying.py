"""Applying again: what it leaves alone, and what it takes back. No worker needs to start."""

from __future__ import annotations

import pytest

from tests.cluster.conftest import MakeNamespace
from tests.cluster.kube import wait_for
from tests.cluster.place import Namespace

WORDS = ("--gpus", 0, "--image", "docker.io/library/hpq-worker:none")


@pytest.fixture
def installed(make_namespace: MakeNamespace) -> Namespace:
    """Redis, ready, and a Deployment of no pods."""
    made = make_namespace()
    made.apply(made.manifests(*WORDS))
    made.scale(0)
    made.apply(made.manifests("--secrets"))
    made.rolled_out("statefulset/hpq-redis")
    return made


def test_an_apply_leaves_the_count_of_pods_as_it_was_scaled(installed: Namespace) -> None:
    installed.apply(installed.manifests(*WORDS, "--set", "HPQ_LOG=debug"))
    assert installed.get("deployment", "hpq-worker")["spec"]["replicas"] == 0


def test_an_apply_takes_back_a_change_that_redis_cannot_start_with(installed: Namespace) -> None:
    installed.apply(installed.manifests(*WORDS, "--with", "tls"))  # and no Secret hpq-redis-tls
    redis = "app.kubernetes.io/name=hpq-redis"
    wait_for(lambda: not installed.ready(redis), "Redis to be replaced", tell=installed.tell)
    wait_for(lambda: len(installed.pods(redis)) == 1, "its new pod", tell=installed.tell)
    installed.apply(installed.manifests(*WORDS))
    installed.rolled_out("statefulset/hpq-redis")
    assert installed.ready(redis)
