"""A Kubernetes Job for each set of a sweep: the pod of a class's Deployment, for one trial.

The pod is that of the manifests, so whatever a component gives to workers its Jobs have, too. It
claims its own trial and commits to Redis as any worker does;
`worker/hpq_worker/consumer/single_trial` says how it ends.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from typing import Any

import yaml

from hpq.domain.sweep import Sweep
from hpq.domain.trial import TrialView
from hpq.errors import TOLD_TO_GO, ExitCode, UserError

MAX_JOBS = 1_000  # each is an object and a pod that the API server keeps
_TTL_S = 86_400  # what is done stays to be looked at for a day
_BACKOFF = 3
_INSTANCE = "app.kubernetes.io/instance"
# Another pod would find the same.
_NO_RETRY = [ExitCode.SOME_FAILED, ExitCode.USER, ExitCode.UNKNOWN, ExitCode.HELD]
Yaml = dict[str, Any]


def refuse_too_many(what: str, sets: int | None) -> None:
    """Refuse a sweep whose sets are too many for Jobs, or not known before (None).

    Raises:
        UserError: it is one.
    """
    if sets is None:
        raise UserError(
            f"{what}: its sets are made while it runs, and a Job is for one that is known; use"
            " method: grid, or random with run_cap, or resident workers: hpq enqueue",
            code="jobs-need-count",
        )
    if sets > MAX_JOBS:
        raise UserError(
            f"{what}: {sets:,} sets are {sets:,} Jobs, and {MAX_JOBS:,} is the limit;"
            " resident workers take any number: hpq enqueue, and"
            " kubectl scale deployment/hpq-worker",
            code="jobs-too-many",
        )


def render(manifests: str, sweep: Sweep, trials: Iterable[TrialView]) -> str:
    """The Jobs of some trials as YAML, with the settings that they read.

    `manifests` are those of the sweep's class, as `manifests.render` answers.
    """
    objects = [o for o in yaml.safe_load_all(manifests) if o]
    worker = next(
        o
        for o in objects
        if o["kind"] == "Deployment" and o["metadata"]["labels"].get(_INSTANCE) == "hpq-worker"
    )
    read = {
        source["configMapRef"]["name"]
        for source in _container(worker["spec"]["template"]).get("envFrom", [])
        if "configMapRef" in source
    }
    settings = [o for o in objects if o["kind"] == "ConfigMap" and o["metadata"]["name"] in read]
    jobs = [_job(worker, sweep, trial) for trial in trials]
    return yaml.safe_dump_all([*settings, *jobs], sort_keys=False)


def _job(worker: Yaml, sweep: Sweep, trial: TrialView) -> Yaml:
    number = trial.id.number
    ours = {_INSTANCE: "hpq-job", "hpq/sweep": sweep.id, "hpq/set": str(number)}
    labels = {**worker["metadata"]["labels"], **ours}
    template = copy.deepcopy(worker["spec"]["template"])
    template["metadata"]["labels"] |= ours
    pod = template["spec"]
    pod["restartPolicy"] = "Never"
    pod.pop("topologySpreadConstraints", None)
    container = _container(template)
    container.pop("readinessProbe", None)  # nobody sends it anything
    given = {"HPQ_QUEUE": sweep.worker_class, "HPQ_SWEEP": str(trial.id)}
    env = [e for e in container.get("env", []) if e["name"] not in given]
    container["env"] = env + [{"name": n, "value": v} for n, v in given.items()]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"hpq-{sweep.id}-{number}",
            "namespace": worker["metadata"]["namespace"],
            "labels": labels,
            "annotations": {"hpq/parameters": json.dumps(dict(trial.params))},
        },
        "spec": {
            "backoffLimit": _BACKOFF,
            "ttlSecondsAfterFinished": _TTL_S,
            "podFailurePolicy": {"rules": _rules(container["name"])},
            "template": template,
        },
    }


def _container(template: Yaml) -> Yaml:
    found: Yaml = next(c for c in template["spec"]["containers"] if c["name"] == "worker")
    return found


def _rules(container: str) -> list[Yaml]:
    """A pod that is drained or preempted costs nothing; what another would find ends the Job."""

    def on(codes: Iterable[int]) -> Yaml:
        return {"containerName": container, "operator": "In", "values": [*map(int, codes)]}

    return [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
        {"action": "Ignore", "onExitCodes": on([TOLD_TO_GO])},
        {"action": "FailJob", "onExitCodes": on(_NO_RETRY)},
    ]
