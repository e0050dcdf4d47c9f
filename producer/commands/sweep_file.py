"""How a sweep file is read with the flags of enqueue, run and plan over it."""

from __future__ import annotations

from pathlib import Path

from hpq.errors import UserError
from producer.sweepfile.load import load
from producer.sweepfile.spec import SweepSpec


def read_file(
    file: Path,
    sets: list[str] | None,
    count: int | None,
    seed: int | None,
    name: str | None,
    trainer: str | None,
    force: bool = False,
) -> SweepSpec:
    """The sweep file with the flags over it.

    Raises:
        UserError: a --set has no '=', or what `load` finds.
    """
    overrides: dict[str, str] = {}
    for text in sets or []:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UserError(f"--set {text}: write KEY=VALUE, such as --set run_cap=8")
        overrides[key] = value
    more = {"limit": None} if force else {}
    return load(
        file, overrides=overrides, count=count, seed=seed, name=name, trainer=trainer, **more
    )
