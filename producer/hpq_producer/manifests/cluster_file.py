"""The model of cluster.yaml: what `hpq manifests` renders, each key once.

`load` reads the file and the flags of the command into one model: a flag is a key that it sets.
`make reference` writes cluster.schema.json from the model, for editors. What Kubernetes defines
(tolerations, affinity, pod) passes unchanged, and the API server checks it.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, Strict, WithJsonSchema

from hpq.connection.credentials import SECRETS, carried
from hpq.domain.trial import Json
from hpq.error_ids import Code
from hpq.errors import SettingsError, SweepFileError, UserError
from hpq.settings import ABOUT, LAST_WORDS_S, read, variable
from hpq_producer.manifests.components import KINDS, PATTERN, RULE, Component
from hpq_producer.sweepfile import source
from hpq_producer.sweepfile.check import check
from hpq_producer.sweepfile.errors import KeyPath, Problems, nearest, shown
from hpq_producer.sweepfile.field_types import (
    Absent,
    AnyText,
    FileSchema,
    Flag,
    Keys,
    Matching,
    NotEmpty,
    Queue,
    Text,
    Whole,
    Word,
    number_as_text,
    problem,
)
from hpq_producer.sweepfile.yaml_reader import Document

SCHEMA_FILE = Path(__file__).with_name("cluster.schema.json")  # `make reference` writes it
DEFAULT = "default"  # the queue of the Deployment hpq-worker
GPU = "nvidia.com/gpu"
_INVALID: Code = "cluster-file-invalid"
_NO_CLUSTER = "not a cluster file; `hpq manifests --example` prints one with every key"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
SPOT_S = 15  # what GKE leaves an ordinary pod
_UNITS = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12,
          "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}  # fmt: skip
# setting that the manifests fill in → what to use instead
_FIXED = {
    "HPQ_QUEUE": "; use queues",
    "HPQ_IMAGE": "; use image",
    "HPQ_CPUS": "; use cpu of a queue",
    "HPQ_POD_GRACE_S": "; use HPQ_GRACE_S",
    "HPQ_NODE": "",
    "HPQ_POD": "",
    "HPQ_PORT": ": the pods' probes and policies need port 9108",
}


def _component(text: str) -> str:
    if RULE.match(text):
        return text
    name, is_given, _ = text.partition("=")
    kind = KINDS.get(name)
    if kind is None:
        known = ", ".join(KINDS)
        what = f"{shown(name)} is no component; choose from {known}{nearest(name, KINDS)}"
        if name in ("queue", "cpu"):
            key = "queues: {NAME: {gpus: 4}}" if name == "queue" else "gpus: 0, or --gpus 0"
            what = f"{shown(name)} is a key of the cluster file; write {key}"
        raise problem("component-unknown", what)
    if not kind.value:
        raise ValueError(f"{name} takes no value; write {name}")
    what = f"{shown(text)} is invalid" if is_given else "a value is required"
    raise ValueError(f"{what}; write {name}={kind.syntax}")


def _settings(found: dict[str, str]) -> dict[str, str]:
    for name, value in found.items():
        if not name.startswith("HPQ_"):
            what = "write HPQ_NAME; `hpq doctor --settings` lists the names"
            raise problem("setting-unknown", what, name)
        if name in SECRETS - {"HPQ_REDIS_URL"}:
            what = "is a secret; `hpq manifests --secrets` creates it"
            raise problem("setting-secret", what, name)
        if name in _FIXED:
            raise problem("setting-fixed", f"the manifests set it{_FIXED[name]}", name)
        if carried(value):
            what = "the password would be in a ConfigMap; for HPQ_STORE create a Secret hpq-store"
            raise problem("setting-secret", f"{what} with it, and add the component bucket", name)
        try:
            read({"HPQ_REDIS_URL": "redis://any", name: value})
        except SettingsError as error:
            raise problem(error.code, str(error).removeprefix(f"{name}: "), name) from None
        if name not in {variable(field) for field in ABOUT}:
            what = "unknown setting; list the names: hpq doctor --settings"
            raise problem("setting-unknown", what, name)
    return found


def _matching(rule: str, allowed: str) -> Matching:
    return Matching(re.compile(rf"(?:{rule})\Z"), allowed)


Plain = Annotated[str, Strict(), BeforeValidator(number_as_text)]
Scalar = Annotated[Plain, WithJsonSchema({"type": ["string", "number"]})]  # such as 16
_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_OBJECT = "[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?"
Cpus = Annotated[
    Scalar,
    _matching(r"(?=.*[1-9])[0-9]+(?:\.[0-9]{1,3}|m)?", "write CPUs such as 16, 0.5 or 500m"),
]
Size = Annotated[
    Plain,
    _matching(
        r"(?=[0-9.]*[1-9])[0-9]+(?:\.[0-9]+)?(?:[KMGT]i|[kMGT])",
        "write a size with its unit, such as 64Gi",
    ),
]
ObjectName = Annotated[
    Plain, _matching(_OBJECT, "write the name of an object: a-z, 0-9, '-' and '.'")
]
LabelValue = Annotated[
    Scalar, _matching(f"(?:{_LABEL})?", "write a label's value, of at most 63 characters")
]
LabelKey = Annotated[
    str,
    _matching(f"(?:{_OBJECT}/)?{_LABEL}", "write a label of nodes, e.g. nvidia.com/gpu.product"),
]
Resource = Annotated[
    Plain,
    _matching(f"{_OBJECT}/{_LABEL}", "write a resource of the device plugin, e.g. nvidia.com/gpu"),
]
QueueName = Annotated[  # a label's 63 characters less "hpq-worker-"
    str,
    _matching(
        "[a-z0-9](?:[a-z0-9-]{0,50}[a-z0-9])?",
        "use 1 to 52 of a-z, 0-9 and '-', no '-' at the ends",
    ),
]
ComponentWord = Annotated[
    AnyText,
    AfterValidator(_component),
    WithJsonSchema({"type": "string", "pattern": PATTERN}),
]


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
    spot: Flag = Field(False, description="Run on spot nodes only, as with the component spot.")
    max_pods: Absent[Whole] = Field(
        None, ge=1, le=9999, description="The most pods that KEDA starts."
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
    pod: Absent[NotEmpty[dict[str, Any]]] = Field(
        None,
        description="Any other fields of Kubernetes' PodSpec, merged into the pod's.",
        examples=[{"runtimeClassName": "nvidia"}],
    )


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


class ClaimKeys(Keys):
    """A volume claim that all pods share."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"size": "200Gi"}]})
    size: Size = Field("20Gi", description="Size of the claim.")
    storage_class: Absent[ObjectName] = Field(
        None, description="StorageClass, with ReadWriteMany. Fixed after the first apply."
    )


