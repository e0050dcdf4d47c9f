"""Messages between a worker and its runner, and the worker's log."""

from __future__ import annotations

import json
import logging

from hpq.domain.trial import Failure, FailureKind
from hpq_worker.process.logs import SafeFormatter
from hpq_worker.process.protocol import (
    AttemptEnd,
    LineBuffer,
    RunRequest,
    end_message,
    read_end,
    read_run,
    run_message,
)


def test_a_message_survives_the_pipe() -> None:
    run = RunRequest(
        trial="s/1", attempt=2, params={"a": [1, {"b": None}]}, argv=("x", "y"), env={}
    )
    (line,) = LineBuffer().feed(run_message(run))
    assert read_run(json.loads(line)["run"]) == run
    end = AttemptEnd(failure=Failure(kind=FailureKind.TIMEOUT, message="m"), status=3)
    assert read_end(json.loads(end_message("s/1/1", end))["end"]) == end


def test_lines_are_put_together_from_pieces() -> None:
    lines = LineBuffer()
    assert lines.feed(b"a\nb") == [b"a"]
    assert lines.feed(b"c\n\nd") == [b"bc", b""]
    assert lines.flush() == b"d" and lines.flush() == b""


def test_what_a_worker_logs_acts_on_no_terminal() -> None:
    record = logging.LogRecord("hpq", logging.INFO, "", 0, "\x1b[31m%s\nnext", ("\u202e",), None)
    assert SafeFormatter("%(message)s").format(record) == "\\x1b[31m\\u202e\nnext"
