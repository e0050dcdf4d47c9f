"""Copies the artifacts of an attempt (the files in HPQ_OUT) to the file store."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from threading import Event

from hpq.domain.trial import Artifacts
from hpq.filestore.base import Files, GoOn, copy_in, is_safe_name
from hpq.filestore.local import regular
from hpq.settings import IN_POD

TRIES_S = (0.0, 0.5, 2.0)  # pauses before each try to copy
IN_PODS = "`hpq manifests … --with store`"  # gives pods a store
_MOST_FILES = 1_000
LogLine = Callable[[str], None]


def publish(
    out: Path, files: Files | None, to: str, go_on: GoOn, log_line: LogLine
) -> Artifacts | None:
    """Copy the files in `out`; None if the store got none.

    Files that cannot be copied stay in `out`, and `log_line` names the directory.
    """
    sizes = {name: stat.st_size for name, stat in regular(out)}
    if sizes and files is None:
        log_line(f"HPQ_STORE is not set; the trial's files {_remain(out)}")
    invalid = sorted(name for name in sizes if not is_safe_name(name))
    names = sorted(sizes.keys() - set(invalid))[:_MOST_FILES]
    if files is None or not names:
        return None
    if invalid or len(names) < len(sizes) - len(invalid):
        log_line(f"files with unsafe names, or beyond {_MOST_FILES}, are not stored; see {out}")
    complaint = _copy(out, names, files, to, go_on)
    if complaint:
        log_line(f"cannot store the trial's files: {complaint}; they {_remain(out)}")
        return None
    if len(names) == len(sizes):
        shutil.rmtree(out, ignore_errors=True)
    return Artifacts(store=files.id, path=to, files={name: sizes[name] for name in names})


def _remain(out: Path) -> str:
    """Return where files remain that are in no store, and for how long."""
    if _is_in_pod():
        return f"stay at {out} and are lost with this pod; {IN_PODS} adds a store"
    return f"stay at {out} on this machine"


def no_store() -> str:
    """Return why an attempt without a store cannot resume, with the remedy."""
    return "HPQ_STORE is not set" + (f"; {IN_PODS} adds a store" if _is_in_pod() else "")


def _is_in_pod() -> bool:
    return bool(os.environ.get(IN_POD))


def _copy(out: Path, names: list[str], files: Files, to: str, go_on: GoOn) -> str:
    """Return why the copy failed; "" if it succeeded."""
    complaint = ""
    for pause_s in TRIES_S:
        if not go_on():
            break
        Event().wait(pause_s)
        try:
            if copy_in(out, names, files, to, go_on):
                return ""
        except OSError as error:
            complaint = str(error)
    return complaint or "the worker is stopping"
