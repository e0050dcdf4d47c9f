"""What `hpq doctor --cluster` looks at, from the kubeconfig to the Secrets in the workers' pods."""

from __future__ import annotations

from collections.abc import Iterator

from hpq.errors import Forbidden, HpqError, NotFound, OutOfReach
from hpq.signing import fingerprint
from producer.checkup import Finding
from producer.cluster.access import SERVICE, Redis, anew, expected, missing
from producer.cluster.api import Api
from producer.cluster.objects import GPU, Pod, Workers
from producer.cluster.pods import Crew, autoscaler_of, look

# What each command asks of these credentials: verb, resource (group:plural/sub), name.
_NEEDS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "hpq watch, hpq workers": (("list", "pods", ""), ("list", "apps:deployments", "")),
    "hpq connect": (
        ("get", "services", SERVICE),
        ("get", "secrets", "hpq-redis-producer"),
        ("get", "pods/portforward", ""),  # a websocket begins as a GET
    ),
    "hpq enqueue of code": (("get", "secrets", "hpq-code-key"),),
    "hpq scale, hpq drain": (("patch", "pods", ""), ("patch", "apps:deployments/scale", "")),
}
_ROLES = "an administrator binds you to the Role hpq-operator (hpq-viewer to look only)"


def cluster_checkup(api: Api) -> Iterator[Finding]:
    """Look at everything; what these credentials may not see is a finding, too."""
    try:
        version = api.get("/version")["gitVersion"]
        api.get(api.of("pods"), limit="1")
    except HpqError as error:
        yield _wrong(error)
        if not isinstance(error, Forbidden) or "not know these credentials" in str(error):
            return
    else:
        yield _good(f"{api.server}: Kubernetes {version} answers, context {api.context}")
    yield from _namespace(api)
    yield from _rights(api)
    try:
        crew = look(api)
    except HpqError as error:
        yield _wrong(error)
        return
    yield from _redis(api)
    yield from _secrets(api)
    for workers in crew.workers:
        yield from _workers(api, crew, workers)
    yield from _gpus(api, crew)


def _namespace(api: Api) -> Iterator[Finding]:
    try:
        Redis(api)
    except NotFound:
        yield _wrong(NotFound(missing(api)))
    except HpqError as error:
        yield _wrong(error)
    else:
        yield _good(f"namespace {api.namespace}: Service {SERVICE} is there")


def _rights(api: Api) -> Iterator[Finding]:
    for command, needs in _NEEDS.items():
        lacks = [f"{v} {r} {n}".rstrip() for v, r, n in needs if not api.allows(v, r, n)]
        if lacks:
            yield Finding(
                level="poor",
                what=f"you may not {', '.join(lacks).replace(':', '/')}: {command} will not work",
                remedy=_ROLES,
            )
        else:
            yield _good(f"you may do what {command} needs")


def _redis(api: Api) -> Iterator[Finding]:
    try:
        raws = api.get(
            api.of("apps/v1/statefulsets"), labelSelector=f"app.kubernetes.io/name={SERVICE}"
        )
        claims = api.get(api.of("persistentvolumeclaims"))["items"]
    except HpqError as error:
        yield Finding(level="note", what=f"Redis's data volume is not known: {error}")
        return
    for raw in raws["items"]:
        ready = raw.get("status", {}).get("readyReplicas", 0)
        name = raw["metadata"]["name"]
        if not ready:
            yield Finding(
                level="wrong",
                what=f"StatefulSet {name}: no pod is ready",
                remedy=f"kubectl -n {api.namespace} describe pod {name}-0",
            )
        if not raw["spec"].get("volumeClaimTemplates"):
            yield Finding(
                level="poor",
                what=f"StatefulSet {name} has no volume: a pod that goes takes all sweeps with it",
                remedy="give it a volumeClaimTemplate named data",
            )
    for claim in claims:
        yield _claim(api, claim)


def _claim(api: Api, claim: dict[str, dict[str, object]]) -> Finding:
    name, phase = claim["metadata"]["name"], claim["status"].get("phase")
    if phase == "Bound":
        return _good(f"PersistentVolumeClaim {name} is bound")
    return Finding(
        level="wrong",
        what=f"PersistentVolumeClaim {name} is {phase}",
        remedy=f"kubectl -n {api.namespace} describe pvc {name}; without a default StorageClass,"
        " set storageClassName",
    )


def _secrets(api: Api) -> Iterator[Finding]:
    """Those that pods mount; what is in them is compared where it may be read."""
    remedy = anew(api)
    for name in expected(api):
        try:
            api.get(api.of(f"secrets/{name}"))
        except NotFound:
            yield Finding(level="wrong", what=f"Secret {name} is not there", remedy=remedy)
        except Forbidden:
            continue  # not for these eyes; a pod that lacks it says so
        except OutOfReach as error:
            yield _wrong(error)


