"""Decode the points of an ended trial, which lua/lib/points.lua packs into a hash, P:t:S/N:points.

A field is a metric. Its value is one segment for each time that the trial ended: "+" and the ids
and steps of the points, or "=" if these are in the field "", then the values. Numbers are
little-endian; letters are types of `struct`.

    ids     H count, d first ms, 3 letters, 3 columns: ms, sequence, step; each has (d) the numbers,
            or the differences from point to point as H runs of equal ones, their lengths, and them
    values  d or f, and the values; or B, the number of different values, these as d, places as B
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain, repeat
from struct import calcsize, error, unpack_from
from typing import Any, NamedTuple

from hpq.store.wire.fields import Row, count, moment, whole


class Entry(NamedTuple):
    """A point of a metric, with the id that it has, or had, in the metric's stream."""

    id: tuple[int, int]  # ms and sequence
    step: int
    value: float


def entry_id(text: str | bytes) -> tuple[int, int]:
    """Decode the id of an entry of a stream."""
    ms, seq = text.split(b"-" if isinstance(text, bytes) else "-")  # type: ignore[arg-type]
    return moment(ms), count(seq)


def decode_entries(rows: Sequence[tuple[bytes, Row]]) -> list[Entry]:
    """Decode the entries of a metric's stream; raises KeyError or ValueError if one is no point."""
    return [Entry(entry_id(eid), whole(row[b"s"]), float(row[b"v"])) for eid, row in rows]


def decode_record(packed: bytes, common: bytes) -> list[Entry]:
    """Decode a metric's field of the hash; `common` is the field "".

    Raises:
        ValueError: the field is invalid.
    """
    found: list[Entry] = []
    reader = _Reader(packed)
    try:
        while reader.at < len(packed):
            (mark,) = reader.take("c", 1)
            ids, steps = (reader if mark == b"+" else _Reader(common)).ids()
            values = reader.values(len(ids))
            # A later attempt that resumed has reported the steps behind its checkpoint again.
            while found and steps and found[-1].step >= steps[0]:
                found.pop()
            found += map(Entry, ids, steps, values)
    except (error, IndexError, TypeError, OverflowError) as problem:
        raise ValueError(f"not packed points: {problem}") from None
    return found


def joined(ended: list[Entry], newer: list[Entry]) -> list[Entry]:
    """Return the points of an ended attempt and of one that resumed from its checkpoint.

    The newer attempt reports the steps behind the checkpoint again. The points of a trial that
    ended between two reads are in both lists.
    """
    known, end = {entry.id for entry in ended if newer}, len(ended)
    newer = [entry for entry in newer if entry.id not in known]  # whatever the clock did between
    while newer and end and ended[end - 1].step >= newer[0].step:
        end -= 1
    return ended[:end] + newer


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, letter: str, many: int) -> tuple[Any, ...]:
        form = f"<{many}{letter}"
        found = unpack_from(form, self.data, self.at)
        self.at += calcsize(form)
        return found

    def ids(self) -> tuple[list[tuple[int, int]], list[int]]:
        (points,) = self.take("H", 1)
        (first,) = self.take("d", 1)
        letters = self.take("c", 3)
        columns = []
        for before, letter in zip((first, 0, 0), letters, strict=True):
            if letter == b"d":
                column = self.take("d", points)
            else:
                lengths = self.take("H", self.take("H", 1)[0])
                if sum(lengths) != points:
                    raise ValueError(f"runs of {sum(lengths)} for {points} points")
                rises = self.take(letter.decode("latin-1"), len(lengths))
                every = chain.from_iterable(map(repeat, rises, lengths))
                column = tuple(accumulate(every, initial=before))[1:]
            columns.append([int(number) for number in column])
        ms, seqs, steps = columns
        for end in (min(ms, default=0), max(ms, default=0)):
            moment(end)
        return list(zip(ms, seqs, strict=True)), steps

    def values(self, points: int) -> Sequence[float]:
        letter = self.take("c", 1)[0].decode("latin-1")
        if letter in ("d", "f"):
            return self.take(letter, points)
        if letter != "B":
            raise ValueError(f"type {letter!r}")
        different = self.take("d", self.take("B", 1)[0])
        return [different[place] for place in self.take("B", points)]
