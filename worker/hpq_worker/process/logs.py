"""Logging of a worker's processes: to stderr, as text or JSON, without secrets.

The output of trials goes to the log collector of a cluster, too, if HPQ_LOG_TRIALS is 1.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, ClassVar, get_args

from hpq.domain.attempt import CommitReply, Outcome
from hpq.domain.sweep import Metric
from hpq.domain.trial import Claim, TrialId, TrialState
from hpq.error_codes import Code
from hpq.redis import credentials
from hpq.sanitize import visible
from hpq.settings import Settings
from hpq_worker.process.protocol import LineBuffer

log = logging.getLogger("hpq.worker")
_output = logging.getLogger("hpq.trial")
_TAG = re.compile(r" \[([a-z-]+)\]\Z")
_CODES = frozenset(get_args(Code))
_LONGEST_BYTES = 16_384  # of a printed line; containerd splits longer ones


class SafeFormatter(logging.Formatter):
    """Escapes control characters in quoted text, and hides secrets."""

    def __init__(self, pattern: str, secrets: Sequence[str] = ()) -> None:
        super().__init__(pattern)
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text."""
        return visible(credentials.hide(super().format(record), self._secrets))


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON, and hides secrets."""

    # Of this process: the worker, and what it works on.
    about: ClassVar[Mapping[str, str | int]] = {}

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        super().__init__("%(message)s")
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON; an id at the end of its message is a field of its own."""
        message = credentials.hide(super().format(record), self._secrets)
        tag = None if record.name == _output.name else _TAG.search(message)  # a trial prints any
        code = tag[1] if tag and tag[1] in _CODES else ""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": message.removesuffix(f" [{code}]"),
            **({"id": code} if code else {}),
            **self.about,
        }
        return json.dumps(line)


def configure(settings: Settings, **about: str) -> None:
    """Log at level HPQ_LOG; at debug, libraries may log URLs, so their passwords are hidden.

    `about` are fields of all lines of JSON: worker, sweep.
    """
    own = (credentials.of(settings.redis_url), settings.code_key, settings.notify)
    secrets = [*filter(None, own), *credentials.carried(settings.store)]
    is_json = settings.log_format == "json"
    as_json = JsonFormatter(secrets) if is_json else None
    text = "%(asctime)s %(levelname).1s %(name)s: %(message)s"
    handler, printer = logging.StreamHandler(), logging.StreamHandler(sys.stdout)
    handler.setFormatter(as_json or SafeFormatter(text, secrets))
    printer.setFormatter(as_json or SafeFormatter("%(message)s", secrets))
    logging.basicConfig(level=settings.log.upper(), handlers=[handler])
    _output.setLevel(logging.INFO)
    _output.propagate, _output.handlers = False, [printer]
    name(**about)
    if is_json:
        logging.captureWarnings(True)
        sys.excepthook = _log_uncaught
        threading.excepthook = lambda of: _log_uncaught(of.exc_type, of.exc_value, of.exc_traceback)


def _log_uncaught(kind: type[BaseException], error: Any, trace: TracebackType | None) -> None:
    if kind is not SystemExit:  # which ends a thread silently
        log.critical("%s", kind.__name__, exc_info=(kind, error, trace))


def name(**about: str) -> None:
    """Add fields to all lines of JSON of this process."""
    JsonFormatter.about = {**JsonFormatter.about, **about}


@contextmanager
def during(trial: TrialId) -> Iterator[None]:
    """Name a trial in all lines of JSON of this process meanwhile."""
    before = JsonFormatter.about
    JsonFormatter.about = {**before, "sweep": trial.sweep, "trial": trial.number}
    try:
        yield
    finally:
        JsonFormatter.about = before


def tell(who: str, line: str, level: int = logging.ERROR) -> None:
    """Print a line for people, or log it if the log is JSON."""
    if _is_json():
        log.log(level, "%s", line)
    else:
        print(f"{who}: {line}", file=sys.stderr, flush=True)


def _is_json() -> bool:
    handlers = logging.getLogger().handlers
    return any(isinstance(handler.formatter, JsonFormatter) for handler in handlers)


class TrialOutput:
    """Prints the output of a trial to stdout, whole lines with the trial's id. For any thread."""

    def __init__(self, trial: TrialId) -> None:
        self._start = "" if _is_json() else f"{trial}: "
        self._lines, self._lock = LineBuffer(_LONGEST_BYTES), threading.Lock()

    def add(self, data: bytes) -> None:
        """Add printed bytes. Of a line that a progress bar overwrote, the last state is printed."""
        with self._lock:
            for line in self._lines.feed(data):
                text = line.rstrip(b"\r").rpartition(b"\r")[2].decode("utf-8", "replace")
                if text:
                    _output.info("%s%s", self._start, text)


def log_end(claim: Claim, outcome: Outcome, metric: Metric | None, answer: str) -> None:
    """Log how an attempt ended, and the reply to its commit unless it is `done`."""
    value, failure = outcome.objective, outcome.failure
    result = f", {metric.name}={value:.6g}" if metric is not None and value is not None else ""
    why = f": {failure.kind}: {failure.message}" if failure else ""
    level = logging.INFO if outcome.state is not TrialState.FAILED else logging.WARNING
    reply = "" if answer == CommitReply.DONE else f" ({answer})"
    log.log(level, "%s %s%s%s%s", claim.trial, outcome.state, result, why, reply)
