"""Find the files of a sweep or of a trial in file stores, or say why there are none."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from hpq.access.connection_record import ConnectionRecord
from hpq.access.session import Session
from hpq.domain.sweep import SweepView
from hpq.domain.trial import Artifacts, TrialId, TrialView
from hpq.errors import DecodeError, NotFound, OutOfReach, UserError
from hpq.filestore.base import ID_FILE, Files, Readable, is_own, is_safe_name
from hpq.filestore.stores import location, open_files
from hpq.notice import plural
from hpq.redis.credentials import redact
from hpq.shell import shell_hint
from hpq.store.reader import StoreReader
from hpq.store.wire.trial import ARTIFACTS
from hpq_views.analysis.trial_row import unstored_words
from hpq_views.text.text import clean, size, trials_of
from hpq_views.why.warn import POD_STORE


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFiles:
    """The number of trials with files, the artifacts' size in bytes, and the file stores."""

    trials: int = 0
    size: int = 0
    stores: tuple[str, ...] = ()

    def __str__(self) -> str:
        of = f"the files of {trials_of(self.trials)}"
        in_all = f" ({size(self.size)} of artifacts)" if self.size else ""
        return f"{of}{in_all} in {self.place}"

    @property
    def place(self) -> str:
        names = " and ".join(map(clean, self.stores))
        return f"{plural(len(self.stores), 'store')} {names}"


def files_of(session: Session, sid: str) -> KeptFiles:
    """Return the files that the trials of a sweep have in file stores."""
    stores = session.reader.sweeps.file_stores(sid)
    if not stores:
        return KeptFiles()
    trials = taken = 0
    for artifacts, checkpoint in session.reader.sweeps.file_pointers(sid):
        trials += bool(artifacts or checkpoint)
        taken += _bytes(artifacts)
    return KeptFiles(trials=trials, size=taken, stores=tuple(stores))


def store_here(session: Session) -> Files | None:
    """Return the file store of this shell's settings; None if there is none under HPQ_HOME.

    Raises:
        OSError: the file store does not answer.
        SettingsError: HPQ_STORE cannot be used.
    """
    place = location(session.settings)
    if not session.settings.store and not (Path(place) / ID_FILE).exists():
        return None  # restoring creates no file store
    return open_files(place, creates=False)


def _bytes(artifacts: bytes) -> int:
    """Return the size of the files that a pointer names; 0 if it is none."""
    try:
        return sum(ARTIFACTS.parse(artifacts.decode()).files.values())
    except (ValueError, TypeError, RecursionError):  # any client of Redis may have written it
        return 0


def holder_of(reader: StoreReader, trial: TrialView) -> TrialView:
    """Return the trial that has a trial's files: of a copied result, the one that trained.

    The trial itself if that one was deleted.
    """
    if trial.artifacts is None and trial.trained != trial.id:
        with suppress(NotFound, DecodeError):
            return reader.trials.get(trial.trained)
    return trial


def has_file(left: Artifacts, name: str) -> bool:
    """Return True if a trial has a file of this name, which cannot leave the trial's folder."""
    return name in left.files and is_safe_name(name)


def why_no_files(trial: TrialView, in_cluster: bool) -> str:
    """Return why a trial has no files."""
    if not trial.state.is_terminal:
        return f"it is {trial.state}; files are stored when a trial ends"
    if trial.unstored:
        return f"they are {unstored_words(trial)}"
    if trial.gone == "keep":
        return f"the sweep's `keep` deleted them; `hpq show {trial.id.sweep}` prints the rule"
    logs = f"`hpq logs {trial.id}` prints their folder"
    lines = f"or its worker stored none (no HPQ_STORE, or an error; {logs})"
    gives = f"; pods need a store: {POD_STORE}" if in_cluster else ""
    return f"the trial wrote no file to its directory HPQ_OUT, {lines}{gives}"


def shared_file(sweep: SweepView, name: str | None) -> str:
    """Return a hint if trials share a file of this name in the directory where they run."""
    path = Path(sweep.launch.code_dir, name or "")
    if not sweep.launch.code_dir or not path.is_file():
        return ""
    return f"; all trials share {path}: write to $HPQ_OUT to keep one of each trial"


def store_of(
    session: Session, trial: TrialId, left: Artifacts, name: str, path: Path
) -> tuple[Readable, str]:
    """Return the store that has a trial's file, and its description; `path`: where to copy it.

    Raises:
        DecodeError: Redis names a folder that is not the trial's.
        OutOfReach: the store cannot be opened.
        UserError: this machine uses another store, or none.
    """
    if not is_own(left, session.settings.prefix, trial):
        what = f"Redis names {clean(left.path)!r} as the folder of its files, which is none of this"
        text = f"{trial}: {what} trial with prefix {session.settings.prefix}; nothing was read"
        raise DecodeError(f"{text}: `hpq retry {trial}` runs it again")
    place, where = location(session.settings), f"{clean(name)} is in store {clean(left.store)}"
    if session.connection and not session.settings.store:
        line = _copy_command(session.connection, f"{left.path}/{name}", str(path))
        text = f"{where}, which only pods mount; with the right pods/exec, run: {line}"
        raise UserError(text, code="store-differs")
    try:
        files = open_files(place, creates=False)
    except OSError as error:
        text = (
            f"cannot open the store {redact(place)}: {error}; mount it, or set HPQ_STORE to the"
            " workers' value"
        )
        raise OutOfReach(text, code="store-unusable") from None
    if files.id == left.store:
        return files, f"store {files.id} ({redact(place)})"
    raise UserError(
        f"{where}, but {redact(place)} is store {files.id}; set HPQ_STORE to the workers' value",
        code="store-differs",
    )


def open_stored(session: Session, holder: TrialView, name: str) -> IO[bytes]:
    """Open a file of a trial that has it (`holder_of`).

    Raises:
        NotFound: the trial has no such file, or the store cannot read it.
        HpqError: as `store_of`.
    """
    left = holder.artifacts
    if left is None or not has_file(left, name):
        raise NotFound(f"{holder.id} has no file {clean(name)}", code="no-files")
    files, where = store_of(session, holder.id, left, name, Path(Path(name).name))
    try:
        return files.read(f"{left.path}/{name}")
    except OSError as error:
        text = f"{clean(name)} cannot be read from {where}: {clean(str(error))}"
        raise NotFound(text, code="no-files") from None


def _copy_command(connection: ConnectionRecord, kept: str, path: str) -> str:
    """Return the kubectl command that copies a file out of the volume of a worker's pod."""
    read = f'cat "$HPQ_STORE"{shell_hint([f"/{kept}"])}'
    words = shell_hint(["exec", "deploy/hpq-worker", "--", "sh", "-c", read])
    return f"{connection.kubectl} {words} > {shell_hint([path])}"
