"""`hpq manifests`: the secrets that it makes, and the objects that it renders."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from hpq import __version__
from hpq.settings import read
from hpq_ops.manifests.cluster_file import ClusterFile, load
from hpq_ops.manifests.objects import folder, merge, to_yaml
from hpq_ops.manifests.secrets import secret_objects, tls_secret
from hpq_producer.cli import app
from hpq_producer.commands.machines import manifests as manifests_command
from tests.support.constants import ROOT
from tests.support.ids import raises
from tests.support.manifests import EVERY, TWO_QUEUES, Yaml, by_name, parsed, rendered


def manifests(words: list[str]) -> Result:
    return CliRunner().invoke(app, ["manifests", *words])


def workers_of(objects: list[Yaml]) -> list[tuple[Yaml, Yaml]]:
    """Each queue's Deployment and the pod in it, in the order of their names."""
    found = [o for o in objects if o["kind"] == "Deployment"]
    found.sort(key=lambda o: str(o["metadata"]["name"]))
    return [(one, one["spec"]["template"]["spec"]) for one in found]


def containers_of(one: Yaml) -> list[Yaml]:
    template = one.get("spec", {}).get("template", {})
    return list(template.get("spec", {}).get("containers", []))


def env_of(pod: Yaml) -> dict[str, str | None]:
    """The values of a worker's environment; None for what the kubelet reads."""
    return {e["name"]: e.get("value") for e in pod["containers"][0]["env"]}


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


@pytest.mark.parametrize("tls", ["", "tls: true\n"])
def test_workers_log_in_as_the_user_of_the_files_prefix(
    tls: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifests_command, "has_kubeconfig", lambda _: False)
    file = f"{tls}settings: {{HPQ_PREFIX: lab}}\n"
    done = CliRunner().invoke(app, ["manifests", "--secrets", "-"], input=file)
    secrets = {s["metadata"]["name"]: s["stringData"] for s in parsed(done.stdout)}
    assert secrets["hpq-redis-worker"]["username"] == "lab-worker"
    assert "~hpq:" not in secrets["hpq-redis-users"]["users.acl"]
    (settings,) = [
        o["data"] for o in rendered(file) if o["metadata"]["name"].startswith("hpq-settings-")
    ]
    assert "//lab-worker@hpq-redis:" in settings["HPQ_REDIS_URL"]


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not on PATH")
def test_redis_gets_a_certificate_for_its_names_and_for_the_end_of_a_port_forward() -> None:
    made = tls_secret("team")["stringData"]
    assert isinstance(made, dict) and set(made) == {"tls.crt", "tls.key", "ca.crt"}
    for asked in ("-checkhost hpq-redis", "-checkhost hpq-redis.team.svc", "-checkip 127.0.0.1"):
        words = ["openssl", "x509", "-noout", *asked.split()]
        said = subprocess.run(words, input=made["tls.crt"], capture_output=True, text=True)
        assert "does match" in said.stdout, (asked, said)


def test_with_tls_each_roles_secret_has_the_ca_and_none_but_redis_the_private_key() -> None:
    tls: dict[str, object] = {"stringData": {"tls.crt": "crt", "tls.key": "key", "ca.crt": "ca"}}
    *roles, last = secret_objects("hpq", "team", "the-key", tls)
    assert last is tls
    texts = [s["stringData"] for s in roles]
    with_user = [t for t in texts if isinstance(t, dict) and "username" in t]
    assert len(with_user) >= 3 and all(t["ca.crt"] == "ca" for t in with_user)
    assert "tls.key" not in str(texts)


def test_an_image_has_its_tag_its_digest_and_the_port_of_its_registry() -> None:
    of_workers, of_redis = "reg:5000/hpq:latest", f"a/b@sha256:{'1' * 64}"
    for one, other in ((of_workers, of_redis), (of_redis, of_workers)):
        objects = rendered(f"image: {one}\nredis: {{image: {other}}}")
        ((_, pod),) = workers_of(objects)
        assert env_of(pod)["HPQ_IMAGE"] == one
        (server,) = (o for o in objects if o["kind"] == "StatefulSet")
        both = [pod, server["spec"]["template"]["spec"]]
        assert [p["containers"][0]["image"] for p in both] == [one, other]


