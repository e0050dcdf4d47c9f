"""What `hpq doctor --cluster` looks at, from the kubeconfig to the Secrets in the workers' pods."""

from __future__ import annotations

from collections.abc import Iterator

from hpq.code.signing import fingerprint
from hpq.errors import Forbidden, HpqError, NotFound, OutOfReach
from hpq_producer.cluster.api import KubernetesApi
from hpq_producer.cluster.pods import read_cluster
from hpq_producer.cluster.redis_access import (
    SERVICE,
    RedisService,
    expected_secrets,
    explain_missing,
    recreate_secrets,
)
from hpq_producer.doctor.local import Finding
from hpq_producer.doctor.workloads import good_finding, redis_checkup, workers_checkup

Need = tuple[str, str, str]
# What each command asks of these credentials: verb, resource (group:plural/sub), name.
_CONNECTS: tuple[Need, ...] = (
    ("get", "services", SERVICE),
    ("get", "pods/portforward", ""),  # a websocket begins as a GET
)
_ALL, _LOOK = (("get", "secrets", f"hpq-redis-{role}") for role in ("producer", "viewer"))
_NEEDS: dict[str, tuple[Need, ...]] = {
    "hpq watch, hpq workers": (("list", "pods", ""), ("list", "apps:deployments", "")),
    "hpq connect": (*_CONNECTS, _ALL),
    "hpq enqueue of code": (("get", "secrets", "hpq-code-key"),),
    "hpq scale, hpq drain": (("patch", "pods", ""), ("patch", "apps:deployments/scale", "")),
}
_OPERATOR = "an administrator binds you to the Role hpq-operator"


def cluster_checkup(api: KubernetesApi) -> Iterator[Finding]:
    """Look at everything; what these credentials may not see is a finding, too."""
    try:
        version = api.get("/version")["gitVersion"]
        api.get(api.of("pods"), limit="1")
    except HpqError as error:
        yield Finding.of(error)
        if not isinstance(error, Forbidden) or error.code == "cluster-credentials-refused":
            return
    else:
        yield good_finding(
            "cluster-answers", f"{api.server}: Kubernetes {version} answers, context {api.context}"
        )
    yield from _namespace(api)
    yield from _rights(api)
    try:
        cluster = read_cluster(api)
    except HpqError as error:
        yield Finding.of(error)
        return
    yield from redis_checkup(api)
    yield from _secrets(api)
    yield from workers_checkup(api, cluster)


def _namespace(api: KubernetesApi) -> Iterator[Finding]:
    try:
        RedisService(api)
    except NotFound:
        yield Finding.of(NotFound(explain_missing(api), code="cluster-object-missing"))
    except HpqError as error:
        yield Finding.of(error)
    else:
        yield good_finding("namespace", f"namespace {api.namespace}: Service {SERVICE} is there")


def _rights(api: KubernetesApi) -> Iterator[Finding]:
    for command, needs in _NEEDS.items():
        missing = [need for need in needs if not api.allows(*need)]
        if not missing:
            yield good_finding("rights", f"you may do what {command} needs")
        elif missing == [_ALL] and api.allows(*_LOOK):
            yield good_finding(
                "rights-viewer", f"you may look: hpq connect --role viewer{api.flags}"
            )
        else:
            missing_rights = ", ".join(f"{v} {r} {n}".rstrip() for v, r, n in missing).replace(
                ":", "/"
            )
            may_look = all(api.allows(*need) for need in (*_CONNECTS, _LOOK))
            yield Finding(
                level="poor",
                code="rights-missing",
                what=f"you may not {missing_rights}: {command} will not work",
                remedy=_OPERATOR + ("" if may_look else " (hpq-viewer to look only)"),
            )


def _secrets(api: KubernetesApi) -> Iterator[Finding]:
    """Those that pods mount; what is in them is compared where it may be read."""
    remedy = recreate_secrets(api)
    for name in expected_secrets(api):
        try:
            api.get(api.of(f"secrets/{name}"))
        except NotFound:
            yield Finding(
                level="wrong",
                code="secret-missing",
                what=f"Secret {name} is not there",
                remedy=remedy,
            )
        except Forbidden:
            continue  # not for these eyes; a pod that lacks it says so
        except OutOfReach as error:
            yield Finding.of(error)


def keys_agree(ours: str, key: bytes | None, flags: str) -> Finding | None:
    """Whether the key here is the one that workers check code with; None where neither is known.

    `flags` are as of `KubernetesApi`.
    """
    theirs = fingerprint(key)
    if not theirs or not ours:
        return None
    if ours == theirs:
        return good_finding(
            "code-key", f"Secret hpq-code-key is the code key in force here, {ours}"
        )
    return Finding(
        level="poor",
        code="code-key-differs",
        what=f"Secret hpq-code-key is code key {theirs}, and yours is {ours}",
        remedy=f"workers run nothing that you sign: unset HPQ_CODE_KEY and use hpq connect{flags}",
    )
