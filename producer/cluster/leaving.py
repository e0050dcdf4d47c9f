"""Drained workers in pods: seen to their end, and then their pods go."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from hpq.errors import NotFound, UserError
from hpq.snapshot import Worker
from hpq.store import Store
from hpq.view import View
from producer.cluster.api import Api
from producer.cluster.objects import Workers
from producer.cluster.pods import autoscaler_of, look
from producer.cluster.scaling import Scaling


def chosen(workers: Sequence[Worker], names: Collection[str]) -> list[Worker]:
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
            raise NotFound(f"no live worker or pod is called {name!r}; `hpq workers` lists them")
        homes = sorted({w.pod or w.name for w in fits})
        if len(homes) > 1:
            raise UserError(f"{name!r} fits {', '.join(homes[:5])}; write more of the name")
        found |= {w.name: w for w in fits}
    return list(found.values())


class Leaving:
    """Workers that were drained; asked again and again, it says what became of them."""

    def __init__(self, view: View, store: Store, names: Collection[str]) -> None:
        self._view, self._store, self._names = view, store, list(names)

    def look(self) -> list[Worker]:
        """Those that still run something."""
        live = [w for w in self._view.workers() if w.name in self._names]
        return [w for w in live if self._store.drain(w.name)]


def let_go(api: Api, pods: Collection[str]) -> Iterator[str]:
    """Scale each Deployment down by those of its pods, which go; says a line for each.

    Pods of a class that an autoscaler looks after are its to remove.
    """
    crew = look(api)
    for workers in crew.workers:
        of_it = {
            p.name
            for p in crew.pods
            if p.name in pods
            and p.owner.startswith(f"{workers.name}-")
            and p.phase not in ("Terminating", "Failed")
        }
        if of_it:
            yield _one(api, workers, of_it)


def _one(api: Api, workers: Workers, pods: Collection[str]) -> str:
    if name := autoscaler_of(api, workers.name):
        return f"{', '.join(sorted(pods))}: drained, and left to {name}, which removes pods"
    scaling = Scaling(api, None, None, workers.queue)
    plan = scaling.plan(max(0, workers.wanted - len(pods)), first=pods)
    scaling.apply(plan)
    return f"{workers.name}: {workers.wanted} → {plan.wanted} pods ({', '.join(sorted(pods))} gone)"
