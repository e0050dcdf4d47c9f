"""Copy a checkpoint from the file store back to the disk of a worker."""

from __future__ import annotations

from pathlib import Path
from threading import Event

from hpq.filestore.base import Files, GoOn, UnreadableFile, copy_out

_TRIES_S = (0.0, 0.5, 2.0)  # pauses before each try


def copy_back(files: Files, path: str, folder: Path, go_on: GoOn) -> str:
    """Copy the files of a checkpoint into a folder; return why it cannot be read, "" if it was.

    Raises:
        OSError: the store or the disk fails.
    """
    why = ""
    for pause_s in _TRIES_S:
        Event().wait(pause_s)
        try:
            names = files.names(path)
            for name in names:
                copy_out(files, f"{path}/{name}", folder / name, go_on)
            return "" if names else "the files of its checkpoint are gone from the store"
        except FileNotFoundError:
            return "files of its checkpoint are gone from the store"
        # Perhaps by any worker; it must not block its sweep.
        except (UnreadableFile, PermissionError) as error:
            why = f"its checkpoint cannot be read: {error}"
    return why
