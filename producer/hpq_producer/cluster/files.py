"""Copy files out of a file store on a volume that only pods mount, by `kubectl exec`.

The commands are `sh`, `printf` and `cat`, which every worker image has.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from hpq.connection.credentials import redact
from hpq.domain.trial import Artifacts
from hpq.errors import Forbidden, NotFound, OutOfReach, UserError
from hpq.filestore.base import ID_FILE, Gone, UnreadableFile, checked_name
from hpq.shell import shell_hint
from hpq_producer.cluster.api import KubernetesApi
from hpq_producer.cluster.objects import WORKER_SELECTOR, container_of, is_done, pod_of
from hpq_producer.connection_record import kubectl_command
from hpq_producer.terminal.text import clean

_STORE_COMMAND = f'printf "%s\\n" "$HPQ_STORE"; cat "$HPQ_STORE/{ID_FILE}" 2>/dev/null || :'
Raw = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class PodVolume:
    """The file store that one pod mounts."""

    api: KubernetesApi
    pod: str
    container: str
    folder: str
    id: str

    def copy(self, name: str, size: int, path: Path) -> None:
        """Copy a file of `size` bytes to a path; a failed copy leaves no file.

        Raises:
            Gone: the store does not have the file.
            UnreadableFile: the file cannot be read, or has another size.
            OSError: the path cannot be written.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        words = ["cat", "--", f"{self.folder}/{checked_name(name)}"]
        try:
            with draft.open("wb") as target:
                _, why = _exec(self.api, self.pod, self.container, words, target)
            if "No such file" in why:
                raise Gone(why)
            if why or draft.stat().st_size != size:
                raise UnreadableFile(why or f"got {draft.stat().st_size} of {size} bytes")
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)


def find_volume(api: KubernetesApi, left: Artifacts) -> PodVolume:
    """Find a running worker pod, a ready one first, that mounts the store of these artifacts.

    Raises:
        NotFound: no worker pod runs, or none mounts that store.
        Forbidden: these credentials may not run a command in a pod.
        HpqError: as `KubernetesApi`.
    """
    raws = api.get(api.of("pods"), labelSelector=WORKER_SELECTOR)["items"]
    running = sorted(
        (raw for raw in raws if _is_running(raw)), key=lambda raw: not pod_of(raw).is_ready
    )
    if not running:
        raise NotFound(
            f"no worker pod runs in namespace {api.namespace}; start one: hpq scale 1{api.flags}",
            code="no-worker",
        )
    alike: dict[str, Raw] = {}
    for raw in running:  # all pods of one template mount the same store
        alike.setdefault(pod_of(raw).owner or raw["metadata"]["name"], raw)
    others = []
    for raw in alike.values():
        found = _read_store(api, raw)
        if found.id == left.store:
            return found
        others.append(_describe_store(found))
    have = f"the pods in namespace {api.namespace} have {', '.join(dict.fromkeys(others))}"
    raise NotFound(have, code="store-differs")


def copy_command(api: KubernetesApi, kept: str, path: str) -> str:
    """Return the kubectl command that copies a file of the store; it needs pods/exec."""
    kubectl, source = kubectl_command(api.context, api.namespace), shell_hint([f"/{kept}"])
    words = shell_hint(["exec", "deploy/hpq-worker", "--", "sh", "-c", f'cat "$HPQ_STORE"{source}'])
    return f"{kubectl} {words} > {shell_hint([path])}"


def _is_running(raw: Raw) -> bool:
    name = container_of(raw["spec"])["name"]
    found = raw.get("status", {}).get("containerStatuses", ())
    runs = any(one["name"] == name and "running" in one.get("state", {}) for one in found)
    return runs and not is_done(raw) and not raw["metadata"].get("deletionTimestamp")


def _read_store(api: KubernetesApi, raw: Raw) -> PodVolume:
    pod, container = raw["metadata"]["name"], container_of(raw["spec"])["name"]
    said, why = _exec(api, pod, container, ["sh", "-c", _STORE_COMMAND])
    if why:
        raise OutOfReach(f"pod {pod}: {clean(why)}", code="pod-trouble")
    place, _, name = said.partition("\n")
    return PodVolume(api=api, pod=pod, container=container, folder=place, id=name.strip())


def _exec(
    api: KubernetesApi,
    pod: str,
    container: str,
    words: Sequence[str],
    out: IO[bytes] | int = subprocess.PIPE,
) -> tuple[str, str]:
    """Run a command in a pod; return its output, unless written to `out`, and its error text.

    Raises:
        UserError: kubectl is not installed.
        Forbidden: these credentials may not run a command in a pod (pods/exec).
    """
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise UserError(
            "kubectl is not on PATH; install it to copy files out of pods:"
            " https://kubernetes.io/docs/tasks/tools/",
            code="program-missing",
        )
    where = ["--context", api.context, "-n", api.namespace, "exec", pod, "-c", container, "--"]
    done = subprocess.run(
        [kubectl, *where, *words], stdout=out, stderr=subprocess.PIPE, check=False
    )
    said = done.stderr.decode("utf-8", "replace").strip()
    if done.returncode and "(Forbidden)" in said:
        raise Forbidden(
            f"context {api.context} may not run commands in pods (pods/exec, namespace"
            f" {api.namespace}); hpq's Roles do not include it: ask an administrator",
            code="rights-missing",
        )
    if done.returncode:
        said = said.rpartition("\ncommand terminated")[0] or said or "kubectl exec failed"
        return "", said.splitlines()[-1]
    return (done.stdout or b"").decode("utf-8", "replace"), ""


def _describe_store(found: PodVolume) -> str:
    """Return the store that a pod mounts, or its HPQ_STORE, for a message."""
    if not found.folder:
        return "no HPQ_STORE"
    if "://" in found.folder:
        return f"HPQ_STORE={clean(redact(found.folder))}: set it here, too"
    return f"store {clean(found.id) or 'without an id'} at {clean(found.folder)}"
