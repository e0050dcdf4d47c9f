"""`hpq manifests`: the secrets that it makes, and the overlay that it has kustomize render."""

from __future__ import annotations

import shutil
from hashlib import sha256
from pathlib import Path

import pytest
import yaml

from hpq.errors import UserError
from hpq.settings import read
from producer.manifests import Wanted, components, folder, overlay, render
from producer.secrets_yaml import secret_objects

NEEDS_KUBECTL = pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not on PATH")


def test_every_call_makes_new_passwords_and_redis_gets_their_hashes_only() -> None:
    first, again = (secret_objects("hpq", "team", "the-key") for _ in range(2))
    data = {s["metadata"]["name"]: s["stringData"] for s in first}  # type: ignore[index]
    users = data.pop("hpq-redis-users")["users.acl"]
    assert data.pop("hpq-code-key") == {"key": "the-key"}
    assert users.splitlines()[0] == "user default off"
    for name, secret in data.items():
        line = next(x for x in users.splitlines() if f"-{name.removeprefix('hpq-redis-')} " in x)
        assert f"#{sha256(secret['password'].encode()).hexdigest()} " in line
        assert secret["password"] not in users
    assert [s["stringData"] for s in first] != [s["stringData"] for s in again]
    assert {s["metadata"]["namespace"] for s in first} == {"team"}  # type: ignore[index]


def test_an_image_is_taken_with_its_tag_its_digest_or_the_port_of_its_registry() -> None:
    def image(text: str) -> object:
        return overlay(Wanted(image=text), "k8s")["images"]

    name = {"name": "hpq-worker"}
    assert image("ours/hpq:1.2") == [{**name, "newName": "ours/hpq", "newTag": "1.2"}]
    assert image("reg:5000/hpq") == [{**name, "newName": "reg:5000/hpq", "newTag": "latest"}]
    assert image("a/b@sha256:12") == [{**name, "newName": "a/b", "digest": "sha256:12"}]


def test_a_component_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(UserError, match=r"--with clouds: no such component; there are .*cpu"):
        overlay(Wanted(components=("clouds",)), "k8s")


def test_every_manifest_is_yaml_with_no_password_and_no_option_commented_out() -> None:
    for path in sorted(folder().rglob("*.yaml")):
        text = path.read_text("utf-8")
        assert list(yaml.safe_load_all(text)) != [None], path
        assert "password:" not in text and len(text.splitlines()) <= 80, path
    assert components() == ["cpu"]


def test_each_overlay_has_the_replacements() -> None:
    wanted = (folder() / "replacements.yaml").read_text("utf-8")
    copies = list((folder() / "overlays").glob("*/replacements.yaml"))
    assert len(copies) == len(list((folder() / "overlays").iterdir()))
    assert {copy.read_text("utf-8") for copy in copies} == {wanted}


def test_a_pods_grace_leaves_its_worker_time_for_a_last_word() -> None:
    assert read({"HPQ_POD_GRACE_S": "60"}).grace_s == 55
    assert read({"HPQ_POD_GRACE_S": "6"}).grace_s == 3
    assert read({"HPQ_POD_GRACE_S": "60", "HPQ_GRACE_S": "20"}).grace_s == 20
    assert read({}).grace_s == 12


@NEEDS_KUBECTL
def test_what_is_rendered_says_what_was_wanted(tmp_path: Path) -> None:
    text = render(Wanted(image="ours/hpq:7", namespace="team", queue="a100x4", replicas=3, gpus=4))
    found = {(o["kind"], o["metadata"]["name"]): o for o in yaml.safe_load_all(text)}
    spec = found["Deployment", "hpq-worker"]["spec"]
    assert spec["replicas"] == 3
    pod = spec["template"]["spec"]
    container = pod["containers"][0]
    env = {e["name"]: e.get("value") for e in container["env"]}
    assert env["HPQ_IMAGE"] == container["image"] == "ours/hpq:7"
    assert env["HPQ_POD_GRACE_S"] == str(pod["terminationGracePeriodSeconds"])
    assert (env["HPQ_QUEUE"], env["HPQ_GPUS_PER_TRIAL"]) == ("a100x4", "4")
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 4
    assert {o["metadata"].get("namespace", "team") for o in found.values()} == {"team"}


@NEEDS_KUBECTL
def test_without_gpus_no_pod_asks_for_one() -> None:
    assert "nvidia.com/gpu:" not in render(Wanted(gpus=0))
