"""A file that was enqueued into a sweep that was there. Imports nothing but trial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hpq.trial import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenFile:
    """A further file that was enqueued into a sweep: when, how many trials it added, its data.

    `origin` is what `provenance` says of it, its text among it; `spec` its data after the flags.
    """

    at_ms: int
    added: int
    digest: str = ""
    spec: Mapping[str, Json]
    origin: Mapping[str, Json]
