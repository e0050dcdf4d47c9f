"""The protocol between a worker and its runner: JSON lines over two pipes. Standard library only.

Parent → runner: a RunRequest, then perhaps {"stop": why}, a Halt. When the pipe closes, the runner
kills its descendants and exits.
Runner → parent: {"report": {name: value}, "step": n, "at": seconds since 1970}, {"phase": text} and
one {"end": {…}}, each with "of", its attempt: in a resident runner a thread of one attempt may
outlive the attempt.
Program → parent, by the socket of hpq.reporting, without "of": reports, {"may_report": true},
{"ignore_printed": true}, {"begin_again": true}, {"run_info": {…}}, {"dropped": name, "why": …,
"of_process": …} and {"exit_code": n}.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any

from hpq.domain.trial import Failure, FailureKind, Json

_encode = json.JSONEncoder(separators=(",", ":")).encode  # json.dumps would make it anew


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """One attempt for the runner. Paths are absolute; exactly one of trainer and argv is set."""

    trial: str
    attempt: int
    params: Mapping[str, Json]
    seed: int = 0
    trainer: str = ""
    argv: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()  # modules of a program that is `PYTHON FILE …`
    env: Mapping[str, str] | None = None  # of a program; for a trainer, added to the runner's
    cwd: str = ""
    code_dir: str = ""  # where a user's trainer is imported from
    out: str = ""
    checkpoint: str = ""
    checkpoint_s: float = 60.0  # HPQ_CHECKPOINT_S
    data: str = ""  # HPQ_DATA
    cache: str = ""
    in_terminal: bool = False  # of `hpq try`: the program reads the terminal and gets its signals

    @property
    def id(self) -> str:
        """`sweep/number/attempt`."""
        return f"{self.trial}/{self.attempt}"


class Halt(StrEnum):
    """Why the worker stops an attempt before it ends by itself."""

    CANCELLED = "cancelled"
    PRUNED = "pruned"
    DIVERGED = "diverged"
    STOPPING = "stopping"  # a signal stops this worker
    LOST = "lost"  # another attempt has the trial
    UNKNOWN = "unknown"  # Redis has no such trial any more
    TIMEOUT = "timeout"
    STALLED = "stalled"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnd:
    """How an attempt ended: what the runner reports, then what the worker adds."""

    stopped: bool = False  # it obeyed a stop
    failure: Failure | None = None  # of a trainer
    status: int = 0  # exit status of a program, or of a runner that died; negative: a signal
    has_last_message: bool = True  # False: the runner died or was killed before its last message
    halt: Halt | None = None
    tail: str = ""  # the end of its log
    silent_s: float = 0.0  # its stall limit; 0 if its GPUs were idle
    argv: tuple[str, ...] = ()  # of a program
    in_terminal: bool = False  # of `hpq try`, which stores no results
    dropped: Mapping[str, str] = field(default_factory=dict)  # why the script's values were dropped
    reports: bool = False  # it called wandb.init or hpq.report: printed lines are no reports

    @property
    def is_finished(self) -> bool:
        """True if the training code returned without a failure."""
        return self.has_last_message and not (self.stopped or self.failure or self.status)


def encode(message: Mapping[str, Any]) -> bytes:
    """Encode one message as one line."""
    return _encode(message).encode() + b"\n"


def read_message(line: bytes) -> dict[str, Any] | None:
    """Decode one line; None if it is no message."""
    try:
        message = json.loads(line.decode())
    except ValueError:
        return None
    return message if isinstance(message, dict) else None


def run_message(run: RunRequest) -> bytes:
    """Encode the start of an attempt."""
    return encode({"run": {one.name: getattr(run, one.name) for one in fields(run)}})


def read_run(data: Mapping[str, Any]) -> RunRequest:
    """Decode the start of an attempt."""
    lists = {name: tuple(data[name]) for name in ("argv", "preload")}
    return RunRequest(**{**data, **lists})


def end_message(of: str, end: AttemptEnd) -> bytes:
    """Encode what a runner reports of the end of an attempt."""
    failure = None if end.failure is None else asdict(end.failure)
    return encode(
        {"of": of, "end": {"stopped": end.stopped, "failure": failure, "status": end.status}}
    )


def read_end(data: Mapping[str, Any]) -> AttemptEnd:
    """Decode what a runner reports of the end of an attempt."""
    raw = data["failure"]
    failure = None if raw is None else Failure(**{**raw, "kind": FailureKind(raw["kind"])})
    return AttemptEnd(stopped=data["stopped"], failure=failure, status=data["status"])


class LineBuffer:
    """Splits the bytes of a pipe into lines; of a line keeps the last `longest_bytes`, if given."""

    def __init__(self, longest_bytes: int | None = None) -> None:
        self._rest = b""
        self._longest_bytes = longest_bytes

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes; return the complete lines, without their ends."""
        *whole, rest = (self._rest + data).split(b"\n")
        self._rest = rest[-self._longest_bytes :] if self._longest_bytes else rest
        return whole

    def flush(self) -> bytes:
        """Return what follows the last line end."""
        rest = self._rest
        self._rest = b""
        return rest
