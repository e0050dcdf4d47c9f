"""Sign sweeps and their parameters, so that a worker runs nothing that only Redis vouches for.

HMAC-SHA256 with a key that Redis never holds: HPQ_CODE_KEY, or a file under HPQ_HOME that the first
enqueue creates, so that workers of the same user and machine agree without set-up. The record of a
sweep covers its code and its search. Each row of parameters begins with a code of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from hpq.domain.sweep import Launch, RunnableSweep, SweepView
from hpq.errors import UserError
from hpq.notice import Notice
from hpq.private_files import create_secret
from hpq.settings import Settings
from hpq.store.wire.fields import dumps
from hpq.store.wire.row import MAC_BYTES, CheckOf, CheckRow, SignRow, is_unsigned, unsigned
from hpq.store.wire.sweep import encode_launch

_FINGERPRINT = re.compile("[0-9a-f]{12}")


def key_of(settings: Settings, *, make: bool) -> bytes | None:
    """Return the signing key; `make` creates one under HPQ_HOME if there is none.

    Raises:
        UserError: HPQ_HOME cannot be written, or the key file is readable by others.
    """
    if settings.code_key:
        return settings.code_key.encode()
    path = settings.home / "code.key"
    if make:
        _make(path)
    try:
        if path.stat().st_mode & 0o077:
            text = f"{path}: other users can read this key; run `chmod 600 {path}`"
            raise UserError(text, code="code-key-exposed")
        return path.read_bytes().strip() or None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}", code="code-key-unreadable") from None


def home_id(home: Path, *, make: bool = False) -> str:
    """Return the random id of this HPQ_HOME, by which its own sweeps are known; "" without one.

    Raises:
        UserError: `make` is set, and HPQ_HOME cannot be written.
    """
    path = home / "id"
    if make:
        _make(path)
    with contextlib.suppress(OSError):
        return path.read_text("ascii").strip()
    return ""


def is_of_home(launch: Launch, home: Path) -> bool:
    """True if this HPQ_HOME enqueued a launch; the caller has checked the launch's signature."""
    return bool(launch.home) and launch.home == home_id(home)


def _make(path: Path) -> None:
    try:
        create_secret(path)
    except OSError as error:
        text = f"{path}: {error.strerror}; set HPQ_HOME to a directory that you can write"
        raise UserError(text, code="code-key-unwritable") from None


def signed_bytes(prefix: str, sweep: RunnableSweep) -> bytes:
    """Return the bytes of a sweep's record that a signature covers, under one prefix.

    They say that the rows of the parameters are signed, too: no worker accepts others.
    """
    record = {
        "prefix": prefix,
        "sweep": sweep.id,
        "launch": encode_launch(sweep.launch),
        "sampler": sweep.sampler,
        "search": sweep.search,
        "seed": sweep.seed,
        "replicates": sweep.replicates,
        "sets": 1,
    }
    return dumps(record).encode()


def sign(key: bytes, prefix: str, sweep: RunnableSweep) -> str:
    """Return the signature of a sweep's record under one prefix, as hex."""
    return hmac.new(key, signed_bytes(prefix, sweep), hashlib.sha256).hexdigest()


def is_signed(key: bytes, prefix: str, sweep: RunnableSweep) -> bool:
    """True if this key signed exactly this record."""
    return hmac.compare_digest(sign(key, prefix, sweep).encode(), sweep.signature.encode())


def verifying_key(settings: Settings) -> bytes | None:
    """Return the key of this machine; None if there is none, or others can read it."""
    with contextlib.suppress(UserError):
        return key_of(settings, make=False)
    return None


def own_directory(settings: Settings, sweep: SweepView) -> Path | None:
    """Return the directory from which this user enqueued a sweep's code; None if there is none.

    Only a signed record of this HPQ_HOME names one: Redis could name a directory of another user,
    or one in which git runs commands.
    """
    folder, key = Path(sweep.launch.code_dir), verifying_key(settings)
    is_signed_here = key is not None and is_signed(key, settings.prefix, sweep)
    is_own = is_signed_here and is_of_home(sweep.launch, settings.home)
    return folder if is_own and sweep.launch.code_dir and folder.is_dir() else None


def signed(key: bytes | None, prefix: str, sweep: SweepView) -> tuple[SweepView, SignRow]:
    """Return a sweep with its signature, and what signs its rows; unsigned if there is no key."""
    if not key:
        return replace(sweep, signature="", signer=""), unsigned
    sweep = replace(sweep, signature=sign(key, prefix, sweep), signer=fingerprint(key))
    return sweep, RowSigner(key, prefix, sweep.id).sign


