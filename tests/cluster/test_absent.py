"""What is absent in a cluster is named, and no trial trains or returns for ever without it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from hpq.domain.trial import FailureKind
from tests.cluster.conftest import Images, MakeNamespace
from tests.cluster.kube import tweaked, wait_for
from tests.cluster.outside import Outside
from tests.cluster.place import SETTINGS, WORKER, Laptop, Namespace
from tests.support.ids import ids

SMALL = "default: {gpus: 0, ephemeral_storage: 100Mi}"
STUB = """
  big:
    gpus: 1
    pod:
      containers:
        - name: worker
          volumeMounts: [{name: stub, mountPath: /opt/venv/bin/nvidia-smi, subPath: nvidia-smi}]
      volumes: [{name: stub, configMap: {name: stub, defaultMode: 0555}}]
"""
SMI = """#!/bin/sh
case "$1" in --query-gpu*) echo "Stub, 535.54" ;; esac
"""
CLOSED = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "hpq-worker-to-redis"},
    "spec": {"egress": []},
}


@pytest.fixture(scope="module")
def place(make_namespace: MakeNamespace, images: Images) -> Namespace:
    """A namespace with hpq, whose pods have a small disk."""
    made = make_namespace()
    made.deploy(images.worker, keys=f"queues: {{{SMALL}}}")
    return made


@pytest.fixture
def outside(place: Namespace, tmp_path: Path) -> Outside:
    """Somebody who is connected."""
    made = Outside(place, tmp_path)
    made.ok("connect", "-n", place.name)
    return made


def test_a_trial_that_overfills_its_pods_is_poison_and_the_others_finish(
    place: Namespace, make_laptop: Callable[[Namespace], Laptop]
) -> None:
    laptop = make_laptop(place)
    laptop.write(
        "fill.py",
        """
        import sys, time
        if sys.argv[1] == "--x=1":
            with open("/cache/junk", "wb") as file:
                for _ in range(200):
                    file.write(bytes(range(256)) * 4096)
            time.sleep(3600)
        print("loss=1")
        """,
    )
    sid = laptop.enqueue("{program: fill.py, method: grid, parameters: {x: {values: [1, 2]}}}")
    laptop.wait_over(sid, 500.0)
    poisoned, other = laptop.trials(sid)
    assert other.state == "finished" and poisoned.state == "failed"
    assert poisoned.failure is not None and poisoned.failure.kind is FailureKind.POISON
    assert poisoned.attempt == 3 and "/cache" in poisoned.failure.message


def test_a_pod_that_asks_for_a_gpu_and_gets_none_does_not_train_on_the_cpu(
    place: Namespace,
    images: Images,
    outside: Outside,
    make_laptop: Callable[[Namespace], Laptop],
) -> None:
    def apply(big: str) -> None:
        keys = f"queues:\n  {SMALL}\n{big}"
        words = ("--image", images.worker, "--gpus", 0)
        place.apply(tweaked(place.manifests(*words, keys=keys), SETTINGS))

    def found() -> set[str]:
        done = outside.hpq("doctor", "--cluster", "-n", place.name, "--json")
        return {one["code"] for one in json.loads(done.stdout)}

    place.cluster.testcluster("gpus", 1)
    try:
        apply("  big: {gpus: 1}")
        wait_for(lambda: "no-gpu" in found(), "the doctor to name it", tell=place.tell)
        assert make_laptop(place).reader.workers.counters()["gpu_missing"] > 0
        stub = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "stub"}}
        place.kubectl(
            "apply", "-f", "-", given=yaml.safe_dump({**stub, "data": {"nvidia-smi": SMI}})
        )
        apply(STUB)
        place.rolled_out("deployment/hpq-worker-big")
        assert "no-gpu" not in found()
        workers = json.loads(outside.ok("workers", "-o", "json"))
        assert [w["device"] for w in workers if w["queue"] == "big"] == ["Stub [0]"]
    finally:
        place.kubectl("delete", "deployment/hpq-worker-big", "--ignore-not-found")
        place.cluster.testcluster("gpus", 0)


def test_the_reason_of_readyz_is_what_every_view_says(place: Namespace, outside: Outside) -> None:
    place.kubectl("patch", "networkpolicy", "hpq-worker-to-redis", "-p", json.dumps(CLOSED))
    place.kubectl("delete", "pod", "-l", WORKER)
    said = wait_for(
        lambda: "redis-away" in (told := outside.hpq("workers").stderr) and told,
        "the reason",
        tell=place.tell,
    )
    assert "hpq-worker-to-redis" in said and ids(said) == ["pod-trouble"]
