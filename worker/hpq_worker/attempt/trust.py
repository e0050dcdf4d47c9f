"""Decide what this worker may run: built-in trainers, and records signed with its key.

A refusal is a reason with the remedy, not an error: `hpq workers` and `hpq show` display it. Each
sweep is read from Redis once.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Collection
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path

from hpq.code.signing import (
    RowSigner,
    fingerprint,
    is_of_home,
    key_of,
    keys_apart,
    signed_bytes,
)
from hpq.domain.sweep import Launch, RunnableSweep
from hpq.domain.trainer_specs import is_built_in
from hpq.domain.trial import ALTERED, Claim, Failure, FailureKind
from hpq.error_codes import Code
from hpq.errors import DecodeError, UserError
from hpq.notice import Notice
from hpq.settings import Settings
from hpq.store.trials import TrialStore
from hpq.store.wire.attempt import open_claim
from hpq_worker.attempt.code import CodeBundles

_MOST = 32  # sweeps, and signers, in memory; a worker alternates between few sweeps
# Reasons of trust: the sweep is not signed, or not what was signed. They are counted.
DISTRUST: Collection[Code] = ("code-key-missing", "code-not-signed", "code-altered")


class TrustPolicy:
    """Decides which sweeps to run, by HPQ_CODE_KEY or the key under HPQ_HOME."""

    def __init__(
        self, settings: Settings, bundles: CodeBundles, *, has_caller: bool = False
    ) -> None:
        """`has_caller`: this worker serves a process that called `hpq.agent`."""
        self._settings = settings
        self._bundles = bundles
        self._has_caller = has_caller
        self._key = key_of(settings, make=False)
        self._signers: dict[tuple[str, bytes], RowSigner] = {}  # by signature and what it signs

    @property
    def key(self) -> bytes | None:
        """The key; this user's first enqueue may create it after this worker has started."""
        if self._key is None:
            with contextlib.suppress(UserError):  # the start has reported it
                self._key = key_of(self._settings, make=False)
        return self._key

    def refusal(self, sweep: RunnableSweep) -> Notice | None:
        """Return why this worker may not run a sweep, with the remedy; None if it may."""
        launch = sweep.launch
        if wrong := self._wrong_place(launch):
            return Notice("wrong-place", wrong)
        if untrusted := self.untrusted(sweep):
            return untrusted
        if self._has_caller:  # its function runs, also in place of a program
            return None
        if is_built_in(launch):
            return _cannot_import_trainers()
        if launch.bundled:
            return self._bundles.refusal(launch)
        is_here = is_of_home(launch, self._settings.home) and Path(launch.code_dir).is_dir()
        if launch.code_dir and not is_here:
            text = f"it runs live in {launch.code_dir} of the machine that enqueued it"
            return Notice("code-missing", f"{text}; enqueue it without --live")
        return None

    def untrusted(self, sweep: RunnableSweep) -> Notice | None:
        """Return why this worker does not trust a sweep's record; None if it does."""
        return None if is_built_in(sweep.launch) else self.unsigned(sweep)

    def unsigned(self, sweep: RunnableSweep) -> Notice | None:
        """Return why this worker does not know who enqueued a sweep; None if its key signed it."""
        if self._signer(sweep) is not None:
            return None
        remedy = "run `hpq invite` on the machine that enqueued it, and `hpq join` here"
        if self._settings.in_pod:
            remedy = "put the HPQ_CODE_KEY of the machine that enqueued it into the Secret"
        if self.key is None:
            text = f"this worker has no HPQ_CODE_KEY to check its signature; {remedy}"
            return Notice("code-key-missing", text)
        keys = keys_apart(self.key, sweep)
        if not sweep.signature or sweep.signer == fingerprint(self.key):
            remedy = "enqueue it again, with --reuse for its results"
        why = f"its record is not signed with this worker's HPQ_CODE_KEY{keys}"
        return Notice("code-not-signed", f"{why}; {remedy}")

    def open(self, sweep: RunnableSweep, claim: Claim) -> Claim | Failure:
        """Return a claim with its parameters, or why its trial fails.

        If this worker's key signed the sweep, it must have signed the row. The parameters of other
        sweeps may come from any client of Redis: built-in trainers check them against their table.
        """
        signer = self._signer(sweep)
        if signer is not None and not signer.has_signed(claim.trial.number, claim.row):
            return ALTERED
        try:
            opened = open_claim(claim)
        except DecodeError as error:
            return Failure(kind=FailureKind.BAD_PARAMS, message=str(error))
        if signer is None and opened.start is not None:  # hpq signs each row that has one
            return ALTERED
        return opened

    def _signer(self, sweep: RunnableSweep) -> RowSigner | None:
        """Return the signer of a sweep's rows; None if this worker's key did not sign the sweep.

        A signature that was right is right for the same bytes: a record with a copied signature
        has others.
        """
        if self.key is None or not sweep.signature:
            return None
        prefix = self._settings.prefix
        covered = (sweep.signature, sha256(signed_bytes(prefix, sweep)).digest())
        signer = self._signers.pop(covered, None) or RowSigner.of(self.key, prefix, sweep)
        if signer is None:
            return None
        self._signers[covered] = signer
        if len(self._signers) > _MOST:
            del self._signers[next(iter(self._signers))]
        return signer

    def _wrong_place(self, launch: Launch) -> str:
        """Return why a function, or another launch, cannot run in this process; "" if it can."""
        if launch.is_function and not self._has_caller:
            return "its trials run in the process that calls hpq.agent or wandb.agent; start that"
        if self._has_caller and not (launch.is_function or launch.program or launch.command):
            return f"it runs {launch.what}, not a function; start `hpq worker --sweep` for it"
        if launch.is_function and not is_of_home(launch, self._settings.home):
            return "its function runs on the machine that enqueued it alone; call the agent there"
        return ""


