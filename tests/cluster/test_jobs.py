"""A Job for each set of a sweep: real pods that claim their own trial and end as it does."""

from __future__ import annotations

from typing import Any

import yaml

from hpq.domain.trial import TrialState
from tests.cluster.conftest import Images
from tests.cluster.place import LEASE_S, Laptop, Namespace
from tests.support.ids import ids

SWEEP = """
    trainer: digits
    method: grid
    metric: {name: test/acc, goal: maximize}
    parameters:
      epochs: {value: 4}
      max_learning_rate: {value: 0.2}
      hidden: {values: [8, 16]}
"""
BAD = """
    trainer: bad:train
    code: .
    method: grid
    metric: {name: loss}
    parameters: {x: {values: [1]}}
"""


def made(namespace: Namespace, laptop: Laptop, image: str, what: object) -> list[dict[str, Any]]:
    """What `hpq manifests --jobs` prints, for a small machine."""
    flags = ("--gpus", 0, "--set", f"HPQ_LEASE_S={LEASE_S}", "--set", "HPQ_REAP_S=1")
    text = laptop.ok(
        *("manifests", "--namespace", namespace.name, "--image", image, *flags, "--jobs", what)
    )
    objects = [one for one in yaml.safe_load_all(text) if one]
    for one in objects:
        if one["kind"] == "Job":
            (container,) = one["spec"]["template"]["spec"]["containers"]
            container["resources"]["requests"] = {"cpu": "100m", "memory": "64Mi"}
    return objects


def ends(namespace: Namespace, sid: str) -> dict[str, str]:
    """Complete or Failed, of each Job that is over, by its set."""
    return {
        job["metadata"]["labels"]["hpq/set"]: condition["type"]
        for job in namespace.get("jobs", "-l", f"hpq/sweep={sid}")["items"]
        for condition in job["status"].get("conditions", [])
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True"
    }


def test_each_job_trains_its_set_also_after_its_pod_was_killed(
    namespace: Namespace, laptop: Laptop, images: Images
) -> None:
    namespace.scale(0)
    file = laptop.write("sweep.yaml", SWEEP)
    objects = made(namespace, laptop, images.worker, file)
    assert made(namespace, laptop, images.worker, file) == objects  # the sweep is there already
    jobs = [one for one in objects if one["kind"] == "Job"]
    sid = jobs[0]["metadata"]["labels"]["hpq/sweep"]
    namespace.cluster.kubectl(
        *("apply", "--dry-run=server", "--validate=strict", "-f", "-"),
        given=yaml.safe_dump_all(objects),
    )
    namespace.apply(objects)
    claimed = lambda: laptop.trial(sid, 1).state is TrialState.RUNNING  # noqa: E731
    laptop.wait_until(claimed, "the first set in a pod")
    (pod,) = namespace.pods(f"hpq/sweep={sid},hpq/set=1")
    namespace.kill(pod["metadata"]["name"])
    laptop.wait_over(sid)
    trials = laptop.trials(sid)
    assert [t.state for t in trials] == [TrialState.FINISHED] * 2 and trials[0].attempt >= 2
    laptop.wait_until(lambda: len(ends(namespace, sid)) == 2, "the end of both Jobs")
    assert set(ends(namespace, sid).values()) == {"Complete"}


def test_a_set_that_fails_fails_its_job_in_one_pod_and_says_why(
    namespace: Namespace, laptop: Laptop, images: Images
) -> None:
    laptop.write("bad.py", "def train(params, trial):\n    raise KeyError(params['x'])\n")
    file = laptop.write("bad.yaml", BAD)
    objects = made(namespace, laptop, images.worker, file)
    sid = objects[-1]["metadata"]["labels"]["hpq/sweep"]
    namespace.apply(objects)
    laptop.wait_until(lambda: ends(namespace, sid), "the end of the Job")
    assert ends(namespace, sid) == {"1": "Failed"}
    (pod,) = namespace.pods(f"hpq/sweep={sid}")
    log = namespace.kubectl("logs", pod["metadata"]["name"])
    assert "trial-failed" in ids(log) and "KeyError: 1" in log
    laptop.wait_over(sid)
