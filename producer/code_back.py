"""`hpq show --code DIR`: the code of a sweep, as it was enqueued, into a directory."""

from __future__ import annotations

import shutil
from pathlib import Path

from hpq import bundle as packing
from hpq import code
from hpq.errors import UserError
from hpq.view import View


def code_of(view: View, sid: str) -> dict[str, tuple[bytes, int]]:
    """The files of a sweep's code, compared with its signed digest.

    Raises:
        UserError: it is not kept, or what Redis holds is not what was enqueued.
    """
    sweep = view.sweep(sid)
    data, manifest = view.bundle(sweep.bundle), dict(view.manifest(sweep.launch.code))
    if not sweep.bundle:
        what = sweep.launch.trainer or sweep.launch.program
        raise UserError(
            f"{sid}: its code is not kept: {what} is installed where workers run"
            f" ({sweep.launch.code}), or an older hpq enqueued it",
            code="code-not-kept",
        )
    if data is None or code.digest_of(manifest) != sweep.launch.code:
        raise UserError(
            f"{sid}: its code is gone from Redis, or is not what was enqueued", code="code-altered"
        )
    try:
        return packing.unpack(data, manifest)
    except ValueError as error:
        raise UserError(
            f"{sid}: its code in Redis is not what was enqueued: {error}", code="code-altered"
        ) from None


def give_back(view: View, sid: str, folder: Path) -> int:
    """Write a sweep's code into a directory that is not there, or is empty; how many files.

    Raises:
        UserError: it is not kept, or the directory holds something or cannot be written.
    """
    files = code_of(view, sid)
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UserError(
                f"{folder}: is there and not empty; name another directory", code="file-exists"
            )
        # A directory that is there may be somebody's current one: it stays that one.
        is_there, folder = folder.exists(), folder.resolve()
        draft = (folder if is_there else folder.parent) / f".{folder.name}.hpq-code"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        try:
            packing.write(files, draft)
            if is_there:
                for part in list(draft.iterdir()):
                    part.rename(folder / part.name)
            else:
                draft.rename(folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    except OSError as error:
        raise UserError(
            f"{error.filename or folder}: {error.strerror}", code="file-unwritable"
        ) from None
    return len(files)