class LaunchRecords:
    """Sweeps by id, the most recently used last.

    The launch record never changes; each claim brings the limits that `hpq set` may change.
    """

    def __init__(self, store: TrialStore, trust: TrustPolicy) -> None:
        self._store, self._trust = store, trust
        self._records: dict[str, RunnableSweep] = {}

    def sweep(self, sid: str, claim: Claim | None = None) -> RunnableSweep:
        """Return a sweep with its limits as they are now, or as they were at a claim.

        Raises:
            NotFound: the sweep was removed.
            DecodeError: the sweep cannot be read.
            redis.RedisError: Redis is away.
        """
        known = self._records.pop(sid, None)
        if known and claim and _names(known) == _names(claim):
            sweep = replace(known, timeout_s=claim.timeout_s, stall_s=claim.stall_s)
        else:  # unknown, or removed and perhaps created again
            sweep = self._store.sweep(sid)
        self._records[sid] = sweep
        if len(self._records) > _MOST:
            del self._records[next(iter(self._records))]
        return sweep

    def admit(self, sid: str, claim: Claim | None = None) -> tuple[RunnableSweep, Notice | None]:
        """Return a sweep, and why this worker may not run it.

        A sweep that was refused is read anew the next time. Raises as `sweep`.
        """
        sweep = self.sweep(sid, claim)
        refusal = self._trust.refusal(sweep)
        if refusal is not None:
            del self._records[sid]
        return sweep, refusal


def _names(it: RunnableSweep | Claim) -> tuple[int, str]:
    """Return what tells a sweep from a later one with its id."""
    return it.created_ms, it.signature


_has_torch = cache(lambda: importlib.util.find_spec("torch") is not None)


def _cannot_import_trainers() -> Notice | None:
    if not _has_torch():
        install = "run `pip install torch numpy pillow scikit-learn`"
        text = f"torch is not installed where this worker runs; {install}"
        return Notice("extra-missing", text)
    return None
