"""Answers of at most 4 kB: an agent pays for every character that it reads.

JSON is ASCII, so a character is a byte.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from hpq.errors import HpqError, UserError

MOST = 4_000  # characters of an answer
_RECORD = 600  # of one record of a page
_ABOUT = 2_000  # of what an answer has beside its records or events
_ENVELOPE = 300  # of the names, `next` and `more` of an answer
_PIECE = 3_000  # of a text that is read piece by piece
# Lengths of texts, and numbers of items of lists and mappings, that are tried in turn.
_DEEPEST = 5  # levels of lists and mappings that a cut value keeps
_STEPS = ((1_500, 100), (500, 50), (200, 20), (80, 10), (40, 5), (20, 2), (10, 1))


def encoded(value: Any) -> str:
    """Return a value as JSON without blanks between its parts."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False, default=str)


def fitted(record: Mapping[str, Any], more: str = "", most: int = MOST) -> str:
    """Return a record as JSON; long texts and lists are cut, and `more` says how to read them."""
    return encoded(_shortened(record, more, most))


def _shortened(record: Mapping[str, Any], more: str, most: int) -> dict[str, Any]:
    whole = dict(record)
    if len(encoded(whole)) <= most:
        return whole
    about = {"cut": more} if more else {}
    for longest, items in _STEPS:
        found = {_text(name, 40): _cut(value, longest, items) for name, value in whole.items()}
        found |= about
        if len(encoded(found)) <= most:
            return found
    while len(encoded(found)) > most:  # too many values
        for name in [*found][len(found) // 2 :]:
            del found[name]
        found |= about
    return found


def _text(text: str, longest: int) -> str:
    """Return the beginning of a text; less of one whose characters are escaped in JSON."""
    while len(encoded(text)) > 2 * longest or len(text) > longest:
        text = text[: min(longest, len(text) // 2)]
    return text


def _cut(value: Any, longest: int, items: int, depth: int = 0) -> Any:
    if isinstance(value, str):
        first = _text(value, longest)
        rest = len(value) - len(first)
        return f"{first}… ({rest} more characters)" if rest else value
    if not isinstance(value, list | tuple | Mapping):
        return value
    if depth == _DEEPEST:
        return "…"
    if isinstance(value, Mapping):
        pairs = islice(value.items(), items)
        kept = {
            _text(str(name), max(longest, 20)): _cut(one, longest, items, depth + 1)
            for name, one in pairs
        }
        return kept | ({"…": f"{len(value) - items} more"} if len(value) > items else {})
    some = [_cut(one, longest, items, depth + 1) for one in value[:items]]
    return [*some, f"… {len(value) - items} more"] if len(value) > items else some


def page(
    name: str, records: Iterable[Mapping[str, Any]], start: int, about: Mapping[str, Any], more: str
) -> str:
    """Return the records from place `start` on that fit, under a name, and where the next begin.

    `next` is None after the last record. A long record is cut; `more` says how to read all of it.
    """
    shown: list[Mapping[str, Any]] = []
    head = _shortened(about, "", _ABOUT)
    room = MOST - _ENVELOPE - len(encoded(head))
    following: int | None = None
    for place, record in enumerate(islice(records, start, None), start):
        short = _shortened(record, "", _RECORD)
        room -= len(encoded(short)) + 1
        if room < 0:
            following = place
            break
        shown.append(short)
    return encoded({**head, name: shown, "next": following, "more": more})


def piece(text: str, start: int) -> dict[str, Any]:
    """Return the part of a text that begins at `start`, and where the next one begins.

    A negative `start` counts from the end, and the part is the last one that fits.
    """
    length = min(-start, _PIECE) if start < 0 else _PIECE
    while True:
        begin = max(0, len(text) - length) if start < 0 else start
        end = begin + length
        if len(encoded(text[begin:end])) - len('""') <= _PIECE:  # escapes take room
            break
        length = length // 2
    following = end if end < len(text) else None
    return {
        "text": text[begin:end],
        "start": begin,
        "characters": len(text),
        "next": following,
    }


def part(record: Mapping[str, Any], name: str, start: int) -> str:
    """Return a value of a record in pieces: `name` is its dotted name, "" for the whole record.

    Raises:
        UserError: the record has no such value.
    """
    value: Any = record
    rest = name
    while rest:
        if not isinstance(value, Mapping):
            raise _no_part(name, record)
        known = [key for key in value if rest == key or rest.startswith(f"{key}.")]
        if not known:
            raise _no_part(name, value)
        key = max(known, key=len)
        value = value[key]
        rest = rest[len(key) + 1 :]
    text = value if isinstance(value, str) else encoded(value)
    return encoded({"name": name[:200], **piece(text, start)})


def _no_part(name: str, record: Mapping[str, Any]) -> UserError:
    known = ", ".join(islice(record, 40))
    return UserError(f"name {name!r} does not exist; choose from {known}", code="column-unknown")


def status(
    record: Mapping[str, Any], events: Iterable[tuple[str, str]], cursor: str, *, is_whole: bool
) -> str:
    """Return a sweep's state with those of its events, (id, line), that fit, oldest first.

    `cursor` is the id after which the events come; the answer has that of the last event shown.
    `is_whole`: there are no later events.
    """
    short = _shortened(record, "show has each value whole", _ABOUT)
    room = MOST - len(encoded(short)) - _ENVELOPE
    shown: list[str] = []
    for number, line in events:
        text = _cut(line, _RECORD // 2, 1)
        room -= len(encoded(text)) + 1
        if room < 0:
            is_whole = False
            break
        shown.append(text)
        cursor = number
    more = "status with since=cursor has the later events"
    return encoded({**short, "events": shown, "cursor": cursor, "all": is_whole, "more": more})


def refusal(error: HpqError) -> str:
    """Return an error as JSON, with its id."""
    return fitted({"error": error.record()})
