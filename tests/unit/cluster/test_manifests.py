"""`hpq manifests`: the secrets that it makes, and the overlay that it has kustomize render."""

from __future__ import annotations

import re
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from hpq import __version__
from hpq.settings import read
from hpq_producer.cli import app
from hpq_producer.manifests.components import Component, WorkerQueue, parse
from hpq_producer.manifests.render import (
    ManifestOptions,
    check,
    component_names,
    manifests_folder,
    overlay,
    queue_kustomization,
    render,
)
from hpq_producer.manifests.secrets import secret_objects, tls_secret
from tests.support.constants import ROOT
from tests.support.ids import ids, raises

Yaml = dict[str, Any]
NEEDS_KUBECTL = pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not on PATH")


def manifests(words: list[str]) -> Result:
    return CliRunner().invoke(app, ["manifests", *words])


def workers_of(text: str) -> list[tuple[Yaml, Yaml]]:
    """Each queue's Deployment and the pod in it, in the order of their names."""
    found = [o for o in yaml.safe_load_all(text) if o["kind"] == "Deployment"]
    found.sort(key=lambda o: str(o["metadata"]["name"]))
    return [(one, one["spec"]["template"]["spec"]) for one in found]


def named_image(template: Yaml) -> str:
    """HPQ_IMAGE of a worker's pod, as the kubelet reads it out of the pod's annotations."""
    (env,) = [e for e in template["spec"]["containers"][0]["env"] if e["name"] == "HPQ_IMAGE"]
    path = re.fullmatch(
        r"metadata\.annotations\['(.+)'\]", env["valueFrom"]["fieldRef"]["fieldPath"]
    )
    assert path is not None
    return str(template["metadata"]["annotations"][path[1]])


def test_every_call_makes_new_passwords_and_redis_gets_their_hashes_only() -> None:
    first, again = (secret_objects("hpq", "team", "the-key") for _ in range(2))
    data = {s["metadata"]["name"]: s["stringData"] for s in first}  # type: ignore[index]
    users = data.pop("hpq-redis-users")["users.acl"]
    assert data.pop("hpq-code-key") == {"key": "the-key"}
    assert users.splitlines()[0].startswith("user default off resetpass ")
    for name, secret in data.items():
        assert secret["username"] == name.removeprefix("hpq-redis-").join(("hpq-", ""))
        line = next(x for x in users.splitlines() if f"-{name.removeprefix('hpq-redis-')} " in x)
        assert f"#{sha256(secret['password'].encode()).hexdigest()} " in line
        assert secret["password"] not in users
    assert [s["stringData"] for s in first] != [s["stringData"] for s in again]
    assert {s["metadata"]["namespace"] for s in first} == {"team"}  # type: ignore[index]


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not on PATH")
def test_redis_gets_a_certificate_for_its_names_and_for_the_end_of_a_port_forward() -> None:
    made = tls_secret("team")["stringData"]
    assert isinstance(made, dict) and set(made) == {"tls.crt", "tls.key", "ca.crt"}
    for asked in ("-checkhost hpq-redis", "-checkhost hpq-redis.team.svc", "-checkip 127.0.0.1"):
        words = ["openssl", "x509", "-noout", *asked.split()]
        said = subprocess.run(words, input=made["tls.crt"], capture_output=True, text=True)
        assert "does match" in said.stdout, (check, said)


def test_with_tls_each_roles_secret_has_the_ca_and_none_but_redis_the_private_key() -> None:
    tls: dict[str, object] = {"stringData": {"tls.crt": "crt", "tls.key": "key", "ca.crt": "ca"}}
    *roles, last = secret_objects("hpq", "team", "the-key", tls)
    assert last is tls
    texts = [s["stringData"] for s in roles]
    with_user = [t for t in texts if isinstance(t, dict) and "username" in t]
    assert len(with_user) >= 3 and all(t["ca.crt"] == "ca" for t in with_user)
    assert "tls.key" not in str(texts)


