"""Measure the gap from the end of one trial to the first step of the next, in training code."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median

import yaml

from benchmarks import peers
from benchmarks.figures import Figure, percentile
from benchmarks.processes import RQ, WORKER, running
from benchmarks.server import Server, private_server, wait_size
from benchmarks.sweeps import TRAINING, put, wait_over, write_trials
from benchmarks.training import stamps

_TARGET_MS = 50
_TRIALS, _FEW = 50, 20  # few: if each trial starts a process, or torch


def measure(rounds: int) -> Iterator[Figure]:
    """Measure every gap of one run of trials; each trial is a round."""
    with private_server() as server:
        resident = _hpq(server, "stamps:mark", _TRIALS, resident=True)
        simple = _rq(server, _TRIALS, "rq.worker.SimpleWorker")
        fresh = _hpq(server, "stamps:mark", _FEW, resident=False)
        forked = _rq(server, _FEW, "rq.worker.Worker")
        program, alone = _programs(server, _FEW), _programs_alone(server, _FEW)
        warm = _hpq(server, "stamps:digits", _FEW, resident=True)
        cold = _hpq(server, "stamps:digits", _FEW // 4, resident=False)
    ours = Figure(what="hpq, resident runner", unit="ms", values=resident, target=_TARGET_MS)
    yield ours
    yield Figure(
        what="hpq, resident runner, 95th percentile", unit="ms", values=[percentile(resident, 95)]
    )
    yield ours.peer("rq SimpleWorker, in the worker's own process", simple)
    yield ours.peer("rq Worker, a fork a job", forked)
    yield ours.peer("hpq, a fresh process a trial", fresh)
    programs = Figure(what="hpq, a program", unit="ms", values=program)
    yield programs
    yield programs.peer("the same program, one start after another", alone)
    trainer = Figure(
        what="hpq, trainer digits, resident", unit="ms", values=warm, target=_TARGET_MS
    )
    yield trainer
    yield trainer.peer("hpq, trainer digits, a fresh process a trial", cold)


def _hpq(server: Server, trainer: str, count: int, *, resident: bool) -> list[float]:
    server.empty()
    stamped = _stamps(server)
    file = write_trials(server.folder, trainer, count, resident=resident, file=str(stamped))
    sid = put(server, file)
    with running(WORKER, server.env):
        wait_over(server, sid)
    return _gaps_ms(stamped)


def _programs(server: Server, count: int) -> list[float]:
    server.empty()
    stamped, file = _stamps(server), server.folder / "stamped.yaml"
    values = {"number": {"values": list(range(count))}, "file": {"value": str(stamped)}}
    data = {"program": "stamped.py", "code": str(TRAINING), "method": "grid"}
    text = yaml.safe_dump({**data, "metric": {"name": "loss"}, "parameters": values})
    file.write_text(text, "utf-8")
    sid = put(server, file)
    with running(WORKER, {**server.env, "HPQ_PYTHON": sys.executable}):
        wait_over(server, sid)
    return _gaps_ms(stamped)


def _programs_alone(server: Server, count: int) -> list[float]:
    stamped = _stamps(server)
    for number in range(count):
        words = [f"--number={number}", f"--file={stamped}"]
        subprocess.run(
            [sys.executable, TRAINING / "stamped.py", *words],
            stdout=subprocess.DEVNULL,
            check=True,
        )
    return _gaps_ms(stamped)


def _stamps(server: Server) -> Path:
    stamped = server.folder / "stamps"
    stamped.unlink(missing_ok=True)
    return stamped


def _rq(server: Server, count: int, worker: str) -> list[float]:
    server.empty()
    stamped = _stamps(server)
    peers.enqueue_calls(server.redis, stamps.note, count, file=str(stamped))
    with running((*RQ, "worker", "--quiet", "--url", server.url, "--worker-class", worker)):
        wait_size(server, peers.FINISHED, count)
    return _gaps_ms(stamped)


def _gaps_ms(stamped: Path) -> list[float]:
    """Return the time from a trial's last stamp to the next one's first, less one step.

    A trainer that reports each epoch stamps at its end, so its median epoch is subtracted.
    """
    rows = [line.split() for line in stamped.read_text("ascii").splitlines()]
    pairs = list(pairwise((number, float(at)) for number, at in rows))
    steps = [b[1] - a[1] for a, b in pairs if a[0] == b[0]]
    step_s = median(steps)
    return [1000 * (b[1] - a[1] - step_s) for a, b in pairs if a[0] != b[0]]
