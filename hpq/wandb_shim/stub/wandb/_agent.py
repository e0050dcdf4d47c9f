"""`wandb.sweep` and `wandb.agent`: trials that call a function here, or a worker's program."""

from __future__ import annotations

import ast
import atexit
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ._run import _module
from ._transport import checks, hpq, hpq_json, log_once
from .errors import UsageError

_FLAPPING_S = 60.0
_IMPORTS = (ast.Import, ast.ImportFrom)
_created: set[str] = set()  # sweeps of this process
_to_stop: set[str] = set()  # those of which the last agent has run all trials of its count


def create(config: Any, project: str | None) -> str:
    """Queue a sweep of this configuration; return its id.

    Its trials call a function, also if it names a program and the script calls agent(function).

    Raises:
        TypeError: JSON cannot hold a value.
        UsageError: hpq rejects the configuration.
    """
    data = json.loads(json.dumps(config() if callable(config) else config))
    if not isinstance(data, dict):
        raise TypeError(f"wandb.sweep: {type(data).__name__} is not a mapping")
    if project:
        data["project"] = os.environ["WANDB_PROJECT"] = project
    starts = data.keys() & {"program", "command"}
    if "trainer" not in data and (not starts or _calls_agent()):
        for key in starts:  # W&B's agent does not read them either
            log_once(f"wandb.sweep: {key!r} is ignored, since this script calls wandb.agent")
            del data[key]
        data["trainer"] = "function"
    script = Path(sys.argv[0]).stem.lstrip("-")
    is_notebook = script.endswith("kernel_launcher")
    data.setdefault("name", data.get("project") or ("sweep" if is_notebook else script) or "sweep")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "sweep.json")
        file.write_text(json.dumps(data, indent=1), "utf-8")
        sid = str(hpq_json("enqueue", file, "--new", hide=f"{file}:")["sweep"])
    _created.add(sid)
    print("Create sweep with ID:", sid)
    print("Sweep URL: hpq watch", sid, flush=True)
    return sid


def _calls_agent() -> bool:
    """Return True if the script, or a module of its folder, calls wandb.agent with a function.

    A notebook and a script on stdin have no file to read; they most often do.
    """
    main = getattr(sys.modules["__main__"], "__file__", None) or ""
    if not os.path.isfile(main):
        return True
    folder = os.path.join(os.path.dirname(os.path.abspath(main)), "")
    files = [os.path.abspath(getattr(m, "__file__", "") or "") for m in sys.modules.values()]
    own = {f for f in files if f.startswith(folder) and "site-packages" not in f}
    return any(_has_agent_call(Path(file)) for file in own)


def _has_agent_call(file: Path) -> bool:
    try:
        text = file.read_bytes()
        nodes = list(ast.walk(ast.parse(text if b"agent" in text else b"")))
    except (OSError, SyntaxError, ValueError):  # also of an extension module
        return False
    names = set()
    for node in nodes:
        for alias in getattr(node, "names", ()) if isinstance(node, _IMPORTS) else ():
            if alias.name == "wandb":  # also `from hpq import wandb`
                names.add(f"{alias.asname or 'wandb'}.agent")
            elif alias.name == "agent" and getattr(node, "module", "") == "wandb":
                names.add(alias.asname or "agent")
    calls = (node for node in nodes if isinstance(node, ast.Call))
    return any(
        (call.args[1:] or any(key.arg in ("function", None) for key in call.keywords))
        and ast.unparse(call.func) in names
        for call in calls
    )


