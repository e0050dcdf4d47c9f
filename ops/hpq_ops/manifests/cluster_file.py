"""The model of an installation, cluster.yaml: what `hpq manifests` renders, each key once.

`load` reads the file and the flags of the command into one model: a flag sets its key.
`make reference` writes cluster.schema.json from the model, for editors. What Kubernetes defines
(tolerations, affinity, pod) passes unchanged, and the API server checks it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field

from hpq.domain.owner import RANGES
from hpq.domain.trial import Json
from hpq.error_codes import Code
from hpq.errors import SweepFileError, UserError
from hpq.settings import LAST_WORDS_S
from hpq.yamlfile.document import apply, flag_override, known_document, read
from hpq.yamlfile.problems import KeyPath, Problems
from hpq.yamlfile.strict_model import (
    Absent,
    FileSchema,
    Flag,
    Keys,
    NotEmpty,
    Number,
    Queue,
    Text,
    Whole,
    check,
)
from hpq_ops.manifests.key_types import (
    Bucket,
    Cpus,
    Export,
    Host,
    LabelKey,
    LabelValue,
    ObjectName,
    OwnerName,
    PodFields,
    QueueName,
    Resource,
    Schedule,
    Settings,
    Size,
    cpus,
    size_bytes,
)

SCHEMA_FILE = Path(__file__).with_name("cluster.schema.json")  # `make reference` writes it
IMAGE = "hpq-worker:dev"  # the default
DEFAULT = "default"  # the queue of the Deployment hpq-worker
GPU = "nvidia.com/gpu"
_INVALID: Code = "cluster-file-invalid"
_NO_CLUSTER = "not a cluster file; `hpq manifests --example` prints one with every key"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
SPOT_S = 15  # what GKE leaves an ordinary pod
Flags = dict[tuple[str, ...], tuple[str, Json]]  # path of the key → flag, value


class QueueKeys(Keys):
    """The pods of a queue's workers."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"gpus": 4}]})
    gpus: Whole = Field(1, ge=0, le=64, description="GPUs of a pod; 0 for none.")
    gpus_per_trial: Absent[Whole] = Field(
        None, ge=1, le=64, description="GPUs of a trial; all of the pod by default."
    )
    gpu_resource: Resource = Field(
        GPU, description="Resource of the GPUs, e.g. nvidia.com/mig-1g.10gb or amd.com/gpu."
    )
    node_selector: Absent[NotEmpty[dict[LabelKey, LabelValue]]] = Field(
        None,
        description="Labels that the pod's node must have.",
        examples=[{"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}],
    )
    tolerations: tuple[dict[str, Any], ...] = Field(
        (),
        min_length=1,
        description="Kubernetes' tolerations, besides those of hpq.",
        examples=[[{"key": "team", "operator": "Equal", "value": "vision"}]],
    )
    affinity: Absent[NotEmpty[dict[str, Any]]] = Field(
        None, description="Kubernetes' affinity.", examples=[{"nodeAffinity": {}}]
    )
    priority_class: Absent[ObjectName] = Field(None, description="PriorityClass of the pods.")
    spot: Flag = Field(False, description="Run on spot nodes only.")
    max_pods: Absent[Whole] = Field(
        None, ge=1, le=9999, description="The most pods that KEDA starts, instead of keda.max_pods."
    )
    cpu: Absent[Cpus] = Field(None, description="CPUs of a pod; 2 per GPU by default.")
    cpu_limit: Absent[Cpus] = Field(
        None, description="Limit of CPUs, which a quota on limits.cpu requires; none by default."
    )
    memory: Absent[Size] = Field(
        None, description="Memory of a pod; by default 8Gi per GPU, and at most 16Gi per GPU."
    )
    ephemeral_storage: Absent[Size] = Field(
        None, description="Disk of a pod, and of its /cache; by default /cache has 20Gi."
    )
    shm: Absent[Size] = Field(
        None, description="Size of /dev/shm, a part of the memory; 2Gi per GPU by default."
    )
    pod: Absent[NotEmpty[PodFields]] = Field(
        None,
        description="Any other fields of Kubernetes' PodSpec, merged into the pod's.",
        examples=[{"runtimeClassName": "nvidia"}],
    )


_PLACE = {"nodeSelector": {"pool": "services"}}
ServicePod = Annotated[
    Absent[NotEmpty[PodFields]],
    Field(
        description="Fields of Kubernetes' PodSpec, such as where it runs, merged into the pod's.",
        examples=[_PLACE],
    ),
]


class RedisKeys(Keys):
    """The Redis server."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"storage": "20Gi"}]})
    image: Absent[Text] = Field(None, description="Image of Redis; redis:7 of Docker's registry.")
    cpu_limit: Absent[Cpus] = Field(None, description="Limit of CPUs; none by default.")
    memory: Absent[Size] = Field(
        None, description="Memory of the pod, 1Gi by default; the data may use three quarters."
    )
    storage: Absent[Size] = Field(
        None, description="Size of the data's claim, 5Gi by default. Fixed after the first apply."
    )
    storage_class: Absent[ObjectName] = Field(
        None, description="StorageClass of the data's claim. Fixed after the first apply."
    )
    pod: ServicePod = None


class ClaimKeys(Keys):
    """A volume claim that all pods share."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"size": "200Gi"}]})
    size: Size = Field("20Gi", description="Size of the claim.")
    storage_class: Absent[ObjectName] = Field(
        None, description="StorageClass, with ReadWriteMany. Fixed after the first apply."
    )


class KedaKeys(Keys):
    """KEDA scales the workers of each queue from 0 to max_pods, by its demand."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"max_pods": 8}]})
    max_pods: Whole = Field(8, ge=1, le=9999, description="The most pods of a queue.")


class BackupKeys(Keys):
    """A CronJob writes a copy of Redis to the volume of store."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"schedule": "@daily"}]})
    schedule: Schedule = Field(
        "@daily", description="When the Job runs, as a schedule of cron.", examples=["0 3 * * *"]
    )
    keep: Whole = Field(14, ge=1, le=9999, description="How many copies stay: the newest ones.")
    pod: ServicePod = None


class DashboardKeys(Keys):
    """A pod with read-only pages and the metrics of all queues."""

    model_config = ConfigDict(json_schema_extra={"examples": [{}, {"host": "hpq.example.org"}]})
    host: Absent[Host] = Field(
        None,
        description="Host name of an Ingress for the pages; without it, kubectl port-forward.",
    )
    pod: ServicePod = None


def _limit(key: str, description: str) -> Any:
    least, most = RANGES[key]
    return Field(None, ge=least, le=most, description=description)


class LimitKeys(Keys):
    """What an owner of sweeps may have, as `hpq user --limit` sets it."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"priority": 10}]})
    running: Absent[Whole] = _limit("running", "Trials at a time.")
    gpu_hours: Absent[Number] = _limit("gpu_hours", "GPU-hours in all.")
    priority: Absent[Whole] = _limit("priority", "The greatest priority of a sweep.")


class ClusterFile(Keys):
    """What runs on a cluster."""

    aliases: ClassVar[Mapping[str, str]] = {"env": "settings"}
    rejected: ClassVar[Mapping[str, tuple[Code, str]]] = {
        "secrets": ("unknown-key", "no key, since each call makes new passwords; use --secrets")
    }
    image: Text = Field("", description="Image of the workers.")
    namespace: Queue = Field("hpq", description="Namespace of all objects.")
    create_namespace: Flag = Field(
        False, description="Print the Namespace, too. It restricts all its pods, so for hpq alone."
    )
    queues: NotEmpty[dict[QueueName, QueueKeys]] = Field(
        default_factory=lambda: {DEFAULT: QueueKeys.model_validate({})},
        description="The workers of each queue; the queue default if there is no key.",
        examples=[{DEFAULT: {"gpus": 1}}],
        json_schema_extra={"additionalProperties": False},
    )
    spot: Flag = Field(False, description="All queues run on spot nodes only.")
    kueue: Absent[Queue] = Field(
        None, description="LocalQueue of Kueue in which pods wait for quota.", examples=["team-a"]
    )
    keda: Absent[KedaKeys] = Field(
        None, description="KEDA scales the workers of each queue from 0 to max_pods, by its demand."
    )
    redis: RedisKeys = Field(
        default_factory=lambda: RedisKeys.model_validate({}), description="The Redis server."
    )
    tls: Flag = Field(False, description="Redis accepts TLS only.")
    egress: Flag = Field(False, description="Workers may reach port 443 of any host.")
    store: Absent[ClaimKeys] = Field(
        None, description="A claim for checkpoints and artifacts, which all pods share."
    )
    bucket: Absent[Bucket] = Field(
        None,
        description="URL of object storage for checkpoints and artifacts, instead of store.",
        examples=["s3://BUCKET/PATH"],
    )
    backup: Absent[BackupKeys] = Field(
        None, description="A CronJob that writes a copy of Redis to the volume of store."
    )
    dataset: Absent[ClaimKeys] = Field(
        None, description="A claim for data sets, read-only at /data, which is HPQ_DATA."
    )
    nfs: Absent[Export] = Field(
        None,
        description="NFS export with data sets, as SERVER:/PATH, instead of dataset.",
        examples=["nas:/datasets"],
    )
    dashboard: Absent[DashboardKeys] = Field(
        None, description="A pod with read-only pages and the metrics of all queues."
    )
    monitoring: Flag = Field(
        False, description="The dashboard, and what Prometheus and Grafana need."
    )
    limits: NotEmpty[dict[OwnerName, LimitKeys]] = Field(
        {},
        description="Limits of owners of sweeps, set whenever Redis starts; '*' is all others.",
        examples=[{"*": {"priority": 10}, "ana": {"running": 8}}],
        json_schema_extra={"additionalProperties": False},
    )
    settings: Settings = Field(
        {}, description="Settings of the workers.", examples=[{"HPQ_GRACE_S": 60}]
    )

    @property
    def components(self) -> list[str]:
        """The directories of k8s/components that the keys choose."""
        is_chosen = {
            "backup": self.backup is not None,
            "bucket": self.bucket is not None,
            # The alerts ask for the metrics of the dashboard's pod.
            "dashboard": self.dashboard is not None or self.monitoring,
            "dataset": self.dataset is not None,
            "egress": self.egress,
            "keda": self.keda is not None,
            "monitoring": self.monitoring,
            "namespace": self.create_namespace,
            "nfs": self.nfs is not None,
            "store": self.store is not None,
            "tls": self.tls,
        }
        return [name for name, chosen in is_chosen.items() if chosen]

    @property
    def workers_image(self) -> str:
        """The image of the workers, which the nodes must have if the file names none."""
        return self.image or IMAGE

    @property
    def prefix(self) -> str:
        """The prefix of the keys in Redis, and of the names of its users."""
        return self.settings.get("HPQ_PREFIX", "hpq")

    def is_spot(self, queue: str) -> bool:
        """Return whether a queue's pods run on spot nodes."""
        return self.queues[queue].spot or self.spot

    def pod_grace(self, queue: str) -> int | None:
        """Return terminationGracePeriodSeconds of a queue's pods; None: as in k8s/worker."""
        grace = self.settings.get("HPQ_GRACE_S")
        if self.is_spot(queue) or not grace:
            return None
        return math.ceil(float(grace) + LAST_WORDS_S)


def load(
    path: Path | None = None,
    *,
    text: str | None = None,
    flags: Flags | None = None,
) -> ClusterFile:
    """Read a cluster file, or the text of one, and the command's flags.

    `flags` sets the value of each path.

    Raises:
        UserError: the file or a flag is invalid; one line per problem.
    """
    name = str(path or "stdin")
    try:
        content = read(path) if path else text
        content = "{}" if content is None else content
        known = list(ClusterFile.model_fields)
        document = known_document(content, name, known, _NO_CLUSTER, code=_INVALID)
    except SweepFileError as error:
        if error.code not in ("sweep-file-invalid", _INVALID):
            raise
        raise UserError(str(error), code=_INVALID) from None
    overrides = [flag_override(label, key, value) for key, (label, value) in (flags or {}).items()]
    document = apply(document, overrides)
    out = Problems(document.source_map)
    found = check(ClusterFile, document.data, (), out)
    if found is not None:
        _check_together(found, out)
    out.raise_errors()
    assert found is not None
    return found


def _check_together(file: ClusterFile, out: Problems) -> None:
    """Report keys that exclude or need each other."""
    if file.dataset is not None and file.nfs is not None:
        out.add_conflict(("nfs",), "nfs and dataset exclude each other; choose one")
    if file.store is not None and file.bucket is not None:
        out.add_conflict(("bucket",), "bucket and store exclude each other; choose one")
    if file.bucket is not None and "HPQ_STORE" in file.settings:
        out.add_conflict(("settings", "HPQ_STORE"), "bucket sets it; remove one")
    store = str(file.settings.get("HPQ_STORE", "/store"))
    if file.store is not None and not f"{store}/".startswith("/store/"):
        what = "store mounts a volume at /store; name a directory there, or remove store"
        out.add_conflict(("settings", "HPQ_STORE"), what)
    if file.backup is not None and file.store is None:
        out.add_missing(("backup",), "needs a volume to write to; add store: {}")
    for queue, keys in file.queues.items():
        _check_queue(file, keys, ("queues", queue), file.is_spot(queue), out)


def _check_queue(
    file: ClusterFile, keys: QueueKeys, place: KeyPath, is_spot: bool, out: Problems
) -> None:
    """Report the keys of a queue that exclude or need others."""
    grace = float(file.settings.get("HPQ_GRACE_S") or 0)
    if is_spot and grace + LAST_WORDS_S > SPOT_S:
        what = (
            f"a spot pod has {SPOT_S} s to end, and its worker needs {LAST_WORDS_S:g} s of them;"
            f" write at most {SPOT_S - LAST_WORDS_S:g}"
        )
        out.add(("settings", "HPQ_GRACE_S"), what, code="setting-invalid")
    if keys.gpu_resource != GPU and not keys.gpus:
        out.add_conflict((*place, "gpu_resource"), "excludes gpus: 0; remove one")
    if keys.gpus_per_trial and keys.gpus_per_trial > keys.gpus:
        out.add((*place, "gpus_per_trial"), f"a pod has {keys.gpus}; write at most that")
    if keys.max_pods and file.keda is None:
        out.add_missing((*place, "max_pods"), "needs KEDA; write keda: {}")
    if is_spot and _REQUIRED in ((keys.affinity or {}).get("nodeAffinity") or {}):
        what = f"spot sets nodeAffinity.{_REQUIRED}; write node_selector, or remove one"
        out.add_conflict((*place, "affinity"), what)
    if keys.shm and keys.memory and size_bytes(keys.shm) >= size_bytes(keys.memory):
        out.add((*place, "shm"), f"is part of memory, {keys.memory}; write less")
    if keys.cpu and keys.cpu_limit and cpus(keys.cpu) > cpus(keys.cpu_limit):
        out.add((*place, "cpu"), f"exceeds cpu_limit, {keys.cpu_limit}; write at most that")


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of a cluster file."""
    schema = ClusterFile.model_json_schema(schema_generator=FileSchema)
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **schema,
        "title": "hpq cluster file",
    }
