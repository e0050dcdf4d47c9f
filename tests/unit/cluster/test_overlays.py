"""Overlays around those of k8s/: one's own namespace, components and patches, a base by git."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpq_producer.manifests.cluster_file import load
from hpq_producer.manifests.render import manifests_folder, render

pytestmark = pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not on PATH")

Objects = dict[tuple[str, str], Any]
COMPONENTS = ("spot", "tls", "keda", "store", "nfs", "monitoring", "archive")


def kustomize(folder: Path | str) -> Objects:
    done = subprocess.run(
        ["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return by_name(done.stdout)


def by_name(text: str) -> Objects:
    """Objects by kind and name, without the hash of a ConfigMap's name."""
    objects = list(yaml.safe_load_all(text))
    return {(o["kind"], o["metadata"]["name"]): o for o in objects}


def around(folder: Path, resource: str, **keys: object) -> Objects:
    """Render an overlay of one's own that has a resource."""
    folder.mkdir(exist_ok=True)
    (folder / "kustomization.yaml").write_text(yaml.safe_dump({"resources": [resource], **keys}))
    return kustomize(folder)


@pytest.fixture
def k8s(tmp_path: Path) -> Path:
    """A copy of k8s/, since kustomize wants relative paths."""
    shutil.copytree(manifests_folder(), tmp_path / "k8s")
    return tmp_path / "k8s"


def check_workers(found: Objects, names: tuple[str, ...]) -> None:
    """Every object is of the namespace, and no worker believes what is not so of its pod."""
    assert {o["metadata"].get("namespace", "ours") for o in found.values()} == {"ours"}
    assert "hpq-redis.hpq" not in str(found)
    for name in names:
        template = found["Deployment", name]["spec"]["template"]
        (worker,) = template["spec"]["containers"]
        env = {e["name"]: e.get("value") for e in worker["env"]}
        assert template["spec"]["terminationGracePeriodSeconds"] == 15
        assert env["HPQ_POD_GRACE_S"] == "15"
        assert worker["image"] == template["metadata"]["annotations"]["hpq/image"] == "reg/hpq:9"
        required = template["spec"]["affinity"]["nodeAffinity"]
        assert "requiredDuringSchedulingIgnoredDuringExecution" in required


@pytest.mark.parametrize("order", [COMPONENTS, COMPONENTS[::-1]])
@pytest.mark.parametrize("resource", ["base", "overlays/gpu", "overlays/queues"])
def test_components_and_a_namespace_around_an_overlay_are_right_in_any_order(
    k8s: Path, resource: str, order: tuple[str, ...]
) -> None:
    found = around(
        k8s.parent / "ours",
        f"../k8s/{resource}",
        namespace="ours",
        components=[f"../k8s/components/{name}" for name in order],
        images=[{"name": "hpq-worker", "newName": "reg/hpq", "newTag": "9"}],
    )
    queues = resource == "overlays/queues"
    check_workers(found, ("hpq-worker", "hpq-worker-big") if queues else ("hpq-worker",))
    scaler = found["ScaledObject", "hpq-worker"]["spec"]
    assert scaler["scaleTargetRef"]["name"] == "hpq-worker"
    (trigger,) = scaler["triggers"]
    assert trigger["metadata"]["listName"] == "hpq:demand:default"
    auth = found["TriggerAuthentication", "hpq-redis"]["spec"]["secretTargetRef"]
    assert {one["parameter"] for one in auth} == {"address", "username", "password", "tls", "ca"}
    volume = found["PersistentVolumeClaim", "hpq-nfs"]["spec"]["volumeName"]
    assert ("PersistentVolume", volume) in found


def test_an_overlay_around_an_overlay_is_right(k8s: Path) -> None:
    """A platform's overlay with the components, and a team's with namespace, image and patches."""
    around(
        k8s.parent / "platform",
        "../k8s/overlays/gpu",
        components=[f"../k8s/components/{name}" for name in ("keda", "spot")],
    )
    selector = {"kind": "Deployment", "labelSelector": "app.kubernetes.io/name=hpq-worker"}
    op = {"op": "add", "path": "/spec/template/spec/nodeSelector", "value": {"gpu": "a100"}}
    found = around(
        k8s.parent / "team",
        "../platform",
        namespace="ours",
        images=[{"name": "hpq-worker", "newName": "reg/hpq", "newTag": "9"}],
        patches=[{"target": selector, "patch": yaml.safe_dump([op])}],
    )
    check_workers(found, ("hpq-worker",))
    pod = found["Deployment", "hpq-worker"]["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"gpu": "a100"}


def test_a_queue_with_a_scaler_in_an_overlay_of_ones_own_scales_its_own_deployment(
    k8s: Path,
) -> None:
    queue = k8s.parent / "ours" / "queue"
    queue.mkdir(parents=True)
    name = "hpq-worker-big"
    made = {
        "resources": ["../../k8s/worker", "../../k8s/components/keda/scaler"],
        "nameSuffix": "-worker-big",
        "labels": [{"pairs": {"app.kubernetes.io/instance": name}, "includeSelectors": True}],
    }
    (queue / "kustomization.yaml").write_text(yaml.safe_dump(made))
    found = around(k8s.parent / "ours", "queue", namespace="ours")
    assert found["ScaledObject", name]["spec"]["scaleTargetRef"]["name"] == name


@pytest.mark.skipif(not shutil.which("git"), reason="git is not on PATH")
def test_a_base_that_git_has_is_right_at_its_tag(k8s: Path, tmp_path: Path) -> None:
    origin = tmp_path / "origin"
    origin.mkdir()
    shutil.move(k8s, origin / "k8s")
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for words in (("init", "-q"), ("add", "."), (*who, "commit", "-qm", "one"), ("tag", "v1")):
        subprocess.run(["git", *words], cwd=origin, check=True)
    url = f"file://{origin}//k8s/%s?ref=v1"
    found = around(
        tmp_path / "ours",
        url % "overlays/gpu",
        namespace="ours",
        components=[url % "components/keda", url % "components/spot"],
        images=[{"name": "hpq-worker", "newName": "reg/hpq", "newTag": "9"}],
    )
    check_workers(found, ("hpq-worker",))


def test_the_overlay_of_two_queues_is_what_a_cluster_file_of_them_renders() -> None:
    file = load(text="image: hpq-worker:dev\nqueues: {default: {}, big: {gpus: 4}}")
    assert by_name(render(file)) == kustomize(manifests_folder() / "overlays" / "queues")
