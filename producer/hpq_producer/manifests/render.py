"""Render the manifests of k8s/ with a cluster's own names as one YAML stream.

kubectl's kustomize renders an overlay in a temporary directory, so that the output equals what
`kubectl apply -k` of the same overlay sends.
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
from hpq_producer.manifests.components import Component, WorkerQueue
from hpq_producer.shipped import shipped

BASE = "base"
IMAGE = "hpq-worker:dev"  # the default
_OPTIONAL = "components"
_SETTINGS = "settings"  # the component with the values of --set
_HEAD = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
_PER_TRIAL = "HPQ_GPUS_PER_TRIAL"
_GRACE, _SPOT_S = "HPQ_GRACE_S", 15
Yaml = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestOptions:
    """The options of a cluster's manifests; empty ones keep the values of k8s/base."""

    image: str = ""
    namespace: str = "hpq"
    queue: str = "default"
    gpus: int | None = None  # per pod; 0 adds the component cpu
    cpu: str = ""  # per pod of the default queue, a Kubernetes quantity
    memory: str = ""
    parts: tuple[Component, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)  # HPQ_* of the workers

    @property
    def queues(self) -> list[WorkerQueue]:
        """The additional queues."""
        return [p.worker_queue() for p in self.parts if p.name == parts.QUEUE]

    @property
    def components(self) -> list[str]:
        """The components in the order in which kustomize must apply them."""
        names = {p.name for p in self.parts} - {parts.QUEUE}
        return sorted(names | ({"cpu"} if self.gpus == 0 else set()), key=parts.component_order)


def manifests_folder() -> Path:
    """Return the directory of the manifests in the installed package or in a checkout."""
    return shipped("k8s")


def component_names() -> list[str]:
    """Return the names of the optional components."""
    return sorted(
        p.parent.name for p in (manifests_folder() / _OPTIONAL).glob("*/kustomization.yaml")
    )


def own_settings() -> set[str]:
    """Return the HPQ_* variables that the Deployment sets itself, which override ConfigMaps."""
    text = (manifests_folder() / "worker" / "deployment.yaml").read_text("utf-8")
    (container,) = yaml.safe_load(text)["spec"]["template"]["spec"]["containers"]
    return {str(one["name"]) for one in container["env"]}


def overlay(options: ManifestOptions, root: str) -> Yaml:
    """Build the kustomization for these options; `root` is the path of the manifests.

    `queue_kustomization` builds its resources `queue-NAME`. The component `settings` is last, so
    that --set overrides the values of other components.
    """
    check(options)
    if "bucket" in options.components and "HPQ_STORE" not in options.settings:
        text = "--with bucket needs a bucket: --set HPQ_STORE=s3://BUCKET/PATH"
        raise UserError(text, code="setting-missing")
    queues = options.queues
    components = [f"{root}/{_OPTIONAL}/{name}" for name in options.components]
    made: Yaml = {
        **_HEAD,
        "namespace": options.namespace,
        "labels": _labels(),
        "resources": [f"{root}/{BASE}", *(f"queue-{c.name}" for c in queues)],
        "components": [*components, *([_SETTINGS] if options.settings else [])],
        "images": [_image(options.image or IMAGE)],
        "patches": _patches(options),
        "replacements": _replacements(options),
    }
    return made


def _labels() -> Any:
    """Return the labels of the base, for the objects that the overlay adds."""
    text = (manifests_folder() / BASE / "kustomization.yaml").read_text("utf-8")
    return yaml.safe_load(text)["labels"]


def settings_component(options: ManifestOptions) -> Yaml:
    """Build the component that sets the values of --set."""
    literals = [f"{name}={value}" for name, value in options.settings.items()]
    merged = {"name": "hpq-settings", "behavior": "merge", "literals": literals}
    head = {"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component"}
    return {**head, "configMapGenerator": [merged]}


