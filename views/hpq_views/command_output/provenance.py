"""Read the origin (`hpq show --provenance`) and the code (`--code`) of a sweep or a trial."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hpq.code import bundle
from hpq.domain.sweep import SweepView
from hpq.domain.trial import TrialId
from hpq.errors import UserError
from hpq.notice import plural
from hpq.settings import Settings
from hpq.store.reader import StoreReader
from hpq_views.analysis.selection import refuse_unsigned

Origin = dict[str, Any]
_GIT = re.compile(r"(?i)(^|/)(\.git(/|$)|HEAD$)")  # a repository, also one without a work tree


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
        found.append({**record, "ran_on": dict(reader.sweeps.provenance(digest))})
    return found


_SHOWN_LIBRARIES = 4


def describe_versions(records: Iterable[Mapping[str, Any]]) -> str:
    """Describe the versions that differ between the hosts of a sweep; "" if none does."""
    found: dict[str, dict[str, str]] = {}  # library → version → a host that has it
    for record in records:
        for name, version in versions_of(record).items():
            found.setdefault(name, {}).setdefault(version, str(record.get("host")))
    apart = [name for name, versions in found.items() if len(versions) > 1]
    apart.sort(key=lambda name: (name != "Python", name != "torch", name))
    texts = [
        f"{name} " + ", ".join(f"{version} on {host}" for version, host in found[name].items())
        for name in apart[:_SHOWN_LIBRARIES]
    ]
    rest = len(apart) - len(texts)
    more = f"; {rest} more {plural(rest, 'library', 'libraries')}" if rest else ""
    return f"versions differ between hosts: {'; '.join(texts)}{more}" if apart else ""


def versions_of(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the versions of the Python that ran a program, and of its packages, by name."""
    other = record.get("programs")
    own = other if isinstance(other, Mapping) else record
    packages = own.get("packages")
    names = packages if isinstance(packages, Mapping) else {}
    found = {"Python": own.get("python"), **names}
    return {name: str(version) for name, version in found.items() if version}


def read_code(reader: StoreReader, sweep: SweepView) -> dict[str, tuple[bytes, int]]:
    """Return the files of a sweep's code, with the digest of its record, which may be forged.

    Raises:
        UserError: Redis does not have the code, or has other code than was enqueued.
    """
    sid = sweep.id
    data = reader.sweeps.bundle(sweep.bundle)
    if data is None:
        why = "too large, or deleted for newer code"
        if not sweep.launch.bundled:
            what = sweep.launch.trainer or sweep.launch.program
            where = f"runs live in {sweep.launch.code_dir}"
            if not sweep.launch.code_dir:
                where = f"is installed on the workers ({sweep.launch.code})"
            why = f"{what} {where}"
            if sweep.launch.is_function:
                why = "the function runs in the process that calls wandb.agent"
        text = f"{sid}: Redis does not have its code: {why}; hpq show {sid} names its commit"
        raise UserError(text, code="code-not-kept")
    try:
        return bundle.unpack(data, sweep.launch.code)
    except ValueError as error:
        text = f"{sid}: its code in Redis differs from the enqueued code: {error}"
        raise UserError(text, code="code-altered") from None


def write_code(reader: StoreReader, sid: str, folder: Path, settings: Settings | None) -> int:
    """Write a sweep's code into a new or empty directory; return the number of files.

    With `settings`, this machine's key must have signed the sweep.

    Raises:
        UserError: the code is missing in Redis, or not signed; the directory is not empty or
            unwritable.
    """
    sweep = reader.sweeps.get(sid)  # once: the record that is verified names the code
    if settings is not None:
        refuse_unsigned(settings, sweep, "writes its code")
    files = read_code(reader, sweep)
    if bad := next(filter(_GIT.search, files), None):
        text = f"{sid}: git would run commands of its file {bad!r}; nothing was written"
        raise UserError(text, code="code-altered")
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
        remedy = f"name a directory that you can write: hpq show {sid} --code DIR"
        raise UserError(f"{text}; {remedy}", code="file-unwritable") from None
    return len(files)
