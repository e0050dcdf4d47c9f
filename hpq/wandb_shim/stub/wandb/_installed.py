"""Says it where the real wandb is installed as well, so that nobody waits for it to be fed."""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder

from ._say import say


def tell_of_real() -> None:
    """One line where this interpreter has the real package, too."""
    ours = os.path.realpath(os.path.dirname(os.path.dirname(__file__)))
    others = [path for path in sys.path if os.path.realpath(path or ".") != ours]
    found = PathFinder.find_spec("wandb", others)
    if found is not None and found.origin is not None:  # no folder of runs of that name
        say(
            "the real wandb is installed here, but nothing goes to it: write `wandb: tee` into the"
            " sweep file to feed both, `wandb: real` to use only that"
        )
