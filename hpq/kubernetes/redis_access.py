"""The address and credentials of a cluster's Redis: its Service, its pods, and Secrets.

The local port of `hpq connect` is in port_forward.py.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hpq.access.connection_record import doctor_command, kubectl_command
from hpq.errors import Forbidden, HpqError, NotFound, OutOfReach
from hpq.kubernetes.api import KubernetesApi
from hpq.kubernetes.objects import NODE_LOST, pod_of
from hpq.redis.acl import ROLES, personal_role

SERVICE = "hpq-redis"
CODE_KEY = "hpq-code-key"
CERTIFICATE = "hpq-redis-tls"
SECRETS = (
    f"{SERVICE}-users",
    *(f"{SERVICE}-{role}" for role in (*ROLES, "backup", "limits")),
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


def _read(api: KubernetesApi, name: str) -> dict[str, str]:
    data = api.get(api.of(f"secrets/{name}")).get("data") or {}
    return {key: base64.b64decode(text).decode() for key, text in data.items()}


def installed(api: KubernetesApi, prefix: str) -> tuple[str, list[str]]:
    """Return the code key of a namespace, and the lines of its aclfile for single people.

    Raises:
        NotFound: the namespace has no Secrets of hpq yet.
        HpqError: they cannot be read.
    """
    key = _read(api, CODE_KEY).get("key", "")
    lines = _read(api, f"{SERVICE}-users").get("users.acl", "").splitlines()
    return key, [one for one in lines if one.startswith(f"user {prefix}-{personal_role('')}")]


def secret_of(role: str) -> str:
    """Return the name of the Secret with the credentials of a role."""
    return f"{SERVICE}-{role}"


class RedisService:
    """The Redis Service of one namespace."""

    def __init__(self, api: KubernetesApi) -> None:
        """Read the Service; NotFound is raised if it does not exist, else the errors of `get`."""
        self.api = api
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
        pods = self.api.get(self.api.of("pods"), labelSelector=labels)["items"]
        parsed = [pod_of(pod) for pod in pods]
        ready = [raw for raw, pod in zip(pods, parsed, strict=True) if pod.is_ready]
        if not ready:
            found = ", ".join(pod.name for pod in parsed)
            why = "".join(f" ({pod.name}: {pod.reason})" for pod in parsed if pod.reason)
            on = "".join(f" on node {pod.node}" for pod in parsed if pod.reason == NODE_LOST)
            raise OutOfReach(
                f"namespace {self.api.namespace}: no ready pod behind Service {SERVICE}{on}{why};"
                " see: "
                + (
                    f"{kubectl_of(self.api)} describe pod {found}"
                    if found
                    else doctor_command(self.api.context, self.api.namespace)
                ),
                code="redis-pod-not-ready",
            )
        pod = ready[0]
        path = self.api.of(f"pods/{pod['metadata']['name']}/portforward")
        return self.api.stream(path, ports=str(self._target(pod)))

    def credentials(self, role: str, prefix: str) -> RedisCredentials:
        """Read the Secret of a role; the user's name is PREFIX-ROLE if the Secret has none.

        Raises:
            NotFound, Forbidden: the Secret does not exist, or may not be read.
        """
        try:
            data = self._secret(secret_of(role))
        except Forbidden as error:
            raise Forbidden(f"{error}{_way_in(role)}", code="cluster-forbidden") from None
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
        """Return the texts of a Secret. Raises as `credentials`."""
        try:
            return _read(self.api, name)
        except NotFound as error:
            raise NotFound(f"{error}; {self._remedy()}", code="cluster-object-missing") from None

    def _remedy(self) -> str:
        try:
            is_first = not self.api.get(self.api.of("secrets"), labelSelector=PART_OF_HPQ)["items"]
        except Forbidden:
            is_first = False  # the Service exists, so the other Secrets most likely do
        if not is_first:  # the password of a single new Secret would not match the others
            return recreate_secrets(self.api)
        return f"create it: {_create(self.api, self.scheme == 'rediss')}"

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
        "recreate all Secrets:"
        f" {_create(api, _is_tls(api), 'replace --force')};"
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


def _create(api: KubernetesApi, is_tls: bool, verb: str = "create") -> str:
    file = "echo 'tls: true' | hpq manifests -" if is_tls else "hpq manifests"
    return f"{file} --secrets --namespace {api.namespace} | {kubectl_of(api)} {verb} -f -"


def _way_in(role: str) -> str:
    """Return who may read the Secret of a role, for a message."""
    ways = {
        "admin": "; no Role of hpq has it",
        "producer": "; for reading only: --role viewer",
    }
    return ways.get(role, "")


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
    where, kubectl = f"context {api.context}: ", kubectl_of(api)
    install = f"hpq manifests --image IMAGE --namespace {api.namespace}"
    try:
        api.get(f"/api/v1/namespaces/{api.namespace}")
    except NotFound:
        return (
            f"{where}namespace {api.namespace} does not exist; choose one: --namespace NAME, or"
            f" create it with hpq: {install} --create-namespace | {kubectl} apply -f -"
        )
    except HpqError:  # reading namespaces is forbidden
        return (
            f"{where}no {what} in namespace {api.namespace}, if that exists;"
            " choose another: --namespace NAME"
        )
    return (
        f"{where}no {what} in namespace {api.namespace}; install hpq: {install} | {kubectl} apply"
        " -f - (without GPUs: --gpus 0), or choose another: --namespace NAME"
    )