def test_an_image_is_taken_with_its_tag_its_digest_or_the_port_of_its_registry() -> None:
    def image(text: str) -> object:
        return overlay(ManifestOptions(image=text), "k8s")["images"]

    name = {"name": "hpq-worker"}
    assert image("ours/hpq:1.2") == [{**name, "newName": "ours/hpq", "newTag": "1.2"}]
    assert image("reg:5000/hpq") == [{**name, "newName": "reg:5000/hpq", "newTag": "latest"}]
    assert image("a/b@sha256:12") == [{**name, "newName": "a/b", "digest": "sha256:12"}]


@NEEDS_KUBECTL
def test_what_may_surprise_is_said_beside_the_manifests() -> None:
    done = manifests(["--queue", "big"])
    assert yaml.safe_load_all(done.stdout) and done.exit_code == 0
    assert "--image" in done.stderr and "hpq-worker:dev" in done.stderr and "big" in done.stderr
    assert (
        not CliRunner()
        .invoke(app, ["manifests", "--image", "reg.example.org:5000/a/b_c:1.2-x"])
        .stderr
    )


def test_a_component_that_is_not_there_is_named_with_those_that_are() -> None:
    with raises("component-unknown", "clouds", "cpu"):
        overlay(ManifestOptions(parts=(parse("clouds"),)), "k8s")


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("cpu=3", "cpu"),
        ("keda=0", "--with keda=MAX"),
        ("queue=Big:4", "--with queue=QUEUE:GPUS"),
        ("queue=big", "--with queue=QUEUE:GPUS"),
        (f"queue={'b' * 53}:4", "--with queue=QUEUE:GPUS"),
        ("nfs=server", "--with nfs=SERVER:/PATH"),
        ("git-code=https://x.org/a@main", "40 digits"),
    ],
)
def test_a_value_that_its_component_cannot_use_is_refused(text: str, remedy: str) -> None:
    with raises("usage", f"--with {text}: ", remedy):
        parse(text)


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (ManifestOptions(parts=(parse("nfs=nas:/x"), parse("dataset"))), "--with dataset and"),
        (
            ManifestOptions(queue="big", parts=(parse("queue=big:2"),)),
            "--with queue=big",
        ),
        (
            ManifestOptions(gpus=2, parts=(parse("cpu"),)),
            "--gpus 2 and --with cpu",
        ),
    ],
)
def test_options_that_exclude_each_other_are_refused(wanted: ManifestOptions, why: str) -> None:
    with raises("usage", why):
        overlay(wanted, "k8s")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("HPQ_CODE_KEY=abc", "`hpq manifests --secrets`"),
        ("HPQ_STORE=s3://me:hidden@host/bucket", "ConfigMap"),
        ("LOG=debug", "write HPQ_NAME=VALUE"),
        ("HPQ_LEASE_S=soon", "use seconds"),
        ("HPQ_NOPE=1", "HPQ_NOPE"),
        ("HPQ_QUEUE=foo", "use --queue"),
        ("HPQ_IMAGE=a:1", "use --image"),
        ("HPQ_CPUS=4", "use --cpu"),
        ("HPQ_POD_GRACE_S=600", "use --set HPQ_GRACE_S"),
        ("HPQ_NODE=n", "HPQ_NODE"),
        ("HPQ_PORT=9200", "9108"),
    ],
)
def test_a_setting_that_is_secret_or_no_worker_could_use_is_refused(text: str, why: str) -> None:
    done = manifests(["--set", text])
    assert done.exit_code == 2 and ids(done.stderr) and why in done.stderr
    assert "hidden" not in done.output


