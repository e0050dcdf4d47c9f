"""A Job for each set: what stands in it."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from hpq.domain.sweep import Launch, SweepView
from hpq.domain.trial import TrialId, TrialState, TrialView
from hpq_producer.manifests import jobs
from hpq_producer.manifests.render import manifests_folder
from tests.support.ids import raises

SWEEP = "a-sweep-with-a-name-that-is-as-long-as-one-3u4d4"


def manifests() -> str:
    """The Deployment as kustomize would print it, and the settings that it reads."""
    worker: Any = yaml.safe_load(
        (manifests_folder() / "worker" / "deployment.yaml").read_text("utf-8")
    )
    worker["metadata"] |= {"name": "hpq-worker", "namespace": "team"}
    worker["metadata"]["labels"] |= {
        "app.kubernetes.io/instance": "hpq-worker",
        "kueue.x-k8s.io/queue-name": "gpus",
    }
    worker["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/instance"] = "hpq-worker"
    settings = {
        "kind": "ConfigMap",
        "metadata": {"name": "hpq-settings"},
        "data": {"HPQ_PORT": "1"},
    }
    other = {"kind": "ConfigMap", "metadata": {"name": "hpq-redis-conf"}}
    return yaml.safe_dump_all([worker, settings, other])


def rendered(*numbers: int) -> list[Any]:
    sweep = SweepView(
        id=SWEEP, name="x", owner="me", queue="big", metric=None, launch=Launch(), digest=""
    )
    trials = [
        TrialView(
            id=TrialId(sweep=SWEEP, number=n), state=TrialState.QUEUED, params={"lr": 0.1, "x": n}
        )
        for n in numbers
    ]
    return list(yaml.safe_load_all(jobs.render(manifests(), sweep, trials)))


def test_each_set_has_a_job_of_its_own_with_the_settings_that_it_reads_and_nothing_else() -> None:
    objects = rendered(1, 7, 1000)
    assert [o["kind"] for o in objects] == ["ConfigMap", "Job", "Job", "Job"]
    assert objects[0]["metadata"]["name"] == "hpq-settings"
    names = [o["metadata"]["name"] for o in objects[1:]]
    assert names == [f"hpq-{SWEEP}-{n}" for n in (1, 7, 1000)]
    assert all(len(name) <= 63 for name in names)
    assert rendered(1, 7, 1000) == objects  # again the same


def test_a_job_has_a_workers_pod_for_one_trial_that_no_deployment_takes_for_its_own() -> None:
    (_, job) = rendered(7)
    assert json.loads(job["metadata"]["annotations"]["hpq/parameters"]) == {"lr": 0.1, "x": 7}
    assert job["metadata"]["namespace"] == "team"
    template = job["spec"]["template"]
    for labels in (job["metadata"]["labels"], template["metadata"]["labels"]):
        assert labels["app.kubernetes.io/name"] == "hpq-worker"  # network policies
        assert labels["app.kubernetes.io/instance"] == "hpq-job"  # no selector, no budget
        assert (labels["hpq/sweep"], labels["hpq/set"]) == (SWEEP, "7")
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
    pod = template["spec"]
    assert pod["restartPolicy"] == "Never" and pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] and "topologySpreadConstraints" not in pod
    (container,) = pod["containers"]
    env = {e["name"]: e.get("value") for e in container["env"]}
    assert (env["HPQ_SWEEP"], env["HPQ_QUEUE"]) == (f"{SWEEP}/7", "big")
    assert "HPQ_CODE_KEY" in env and len(env) == len(container["env"])
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1


def test_a_job_tries_again_what_another_pod_may_do_better_and_goes_after_a_day() -> None:
    (_, job) = rendered(1)
    spec = job["spec"]
    assert (spec["backoffLimit"], spec["ttlSecondsAfterFinished"]) == (3, 86_400)
    ends = {
        code: rule["action"]
        for rule in spec["podFailurePolicy"]["rules"]
        for code in rule.get("onExitCodes", {}).get("values", [])
    }
    assert ends == {143: "Ignore", 1: "FailJob", 2: "FailJob", 4: "FailJob", 5: "FailJob"}


@pytest.mark.parametrize(
    ("sets", "code", "words"),
    [(None, "jobs-need-count", "method: grid"), (1001, "jobs-too-many", "1,001")],
)
def test_jobs_are_refused_for_too_many_or_unknown_trials(
    sets: int | None, code: str, words: str
) -> None:
    with raises(code, "s.yaml: ", words, "hpq enqueue"):
        jobs.refuse_too_many("s.yaml", sets)
    jobs.refuse_too_many("s.yaml", 1000)
