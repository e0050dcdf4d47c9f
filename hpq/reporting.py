"""Report metrics from training code: `import hpq; hpq.report({"val/loss": 0.3}, step=7)`.

Standard library only, one file, so that a user's environment needs nothing else of hpq. In a trial
the report goes to the worker's socket, which HPQ_REPORT names (of a program, and of each child of a
function that an agent calls), or to the runner or agent that called the function. Outside one it
prints `name=value` lines, so a script runs by hand unchanged.
"""

from __future__ import annotations

import json
import math
import os
import re
import socket
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING

METRIC_NAME = re.compile(r"(?! *$)[A-Za-z0-9_./ @()%:+-]{1,64}\Z")
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_./ @()%:+-]")
METRIC_RULE = "use 1 to 64 of A-Z a-z 0-9 _ . / - @ ( ) % : + and space"
MAX_NAMES = 300  # different metric names of one trial
MAX_INFO = 8_192  # characters of what a script sets beside numbers, as JSON
MAX_TEXT = 1_000  # characters of a text in it
MAX_STEP = 2**53  # exact in a double, the number type of Redis's scripts

if TYPE_CHECKING:  # a program's Python may be older than ours, and cannot evaluate this
    from collections.abc import Callable

    Sink = Callable[[Mapping[str, float], int | None], None]
    Send = Callable[[Mapping[str, object]], None]
_sink: Sink | None = None
_send_info: Send | None = None
ONLY_RANK_0 = "rank {} reported it, and only reports of rank 0 count"
_RANKS = ("RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK")  # torchrun's, Lightning's, mpirun's
_has_warned = False
_has_joined = False
AGENT = "HPQ_AGENT"  # names a file with the environment of the trial that an agent runs now
# Names of metrics that were dropped, by their attempt: the worker hears of each once.
_dropped: set[tuple[str, str]] = set()
# The path, descriptor and identity of the connected socket that each report of a program uses.
_socket: tuple[str, int, os.stat_result] | None = None


def report(metrics: Mapping[str, object], step: int | None = None) -> None:
    """Report values at a step (nested mappings are joined with '.'); without a step, the n-th.

    Only rank 0 of the processes of a trial reports; the others print once that theirs are dropped.

    Raises:
        ValueError: a name or a value cannot be a metric, or the step is not an integer (names it).
    """
    if rank():
        _drop(metrics)
    else:
        deliver(flatten(metrics), whole(step))


def deliver(flat: Mapping[str, float], step: int | None) -> None:
    """Send what `report` has checked, or the wandb stand-in has, from rank 0."""
    if _sink is not None:
        _sink(flat, step)
        return
    join_trial()
    path = os.environ.get("HPQ_REPORT")
    if path:
        _send(path, {"report": flat, "step": step, "at": time.time()})
        return
    for name, value in flat.items():
        print(f"{name}={value!r}", flush=True)


@lru_cache(maxsize=1_000)
def is_metric_name(name: str) -> bool:
    """Return True for a name that METRIC_RULE allows."""
    return METRIC_NAME.match(name) is not None


def metric_name(name: str) -> str:
    """Return a name of W&B with '_' for each character that METRIC_RULE does not allow."""
    clean = _NOT_IN_NAME.sub("_", name)[:64]
    return clean if clean.strip(" ") else "_"


def flatten(metrics: Mapping[str, object], prefix: str = "") -> dict[str, float]:
    """Return {name: float} of one level from nested mappings and values that float() accepts.

    Raises:
        ValueError: a name or a value cannot be a metric (names it).
    """
    flat: dict[str, float] = {}
    for key, value in metrics.items():
        name = f"{prefix}{key}"
        if not isinstance(value, float) and isinstance(value, Mapping):  # the first is cheap
            flat.update(flatten(value, f"{name}."))
            continue
        if not is_metric_name(name):
            raise ValueError(f"metric name {name!r}: {METRIC_RULE}")
        try:
            flat[name] = float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            raise ValueError(f"metric {name!r}: {value!r} is not a number") from None
    return flat


