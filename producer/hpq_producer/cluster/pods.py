"""Read the Deployments of workers of a cluster, their pods and their autoscalers.

`PodWatcher` reads them in a thread, so that a dead API server never slows a frame. It shows only
pods of this Redis: if `hpq connect` reaches it, or a live worker runs in one of these pods.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hpq.domain.status import Worker
from hpq.errors import Forbidden, HpqError, NotFound
from hpq_producer.cluster.api import KubernetesApi, has_kubeconfig
from hpq_producer.cluster.objects import (
    WORKER_SELECTOR,
    Deployment,
    Pod,
    deployment_of,
    pod_of,
)
from hpq_producer.cluster.redis_access import explain_missing
from hpq_producer.connection_record import NAMESPACE
from hpq_producer.session import Server, Session

_DEPLOYMENT = "hpq-worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """The workers in a namespace; `at` is time.monotonic()."""

    context: str
    namespace: str
    deployments: tuple[Deployment, ...]
    pods: tuple[Pod, ...]
    at: float

    def deployment_of(self, queue: str) -> Deployment | None:
        """Return the Deployment of a queue, if any."""
        return next((one for one in self.deployments if one.queue == queue), None)


def read_cluster(api: KubernetesApi) -> ClusterStatus:
    """Read Deployments and pods with two to four requests.

    Events are read only if a status has no reason, autoscalers only if a Deployment is at 0 pods.

    Raises:
        NotFound: the namespace has no Deployment of workers.
        HpqError: as `KubernetesApi`.
    """
    raws = deployments(api)
    found = [deployment_of(raw) for raw in raws]
    if not all(one.wanted for one in found):
        names = autoscalers(api)
        found = [
            one if one.wanted else replace(one, autoscaler=names.get(one.name, "")) for one in found
        ]
    raws = api.get(api.of("pods"), labelSelector=WORKER_SELECTOR)["items"]
    pods = [pod_of(raw) for raw in raws]
    if any(p.phase in ("Pending", "Running") and not (p.reason or p.is_ready) for p in pods):
        events = warning_events(api)
        pods = [
            pod_of(raw, [e for e in events if e["involvedObject"].get("name") == pod.name])
            for raw, pod in zip(raws, pods, strict=True)
        ]
    return ClusterStatus(
        context=api.context,
        namespace=api.namespace,
        deployments=tuple(found),
        pods=tuple(sorted(pods, key=lambda pod: pod.name)),
        at=time.monotonic(),
    )


def deployments(api: KubernetesApi) -> list[Any]:
    """Return the Deployments of workers; if listing is forbidden, only the default one."""
    try:
        found: list[Any] = api.get(api.of("apps/v1/deployments"), labelSelector=WORKER_SELECTOR)[
            "items"
        ]
    except Forbidden:
        found = [api.get(api.of(f"apps/v1/deployments/{_DEPLOYMENT}"))]
    if not found:
        raise NotFound(explain_missing(api, "Deployment of workers"), code="cluster-object-missing")
    return found


def autoscalers(api: KubernetesApi) -> dict[str, str]:
    """Return the autoscalers by Deployment name, e.g. "ScaledObject hpq-worker".

    A paused ScaledObject counts as none.
    """
    try:
        found = api.get(
            f"/apis/autoscaling/v2/namespaces/{api.namespace}/horizontalpodautoscalers"
        )["items"]
    except HpqError:  # viewers may lack the permission; only a hint depends on the answer
        return {}
    names = {}
    for one in found:
        target = one["spec"]["scaleTargetRef"]
        if target["kind"] == "Deployment":
            keda = one["metadata"].get("labels", {}).get("scaledobject.keda.sh/name")
            names[target["name"]] = (
                f"ScaledObject {keda}" if keda else f"HPA {one['metadata']['name']}"
            )
    return names


def warning_events(api: KubernetesApi, name: str = "") -> Sequence[Any]:
    """Return Warning events of one object or of all, newest last; none if forbidden."""
    about = f",involvedObject.name={name}" if name else ""
    try:
        found = api.get(api.of("events"), fieldSelector=f"type=Warning{about}", limit="500")[
            "items"
        ]
    except HpqError:
        return []
    return sorted(found, key=lambda e: str(e.get("lastTimestamp") or e.get("eventTime") or ""))


INTERVAL_S = 3.0
STALE_S = 30.0  # an older status is not shown
_FIRST_WAIT_S = 4.0  # the longest wait of a command that prints once


class PodWatcher:
    """Read the pods every few seconds; `why` is the last error."""

    def __init__(self, session: Session) -> None:
        self._connection, self._stop = session.connection, threading.Event()
        self.server = session.server
        self._can_look = session.connection is not None or (
            not session.is_private and has_kubeconfig(os.environ)
        )
        self._status: ClusterStatus | None = None
        self._thread: threading.Thread | None = None
        self._has_looked, self._has_waited, self._asked_at = threading.Event(), False, 0.0
        self.why = ""

    @property
    def may_mean_cluster(self) -> bool:
        """True on the private server if a kubeconfig exists: the user may mean the cluster."""
        return self.server is Server.PRIVATE and has_kubeconfig(os.environ)

    def status(self, workers: Sequence[Worker], *, wait: bool = False) -> ClusterStatus | None:
        """Return the newest status if its pods use this Redis; the first call starts the thread.

        With `wait` the first call waits at most 4 s for a status.
        """
        if not self._can_look or not (self._connection or any(w.pod for w in workers)):
            return None
        self._start()
        if wait and not self._has_waited:
            self._has_waited = True
            self._has_looked.wait(_FIRST_WAIT_S)
        status = self._status
        if status is None or time.monotonic() - status.at > STALE_S:
            return None
        names = {pod.name for pod in status.pods}
        return status if self._connection or any(w.pod in names for w in workers) else None

    def status_now(self, workers: Sequence[Worker]) -> ClusterStatus | None:
        """Return one status, after waiting at most 4 s for it, and stop the thread."""
        status = self.status(workers, wait=True)
        self.close()
        return status

    def close(self) -> None:
        """Stop the thread."""
        self._stop.set()

    def _start(self) -> None:
        self._asked_at = time.monotonic()
        if (self._thread is None or not self._thread.is_alive()) and not self._stop.is_set():
            self._has_waited = False
            self._has_looked.clear()
            self._thread = threading.Thread(target=self._loop, name="pods", daemon=True)
            self._thread.start()

    def _loop(self) -> None:
        api: KubernetesApi | None = None
        while not self._stop.is_set() and time.monotonic() - self._asked_at < STALE_S:
            try:
                api = api or self._open()
                self._status, self.why = read_cluster(api), ""
            except HpqError as error:
                self.why = str(error)
            except Exception as error:  # trials are shown without pods
                self.why = f"{type(error).__name__}: {error}"
            self._has_looked.set()
            self._stop.wait(INTERVAL_S)

    def _open(self) -> KubernetesApi:
        if self._connection is not None:
            return KubernetesApi(self._connection.context, self._connection.namespace)
        return KubernetesApi(None, NAMESPACE)
