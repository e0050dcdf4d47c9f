"""From an exception, an exit status or a log to a typed failure. Pure; knows no torch.

The fingerprint is the exception's type and the innermost frame of the user's own code, so that the
same mistake of many trials is seen to be one.

Programs of several processes: whose line a printed one is, and whose fault an end is. Pure.

torchrun puts `[default1]:` before what rank 1 prints (see environment), torch itself `[rank1]:`
before its stacks. When a rank dies torchrun ends the others, whose errors follow from the first.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import hpq
import hpq_worker
from hpq.code.command import is_own
from hpq.domain.trial import Failure, FailureKind
from hpq.errors import DataMissing, HpqError
from hpq.settings import IN_POD
from hpq_worker.trainers.training.trial_context import BadParams, DeviceUnusable, Diverged

_PREFIX = re.compile(r"\[[A-Za-z_]*?(?P<rank>\d+)\]:\s?(?=(?P<rest>.*))")
_CAUSE = re.compile(
    r"^Root Cause \(first observed failure\):$.*?"
    r"^\s+rank\s+: (?P<rank>\d+) .*?^\s+exitcode\s+: (?P<status>-?\d+) ",
    re.MULTILINE | re.DOTALL,
)
_LAUNCHERS = re.compile(r"^torch\.distributed\.elastic\.\S*ChildFailedError", re.MULTILINE)
_STACK = "Traceback (most recent call last):"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """The rank that failed first, its exit status as subprocess tells it, and what it wrote."""

    rank: int
    status: int
    said: str


def split(line: str) -> tuple[int, str]:
    """The rank that printed a line (0 where nothing says so), and the line as it printed it."""
    rank = 0
    while found := _PREFIX.match(line):
        rank, line = int(found["rank"]), found["rest"]
    return rank, line


def first_to_fail(tail: str) -> Cause | None:
    """What torchrun says of a failed group at the end of a log; None where it says nothing."""
    found = list(_CAUSE.finditer(tail))
    if not found:
        return None
    rank, status = int(found[-1]["rank"]), int(found[-1]["status"])
    own = "\n".join(text for who, text in _told(tail) if who == rank)
    return Cause(rank=rank, status=status, said=own or _before_launcher(tail))


def _told(tail: str) -> list[tuple[int, str]]:
    """The lines that say which rank printed them."""
    return [split(line) for line in tail.splitlines() if _PREFIX.match(line)]


def _before_launcher(tail: str) -> str:
    """What stands before torchrun's own stack."""
    found = _LAUNCHERS.search(tail)
    text = tail[: found.start()] if found else tail
    return text.rpartition(_STACK)[0] if found else text


_OWN = tuple(Path(file).resolve().parent for file in (hpq.__file__, hpq_worker.__file__))
_FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+)', re.MULTILINE)
_ERROR = re.compile(r"^(?P<type>[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Warning))\b.*$")
# Not all of a GPU's memory is asked for by torch's allocator: contexts and libraries say it so. The
# last is of the C library, and of torch on a CPU.
_MEMORY = re.compile(
    r"out of memory|CUDA_ERROR_OUT_OF_MEMORY|STATUS_ALLOC_FAILED|MemoryError"
    r"|can(?:'t|not) allocate memory",
    re.IGNORECASE,
)
# A CUDA context does nothing any more after most of its errors; only a new process has another.
_LOST_CONTEXT = re.compile(r"CUDA error|cuDNN error|CUDA driver error")
# The worker's fault is a GPU that CUDA did not find: what a process has not found it never finds.
_RUINOUS = frozenset({FailureKind.OUT_OF_MEMORY, FailureKind.STALLED, FailureKind.WORKER_FAULT})


def of_exception(error: BaseException) -> Failure:
    """What an exception out of training code means."""
    said = f"{type(error).__name__}: {error}" if str(error) else repr(error)
    return Failure(
        kind=_kind(error),
        message=_one_line(str(error) if isinstance(error, HpqError) else said),
        fingerprint=f"{type(error).__name__} {_innermost(error)}".strip(),
    )