def queue_kustomization(one: WorkerQueue, root: str, *, is_scaled: bool) -> Yaml:
    """Build the kustomization of an additional queue; k8s/components/queue is an example."""
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
        "patches": [parts.queue_patch("hpq", one.name, one.gpus)],
    }


def check(options: ManifestOptions) -> None:
    """Check the options.

    Raises:
        UserError: a component is unknown, or options contradict each other.
    """
    known = component_names()
    for name in [*options.components, *(p.name for p in options.parts)]:
        if name not in known:
            text = f"--with {name}: no such component; choose from {', '.join(known)}"
            raise UserError(text, code="component-unknown")
    for one, other in (("dataset", "nfs"), ("store", "bucket")):
        if one in options.components and other in options.components:
            raise UserError(f"--with {one} and --with {other} exclude each other; choose one")
    if options.gpus and "cpu" in options.components:
        raise UserError(f"--gpus {options.gpus} and --with cpu exclude each other; choose one")
    _check_grace(options)
    names = [options.queue, *(c.name for c in options.queues)]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"--with queue={name}: two queues have this name; rename one")


def _check_grace(options: ManifestOptions) -> None:
    grace = options.settings.get(_GRACE)
    if grace and "spot" in options.components and parts.pod_grace(float(grace)) > _SPOT_S:
        raise UserError(
            f"--set {_GRACE}={grace}: a spot pod has {_SPOT_S} s to end, and its worker needs"
            f" {LAST_WORDS_S:g} s of them; set at most {_SPOT_S - LAST_WORDS_S:g}",
            code="setting-invalid",
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


def _patches(options: ManifestOptions) -> list[Yaml]:
    found = [patch for part in options.parts for patch in part.patches()]
    grace = options.settings.get(_GRACE)
    if grace and "spot" not in options.components:
        found.append(parts.grace_patch(float(grace)))
    if options.queue != "default" or options.gpus or options.cpu or options.memory:
        patch = parts.queue_patch(
            "hpq-worker",
            options.queue,
            options.gpus,
            is_split=_PER_TRIAL in options.settings,
            cpu=options.cpu,
            memory=options.memory,
        )
        found.append(patch)
    return found


def _replacements(options: ManifestOptions) -> list[Yaml]:
    """Return the replacements of k8s, with those of the Deployment for each additional queue."""
    ours: list[Yaml] = yaml.safe_load((manifests_folder() / "replacements.yaml").read_text("utf-8"))
    of_one = yaml.safe_dump([r for r in ours if r["source"]["kind"] == "Deployment"])
    for one in options.queues:
        name = f"name: hpq-worker-{one.name}\n"
        ours = [*ours, *yaml.safe_load(of_one.replace("name: hpq-worker\n", name))]
    return ours


def render(options: ManifestOptions) -> str:
    """Return all objects as YAML.

    Raises:
        UserError: kubectl is missing, a component is unknown, or kustomize fails.
    """
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        text = "kubectl is not on PATH; install it (https://kubernetes.io/docs/tasks/tools/)"
        raise UserError(text, code="program-missing")
    is_scaled = "keda" in options.components
    files = {".": overlay(options, "k8s")}
    if options.settings:
        files[_SETTINGS] = settings_component(options)
    for one in options.queues:
        files[f"queue-{one.name}"] = queue_kustomization(one, "../k8s", is_scaled=is_scaled)
    with tempfile.TemporaryDirectory() as name:
        # kustomize reads only relative paths below its directory.
        shutil.copytree(manifests_folder(), Path(name, "k8s"))
        for place, made in files.items():
            Path(name, place).mkdir(exist_ok=True)
            Path(name, place, "kustomization.yaml").write_text(yaml.safe_dump(made), "utf-8")
        done = subprocess.run(
            [kubectl, "kustomize", name], capture_output=True, text=True, check=False
        )
    if done.returncode != 0:
        text = f"kubectl kustomize: {done.stderr.strip().splitlines()[-1]}"
        raise UserError(text, code="kustomize-failed")
    return done.stdout
