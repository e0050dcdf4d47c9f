"""A store on a volume that only pods see: its files come out of a worker's pod, by exec.

`sh`, `printf` and `cat` run there, which every image has that a worker starts in.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import IO, Any

from hpq.errors import Forbidden, HpqError, NotFound, OutOfReach
from hpq.files import ID_FILE, checked
from hpq.passwords import redact
from hpq.trial import Artifacts
from producer.cluster.api import Api
from producer.cluster.objects import WORKERS, container_of, is_past, pod_of
from producer.cluster.output import output
from producer.cluster.pods import deployments
from producer.cluster.tunnel import kubectl_in
from producer.look.text import clean

_ASK = f'printf "%s\\n" "$HPQ_STORE"; cat "$HPQ_STORE/{ID_FILE}" 2>/dev/null || :'
_USUAL = ("hpq-worker", "/store")  # where the component `store` has it
Raw = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A store as one pod sees it; `read` is as of `hpq.files`."""

    api: Api
    pod: str
    container: str
    folder: str
    id: str
    sizes: Mapping[str, int] = field(default_factory=dict)  # in bytes, of files by their names

    def read(self, name: str) -> IO[bytes]:
        """Open a file for reading.

        Raises:
            HpqError: as `Api`.
        """
        words = ["cat", "--", f"{self.folder}/{checked(name)}"]
        return output(self.api, self.pod, self.container, words, self.sizes.get(name))


def volume_of(api: Api, left: Artifacts) -> Volume:
    """The store that has these, in a worker's pod that runs now: a ready one, if there is one.

    Raises:
        NotFound: no pod of a worker runs, or none has that store.
        Forbidden: these credentials may not run a command in a pod.
        HpqError: as `Api`.
    """
    raws = api.get(api.of("pods"), labelSelector=WORKERS)["items"]
    running = sorted((raw for raw in raws if _runs(raw)), key=lambda raw: not pod_of(raw).is_ready)
    if not running:
        raise NotFound(
            f"no worker's pod runs in namespace {api.namespace}; `hpq scale 1{api.flags}` starts"
            " one"
        )
    alike: dict[str, Raw] = {}
    for raw in running:  # pods of one template have one store
        alike.setdefault(pod_of(raw).owner or raw["metadata"]["name"], raw)
    others = []
    for raw in alike.values():
        found = _ask(api, raw)
        if found.id == left.store:
            sizes = {f"{left.path}/{name}": size for name, size in left.files.items()}
            return replace(found, sizes=sizes)
        others.append(_told(found))
    raise NotFound(f"the pods in namespace {api.namespace} have {', '.join(dict.fromkeys(others))}")


def by_hand(api: Api, kept: str, path: str) -> str:
    """The command that copies a file of the store, for who may."""
    workers: Sequence[Raw] = ()
    with suppress(HpqError):  # then where the manifests have it
        workers = deployments(api)
    return _line(kubectl_in(api.context, api.namespace), workers, kept, path)


def _line(kubectl: str, workers: Sequence[Raw], kept: str, path: str) -> str:
    name, folder = _USUAL
    for one in workers:
        for mount in container_of(one["spec"]["template"]["spec"]).get("volumeMounts", ()):
            if mount["name"] == "store":
                name, folder = one["metadata"]["name"], mount["mountPath"]
    words = shlex.join(["exec", f"deploy/{name}", "--", "cat", f"{folder}/{kept}"])
    return f"{kubectl} {clean(words)} > {clean(shlex.quote(path))}"


def _runs(raw: Raw) -> bool:
    name = container_of(raw["spec"])["name"]
    found = raw.get("status", {}).get("containerStatuses", ())
    runs = any(one["name"] == name and "running" in one.get("state", {}) for one in found)
    return runs and not is_past(raw) and not raw["metadata"].get("deletionTimestamp")


def _ask(api: Api, raw: Raw) -> Volume:
    pod, container = raw["metadata"]["name"], container_of(raw["spec"])["name"]
    try:
        with output(api, pod, container, ["sh", "-c", _ASK]) as said:
            place, _, name = said.read(4_096).decode("utf-8", "replace").partition("\n")
    except OSError as error:
        raise OutOfReach(f"pod {pod}: {clean(str(error))}") from None
    except Forbidden:
        raise Forbidden(
            f"context {api.context} may not run a command in a pod (pods/exec, namespace"
            f" {api.namespace}), which hpq's Roles leave out"
        ) from None
    return Volume(api=api, pod=pod, container=container, folder=place, id=name.strip())


def _told(found: Volume) -> str:
    """What a pod has in place of the store."""
    if not found.folder:
        return "no HPQ_STORE"
    if "://" in found.folder:
        return f"HPQ_STORE={clean(redact(found.folder))}: set it here, too"
    return f"store {clean(found.id) or 'without an id'} at {clean(found.folder)}"
