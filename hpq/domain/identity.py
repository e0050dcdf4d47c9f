"""What makes two trials, or two sweeps, the same: canonical JSON and short hashes of it.

Imported by both sides; standard library only, no I/O. A trial's identity is that of its parameter
values, so 3.0 is 3 and the order of keys is nothing. A sweep's digest is that of its file's data,
where 3.0 is not 3: a range from 0.0 to 1.0 is another search space than one from 0 to 1.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from hashlib import blake2b

from hpq.domain.trial import Json, Params

MAX_SET_BYTES = 64 * 1024
ID_BYTES = 16
MAX_SLUG = 40

_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode
_NOT_IN_DIGEST = frozenset({"name", "description"})  # an edit of the words is the same sweep


def canonical(params: Params) -> bytes:
    """A set as JSON that depends on its values only: sorted keys, 3.0 as 3, -0.0 as 0.

    Raises:
        ValueError: a number is not finite (names its path), or the set is over 64 KiB.
    """
    data = _encode({name: _plain(value, name) for name, value in params.items()}).encode()
    if len(data) > MAX_SET_BYTES:
        raise ValueError(f"a set of {len(data):,} bytes; at most {MAX_SET_BYTES:,} are taken")
    return data


def identity(params: Params, replicate: int = 0) -> bytes:
    """The 16 bytes that name a trial within its sweep.

    Raises:
        ValueError: as `canonical`.
    """
    salt = replicate.to_bytes(ID_BYTES, "big")
    return blake2b(canonical(params), digest_size=ID_BYTES, salt=salt).digest()


def digest(spec: Mapping[str, Json], seed: int, code: str) -> str:
    """The 32 hex digits that name a sweep: its file's data but for its name, its seed, its code.

    Raises:
        ValueError: a number of the spec is not finite.
    """
    kept = {key: value for key, value in spec.items() if key not in _NOT_IN_DIGEST | {"seed"}}
    return blake2b(_encode([kept, seed, code]).encode(), digest_size=ID_BYTES).hexdigest()


def same_data(one: Json, other: Json) -> bool:
    """True where two parts of sweep files are the same, as a digest has them: 3.0 is not 3.

    Raises:
        ValueError: a number is not finite.
    """
    return _encode(one) == _encode(other)


def slug(name: str) -> str:
    """A name as the first part of an id: a-z, 0-9 and '-', at most 40; 'sweep' where none is left.

    The end is cut, not hashed: a random part follows.
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
