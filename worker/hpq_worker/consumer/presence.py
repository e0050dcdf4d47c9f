"""The records that a worker keeps in Redis about itself.

The presence record is for the reaper, `hpq workers` and other workers' claims. The provenance
record has versions, host and device; Redis keeps it under its digest.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, replace
from email import message_from_string
from email.message import Message
from importlib import metadata

from hpq import __version__
from hpq.code.command import interpreter, is_own, printed_by
from hpq.code.signing import fingerprint
from hpq.domain.attempt import WorkerPresence
from hpq.domain.trainer_specs import BUILT_IN
from hpq.domain.trial import Json
from hpq.filestore.stores import low_disk
from hpq.gpus import gpu_names
from hpq.settings import Settings
from hpq.store.wire.fields import dumps
from hpq_worker.attempt.parts import WorkerParts
from hpq_worker.consumer.claim_loop import ClaimLoop

_PROBE = "import json, sys; print(json.dumps([sys.version.split()[0], sys.path]))"


class PresenceRecord:
    """One worker, as it is at each call."""

    def __init__(self, parts: WorkerParts, device: str, loop: ClaimLoop) -> None:
        self._parts, self._loop = parts, loop
        settings = parts.settings
        self._constant = {
            "pid": str(os.getpid()),
            "device": device,
            "version": __version__,
            "only": settings.sweep,
            "pod": settings.pod,
            "ran_on": parts.provenance,
            "store": "yes" if settings.store else "no",
            "takes": json.dumps(list(BUILT_IN)),
        }

    def current(self) -> tuple[WorkerPresence, bool]:
        """Return the record, and whether the worker is idle."""
        trial, backoff = self._loop.trial, self._loop.backoff
        is_stopping = self._parts.signals.is_stopping
        gpu_util = self._parts.usage.latest.get("gpu.util")
        fields = {
            "state": "stopping" if is_stopping else "busy" if trial else "idle",
            "trial": trial,
            "fault": "" if trial else backoff.fault,
            "low_disk": low_disk(self._parts.settings.work_root),
            "gpu_util": "" if gpu_util is None else f"{gpu_util:.0f}",
            # The first enqueue of this user may create the key later.
            "key": fingerprint(self._parts.trust.key),
            "store_id": self._parts.files.id,
            "refuses": dumps({s: asdict(r) for s, r in backoff.reasons.items()}),
        }
        return replace(self._parts.worker, fields={**self._constant, **fields}), not trial


def provenance_of(
    settings: Settings, host: str, device: str, environ: Mapping[str, str]
) -> tuple[str, str]:
    """Return the digest and the JSON of what this worker's attempts run on.

    `programs` is the Python of programs, if it is not the worker's own.

    Raises:
        SettingsError: HPQ_PYTHON is not executable.
    """
    python = interpreter(environ, settings.python)
    text = dumps(
        {
            "hpq": __version__,
            "python": platform.python_version(),
            "platform": platform.platform(),
            "host": host,
            "image": settings.image,
            "device": device,
            "gpus": list(gpu_names()),
            "packages": _packages(),
            **({} if is_own(python) else {"programs": _of_another(python, environ)}),
        }
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16], text


def _packages(path: list[str] | None = None) -> dict[str, Json]:
    found = metadata.distributions() if path is None else metadata.distributions(path=path)
    return {d["Name"]: d["Version"] for d in map(_fields, found) if d["Name"]}


def _fields(package: metadata.Distribution) -> Message:
    """Return a package's fields without its description, which takes most of the time to parse."""
    for name in ("METADATA", "PKG-INFO", ""):  # "" is a file that ends in .egg-info
        if text := package.read_text(name):
            return message_from_string(text.partition("\n\n")[0])
    return Message()


def _of_another(python: str, environ: Mapping[str, str]) -> dict[str, Json]:
    """Return another Python's version and packages; it prints only its path, which is quick."""
    try:
        version, path = json.loads(printed_by(python, _PROBE, environ))
        return {"interpreter": python, "python": version, "packages": _packages(path)}
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return {"interpreter": python, "unknown": f"the probe failed: {error}"[:200]}
