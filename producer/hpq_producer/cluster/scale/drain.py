"""Drained workers in pods: seen to their end, and then their pods go."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from hpq.domain.snapshot import Worker
from hpq.errors import Held, NotFound, UserError
from hpq.store.control import SweepControl
from hpq.store.reader import StoreReader
from hpq_producer.cluster.api import KubernetesApi
from hpq_producer.cluster.objects import Deployment, Pod
from hpq_producer.cluster.pods import autoscaler_of, read_cluster
from hpq_producer.cluster.scale.plan import LOWEST_COST, pods_removed_before
from hpq_producer.cluster.scale.scale import Scaling, deployment_pods, set_deletion_cost


def select_workers(workers: Sequence[Worker], names: Collection[str]) -> list[Worker]:
    """The live workers that names mean: a worker's or a pod's, or the beginning of one.

    Raises:
        NotFound: a name means none.
        UserError: a beginning means workers of more than one pod.
    """
    found: dict[str, Worker] = {}
    for name in names:
        exact = [w for w in workers if name in (w.name, w.pod)]
        fits = exact or [w for w in workers if w.name.startswith(name) or w.pod.startswith(name)]
        if not fits:
            text = f"no live worker or pod is called {name!r}; `hpq workers` lists them"
            raise NotFound(text, code="worker-not-found")
        homes = sorted({w.pod or w.name for w in fits})
        if len(homes) > 1:
            text = f"{name!r} fits {', '.join(homes[:5])}; write more of the name"
            raise UserError(text, code="worker-ambiguous")
        found |= {w.name: w for w in fits}
    return list(found.values())


class DrainedWorkers:
    """Workers that were drained; asked again and again, it says what became of them."""

    def __init__(self, reader: StoreReader, control: SweepControl, names: Collection[str]) -> None:
        self._reader, self._control, self._names = reader, control, list(names)

    def busy(self) -> list[Worker]:
        """Those that still run something."""
        live = [w for w in self._reader.workers.live() if w.name in self._names]
        return [w for w in live if self._control.drain(w.name)]


def remove_drained_pods(
    api: KubernetesApi, reader: StoreReader, pods: Collection[str]
) -> Iterator[str]:
    """Scale each Deployment down by those of its pods, which go; says a line for each.

    Pods of a class that an autoscaler looks after are its to remove: these before others.
    """
    cluster = read_cluster(api)
    for deployment in cluster.deployments:
        present = deployment_pods(cluster, deployment)
        drained = {pod.name for pod in present} & set(pods)
        if drained:
            yield _remove_pods(api, reader, deployment, present, drained)


def keep_drained_pods(api: KubernetesApi, pods: Collection[str]) -> None:
    """Take back from these pods that they go before others.

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
            f"{named}: drained, and the first to go once {name} wants fewer pods; until then idle,"
            f" in the place of others: `{again} --undo` lets them work"
        )
    scaling, front = (
        Scaling(api, reader, None, deployment.queue),
        pods_removed_before(present, pods),
    )
    try:
        # Of those that are there: fewer than are wanted, where a quota or a crash keeps some away.
        plan = scaling.plan(len(present) - len(front) - len(pods), first=pods)
    except Held as error:
        return f"{named}: drained, and not let go: {error}; where still there then: {again}"
    if busy := sorted(set(plan.stopped_pods) - set(pods)):
        return (
            f"{named}: drained, and not let go: {', '.join(busy)}, at work and not ready, would be"
            f" stopped first; once it is ready or gone: {again}"
        )
    stay = scaling.apply(plan)
    gone = sorted(pod.name for pod in plan.going if pod.name not in stay)
    line = f"{deployment.name}: {deployment.wanted} → {plan.wanted} pods"
    line += f" ({', '.join(gone)} gone)" if gone else ""
    if not plan.wanted:
        line += f"; `hpq scale N{deployment.flag}{api.flags}` brings some back"
    if left := sorted(stay & set(pods)):
        line += f"; still there, drained: {', '.join(left)}; `{again} --undo` lets them work"
    return line
