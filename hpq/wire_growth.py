"""The half of `wire` for what comes into a sweep later: further files, and older results."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from hpq.errors import DecodeError
from hpq.fields import Row
from hpq.given import GivenFile
from hpq.trial import Json, Trial

_FIELD = b"file:"  # a sweep's hash holds each file that grew it under file:STAGE


def encode_file(digest: str, spec: Mapping[str, Json], origin: Mapping[str, Json]) -> str:
    """A file as the script `grow` keeps it."""
    record = {"digest": digest, "spec": spec, "origin": origin}
    return json.dumps(record, sort_keys=True, separators=(",", ":"), allow_nan=False)


def decode_files(key: str, row: Row) -> tuple[GivenFile, ...]:
    """The files that grew a sweep, in the order in which they did.

    Raises:
        DecodeError: one is not what this version writes.
    """
    return tuple(sorted(_files(key, row), key=lambda file: file.at_ms))


def _files(key: str, row: Row) -> Iterator[GivenFile]:
    for field, raw in row.items():
        if field.startswith(_FIELD):
            try:
                at_ms, added, text = raw.decode().split(" ", 2)
                data = json.loads(text)
                yield GivenFile(
                    at_ms=int(at_ms),
                    added=int(added),
                    digest=str(data["digest"]),
                    spec=dict(data["spec"]),
                    origin=dict(data["origin"]),
                )
            except (ValueError, TypeError, KeyError) as error:
                raise DecodeError(f"{key}: field {field!r}: {error}") from None


def encode_result(trial: Trial) -> str:
    """A finished trial's result as the script `seal` gives it to one of another sweep."""
    metrics = [part for name, value in trial.metrics.items() for part in (f"m:{name}", repr(value))]
    objective = "" if trial.objective is None else repr(float(trial.objective))
    record = {
        "from": trial.reused or str(trial.id),
        "objective": objective,
        "step": trial.step,
        "metrics": metrics,
        "provenance": trial.provenance,
        "seed": "" if trial.seed is None else str(trial.seed),
    }
    return json.dumps(record, separators=(",", ":"))
