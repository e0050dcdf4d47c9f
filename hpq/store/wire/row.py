"""Encode and decode the row of a trial: its signature, its parameters, and where it begins."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import NamedTuple

from hpq.domain.identity import ParameterSet
from hpq.domain.trial import Start
from hpq.errors import DecodeError
from hpq.store.wire import decode
from hpq.store.wire.fields import decoding, dumps, dumps_in_order, loads, mapping
from hpq.store.wire.trial import CHECKPOINT

MAC_BYTES = 16
SignRow = Callable[[int, str], bytes]  # number and JSON of a trial → its row
CheckRow = Callable[[int, bytes | None], bool]  # number and row → is it as it was signed?
CheckOf = Callable[[str], CheckRow | None]  # of a sweep; None: this machine's key did not sign it


class NewRow(NamedTuple):
    """A trial to be added: its parameters as JSON, and its identity."""

    params: str
    identity: bytes


def encode_new(params: ParameterSet, replicate: int) -> NewRow:
    """Encode a trial to be added; `replicate` counts from 0.

    The JSON keeps the order of the file, which is the order of the arguments on a command line. If
    the trial has a start, the JSON is a list: parameters, the other trial, and its checkpoint as
    text, which lua/claim.lua writes into the new trial's hash.
    """
    identity = params.salted(replicate) if replicate else params.identity
    start = params.start
    if start is None:
        return NewRow(dumps_in_order(params), identity)
    checkpoint = dumps(asdict(start.checkpoint))
    return NewRow(dumps_in_order([params, start.trial, checkpoint]), identity)


def unsigned(_number: int, text: str) -> bytes:
    """Return a row without a signature, for sweeps that no key signs."""
    return text.encode()


def is_unsigned(_number: int, row: bytes | None) -> bool:
    """Return True unless a signature precedes the row's JSON."""
    return (row or b"")[:1] < b"\x80"


def stored(rows: Iterable[NewRow], first: int, sign: SignRow) -> list[tuple[bytes, bytes]]:
    """Return row and identity of each trial, numbered from `first`."""
    return [(sign(n, text), identity) for n, (text, identity) in enumerate(rows, first)]


def text_of(row: bytes) -> bytes:
    """Return the JSON of a row, which a signature of 16 bytes may precede (code/signing.py)."""
    return row if is_unsigned(0, row) else row[MAC_BYTES:]


def decode_params(key: str, raw: bytes | None) -> ParameterSet:
    """Decode the parameters of a trial, and where it begins.

    Raises:
        DecodeError: the parameters are missing or not a mapping, or the start is not one.
    """
    if raw is None:
        raise DecodeError(f"{key}: the parameters are missing")
    with decoding(f"{key}: {raw[:60]!r}"):
        text = text_of(raw).decode()
        if not text.startswith("["):
            return ParameterSet(mapping(text))
        params, number, checkpoint = loads(text)
        if not isinstance(params, dict):
            raise ValueError("not a mapping")
        checkpoint = CHECKPOINT.parse(decode.text(checkpoint))
        start = Start(trial=decode.whole(number), checkpoint=checkpoint)
        return ParameterSet(params).started_at(start)