def _kind(error: BaseException) -> FailureKind:
    if isinstance(error, DataMissing):
        return FailureKind.DATA_MISSING
    if isinstance(error, DeviceUnusable):
        return FailureKind.WORKER_FAULT
    if isinstance(error, BadParams):
        return FailureKind.BAD_PARAMS
    if isinstance(error, Diverged):
        return FailureKind.DIVERGED
    # torch.OutOfMemoryError without importing torch
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return FailureKind.OUT_OF_MEMORY
    if isinstance(error, RuntimeError) and _MEMORY.search(str(error)):
        return FailureKind.OUT_OF_MEMORY
    return FailureKind.USER_ERROR


def leaves_ruins(failure: Failure) -> bool:
    """Whether nobody should train again in the process in which this happened."""
    return failure.kind in _RUINOUS or bool(_LOST_CONTEXT.search(failure.message))


def _innermost(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    users = [f for f in frames if not _is_library(f.filename)] or list(frames)
    return f"{Path(users[-1].filename).name}:{users[-1].lineno}" if users else ""


def _is_library(filename: str) -> bool:
    path = Path(filename)
    ours = any(folder in path.parents for folder in _OWN)
    return ours or "site-packages" in path.parts or filename.startswith("<")


def of_exit(status: int, tail: str, argv: Sequence[str] = ()) -> Failure:
    """What the end of a process means: its status as subprocess tells it, and its last lines.

    With the words that started a program, a module that is missing is told with whose Python it
    was: hpq's own, or the one on PATH, is not always the one that is meant.
    """
    if status < 0:
        return Failure(
            kind=FailureKind.KILLED,
            message=f"killed by {_signal(-status)}",
            fingerprint=f"killed by {_signal(-status)}",
        )
    if status == 0:
        line = "the process of the trainer ended by itself (exit status 0)"
        return Failure(kind=FailureKind.USER_ERROR, message=line, fingerprint=line)
    if cause := first_to_fail(tail):  # all else follows from it
        failure = of_exit(cause.status or status, cause.said, argv)
        return replace(failure, message=_one_line(f"rank {cause.rank}: {failure.message}"))
    error, frame = _last_error(tail), _last_frame(tail)
    hint = _of_python(argv) if error.startswith("ModuleNotFoundError") else ""
    kind = FailureKind.OUT_OF_MEMORY if _MEMORY.search(error) else FailureKind.USER_ERROR
    shown = error or _last_line(tail)
    return Failure(
        kind=kind,
        message=_one_line(f"exit status {status}" + (f": {shown}" if shown else "") + hint),
        fingerprint=f"{error.split(':')[0] or f'exit status {status}'} {frame}".strip(),
    )


def _of_python(argv: Sequence[str]) -> str:
    """Which Python lacked a module, and how another is taken; nothing where no Python is seen."""
    words = [word for word in argv[:2] if Path(word).name.startswith("python")]
    if not words:
        return ""
    python = shutil.which(words[0]) or words[0]
    said = f"; this was {python}"
    if os.environ.get(IN_POD):
        return f"{said} of the pod's image; build one FROM hpq-worker with `RUN pip install` of it"
    if is_own(python):
        said += ", which is hpq's own; to take another, set HPQ_PYTHON to the Python that has it"
    else:
        said += f"; hpq's own is {sys.executable}; to take another, set HPQ_PYTHON to it"
    return f"{said}, or start workers where its environment is active"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _last_error(tail: str) -> str:
    lines = [line for line in tail.splitlines() if _ERROR.match(line)]
    return lines[-1] if lines else ""


def _last_frame(tail: str) -> str:
    users = [m for m in _FRAME.finditer(tail) if not _is_library(m["file"])]
    return f"{Path(users[-1]['file']).name}:{users[-1]['line']}" if users else ""


def _last_line(tail: str) -> str:
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _one_line(text: str) -> str:
    # Half a surrogate pair, as in undecodable file names, cannot be stored.
    return " ".join(text.encode("utf-8", "replace").decode().split())[:500]
