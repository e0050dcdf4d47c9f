"""How a worker's processes log: to stderr, with nothing that acts on a terminal."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from hpq.connection import credentials
from hpq.domain.attempt import Outcome
from hpq.domain.trial import Claim, TrialState
from hpq.sanitize import visible
from hpq.settings import Settings

log = logging.getLogger("hpq.worker")


class Inert(logging.Formatter):
    """Makes what is quoted from training code, Redis and libraries harmless, and hides secrets."""

    def __init__(self, pattern: str, secrets: Sequence[str] = ()) -> None:
        super().__init__(pattern)
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        """The record as text."""
        return visible(credentials.hide(super().format(record), self._secrets))


def configure(settings: Settings) -> None:
    """Log from HPQ_LOG on; at debug, libraries may tell of the URLs that they were given."""
    own = (credentials.of(settings.redis_url), settings.code_key)
    secrets = [*filter(None, own), *credentials.carried(settings.store)]
    handler = logging.StreamHandler()
    handler.setFormatter(Inert("%(asctime)s %(levelname).1s %(name)s: %(message)s", secrets))
    logging.basicConfig(level=settings.log.upper(), handlers=[handler])


def say_end(claim: Claim, outcome: Outcome, answer: str) -> None:
    """How an attempt ended, and what became of its commit."""
    value = "" if outcome.objective is None else f" {outcome.objective:.6g}"
    why = f": {outcome.failure.kind}: {outcome.failure.message}" if outcome.failure else ""
    level = logging.INFO if outcome.state is not TrialState.FAILED else logging.WARNING
    log.log(level, "%s %s%s%s (%s)", claim.trial, outcome.state, value, why, answer)
