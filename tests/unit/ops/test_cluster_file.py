"""cluster.yaml: what is accepted, what is refused in which words, and what becomes of each key."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from hpq.errors import UserError
from hpq_ops.manifests.cluster_file import (
    SCHEMA_FILE,
    BackupKeys,
    ClaimKeys,
    ClusterFile,
    DashboardKeys,
    KedaKeys,
    LimitKeys,
    QueueKeys,
    RedisKeys,
    load,
)
from hpq_ops.manifests.objects import folder
from hpq_producer.cli import app
from tests.support.constants import ROOT
from tests.support.ids import ids
from tests.support.manifests import by_name, rendered
from tests.support.sweep_files import CLUSTER_PAGES

VALIDATOR = jsonschema.Draft7Validator(json.loads(SCHEMA_FILE.read_text("utf-8")))


def manifests(*words: str, given: str = "") -> Result:
    return CliRunner().invoke(app, ["manifests", *words], input=given)


def queue(text: str) -> str:
    return f"queues: {{a: {{{text}}}}}"


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("imge: x", "unknown-key", "1:1: imge: unknown key; did you mean 'image'"),
        (queue("nodeSelector: {a: b}"), "unknown-key", "did you mean 'node_selector'"),
        ("redis:\n  memry: 2Gi", "unknown-key", "2:3: redis.memry"),
        ("queues: {Big: {}}", "invalid-value", "1 to 52"),
        (f"queues: {{{'b' * 53}: {{}}}}", "invalid-value", "1 to 52"),
        ("queues: {a: {}, a: {}}", "cluster-file-invalid", "1:17: duplicate key"),
        ("queues: {}", "invalid-value", "empty"),
        ("queues: {a: 4}", "invalid-value", "is not a mapping"),
        (queue("gpus: 65"), "invalid-value", "from 0 to 64"),
        (queue("gpus: 0, gpu_resource: amd.com/gpu"), "conflicting-keys", "gpus: 0"),
        (queue("gpus: 2, gpus_per_trial: 4"), "invalid-value", "a pod has 2"),
        (queue("gpu_resource: a100"), "invalid-value", "nvidia.com/gpu"),
        (queue("memory: 64"), "invalid-value", "64Gi"),
        (queue("shm: 64GB"), "invalid-value", "64Gi"),
        (queue("memory: 4Gi, shm: 8Gi"), "invalid-value", "part of memory"),
        (queue("cpu: lots"), "invalid-value", "500m"),
        (queue("cpu_limit: 0"), "invalid-value", "500m"),
        (queue("cpu: 1, cpu_limit: 500m"), "invalid-value", "at most that"),
        (queue("node_selector: {a: true}"), "invalid-value", "quotes"),
        (queue("node_selector: {a b: x}"), "invalid-value", "label of nodes"),
        (queue("tolerations: {key: a}"), "invalid-value", "is not a list"),
        (queue("max_pods: 3"), "missing-key", "keda"),
        (
            queue("spot: true, affinity: {nodeAffinity: "
                  "{requiredDuringSchedulingIgnoredDuringExecution: {}}}"),
            "conflicting-keys", "node_selector",
        ),
        (queue("pod: {containers: 3}"), "invalid-value", "containers is not a list"),
        (queue("pod: {volumes: [{name: [s]}]}"), "invalid-value", "volumes is not a list"),
        (queue("pod: {volumes: [a]}"), "invalid-value", "volumes is not a list"),
        (
            queue("pod: {containers: [{name: worker, env: {A: b}}]}"),
            "invalid-value", "containers[0].env",
        ),
        ("image: a\nwith: [tls]", "unknown-key", "2:1: with: unknown key; allowed: image"),
        ("image: a\nsecrets: true", "unknown-key", "use --secrets"),
        ("image: a\ntsl: true", "unknown-key", "did you mean 'tls'"),
        ("monitorng: true", "unknown-key", "did you mean 'monitoring'"),
        ("keda: {max_pod: 3}", "unknown-key", "did you mean 'max_pods'"),
        ("keda: {max_pods: 0}", "invalid-value", "from 1 to 9,999"),
        ("keda: 8", "invalid-value", "{max_pods: 8}"),
        ("tls: 3", "invalid-value", "true or false"),
        ("create_namespace: ours", "invalid-value", "true or false"),
        ("nfs: server", "invalid-value", "SERVER:/PATH"),
        ("kueue: Team", "invalid-value", "a-z"),
        ("nfs: nas:/x\ndataset: {}", "conflicting-keys", "nfs and dataset"),
        ("store: {}\nbucket: s3://a/b", "conflicting-keys", "bucket and store"),
        ("bucket: s3://a/b\nsettings: {HPQ_STORE: /x}", "conflicting-keys", "2:12: settings"),
        ("store: {}\nsettings: {HPQ_STORE: 's3://a/b'}", "conflicting-keys", "2:12: settings"),
        ("bucket: /store", "invalid-value", "s3://BUCKET/PATH"),
        ("bucket: s3://me:hidden@host/bucket", "setting-secret", "ConfigMap"),
        ("backup: {}", "missing-key", "add store"),
        ("store: {}\nbackup: {schedule: daily}", "invalid-value", "@daily"),
        ("dashboard: {host: 'https://hpq.example.org'}", "invalid-value", "browsers"),
        ("dashboard: {host: 'a:80'}", "invalid-value", "browsers"),
        ("spot: true\nsettings: {HPQ_GRACE_S: 11}", "setting-invalid", "at most 10"),
        ("namespace: A", "invalid-value", "a-z"),
        ("limits: {ana: {priority: 1001}}", "invalid-value", "1,000"),
        ("limits: {ana: {hours: 1}}", "unknown-key", "gpu_hours"),
        ("limits: {'a\"b': {running: 1}}", "invalid-value", "owner"),
        ("redis: {storage: big}", "invalid-value", "64Gi"),
        ("store: {storage_class: A_b}", "invalid-value", "name of an object"),
        ("- a", "cluster-file-invalid", "--example"),
        ("", "cluster-file-invalid", "empty"),
        ("a: [", "cluster-file-invalid", "not YAML"),
    ],
)  # fmt: skip
def test_a_file_that_is_wrong_is_refused_with_its_line(text: str, code: str, words: str) -> None:
    done = manifests("-f", "-", given=text)
    assert (done.exit_code, ids(done.stderr)) == (2, [code]), done.stderr
    assert re.match(r"hpq: stdin:\d+:\d+: ", done.stderr) and words in done.stderr, done.stderr
    assert not done.stdout and "hidden" not in done.output


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("HPQ_CODE_KEY: abc", "setting-secret", "`hpq manifests --secrets`"),
        ("HPQ_STORE: 's3://me:hidden@host/bucket'", "setting-secret", "ConfigMap"),
        ("LOG: debug", "setting-unknown", "write HPQ_NAME"),
        ("HPQ_LEASE_S: soon", "setting-invalid", "use seconds"),
        ("HPQ_NOPE: 1", "setting-unknown", "HPQ_NOPE"),
        ("HPQ_QUEUE: foo", "setting-fixed", "use queues"),
        ("HPQ_IMAGE: 'a:1'", "setting-fixed", "use image"),
        ("HPQ_CPUS: 4", "setting-fixed", "use cpu"),
        ("HPQ_POD_GRACE_S: 600", "setting-fixed", "use HPQ_GRACE_S"),
        ("HPQ_NODE: n", "setting-fixed", "HPQ_NODE"),
        ("HPQ_PORT: 9200", "setting-fixed", "9108"),
    ],
)
def test_a_setting_that_is_secret_or_no_worker_could_use_is_refused(
    text: str, code: str, words: str
) -> None:
    done = manifests("-", given=f"settings: {{{text}}}")
    assert (done.exit_code, ids(done.stderr)) == (2, [code]) and words in done.stderr
    place = f"stdin:1:12: settings.{text.partition(':')[0]}: "
    assert "hidden" not in done.output and place in done.stderr


def test_every_variable_that_the_deployment_sets_is_refused_as_a_setting() -> None:
    text = (folder() / "worker/deployment.yaml").read_text("utf-8")
    (container,) = yaml.safe_load(text)["spec"]["template"]["spec"]["containers"]
    for one in container["env"]:
        done = manifests("-", given=f"settings: {{{one['name']}: 1}}")
        assert ids(done.stderr)[0] in ("setting-fixed", "setting-secret"), one


def test_one_reading_reports_every_problem_in_the_order_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("imge: a\nqueues:\n  a: {gpus: -1}\nkeda: 8\n")
    done = manifests(str(path), "--gpus", "70")
    assert ids(done.stderr) == ["invalid-value", "unknown-key", "invalid-value", "invalid-value"]
    assert done.stderr.startswith("hpq: --gpus 70: queues.default.gpus: ")
    assert f"{path}:3:7: queues.a.gpus: " in done.stderr
    assert ids(manifests("-f", str(tmp_path / "nope.yaml")).stderr) == ["file-not-found"]


def test_a_flag_sets_its_key_over_that_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("image: a:1\nnamespace: ours\nqueues: {default: {gpus: 4}, b: {}}\n")
    flags = ("--image", "b:2", "--namespace", "team", "--gpus", "0", "--create-namespace")
    same = (
        "image: b:2\nnamespace: team\ncreate_namespace: true\nqueues: {default: {gpus: 0}, b: {}}"
    )
    done = manifests(str(path), *flags)
    assert done.exit_code == 0 and done.stdout == manifests("-", given=same).stdout
    assert done.stdout == manifests("-f", str(path), *flags).stdout
    assert ids(manifests(str(path), "-f", str(path)).stderr) == ["usage"]


def test_the_example_has_every_key_and_is_valid() -> None:
    done = manifests("--example")
    assert done.exit_code == 0 and done.stdout.startswith("# yaml-language-server: $schema=file:")
    # Two keys exclude others, so they stand in comments.
    data = yaml.safe_load(re.sub("(?m)^# (?=bucket: |nfs: )", "", done.stdout))
    load(text=done.stdout)
    VALIDATOR.validate(data)
    for model, keys in (
        (ClusterFile, data),
        (QueueKeys, data["queues"]["a100x4"]),
        (RedisKeys, data["redis"]),
        (ClaimKeys, data["store"]),
        (KedaKeys, data["keda"]),
        (BackupKeys, data["backup"]),
        (DashboardKeys, data["dashboard"]),
        (LimitKeys, data["limits"]["ana"]),
    ):
        assert model.model_fields.keys() == keys.keys(), model
    for key, other in (("bucket", "store"), ("nfs", "dataset")):
        done = manifests("-", given=f"{other}: {{}}\n{key}: {data[key]}")
        assert ids(done.stderr) == ["conflicting-keys"]


def test_the_cluster_files_of_the_docs_are_valid() -> None:
    pages = [(ROOT / f"docs/guides/{name}.md").read_text("utf-8") for name in CLUSTER_PAGES]
    blocks = [text for page in pages for text in re.findall(r"(?ms)^```yaml\n(.*?)^```$", page)]
    files = [text for text in blocks if "apiVersion" not in text]
    for text in files:
        load(text=text)
    assert len(files) > 5


@pytest.mark.parametrize(
    ("text", "is_accepted"),
    [
        ("imge: x", False),
        (queue("gpus: 65"), False),
        (queue("memory: 64"), False),
        (queue("cpu: 2.5"), True),
        ("keda: {}\nnfs: nas:/x\ntls: true\nstore: {}\nbackup: {schedule: 0 3 * * 1-5}", True),
        ("bucket: s3://a/b\ndashboard: {}\nkueue: a\ncreate_namespace: false", True),
        ("tls: 3", False),
        ("backup: {schedule: now}", False),
        ("with: [tls]", False),
        ("queues: {Big: {}}", False),
    ],
)
def test_the_schema_for_editors_says_the_same_as_the_model(text: str, is_accepted: bool) -> None:
    assert VALIDATOR.is_valid(yaml.safe_load(text)) == is_accepted
    with contextlib.nullcontext() if is_accepted else pytest.raises(UserError):
        load(text=text)


def test_each_key_of_a_queue_is_in_its_pod_and_in_no_other() -> None:
    found = by_name(rendered(manifests("--example").stdout))
    pod = found["Deployment", "hpq-worker-a100x4"]["spec"]["template"]["spec"]
    (worker,) = pod["containers"]
    amounts = {"cpu": "16", "memory": "128Gi", "ephemeral-storage": "50Gi", "nvidia.com/gpu": "4"}
    assert worker["resources"] == {"requests": amounts, "limits": {**amounts, "cpu": "32"}}
    assert pod["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
    assert (pod["priorityClassName"], pod["runtimeClassName"]) == ("batch", "nvidia")
    keys = [one["key"] for one in pod["tolerations"]]
    assert {"nvidia.com/gpu", "team", "cloud.google.com/gke-spot"} <= set(keys)
    affinity = pod["affinity"]["nodeAffinity"]
    assert len(affinity) == 2  # the file's, and that of spot nodes
    sizes = {v["name"]: v["emptyDir"]["sizeLimit"] for v in pod["volumes"] if "emptyDir" in v}
    assert sizes == {"cache": "50Gi", "shm": "16Gi"}
    other = found["Deployment", "hpq-worker"]["spec"]["template"]["spec"]
    assert not other.keys() & {"nodeSelector", "affinity", "priorityClassName", "runtimeClassName"}
    assert found["ScaledObject", "hpq-worker-a100x4"]["spec"]["maxReplicaCount"] == 8
    assert found["ScaledObject", "hpq-worker"]["spec"]["maxReplicaCount"] == 4
    (claim,) = found["StatefulSet", "hpq-redis"]["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"] == {"storage": "20Gi"}
    assert claim["spec"]["storageClassName"] == "standard"
    (server,) = found["StatefulSet", "hpq-redis"]["spec"]["template"]["spec"]["containers"]
    assert server["resources"] == {
        "requests": {"cpu": "250m", "memory": "2Gi"},
        "limits": {"cpu": "2", "memory": "2Gi"},
    }
    (conf,) = (o["data"]["redis.conf"] for (_, n), o in found.items() if "redis-conf" in n)
    assert f"\nmaxmemory {3 * 2**29}\n" in conf and "\nappendonly yes\n" in conf
    for name, size in (("hpq-store", "200Gi"), ("hpq-dataset", "500Gi")):
        spec = found["PersistentVolumeClaim", name]["spec"]
        assert (spec["resources"]["requests"]["storage"], spec["storageClassName"]) == (size, "nfs")


def test_a_pod_asks_for_the_named_resource_alone() -> None:
    slices = "nvidia.com/mig-1g.10gb"
    objects = rendered(queue(f"gpu_resource: {slices}, gpus: 2, gpus_per_trial: 1"))
    (deployment,) = (o for o in objects if o["kind"] == "Deployment")
    (worker,) = deployment["spec"]["template"]["spec"]["containers"]
    limits = worker["resources"]["limits"]
    assert limits[slices] == "2" and "nvidia.com/gpu" not in limits
    assert {"name": "HPQ_GPUS_PER_TRIAL", "value": "1"} in worker["env"]


def test_a_pod_asks_for_no_more_cpus_than_its_limit() -> None:
    limits = {"a": ("1", "1"), "b": ("1500m", "1500m"), "c": ("8", "4")}
    queues = {name: {"gpus": 2, "cpu_limit": limit} for name, (limit, _) in limits.items()}
    found = by_name(rendered(f"queues: {queues}"))
    for name, (limit, asked) in limits.items():
        (worker,) = found["Deployment", f"hpq-worker-{name}"]["spec"]["template"]["spec"][
            "containers"
        ]
        amounts = worker["resources"]
        assert (amounts["requests"]["cpu"], amounts["limits"]["cpu"]) == (asked, limit)


def test_a_quota_on_cpus_takes_the_pods_of_every_component() -> None:
    text = (
        f"{queue('gpus: 0, cpu_limit: 1')}\nredis: {{cpu_limit: 1}}\nstore: {{}}\n"
        "backup: {}\nmonitoring: true"
    )
    seen = []
    for one in rendered(text):
        spec = one.get("spec", {})
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        for container in spec.get("template", {}).get("spec", {}).get("containers", ()):
            seen.append(container["name"])
            assert "cpu" in container["resources"]["limits"], container["name"]
    assert sorted(seen) == ["backup", "dashboard", "redis", "worker"]


def test_fields_of_a_pod_are_merged_into_the_pods() -> None:
    fields = """{
        nodeSelector: {env: prod, configMap: a}, securityContext: {fsGroup: null},
        containers: [{name: worker, env: [{name: A, value: '1e3'}],
                      volumeMounts: [{name: s, mountPath: /s}]}, {name: side, image: redis,
                      envFrom: [{configMapRef: {name: hpq-settings}}]}],
        volumes: [{name: s, emptyDir: {}}], tolerations: [{key: team}]}"""
    ((_, pod),) = [
        (key, o["spec"]["template"]["spec"])
        for key, o in by_name(rendered(queue(f"pod: {fields}"))).items()
        if key[0] == "Deployment"
    ]
    worker, side = pod["containers"]
    assert {"name": "A", "value": "1e3"} in worker["env"] and len(worker["env"]) > 3
    assert {"/s", "/cache"} <= {mount["mountPath"] for mount in worker["volumeMounts"]}
    assert side["envFrom"] == worker["envFrom"] != [{"configMapRef": {"name": "hpq-settings"}}]
    assert side["image"] == "redis" and pod["nodeSelector"] == {"env": "prod", "configMap": "a"}
    assert "fsGroup" not in pod["securityContext"] and pod["securityContext"]["runAsNonRoot"]
    assert {"nvidia.com/gpu", "team"} <= {one["key"] for one in pod["tolerations"]}


def test_a_file_without_the_queue_default_runs_only_its_own_queues() -> None:
    objects = rendered(f"{queue('gpus: 1')}\nkeda: {{}}")
    kinds = ("Deployment", "PodDisruptionBudget", "ScaledObject")
    found = [(o["kind"], o["metadata"]["name"]) for o in objects]
    assert [one for one in found if one[0] in kinds and one[1] != "hpq-redis"] == [
        (kind, "hpq-worker-a") for kind in kinds
    ]
    (rule,) = [
        rule
        for rule in by_name(objects)["Role", "hpq-operator"]["rules"]
        if rule["resources"] == ["deployments/scale"]
    ]
    assert rule["resourceNames"] == ["hpq-worker-a"]


def test_the_gpus_of_a_pod_are_one_trials_unless_a_setting_splits_them() -> None:
    def per_trial(settings: str) -> list[Any]:
        objects = rendered(f"{queue('gpus: 8')}\nsettings: {settings}")
        (one,) = (o for o in objects if o["kind"] == "Deployment")
        env = one["spec"]["template"]["spec"]["containers"][0]["env"]
        return [e["value"] for e in env if e["name"] == "HPQ_GPUS_PER_TRIAL"]

    assert (per_trial("{}"), per_trial("{HPQ_GPUS_PER_TRIAL: 4}")) == (["8"], [])


@pytest.mark.parametrize(
    ("keys", "given"),
    [
        ("gpus: 1", ["nvidia.com/gpu=1"]),
        ("gpu_resource: amd.com/gpu, gpus: 2", ["amd.com/gpu=2"]),
        ("gpus: 0", []),
    ],
)
def test_a_pods_worker_is_told_the_gpus_that_it_must_see(keys: str, given: list[str]) -> None:
    (one,) = (o for o in rendered(queue(keys)) if o["kind"] == "Deployment")
    env = one["spec"]["template"]["spec"]["containers"][0]["env"]
    assert [e["value"] for e in env if e["name"] == "HPQ_POD_GPUS"] == given


@pytest.mark.parametrize(
    ("keys", "given"),
    [
        ("gpus: 0", [str(20 << 30)]),
        ("gpus: 0, ephemeral_storage: 1500M", ["1500000000"]),
        ("pod: {volumes: [{name: cache, emptyDir: {sizeLimit: 2Gi}}]}", [str(2 << 30)]),
        ("pod: {volumes: [{name: cache, emptyDir: null, hostPath: {path: /scratch}}]}", []),
    ],
)
def test_a_pods_worker_is_told_how_full_its_cache_may_be(keys: str, given: list[str]) -> None:
    (one,) = (o for o in rendered(queue(keys)) if o["kind"] == "Deployment")
    env = one["spec"]["template"]["spec"]["containers"][0]["env"]
    assert [e["value"] for e in env if e["name"] == "HPQ_CACHE_BYTES"] == given


def test_secrets_are_of_the_namespace_and_the_keys_of_the_file() -> None:
    done = manifests("-", "--secrets", given="namespace: team\n")
    found = {o["metadata"]["name"]: o for o in yaml.safe_load_all(done.stdout)}
    assert {o["metadata"]["namespace"] for o in found.values()} == {"team"}
    of_keda = found["hpq-redis-autoscaler"]["stringData"]
    assert (of_keda["address"], of_keda["tls"]) == ("hpq-redis.team.svc:6379", "disable")


def test_each_service_is_placed_by_its_pod_and_keeps_its_own_fields() -> None:
    place = "pod: {nodeSelector: {pool: services}, tolerations: [{key: team, operator: Exists}]}"
    services = f"dashboard: {{{place}}}\nstore: {{}}\nbackup: {{{place}}}\n"
    keys = f"redis: {{{place}, memory: 2Gi}}\n{services}"
    objects = {(o["kind"], o["metadata"]["name"]): o for o in rendered(keys)}
    plain = {
        (o["kind"], o["metadata"]["name"]): o
        for o in rendered("dashboard: {}\nstore: {}\nbackup: {}\n")
    }
    for name in ("StatefulSet", "hpq-redis"), ("Deployment", "hpq-dashboard"):
        spec = objects[name]["spec"]["template"]["spec"]
        assert spec["nodeSelector"] == {"pool": "services"}
        assert {"key": "team", "operator": "Exists"} in spec["tolerations"]
        assert set(plain[name]["spec"]["template"]["spec"]) <= set(spec)
    job = objects["CronJob", "hpq-backup"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert job["nodeSelector"] == {"pool": "services"} and job["containers"][0]["name"] == "backup"
    (redis,) = objects["StatefulSet", "hpq-redis"]["spec"]["template"]["spec"]["containers"]
    assert redis["resources"]["limits"]["memory"] == "2Gi"
    assert "nodeSelector" not in objects["Deployment", "hpq-worker"]["spec"]["template"]["spec"]
