"""Parse pods and Deployments from the API's JSON. Pure.

A pod that does not work has one short reason, from the scheduler, the kubelet or the kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CONTAINER = "worker"
WORKER_SELECTOR = "app.kubernetes.io/name=hpq-worker"
_SAYS_NOTHING = ("ContainerCreating", "PodInitializing", "")
_COUNT = re.compile(r"^\d+ ")
_UNSET = re.compile(r"failed quota: (\S+): must specify ([\w.,/-]+)")
_QUOTA = re.compile(r"exceeded quota: (\S+), requested: (\S+), used: (\S+), limited: (\S+)")
NODE_LOST = "its node is not ready"
_MAX_LENGTH = 160
_ID = re.compile(r" \[[a-z-]+\]$")  # of an error, as a worker logs it
_BY_SIGNAL = 128  # a shell's exit code of a process killed by signal N is 128 + N

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A worker's pod; `reason` is why it does not work or has ended, "" if it works."""

    name: str
    phase: str  # Pending | Running | Succeeded | Failed | Unknown | Terminating
    node: str = ""
    queue: str = ""
    reason: str = ""
    is_ready: bool = False
    restarts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A Deployment of workers: the pods wanted, present and ready, and why fewer are ready."""

    name: str
    queue: str
    wanted: int
    present: int
    ready: int
    reason: str = ""
    autoscaler: str = ""  # "ScaledObject NAME" or "HPA NAME" that scaled it to 0


def pod_of(raw: Object, events: Iterable[Object] = ()) -> Pod:
    """Parse a pod; `events` are warnings about it, used if its status gives no reason."""
    meta = raw["metadata"]
    spec = raw["spec"]
    status = raw.get("status", {})
    is_ending = bool(meta.get("deletionTimestamp"))
    found = _statuses(status)
    return Pod(
        name=meta["name"],
        phase="Terminating" if is_ending else str(status.get("phase", "Unknown")),
        node=spec.get("nodeName", ""),
        queue=queue_of(meta, spec),
        reason=(NODE_LOST if _has_lost_node(status) else "")
        or _reason(spec, status, found)
        or _reason_from_events(status, found, events),
        is_ready=not is_ending and _has_condition(status, "Ready"),
        restarts=sum(int(one.get("restartCount", 0)) for one in found),
    )


def deployment_of(raw: Object) -> Deployment:
    """Parse a Deployment."""
    spec, status = raw["spec"], raw.get("status", {})
    template = spec["template"]
    return Deployment(
        name=raw["metadata"]["name"],
        queue=queue_of(template["metadata"], template["spec"]),
        wanted=int(spec.get("replicas", 1)),
        present=int(status.get("replicas", 0)),
        ready=int(status.get("readyReplicas", 0)),
        reason=_replica_failure(status),
    )


def queue_of(meta: Object, spec: Object) -> str:
    """Return the queue of a pod or a template: its label hpq/queue, or its HPQ_QUEUE."""
    label = meta.get("labels", {}).get("hpq/queue")
    if label:
        return str(label)
    for one in container_of(spec).get("env", ()):
        if one["name"] == "HPQ_QUEUE" and one.get("value"):
            return str(one["value"])
    return "default"


def container_of(spec: Object) -> Object:
    """Return the worker's container of a pod."""
    containers = spec["containers"]
    found: Object = next((c for c in containers if c["name"] == CONTAINER), containers[0])
    return found


def _statuses(status: Object) -> list[Object]:
    """Return the statuses of a pod's containers, without init containers that succeeded."""
    first = status.get("initContainerStatuses", ())
    todo = [s for s in first if s.get("state", {}).get("terminated", {}).get("exitCode") != 0]
    return [*todo, *status.get("containerStatuses", ())]


def _has_condition(status: Object, kind: str) -> bool:
    return any(c["type"] == kind and c["status"] == "True" for c in status.get("conditions", ()))


