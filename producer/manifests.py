"""The manifests of k8s/, as one stream, with a cluster's own names filled in.

An overlay is written to a directory of its own and rendered by kubectl's kustomize, so that what is
printed is what `kubectl apply -k` of the same overlay would send.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import yaml

from hpq.errors import UserError

_HERE = Path(__file__).resolve().parent
BASE = "base"
_OPTIONAL = "components"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a cluster's manifests are to say; what is left empty stays as k8s/base has it."""

    image: str = ""
    namespace: str = "hpq"
    queue: str = "default"
    replicas: int | None = None
    gpus: int | None = None  # of each pod; 0 = none, which is the component cpu
    components: tuple[str, ...] = ()


def folder() -> Path:
    """Where the manifests lie: in the installed package, or in a checkout."""
    for place in (_HERE / "k8s", _HERE.parent / "k8s"):
        if (place / BASE / "kustomization.yaml").is_file():
            return place
    raise UserError(f"{_HERE}: the manifests are not installed; install hpq again")


def components() -> list[str]:
    """The names of the components beside the base."""
    return sorted(p.parent.name for p in (folder() / _OPTIONAL).glob("*/kustomization.yaml"))


def overlay(wanted: Wanted, root: str) -> dict[str, object]:
    """The kustomization that says what is wanted, with the manifests lying at `root`."""
    names = (*wanted.components, *(["cpu"] if wanted.gpus == 0 else []))
    for name in names:
        if name not in components():
            raise UserError(
                f"--with {name}: no such component; there are {', '.join(components())}"
            )
    made: dict[str, object] = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": wanted.namespace,
        "resources": [f"{root}/{BASE}"],
        "components": [f"{root}/{_OPTIONAL}/{name}" for name in dict.fromkeys(names)],
        "replacements": [{"path": f"{root}/replacements.yaml"}],
    }
    if wanted.image:
        made["images"] = [_image(wanted.image)]
    if wanted.replicas is not None:
        made["replicas"] = [{"name": "hpq-worker", "count": wanted.replicas}]
    patches = _patches(wanted)
    if patches:
        made["patches"] = patches
    return made


def _image(image: str) -> dict[str, str]:
    name, at, digest = image.partition("@")
    if at:
        return {"name": "hpq-worker", "newName": name, "digest": digest}
    head, _, last = name.rpartition("/")
    last, _, tag = last.partition(":")
    return {
        "name": "hpq-worker",
        "newName": f"{head}/{last}".lstrip("/"),
        "newTag": tag or "latest",
    }


def _patches(wanted: Wanted) -> list[dict[str, object]]:
    container: dict[str, object] = {"name": "worker"}
    if wanted.queue != "default":
        container["env"] = [{"name": "HPQ_QUEUE", "value": wanted.queue}]
    if wanted.gpus:
        many = {"nvidia.com/gpu": wanted.gpus}
        container["resources"] = {"requests": many, "limits": many}
        container.setdefault("env", [])
        env = container["env"]
        assert isinstance(env, list)
        if wanted.gpus > 1:
            env.append({"name": "HPQ_GPUS_PER_TRIAL", "value": str(wanted.gpus)})
    if len(container) == 1:
        return []
    patch = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "hpq-worker"},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }
    return [{"patch": yaml.safe_dump(patch, sort_keys=False)}]


def render(wanted: Wanted) -> str:
    """All objects as YAML.

    Raises:
        UserError: kubectl is missing, a component is unknown, or kustomize refuses.
    """
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise UserError("kubectl is not on PATH; its kustomize renders the manifests")
    with tempfile.TemporaryDirectory() as name:
        # kustomize takes nothing from outside the directory that it is given but relative paths.
        shutil.copytree(folder(), Path(name, "k8s"))
        Path(name, "kustomization.yaml").write_text(yaml.safe_dump(overlay(wanted, "k8s")), "utf-8")
        done = subprocess.run(
            [kubectl, "kustomize", name], capture_output=True, text=True, check=False
        )
    if done.returncode != 0:
        raise UserError(f"kubectl kustomize: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout
