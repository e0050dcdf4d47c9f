"""The manifests of k8s/, as one stream, with a cluster's own names filled in.

An overlay is written to a directory of its own and rendered by kubectl's kustomize, so that what is
printed is what `kubectl apply -k` of the same overlay would send.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from hpq.errors import UserError
from hpq.settings import LAST_WORDS_S
from hpq_producer.manifests import components as parts
from hpq_producer.manifests.components import Part, WorkerClass
from hpq_producer.shipped import shipped

BASE = "base"
IMAGE = "hpq-worker:dev"  # unless another is said
_OPTIONAL = "components"
_SETTINGS = "settings"  # what --set says, as a component
_HEAD = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
_PER_TRIAL, _PER_GPU = "HPQ_GPUS_PER_TRIAL", "HPQ_TRIALS_PER_GPU"
_GRACE, _SPOT_S = "HPQ_GRACE_S", 15
Yaml = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a cluster's manifests are to say; what is left empty stays as k8s/base has it."""

    image: str = ""
    namespace: str = "hpq"
    queue: str = "default"
    replicas: int | None = None  # in no manifest: a later apply without it would make it one
    gpus: int | None = None  # of each pod; 0 = none, which is the component cpu
    cpu: str = ""  # of each pod, as Kubernetes writes quantities; not of the further classes
    memory: str = ""
    parts: tuple[Part, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)  # HPQ_* of the workers

    @property
    def classes(self) -> list[WorkerClass]:
        """The further classes of workers."""
        return [p.worker_class() for p in self.parts if p.name == parts.CLASS]

    @property
    def components(self) -> list[str]:
        """The components in the order in which they build on each other."""
        names = {p.name for p in self.parts} - {parts.CLASS}
        return sorted(names | ({"cpu"} if self.gpus == 0 else set()), key=parts.turn)


def folder() -> Path:
    """Where the manifests lie: in the installed package, or in a checkout."""
    return shipped("k8s")


def components() -> list[str]:
    """The names of the components beside the base."""
    return sorted(p.parent.name for p in (folder() / _OPTIONAL).glob("*/kustomization.yaml"))


def own_settings() -> set[str]:
    """The HPQ_* that a Deployment says of its pods itself, over any ConfigMap."""
    text = (folder() / "worker" / "deployment.yaml").read_text("utf-8")
    (container,) = yaml.safe_load(text)["spec"]["template"]["spec"]["containers"]
    return {str(one["name"]) for one in container["env"]}


def overlay(wanted: Wanted, root: str) -> Yaml:
    """The kustomization that says what is wanted, with the manifests lying at `root`.

    The further classes are its resources `class-NAME`, which `class_of` makes; what the settings
    say is the component `settings`, the last: those before it have values of their own.
    """
    check(wanted)
    if "bucket" in wanted.components and "HPQ_STORE" not in wanted.settings:
        raise UserError("--with bucket: say which, --set HPQ_STORE=s3://BUCKET/PATH")
    classes = wanted.classes
    components = [f"{root}/{_OPTIONAL}/{name}" for name in wanted.components]
    made: Yaml = {
        **_HEAD,
        "namespace": wanted.namespace,
        "labels": _labels(),
        "resources": [f"{root}/{BASE}", *(f"class-{c.name}" for c in classes)],
        "components": [*components, *([_SETTINGS] if wanted.settings else [])],
        "images": [_image(wanted.image or IMAGE)],
        "patches": _patches(wanted),
        "replacements": _replacements(wanted),
    }
    return made


def _labels() -> Any:
    """The labels of the base, for what the overlay adds to it."""
    text = (folder() / BASE / "kustomization.yaml").read_text("utf-8")
    return yaml.safe_load(text)["labels"]


def settings_of(wanted: Wanted) -> Yaml:
    """The component that says what the settings say."""
    literals = [f"{name}={value}" for name, value in wanted.settings.items()]
    merged = {"name": "hpq-settings", "behavior": "merge", "literals": literals}
    head = {"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component"}
    return {**head, "configMapGenerator": [merged]}


def class_of(one: WorkerClass, root: str, *, is_scaled: bool) -> Yaml:
    """The kustomization of a further class of workers; k8s/components/class is one of them."""
    scaler = [f"{root}/{_OPTIONAL}/keda/scaler"] if is_scaled else []
    return {
        **_HEAD,
        "resources": [f"{root}/worker", *scaler],
        "nameSuffix": f"-worker-{one.name}",
        "labels": [
            {
                "pairs": {"app.kubernetes.io/instance": f"hpq-worker-{one.name}"},
                "includeSelectors": True,
            }
        ],
        "patches": [parts.class_patch("hpq", one.name, one.gpus)],
    }


def check(wanted: Wanted) -> None:
    """Refuse what no cluster could use.

    Raises:
        UserError: no such component, or what is asked for does not go together.
    """
    there = components()
    for name in [*wanted.components, *(p.name for p in wanted.parts)]:
        if name not in there:
            raise UserError(
                f"--with {name}: no such component; there are {', '.join(there)}",
                code="component-unknown",
            )
    if "keda" in wanted.components and wanted.replicas is not None:
        raise UserError(
            "--replicas: with keda, that decides; --with keda=MAX says how many at most"
        )
    for one, other in (("dataset", "nfs"), ("store", "bucket")):
        if one in wanted.components and other in wanted.components:
            raise UserError(f"--with {one} and --with {other} are for the same thing; take one")
    if wanted.gpus and "cpu" in wanted.components:
        raise UserError(f"--gpus {wanted.gpus}: --with cpu is for workers without; take one")
    _check_gpus(wanted)
    _check_grace(wanted)
    names = [wanted.queue, *(c.name for c in wanted.classes)]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"--with class={name}: another class has this queue")


def _check_gpus(wanted: Wanted) -> None:
    """What no worker could start with is refused before it is a pod that crashes."""
    per_trial = int(wanted.settings.get(_PER_TRIAL, 0))
    if wanted.gpus and per_trial > wanted.gpus:
        raise UserError(f"--set {_PER_TRIAL}={per_trial}: --gpus gives a pod {wanted.gpus}")
    many = [per_trial or wanted.gpus or 1, *(c.gpus for c in wanted.classes)]
    if int(wanted.settings.get(_PER_GPU, 1)) > 1 and max(many) > 1:
        raise UserError(
            f"--set {_PER_GPU}: trials that share a GPU have one; for pods of several GPUs, --set"
            f" {_PER_TRIAL}=1, too"
        )


def _check_grace(wanted: Wanted) -> None:
    grace = wanted.settings.get(_GRACE)
    if grace and "spot" in wanted.components and parts.pod_grace(float(grace)) > _SPOT_S:
        raise UserError(
            f"--set {_GRACE}={grace}: with spot a pod has {_SPOT_S} s, {LAST_WORDS_S:g} of them for"
            f" its worker; say {_SPOT_S - LAST_WORDS_S:g} at most"
        )


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


def _patches(wanted: Wanted) -> list[Yaml]:
    found = [patch for part in wanted.parts for patch in part.patches()]
    grace = wanted.settings.get(_GRACE)
    if grace and "spot" not in wanted.components:
        found.append(parts.grace_patch(float(grace)))
    if wanted.queue != "default" or wanted.gpus or wanted.cpu or wanted.memory:
        patch = parts.class_patch(
            "hpq-worker",
            wanted.queue,
            wanted.gpus,
            is_split=_PER_TRIAL in wanted.settings,
            cpu=wanted.cpu,
            memory=wanted.memory,
        )
        found.append(patch)
    return found


def _replacements(wanted: Wanted) -> list[Yaml]:
    """Those of k8s, and for each further class those of a Deployment again."""
    ours: list[Yaml] = yaml.safe_load((folder() / "replacements.yaml").read_text("utf-8"))
    of_one = yaml.safe_dump([r for r in ours if r["source"]["kind"] == "Deployment"])
    for one in wanted.classes:
        name = f"name: hpq-worker-{one.name}\n"
        ours = [*ours, *yaml.safe_load(of_one.replace("name: hpq-worker\n", name))]
    return ours


def render(wanted: Wanted) -> str:
    """All objects as YAML.

    Raises:
        UserError: kubectl is missing, a component is unknown, or kustomize refuses.
    """
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise UserError(
            "kubectl is not on PATH; its kustomize renders the manifests", code="program-missing"
        )
    is_scaled = "keda" in wanted.components
    files = {".": overlay(wanted, "k8s")}
    if wanted.settings:
        files[_SETTINGS] = settings_of(wanted)
    for one in wanted.classes:
        files[f"class-{one.name}"] = class_of(one, "../k8s", is_scaled=is_scaled)
    with tempfile.TemporaryDirectory() as name:
        # kustomize takes nothing from outside the directory that it is given but relative paths.
        shutil.copytree(folder(), Path(name, "k8s"))
        for place, made in files.items():
            Path(name, place).mkdir(exist_ok=True)
            Path(name, place, "kustomization.yaml").write_text(yaml.safe_dump(made), "utf-8")
        done = subprocess.run(
            [kubectl, "kustomize", name], capture_output=True, text=True, check=False
        )
    if done.returncode != 0:
        raise UserError(
            f"kubectl kustomize: {done.stderr.strip().splitlines()[-1]}", code="kustomize-failed"
        )
    return done.stdout
