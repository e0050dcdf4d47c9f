"""`hpq exec`: become a program that finds hpq's stand-in as `wandb`."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from typer import Argument

import hpq
from hpq.access.session import load_settings
from hpq.agent_loop import PYTHON
from hpq.errors import UserError
from hpq.private_server.attach_or_start import attach

_HPQ = Path(hpq.__file__).resolve().parent
CONTEXT = {"ignore_unknown_options": True, "allow_interspersed_args": False}


def exec_program(
    command: Annotated[list[str], Argument(metavar="COMMAND", show_default=False)],
) -> None:
    """Run a program with hpq as its wandb: wandb.sweep enqueues, wandb.agent runs trials.

    Examples:
      hpq exec python train.py
      hpq exec jupyter lab
    """
    settings = load_settings()
    if not settings.redis_url:
        attach(settings.home).keep_across_exec()  # the private server runs as long as the program
    path = settings.home / "path"  # the package alone, for a Python that has nothing else of hpq
    path.mkdir(parents=True, exist_ok=True)
    if (link := path / "hpq").resolve() != _HPQ:
        link.unlink(missing_ok=True)
        with suppress(FileExistsError):
            link.symlink_to(_HPQ)
    entries = [str(path), str(_HPQ / "wandb_shim" / "stub"), os.environ.get("PYTHONPATH", "")]
    paths = os.pathsep.join(filter(None, entries))
    try:
        os.execvpe(command[0], command, {**os.environ, "PYTHONPATH": paths, PYTHON: sys.executable})
    except (OSError, ValueError) as error:  # ValueError: an empty name
        why = error.strerror if isinstance(error, OSError) else error
        text = f"cannot start {command[0]!r}: {why}; write: hpq exec python SCRIPT"
        raise UserError(text, code="program-missing") from None
