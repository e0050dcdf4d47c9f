"""What was found in a script: its options, and what it reports. Frozen, nothing but data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from hpq.trial import Json

Value = str | int | float | bool


class Kind(StrEnum):
    """What an option takes."""

    FLOAT = "float"
    INT = "int"
    TEXT = "text"
    FLAG = "flag"  # given or not: --amp
    TRUTH = "truth"  # true or false, in wandb.config
    WORDS_OF_TRUTH = "words of truth"  # --amp=true, read by a function of the script's
    OTHER = "other"  # several values, or a type that nothing is known of


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option as a user gives it: `--name=value`, or for a flag `--name` alone.

    `off` is the flag that says no, where there is one (--no-amp). `why_not` says why a sweep
    cannot set it. A default of wandb.config is an option, too; its value comes through that.
    """

    name: str
    line: int
    kind: Kind = Kind.TEXT
    default: Json = None
    choices: tuple[Value, ...] = ()
    low: float | None = None
    high: float | None = None
    required: bool = False
    off: str = ""
    why_not: str = ""
    nested: tuple[Option, ...] = ()  # of a default that is a mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """A metric that a script reports: its name, where, and by which call."""

    name: str
    line: int
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What a first sweep file needs to know of a script.

    `args` is the macro that hands parameters over, where it is not W&B's. `before` are words that
    its command line must have before the options: the name of a subcommand, then its arguments,
    each as the file shows them. `sweep` is what the script itself hands to wandb.sweep, and
    `takes_any` is false where its parser refuses options that it does not know.
    """

    options: tuple[Option, ...]
    reported: tuple[Reported, ...]
    args: str = ""
    before: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    sweep: Mapping[str, Json] | None = None
    takes_any: bool = True


def spelt(name: str) -> str:
    """A name as two spellings of it agree: batch-size and batch_size are one option."""
    return name.replace("-", "_").lower()
