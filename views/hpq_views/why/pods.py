"""Explain why no pod of a queue runs, or fewer than asked for, in the cluster of `hpq connect`.

Every command prints these words: of a node, a quota, an image or a policy, with the command that
shows more or mends it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cache
from threading import Lock

from hpq.access.connection_record import deployment_name, kubectl_command, scale_command
from hpq.access.session import Session
from hpq.domain.status import Worker
from hpq.domain.sweep import DEFAULT_QUEUE
from hpq.error_codes import Code
from hpq.errors import HpqError
from hpq.kubernetes.api import KubernetesApi
from hpq.kubernetes.objects import NODE_LOST, Deployment, Pod
from hpq.kubernetes.pods import ClusterStatus, read_cluster
from hpq.notice import Notice
from hpq_views.text.text import clean

INTERVAL_S = 10.0
_TIMEOUT_S = 2.0  # of one request: a live view waits for it
_NO_GPU = " [no-gpu]"  # as the log of a worker ends that lacks its GPUs
_TROUBLES = ("pods-refused", "pod-trouble", "no-gpu")  # that do not pass by themselves

# A part of a reason, and what to do about it.
_REMEDIES = {
    "ErrImagePull": "push the image to the registry; a private one needs imagePullSecrets",
    "ImagePullBackOff": "push the image to the registry; a private one needs imagePullSecrets",
    "Insufficient nvidia.com/gpu": (
        "scale to fewer pods, add nodes, or install the NVIDIA GPU operator; without GPUs, set"
        " `gpus: 0` of the queue in the cluster file, or apply `hpq manifests --gpus 0`"
    ),
    "OOMKilled": "raise the memory limit, or train with smaller batches",
    NODE_LOST: "`kubectl get nodes` shows it, and its trials return by themselves",
    "does not reach Redis": (
        "check the NetworkPolicy hpq-worker-to-redis: it must allow Redis and the cluster's DNS"
    ),
    " is exhausted: ": "scale to fewer pods, or ask for a larger quota",
    "without limits.cpu": (
        "set cpu_limit of the queue, and of redis, in a cluster file (hpq manifests --example)"
    ),
}


def why_no_pod_runs(session: Session, workers: Sequence[Worker], queue: str = "") -> list[Notice]:
    """Return why no pod of a queue runs, the first reason first; without a queue, of each queue.

    `workers` are the live ones of that queue, or of all. Empty if one is live, and without
    `hpq connect`. The pods are read at most once in 10 s.
    """
    if workers or session.connection is None:
        return []
    return _reasons_in(session.connection.context, session.connection.namespace).of(queue)


def why_fewer_pods_run(session: Session, workers: Sequence[Worker]) -> list[Notice]:
    """Return why pods are missing beside these live workers, in the queues that they serve.

    A pod that only starts is not named. Empty without `hpq connect`, or if the pods cannot be read.
    The pods are read at most once in 10 s.
    """
    if not workers or session.connection is None:
        return []
    reasons = _reasons_in(session.connection.context, session.connection.namespace)
    return reasons.troubles_of(sorted({one.queue for one in workers}))


class PodReasons:
    """Why no pod of a namespace runs; one reading of it serves for 10 s, a slow one for longer."""

    def __init__(
        self, context: str, namespace: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._context = context
        self._namespace = namespace
        self._clock = clock
        self._lock = Lock()  # a dashboard asks in several threads
        self._api: KubernetesApi | None = None
        self._last: ClusterStatus | Notice | None = None
        self._logged: dict[tuple[str, int], str] = {}  # for read_cluster
        self._due_at = 0.0  # of the next reading

    def of(self, queue: str = "") -> list[Notice]:
        """Return why no pod of a queue runs, or of any queue; why they cannot be read, if so."""
        last = self._latest()
        if isinstance(last, Notice):
            whose = f"queue {queue!r}" if queue else "any queue"
            kubectl = kubectl_command(self._context, self._namespace)
            scale = scale_command(kubectl, deployment_name(queue or DEFAULT_QUEUE))
            text = f"no worker of {whose} is running, and hpq cannot read the pods: {last.text}"
            return [Notice(last.code, f"{text}; {scale} starts N pods")]
        queues = [queue] if queue else dict.fromkeys(one.queue for one in last.deployments)
        found: list[Notice] = []
        for one in queues:
            found += explain_pods(last, one) or [_unregistered(last, one)]
        return found

    def troubles_of(self, queues: Sequence[str]) -> list[Notice]:
        """Return why pods of these queues are refused or fail; empty if they cannot be read."""
        last = self._latest()
        if isinstance(last, Notice):
            return []
        found = (why for queue in queues for why in explain_pods(last, queue))
        return [why for why in found if why.code in _TROUBLES]

    def _latest(self) -> ClusterStatus | Notice:
        with self._lock:
            began_at = self._clock()
            if self._last is None or began_at >= self._due_at:
                self._last = self._read()
                read_at = self._clock()
                # A live view waits meanwhile: of a slow API server a tenth of the time.
                self._due_at = read_at + max(INTERVAL_S, 9 * (read_at - began_at))
            return self._last

    def _read(self) -> ClusterStatus | Notice:
        try:
            if self._api is None:
                self._api = KubernetesApi(self._context, self._namespace, timeout_s=_TIMEOUT_S)
            return read_cluster(self._api, self._logged)
        except HpqError as error:
            self._api = None  # the user may log in again, or mend the kubeconfig
            return error.notice
        except Exception as error:  # no view fails for objects of a form that hpq does not know
            return Notice("no-worker", clean(f"{type(error).__name__}: {error}"))


_reasons_in = cache(PodReasons)


def explain_pods(cluster: ClusterStatus, queue: str) -> list[Notice]:
    """Return why pods of a queue do not run, a notice for each cause; empty if all are ready."""
    deployment = cluster.deployment_of(queue)
    if deployment is None:
        queues = ", ".join(sorted(clean(one.queue) for one in cluster.deployments))
        text = (
            f"queue {queue!r} has no pods: namespace {cluster.namespace} has no Deployment for it"
            f" (queues: {queues}); add `{queue}: {{gpus: N}}` to `queues` of the cluster file, and"
            " apply `hpq manifests cluster.yaml`"
        )
        return [Notice("no-deployment", text)]
    if deployment.wanted == 0:
        text = f"queue {queue!r} has no pods: {_explain_scaled_to_zero(cluster, deployment)}"
        return [Notice("scaled-to-0", text)]
    if deployment.ready >= deployment.wanted:
        return []  # an evicted pod that was replaced may still be listed
    kubectl = kubectl_command(cluster.context, cluster.namespace)
    lead = f"queue {queue!r} has {deployment.ready} of {deployment.wanted} pods ready"
    found = []
    if deployment.reason:
        why = f"Deployment {deployment.name}: {clean(deployment.reason)}"
        remedy = f"{remedy_of(deployment.reason)}{kubectl} get events --field-selector type=Warning"
        found.append(Notice("pods-refused", f"{lead}: {why}; {remedy}"))
    of_queue = [pod for pod in cluster.pods if pod.queue == queue]
    pods = [pod for pod in of_queue if pod.phase != "Terminating" or pod.reason == NODE_LOST]
    pods.sort(key=lambda pod: pod.reason != NODE_LOST)  # the others may lack that node
    causes: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.reason:
            causes.setdefault(pod.reason, []).append(pod)
    for reason, alike in causes.items():
        remedy = f"{remedy_of(reason)}{_look_at(alike[0], kubectl)}"
        code: Code = "no-gpu" if reason.endswith(_NO_GPU) else "pod-trouble"
        why = clean(reason.removesuffix(_NO_GPU))
        found.append(Notice(code, f"{lead}: {_describe(alike)}: {why}; {remedy}"))
    if found:
        return found
    starting = [pod for pod in pods if not pod.is_ready]
    if starting:
        text = f"{lead}: {_describe(starting)}: it starts; {_look_at(starting[0], kubectl)}"
    else:
        describe = f"{kubectl} describe deployment {deployment.name}"
        created = f"Deployment {deployment.name} has created {deployment.present} of them"
        text = f"{lead}: {created}; {describe}"
    return [Notice("pods-starting", text)]


def _unregistered(cluster: ClusterStatus, queue: str) -> Notice:
    """Explain that all pods of a queue are ready, and that Redis has no worker of them."""
    name = next(one.name for one in cluster.deployments if one.queue == queue)
    logs = f"{kubectl_command(cluster.context, cluster.namespace)} logs deployment/{name}"
    text = f"all pods of queue {queue!r} are ready, but no worker has registered in this Redis"
    return Notice("no-worker", f"{text}; {logs}")


def _describe(pods: Sequence[Pod]) -> str:
    """Return the name of the first pod, how many more there are, its phase and its node."""
    first = pods[0]
    others = f" (and {len(pods) - 1} more)" if pods[1:] else ""
    node = f" on node {first.node}" if first.node else ""
    return f"pod {first.name}{others} is {first.phase}{node}"


def _look_at(pod: Pod, kubectl: str) -> str:
    if pod.restarts:  # the events of a container that ends say only that it ends
        return f"{kubectl} logs --previous {pod.name}"
    return f"{kubectl} describe pod {pod.name}"


def remedy_of(reason: str) -> str:
    """Return what to do about the reason of a pod or a Deployment, as "DO; "; "" if unknown."""
    return "".join(f"{text}; " for part, text in _REMEDIES.items() if part in reason)


def _explain_scaled_to_zero(cluster: ClusterStatus, deployment: Deployment) -> str:
    """Explain what scaled a Deployment to 0, with the remedy."""
    kind, _, name = deployment.autoscaler.partition(" ")
    kubectl = kubectl_command(cluster.context, cluster.namespace)
    if kind == "ScaledObject":
        return (
            f"{deployment.autoscaler} scaled Deployment {deployment.name} to 0, and starts pods"
            f" when trials wait; if it does not: {kubectl} describe scaledobject {name}"
        )
    scale = scale_command(kubectl, deployment.name)
    if kind:
        return (
            f"Deployment {deployment.name} is scaled to 0, and {deployment.autoscaler} cannot scale"
            f" up from 0; {scale} starts N pods"
        )
    return f"Deployment {deployment.name} is scaled to 0; {scale} starts N pods"