def test_the_class_among_the_components_is_as_one_that_is_asked_for() -> None:
    made = queue_kustomization(WorkerQueue(name="big", gpus=4), "../../..", is_scaled=False)
    path = manifests_folder() / "components/queue/workers/kustomization.yaml"
    there = yaml.safe_load(path.read_text("utf-8"))
    for one in (made, there):
        one["patches"] = [yaml.safe_load(p["patch"]) for p in one["patches"]]
    assert made == there


def test_every_manifest_is_yaml_with_no_password_and_no_option_commented_out() -> None:
    for path in sorted(manifests_folder().rglob("*.yaml")):
        text = path.read_text("utf-8")
        assert list(yaml.safe_load_all(text)) != [None], path
        assert "password:" not in text and len(text.splitlines()) <= 80, path


def test_every_component_has_its_line_in_the_page_about_kubernetes() -> None:
    page = (ROOT / "docs" / "guides" / "kubernetes.md").read_text("utf-8")
    assert set(re.findall(r"^\| `([a-z-]+)[^`]*` \|", page, re.MULTILINE)) == set(component_names())


def test_each_overlay_has_the_replacements() -> None:
    wanted = (manifests_folder() / "replacements.yaml").read_text("utf-8")
    copies = list((manifests_folder() / "overlays").glob("*/replacements.yaml"))
    assert len(copies) == len(list((manifests_folder() / "overlays").iterdir()))
    assert {copy.read_text("utf-8") for copy in copies} == {wanted}
    of_big = ManifestOptions(parts=(Component(name="queue", value="big:4"),))
    made = overlay(of_big, "k8s")["replacements"][len(yaml.safe_load(wanted)) :]
    assert made == yaml.safe_load(
        (manifests_folder() / "overlays/queues/replacements-big.yaml").read_text("utf-8")
    )


def test_a_pods_grace_leaves_its_worker_time_for_a_last_word() -> None:
    assert read({"HPQ_POD_GRACE_S": "60"}).grace_s == 55
    assert read({"HPQ_POD_GRACE_S": "6"}).grace_s == 3
    assert read({"HPQ_POD_GRACE_S": "60", "HPQ_GRACE_S": "20"}).grace_s == 20
    assert read({}).grace_s == 12


@NEEDS_KUBECTL
def test_what_is_rendered_says_what_was_wanted(tmp_path: Path) -> None:
    text = render(ManifestOptions(image="ours/hpq:7", namespace="team", queue="a100x4", gpus=4))
    found = {(o["kind"], o["metadata"]["name"]): o for o in yaml.safe_load_all(text)}
    spec = found["Deployment", "hpq-worker"]["spec"]
    pod = spec["template"]["spec"]
    container = pod["containers"][0]
    env = {e["name"]: e.get("value") for e in container["env"]}
    assert named_image(spec["template"]) == container["image"] == "ours/hpq:7"
    assert env["HPQ_POD_GRACE_S"] == str(pod["terminationGracePeriodSeconds"])
    (cpus,) = [e["valueFrom"] for e in container["env"] if e["name"] == "HPQ_CPUS"]
    assert cpus == {"resourceFieldRef": {"resource": "requests.cpu"}}
    assert (env["HPQ_QUEUE"], env["HPQ_GPUS_PER_TRIAL"]) == ("a100x4", "4")
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 4
    assert {o["metadata"].get("namespace", "team") for o in found.values()} == {"team"}


