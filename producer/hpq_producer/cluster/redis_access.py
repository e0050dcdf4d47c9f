"""Where a cluster's Redis is and who may come in: its Service, its pods, and the role's Secret."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hpq.errors import Forbidden, HpqError, NotFound, OutOfReach
from hpq_producer.cluster.api import KubernetesApi
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
    """A role's name and password on the server; `ca` is the certificate that a TLS server's has."""

    user: str
    password: str
    ca: str = ""

    def prefix(self, role: str) -> str:
        """The prefix of the keys that the user may touch, which its name begins with."""
        return self.user.removesuffix(f"-{role}")


class RedisService:
    """The Redis of one namespace."""

    def __init__(self, api: KubernetesApi) -> None:
        """Raises NotFound where there is none, and as `KubernetesApi`."""
        self.api = self._api = api
        self.name = SERVICE
        try:
            self._spec = api.get(api.of(f"services/{SERVICE}"))["spec"]
        except NotFound:
            raise NotFound(explain_missing(api), code="cluster-object-missing") from None
        self._port = self._spec["ports"][0]

    @property
    def scheme(self) -> str:
        """redis, or rediss where the Service's port says so."""
        return _scheme(self._spec)

    def dial(self) -> Any:
        """A stream to the pod that is ready now.

        Raises:
            OutOfReach: there is none.
        """
        labels = ",".join(f"{k}={v}" for k, v in self._spec["selector"].items())
        pods = self._api.get(self._api.of("pods"), labelSelector=labels)["items"]
        ready = [pod for pod in pods if _is_ready(pod)]
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
        """What the Secret of a role says; one without a user's name is of this prefix.

        Raises:
            NotFound, Forbidden: with what to do.
        """
        try:
            data = self._secret(f"hpq-redis-{role}")
        except Forbidden as error:
            hint = "; to look only: --role viewer" if role != "viewer" else ""
            raise Forbidden(f"{error}{hint}", code="cluster-forbidden") from None
        user = data.get("username") or f"{prefix}-{role}"
        return RedisCredentials(
            user=user, password=data.get("password", ""), ca=data.get("ca.crt", "")
        )

    def code_key(self) -> str:
        """The key that code is signed with; "" where these credentials may not have it."""
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
            is_first = False  # its Service is there, and so are the others as a rule
        if not is_first:  # one alone would have a password that the others do not know
            return recreate_secrets(self._api)
        with_tls = " --with tls" if self.scheme == "rediss" else ""
        return f"`{_create(self._api, with_tls)}` makes it, once"

    def _target(self, pod: Any) -> int:
        target = self._port.get("targetPort", self._port["port"])
        for container in pod["spec"]["containers"]:
            for port in container.get("ports", ()):
                if port.get("name") == target:
                    return int(port["containerPort"])
        return int(target)


def recreate_secrets(api: KubernetesApi) -> str:
    """How all Secrets are made again, which fit only together; with TLS, its certificate, too."""
    kubectl = kubectl_of(api)
    return (
        f"make all of them anew: {kubectl} delete secret -l {PART_OF_HPQ};"
        f" {_create(api, _tls(api))};"
        f" {kubectl} rollout restart statefulset,deployment -l {PART_OF_HPQ}"
    )


def kubectl_of(api: KubernetesApi) -> str:
    """How a command of kubectl's begins that is told to people."""
    return kubectl_command(api.context, api.namespace)


def expected_secrets(api: KubernetesApi) -> Iterator[str]:
    """The Secrets that pods mount."""
    yield from SECRETS
    if _is_tls(api):
        yield CERTIFICATE


def _create(api: KubernetesApi, with_tls: str) -> str:
    made = f"hpq manifests --secrets{with_tls} --namespace {api.namespace}"
    return f"{made} | {kubectl_of(api)} create -f -"


def _tls(api: KubernetesApi) -> str:
    """The flag with which a certificate is made; "" where there is none to make."""
    try:
        labels = api.get(api.of(f"secrets/{CERTIFICATE}"))["metadata"].get("labels") or {}
    except HpqError:  # not there, or not for these eyes
        return " --with tls" if _is_tls(api) else ""
    is_ours = labels.get(_LABEL) == _WHOLE  # else it stays where it is: cert-manager's, say
    return " --with tls" if is_ours else ""


def _is_tls(api: KubernetesApi) -> bool:
    try:
        return _scheme(api.get(api.of(f"services/{SERVICE}"))["spec"]) == "rediss"
    except HpqError:
        return False


def _scheme(service: Any) -> str:
    name = str(service["ports"][0].get("name", ""))
    return "rediss" if name in ("rediss", "redis-tls", "tls") else "redis"


def explain_missing(api: KubernetesApi, what: str = f"Service {SERVICE}") -> str:
    """Why there is no such thing: the namespace is not there, or hpq is not in it."""
    where = f"context {api.context}: "
    try:
        api.get(f"/api/v1/namespaces/{api.namespace}")
    except NotFound:
        return f"{where}there is no namespace {api.namespace}; choose one: --namespace NAME"
    except HpqError:  # it may not be asked for
        return (
            f"{where}no {what} in namespace {api.namespace}, if there is such a"
            " namespace; choose one: --namespace NAME"
        )
    return (
        f"{where}no {what} in namespace {api.namespace}; put hpq there (`hpq manifests"
        f" --image IMAGE --namespace {api.namespace} | {kubectl_of(api)} apply -f -`, without GPUs"
        " --gpus 0), or choose another: --namespace NAME"
    )


def _is_ready(pod: Any) -> bool:
    if pod["metadata"].get("deletionTimestamp"):
        return False
    conditions = pod["status"].get("conditions", ())
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