def _workers(api: Api, crew: Crew, workers: Workers) -> Iterator[Finding]:
    called = f"Deployment {workers.name} (class {workers.queue})"
    if workers.reason:
        yield Finding(
            level="wrong",
            what=f"{called}: {workers.reason}",
            remedy=f"raise the quota: kubectl -n {api.namespace} edit resourcequota, or hpq scale"
            f" {workers.there}",
        )
    counts = f"{called}: {workers.wanted} pods wanted, {workers.ready} ready"
    if workers.ready >= workers.wanted:
        yield _good(counts)
    else:
        yield Finding(
            level="note",
            what=counts,
            remedy=f"kubectl -n {api.namespace} logs deployment/{workers.name} says why",
        )
    if name := autoscaler_of(api, workers.name):
        yield Finding(level="good", what=f"{name} decides how many pods {workers.name} has")
    for name in workers.settings:
        yield from _settings(api, crew, workers, name)
    for pod in crew.pods:
        if pod.queue == workers.queue and pod.reason:
            yield Finding(
                level="wrong",
                what=f"pod {pod.name}, {pod.phase}: {pod.reason}",
                remedy=_remedy(api, workers, pod),
            )


def _settings(api: Api, crew: Crew, workers: Workers, name: str) -> Iterator[Finding]:
    """A ConfigMap that was edited in place: pods that run do not hear of it."""
    try:
        meta = api.get(api.of(f"configmaps/{name}"))["metadata"]
    except NotFound:
        yield Finding(
            level="wrong",
            what=f"ConfigMap {name} of Deployment {workers.name} is not there: no pod can start",
            remedy=f"apply the manifests again: hpq manifests --namespace {api.namespace}",
        )
        return
    except HpqError:
        return
    edited = max((str(one.get("time", "")) for one in meta.get("managedFields", ())), default="")
    older = [p.name for p in crew.pods if p.queue == workers.queue and p.made < edited]
    if older:
        yield Finding(
            level="poor",
            what=f"ConfigMap {name} was edited after {', '.join(older[:3])} began, which still have"
            " the settings of before",
            remedy=f"kubectl -n {api.namespace} rollout restart deployment/{workers.name}",
        )


def _remedy(api: Api, workers: Workers, pod: Pod) -> str:
    see = f"kubectl -n {api.namespace} describe pod {pod.name}"
    if "Image" in pod.reason:
        return (
            f"the node cannot pull {workers.image}: push it, or correct it"
            f" (hpq manifests --image …); a private registry wants imagePullSecrets; {see}"
        )
    if f"Insufficient {GPU}" in pod.reason:
        return (
            f"no node has {workers.gpus} free {GPU}: fewer pods (hpq scale N), more nodes, or the"
            " GPU operator's device plugin is missing; without GPUs: hpq manifests --gpus 0"
        )
    if pod.reason.startswith("OOMKilled"):
        return f"raise the memory limit of Deployment {workers.name}, or train with smaller batches"
    if pod.reason.startswith("CrashLoopBackOff"):
        return f"kubectl -n {api.namespace} logs {pod.name} --previous"
    return see


def _gpus(api: Api, crew: Crew) -> Iterator[Finding]:
    if not any(workers.gpus for workers in crew.workers):
        yield Finding(level="note", what="no Deployment of workers asks for a GPU")
        return
    try:
        nodes = api.get("/api/v1/nodes")["items"]
    except HpqError:  # nodes are the cluster's; most users may not list them
        yield Finding(
            level="note", what="which nodes have GPUs is not known: you may not list nodes"
        )
        return
    has = {n["metadata"]["name"]: int(n["status"]["allocatable"].get(GPU, 0)) for n in nodes}
    total = sum(has.values())
    if total:
        yield _good(f"{GPU}: {total} on {sum(map(bool, has.values()))} of {len(has)} nodes")
        return
    yield Finding(
        level="wrong",
        what=f"none of {len(has)} nodes has {GPU}, and the workers want some",
        remedy="install the NVIDIA GPU operator; workers without GPUs: hpq manifests --gpus 0",
    )


def keys_agree(ours: str, key: bytes | None) -> Finding | None:
    """Whether the key here is the one that workers check code with; None where neither is known."""
    theirs = fingerprint(key)
    if not theirs or not ours:
        return None
    if ours == theirs:
        return _good(f"Secret hpq-code-key is the code key in force here, {ours}")
    return Finding(
        level="poor",
        what=f"Secret hpq-code-key is code key {theirs}, and yours is {ours}",
        remedy="workers run nothing that you sign: unset HPQ_CODE_KEY and use hpq connect",
    )


def _good(what: str) -> Finding:
    return Finding(level="good", what=what)


def _wrong(error: HpqError) -> Finding:
    return Finding(level="wrong", what=str(error), exit_code=int(error.exit_code))
