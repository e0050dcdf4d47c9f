"""A sweep file that was added to an existing sweep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hpq.domain.trial import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendedFile:
    """A file that was added to an existing sweep: when, how many trials it added, its data.

    `spec` is its data after the command's options; `origin` is its provenance, with its text.
    """

    at_ms: int
    added: int
    digest: str = ""
    spec: Mapping[str, Json]
    origin: Mapping[str, Json]