def whole(step: object) -> int | None:
    """Return a step of any integer type (numpy, torch) as an int; None stays None.

    Raises:
        ValueError: the step is not an integer, or too large.
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
    """Return the rank of this process in its trial, from the launcher; 0 for the only process."""
    for name in _RANKS:
        text = os.environ.get(name, "")
        if text.isdigit():
            return int(text)
    return 0


def _drop(metrics: Mapping[str, object]) -> None:
    global _has_warned
    note_dropped(map(str, metrics), ONLY_RANK_0.format(rank()), of_process=True)
    if not _has_warned:
        _has_warned = True
        print(f"hpq: rank {rank()}: only reports of rank 0 count", file=sys.stderr, flush=True)


def set_sink(sink: Sink | None, send_info: Send | None = None) -> None:
    """Send reports of this process to a function, and `run_info` to another.

    What runs a trainer function calls this; training code does not.
    """
    global _sink, _send_info
    _sink, _send_info = sink, send_info


def _announce() -> None:
    """Tell the worker that this program may report: what it prints counts at its end, if at all."""
    with suppress(OSError):  # of another user, say: an import does not fail for it
        send_by_socket({"may_report": True})


def ignore_printed() -> None:
    """Stop reading printed lines `name=number` of this program as reports (for the stand-in)."""
    _tell({"ignore_printed": True})


def set_exit_code(code: int) -> None:
    """Set the trial's exit code for a program that exits with 0; the last call counts."""
    _tell({"exit_code": code})


def describe(info: Mapping[str, object]) -> None:
    """Keep what a script sets beside numbers: its run's name, tags, config, texts (JSON)."""
    _inform({"run_info": bounded(info)})


def begin_again() -> None:
    """Discard what the trial has reported: wandb.agent begins its run (for the stand-in)."""
    _inform({"begin_again": True})


def note_dropped(names: Iterable[str], why: str, *, of_process: bool = False) -> None:
    """Let the worker name the reason if one of these metrics is never reported.

    `of_process`: no value of this process is reported, which needs no warning: another one reports.
    """
    attempt = os.environ.get("HPQ_ATTEMPT_ID", "")
    new = [name for name in names if (attempt, name) not in _dropped]
    _dropped.update((attempt, name) for name in new)
    for name in new[:MAX_NAMES]:
        _inform({"dropped": name, "why": why, "of_process": of_process})


def join_trial() -> None:
    """Take over the environment of the agent's trial, in a process that a forkserver has made.

    Such a process has the environment of the trial in which the forkserver began.
    """
    global _has_joined
    if _has_joined or AGENT not in os.environ:
        return
    _has_joined = True
    processes = sys.modules.get("multiprocessing.process")
    parent = processes.parent_process() if processes else None
    if parent is None or parent.pid == os.getppid():
        return
    with suppress(OSError, ValueError), open(os.environ[AGENT], encoding="utf-8") as file:
        os.environ.update(json.load(file))


def send_by_socket(message: Mapping[str, object]) -> None:
    """Send a message to the worker's socket, from a process that an agent has forked."""
    path = os.environ.get("HPQ_REPORT")
    if path:
        _send(path, message)


def _inform(message: Mapping[str, object]) -> None:
    if _send_info is not None:
        _send_info(message)
    else:
        _tell(message)


def _tell(message: Mapping[str, object]) -> None:
    join_trial()
    path = os.environ.get("HPQ_REPORT")
    if path and _sink is None:
        _send(path, message)


def bounded(
    info: Mapping[str, object], mask: Callable[[str], str] = str, most: int = MAX_INFO
) -> dict[str, object]:
    """Return the entries that fit into `most` characters of JSON, with masked and cut texts."""
    kept: dict[str, object] = {}
    for key, value in info.items():
        inner = _bounded_value(value, mask, most)
        size = len(json.dumps({str(key): inner}))
        if size <= most:
            kept[str(key)] = inner
            most -= size
    return kept


def _bounded_value(value: object, mask: Callable[[str], str], most: int) -> object:
    if isinstance(value, Mapping):
        return bounded(value, mask, most - 100)  # room for its own key
    if isinstance(value, list):
        return [_bounded_value(item, mask, most) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no NaN
    if not isinstance(value, str):
        return value
    text = mask(value)
    return f"{text[:MAX_TEXT]}…" if text[MAX_TEXT:] else text


def _send(path: str, message: Mapping[str, object]) -> None:
    # A datagram to a local socket is whole, in order and blocks while the reader is behind.
    global _socket
    data = json.dumps(message).encode()  # NaN and infinities as Python writes them
    kept = _socket
    with suppress(OSError):
        # Training code may have closed all descriptors; the number may be another file's now.
        if kept and kept[0] == path and os.path.samestat(os.fstat(kept[1]), kept[2]):
            os.write(kept[1], data)
            return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        os.set_blocking(sock.fileno(), True)  # training code may have set a default timeout
        try:
            sock.connect(path)
            sock.send(data)
        except (FileNotFoundError, ConnectionRefusedError):
            return  # the worker has ended; its runner kills this program
        fd = sock.detach()
        _socket = path, fd, os.fstat(fd)


_announce()
