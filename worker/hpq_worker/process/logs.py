"""Logging of a worker's processes: to stderr, without control characters and secrets."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from hpq.connection import credentials
from hpq.domain.attempt import CommitReply, Outcome
from hpq.domain.sweep import Metric
from hpq.domain.trial import Claim, TrialState
from hpq.sanitize import visible
from hpq.settings import Settings

log = logging.getLogger("hpq.worker")


class SafeFormatter(logging.Formatter):
    """Escapes control characters in quoted text, and hides secrets."""

    def __init__(self, pattern: str, secrets: Sequence[str] = ()) -> None:
        super().__init__(pattern)
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text."""
        return visible(credentials.hide(super().format(record), self._secrets))


def configure(settings: Settings) -> None:
    """Log at level HPQ_LOG; at debug, libraries may log URLs, so their passwords are hidden."""
    own = (credentials.of(settings.redis_url), settings.code_key, settings.notify)
    secrets = [*filter(None, own), *credentials.carried(settings.store)]
    handler = logging.StreamHandler()
    handler.setFormatter(
        SafeFormatter("%(asctime)s %(levelname).1s %(name)s: %(message)s", secrets)
    )
    logging.basicConfig(level=settings.log.upper(), handlers=[handler])


def log_end(claim: Claim, outcome: Outcome, metric: Metric | None, answer: str) -> None:
    """Log how an attempt ended, and the reply to its commit unless it is `done`."""
    value, failure = outcome.objective, outcome.failure
    result = f", {metric.name}={value:.6g}" if metric is not None and value is not None else ""
    why = f": {failure.kind}: {failure.message}" if failure else ""
    level = logging.INFO if outcome.state is not TrialState.FAILED else logging.WARNING
    reply = "" if answer == CommitReply.DONE else f" ({answer})"
    log.log(level, "%s %s%s%s%s", claim.trial, outcome.state, result, why, reply)