class _Failures:
    """W&B's rules for when an agent gives up."""

    def __init__(self, most_in_a_row: int | None) -> None:
        self._most_in_a_row, self._began = most_in_a_row, time.monotonic()
        self._failed = self._in_a_row = 0
        self._has_succeeded = False

    def go_on(self, failed: bool) -> bool:
        """Count the end of a trial; return whether the agent continues."""
        self._failed += failed
        self._in_a_row = self._in_a_row + 1 if failed else 0
        self._has_succeeded = self._has_succeeded or not failed
        why = self._why() if failed else ""
        if why:
            print(f"wandb: {why}", file=sys.stderr)
        return not why

    def _why(self) -> str:
        most = self._most_in_a_row
        if most and self._in_a_row >= most:
            return f"failed trials in a row: {most}; the agent ends"
        checks = os.environ.get("WANDB_AGENT_DISABLE_FLAPPING", "").lower() not in ("true", "1")
        if checks and self._failed >= 3 and time.monotonic() - self._began < _FLAPPING_S:
            return (
                "3 trials failed in the first 60 seconds; the agent ends. To disable this check,"
                " set WANDB_AGENT_DISABLE_FLAPPING=true"
            )
        most = int(os.environ.get("WANDB_AGENT_MAX_INITIAL_FAILURES") or 5)
        if not self._has_succeeded and self._failed >= most:
            return (
                f"failed trials, and none that finished: {most}; the agent ends. To allow more, set"
                " WANDB_AGENT_MAX_INITIAL_FAILURES"
            )
        return ""


def run_trials(
    sid: str, function: Callable[[], Any], finish: Callable[[], Any], count: int, in_a_row: Any
) -> None:
    """Call a function for the trials of a sweep; Ctrl-C ends it, and returns the trial.

    Raises:
        UsageError: the sweep cannot run here, is held, or a trial exceeded its time limit.
    """
    try:
        from hpq.agent_loop import AgentError, Attempt, serve  # noqa: PLC0415 - not in every Python
        from hpq.reporting import set_sink  # noqa: PLC0415
    except ImportError:
        raise UsageError("wandb.agent needs hpq; run `hpq exec python SCRIPT`") from None

    module = _module()

    def call(attempt: Attempt) -> int:
        set_sink(attempt.report, attempt.send)
        checks[:] = [attempt.raise_if_stopped]
        try:
            function()
        finally:
            checks.clear()
            finish()
            last = module.__dict__.pop("_last_run", None)
        return last.exit_code if last is not None else 0

    _to_stop.discard(sid)
    try:
        failures = _Failures(in_a_row)
        serve(sid, call, count, goes_on=failures.go_on)
    except AgentError as error:
        raise UsageError(str(error)) from None
    except KeyboardInterrupt:
        print("wandb: Ctrl-C: the trial returns to the queue; the agent ends", file=sys.stderr)
        return
    if count:
        _stop_at_exit(sid)


def run_program(sid: str, count: int) -> None:
    """Start a worker for a sweep's program, and wait until it ends; Ctrl-C ends it, too.

    Raises:
        UsageError: the sweep has no program, or the worker ends with an error, which it prints.
    """
    if hpq_json("show", sid)["launch"]["trainer"] == "function":
        raise UsageError(f"{sid} has no program; call wandb.agent(sweep_id, function=f)")
    _to_stop.discard(sid)
    python = os.environ.get("HPQ_EXEC") or sys.executable
    words = [python, "-P", "-m", "hpq_producer", "worker", "--sweep", sid, "--workers", "1"]
    if count:
        words += ["--count", str(count)]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL) as worker:
        is_interrupted = False
        while worker.returncode is None:
            try:
                worker.wait()
            except KeyboardInterrupt:  # the worker got it, too, and returns its trial
                is_interrupted = True
    if is_interrupted:
        return
    if worker.returncode:
        raise UsageError(f"the worker of {sid} ended with exit code {worker.returncode}")
    if count:
        _stop_at_exit(sid)


def _stop_at_exit(sid: str) -> None:
    """Stop a sweep of this process at its end, if the sweep has no limit of its own.

    A later agent of this process may run more trials of it before.
    """
    if sid in _created:
        if not _to_stop:
            atexit.register(_stop_open_ended, os.getpid())
        _to_stop.add(sid)


def _stop_open_ended(pid: int) -> None:
    """Stop the sweeps, unless this is a forked child, or another agent runs trials of them."""
    while _to_stop and os.getpid() == pid:
        sid = _to_stop.pop()
        try:
            sweep = hpq_json("show", sid)
            if not sweep["open_ended"] or sweep["running"]:
                continue
            # An agent that is between two trials runs none.
            if not any(worker["only"] == sid for worker in hpq_json("workers")):
                hpq("stop", sid, "--yes")
        except UsageError as error:
            print(f"wandb: {sid} is not stopped: {error}", file=sys.stderr)
