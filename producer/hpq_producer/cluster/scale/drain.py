"""Wait for drained workers in pods, then remove their pods."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from hpq.domain.status import Worker
from hpq.errors import Held, NotFound, UserError
from hpq.store.reader import StoreReader
from hpq_producer.cluster.api import KubernetesApi
from hpq_producer.cluster.objects import Deployment, Pod
from hpq_producer.cluster.pods import autoscaler_of, read_cluster
from hpq_producer.cluster.scale.plan import LOWEST_COST, pods_removed_before
from hpq_producer.cluster.scale.scale import Scaling, deployment_pods, set_deletion_cost


def select_workers(workers: Sequence[Worker], names: Collection[str]) -> list[Worker]:
    """Return the live workers by the name of a worker or a pod, or the start of one.

    Raises:
        NotFound: no worker has the name.
        UserError: a start matches workers of more than one pod.
    """
    found: dict[str, Worker] = {}
    for name in names:
        exact = [w for w in workers if name in (w.name, w.pod)]
        fits = exact or [w for w in workers if w.name.startswith(name) or w.pod.startswith(name)]
        if not fits:
            text = f"no live worker or pod is named {name!r}; list them: hpq workers"
            raise NotFound(text, code="worker-not-found")
        homes = sorted({w.pod or w.name for w in fits})
        if len(homes) > 1:
            text = f"{name!r} matches {', '.join(homes[:5])}; type more of the name"
            raise UserError(text, code="worker-ambiguous")
        found |= {w.name: w for w in fits}
    return list(found.values())


def remove_drained_pods(
    api: KubernetesApi, reader: StoreReader, pods: Collection[str]
) -> Iterator[str]:
    """Scale each Deployment down by its drained pods; yield one line for each Deployment.

    An autoscaler removes its pods itself; the drained ones get the lowest deletion cost.
    """
    cluster = read_cluster(api)
    for deployment in cluster.deployments:
        present = deployment_pods(cluster, deployment)
        drained = {pod.name for pod in present} & set(pods)
        if drained:
            yield _remove_pods(api, reader, deployment, present, drained)


def keep_drained_pods(api: KubernetesApi, pods: Collection[str]) -> None:
    """Reset the deletion cost of these pods.

    Raises:
        HpqError: as `KubernetesApi`.
    """
    for pod in read_cluster(api).pods:
        if pod.name in pods and pod.cost == LOWEST_COST:
            set_deletion_cost(api, pod.name, None)


def _remove_pods(
    api: KubernetesApi,
    reader: StoreReader,
    deployment: Deployment,
    present: Sequence[Pod],
    pods: Collection[str],
) -> str:
    named = ", ".join(sorted(pods))
    again = f"hpq drain {' '.join(sorted(pods))}{api.flags}"
    if name := autoscaler_of(api, deployment.name):
        for pod in pods:
            set_deletion_cost(api, pod, LOWEST_COST)
        return (
            f"{named}: drained; {name} removes it first when it scales down, and until then the"
            f" pod is idle; to let it work again: {again} --undo"
        )
    scaling, front = (
        Scaling(api, reader, None, deployment.queue),
        pods_removed_before(present, pods),
    )
    try:
        # `present` may be fewer than wanted, if a quota or a crash prevents some.
        plan = scaling.plan(len(present) - len(front) - len(pods), first=pods)
    except Held as error:
        return f"{named}: drained, but not removed: {error}; if still present then: {again}"
    if busy := sorted(set(plan.stopped_pods) - set(pods)):
        return (
            f"{named}: drained, but not removed: Kubernetes would first stop {', '.join(busy)},"
            f" which is busy and not ready; when it is ready or removed: {again}"
        )
    stay = scaling.apply(plan)
    gone = sorted(pod.name for pod in plan.going if pod.name not in stay)
    line = f"{deployment.name}: {deployment.wanted} → {plan.wanted} pods"
    line += f" ({', '.join(gone)} removed)" if gone else ""
    if not plan.wanted:
        line += f"; start pods again: hpq scale N{deployment.flag}{api.flags}"
    if left := sorted(stay & set(pods)):
        line += f"; still present and drained: {', '.join(left)}; to let them work: {again} --undo"
    return line
