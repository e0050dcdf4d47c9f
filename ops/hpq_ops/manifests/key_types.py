"""The types of a cluster file's keys: what each accepts, for the model and its JSON schema."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Strict, WithJsonSchema

from hpq.errors import SettingsError
from hpq.redis.credentials import SECRETS, carried
from hpq.settings import ABOUT, read, variable
from hpq.yamlfile.strict_model import AnyText, Matching, Word, number_as_text, problem
from hpq_ops.manifests.objects import MERGED

_SIZE = r"(?=[0-9.]*[1-9])[0-9]+(?:\.[0-9]+)?(?:[KMGT]i|[kMGT])"
_UNITS = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12,
          "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}  # fmt: skip
# setting that the manifests fill in → what to use instead
_FIXED = {
    "HPQ_QUEUE": "; use queues",
    "HPQ_IMAGE": "; use image",
    "HPQ_CPUS": "; use cpu of a queue",
    "HPQ_CACHE_BYTES": "; use ephemeral_storage of a queue",
    "HPQ_POD_GRACE_S": "; use HPQ_GRACE_S",
    "HPQ_NODE": "; remove it",
    "HPQ_POD": "; remove it",
    "HPQ_PORT": ", as probes and policies need port 9108; remove it",
}


def _bucket(url: str) -> str:
    if carried(url):
        what = "the password would be in a ConfigMap; put it into a Secret hpq-store"
        raise problem("setting-secret", what)
    return url


def _pod(fields: dict[str, Any]) -> dict[str, Any]:
    """Refuse a list that could not be merged into the pod's; the API server checks the rest."""
    _check_lists(fields, "")
    return fields


def _check_lists(value: Any, place: str) -> None:
    if isinstance(value, list):
        for number, one in enumerate(value):
            _check_lists(one, f"{place}[{number}]")
    if not isinstance(value, dict):
        return
    for name, one in value.items():
        inner = f"{place}.{name}".removeprefix(".")
        by = MERGED.get(name)
        # A label, as in nodeSelector, may have such a name; its value is text.
        is_list = by is not None and one is not None and not isinstance(one, str)
        if is_list and not _are_named(one, by):
            raise ValueError(f"{inner} is not a list of mappings, each with the key {by}")
        _check_lists(one, inner)


def _are_named(entries: Any, by: str | None) -> bool:
    """Return whether a value is a list of mappings that can be merged by a key."""
    return isinstance(entries, list) and all(
        isinstance(one, dict) and isinstance(one.get(by), str | int) for one in entries
    )


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
            what = "the password would be in a ConfigMap; for HPQ_STORE, put it into a Secret"
            raise problem("setting-secret", f"{what} hpq-store, and write bucket: URL", name)
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
    _matching(_SIZE, "write a size with its unit, such as 64Gi"),
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
OwnerName = Annotated[
    str,
    _matching(r"[^\x00-\x1f\x7f\"\\]{1,200}", "write the owner of a sweep, or '*' for all others"),
]
Schedule = Annotated[
    AnyText,
    _matching(
        r"@(?:hourly|daily|weekly|monthly)|[0-9*/,-]+(?: [0-9A-Za-z*/,-]+){4}",
        'write "M H DAY MONTH WEEKDAY" or "@daily", in the cluster\'s time zone',
    ),
]
Host = Annotated[
    AnyText,
    _matching(
        "[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?", "write the name by which browsers reach the pages"
    ),
]
Export = Annotated[AnyText, _matching(r"[^:/\s]+:/\S*", "write SERVER:/PATH")]
Bucket = Annotated[
    AnyText,
    _matching(r"[a-z][a-z0-9+.-]*://\S+", "write a URL such as s3://BUCKET/PATH"),
    AfterValidator(_bucket),
]
PodFields = Annotated[dict[str, Any], AfterValidator(_pod)]
Settings = Annotated[dict[str, Word], AfterValidator(_settings)]


def is_size(text: str) -> bool:
    """Return whether a text is a Size."""
    return bool(re.fullmatch(_SIZE, text))


def size_bytes(size: str) -> int:
    """Return a Size in bytes."""
    number, unit = re.fullmatch(r"([0-9.]+)(\w+)", size).groups()  # type: ignore[union-attr]
    return int(float(number) * _UNITS[unit])


def cpus(text: str) -> float:
    """Return Cpus as a number."""
    return float(text.removesuffix("m")) / (1000 if text.endswith("m") else 1)