def test_an_image_that_is_not_given_is_named_beside_the_manifests() -> None:
    done = manifests([])
    assert yaml.safe_load_all(done.stdout) and done.exit_code == 0
    assert "--image" in done.stderr and "hpq-worker:dev" in done.stderr
    assert not manifests(["--image", "reg.example.org:5000/a/b_c:1.2-x"]).stderr


def test_every_manifest_is_yaml_with_no_password_and_no_option_commented_out() -> None:
    for path in sorted(folder().rglob("*.yaml")):
        text = path.read_text("utf-8")
        assert list(yaml.safe_load_all(text)) != [None], path
        assert "password:" not in text and len(text.splitlines()) <= 90, path


def test_every_key_of_a_cluster_file_has_its_line_in_the_page_about_kubernetes() -> None:
    page = (ROOT / "docs" / "guides" / "kubernetes.md").read_text("utf-8")
    listed = re.findall(r"^\| `([a-z_-]+)[^`]*` \|", page, re.MULTILINE)
    assert sorted(listed) == sorted(ClusterFile.model_fields)


def test_every_directory_of_a_component_is_chosen_by_a_key() -> None:
    first = load(text=f"create_namespace: true\n{EVERY}").components
    other = load(text="bucket: s3://bucket/hpq\ndataset: {}").components
    there = {path.name for path in (folder() / "components").iterdir()}
    # Each queue decides whether it is on spot nodes; only a label is needed for kueue.
    assert {*first, *other, "spot"} == there


def test_a_pods_grace_leaves_its_worker_time_for_a_last_word() -> None:
    assert read({"HPQ_POD_GRACE_S": "60"}).grace_s == 55
    assert read({"HPQ_POD_GRACE_S": "6"}).grace_s == 3
    assert read({"HPQ_POD_GRACE_S": "60", "HPQ_GRACE_S": "20"}).grace_s == 20
    assert read({}).grace_s == 12
    with raises("setting-invalid", "HPQ_GRACE_S=20", "at most 10"):
        read({"HPQ_POD_GRACE_S": "15", "HPQ_GRACE_S": "20"})


def test_every_object_has_the_recommended_labels_and_no_selector_has_a_new_one() -> None:
    label = "app.kubernetes.io/"
    shared = {"part-of": "hpq", "managed-by": "hpq", "version": __version__}
    objects = rendered(f"{TWO_QUEUES}\n{EVERY}")
    assert "Namespace" not in {o["kind"] for o in objects}
    selected = {
        tuple(o["spec"]["podSelector"]["matchLabels"].items())
        for o in objects
        if o["metadata"]["name"] == "hpq-deny-all"
    }
    assert selected == {((f"{label}part-of", "hpq"),)}
    for one in objects:
        labels = one["metadata"]["labels"]
        assert {key: labels.get(label + key) for key in shared} == shared, one
        spec = one.get("spec", {})
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        if "containers" in spec.get("template", {}).get("spec", {}):
            of_pod = spec["template"]["metadata"]["labels"]  # by which hpq-deny-all selects
            assert of_pod[f"{label}part-of"] == "hpq", one
        if one["kind"] in ("Deployment", "StatefulSet"):
            selector = one["spec"]["selector"]["matchLabels"]
            roles = {"hpq-redis": "redis", "hpq-dashboard": "dashboard"}
            assert selector.keys() <= {f"{label}name", f"{label}instance"}
            component = {f"{label}component": roles.get(one["metadata"]["name"], "worker")}
            pod_labels = one["spec"]["template"]["metadata"]["labels"]
            assert labels.items() >= component.items() and pod_labels.items() >= component.items()
            assert pod_labels.items() >= selector.items()