class ClusterFile(Keys):
    """What runs on a cluster."""

    aliases: ClassVar[Mapping[str, str]] = {"components": "with", "env": "settings"}
    image: Text = Field("", description="Image of the workers.")
    namespace: Queue = Field("hpq", description="Namespace of all objects.")
    queues: NotEmpty[dict[QueueName, QueueKeys]] = Field(
        default_factory=lambda: {DEFAULT: QueueKeys.model_validate({})},
        description="The workers of each queue; the queue default if there is no key.",
        examples=[{DEFAULT: {"gpus": 1}}],
        json_schema_extra={"additionalProperties": False},
    )
    components: tuple[ComponentWord, ...] = Field(
        (),
        alias="with",
        description="Components, as of --with NAME[=VALUE].",
        examples=[["tls", "keda=8"]],
    )
    redis: RedisKeys = Field(
        default_factory=lambda: RedisKeys.model_validate({}), description="The Redis server."
    )
    store: Absent[ClaimKeys] = Field(None, description="The component store, with its claim.")
    dataset: Absent[ClaimKeys] = Field(None, description="The component dataset, with its claim.")
    settings: Annotated[dict[str, Word], AfterValidator(_settings)] = Field(
        {}, description="Settings of the workers.", examples=[{"HPQ_GRACE_S": 60}]
    )

    @property
    def parts(self) -> list[Component]:
        """The components, each once; the last value of one wins."""
        own = [name for name in ("store", "dataset") if getattr(self, name) is not None]
        found = {one.name: one for one in map(Component.parse, [*own, *self.components])}
        if "monitoring" in found:  # its alerts ask for the exporter's metrics
            found.setdefault("dashboard", Component(name="dashboard"))
        return list(found.values())

    @property
    def names(self) -> set[str]:
        """The names of the components."""
        return {one.name for one in self.parts}

    def is_spot(self, queue: str) -> bool:
        """Return whether a queue's pods run on spot nodes."""
        return self.queues[queue].spot or "spot" in self.names

    def pod_grace(self, queue: str) -> int | None:
        """Return terminationGracePeriodSeconds of a queue's pods; None: as in k8s/worker."""
        grace = self.settings.get("HPQ_GRACE_S")
        if self.is_spot(queue) or not grace:
            return None
        return math.ceil(float(grace) + LAST_WORDS_S)


