"""What the stand-in says in a trial's log: each line once."""

from __future__ import annotations

import sys

_said: set[str] = set()


def say(text: str) -> None:
    """One line to stderr, which is the trial's log; the same line is not said twice."""
    if text not in _said:
        _said.add(text)
        print(f"wandb (hpq's stand-in): {text}", file=sys.stderr, flush=True)


def missing(what: str) -> str:
    """The text of an error about a name that the stand-in does not have."""
    return (
        f"{what}: hpq's stand-in for wandb does not have it; write `wandb: real` (or `wandb: tee`)"
        " into the sweep file to use the wandb that is installed"
    )
