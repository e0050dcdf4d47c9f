"""Encrypt a short text with the code key, so that workers can read it and Redis's users cannot."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets

_NONCE, _TAG = 16, 16  # bytes


def seal(key: bytes, owner: str, text: str) -> str:
    """Return the text under a keystream of SHAKE-256, with an HMAC, as base64.

    Only its owner, the id of a sweep, can be given to open it again.
    """
    nonce, data = secrets.token_bytes(_NONCE), text.encode()
    hidden = nonce + _mixed(key, nonce, data)
    return base64.b64encode(_tag(key, owner, hidden) + hidden).decode()


def unseal(key: bytes | None, owner: str, sealed: str) -> str:
    """Return the text; "" if it was sealed with another key or for another, or changed."""
    try:
        raw = base64.b64decode(sealed, validate=True)
    except (binascii.Error, ValueError):
        return ""
    tag, hidden = raw[:_TAG], raw[_TAG:]
    if not key or not hmac.compare_digest(tag, _tag(key, owner, hidden)):
        return ""
    return _mixed(key, hidden[:_NONCE], hidden[_NONCE:]).decode()


def _mixed(key: bytes, nonce: bytes, data: bytes) -> bytes:
    own = hmac.digest(key, b"hpq seal", "sha256")
    stream = hashlib.shake_256(own + nonce).digest(len(data))
    return bytes(a ^ b for a, b in zip(data, stream, strict=True))


def _tag(key: bytes, owner: str, hidden: bytes) -> bytes:
    return hmac.digest(key, b"hpq sealed " + owner.encode() + b"\0" + hidden, "sha256")[:_TAG]
