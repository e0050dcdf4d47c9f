"""Check a cluster for `hpq doctor --cluster`: access, rights, Redis, Secrets, workers."""

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
from hpq_producer.doctor.local import Finding, good, poor, wrong
from hpq_producer.doctor.workloads import redis_checkup, workers_checkup

Need = tuple[str, str, str]
# The rights that each command needs: verb, resource (group:plural/sub), name.
_CONNECTS: tuple[Need, ...] = (
    ("get", "services", SERVICE),
    ("get", "pods/portforward", ""),  # a websocket starts with a GET
)
_ALL, _LOOK = (("get", "secrets", f"hpq-redis-{role}") for role in ("producer", "viewer"))
_NEEDS: dict[str, tuple[Need, ...]] = {
    "hpq watch, hpq workers": (("list", "pods", ""), ("list", "apps:deployments", "")),
    "hpq connect": (*_CONNECTS, _ALL),
    "hpq enqueue of code": (("get", "secrets", "hpq-code-key"),),
    "hpq scale, hpq drain": (("patch", "pods", ""), ("patch", "apps:deployments/scale", "")),
}
_OPERATOR = "ask an administrator to bind you to the Role hpq-operator"


def cluster_checkup(api: KubernetesApi) -> Iterator[Finding]:
    """Yield all findings; what these credentials may not read is a finding, too."""
    try:
        version = api.get("/version")["gitVersion"]
        api.get(api.of("pods"), limit="1")
    except HpqError as error:
        yield Finding.of(error)
        if not isinstance(error, Forbidden) or error.code == "cluster-credentials-refused":
            return
    else:
        yield good(
            "cluster-answers", f"{api.server} answers: Kubernetes {version}, context {api.context}"
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
        yield good("namespace", f"namespace {api.namespace} has Service {SERVICE}")


def _rights(api: KubernetesApi) -> Iterator[Finding]:
    for command, needs in _NEEDS.items():
        missing = [need for need in needs if not api.allows(*need)]
        if not missing:
            yield good("rights", f"you have the rights for {command}")
        elif missing == [_ALL] and api.allows(*_LOOK):
            yield good(
                "rights-viewer", f"you have read rights: hpq connect --role viewer{api.flags}"
            )
        else:
            rights = ", ".join(f"{v} {r} {n}".rstrip() for v, r, n in missing).replace(":", "/")
            may_read = all(api.allows(*need) for need in (*_CONNECTS, _LOOK))
            yield poor(
                "rights-missing",
                f"you may not {rights}, so {command} does not work",
                _OPERATOR + ("" if may_read else " (hpq-viewer for read access)"),
            )


def _secrets(api: KubernetesApi) -> Iterator[Finding]:
    """Check that the Secrets that pods mount exist."""
    remedy = recreate_secrets(api)
    for name in expected_secrets(api):
        try:
            api.get(api.of(f"secrets/{name}"))
        except NotFound:
            yield wrong("secret-missing", f"Secret {name} is missing", remedy)
        except Forbidden:
            continue  # a pod that lacks it has a finding of its own
        except OutOfReach as error:
            yield Finding.of(error)


def keys_agree(ours: str, key: bytes | None, flags: str) -> Finding | None:
    """Compare the code key here with that of the workers; None if one of them is not known.

    `flags` are `KubernetesApi.flags`.
    """
    theirs = fingerprint(key)
    if not theirs or not ours:
        return None
    if ours == theirs:
        return good("code-key", f"Secret hpq-code-key has the code key used here, {ours}")
    return poor(
        "code-key-differs",
        f"Secret hpq-code-key has code key {theirs}, and yours is {ours}: workers reject code"
        " that you sign",
        f"unset HPQ_CODE_KEY and run hpq connect{flags}",
    )
