"""The test cluster as tests see it: kubectl, images, volumes, and waiting by polling."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.constants import ROOT

TESTCLUSTER = ROOT.parent / "shared" / "k8s" / "testcluster"
DEADLINE_S = 240.0  # of a wait; far beyond what a loaded machine needs
REDIS = "docker.io/library/redis:7"
_LOCK = Path(tempfile.gettempdir()) / "testcluster-build.lock"
_CONTENT = ("Dockerfile", "pyproject.toml", "requirements.lock", "requirements-torch.txt")


def wait_for(
    is_so: Callable[[], Any],
    what: str,
    deadline_s: float = DEADLINE_S,
    tell: Callable[[], str] = lambda: "",
) -> Any:
    """Poll until it is so, and answer what it answered; `tell` says more where it never is."""
    until = time.monotonic() + deadline_s
    while not (found := is_so()):
        if time.monotonic() > until:
            pytest.fail(f"not within {deadline_s:g} s: {what}\n{tell()[-8000:]}")
        time.sleep(0.1)
    return found


class Cluster:
    """A Kubernetes that is up."""

    def __init__(self, kubeconfig: Path, path: str) -> None:
        self.home = kubeconfig.parent
        self.env = {n: v for n, v in os.environ.items() if not n.startswith("HPQ_")} | {
            "KUBECONFIG": str(kubeconfig),
            "PATH": path,
        }

    def run(
        self, *words: object, given: str | None = None, ok: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a command with this cluster's kubeconfig and kubectl."""
        done = subprocess.run(
            [*map(str, words)],
            env=self.env,
            input=given,
            stdin=None if given is not None else subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        assert not ok or done.returncode == 0, (words, done.stdout[-2000:], done.stderr[-4000:])
        return done

    def kubectl(self, *words: object, given: str | None = None, ok: bool = True) -> str:
        """What kubectl prints; `given` is its stdin. Must succeed, but with `ok=False`."""
        return self.run("kubectl", *words, given=given, ok=ok).stdout

    def get(self, *words: object) -> Any:
        """What `kubectl get … -o json` answers, as data."""
        return json.loads(self.kubectl("get", *words, "-o", "json"))

    def testcluster(self, *words: object) -> str:
        """A command of the cluster's own script."""
        return self.run(TESTCLUSTER, *words).stdout

    def has_image(self, tag: str) -> bool:
        """True where the node has an image, by its whole name."""
        socket = self.home / "run" / "containerd" / "containerd.sock"
        return (
            tag
            in self.run("ctr", "-a", socket, "-n", "k8s.io", "images", "ls", "-q").stdout.split()
        )

    def recycle(self) -> None:
        """Empty the volumes whose claim is gone, and let others have them."""
        for volume in self.get("pv")["items"]:
            if volume["status"]["phase"] != "Released":
                continue
            for entry in Path(volume["spec"]["hostPath"]["path"]).iterdir():
                shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink()
            gone = json.dumps([{"op": "remove", "path": "/spec/claimRef"}])
            name = volume["metadata"]["name"]
            self.kubectl("patch", "pv", name, "--type=json", "-p", gone, ok=False)


def is_up(cluster: Cluster) -> bool:
    """True where the API server answers; one that is down refuses at once, a busy one is awaited.

    Who finds the cluster down takes it down at the end, also from under other sessions.
    """
    words = ("kubectl", "get", "--raw", "/readyz", f"--request-timeout={DEADLINE_S:.0f}s")
    return cluster.run(*words, ok=False).returncode == 0


def connect() -> Cluster:
    """The cluster of this machine, up or not."""
    said = subprocess.run(
        [str(TESTCLUSTER), "env"], capture_output=True, text=True, check=True
    ).stdout
    told = dict(word.split("=", 1) for word in said.split() if "=" in word)
    return Cluster(Path(told["KUBECONFIG"]), told["PATH"].replace("$PATH", os.environ["PATH"]))


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Nobody else on this machine brings up the cluster or builds an image meanwhile."""
    with _LOCK.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def content_tag() -> str:
    """A tag that is another one wherever what runs in images is; manifests and pages do not."""
    mark = hashlib.sha256()
    files = [ROOT / name for name in _CONTENT]
    for folder in ("hpq", "views", "ops", "producer", "worker"):
        files += [p for p in (ROOT / folder).rglob("*") if p.is_file() and p.suffix != ".pyc"]
    for path in sorted(files):
        mark.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return f"t-{mark.hexdigest()[:12]}"


def build(cluster: Cluster, name: str, *flags: str, folder: Path = ROOT) -> str:
    """An image of this checkout on the node, built where it is not there; answers its name."""
    with alone():
        if not cluster.has_image(f"docker.io/library/{name}"):
            cluster.testcluster("build", folder, name, *flags)
    return f"docker.io/library/{name}"


def tweaked(
    objects: Sequence[Mapping[str, Any]], settings: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Manifests for a small machine: small requests, and settings of a test's own."""
    found: list[dict[str, Any]] = json.loads(json.dumps(list(objects)))
    for one in found:
        if one["kind"] in ("Deployment", "StatefulSet"):
            for container in one["spec"]["template"]["spec"]["containers"]:
                requests = container.get("resources", {}).get("requests", {})
                requests |= {"cpu": "100m", "memory": "64Mi"}
        if one["kind"] == "ConfigMap" and one["metadata"]["name"].startswith("hpq-settings"):
            one["data"] |= dict(settings)
    return found
