"""Decide when two trials, or two sweeps, are the same: canonical JSON and short hashes of it.

A trial's identity depends on its parameter values, and on the trial whose checkpoint it begins at:
3.0 equals 3, and key order is ignored. A sweep's digest depends on the data of its file, where 3.0
differs from 3: a range from 0.0 to 1.0 is another search space than a range from 0 to 1.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from functools import cached_property
from hashlib import blake2b

from hpq.domain.trial import Json, Params, Start
from hpq.errors import BadParams

MAX_PARAMS_BYTES = 64 * 1024
ID_BYTES = 16
MAX_SLUG = 40
SWEEP_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,99}\Z")

_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode
_NOT_IN_DIGEST = frozenset({"name", "description"})  # a sweep with another name is the same sweep


def canonical(params: Params) -> bytes:
    """Encode parameters as JSON of their values alone: sorted keys, 3.0 as 3, -0.0 as 0.

    Raises:
        ValueError: a number is not finite (names its path).
        BadParams: the JSON exceeds 64 KiB.
    """
    data = _encode({name: _plain(value, name) for name, value in params.items()}).encode()
    if len(data) > MAX_PARAMS_BYTES:
        text = f"the parameters of a trial have {len(data):,} bytes, more than {MAX_PARAMS_BYTES:,}"
        raise BadParams(f"{text}; use fewer, or shorter values", code="set-too-large")
    return data


class ParameterSet(dict[str, Json]):
    """Parameters of a trial, and its start, read-only.

    Their JSON is encoded once, at the first comparison.
    """

    start: Start | None = None

    def started_at(self, start: Start | None) -> ParameterSet:
        """Return these parameters for a trial that begins at another one's checkpoint."""
        found = ParameterSet(self)
        found.start = start
        return found

    @cached_property
    def identity(self) -> bytes:
        """The 16 bytes that identify the trial within its sweep (ValueError: as `canonical`)."""
        return self.salted(0)

    def salted(self, number: int) -> bytes:
        """Return 16 bytes that identify these values with a number: a replicate from 0, or a seed.

        Raises:
            ValueError: as `canonical`.
        """
        salt = number.to_bytes(ID_BYTES, "big")
        person = (self.start.trial if self.start else 0).to_bytes(ID_BYTES, "big")
        return blake2b(self._canonical, digest_size=ID_BYTES, salt=salt, person=person).digest()

    @cached_property
    def _canonical(self) -> bytes:
        return canonical(self)


def digest(spec: Mapping[str, Json], seed: int, code: str) -> str:
    """Return the 32 hex digits that identify a sweep: its file without names, its seed, its code.

    Raises:
        ValueError: a number of the spec is not finite.
    """
    kept = {key: value for key, value in spec.items() if key not in _NOT_IN_DIGEST | {"seed"}}
    return blake2b(_encode([kept, seed, code]).encode(), digest_size=ID_BYTES).hexdigest()


def slug(name: str) -> str:
    """Return a name as the first part of an id: at most 40 of a-z, 0-9 and '-'; 'sweep' if none.

    The end is cut rather than hashed, since a random part follows.
    """
    text = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:MAX_SLUG].rstrip("-")
    return text or "sweep"


def _plain(value: Json, path: str) -> Json:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{path}: {value} is not a finite number")
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {key: _plain(inner, f"{path}.{key}") for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner, f"{path}[{i}]") for i, inner in enumerate(value)]
    return value
