"""`python -m hpq_worker.terminal_attempt FD`: one attempt in a terminal, for `hpq try`.

It uses no Redis. It runs as under a worker, but keeps the terminal's standard input and signals,
and neither a time limit nor a lease ends it. FD has a line of JSON, the trial, and then the bundle
of its code, if a copy runs. With `checkpoint`, that directory holds the checkpoints, and stays.
"""

from __future__ import annotations

from hpq.interrupts import end_on_signals

if __name__ == "__main__":
    end_on_signals()  # before the imports that take time

import json
import logging
import math
import os
import secrets
import signal
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpq.domain.attempt import HeartbeatReply
from hpq.domain.sweep import ObjectiveValue, RunnableSweep
from hpq.domain.trial import Claim, TrialId
from hpq.errors import Forbidden, HpqError
from hpq.gpus import visible
from hpq.settings import Settings, read
from hpq.store.wire.sweep import decode_runnable
from hpq_worker.attempt.attempt import AttemptRunner
from hpq_worker.attempt.code import CodeBundles
from hpq_worker.attempt.outcome import Result
from hpq_worker.attempt.parts import AttemptParts
from hpq_worker.attempt.trust import TrustPolicy
from hpq_worker.files.garbage import FileStoreHandle
from hpq_worker.files.workdir import check_scratch, work_folder
from hpq_worker.lease.heartbeat import Heartbeat
from hpq_worker.lease.report_buffer import ReportBuffer
from hpq_worker.process import devices
from hpq_worker.process import secrets as hidden
from hpq_worker.process.process_tree import adopt_orphans
from hpq_worker.process.signals import Signals


class _Terminal(ReportBuffer):
    """Prints what the trial prints, at once."""

    def log(self, data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


class _TrainerTerminal(_Terminal):
    """Prints also what a trainer reports; a program's own lines show that."""

    def report(self, metrics: Mapping[str, float], step: int | None, made_s: float = 0.0) -> None:
        super().report(metrics, step, made_s)
        values = " ".join(f"{name}={value:g}" for name, value in metrics.items())
        print(values if step is None else f"step {step} {values}", flush=True)

    def phase(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


class _NoHeartbeat(Heartbeat):
    """Sends nothing; keeps the reports for the last lines."""

    def __init__(self) -> None:
        self.reply, self.reports = HeartbeatReply.OK, ReportBuffer(None)

    def begin(self, claim: Claim, reports: ReportBuffer) -> None:
        self.reports = reports

    def notify(self) -> None:
        pass

    end = flush = notify


def _run(settings: Settings, data: dict[str, Any], code: bytes) -> int:
    """Run the trial; return the exit code of the program, 128 + N for signal N.

    Raises:
        Forbidden: a worker here would not trust the trial's sweep in Redis, or its code.
        SettingsError: HPQ_SCRATCH is not private.
    """
    check_scratch(settings.scratch)
    bundles = CodeBundles(
        settings.home, lambda _: code or None, work_root=settings.work_root, in_pod=settings.in_pod
    )
    trust, sweep = TrustPolicy(settings, bundles), _sweep(data, "sweep")
    untrusted = trust.untrusted(_sweep(data, "stored")) if "stored" in data else None
    if not untrusted and sweep.launch.bundled:
        untrusted = bundles.refusal(sweep.launch)
    if untrusted:
        raise Forbidden(untrusted.text, code=untrusted.code)
    sweep = replace(sweep, timeout_s=0.0, stall_s=math.inf)
    signals, heartbeat = Signals(settings.grace_s), _NoHeartbeat()
    signals.install()
    signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C is the training code's
    adopt_orphans()
    gpus = visible(os.environ)
    devices.check(gpus, os.environ, settings.pod_gpus)
    slots = devices.slots(gpus, settings.gpus_per_trial, settings.trials_per_gpu)
    if gpus:
        os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        os.environ["CUDA_VISIBLE_DEVICES"] = slots[0]
    parts = AttemptParts(
        settings=settings,
        environ={**os.environ, **hidden.hide(settings.in_pod)},
        trust=trust,
        bundles=bundles,
        files=FileStoreHandle(settings),
        heartbeat=heartbeat,
        signals=signals,
        terminal=_TrainerTerminal if sweep.launch.trainer else _Terminal,
        checkpoint=Path(data["checkpoint"]) if "checkpoint" in data else None,
    )
    trial = TrialId(sweep=data["id"], number=data["number"])
    claim = Claim(trial=trial, attempt=1, params=data["params"], nonce=secrets.token_hex(8))
    attempts = AttemptRunner(parts)
    try:
        result = attempts.run(claim, sweep)
    finally:
        attempts.close()
    lines = _lines(sweep, heartbeat.reports, result)
    if (out := work_folder(settings.work_root, claim) / "out").exists():
        lines.append(f"files of the trial: {out}")
    for line in lines:
        print(f"hpq: {line}", file=sys.stderr)
    if result.outcome is None:
        return 128 + signal.SIGTERM
    return result.status if result.status >= 0 else 128 - result.status


def _sweep(data: dict[str, Any], name: str) -> RunnableSweep:
    row = {field.encode(): text.encode() for field, text in data[name].items()}
    return decode_runnable("try", data["id"], row)


def _lines(sweep: RunnableSweep, reports: ReportBuffer, result: Result) -> list[str]:
    """Return what hpq understood: the metrics, and why the trial would fail."""
    metric, outcome = sweep.metric, result.outcome
    lines = []
    others = [name for name in reports.names if metric is None or name != metric.name]
    if metric is not None and reports.objective is not None:
        which = "best " if metric.take is ObjectiveValue.BEST else ""
        value = f"{which}{metric.name}={reports.objective:.6g} at step {reports.step}"
        lines.append(f"{value}; trials rank by it")
    if others and metric is not None:
        lines.append(f"other metrics: {', '.join(others)}")
    elif others:
        lines.append(f"metrics: {', '.join(others)}; none ranks trials, as no `metric:` is set")
    if result.status == -signal.SIGINT:
        lines.append("interrupted")
    elif outcome is not None and outcome.failure is not None:
        verb = "warning" if outcome.failure.kind == "unreported" else "failed"
        lines.append(f"{verb}: {outcome.failure.message}")
    return lines


def main() -> None:
    """Run the trial that the file descriptor describes."""
    logging.basicConfig(level=logging.ERROR, format="hpq: %(message)s")
    # Not on standard input, as process/config.py has it: that is the terminal's.
    with open(int(sys.argv[1]), "rb") as file:
        data, code = json.loads(file.readline()), file.read()
    try:
        settings = replace(read(os.environ), store="")
        sys.exit(_run(settings, data, code))
    except HpqError as error:
        print(f"hpq: {error.notice}", file=sys.stderr)
        sys.exit(int(error.exit_code))
    except BrokenPipeError:  # `hpq try … | head`: nothing is left to read what it prints
        os._exit(128 + signal.SIGPIPE)
    except OSError as error:
        sys.exit(f"hpq: cannot start the trial on this machine: {error}")


if __name__ == "__main__":
    main()
