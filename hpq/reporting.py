"""What training code imports: `import hpq; hpq.report({"val/loss": 0.3}, step=7)`.

Standard library only, one file, so that a user's environment needs nothing else of hpq. Under a
worker the report goes to the worker's socket, which HPQ_REPORT names (a program), or to the runner
(a trainer function); outside one it prints `name=value` lines, so a script runs by hand unchanged.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

METRIC_NAME = re.compile(r"[A-Za-z0-9_./ @()%:+-]{1,64}\Z")
METRIC_RULE = "use 1 to 64 of A-Z a-z 0-9 _ . / - @ ( ) % : + and space"
MAX_NAMES = 50  # different metric names of one trial
MAX_STEP = 2**53  # exact in a double, which is what Redis's scripts count with

if TYPE_CHECKING:  # a program's Python may be older than ours, and cannot evaluate this
    from collections.abc import Callable

    Sink = Callable[[Mapping[str, float], int | None], None]
_sink: Sink | None = None
_RANKS = ("RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK")  # torchrun's, Lightning's, mpirun's
_has_said = False


def report(metrics: Mapping[str, object], step: int | None = None) -> None:
    """Report values at a step (nested mappings are joined with '.'); without a step, the n-th.

    Of the processes of one trial rank 0 reports; the others say once that theirs are dropped.

    Raises:
        ValueError: a name or a value cannot be a metric, or the step is no whole number (names it).
    """
    if rank():
        _drop()
        return
    flat, step = flatten(metrics), whole(step)
    if _sink is not None:
        _sink(flat, step)
        return
    path = os.environ.get("HPQ_REPORT")
    if path:
        _send(path, encode(flat, step))
        return
    for name, value in flat.items():
        print(f"{name}={value!r}", flush=True)


def flatten(metrics: Mapping[str, object], prefix: str = "") -> dict[str, float]:
    """One level of {name: float} out of nested mappings and anything that float() takes.

    Raises:
        ValueError: a name or a value cannot be a metric (names it).
    """
    flat: dict[str, float] = {}
    for key, value in metrics.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{name}."))
            continue
        if not METRIC_NAME.match(name):
            raise ValueError(f"metric name {name!r}: {METRIC_RULE}")
        try:
            flat[name] = float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            raise ValueError(f"metric {name!r}: {value!r} is not a number") from None
    return flat


def whole(step: object) -> int | None:
    """A step as an int, whatever counts it (numpy, torch); None stays None.

    Raises:
        ValueError: it is not a whole number, or too large.
    """
    if step is None:
        return None
    try:
        number = int(step)  # type: ignore[call-overload]
        if number == step and abs(number) < MAX_STEP:
            return int(number)
    except (TypeError, ValueError, OverflowError):
        pass
    raise ValueError(f"step {step!r} is not a whole number below 2**53")


def rank() -> int:
    """Which of the processes of a trial this is, as its launcher says; 0 for the only one."""
    for name in _RANKS:
        text = os.environ.get(name, "")
        if text.isdigit():
            return int(text)
    return 0


def _drop() -> None:
    global _has_said
    if not _has_said:
        _has_said = True
        print(f"hpq: rank {rank()}: rank 0 reports for the trial", file=sys.stderr, flush=True)


def set_sink(sink: Sink | None) -> None:
    """Send reports of this process to a function; the runner calls this, training code does not."""
    global _sink
    _sink = sink


def encode(metrics: Mapping[str, float], step: int | None) -> bytes:
    """One report as one datagram (JSON; NaN and infinities as Python writes them)."""
    return json.dumps({"metrics": dict(metrics), "step": step}).encode()


def ignore_printed() -> None:
    """Printed lines `name=number` of this program are no reports from now on; the stand-in asks."""
    path = os.environ.get("HPQ_REPORT")
    if path and _sink is None:
        _send(path, b'{"ignore_printed": true}')


def set_exit_code(code: int) -> None:
    """The trial ends with this code where its program exits with 0; the last call counts."""
    path = os.environ.get("HPQ_REPORT")
    if path and _sink is None:
        _send(path, json.dumps({"exit_code": code}).encode())


def _send(path: str, data: bytes) -> None:
    # A datagram to a local socket is whole, in order and blocks while the reader is behind.
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        try:
            sock.sendto(data, path)
        except (FileNotFoundError, ConnectionRefusedError):
            return  # the worker has ended; its runner kills this program
