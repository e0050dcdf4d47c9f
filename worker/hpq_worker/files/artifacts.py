"""Copies the artifacts of an attempt (the files in HPQ_OUT) to the file store."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from hpq.domain.trial import Artifacts
from hpq.filestore.base import Files, GoOn, copy_in, is_safe_name
from hpq.filestore.local import regular
from hpq.settings import IN_POD

IN_PODS = "`store: {}` in cluster.yaml"  # gives pods a store
_MOST_FILES = 1_000
_MOST_SHOWN = 5  # directories that a message names
LogLine = Callable[[str], None]


def publish(
    out: Path, files: Files | None, to: str, go_on: GoOn, log_line: LogLine
) -> Artifacts | None:
    """Copy the files in `out`; None if there are none, or no store. `log_line` names what stays.

    Raises:
        OSError: the store does not take the files, or `go_on` returned False; they stay in `out`.
    """
    sizes = {name: stat.st_size for name, stat in regular(out)}
    if sizes and files is None:
        log_line(f"HPQ_STORE is not set; the trial's files {remain(out)}")
    invalid = sorted(name for name in sizes if not is_safe_name(name))
    names = sorted(sizes.keys() - set(invalid))[:_MOST_FILES]
    if files is None or not names:
        return None
    if invalid or len(names) < len(sizes) - len(invalid):
        log_line(f"files with unsafe names, or beyond {_MOST_FILES}, are not stored; see {out}")
    if not copy_in(out, names, files, to, go_on):
        raise OSError("the worker is stopping")
    return Artifacts(store=files.id, path=to, files={name: sizes[name] for name in names})


def remove(out: Path, stored: Artifacts) -> None:
    """Remove `out` if the store has all files in it."""
    if all(name in stored.files for name, _ in regular(out)):
        shutil.rmtree(out, ignore_errors=True)


def remain(out: Path) -> str:
    """Return where files remain that are in no store, and for how long."""
    if is_in_pod():
        return f"stay at {out} and are lost with this pod; {IN_PODS} adds a store"
    return f"stay at {out} on this machine"


def wait(places: Sequence[Path]) -> str:
    """Return where files wait for a store that failed, and for how long."""
    shown = ", ".join(map(str, places[:_MOST_SHOWN]))
    if len(places) > _MOST_SHOWN:
        shown += f" and {len(places) - _MOST_SHOWN} more"
    if is_in_pod():
        return f"they are lost when this pod ends: {shown}"
    return f"they wait until a worker with this directory can store them: {shown}"


def no_store() -> str:
    """Return why an attempt without a store cannot resume, with the remedy."""
    return "HPQ_STORE is not set" + (f"; {IN_PODS} adds a store" if is_in_pod() else "")


def is_in_pod() -> bool:
    """Return True if the disk of this process goes with its pod."""
    return bool(os.environ.get(IN_POD))
