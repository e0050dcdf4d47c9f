"""Decide whether training code has ended a save. Pure: the caller looks at the files.

No trainer says that a save has ended. Hugging Face's Trainer, Keras's BackupAndRestore and sharded
saves write the files of a checkpoint one after another, under their final names, and seconds may
pass between two. So a state of the directory is whole in one of three cases:

- Nothing has changed for long enough.
- It is one file, and training code has saved that file alone before.
- The trial saves too often for that, and this pause is nearly as long as the longest of the last
  eight but one. Only pauses with a report count: a trainer reports between two saves, not during
  one.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

from hpq_worker.files.checkpoint_copy import Entry

_LONGEST = 6  # times the quiet time: what a slow save is waited for
_RESTLESS = 12  # times the quiet time: no checkpoint was whole for so long
_PAUSES = 8
_NEARLY = 0.9


class SaveWatch:
    """Follows a checkpoint directory; times are seconds of one clock.

    `quiet_s` is the time without a change after which a save has ended. A save that takes longer
    is waited for as long as it took.
    """

    def __init__(self, quiet_s: float, present: Sequence[Entry] = ()) -> None:
        """`present` are the files of a whole checkpoint."""
        self._quiet_s = quiet_s
        self._seen = present
        self._began = self._changed = -math.inf  # the save: its first and its last change
        self._reports = 0
        self._is_stable = True
        self._alone = ""  # the file that is a checkpoint by itself
        self._pauses = deque[float](maxlen=_PAUSES)

    def differs(self, seen: Sequence[Entry]) -> bool:
        """Return True if the files are not those of the last look."""
        return seen != self._seen

    def add(self, seen: Sequence[Entry], reports: int, now: float) -> None:
        """Add a look at the files; `reports` is the number of values that the trial reported."""
        was = self._seen
        self._seen = seen
        if seen == was:
            self._is_stable = True
            return
        before = _only(was)
        after = _only(seen)
        if self._is_quiet(now):
            self._began = now
            self._alone = before.name if before else ""
        elif before and after and self._is_saved_again(before, after):
            self._alone = after.name
        if reports != self._reports and math.isfinite(self._changed):
            self._pauses.append(now - self._changed)
        self._reports = reports
        self._changed = now
        self._is_stable = False

    def _is_saved_again(self, before: Entry, after: Entry) -> bool:
        """Return True if a file was replaced or rewritten, and is not being written at length."""
        if before.name != after.name or before == after:
            return False
        return before.inode != after.inode or (self._is_stable and after.size <= before.size)

    @property
    def is_alone(self) -> bool:
        """True if the directory has one file, which is a checkpoint by itself."""
        file = _only(self._seen)
        return file is not None and file.name == self._alone

    def is_whole(self, now: float) -> bool:
        """Return True if no save is under way; the caller has looked twice and saw no change."""
        return self.is_alone or self._is_quiet(now)

    @property
    def is_restless(self) -> bool:
        """True if saves have followed one another too closely for a long time."""
        return self._changed - self._began > _RESTLESS * self._quiet_s

    def quiet_s(self, now: float) -> float:
        """Return how long nothing has changed."""
        return now - self._changed

    def _is_quiet(self, now: float) -> bool:
        took_s = self._changed - self._began if math.isfinite(self._began) else 0.0
        needed_s = max(self._quiet_s, min(took_s, _LONGEST * self._quiet_s))
        if len(self._pauses) == _PAUSES:
            needed_s = min(needed_s, _NEARLY * sorted(self._pauses)[-2])
        return self.quiet_s(now) >= needed_s


def _only(entries: Sequence[Entry]) -> Entry | None:
    """Return the one file that is no draft; None if there are none or several."""
    files = [one for one in entries if not one.is_draft]
    return files[0] if len(files) == 1 else None
