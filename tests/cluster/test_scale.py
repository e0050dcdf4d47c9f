"""`hpq scale` and `hpq drain`: which pods go, and what becomes of their trials."""

from __future__ import annotations

import pytest

from hpq_producer.cluster.objects import COST_ANNOTATION
from tests.cluster.place import Laptop, Namespace
from tests.cluster.steered import Steered
from tests.support.ids import ids


@pytest.fixture
def steered(namespace: Namespace, laptop: Laptop) -> Steered:
    """Sweeps that go on until the test says so."""
    return Steered(namespace, laptop)


def pod_of(worker: str, namespace: Namespace) -> str:
    return next(name for name in namespace.ready() if worker.startswith(name))


def marks(namespace: Namespace) -> list[str]:
    return [
        pod["metadata"]["name"]
        for pod in namespace.pods()
        if COST_ANNOTATION in pod["metadata"].get("annotations", {})
        and "deletionTimestamp" not in pod["metadata"]
    ]


def test_idle_pods_go_first_and_what_a_busy_one_ran_is_requeued(steered: Steered) -> None:
    namespace, laptop = steered.namespace, steered.laptop
    here = ("--namespace", namespace.name)
    laptop.ok("scale", 3, *here)
    namespace.wait_ready(3)
    sid = steered.enqueue(2)
    busy = {pod_of(worker, namespace) for worker in steered.wait_running(sid, 2).values()}

    done = laptop.hpq("scale", 2, *here)
    assert done.returncode == 0 and "3 → 2 pods" in done.stderr, done.stderr
    assert sid not in done.stderr
    assert set(namespace.wait_ready(2)) == busy and marks(namespace) == []

    done = laptop.hpq("scale", 1, *here)
    assert done.returncode == 0, done.stderr
    (stopped,) = (n for n in (1, 2) if f"{sid}/{n}" in done.stderr)
    namespace.wait_ready(1)
    steered.go(sid)
    laptop.wait_over(sid)
    assert [n for n in (1, 2) if "requeued" in laptop.events(sid, n)] == [stopped]


def test_a_drained_pod_ends_its_trial_and_goes_and_no_other_pod_does(steered: Steered) -> None:
    namespace, laptop = steered.namespace, steered.laptop
    here = ("--namespace", namespace.name)
    laptop.ok("scale", 2, *here)
    namespace.wait_ready(2)
    sid = steered.enqueue(2)
    runs = steered.wait_running(sid, 2)
    pod = pod_of(runs[1], namespace)
    laptop.ok("drain", pod, "--stay", *here)
    laptop.wait_until(
        lambda: [w.state for w in laptop.reader.workers.live() if w.pod == pod] == ["draining"],
        "a draining worker",
    )
    late = laptop.hpq("drain", pod, "--timeout", 1, *here)
    assert (late.returncode, ids(late.stderr)[-1:]) == (5, ["timed-out"]), late.stderr
    assert f"{sid}/1" in late.stderr and f"`hpq drain {runs[1]}`" in late.stderr, late.stderr
    steered.go(sid)
    done = laptop.hpq("drain", pod, *here)
    assert done.returncode == 0 and f"2 → 1 pods ({pod} removed)" in done.stderr, done.stderr
    assert namespace.wait_ready(1) != [pod]
    laptop.wait_over(sid)
    assert [laptop.events(sid, n) for n in (1, 2)] == [["claimed", "finished"]] * 2


def test_a_drained_pod_goes_also_where_a_quota_keeps_others_from_coming(
    namespace: Namespace, laptop: Laptop
) -> None:
    here = ("--namespace", namespace.name)
    laptop.ok("scale", 2, *here)
    namespace.wait_ready(2)
    there = namespace.get("pods", "--field-selector=status.phase=Running")["items"]
    namespace.kubectl("create", "quota", "full", f"--hard=pods={len(there)}")
    try:
        laptop.ok("scale", 3, *here)
        pod = namespace.wait_ready(2)[0]
        done = laptop.hpq("drain", pod, *here)
        assert done.returncode == 0 and f"3 → 1 pods ({pod} removed)" in done.stderr, done.stderr
        assert namespace.wait_ready(1) != [pod]
    finally:
        namespace.kubectl("delete", "quota", "full")