@NEEDS_KUBECTL
@pytest.mark.parametrize("name", ["gpu", "cpu", "queues"])
def test_each_queue_names_the_image_that_a_kustomization_around_the_overlay_sets(
    name: str, tmp_path: Path
) -> None:
    shutil.copytree(manifests_folder(), tmp_path / "k8s")
    around = {
        "resources": [f"../k8s/overlays/{name}"],
        "images": [{"name": "hpq-worker", "newName": "reg:5000/hpq", "digest": "sha256:12"}],
    }
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "kustomization.yaml").write_text(yaml.safe_dump(around))
    words = ["kubectl", "kustomize", str(tmp_path / "ours")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    deployments = [one for one, _ in workers_of(done.stdout)]
    assert len(deployments) == (2 if name == "queues" else 1)
    for one in deployments:
        assert named_image(one["spec"]["template"]) == "reg:5000/hpq@sha256:12"


@NEEDS_KUBECTL
def test_every_object_has_the_recommended_labels_and_no_selector_has_a_new_one() -> None:
    label = "app.kubernetes.io/"
    shared = {"part-of": "hpq", "managed-by": "kustomize", "version": __version__}
    chosen = render(
        ManifestOptions(parts=tuple(map(parse, ("queue=big:4", "keda", "tls", "store"))))
    )
    words = ["kubectl", "kustomize", str(manifests_folder() / "overlays" / "queues")]
    shipped = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    for one in [*yaml.safe_load_all(chosen), *yaml.safe_load_all(shipped)]:
        labels = one["metadata"]["labels"]
        assert {key: labels.get(label + key) for key in shared} == shared, one
        if one["kind"] in ("Deployment", "StatefulSet"):
            selector = one["spec"]["selector"]["matchLabels"]
            is_redis = one["kind"] == "StatefulSet"
            assert selector.keys() <= {f"{label}name", f"{label}instance"}
            component = {f"{label}component": "redis" if is_redis else "worker"}
            pod_labels = one["spec"]["template"]["metadata"]["labels"]
            assert labels.items() >= component.items() and pod_labels.items() >= component.items()
            assert pod_labels.items() >= selector.items()


@NEEDS_KUBECTL
def test_a_pod_has_as_long_to_end_as_its_trials_are_given() -> None:
    parts = (parse("queue=big:2"),)
    for set_s, pod_s in (("600", 605), ("20.5", 26)):
        text = render(ManifestOptions(settings={"HPQ_GRACE_S": set_s}, parts=parts))
        pods = [p for _, p in workers_of(text)]
        assert [p["terminationGracePeriodSeconds"] for p in pods] == [pod_s] * 2
    spot = (parse("spot"),)
    ((_, pod),) = workers_of(render(ManifestOptions(settings={"HPQ_GRACE_S": "10"}, parts=spot)))
    assert pod["terminationGracePeriodSeconds"] == 15
    with raises("setting-invalid", "HPQ_GRACE_S=11"):
        render(ManifestOptions(settings={"HPQ_GRACE_S": "11"}, parts=spot))


@NEEDS_KUBECTL
def test_what_a_pod_asks_for_grows_with_its_gpus() -> None:
    def asked(**wanted: Any) -> list[tuple[str, ...]]:
        found = []
        for _, pod in workers_of(render(ManifestOptions(**wanted))):
            of = pod["containers"][0]["resources"]
            (shm,) = (v["emptyDir"] for v in pod["volumes"] if v["name"] == "shm")
            requests, limits = of["requests"], of["limits"]
            found.append((requests["cpu"], requests["memory"], limits["memory"]))
            found[-1] += (shm["sizeLimit"],)
            assert shm["medium"] == "Memory"
        return found

    of_one = ("2", "8Gi", "16Gi", "2Gi")
    assert asked() == asked(gpus=1) == [of_one]
    assert asked(gpus=8) == [("16", "64Gi", "128Gi", "16Gi")]
    assert asked(parts=(parse("queue=big:4"), parse("queue=none:0"))) == [
        of_one,
        ("8", "32Gi", "64Gi", "8Gi"),
        ("250m", "512Mi", "2Gi", "2Gi"),
    ]
    assert asked(gpus=0) == [("250m", "512Mi", "2Gi", "2Gi")]
    assert asked(gpus=8, cpu="24", memory="96Gi") == [("24", "96Gi", "96Gi", "16Gi")]
    assert asked(gpus=0, memory="1Gi") == [("250m", "1Gi", "1Gi", "2Gi")]


@NEEDS_KUBECTL
def test_without_gpus_no_pod_asks_for_one() -> None:
    assert "nvidia.com/gpu:" not in render(ManifestOptions(gpus=0))


@pytest.mark.parametrize("name", ["nfs", "git-code", "kueue", "queue"])
def test_a_component_that_needs_a_value_is_refused_without_one(name: str) -> None:
    with raises("usage", f"--with {name}="):
        parse(name)


@NEEDS_KUBECTL
@pytest.mark.parametrize(
    ("component", "setting"),
    [("bucket", "HPQ_STORE=s3://ours/x"), ("dataset", "HPQ_DATA=/data/x")],
)
def test_a_setting_wins_over_the_one_that_a_component_has(component: str, setting: str) -> None:
    name, _, value = setting.partition("=")
    text = render(ManifestOptions(image="x:1", parts=(parse(component),), settings={name: value}))
    (found,) = (
        o["data"][name]
        for o in yaml.safe_load_all(text)
        if o["kind"] == "ConfigMap" and name in o["data"]
    )
    assert found == value


def test_a_bucket_is_named_and_secrets_are_of_components_that_are_there() -> None:
    with raises("setting-missing", "--set HPQ_STORE="):
        overlay(ManifestOptions(parts=(parse("bucket"),)), "k8s")
    with raises("component-unknown", "--with tlss: "):
        check(ManifestOptions(parts=(parse("tlss"),)))


@NEEDS_KUBECTL
def test_all_components_are_composed_for_each_class() -> None:
    commit = "1" * 40
    asked = (
        "queue=big:4 queue=small:0 keda=5 tls kueue=team-a spot egress monitoring store"
        f" nfs=nas:/data git-code=https://git.example.org/a.git@{commit}"
    )
    wanted = ManifestOptions(
        namespace="team",
        image="ours/hpq:7",
        queue="main",
        parts=tuple(map(parse, asked.split())),
        settings={"HPQ_LOG": "debug"},
    )
    found = {(o["kind"], o["metadata"]["name"]): o for o in yaml.safe_load_all(render(wanted))}
    (settings,) = (n for kind, n in found if kind == "ConfigMap" and n.startswith("hpq-settings"))
    for role, verbs in (("viewer", ["get", "list"]), ("operator", ["get", "list", "patch"])):
        rules = found["Role", f"hpq-{role}"]["rules"]
        assert [r["verbs"] for r in rules if r["resources"] == ["scaledobjects"]] == [verbs]
    for name, queue, gpus in (("", "main", 1), ("-big", "big", 4), ("-small", "small", None)):
        deployment = found["Deployment", f"hpq-worker{name}"]
        assert deployment["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
        assert "replicas" not in deployment["spec"]
        pod = deployment["spec"]["template"]["spec"]
        (worker,), (init,) = pod["containers"], pod["initContainers"]
        env = {e["name"]: e.get("value") for e in worker["env"]}
        assert env["HPQ_QUEUE"] == queue
        assert named_image(deployment["spec"]["template"]) == worker["image"] == "ours/hpq:7"
        assert (env["HPQ_POD_GRACE_S"], pod["terminationGracePeriodSeconds"]) == ("15", 15)
        assert worker["resources"]["limits"].get("nvidia.com/gpu") == gpus
        assert worker["envFrom"][0]["configMapRef"]["name"] == settings
        assert {"name": "COMMIT", "value": commit} in init["env"]
        scaler = found["ScaledObject", f"hpq-worker{name}"]["spec"]
        assert scaler["scaleTargetRef"]["name"] == f"hpq-worker{name}"
        (trigger,) = scaler["triggers"]
        assert trigger["metadata"]["listName"] == f"hpq:demand:{queue}"
        assert trigger["metadata"]["address"] == "hpq-redis.team.svc:6379"
        assert (trigger["metadata"]["enableTLS"], scaler["maxReplicaCount"]) == ("true", 5)
    assert found["ConfigMap", settings]["data"]["HPQ_LOG"] == "debug"
    volume, claim = found["PersistentVolume", "hpq-nfs-team"], ("team", "hpq-nfs")
    assert volume["spec"]["nfs"]["server"] == "nas"
    assert (volume["spec"]["claimRef"]["namespace"], volume["spec"]["claimRef"]["name"]) == claim
    there = found["PersistentVolumeClaim", "hpq-nfs"]["spec"]
    assert there["volumeName"] == volume["metadata"]["name"]


def test_the_gpus_of_a_pod_are_one_trials_unless_a_setting_splits_them() -> None:
    def patched(**settings: str) -> list[str]:
        made = overlay(ManifestOptions(gpus=8, queue="big", settings=settings), "k8s")
        return [patch["patch"] for patch in made["patches"]]

    assert "HPQ_GPUS_PER_TRIAL" in patched()[0] and "nvidia.com/gpu: 8" in patched()[0]
    assert "HPQ_GPUS_PER_TRIAL" not in patched(HPQ_GPUS_PER_TRIAL="4")[0]


@NEEDS_KUBECTL
def test_what_a_component_adds_goes_by_the_labels_and_kinds_that_the_page_names() -> None:
    def objects(*words: str) -> dict[tuple[str, str], Yaml]:
        store = {"HPQ_STORE": "s3://bucket/hpq"} if "bucket" in words else {}
        text = render(ManifestOptions(image="a:1", parts=tuple(map(parse, words)), settings=store))
        found = {(o["kind"], o["metadata"]["name"]): o for o in yaml.safe_load_all(text)}
        return {key: o for key, o in found.items() if key[0] != "ConfigMap"}

    page = (ROOT / "docs" / "guides" / "kubernetes-maintenance.md").read_text("utf-8")
    deletes = re.findall(r"delete ([a-z,]+) -l ((?:hpq|app)[^ `]*)=([a-z-]+)`", page)
    kinds = {(label, value): kind.split(",") for kind, label, value in deletes}
    before = objects().keys()
    values = {"nfs": "=nas:/data", "kueue": "=team", "git-code": f"=https://x.org/a@{'1' * 40}"}
    for name in set(component_names()) - {"queue"}:
        for key, one in objects(f"{name}{values.get(name, '')}").items():
            mark = one["metadata"].get("labels", {}).get("app.kubernetes.io/component")
            assert (mark == name) == (key not in before), key
            if mark == name and key[0] != "PersistentVolume":
                assert key[0].lower() in kinds["app.kubernetes.io/component", name], key
    added = {k: o for k, o in objects("queue=big:4", "keda").items() if k not in objects("keda")}
    assert len(added) == 3
    for key, one in added.items():
        label = "app.kubernetes.io/instance"
        assert one["metadata"]["labels"][label] == "hpq-worker-big", key
        listed = [*kinds[label, "hpq-worker-big"], *kinds["app.kubernetes.io/component", "keda"]]
        assert key[0].lower() in listed, key


@NEEDS_KUBECTL
def test_new_passwords_reach_all_that_reads_them_by_the_label_that_the_page_names() -> None:
    page = (ROOT / "docs" / "guides" / "kubernetes-maintenance.md").read_text("utf-8")
    label = "app.kubernetes.io/part-of=hpq"
    assert f"delete secret -l {label}" in page
    assert f"rollout restart statefulset,deployment -l {label}" in page
    text = render(ManifestOptions(parts=(parse("queue=big:4"), parse("tls"))))
    read_them = [o for o in yaml.safe_load_all(text) if o["kind"] in ("StatefulSet", "Deployment")]
    made = secret_objects("hpq", "hpq", "the-key")
    assert len(read_them) == 3
    for one in [*read_them, *made]:
        assert one["metadata"]["labels"]["app.kubernetes.io/part-of"] == "hpq"
