"""The API server of Kubernetes, as far as hpq asks it: objects in memory, in this process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hpq.errors import NotFound
from tests.support.constants import DATA

# As a real API server wrote them.
SEEN: dict[str, Any] = json.loads((DATA / "kube" / "objects.json").read_text("utf-8"))


class KubeApi:
    """Answers with lists and objects by their name; `asked` has the requests; errors are raised."""

    def __init__(
        self, has: Mapping[str, Any], context: str = "my lab", namespace: str = "ml"
    ) -> None:
        self.context, self.namespace = context, namespace
        self.has = dict(has)
        self.asked = list[str]()

    def of(self, path: str) -> str:
        """Return the path of an object, as hpq asks for it."""
        return path.rpartition("/v1/")[2]

    def get(self, path: str, **query: str) -> Any:
        """Return an object, or a list of objects."""
        name = path.partition("/namespaces/")[2].rpartition("/")[2] or path
        self.asked.append(name)
        if name not in self.has:
            raise NotFound(f"{name} not found", code="cluster-object-missing")
        found = self.has[name]
        if isinstance(found, Exception):
            raise found
        return {"items": found} if isinstance(found, list) else found

    def text(self, path: str, **query: str) -> str:
        """Return the log of a pod; it has none if `has` does not say."""
        name = path.partition("pods/")[2]
        self.asked.append(name)
        return str(self.has.get(name, ""))


def workers(wanted: int, *, ready: int = 0, queue: str = "default", refusal: str = "") -> Any:
    """Return a Deployment of workers; `refusal` is why its last pod is not created."""
    found = json.loads(json.dumps(SEEN["quota"]))
    template = found["spec"]["template"]
    template["metadata"]["labels"]["hpq/queue"] = queue
    name = "hpq-worker" if queue == "default" else f"hpq-worker-{queue}"
    found["metadata"]["name"] = name
    found["spec"]["replicas"] = wanted
    (failure,) = [c for c in found["status"]["conditions"] if c["type"] == "ReplicaFailure"]
    failure["message"] = refusal
    found["status"] |= {
        "replicas": ready,
        "readyReplicas": ready,
        "conditions": [failure] if refusal else [],
    }
    return found


def pod(name: str, **status: Any) -> Any:
    """Return a worker's pod of queue `default`."""
    return {
        "metadata": {"name": name, "labels": {"hpq/queue": "default"}},
        "spec": {"containers": [{"name": "worker"}], "nodeName": "n1"},
        "status": {"phase": "Running", **status},
    }


def scaler(target: str, **labels: str) -> Any:
    """Return an autoscaler of a Deployment; KEDA's have a label `name`."""
    labels = {f"scaledobject.keda.sh/{key}": value for key, value in labels.items()}
    return {
        "metadata": {"name": "auto", "labels": labels},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": target}},
    }