def test_a_pod_has_as_long_to_end_as_its_trials_are_given() -> None:
    pods = [p for _, p in workers_of(rendered(f"settings: {{HPQ_GRACE_S: 600.5}}\n{TWO_QUEUES}"))]
    assert [p["terminationGracePeriodSeconds"] for p in pods] == [606] * 2
    assert [env_of(p)["HPQ_POD_GRACE_S"] for p in pods] == ["606"] * 2
    queues = "queues: {default: {}, cheap: {spot: true}}"
    found = workers_of(rendered(f"settings: {{HPQ_GRACE_S: 10}}\n{queues}"))
    graces = [(p["terminationGracePeriodSeconds"], env_of(p)["HPQ_POD_GRACE_S"]) for _, p in found]
    assert graces == [(15, "15"), (15, "15")]
    assert ["affinity" in p for _, p in found] == [False, True]


def test_what_a_pod_asks_for_grows_with_its_gpus() -> None:
    def asked(queues: str) -> list[tuple[str, ...]]:
        found = []
        for _, pod in workers_of(rendered(f"queues: {{{queues}}}")):
            of = pod["containers"][0]["resources"]
            (shm,) = (v["emptyDir"] for v in pod["volumes"] if v["name"] == "shm")
            requests, limits = of["requests"], of["limits"]
            found.append((requests["cpu"], requests["memory"], limits["memory"]))
            found[-1] += (shm["sizeLimit"],)
            assert shm["medium"] == "Memory"
        return found

    of_one, of_none = ("2", "8Gi", "16Gi", "2Gi"), ("250m", "512Mi", "2Gi", "2Gi")
    given = "e: {gpus: 8, cpu: 24, memory: 96Gi, shm: 32Gi}, f: {gpus: 0, memory: 1Gi}"
    assert asked(f"default: {{}}, a: {{gpus: 1}}, b: {{gpus: 4}}, c: {{gpus: 0}}, {given}") == [
        of_one,
        of_one,
        ("8", "32Gi", "64Gi", "8Gi"),
        of_none,
        ("24", "96Gi", "96Gi", "32Gi"),
        ("250m", "1Gi", "1Gi", "2Gi"),
    ]
    assert asked("default: {gpus: 8}") == [("16", "64Gi", "128Gi", "16Gi")]
    assert asked("default: {gpus: 0}") == [of_none]


def test_without_gpus_no_pod_asks_for_one() -> None:
    assert "'nvidia.com/gpu':" not in str(rendered("queues: {default: {gpus: 0}}"))
    assert "'nvidia.com/gpu':" in str(rendered("queues: {default: {gpus: 8}}"))


def test_a_setting_wins_over_the_one_that_a_component_has() -> None:
    ours = {"HPQ_STORE": "/store/x", "HPQ_DATA": "/data/x"}
    objects = rendered(f"settings: {ours}\nstore: {{}}\ndataset: {{}}")
    (found,) = (o["data"] for o in objects if ours.keys() & o.get("data", {}).keys())
    assert found.items() >= ours.items()


