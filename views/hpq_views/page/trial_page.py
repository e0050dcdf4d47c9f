"""The live page of one trial."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from markupsafe import escape

from hpq.access.session import Session
from hpq.domain.trial import TrialId, TrialState
from hpq_views.analysis.pareto_front import Front
from hpq_views.command_output.logs import LINES
from hpq_views.page.live import Listing, digest
from hpq_views.page.render import part
from hpq_views.page.trial_data import LOG_BYTES, read_trial


class TrialPage(Listing):
    """The page of a trial as HTML; a read of Redis renders it again if the trial changed."""

    def __init__(
        self, session: Session, trial: TrialId, front: Callable[[], Front | None], *, acts: bool
    ) -> None:
        super().__init__(self._rendered)
        self._front = front  # of the sweep, if it has several metrics
        self.id = trial
        self._session, self._acts = session, acts
        self._seen: object = None
        self._log, self._after = b"", "0-0"
        self._points = ""

    def _rendered(self) -> str:
        reader = self._session.reader
        trial = reader.trials.get(self.id)
        status = reader.status(self.id.sweep, 0, top=1)
        several = status.sweep.objectives
        front = self._front() if several and trial.state is TrialState.FINISHED else None
        standing = reader.ranking.standing(status.sweep, self.id.number)
        seen = (trial, status.best, standing, front)
        if seen == self._seen and trial.state is not TrialState.RUNNING:
            return self.html
        more, self._after = reader.trials.log(trial.trained, self._after)
        lines = deque((self._log + more).splitlines(keepends=True), maxlen=LINES)
        self._log = b"".join(lines)[-LOG_BYTES:]
        shown = read_trial(
            self._session, trial, status, standing, front, self._log, acts=self._acts
        )
        self._seen = seen
        self._points = f' data-points="{escape(shown.points)}" data-system="{escape(shown.system)}"'
        return part("trial", shown)

    def _changes(self, since: str) -> dict[str, Any] | None:
        """Return what a list does, with the curves only if they changed: the log moves faster."""
        known, _, drawn = since.partition(".")
        found, points = super()._changes(known), digest(self._points)
        if found and drawn == points:
            found["html"] = self.html.replace(self._points, "", 1)
        return found and {**found, "at": f"{found['at']}.{points}"}
