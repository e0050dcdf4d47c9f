"""Decide what this worker may run: shipped trainers, HPQ_ALLOW, and records signed with its key.

A refusal is a reason with the remedy, not an error: `hpq workers` and `hpq show` display it.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Collection
from pathlib import Path

from hpq import __version__
from hpq.code.command import template
from hpq.code.signing import fingerprint, is_signed, key_of, keys_apart
from hpq.domain.sweep import SCHEMA, Launch, Sweep
from hpq.domain.trainer_specs import SHIPPED
from hpq.error_ids import Code
from hpq.errors import UserError
from hpq.notice import Notice
from hpq.settings import Settings
from hpq_worker.attempt.code import CodeBundles

# Reasons of trust: the sweep is not signed, or not what was signed. They are counted.
DISTRUST: Collection[Code] = ("code-key-missing", "code-not-signed", "code-altered")


class TrustPolicy:
    """Decides which sweeps to run, by HPQ_CODE_KEY or the key under HPQ_HOME."""

    def __init__(self, settings: Settings, bundles: CodeBundles) -> None:
        self._settings, self._bundles = settings, bundles
        self._key = key_of(settings, make=False)

    @property
    def key(self) -> bytes | None:
        """The key; this user's first enqueue may create it after this worker has started."""
        if self._key is None:
            with contextlib.suppress(UserError):  # the start has reported it
                self._key = key_of(self._settings, make=False)
        return self._key

    def refusal(self, sweep: Sweep) -> Notice | None:
        """Return why this worker may not run a sweep, with the remedy; None if it may."""
        launch = sweep.launch
        if sweep.schema > SCHEMA:
            return Notice(
                "hpq-too-old",
                f"a newer hpq created it (schema {sweep.schema}); this worker, hpq {__version__},"
                f" reads schema {SCHEMA}; upgrade this worker",
            )
        if launch.trainer and (launch.program or launch.command):
            text = "its launch record names a trainer and a command; enqueue it again"
            return Notice("launch-invalid", text)
        if launch.trainer in SHIPPED and not (launch.code_dir or launch.bundled):
            return _cannot_import_trainers()
        if not self._is_allowed(sweep):
            remedy = "copy HPQ_CODE_KEY, or HPQ_HOME/code.key, from the machine that enqueued it"
            if not (launch.code_dir or launch.bundled):
                remedy += f", or list {launch.what} in HPQ_ALLOW"
            if self.key is None:
                text = f"this worker has no HPQ_CODE_KEY to check its signature; {remedy}"
                return Notice("code-key-missing", text)
            keys = keys_apart(sweep, fingerprint(self.key))
            why = f"its code is not signed with this worker's HPQ_CODE_KEY{keys}"
            return Notice("code-not-signed", f"{why}; {remedy}")
        if launch.bundled:
            return self._bundles.refusal(launch)
        if launch.code_dir and not Path(launch.code_dir).is_dir():
            text = f"its code directory {launch.code_dir} is not on this machine"
            return Notice("code-missing", f"{text}; enqueue it without --live")
        return None

    def _is_allowed(self, sweep: Sweep) -> bool:
        if any(_matches(line, sweep.launch) for line in self._settings.allow):
            return True
        key, prefix = self.key, self._settings.prefix
        return key is not None and is_signed(key, prefix, sweep.id, sweep.launch, sweep.signature)


def _matches(line: str, launch: Launch) -> bool:
    # HPQ_ALLOW names code in the worker's own image; other code needs a signature.
    if launch.code_dir or launch.bundled:
        return False
    if launch.trainer:
        return line == launch.trainer
    allowed = tuple(line.split())
    command = template(launch.command, launch.program)
    # One word is a program under W&B's default command, or a command without arguments.
    by_default = len(allowed) == 1 and command == template((), allowed[0])
    return by_default or command == template(allowed, None)


def _cannot_import_trainers() -> Notice | None:
    if importlib.util.find_spec("torch") is None:
        text = "torch is not installed where this worker runs; `pip install 'hpq[trainers]'`"
        return Notice("extra-missing", text)
    return None