def _reason(spec: Object, status: Object, found: Sequence[Object]) -> str:
    if status.get("phase") == "Failed" and status.get("reason"):  # e.g. Evicted
        return _shorten(f"{status['reason']}: {status.get('message', '')}")
    for one in status.get("conditions", ()):
        if one["type"] == "PodScheduled" and one["status"] == "False":
            return scheduling_reason(one.get("reason", ""), one.get("message", ""))
    for one in found:
        state, limit = one.get("state", {}), _memory_limit(spec, one["name"])
        before = _termination_reason(one.get("lastState", {}).get("terminated"), limit)
        waiting = state.get("waiting", {})
        why = str(waiting.get("reason", ""))
        if why == "CrashLoopBackOff":
            return f"{why}: {before or 'its container ends immediately'}"
        if why not in _SAYS_NOTHING:
            about = (
                f"image {one.get('image', '')}" if "Image" in why else waiting.get("message", "")
            )
            return _shorten(f"{why}: {about}")
        if over := _termination_reason(state.get("terminated"), limit):
            return over
        if before and not _has_condition(status, "Ready"):  # running between two crashes
            return before
    if status.get("phase") == "Failed":
        return _shorten(f"Failed: {status.get('message', '')}")
    return ""


def _has_lost_node(status: Object) -> bool:
    """Return whether Kubernetes took a pod's readiness since its node does not answer.

    The kubelet changes both conditions, or gives a reason.
    """
    taken = [c for c in status.get("conditions", ()) if c["type"] == "Ready"]
    is_taken = any(c["status"] == "False" and not c.get("reason") for c in taken)
    return is_taken and _has_condition(status, "ContainersReady")


def scheduling_reason(reason: str, message: str) -> str:
    """Return what the scheduler lacks, e.g. "Insufficient nvidia.com/gpu", without preemption."""
    if reason != "Unschedulable":
        return reason
    said = message.partition(" nodes are available: ")[2].partition(". ")[0].rstrip(".")
    parts = [_COUNT.sub("", part) for part in re.split(r", (?=\d+ )", said)]
    return _shorten("; ".join(part for part in parts if part)) or _shorten(message) or reason


def _memory_limit(spec: Object, name: str) -> str:
    for one in spec["containers"]:
        if one["name"] == name:
            return str(one.get("resources", {}).get("limits", {}).get("memory", ""))
    return ""


def _termination_reason(over: Object | None, limit: str) -> str:
    if not over:
        return ""
    if over.get("reason") == "OOMKilled":
        return f"OOMKilled (memory limit {limit})" if limit else "OOMKilled"
    code = int(over.get("exitCode", 0))
    if code > _BY_SIGNAL:  # the last log line is not the reason then
        return f"its container was killed by signal {code - _BY_SIGNAL}"
    said = str(over.get("message", "")).strip().splitlines()
    why = said[-1] if said else f"{over.get('reason', 'ended')}, exit code {code}"
    return _shorten(f"its container ended: {why}")


def _reason_from_events(status: Object, found: Sequence[Object], events: Iterable[Object]) -> str:
    """Return the reason from events, for a pod whose status is only ContainerCreating."""
    if _has_condition(status, "Ready") or status.get("phase") != "Pending":
        return ""  # the pod's log explains more than a failed probe
    for event in reversed(list(events)):
        if event.get("reason") in ("FailedMount", "FailedCreatePodSandBox", "Failed"):
            # `secret "y" not found` of `MountVolume.SetUp failed for volume "x" : secret …`
            return _shorten(str(event.get("message", "")).rpartition(" : ")[2])
    return ""


def _replica_failure(status: Object) -> str:
    """Return why a Deployment cannot create pods."""
    for one in status.get("conditions", ()):
        if one["type"] == "ReplicaFailure" and one["status"] == "True":
            return refusal(f"{one.get('reason', '')}: {one.get('message', '')}")
    return ""


def refusal(message: str) -> str:
    """Return why the API server refuses a pod, from its controller's message."""
    if over := _QUOTA.search(message):
        name, asked, used, limit = over.groups()
        return f"quota {name} is exhausted: {asked} requested, {used} used, {limit} allowed"
    if missing := _UNSET.search(message):
        name, values = missing.groups()
        return f"without {values}, quota {name} refuses the pod"
    return _shorten(message)


def _shorten(text: str) -> str:
    """Return a text in one line of limited length, with the id at its end."""
    text = " ".join(text.split()).rstrip(": ")
    tag = _ID.search(text)
    after = tag[0] if tag else ""
    text = text.removesuffix(after)
    return (text if len(text) <= _MAX_LENGTH else text[: _MAX_LENGTH - 1] + "…") + after