class RowSigner:
    """Signs the rows of one sweep's parameters with keyed BLAKE2b, 16 bytes a row."""

    def __init__(self, key: bytes, prefix: str, sid: str) -> None:
        self.key = key
        own = hmac.digest(key, dumps(["hpq parameters", prefix, sid]).encode(), "sha256")
        self._keyed = hashlib.blake2b(digest_size=MAC_BYTES, key=own)

    @classmethod
    def of(cls, key: bytes | None, prefix: str, sweep: RunnableSweep) -> RowSigner | None:
        """Return the signer of a sweep's rows if this key signed the sweep's record, else None."""
        if key is None or not is_signed(key, prefix, sweep):
            return None
        return cls(key, prefix, sweep.id)

    @classmethod
    def required(cls, settings: Settings, sweep: RunnableSweep) -> RowSigner:
        """Return the signer of a sweep's rows, for a command that adds rows to it or copies them.

        Raises:
            UserError: this machine's key did not sign the sweep.
        """
        key = key_of(settings, make=False)
        if signer := cls.of(key, settings.prefix, sweep):
            return signer
        remedy = "run this command where it was enqueued, or `hpq invite` there and `hpq join` here"
        text = f"{sweep.id}: not signed with this machine's key{keys_apart(key, sweep)}; {remedy}"
        raise UserError(text, code="code-key-differs")

    @classmethod
    def checks(cls, settings: Settings, read: Callable[[str], SweepView]) -> CheckOf:
        """Return what finds the check of a sweep's rows; `read` returns a sweep by its id.

        A signed row in a sweep without a signature does not pass: the signature was removed.
        """
        found: dict[str, CheckRow | None] = {}

        def check_of(sid: str) -> CheckRow | None:
            if sid not in found:
                with contextlib.suppress(UserError):  # a key that others can read
                    sweep, key = read(sid), key_of(settings, make=False)
                    signer = cls.of(key, settings.prefix, sweep)
                    unsigned = None if sweep.signature else is_unsigned
                    if key or unsigned:  # the first enqueue makes the key
                        found[sid] = signer.has_signed if signer else unsigned
            return found.get(sid)

        return check_of

    def sign(self, number: int, text: str) -> bytes:
        """Return the row of a trial: 16 bytes, then its JSON."""
        data = text.encode()
        return self._mac(number, data) + data

    def has_signed(self, number: int, row: bytes | None) -> bool:
        """True if this is the row of this trial, to the byte; nothing of it is parsed."""
        row = row or b""
        return hmac.compare_digest(self._mac(number, row[MAC_BYTES:]), row[:MAC_BYTES])

    def _mac(self, number: int, data: bytes) -> bytes:
        found = self._keyed.copy()
        found.update(b"%d " % number + data)
        mac = bytearray(found.digest())
        mac[0] |= 0x80  # no JSON begins so: `text_of` tells rows apart
        return bytes(mac)


def unverified(settings: Settings, sweep: SweepView) -> Notice | None:
    """Return why this machine's key cannot verify a sweep's parameters; None if it can.

    A machine without a key verifies nothing, and has nothing to say.
    """
    key = verifying_key(settings)
    if not key or is_signed(key, settings.prefix, sweep):
        return None
    keys = keys_apart(key, sweep)
    text = f"{sweep.id}: not signed with this machine's key{keys}; its parameters are shown"
    return Notice("parameters-unverified", f"{text} unverified")


def fingerprint(key: bytes | None) -> str:
    """Return a short name of a key that does not reveal it; "" for no key."""
    return hmac.new(key, b"hpq fingerprint", hashlib.sha256).hexdigest()[:12] if key else ""


def keys_apart(key: bytes | None, sweep: RunnableSweep) -> str:
    """Return ` (key OURS; the sweep's is THEIRS)`, for a line about keys that differ.

    The sweep's fingerprint comes from Redis: no decision may depend on it.
    """
    ours = fingerprint(key) or "none"
    if not sweep.signature:
        return f" (key {ours}; the sweep has no signature)"
    if not _FINGERPRINT.fullmatch(sweep.signer):
        return f" (key {ours})"
    if sweep.signer == ours:
        return (
            f" (key {ours}; the same key signed it, and the record was changed since, or it comes"
            " from another HPQ_PREFIX)"
        )
    return f" (key {ours}; the sweep's is {sweep.signer})"
