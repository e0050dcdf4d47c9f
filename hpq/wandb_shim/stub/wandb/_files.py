"""Files that a script saves: copies under HPQ_OUT, which are the trial's artifacts."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from ._say import say

_OTHER = re.compile(r"[^A-Za-z0-9_./ -]")
_made: list[str] = []


def out() -> Path:
    """Where files are kept: HPQ_OUT, or a folder of this process outside a trial."""
    told = os.environ.get("HPQ_OUT")
    if told:
        return Path(told)
    if not _made:
        _made.append(tempfile.mkdtemp(prefix="wandb-"))
    return Path(_made[0])


def place(*parts: str) -> Path:
    """Where a file of this name goes; its folder is made. Nothing leads out of `out`."""
    words = [_OTHER.sub("_", w) for part in parts for w in str(part).split("/")]
    path = out().joinpath(*(w for w in words if w not in ("", ".", "..")))
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def keep(source: str | os.PathLike[str], *name: str) -> Path | None:
    """Copy a file or a folder; None, and a line in the log, where that cannot be."""
    target = place(*name)
    try:
        if os.path.isdir(source):
            shutil.copytree(source, target, dirs_exist_ok=True)
        elif not (target.exists() and os.path.samefile(source, target)):
            shutil.copy2(source, target)
    except OSError as error:
        say(f"{source} cannot be kept: {error.strerror or error}")
        return None
    return target


def keep_drawn(value: Any, *name: str) -> Path | None:
    """Keep what can save itself (a PIL image, a matplotlib figure) as PNG; None for the rest."""
    draw = getattr(value, "savefig", None) or getattr(value, "save", None)
    if not callable(draw):
        return None
    target = place(*name)
    try:
        draw(str(target), format="png")
    except Exception as error:  # whatever library it is of
        say(f"{target.name} cannot be drawn: {error}")
        return None
    return target
