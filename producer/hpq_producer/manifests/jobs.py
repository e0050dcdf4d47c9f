"""Render a Kubernetes Job for each trial of a sweep.

The pod is that of the queue's Deployment, with all components. It claims its own trial and commits
to Redis as a worker does; `worker/hpq_worker/consumer/single_trial` documents its exit codes.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from typing import Any

import yaml

from hpq.domain.sweep import SweepView
from hpq.domain.trial import TrialView
from hpq.errors import TOLD_TO_GO, ExitCode, UserError

MAX_JOBS = 1_000  # the API server stores an object and a pod for each
_TTL_S = 86_400  # ended Jobs are kept for a day
_BACKOFF = 3
_INSTANCE = "app.kubernetes.io/instance"
# Another pod would fail in the same way.
_NO_RETRY = [ExitCode.SOME_FAILED, ExitCode.USER, ExitCode.UNKNOWN, ExitCode.HELD]
Yaml = dict[str, Any]


def refuse_too_many(what: str, sets: int | None) -> None:
    """Check that the number of trials is known (None: it is not) and at most MAX_JOBS.

    Raises:
        UserError: the sweep cannot run as Jobs.
    """
    if sets is None:
        raise UserError(
            f"{what}: its trials are created while it runs, and Jobs need a known list; use"
            " method: grid, or random with run_cap, or resident workers (hpq enqueue)",
            code="jobs-need-count",
        )
    if sets > MAX_JOBS:
        raise UserError(
            f"{what}: {sets:,} trials need {sets:,} Jobs; the limit is {MAX_JOBS:,}. Resident"
            " workers have no limit: hpq enqueue, then hpq scale N",
            code="jobs-too-many",
        )


def render(manifests: str, sweep: SweepView, trials: Iterable[TrialView]) -> str:
    """Return the Jobs of some trials as YAML, with the ConfigMaps that they read.

    `manifests`: the output of `manifests.render` for the sweep's queue.
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


def _job(worker: Yaml, sweep: SweepView, trial: TrialView) -> Yaml:
    number = trial.id.number
    ours = {_INSTANCE: "hpq-job", "hpq/sweep": sweep.id, "hpq/set": str(number)}
    labels = {**worker["metadata"]["labels"], **ours}
    template = copy.deepcopy(worker["spec"]["template"])
    template["metadata"]["labels"] |= ours
    pod = template["spec"]
    pod["restartPolicy"] = "Never"
    pod.pop("topologySpreadConstraints", None)
    container = _container(template)
    container.pop("readinessProbe", None)  # no Service sends it requests
    given = {"HPQ_QUEUE": sweep.queue, "HPQ_SWEEP": str(trial.id)}
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
    """Ignore drained and preempted pods; fail the Job on errors that would repeat."""

    def on(codes: Iterable[int]) -> Yaml:
        return {"containerName": container, "operator": "In", "values": [*map(int, codes)]}

    return [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
        {"action": "Ignore", "onExitCodes": on([TOLD_TO_GO])},
        {"action": "FailJob", "onExitCodes": on(_NO_RETRY)},
    ]