def size_bytes(size: str) -> int:
    """Return a Size in bytes."""
    number, unit = re.fullmatch(r"([0-9.]+)(\w+)", size).groups()  # type: ignore[union-attr]
    return int(float(number) * _UNITS[unit])


def cpus(text: str) -> float:
    """Return Cpus as a number."""
    return float(text.removesuffix("m")) / (1000 if text.endswith("m") else 1)


def load(
    path: Path | None = None,
    *,
    text: str | None = None,
    flags: Mapping[tuple[str, ...], tuple[str, Json]] | None = None,
    components: Sequence[str] = (),
) -> ClusterFile:
    """Read a cluster file, or the text of one, and the command's flags.

    `flags` sets the value of each path: path → (flag, value). `components` (--with) are added.

    Raises:
        UserError: the file or a flag is invalid; one line per problem.
    """
    name = str(path or "stdin")
    try:
        content = source.read(path) if path else text
        known = [field.alias or key for key, field in ClusterFile.model_fields.items()]
        content = "{}" if content is None else content
        document = source.known_document(content, name, known, _NO_CLUSTER, code=_INVALID)
    except SweepFileError as error:
        if error.code not in ("sweep-file-invalid", _INVALID):
            raise
        raise UserError(str(error), code=_INVALID) from None
    overrides = [
        source.flag_override(label, key, value) for key, (label, value) in (flags or {}).items()
    ]
    document = _with_components(source.apply(document, overrides), components)
    out = Problems(document.source_map)
    found = check(ClusterFile, document.data, (), out)
    if found is not None:
        _check_together(found, out)
    out.raise_errors()
    assert found is not None
    return found


def _with_components(document: Document, components: Sequence[str]) -> Document:
    data = copy.deepcopy(document.data)
    assert isinstance(data, dict)
    words = data.setdefault("with", []) if components else None
    if not isinstance(words, list):
        return document
    flags = dict(document.source_map.flags)
    for word in components:
        flags["with", len(words)] = f"--with {word}"
        words.append(word)
    return replace(document, data=data, source_map=replace(document.source_map, flags=flags))


def _check_together(file: ClusterFile, out: Problems) -> None:
    """Report keys that exclude or need each other."""
    names = file.names
    for one, other in (("dataset", "nfs"), ("store", "bucket")):
        if {one, other} <= names:
            out.add_conflict(("with",), f"{one} and {other} exclude each other; choose one")
    if "archive" in names and "store" not in names:
        out.add_missing(("with",), "archive writes to the volume of store; add store")
    if "bucket" in names and "HPQ_STORE" not in file.settings:
        what = "missing; bucket needs it, e.g. s3://BUCKET/PATH (--set HPQ_STORE=…)"
        out.add(("settings", "HPQ_STORE"), what, code="setting-missing")
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
    if keys.max_pods and "keda" not in file.names:
        out.add_missing((*place, "max_pods"), "needs KEDA; write with: [keda]")
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
