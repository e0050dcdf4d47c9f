"""A lifecycle event of a sweep out of its stream. Readers only; the scripts write them."""

from __future__ import annotations

from collections.abc import Mapping

from hpq.errors import DecodeError
from hpq.snapshot import Event


def event_of(key: str, eid: bytes, fields: Mapping[bytes, bytes]) -> Event:
    """An entry of a stream of events.

    Raises:
        DecodeError: it is none (names the key and the entry).
    """
    try:
        text = {
            k.decode("utf-8", "replace"): v.decode("utf-8", "replace") for k, v in fields.items()
        }
        return Event(
            id=eid.decode(),
            what=text.pop("e"),
            trial=int(text.pop("n", "0")),
            attempt=int(text.pop("a", "0")),
            fields=text,
        )
    except (KeyError, ValueError) as error:
        raise DecodeError(f"{key}: entry {eid.decode()}: {error}") from None
