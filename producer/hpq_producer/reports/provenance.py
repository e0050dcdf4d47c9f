"""Read the origin (`hpq show --provenance`) and the code (`--code`) of a sweep or a trial."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from hpq.code import bundle
from hpq.domain.trial import TrialId
from hpq.errors import UserError
from hpq.store.reader import StoreReader

Origin = dict[str, Any]


def provenance_record(reader: StoreReader, found: TrialId | str) -> Origin:
    """Return the sweep file, the git state with the diff, the code; of a trial its attempts."""
    sid = found if isinstance(found, str) else found.sweep
    sweep = reader.sweeps.get(sid)
    manifest = reader.sweeps.manifest(sweep.launch.code)
    record = dict(sweep.provenance)
    git = record.get("git")
    diff = reader.sweeps.origin(sid, "diff")
    if isinstance(git, dict):
        kept = len(diff.encode())
        whole = git.get("diff_bytes")
        is_cut = isinstance(whole, int) and kept < whole
        record["git"] = {**git, "diff": diff, "diff_is_cut": is_cut}
    answer: Origin = {
        "sweep": sid,
        "seed": sweep.seed,
        "owner": sweep.owner,
        **record,
        "code": {
            "digest": sweep.launch.code,
            "directory": sweep.launch.code_dir,
            "kept": bool(sweep.bundle),
            "sent": sweep.launch.bundled,
            "files": dict(manifest),
        },
    }
    if isinstance(found, TrialId):
        answer |= {"trial": str(found), "params": dict(reader.trials.get(found).params)}
        answer["attempts"] = _attempts(reader, found)
    return answer


def _attempts(reader: StoreReader, trial: TrialId) -> list[Origin]:
    """Return each attempt with its environment; the last one's is in the trial's hash, too."""
    row = reader.trials.get(trial)
    found: list[Origin] = []
    for event in reader.events.of_trial(trial):
        if event.what not in ("claimed", "reused"):
            continue
        fields, number = event.fields, event.attempt
        digest = fields.get("provenance") or (row.provenance if number == row.attempt else "")
        record = {"attempt": number, "worker": fields.get("worker"), "host": fields.get("host")}
        if event.what == "reused":
            record = {"attempt": number, "from": fields.get("from")}
        found.append({**record, "ran_on": dict(reader.trials.provenance(digest))})
    return found


def read_code(reader: StoreReader, sid: str) -> dict[str, tuple[bytes, int]]:
    """Return the files of a sweep's code, verified against its signed digest.

    Raises:
        UserError: Redis does not have the code, or has other code than was enqueued.
    """
    sweep = reader.sweeps.get(sid)
    data = reader.sweeps.bundle(sweep.bundle)
    if data is None and (sweep.bundle or sweep.launch.bundled):
        raise UserError(
            f"{sid}: Redis does not have its code: too large, or deleted for newer code",
            code="code-not-kept",
        )
    if data is None:
        what = sweep.launch.trainer or sweep.launch.program
        raise UserError(
            f"{sid}: Redis does not have its code: {what} is installed on the workers"
            f" ({sweep.launch.code}), or an older hpq enqueued it",
            code="code-not-kept",
        )
    try:
        return bundle.unpack(data, sweep.launch.code)
    except ValueError as error:
        text = f"{sid}: its code in Redis differs from the enqueued code: {error}"
        raise UserError(text, code="code-altered") from None


def write_code(reader: StoreReader, sid: str, folder: Path) -> int:
    """Write a sweep's code into a new or empty directory; return the number of files.

    Raises:
        UserError: Redis does not have the code, or the directory is not empty or unwritable.
    """
    files = read_code(reader, sid)
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            text = f"{folder} is not empty; name another directory"
            raise UserError(text, code="file-exists")
        # An existing directory is filled, not replaced: it may be a shell's current directory.
        is_there, folder = folder.exists(), folder.resolve()
        draft = (folder if is_there else folder.parent) / f".{folder.name}.hpq-code"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        try:
            bundle.write(files, draft)
            if is_there:
                for part in list(draft.iterdir()):
                    part.rename(folder / part.name)
            else:
                draft.rename(folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    except OSError as error:
        text = f"{error.filename or folder}: {error.strerror}"
        raise UserError(text, code="file-unwritable") from None
    return len(files)
