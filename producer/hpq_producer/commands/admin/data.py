"""`hpq data`: fetch a data set of the built-in trainers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

from typer import Argument

from hpq.access.session import load_settings
from hpq.datasets import WANTED, find
from hpq.errors import DataMissing, UserError
from hpq.shell import shell_line


def data(
    name: Annotated[str, Argument(help=f"Data set: {' or '.join(WANTED)}.")],
    folder: Annotated[
        Path | None,
        Argument(metavar="DIR", help="Directory. Default: HPQ_DATA, else HPQ_HOME/data."),
    ] = None,
) -> None:
    """Download a data set for the built-in trainers.

    Example: hpq data cifar10 /data
    """
    if name not in WANTED:
        raise UserError(f"no data set {name!r}; use one of {', '.join(WANTED)}")
    settings = load_settings()
    place = (folder or settings.data).absolute()
    try:
        find(name, place)
    except DataMissing:
        words = [sys.executable, "-P", "-m", "hpq_worker.trainers.download", name, str(place)]
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            last = done.stdout.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
            raise DataMissing(last[0]) from None
        find(name, place)  # an older file may be damaged
    print(f"{name} is in {place}")
    if settings.data.absolute() != place:
        print(shell_line(["export", f"HPQ_DATA={place}"]))
