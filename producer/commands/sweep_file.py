"""How a sweep file is read with the flags of enqueue, run and plan over it."""

from __future__ import annotations

from pathlib import Path

from hpq.errors import UserError
from producer.limits import TAG
from producer.reuse import Reuse
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


def reuse_of(reuse: bool, any_code: bool) -> Reuse | None:
    """What --reuse and --any-code come to.

    Raises:
        UserError: --any-code stands alone.
    """
    if any_code and not reuse:
        raise UserError("--any-code goes with --reuse")
    if not reuse:
        return None
    return Reuse.ANY_CODE if any_code else Reuse.SAME_CODE


def tags_of(words: list[str] | None) -> tuple[str, ...]:
    """The tags, each once.

    Raises:
        UserError: one is no word of 1 to 40 of A-Z a-z 0-9 _ . : -.
    """
    for word in words or []:
        if not TAG.fullmatch(word):
            raise UserError(f"--tag {word}: use 1 to 40 of A-Z a-z 0-9 _ . : -")
    return tuple(dict.fromkeys(words or []))
