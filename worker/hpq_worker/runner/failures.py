"""Classify an exception, an exit status or a log as a typed failure. Pure; imports no torch.

The fingerprint is the exception's type and the innermost frame of the user's own code, so that one
mistake in many trials has one fingerprint.

torchrun writes `[default1]:` before lines of rank 1 (see environment), torch itself `[rank1]:`
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
from hpq.errors import BadParams, DataMissing, DeviceUnusable, Diverged, HpqError
from hpq.settings import IN_POD
from hpq.shell import shell_hint

_PREFIX = re.compile(r"(?:\[[A-Za-z_]*?(?P<rank>\d{1,9})\]:\s?)+")  # has the last one's rank
_ROOT = "\nRoot Cause (first observed failure):\n"
_RANK = re.compile(r"^[ \t]+rank[ \t]+: (\d{1,9}) ", re.MULTILINE)
_EXIT = re.compile(r"^[ \t]+exitcode[ \t]+: (-?\d{1,9}) ", re.MULTILINE)
_LAUNCHERS = re.compile(r"^torch\.distributed\.elastic\.\S*ChildFailedError", re.MULTILINE)
_OWN = tuple(Path(file).resolve().parent for file in (hpq.__file__, hpq_worker.__file__))
_FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+)', re.MULTILINE)
_ERROR = re.compile(r"^(?P<type>[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Warning))\b.*$")
# CUDA contexts and libraries allocate outside torch's allocator, with errors of their own. The last
# is of the C library, and of torch on a CPU.
_MEMORY = re.compile(
    r"out of memory|CUDA_ERROR_OUT_OF_MEMORY|STATUS_ALLOC_FAILED|MemoryError"
    r"|can(?:'t|not) allocate memory",
    re.IGNORECASE,
)
# After most errors a CUDA context is unusable; only a new process gets another.
_LOST_CONTEXT = re.compile(r"CUDA error|cuDNN error|CUDA driver error")
# A worker fault is a GPU that CUDA did not find: that process will never find it.
_RUINOUS = frozenset({FailureKind.OUT_OF_MEMORY, FailureKind.STALLED, FailureKind.WORKER_FAULT})
_STACK = "Traceback (most recent call last):"


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstFailure:
    """The rank that failed first, its exit status as in subprocess, and its output."""

    rank: int
    status: int
    log: str


def split_rank(line: str) -> tuple[int, str]:
    """Return the rank that printed a line (0 without a prefix), and the line without prefix."""
    found = _PREFIX.match(line)
    return (int(found["rank"]), line[found.end() :]) if found else (0, line)


def first_to_fail(tail: str) -> FirstFailure | None:
    """Parse torchrun's report of a failed group at the end of a log; None without one."""
    report = f"\n{tail}".rpartition(_ROOT)
    named = _RANK.search(report[2]) if report[1] else None
    ended = _EXIT.search(report[2], named.end()) if named else None
    if named is None or ended is None:
        return None
    rank, status = int(named[1]), int(ended[1])
    printed = [split_rank(line) for line in tail.splitlines() if _PREFIX.match(line)]
    own = "\n".join(text for by, text in printed if by == rank)
    return FirstFailure(rank=rank, status=status, log=own or _before_launcher(tail))


def _before_launcher(tail: str) -> str:
    """Return the log before torchrun's own stack."""
    found = _LAUNCHERS.search(tail)
    text = tail[: found.start()] if found else tail
    return text.rpartition(_STACK)[0] if found else text


def of_exception(error: BaseException) -> Failure:
    """Classify an exception of training code."""
    text = f"{type(error).__name__}: {error}" if str(error) else repr(error)
    return Failure(
        kind=_kind(error),
        message=_one_line(str(error) if isinstance(error, HpqError) else text),
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


def ruins_process(failure: Failure) -> bool:
    """Return whether the process of this failure must not run another attempt."""
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
    """Classify the end of a process by its status, as in subprocess, and its last lines.

    With `argv` of a program, the message of a missing module names the Python that lacks it: hpq's
    own, or the one on PATH, may not be the intended one.
    """
    if status < 0:
        return Failure(
            kind=FailureKind.KILLED,
            message=f"killed by {_signal(-status)}",
            fingerprint=f"killed by {_signal(-status)}",
        )
    if status == 0:
        line = "the trainer's process exited by itself (exit status 0)"
        return Failure(kind=FailureKind.USER_ERROR, message=line, fingerprint=line)
    if cause := first_to_fail(tail):  # all else follows from it
        failure = of_exit(cause.status or status, cause.log, argv)
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
    """Return which Python lacked a module, with the remedies; "" without a Python."""
    pythons = [arg for arg in argv[:2] if Path(arg).name.startswith("python")]
    if not pythons:
        return ""
    python = shutil.which(pythons[0]) or pythons[0]
    hint = f"; the program ran in {python}"
    if os.environ.get(IN_POD):
        return f"{hint} of the pod's image; add `RUN pip install` to an image FROM hpq-worker"
    hint += ", the Python of hpq" if is_own(python) else f"; hpq's own is {sys.executable}"
    install = f"run `{shell_hint([python, '-m', 'pip', 'install', 'PACKAGE'])}`"
    return f"{hint}; {install}, or set HPQ_PYTHON to the Python that has the module"


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
