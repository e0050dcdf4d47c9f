"""What this worker runs: shipped trainers, what HPQ_ALLOW names, and records signed by our key.

Answers a reason, never an error, so that a sweep which this worker must leave alone is shown to
people with the remedy.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

from hpq import code
from hpq.hyperparams import SHIPPED
from hpq.settings import Settings
from hpq.signing import is_signed
from hpq.sweep import Launch, Sweep


class Access:
    """Decides about sweeps; `key` is HPQ_CODE_KEY or the one under HPQ_HOME."""

    def __init__(self, settings: Settings, key: bytes | None) -> None:
        self._settings, self._key = settings, key

    def refusal(self, sweep: Sweep, manifest: str | None) -> str | None:
        """Why this worker leaves a sweep alone, with the remedy; None where it takes it."""
        launch = sweep.launch
        if launch.trainer in SHIPPED:
            return _cannot_import_trainers()
        if not self._is_allowed(sweep):
            what = launch.trainer or launch.program
            if self._key is None:
                return f"{what} is not in HPQ_ALLOW, and this worker has no HPQ_CODE_KEY"
            return f"{what} is not in HPQ_ALLOW and not signed with this worker's HPQ_CODE_KEY"
        if launch.code_dir:
            return _stale(launch, manifest)
        return None

    def _is_allowed(self, sweep: Sweep) -> bool:
        if any(_matches(line, sweep.launch) for line in self._settings.allow):
            return True
        if self._key is None:
            return False
        prefix, launch = self._settings.prefix, sweep.launch
        return is_signed(self._key, prefix, sweep.id, launch, sweep.signature)


def _matches(line: str, launch: Launch) -> bool:
    # HPQ_ALLOW names what lies in the worker's own image; code from elsewhere needs a signature.
    if launch.code_dir:
        return False
    if launch.trainer:
        return line == launch.trainer
    words = tuple(line.split())
    if words == (launch.program,):
        return launch.command in ((), ("${env}", "${interpreter}", "${program}", "${args}"))
    return words == launch.command


def _cannot_import_trainers() -> str | None:
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed where this worker runs; `pip install 'hpq[trainers]'`"
    return None


def _stale(launch: Launch, manifest: str | None) -> str | None:
    folder = Path(launch.code_dir)
    if not folder.is_dir():
        return f"its code directory {folder} is not on this machine"
    if manifest is None:
        return "its code manifest is gone from Redis; enqueue it again"
    files = json.loads(manifest)
    if code.digest_of(files) != launch.code:
        return "its code manifest in Redis is not the one that was enqueued"
    edited = code.changed(folder, files)
    if edited:
        return f"{folder / edited} was edited after enqueue; enqueue again to run the new code"
    return None
