"""Send numbers to hpq, those written for TensorBoard too, and lines to the trial's log."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

from .errors import UsageError

try:
    from hpq.reporting import begin_again as begin_again
    from hpq.reporting import deliver as report
    from hpq.reporting import describe, set_exit_code
    from hpq.reporting import ignore_printed as ignore_printed
    from hpq.reporting import join_trial as join_trial
    from hpq.reporting import metric_name as metric_name
    from hpq.reporting import note_dropped as note_dropped
    from hpq.reporting import rank as rank
except ImportError:  # a script started by hand, in a Python without hpq

    def report(flat: Mapping[str, float], step: int | None) -> None:
        """Print the metrics, as `hpq.report` does outside a trial."""
        for name, value in flat.items():
            print(f"{name}={value!r}", flush=True)

    def begin_again() -> None:
        """Do nothing: there is no trial."""

    def ignore_printed() -> None:
        """Do nothing: no worker reads the output."""

    def join_trial() -> None:
        """Do nothing: there is no trial."""

    def note_dropped(names: Iterable[str], why: str, *, of_process: bool = False) -> None:
        """Do nothing: no worker names a reason."""

    def metric_name(name: str) -> str:
        """Return the name: any can be printed."""
        return name

    def describe(info: Mapping[str, object]) -> None:
        """Do nothing: no worker keeps it."""

    def set_exit_code(code: int) -> None:
        """Do nothing: no worker reads the code."""

    def rank() -> int:
        """Return 0: this is the only process."""
        return 0


_NAMES = 100  # in one datagram
_WRITERS = ("torch.utils.tensorboard.writer", "tensorboardX.writer")

_printed: set[str] = set()
checks: list[Callable[[], object]] = []  # raise an error once the trial must end; see _agent


def log_once(text: str) -> None:
    """Print a line to stderr, which is the trial's log, unless it was printed before."""
    if text not in _printed:
        _printed.add(text)
        print(f"wandb (hpq's stand-in): {text}", file=sys.stderr, flush=True)


def hpq_json(*words: Any, hide: str = "") -> Any:
    """Run a command of hpq and return its data. Raises as `hpq`."""
    return json.loads(hpq(*words, "--json", hide=hide))


def hpq(*words: Any, hide: str = "") -> str:
    """Run a command of hpq and return what it prints; `hide` is removed from the text of an error.

    Raises:
        UsageError: the command failed, or a worker runs this program: it cannot reach Redis.
    """
    if in_worker():
        raise UsageError("a worker's trial cannot read sweeps; use `hpq results --json` outside it")
    python = os.environ.get("HPQ_EXEC") or sys.executable
    command = [python, "-P", "-m", "hpq_producer", *map(str, words)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if not done.returncode:
        if words[0] != "get":  # its notes are for a terminal
            print(done.stderr, end="", file=sys.stderr)
        return done.stdout
    try:
        text = json.loads(done.stdout)["error"]["message"]
    except (ValueError, KeyError):
        text = done.stderr.strip() or f"`hpq {words[0]}` ended with {done.returncode}"
    if "No module named hpq_producer" in text:
        text = "this Python lacks hpq; run the script by `hpq exec python SCRIPT`"
    raise UsageError(text.replace(hide, "") if hide else text)


def in_worker() -> bool:
    """Return True if a worker runs this program, which cannot reach Redis; an agent's can."""
    return "HPQ_REPORT" in os.environ and "HPQ_AGENT" not in os.environ


def missing(what: str) -> str:
    """Return the error text for a name that the shim lacks."""
    inner = "import public names from wandb itself, or " if what.startswith("wandb.sdk") else ""
    return (
        f"{what}: hpq's stand-in for wandb lacks this; {inner}write `wandb: real` (or `wandb: tee`)"
        " into the sweep file to use the installed wandb [wandb-missing]"
    )


def send(values: Mapping[str, float], step: int) -> None:
    """Report values at a step, in pieces that fit a datagram. Only rank 0 reports."""
    if rank():
        why = f"rank {rank()} logged it, and only rank 0 reports for the trial"
        note_dropped(values, why, of_process=True)
        return log_once(f"rank {rank()}: reports are dropped; rank 0 reports for the trial")
    if len(values) <= _NAMES:
        return report(values, step)
    items = iter(values.items())
    while some := dict(islice(items, _NAMES)):
        report(some, step)


def describe_run(info: Mapping[str, object]) -> None:
    """Keep what the script sets beside numbers with the trial. Only rank 0 does."""
    if not rank():
        describe(info)


def set_trial_exit_code(code: int) -> None:
    """Set the trial's exit code; 0 leaves the process's own. The process exits with its own."""
    if not rank():
        set_exit_code(code if 0 <= code <= 255 else 1)


def follow_tensorboard(run: Any) -> None:
    """Report the scalars of SummaryWriters (`sync_tensorboard`), which are imported, as by W&B."""
    found = False
    for name in _WRITERS:
        try:
            writer = importlib.import_module(name).SummaryWriter
        except Exception:  # not installed, or torch without tensorboard
            continue
        found = True
        _wrap(writer, run)
    if not found:
        log_once("sync_tensorboard: there is no torch with tensorboard, and no tensorboardX")


def _wrap(writer: Any, run: Any) -> None:
    if hasattr(writer, "_hpq_run"):
        writer._hpq_run = run
        return
    writer._hpq_run = run
    plain = writer.add_scalar

    def add_scalar(
        self: Any, tag: str, scalar_value: Any, global_step: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        run = type(self)._hpq_run
        if not run._is_over:
            run.log_at(tag, scalar_value, global_step)
        return plain(self, tag, scalar_value, global_step, *args, **kwargs)

    writer.add_scalar = add_scalar
