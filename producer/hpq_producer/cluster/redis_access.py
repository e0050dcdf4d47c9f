"""The address and credentials of a cluster's Redis: its Service, its pods, and Secrets."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hpq.errors import Forbidden, HpqError, NotFound, OutOfReach
from hpq_producer.cluster.api import KubernetesApi
from hpq_producer.cluster.objects import pod_of
from hpq_producer.connection_record import kubectl_command

SERVICE, CODE_KEY, CERTIFICATE = "hpq-redis", "hpq-code-key", "hpq-redis-tls"
SECRETS = (
    *(f"{SERVICE}-{name}" for name in ("users", "producer", "worker", "viewer", "autoscaler")),
    CODE_KEY,
)
_LABEL, _WHOLE = "app.kubernetes.io/part-of", "hpq"
PART_OF_HPQ = f"{_LABEL}={_WHOLE}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisCredentials:
    """A role's user and password on the server; `ca` is the CA certificate of a TLS server."""

    user: str
    password: str
    ca: str = ""

    def prefix(self, role: str) -> str:
        """Return the key prefix of the user, which is the start of its name."""
        return self.user.removesuffix(f"-{role}")


class RedisService:
    """The Redis Service of one namespace."""

    def __init__(self, api: KubernetesApi) -> None:
        """Read the Service; raise NotFound if it does not exist, and as `KubernetesApi`."""
        self.api = self._api = api
        self.name = SERVICE
        try:
            self._spec = api.get(api.of(f"services/{SERVICE}"))["spec"]
        except NotFound:
            raise NotFound(explain_missing(api), code="cluster-object-missing") from None
        self._port = self._spec["ports"][0]

    @property
    def scheme(self) -> str:
        """The URL scheme: rediss if the Service's port is named so, else redis."""
        return _scheme(self._spec)

    def dial(self) -> Any:
        """Open a stream to the ready pod.

        Raises:
            OutOfReach: no pod is ready.
        """
        labels = ",".join(f"{k}={v}" for k, v in self._spec["selector"].items())
        pods = self._api.get(self._api.of("pods"), labelSelector=labels)["items"]
        ready = [pod for pod in pods if pod_of(pod).is_ready]
        if not ready:
            found = ", ".join(p["metadata"]["name"] for p in pods)
            raise OutOfReach(
                f"namespace {self._api.namespace}: no ready pod behind Service {SERVICE}"
                + (f"; see: {kubectl_of(self._api)} describe pod {found}" if found else ""),
                code="redis-pod-not-ready",
            )
        pod = ready[0]
        path = self._api.of(f"pods/{pod['metadata']['name']}/portforward")
        return self._api.stream(path, ports=str(self._target(pod)))

    def credentials(self, role: str, prefix: str) -> RedisCredentials:
        """Read the Secret of a role; the user's name is PREFIX-ROLE if the Secret has none.

        Raises:
            NotFound, Forbidden: the Secret does not exist, or may not be read.
        """
        try:
            data = self._secret(f"hpq-redis-{role}")
        except Forbidden as error:
            hint = "; for reading only: --role viewer" if role != "viewer" else ""
            raise Forbidden(f"{error}{hint}", code="cluster-forbidden") from None
        user = data.get("username") or f"{prefix}-{role}"
        return RedisCredentials(
            user=user, password=data.get("password", ""), ca=data.get("ca.crt", "")
        )

    def code_key(self) -> str:
        """Return the key that signs code; "" if these credentials may not read it."""
        try:
            return self._secret(CODE_KEY).get("key", "")
        except HpqError:
            return ""

    def _secret(self, name: str) -> dict[str, str]:
        try:
            data = self._api.get(self._api.of(f"secrets/{name}")).get("data") or {}
        except NotFound as error:
            raise NotFound(f"{error}; {self._remedy()}", code="cluster-object-missing") from None
        return {key: base64.b64decode(text).decode() for key, text in data.items()}

    def _remedy(self) -> str:
        try:
            is_first = not self._api.get(self._api.of("secrets"), labelSelector=PART_OF_HPQ)[
                "items"
            ]
        except Forbidden:
            is_first = False  # the Service exists, so the other Secrets most likely do
        if not is_first:  # the password of a single new Secret would not match the others
            return recreate_secrets(self._api)
        with_tls = " --with tls" if self.scheme == "rediss" else ""
        return f"create it: {_create(self._api, with_tls)}"

    def _target(self, pod: Any) -> int:
        target = self._port.get("targetPort", self._port["port"])
        for container in pod["spec"]["containers"]:
            for port in container.get("ports", ()):
                if port.get("name") == target:
                    return int(port["containerPort"])
        return int(target)


def recreate_secrets(api: KubernetesApi) -> str:
    """Return the commands that recreate all Secrets together, with TLS also the certificate."""
    kubectl = kubectl_of(api)
    return (
        f"recreate all Secrets: {kubectl} delete secret -l {PART_OF_HPQ};"
        f" {_create(api, ' --with tls' if _is_tls(api) else '')};"
        f" {kubectl} rollout restart statefulset,deployment -l {PART_OF_HPQ}"
    )


def kubectl_of(api: KubernetesApi) -> str:
    """Return `kubectl` with this context and namespace, for a message."""
    return kubectl_command(api.context, api.namespace)


def expected_secrets(api: KubernetesApi) -> Iterator[str]:
    """Yield the names of the Secrets that pods mount."""
    yield from SECRETS
    if _is_tls(api):
        yield CERTIFICATE


def _create(api: KubernetesApi, with_tls: str) -> str:
    made = f"hpq manifests --secrets{with_tls} --namespace {api.namespace}"
    return f"{made} | {kubectl_of(api)} create -f -"


def _is_tls(api: KubernetesApi) -> bool:
    try:
        return _scheme(api.get(api.of(f"services/{SERVICE}"))["spec"]) == "rediss"
    except HpqError:
        return False


def _scheme(service: Any) -> str:
    name = str(service["ports"][0].get("name", ""))
    return "rediss" if name in ("rediss", "redis-tls", "tls") else "redis"


def explain_missing(api: KubernetesApi, what: str = f"Service {SERVICE}") -> str:
    """Explain a missing object: the namespace does not exist, or hpq is not installed in it."""
    where = f"context {api.context}: "
    try:
        api.get(f"/api/v1/namespaces/{api.namespace}")
    except NotFound:
        return f"{where}namespace {api.namespace} does not exist; choose one: --namespace NAME"
    except HpqError:  # reading namespaces is forbidden
        return (
            f"{where}no {what} in namespace {api.namespace}, if that exists;"
            " choose another: --namespace NAME"
        )
    return (
        f"{where}no {what} in namespace {api.namespace}; install hpq: hpq manifests"
        f" --image IMAGE --namespace {api.namespace} | {kubectl_of(api)} apply -f - (without GPUs:"
        " --gpus 0), or choose another: --namespace NAME"
    )
