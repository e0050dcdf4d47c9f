"""What a process of a worker is started with: one line of JSON on its standard input.

The value holds the secret variables too: neither the command line nor /proc shows them. A field
that is a pipe or a file holds the file descriptor that the process inherits.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TypeVar

from hpq.store.wire import decode


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerConfig:
    """The pipes of the process that called `hpq.agent`, and its limits; hpq.agent_loop sends it."""

    commands: int
    answers: int
    output: int
    count: int = 0  # claim at most N trials; 0: no limit


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """The configuration of one worker process."""

    secrets: Mapping[str, str] = field(default_factory=dict)  # variables
    parent: int | None = None  # process id that this worker ends with; None: the present parent
    state: int | None = None  # the file that probes are answered from
    exit_reason: int | None = None
    run_budget: tuple[int, ...] = ()  # the read end and the write end
    is_until_over: bool = False  # exit when HPQ_SWEEP is over
    until_idle_s: float = 0.0  # exit when no trial could be claimed for so long; 0: never
    caller: CallerConfig | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SuggesterConfig:
    """The configuration of one suggester process."""

    secrets: Mapping[str, str]  # variables
    sweep: str
    worker: str
    parent: int  # process id of the worker
    error: int  # an error is also written here, as one line
    may_gp: bool = True  # False: `auto` does without a Gaussian process, after one was killed


C = TypeVar("C", WorkerConfig, SuggesterConfig)
_WHOLE = decode.optional(decode.whole)
_CALLER = decode.Record(
    CallerConfig,
    commands=decode.whole,
    answers=decode.whole,
    output=decode.whole,
    count=decode.whole,
)
WORKER = decode.Record(
    WorkerConfig,
    secrets=decode.by_name(decode.text),
    parent=_WHOLE,
    state=_WHOLE,
    exit_reason=_WHOLE,
    run_budget=decode.several(decode.whole),
    is_until_over=decode.flag,
    until_idle_s=decode.real,
    caller=decode.optional(_CALLER),
)
SUGGESTER = decode.Record(
    SuggesterConfig,
    secrets=decode.by_name(decode.text),
    sweep=decode.text,
    worker=decode.text,
    parent=decode.whole,
    error=decode.whole,
    may_gp=decode.flag,
)


def start(
    module: str,
    environ: Mapping[str, str],
    config: WorkerConfig | SuggesterConfig,
    fds: tuple[int, ...] = (),
) -> subprocess.Popen[bytes]:
    """Start a Python module in a new session; it inherits `fds` and `receive`s its configuration.

    Raises:
        OSError: no process can be started.
    """
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", module],
        env=environ,
        stdin=subprocess.PIPE,
        start_new_session=True,
        pass_fds=fds,
    )
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(asdict(config)).encode() + b"\n")
        process.stdin.close()
    except BrokenPipeError:  # it died at once; the caller's wait reports it
        pass
    return process


def receive(read: decode.Record[C]) -> C:
    """Read the configuration of this process; leaves an empty standard input.

    Raises:
        SystemExit: the process that starts this one ended before it had sent all.
        ValueError, TypeError: standard input holds no such configuration.
    """
    line = sys.stdin.buffer.readline()  # a child that the starter forks may keep the pipe open
    if not line.endswith(b"\n"):
        sys.exit("hpq: the process that starts this one has ended")
    with open(os.devnull, "rb") as null:
        os.dup2(null.fileno(), 0)
    # Not as a record of Redis: a variable may have bytes that are no text.
    return read(json.loads(line))
