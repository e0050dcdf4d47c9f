"""Sign launch records, so that a worker runs no code that only Redis vouches for.

HMAC-SHA256 with a key that Redis never holds: HPQ_CODE_KEY, or a file under HPQ_HOME that the first
enqueue creates, so that workers of the same user and machine agree without set-up.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import re
import secrets
from pathlib import Path

from hpq.domain.sweep import Launch, Sweep
from hpq.errors import UserError
from hpq.settings import Settings
from hpq.store.wire.fields import dumps
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
    """Return the random id of this HPQ_HOME, which marks its own sweeps; "" without one.

    Raises:
        UserError: `make` is set, and HPQ_HOME cannot be written.
    """
    path = home / "id"
    if make:
        _make(path)
    with contextlib.suppress(OSError):
        return path.read_text("ascii").strip()
    return ""


def _make(path: Path) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            # Written whole under another name first: a reader never sees half a key.
            draft = path.with_name(f".{path.name}.{os.getpid()}")
            fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(fd, "w") as file:
                file.write(secrets.token_hex(32))
            try:
                os.link(draft, path)
            finally:
                draft.unlink()
    except OSError as error:
        text = f"{path}: {error.strerror}; set HPQ_HOME to a directory that you can write"
        raise UserError(text, code="code-key-unwritable") from None


def sign(key: bytes, prefix: str, sid: str, launch: Launch) -> str:
    """Return the signature of a launch record for one sweep under one prefix, as hex."""
    text = dumps({"prefix": prefix, "sweep": sid, "launch": encode_launch(launch)})
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def is_signed(key: bytes, prefix: str, sid: str, launch: Launch, signature: str) -> bool:
    """True if this key signed exactly this record."""
    right = sign(key, prefix, sid, launch).encode()
    return hmac.compare_digest(right, signature.encode())


def fingerprint(key: bytes | None) -> str:
    """Return a short name of a key that does not reveal it; "" for no key."""
    return hmac.new(key, b"hpq fingerprint", hashlib.sha256).hexdigest()[:12] if key else ""


def keys_apart(sweep: Sweep, ours: str) -> str:
    """Return ` (key OURS; the sweep's is THEIRS)`, for a line about keys that differ.

    The sweep's fingerprint comes from Redis: no decision may depend on it.
    """
    if not sweep.signature:
        return f" (key {ours}; the sweep has no signature)"
    if not _FINGERPRINT.fullmatch(sweep.signer):
        return f" (key {ours})"
    if sweep.signer == ours:
        return f" (key {ours}; the same key signed it, and the record was changed since)"
    return f" (key {ours}; the sweep's is {sweep.signer})"
