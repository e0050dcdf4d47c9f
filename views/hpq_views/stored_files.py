"""The checkpoints and artifacts of a sweep in file stores."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hpq.access.session import Session
from hpq.filestore.base import Files
from hpq.filestore.local import location, open_files
from hpq.notice import plural
from hpq.store.wire.trial import ARTIFACTS
from hpq_views.text.text import clean, size, trials_of


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
    """Return the file store of this shell's settings; None if its directory does not exist.

    Raises:
        OSError: the file store does not answer.
        SettingsError: HPQ_STORE cannot be used.
    """
    place = location(session.settings)
    if not session.settings.store and not Path(place).exists():
        return None  # restoring creates no file store
    return open_files(place, creates=False)


def _bytes(artifacts: bytes) -> int:
    """Return the size of the files that a pointer names; 0 if it is none."""
    try:
        return sum(ARTIFACTS.parse(artifacts.decode()).files.values())
    except (ValueError, TypeError, RecursionError):  # any client of Redis may have written it
        return 0