def test_all_components_are_composed_for_each_class() -> None:
    found = by_name(
        rendered("""
            namespace: team
            image: ours/hpq:7
            queues: {main: {}, big: {gpus: 4, max_pods: 9}, small: {gpus: 0}}
            keda: {max_pods: 5}
            kueue: team-a
            nfs: nas:/data
            store: {}
            tls: true
            spot: true
            egress: true
            monitoring: true
            settings: {HPQ_LOG: debug}
        """)
    )
    (settings,) = (n for kind, n in found if kind == "ConfigMap" and n.startswith("hpq-settings"))
    (group,) = found["PrometheusRule", "hpq"]["spec"]["groups"]
    for rule in group["rules"]:
        of = set(re.findall(r'hpq_\w+(?:\{namespace="(\w*)")?', rule["expr"]))
        assert of == {"team"}, rule["expr"]
    amounts = [
        amount
        for one in found.values()
        for container in containers_of(one)
        for bounds in container.get("resources", {}).values()
        for amount in bounds.values()
    ]
    assert amounts and {type(amount) for amount in amounts} == {str}  # as the server keeps them
    for role in ("viewer", "operator", "member"):
        rules = found["Role", f"hpq-{role}"]["rules"]
        assert [r["verbs"] for r in rules if r["resources"] == ["scaledobjects"]] == [
            ["get", "list"]
        ]
    for queue, gpus in (("main", "1"), ("big", "4"), ("small", None)):
        deployment = found["Deployment", f"hpq-worker-{queue}"]
        assert deployment["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
        assert "replicas" not in deployment["spec"]
        pod = deployment["spec"]["template"]["spec"]
        (worker,) = pod["containers"]
        env = {e["name"]: e.get("value") for e in worker["env"]}
        assert env["HPQ_QUEUE"] == queue
        assert env["HPQ_IMAGE"] == worker["image"] == "ours/hpq:7"
        assert (env["HPQ_POD_GRACE_S"], pod["terminationGracePeriodSeconds"]) == ("15", 15)
        assert worker["resources"]["limits"].get("nvidia.com/gpu") == gpus
        assert worker["envFrom"][0]["configMapRef"]["name"] == settings
        scaler = found["ScaledObject", f"hpq-worker-{queue}"]["spec"]
        assert scaler["scaleTargetRef"]["name"] == f"hpq-worker-{queue}"
        (trigger,) = scaler["triggers"]
        assert trigger["metadata"]["listName"] == f"hpq:demand:{queue}"
        assert not {"address", "enableTLS"} & trigger["metadata"].keys()  # they are in the Secret
        assert scaler["maxReplicaCount"] == (9 if queue == "big" else 5)
    assert [kind for kind, name in found if name == "hpq-worker"] == ["ServiceAccount"]
    assert found["ConfigMap", settings]["data"]["HPQ_LOG"] == "debug"
    volume, claim = found["PersistentVolume", "hpq-nfs-team"], ("team", "hpq-nfs")
    assert volume["spec"]["nfs"]["server"] == "nas"
    assert (volume["spec"]["claimRef"]["namespace"], volume["spec"]["claimRef"]["name"]) == claim
    there = found["PersistentVolumeClaim", "hpq-nfs"]["spec"]
    assert there["volumeName"] == volume["metadata"]["name"]


def made_by() -> list[tuple[str, str, str]]:
    """The component, the kind and the name of each object that has a file of a component."""
    return [
        (path.parent.name, one["kind"], one["metadata"]["name"])
        for path in (folder() / "components").rglob("*.yaml")
        if path.name != "changes.yaml"
        for one in parsed(path.read_text("utf-8"))
    ]


def test_what_a_component_adds_goes_by_the_labels_and_kinds_that_the_page_names() -> None:
    def objects(text: str) -> dict[tuple[str, str], Yaml]:
        return {key: o for key, o in by_name(rendered(text)).items() if key[0] != "ConfigMap"}

    page = (ROOT / "docs" / "guides" / "kubernetes.md").read_text("utf-8")
    deletes = re.findall(r"delete ([a-z,]+) -l ((?:hpq|app)[^ `]*)=([a-z-]+)`", page)
    kinds = {(label, value): kind.split(",") for kind, label, value in deletes}
    plain, every, queues = objects("{}"), objects(EVERY), objects(f"{TWO_QUEUES}\n{EVERY}")
    others = objects("bucket: s3://bucket/hpq\ndataset: {}")
    made, marks = made_by(), set()
    components = {name for name, *_ in made}
    for key, one in [*every.items(), *others.items()]:
        mark = one["metadata"].get("labels", {}).get("app.kubernetes.io/component")
        assert (mark in components) == (key not in plain), key
        assert key[0] != "CronJob" or one["spec"]["schedule"] == "@daily"
        if key in plain:
            continue
        # A queue, and a namespace, is added to the name of a file's object.
        assert [mark] == [m for m, kind, name in made if kind == key[0] and key[1].startswith(name)]
        if key[0] != "PersistentVolume":
            assert key[0].lower() in kinds["app.kubernetes.io/component", mark], key
        marks.add(mark)
    assert marks == {mark for mark, *_ in made} - {"namespace"}
    added = {key: one for key, one in queues.items() if key not in every}
    assert len(added) == 3
    for key, one in added.items():
        label = "app.kubernetes.io/instance"
        assert one["metadata"]["labels"][label] == "hpq-worker-big", key
        listed = [*kinds[label, "hpq-worker-big"], *kinds["app.kubernetes.io/component", "keda"]]
        assert key[0].lower() in listed, key


def secrets_in(one: Any) -> Iterator[str]:
    """Yield the names of the Secrets that an object mounts or has in its environment."""
    if isinstance(one, dict):
        if "secretName" in one:
            yield one["secretName"]
        yield from [ref["name"] for ref in (one.get("secretKeyRef"), one.get("secretRef")) if ref]
    for below in one.values() if isinstance(one, dict) else one if isinstance(one, list) else ():
        yield from secrets_in(below)


def test_no_pod_but_a_workers_gets_a_password_that_may_write() -> None:
    """Those of the dashboard and of backups mount other ones."""
    writers = ("hpq-redis-worker", "hpq-redis-producer", "hpq-redis-admin", "hpq-code-key")
    found = {
        one["metadata"]["name"]: sorted(set(secrets_in(one)) & set(writers))
        for one in rendered(f"{TWO_QUEUES}\n{EVERY}")
        if one["kind"] in ("Deployment", "StatefulSet", "CronJob", "Job", "DaemonSet")
    }
    assert {"hpq-backup", "hpq-dashboard", "hpq-worker-big"} <= found.keys()
    assert {name for name, secrets in found.items() if secrets} <= {
        "hpq-worker-default", "hpq-worker", "hpq-worker-big",
    }, found  # fmt: skip


def test_new_passwords_reach_all_that_reads_them_by_the_label_that_the_page_names() -> None:
    page = (ROOT / "docs" / "guides" / "kubernetes.md").read_text("utf-8")
    label = "app.kubernetes.io/part-of=hpq"
    assert "kubectl replace --force -f -" in page
    assert f"rollout restart statefulset,deployment -l {label}" in page
    objects = rendered(f"{TWO_QUEUES}\ntls: true")
    read_them = [o for o in objects if o["kind"] in ("StatefulSet", "Deployment")]
    made = secret_objects("hpq", "hpq", "the-key")
    assert len(read_them) == 3
    for one in [*read_them, *made]:
        assert one["metadata"]["labels"]["app.kubernetes.io/part-of"] == "hpq"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"a": None, "b": {"c": None}}, {"b": {}, "env": [{"name": "x", "value": "1"}]}),
        ({"env": [{"name": "x", "value": "2"}]}, {"env": [{"name": "x", "value": "2"}]}),
        ({"env": [{"name": "y"}]}, {"env": [{"name": "x", "value": "1"}, {"name": "y"}]}),
        ({"tolerations": [{"key": "b"}]}, {"tolerations": [{"key": "a"}, {"key": "b"}]}),
        ({"args": ["z"]}, {"args": ["z"]}),
        ({"env": None}, {}),
    ],
)
def test_changes_are_merged_as_kubernetes_merges_them(changes: Yaml, expected: Yaml) -> None:
    old = {"a": 1, "env": [{"name": "x", "value": "1"}], "args": ["w"],
           "tolerations": [{"key": "a"}]}  # fmt: skip
    found = merge(old, changes)
    assert {key: found[key] for key in expected} == expected
    assert all(found.get(key) is None for key, value in changes.items() if value is None)
    assert old["args"] == ["w"] and old["env"] == [{"name": "x", "value": "1"}]


@pytest.mark.parametrize(
    "text", ["1e3", "0o17", "012", "yes", "y", "N", "null", "-", "=", "1_000", "a: b"]
)
def test_a_text_stays_one_for_a_reader_of_any_version_of_yaml(text: str) -> None:
    printed = to_yaml([{"value": text}]).removeprefix("value: ").strip()
    assert printed[0] in "'\"" and yaml.safe_load(printed) == text
